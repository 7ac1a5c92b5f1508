# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step over a stack of layers against numpy with masks, in f64.

The patterns of the layers differ, in their blocks and in how many there are, and
every one has slots without a block; but for static patterns, which a file says of
all layers at once.
"""

import json
import os
import sys
import tempfile

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
    gradients, norms = np.zeros_like(w), []
    for i in reversed(range(LAYERS)):
        h, z = saved[i]
        da = d * (1 - z * z)
        dense = h.T @ da
        norms.append(np.abs(dense.reshape(4, 4, 4, 4)).sum((1, 3)))
        gradients[i] = dense * masks[i]
        d = d + da @ w[i].T
    m = 0.5 * a["m"] * masks + gradients / np.sqrt(np.sum(gradients**2))
    return w - a["lr"] * m, m, loss, norms[::-1]


MARK = "--mark=match=^w$ dims=stack,row,col"
library = step.compile(sys.argv[1], [f"{MARK} block=4x4 density=0.5"])
products = library.manifest["products"]
assert [products[k] for k in ("spmm", "spmm_transposed", "sddmm", "dense")] == [3, 2, 3, 0], products
assert library.manifest["left_dense"] == 0
described = {b["name"]: b for b in library.manifest["buffers"] if b["kind"] == "values"}
assert {p["name"] for p in library.manifest["patterns"]} == {"w.0", "w.1", "w.2"}
for i in range(LAYERS):
    for name in ("w", "m"):
        assert described[f"{name}.{i}"]["origin"] == {
            "name": name, "shape": [3, 16, 16], "offsets": [i, 0, 0], "sizes": [1, 16, 16]}
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

start = dict(whole)
masks = np.stack([np.kron(blocks[f"w.{i}"], np.ones(BLOCK)) for i in range(LAYERS)])
got = library.run(arrays, blocks, orders, steps=STEPS)
for _ in range(STEPS):
    whole["w"], whole["m"], loss, norms = reference(whole, masks)
assert abs(got["loss"] - loss) < 1e-5 * loss, (got["loss"], loss)
for part in ("w", "m"):
    for i in range(LAYERS):
        name = f"w.{i}"
        dense = step.to_dense(got[f"{part}.{i}"], blocks[name], orders[name])
        error = np.abs(dense - whole[part][i]).max()
        assert error < 1e-5, (part, i, error)

# With scores every layer has those of its own gradient, and the rest stays as it is.
scored = step.compile(sys.argv[1], [f"{MARK} block=4x4 density=0.5", "--score-norm=l1"])
same = scored.run(arrays, blocks, orders, steps=STEPS, entry="bsr_step_run_scores")
for name in got:
    assert same[name].tobytes() == got[name].tobytes(), name
for i in range(LAYERS):
    np.testing.assert_allclose(same[f"scores.w.{i}"], norms[i], rtol=1e-4, atol=1e-5)

# A pattern file is the pattern of every layer, as if each were given it.
chosen = np.eye(4, dtype=bool) | np.eye(4, k=2, dtype=bool)
arrays_of_file = step.views(chosen)
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "w.json")
    with open(path, "w") as file:
        json.dump({"format": "bsr-pattern", "version": 1, "shape": [16, 16], "block": BLOCK,
                   "row_ptr": arrays_of_file["row_ptr"].tolist(),
                   "col_idx": arrays_of_file["col_idx"].tolist()}, file)
    static = step.compile(sys.argv[1], [f"{MARK} pattern={path}"])
assert [(p["name"], p["static"], p["slots"]) for p in static.manifest["patterns"]] == [
    (f"w.{i}", True, 6) for i in range(LAYERS)]
for i in range(LAYERS):
    for part in ("w", "m"):
        arrays[f"{part}.{i}"] = step.to_values(start[part][i].astype(np.float32), chosen, BLOCK)
got = static.run(arrays, steps=STEPS)
dynamic = step.compile(sys.argv[1], [f"{MARK} block=4x4 density=0.375"])
same = dynamic.run(arrays, {f"w.{i}": chosen for i in range(LAYERS)}, steps=STEPS)
for name in got:
    if step.is_scalar():  # LLVM contracts other products of plain loops whose bounds it knows.
        np.testing.assert_allclose(same[name], got[name], rtol=1e-6, atol=1e-7, err_msg=name)
    else:
        assert same[name].tobytes() == got[name].tobytes(), name
masks = np.stack([np.kron(chosen, np.ones(BLOCK))] * LAYERS)
for _ in range(STEPS):
    start["w"], start["m"], loss, _ = reference(start, masks)
assert abs(got["loss"] - loss) < 1e-5 * loss, (got["loss"], loss)
for part in ("w", "m"):
    for i in range(LAYERS):
        error = np.abs(step.to_dense(got[f"{part}.{i}"], chosen) - start[part][i] * masks[i]).max()
        assert error < 1e-5, (part, i, error)
