# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The first sparse step of a JAX program, as a user of the wheel writes it."""

import jax
import jax.numpy as jnp
import sparse_opt.jax


@jax.jit
def train_step(state, batch):
    def loss(params):
        hidden = jax.nn.gelu(batch["x"] @ params["first"])
        return jnp.mean((hidden @ params["last"] - batch["y"]) ** 2)

    value, gradients = jax.value_and_grad(loss)(state["params"])
    return {"params": jax.tree.map(lambda w, g: w - 0.1 * g, state["params"], gradients)}, value


first, last, x, y = (jax.random.normal(key, shape) / 8 for key, shape in zip(
    jax.random.split(jax.random.key(0), 4), ((64, 256), (256, 8), (32, 64), (32, 8))))
state, batch = {"params": {"first": first, "last": last}}, {"x": x, "y": y}
export = sparse_opt.jax.export(train_step, state, batch)
step = sparse_opt.compile(export, ["match=first|last block=8x8 density=0.5"], pattern="largest")
before = float(step(batch))
for _ in range(20):
    after = float(step(batch))
assert step.products["spmm"] and after < before, (step.products, before, after)
print(f"loss {before:.3f}, then {after:.3f}; {step}")
