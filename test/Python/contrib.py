# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Muon and DoG, of optax.contrib: what they make of gradients and of the weights at first
# is what they make of masked ones.

# RUN: %python %s | FileCheck %s

import jax
import jax.numpy as jnp
import numpy as np
import optax.contrib

import sparse_opt
import sparse_opt.jax

MARKS = ["match=params.*w[12]$ block=4x4 density=0.5"]
STEPS = 3
rng = np.random.default_rng(0)
params = {
    "w1": rng.normal(size=(16, 32)) / 4,
    "b": rng.normal(size=32),
    "w2": rng.normal(size=(32, 8)) / 6,
}
batch = (rng.normal(size=(24, 16)), rng.normal(size=(24, 8)))


def make_step(optimizer, mask=lambda params: params):
    """The step of mask(params), differentiated."""

    def step(state, batch):
        def loss(params):
            (x, y), p = batch, mask(params)
            return jnp.mean((jnp.tanh(x @ p["w1"] + p["b"]) @ p["w2"] - y) ** 2)

        value, gradient = jax.value_and_grad(loss)(state["params"])
        updates, opt = optimizer.update(gradient, state["opt"], state["params"])
        params = mask(optax.apply_updates(state["params"], updates))
        return {"params": params, "opt": opt}, value

    return step


def to(dtype, tree):
    """The tree in f32, as numbers of `dtype`."""
    return jax.tree.map(lambda x: jnp.asarray(np.float32(x), dtype), tree)


def compare(name, optimizer):
    start = to(jnp.float32, params)
    state = {"params": start, "opt": optimizer.init(start)}
    export = sparse_opt.jax.export(
        jax.jit(make_step(optimizer)), state, to(jnp.float32, batch)
    )
    compiled = sparse_opt.compile(
        export, MARKS, seed=1, pattern="largest", options=["-O", "1"]
    )
    masks = {"b": np.ones(32)}
    for w in ("w1", "w2"):
        blocks = compiled.blocks(f"state.params.{w}")
        grid = np.zeros(tuple(n // 4 for n in params[w].shape))
        grid[blocks.rows, blocks.col_idx] = 1
        masks[w] = np.kron(grid, np.ones((4, 4)))
    with jax.enable_x64(True):
        mask = lambda tree: jax.tree.map(lambda x, m: x * m, tree, masks)
        start = mask(to(jnp.float64, params))
        wanted = {"params": start, "opt": optimizer.init(start)}
        step = jax.jit(make_step(optimizer, mask))
        for _ in range(STEPS):
            wanted, loss = step(wanted, to(jnp.float64, batch))
    for _ in range(STEPS):
        got = compiled(to(jnp.float32, batch))
    after = compiled.state_dict()["params"]
    apart = max(
        np.abs(after[w] - wanted["params"][w]).max()
        / np.abs(wanted["params"][w] - start[w]).max()
        for w in params
    )
    print(f"{name}: loss {abs(got - loss) / loss:.1e}, weights {apart:.1e} of what they move,")
    print(f"left dense {compiled.products['left_dense']}")


# CHECK: muon: loss {{.*e-(0[6-9]|1.)}}, weights {{.*e-(0[5-9]|1.)}} of what they move,
compare("muon", optax.contrib.muon(0.02))
# CHECK: dog: loss {{.*e-(0[6-9]|1.)}}, weights {{.*e-(0[5-9]|1.)}} of what they move,
# CHECK-NEXT: left dense 0
compare("dog", optax.contrib.dog(1.0, ("distance", 0.05)))
