# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A recurrent layer over 300 steps against numpy with masks, in f64."""

import sys

import numpy as np
import step

LENGTH, BATCH, SIZE, BLOCK, STEPS = 300, 4, 16, (4, 4), 3


def reference(a, masks):
    """One step, in the precision of its arrays."""
    u, w = a["u_w"] * masks["u_w"], a["h_w"] * masks["h_w"]
    states = [np.zeros((BATCH, SIZE))]
    for x in a["x"]:
        states.append(np.tanh(x @ u + states[-1] @ w))
    distance = np.stack(states[1:]) - a["t"]
    du, dw, dh = np.zeros_like(u), np.zeros_like(w), np.zeros((BATCH, SIZE))
    for i in reversed(range(LENGTH)):
        da = (dh + distance[i]) * (1 - states[i + 1] ** 2)
        du += a["x"][i].T @ da
        dw += states[i].T @ da
        dh = da @ w.T
    return (u - a["lr"] * du * masks["u_w"], w - a["lr"] * dw * masks["h_w"],
            0.5 * np.sum(distance**2))


library = step.compile(sys.argv[1], ["--mark=match=_w$ block=4x4 density=0.5"])
products = library.manifest["products"]
assert [products[k] for k in ("spmm", "spmm_transposed", "sddmm", "dense")] == [301, 299, 301, 0], products
assert library.manifest["left_dense"] == 0
# A few tensors of all steps, a gradient of the weight as it is summed.
assert library.manifest["arena_bytes"] < 6 * LENGTH * BATCH * SIZE * 4, library.manifest["arena_bytes"]

random = np.random.default_rng(1)
weights = ("u_w", "h_w")
whole = {n: random.standard_normal((SIZE, SIZE)) * 0.4 for n in weights}
whole |= {n: random.standard_normal((LENGTH, BATCH, SIZE)) * 0.3 for n in ("x", "t")}
whole["lr"] = np.array(0.001)
arrays = {n: whole[n].astype(np.float32) for n in ("x", "t", "lr")}
blocks = {}
for name in weights:
    chosen = np.zeros(16, bool)
    chosen[random.permutation(16)[:8]] = True
    blocks[name] = chosen.reshape(4, 4)
    arrays[name] = step.to_values(whole[name].astype(np.float32), blocks[name], BLOCK)

masks = {name: np.kron(blocks[name], np.ones(BLOCK)) for name in weights}
got = library.run(arrays, blocks, steps=STEPS)
for _ in range(STEPS):
    whole["u_w"], whole["h_w"], loss = reference(whole, masks)
assert abs(got["loss"] - loss) < 1e-5 * loss, (got["loss"], loss)
for name in weights:
    error = np.abs(step.to_dense(got[name], blocks[name]) - whole[name]).max()
    assert error < 1e-5, (name, error)
