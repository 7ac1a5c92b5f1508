# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Masks for loops of one's own are those that a compiled step of the same names and seed has.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

import jax
import jax.numpy as jnp
import numpy as np
import sparse_opt
import sparse_opt.jax
from refusals import refuse
from sparse_opt import masks


def step(state, x):
    loss = lambda p: jnp.mean((jnp.tanh(x @ p["up"]) @ p["down"] - x) ** 2)
    value, gradient = jax.value_and_grad(loss)(state["params"])
    return {"params": jax.tree.map(lambda w, g: w - 0.5 * g, state["params"], gradient)}, value, gradient


rng = np.random.default_rng(1)
params = {"up": jnp.asarray(rng.normal(size=(32, 64)), jnp.float32), "down": jnp.asarray(rng.normal(size=(64, 32)), jnp.float32)}
x = jnp.asarray(rng.normal(size=(16, 32)), jnp.float32)
names = ["state.params.down", "state.params.up"]
shapes = {name: np.shape(params[name.split(".")[-1]]) for name in names}

for block, density in ((8, 0.25), ((4, 16), 0.3), (1, 0.2)):
    export = sparse_opt.jax.export(lambda state, x: step(state, x)[:2], {"params": params}, x)
    run = sparse_opt.compile(export, [sparse_opt.Mark("params", block=block, density=density)], pattern="random", seed=7)
    blocks = lambda: {name: run.to_scipy_bsr(name) for name in names}
    stored = lambda: {n: type(b)((np.ones_like(b.data), b.indices, b.indptr), b.shape).toarray() != 0 for n, b in blocks().items()}
    found = masks.first(shapes, block=block, density=density, seed=7)
    assert all((found[n] == stored()[n]).all() for n in names)
    other = masks.first(shapes, block=block, density=density, seed=8)
    assert any((other[n] != found[n]).any() for n in names)
    # The masked program, by itself.
    weights = {n: np.asarray(params[n.split(".")[-1]]) * found[n] for n in names}
    for number, options in enumerate([{}, {"allow_return": True}, {"norm": "l2"}, {"method": "gmp", "density": density / 2}, {}]):
        for _ in range(2):
            run(x)
            state = {"params": {n.split(".")[-1]: jnp.asarray(w) for n, w in weights.items()}}
            gradient = step(state, x)[2]
            weights = {n: w - 0.5 * np.asarray(gradient[n.split(".")[-1]]) * found[n] for n, w in weights.items()}
        drop = 0 if "method" in options else 0.4
        run.update_patterns(drop, **options)
        before = found
        found = masks.update(weights, found, drop, block=block, number=number, seed=7, **options)
        assert all((found[n] == stored()[n]).all() for n in names), (block, number)
        assert any((found[n] != before[n]).any() for n in names)
        weights = {n: w * found[n] * before[n] for n, w in weights.items()}
    assert all(np.abs(weights[n] - run.read(n)).max() < 1e-5 for n in names)
print("the same blocks")
# CHECK: the same blocks

# Blocks of the largest gradients, beside NumPy's own choice.
w, mask = rng.normal(size=(8, 16)), np.kron(np.eye(2, 4, dtype=bool), np.ones((4, 4), bool))
g = rng.normal(size=(8, 16))
sums = np.where(mask[::4, ::4], -1, np.abs(g).reshape(2, 4, 4, 4).sum((1, 3)))
least = min(((0, 0), (1, 1)), key=lambda at: np.abs(w.reshape(2, 4, 4, 4)[at[0], :, at[1]]).sum())
want = mask[::4, ::4].copy()
want[least] = False
want[np.unravel_index(sums.argmax(), sums.shape)] = True
made = masks.update({"w": w}, {"w": mask}, 0.5, block=4, number=0, method="rigl", gradients={"w": g})["w"]
assert (made == np.kron(want, np.ones((4, 4), bool))).all()

refuse(masks.update, {"w": w}, {"w": mask}, 0.5, block=4, number=0, method="rigl")
# CHECK: expected the gradient of 'w' for a method that scores all blocks, but got none: pass gradients=
refuse(masks.update, {"w": w}, {"v": mask}, block=4, number=0)
# CHECK: expected a mask of 'w', but got those of ['v']
refuse(masks.update, {"w": w}, {"w": mask[:, :4]}, block=4, number=0)
# CHECK: expected a mask of shape [8, 16] for 'w', but got [8, 4]
refuse(masks.update, {"w": w}, {"w": mask}, block=8, number=0)
# CHECK: expected the mask of 'w' to keep whole blocks of 8x8, one at least, but got a part of one
refuse(masks.update, {"w": w}, {"w": mask & False}, block=4, number=0)
# CHECK: expected the mask of 'w' to keep whole blocks of 4x4, one at least, but got none
refuse(masks.update, {"w": w}, {"w": mask}, block=3, number=0)
# CHECK: expected blocks that divide the weight, 8x16 (outputs by inputs), but got 3x3
refuse(masks.update, {"w": w.astype(np.int32)}, {"w": mask}, block=4, number=0)
# CHECK: expected a matrix of float32 or float64 for 'w', but got int32 of shape [8, 16]
refuse(masks.update, {"w": w}, {"w": mask}, block=4, number=-1)
# CHECK: expected number
refuse(masks.first, {"w": (8, 16)}, block=4, density=0)
# CHECK: expected a density above 0, at most 1
