# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products, sums, maxima and a softmax of batched values, against dense masked ones in float64.

The step is attention on stored blocks, written with the operations of the dialect, and what the
backward pass takes of it: q k^T (bsr.sddmm), a softmax (bsr.reduce_vec, bsr.sample_vec, element-wise
operations), the products with v and of the gradient (bsr.spmm, transposed and not), sums of columns.
"""

import numpy as np
import references
import step

# Batch, queries and keys in blocks, the block, features, element type, layout of q and k: features last, or else tokens.
CASES = [
    ((2, 3), (4, 5), (16, 16), 24, "f32", True),
    ((3,), (5, 4), (8, 4), 17, "f32", False),
    ((1, 1), (3, 3), (32, 16), 64, "f32", True),
    ((4,), (6, 3), (1, 1), 5, "f32", True),
    ((2, 2), (2, 3), (16, 16), 32, "bf16", True),
    ((2,), (3, 2), (16, 8), 16, "f16", False),
    ((2, 1, 2), (3, 4), (4, 8), 9, "f64", True),
]
if step.is_scalar():
    CASES = [CASES[1], CASES[3], CASES[6]]
if step.is_gpu():
    CASES = [((2,), (3, 2), (4, 4), 5, "f32", True)]
EPSILON = {"f64": 2.0**-50, "f32": 2.0**-21, "f16": 2.0**-9, "bf16": 2.0**-6}


def program(batch, grid, block, features, kind, features_last):
    rows, cols = (g * b for g, b in zip(grid, block))
    slots = grid[0] * grid[1]
    p = f"!bsr.pattern<{rows}x{cols}, block = {block[0]}x{block[1]}, slots = {slots}>"
    tensor = lambda *shape: "tensor<" + "".join(f"{n}x" for n in (*batch, *shape)) + kind + ">"
    side = lambda n: tensor(n, features) if features_last else tensor(features, n)
    dim = len(batch) + (0 if features_last else 1)
    values, rows_of, row_values = tensor(slots, *block), tensor(rows), tensor(slots, block[0], 1)
    rank = len(batch) + 3
    loops = ", ".join(f"d{i}" for i in range(rank))
    spread = ", ".join("0" if i == rank - 1 else f"d{i}" for i in range(rank))
    maps = f"[affine_map<({loops}) -> ({loops})>, affine_map<({loops}) -> ({spread})>, affine_map<({loops}) -> ({loops})>]"
    kinds = ", ".join(['"parallel"'] * rank)

    def each(result, x, row, body):
        return f"""  %{result} = linalg.generic {{indexing_maps = {maps}, iterator_types = [{kinds}]}}
      ins(%{x}, %{row} : {values}, {row_values}) outs(%empty : {values}) {{
  ^bb0(%a: {kind}, %b: {kind}, %o: {kind}):
{body}
    linalg.yield %r : {kind}
  }} -> {values}
