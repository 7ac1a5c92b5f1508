# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A compiled JAX step runs on JAX arrays, and its state is a pytree.

# RUN: %python %s | FileCheck %s

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt
import sparse_opt.jax
from refusals import refuse

optimizer = optax.adamw(1e-2)


@jax.jit
def step(state, batch, key, scale):
    def loss(params):
        x = batch["x"] * jax.random.bernoulli(key, 0.9, batch["x"].shape)
        y = jnp.tanh(x @ params["a"]) @ params["b"].astype(jnp.float32)
        return jnp.mean((y - batch["y"]) ** 2) * scale

    value, gradient = jax.value_and_grad(loss)(state["params"])
    updates, opt = optimizer.update(gradient, state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt": opt}, value, {"norm": optax.global_norm(gradient)}

key = jax.random.PRNGKey(0)
params = {
    "a": jax.random.normal(key, (16, 32)),
    "b": jax.random.normal(key, (32, 16)).astype(jnp.bfloat16),
}
state = {"params": params, "opt": optimizer.init(params)}
batch = {"x": jnp.ones((8, 16)), "y": np.zeros((8, 16), np.float32)}
compiled = sparse_opt.compile(
    sparse_opt.jax.export(step, state, batch, key, 2.0), options=["-O", "1"]
)

# CHECK: equal True, metrics equal True, steps 3
for i in range(3):
    key = jax.random.PRNGKey(i)
    state, loss, metrics = step(state, batch, key, 2.0)
    got, got_metrics = compiled(batch, key, 2.0)
after = compiled.state_dict()
# Adam turns the last bits of bf16 into whole steps.
equal = all(
    np.allclose(x.astype(float), y.astype(float), rtol=1e-2, atol=2e-2)
    for x, y in zip(jax.tree.leaves(state), jax.tree.leaves(after))
)
print(
    f"equal {equal and np.allclose(loss, got, rtol=1e-3)}, metrics equal"
    f" {np.allclose(metrics['norm'], got_metrics['norm'], rtol=1e-2)},"
    f" steps {after['opt'][0].count}"
)

# The structure and the types are the user's.

# CHECK: True bfloat16
print(jax.tree.structure(after) == jax.tree.structure(state), after["params"]["b"].dtype)

# CHECK: loaded True
compiled.load_state_dict(state)
print("loaded", bool((compiled.state["params"]["a"] == state["params"]["a"]).all()))

# A number of Python in the state is one of the state's type, as flax's TrainState
# begins with, and a loss in bf16 is one.

# CHECK: counted 2 int32, loss 2.5 bfloat16
def count(state, x):
    return {"step": state["step"] + 1, "w": state["w"]}, x * state["w"]


counted = sparse_opt.compile(
    sparse_opt.jax.export(count, {"step": 0, "w": jnp.bfloat16(2.5)}, jnp.bfloat16(1.0)),
    options=["-O", "0"],
)
for _ in range(2):
    loss = counted(jnp.bfloat16(1.0))
number = counted.state_dict()["step"]
counted.load_state_dict({"step": 2, "w": jnp.bfloat16(2.5)})
print(f"counted {number} {number.dtype}, loss {loss} {loss.dtype}")

# The norms of blocks choose the first pattern.

# CHECK: largest True
sparse = sparse_opt.compile(
    sparse_opt.jax.export(step, state, batch, key, 2.0),
    ["match=params.a$ block=8x8 density=0.25"],
    pattern="largest",
    options=["-O", "1"],
)
a = np.abs(np.asarray(state["params"]["a"])).reshape(2, 8, 4, 8).sum((1, 3))
blocks = sparse.blocks("state.params.a")
want = {divmod(int(i), 4) for i in np.argsort(-a, axis=None)[:2]}
print("largest", set(zip(blocks.rows.tolist(), blocks.col_idx.tolist())) == want)

# CHECK: expected a program with objects of its own, but got a function: use state_dict()
refuse(compiled.store)
