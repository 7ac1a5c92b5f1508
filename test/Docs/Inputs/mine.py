# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step of a user of JAX, as README.md exports one."""

import jax
import jax.numpy as jnp


def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["in_w"]) @ params["out_w"] - y) ** 2)


@jax.jit
def step(state, batch):
    value, gradients = jax.value_and_grad(loss)(state["params"], *batch)
    return {"params": jax.tree.map(lambda w, g: w - 0.1 * g, state["params"], gradients)}, value


arguments = (
    {"params": {"in_w": jnp.ones((64, 128)), "out_w": jnp.ones((128, 32))}},
    (jnp.ones((16, 64)), jnp.ones((16, 32))),
)