"""

    power = f"    %d = arith.subf %a, %b : {kind}\n    %r = math.exp %d : {kind}"
    quotient = f"    %r = arith.divf %a, %b : {kind}"
    results = {"s": values, "top": rows_of, "total": rows_of, "p": values, "y": side(rows), "z": side(cols),
               "mean": side(rows), "cols": tensor(cols)}
    # Values of an argument lie in memory as they are: a slot may hold what is no block's.
    return f"""func.func @step(%w: tensor<{slots}x{block[0]}x{block[1]}x{kind}> {{bsr.name = "w", bsr.pattern = 1 : i64}},
    %pattern: {p} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}},
    %q: {side(rows)} {{bsr.name = "q"}}, %k: {side(cols)} {{bsr.name = "k"}}, %v: {side(cols)} {{bsr.name = "v"}},
    %u: {values} {{bsr.name = "u"}})
    -> ({", ".join(f'{type} {{bsr.name = "{name}"}}' for name, type in results.items())}) {{
  %empty = tensor.empty() : {values}
  %s = bsr.sddmm %pattern, %q, %k feature_dim = {dim} : {p}, {side(rows)}, {side(cols)} -> {values}
  %top = bsr.reduce_vec %pattern, %s max dim = 0 : {p}, {values} -> {rows_of}
  %tops = bsr.sample_vec %pattern, %top dim = 0 : {p}, {rows_of} -> {row_values}
{each("e", "s", "tops", power)}  %total = bsr.reduce_vec %pattern, %e dim = 0 : {p}, {values} -> {rows_of}
  %totals = bsr.sample_vec %pattern, %total dim = 0 : {p}, {rows_of} -> {row_values}
{each("p", "e", "totals", quotient)}  %y = bsr.spmm %pattern, %p, %v transpose feature_dim = {dim} : {p}, {values}, {side(cols)} -> {side(rows)}
  %z = bsr.spmm %pattern, %p, %y feature_dim = {dim} : {p}, {values}, {side(rows)} -> {side(cols)}
  %mean = bsr.spmm %pattern, %u, %v transpose feature_dim = {dim} : {p}, {values}, {side(cols)} -> {side(rows)}
  %cols = bsr.reduce_vec %pattern, %u max dim = 1 : {p}, {values} -> {tensor(cols)}
  return {", ".join(f"%{name}" for name in results)} : {", ".join(results.values())}
}}
"""


def check(batch, grid, block, features, kind, features_last, random):
    compiled = step.compile(program(batch, grid, block, features, kind, features_last))
    store = step.to_bf16 if kind == "bf16" else lambda a: a.astype(step.TYPES[kind])
    load = (lambda a: step.from_bf16(a).astype(np.float64)) if kind == "bf16" else lambda a: a.astype(np.float64)
    rows, cols = (g * b for g, b in zip(grid, block))
    slots = grid[0] * grid[1]
    masks = [random.random(grid) < 0.5, np.ones(grid, bool), np.zeros(grid, bool)]
    masks[0][0] = False  # an empty row of blocks
    masks[0][1, 0] = True
    for mask in masks:
        order = random.permutation(slots)[:mask.sum()]
        shape = lambda n: (*batch, n, features) if features_last else (*batch, features, n)
        arrays = {"q": random.standard_normal(shape(rows)), "k": random.standard_normal(shape(cols)),
                  "v": random.standard_normal(shape(cols)), "u": random.standard_normal((*batch, slots, *block))}
        arrays["u"][..., np.setdiff1d(np.arange(slots), order), :, :] = np.nan
        stored = {name: store(array) for name, array in arrays.items()}
        stored["w"] = store(np.zeros((slots, *block)))
        runs = [compiled.run(stored, {"w": mask}, {"w": order}, threads=t) for t in ((None,) if step.is_gpu() else (2, 1))]
        for name in runs[0]:
            assert runs[0][name].tobytes() == runs[-1][name].tobytes(), (kind, block, name, "threads")
        got = {name: load(array) for name, array in runs[0].items()}
        last = (lambda a: a) if features_last else (lambda a: np.swapaxes(a, -1, -2))
        q, k, v = (last(load(stored[name])) for name in "qkv")
        where = np.kron(mask, np.ones(block)) > 0

        def dense(values):
            """The matrices of stored blocks, 0 elsewhere."""
            flat = values.reshape(-1, *values.shape[-3:])
            return np.array([np.where(where, step.to_dense(m, mask, order), 0) for m in flat]).reshape(*batch, rows, cols)

        def close(name, want, terms=1, size=None):
            size = np.abs(want) if size is None else size
            bound = EPSILON[kind] * (size + 1e-3) * max(1, terms if kind in ("f32", "f64") else 8)
            there = np.isfinite(want)
            np.testing.assert_array_equal(got_of[name][~there], want[~there])
            error = np.abs(got_of[name][there] - want[there]) - np.broadcast_to(bound, want.shape)[there]
            assert error.size == 0 or error.max() <= 0, (kind, block, name, mask.sum(), error.max())

        got_of = {name: dense(got[name]) for name in ("s", "p")}
        got_of |= {name: last(got[name]) for name in ("y", "z", "mean")} | {n: got[n] for n in ("top", "total", "cols")}
        scores = np.where(where, q @ np.swapaxes(k, -1, -2), 0)
        close("s", scores, features, np.abs(q) @ np.abs(np.swapaxes(k, -1, -2)))
        # What follows starts from what was rounded.
        p, largest, total = references.softmax(got_of["s"], live=where, empty=0)
        close("top", largest[..., 0])
        close("total", total[..., 0], cols)
        close("p", p, cols)
        assert np.abs(got_of["p"].sum(-1) - where.any(-1)).max() < 100 * EPSILON[kind]
        p = got_of["p"]
        close("y", p @ v, cols, p @ np.abs(v))
        close("z", np.swapaxes(p, -1, -2) @ got_of["y"], rows, np.swapaxes(p, -1, -2) @ np.abs(got_of["y"]))
        u = dense(load(stored["u"]))
        close("mean", u @ v, cols, np.abs(u) @ np.abs(v))
        close("cols", np.where(where, u, -np.inf).max(-2))


random = np.random.default_rng(3)
for case in CASES:
    check(*case, random)
