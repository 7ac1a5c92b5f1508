# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step over a stack of layers against numpy with masks, in f64.

The patterns of the layers differ, in their blocks and in how many there are, and
every one has slots without a block.
"""

import sys

import numpy as np
import step

LAYERS, BLOCK, STEPS = 3, (4, 4), 3


def reference(a, masks):
    """One step, in the precision of its arrays."""
    w = a["w"] * masks
    saved, h = [], a["x"]
    for matrix in w:
        z = np.tanh(h @ matrix)
        saved.append((h, z))
        h = h + z
    d = h - a["t"]
    loss = np.sum(d * d)
    gradients = np.zeros_like(w)
    for i in reversed(range(LAYERS)):
        h, z = saved[i]
        da = d * (1 - z * z)
        gradients[i] = h.T @ da * masks[i]
        d = d + da @ w[i].T
    m = 0.5 * a["m"] * masks + gradients / np.sqrt(np.sum(gradients**2))
    return w - a["lr"] * m, m, loss


library = step.compile(sys.argv[1], ["--mark=match=^w$ dims=stack,row,col block=4x4 density=0.5"])
products = library.manifest["products"]
assert [products[k] for k in ("spmm", "spmm_transposed", "sddmm", "dense")] == [3, 2, 3, 0], products
assert library.manifest["left_dense"] == 0
described = {b["name"]: b for b in library.manifest["buffers"] if b["kind"] == "values"}
assert {p["name"] for p in library.manifest["patterns"]} == {"w.0", "w.1", "w.2"}
for i in range(LAYERS):
    for name in ("w", "m"):
        assert described[f"{name}.{i}"]["origin"] == {"name": name, "shape": [3, 16, 16]}
# What the layers save is values, not copies into a stack of them.
assert library.manifest["arena_bytes"] < 3 * 3 * 4 * 16 * 4 + 4096, library.manifest["arena_bytes"]

random = np.random.default_rng(1)
whole = {n: random.standard_normal(s) * 0.3
         for n, s in {"w": (3, 16, 16), "m": (3, 16, 16), "x": (4, 16), "t": (4, 16)}.items()}
whole["lr"] = np.array(0.1)
arrays = {n: whole[n].astype(np.float32) for n in ("x", "t", "lr")}
blocks, orders = {}, {}
for i in range(LAYERS):
    chosen = np.zeros(16, bool)
    chosen[random.permutation(16)[:7 - 2 * i]] = True
    name = f"w.{i}"
    blocks[name], orders[name] = chosen.reshape(4, 4), random.permutation(8)[:7 - 2 * i]
    for part in ("w", "m"):
        arrays[f"{part}.{i}"] = step.to_values(
            whole[part][i].astype(np.float32), blocks[name], BLOCK, 8, orders[name])

masks = np.stack([np.kron(blocks[f"w.{i}"], np.ones(BLOCK)) for i in range(LAYERS)])
got = library.run(arrays, blocks, orders, steps=STEPS)
for _ in range(STEPS):
    whole["w"], whole["m"], loss = reference(whole, masks)
assert abs(got["loss"] - loss) < 1e-5 * loss, (got["loss"], loss)
for part in ("w", "m"):
    for i in range(LAYERS):
        name = f"w.{i}"
        dense = step.to_dense(got[f"{part}.{i}"], blocks[name], orders[name])
        error = np.abs(dense - whole[part][i]).max()
        assert error < 1e-5, (part, i, error)
