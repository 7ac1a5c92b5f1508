# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of single weights and of blocks of one row or column, against float64.

A layer with its bias, activation and residual, their sum over tokens, and its
gradients, for enough tokens that an order of single weights and sums in memory are
worth it, and for some that keep the other kernels. The bounds are those of operations.py: a sum of n products in f32 differs
from the exact one by at most n u / (1 - n u) times the sum of magnitudes.
"""

import numpy as np
import step

U = 2.0**-24


def make(rows, cols, tokens, block):
    br, bc = block
    slots = rows // br * (cols // bc)
    pattern = f"!bsr.pattern<{rows}x{cols}, block = {br}x{bc}, slots = {slots}>"
    values = f"tensor<{slots}x{br}x{bc}xf32>"
    dims = "x".join(map(str, tokens))
    dim = len(tokens)
    x, y = f"tensor<{dims}x{rows}xf32>", f"tensor<{dims}x{cols}xf32>"
    same = f"affine_map<({', '.join(f'd{i}' for i in range(dim + 1))}) -> ({', '.join(f'd{i}' for i in range(dim + 1))})>"
    loops = ", ".join(['"parallel"'] * (dim + 1))
    last = same.split(" -> ")[0] + f" -> (d{dim})>"
    summed = ", ".join(['"reduction"'] * dim + ['"parallel"'])
    return step.compile(f"""
func.func @step(%w: {values} {{bsr.name = "w", bsr.pattern = 5 : i64}}, %b: tensor<{cols}xf32> {{bsr.name = "b"}},
                %x: {x} {{bsr.name = "x"}}, %r: {y} {{bsr.name = "r"}}, %dy: {y} {{bsr.name = "dy"}},
                %p: {pattern} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}})
    -> ({y} {{bsr.name = "y"}}, {y} {{bsr.name = "plain"}}, {x} {{bsr.name = "dx"}}, {values} {{bsr.name = "dw"}}, tensor<{cols}xf32> {{bsr.name = "total"}}) {{
  %zero = arith.constant 0.0 : f32
  %product = bsr.spmm %p, %w, %x bias %b feature_dim = {dim} : {pattern}, {values}, {x}, tensor<{cols}xf32> -> {y}
  %empty = tensor.empty() : {y}
  %y = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = [{loops}]}}
      ins(%product, %r : {y}, {y}) outs(%empty : {y}) {{
  ^bb0(%a: f32, %c: f32, %o: f32):
    %m = arith.maximumf %a, %zero : f32
    %s = arith.addf %m, %c : f32
    linalg.yield %s : f32
  }} -> {y}
  %plain = bsr.spmm %p, %w, %x feature_dim = {dim} : {pattern}, {values}, {x} -> {y}
  %dx = bsr.spmm %p, %w, %dy transpose feature_dim = {dim} : {pattern}, {values}, {y} -> {x}
  %dw = bsr.sddmm %p, %x, %dy feature_dim = {dim} : {pattern}, {x}, {y} -> {values}
  %none = arith.constant dense<0.0> : tensor<{cols}xf32>
  %total = linalg.generic {{indexing_maps = [{same}, {last}], iterator_types = [{summed}]}} ins(%y : {y}) outs(%none : tensor<{cols}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  }} -> tensor<{cols}xf32>
  return %y, %plain, %dx, %dw, %total : {y}, {y}, {x}, {values}, tensor<{cols}xf32>
}}""")


def masks(random, rows, cols):
    shape = rows, cols
    full = np.ones(shape, bool)
    holes = random.random(shape) < 0.6
    holes[3, :] = holes[:, 2] = False
    # Lines of all lengths, and whole chunks that are empty or full.
    steps = np.arange(cols)[None, :] > np.arange(rows)[:, None] * cols // rows
    half = full.copy()
    half[: rows // 2] = False
    one = np.zeros(shape, bool)
    one[-1, 1] = True
    yield from {"random": random.random(shape) < 0.4, "empty row and column": holes, "full": full, "stairs": steps,
                "half": half, "one weight": one, "no weight": np.zeros(shape, bool)}.items()


def check(where, got, want, magnitudes, terms):
    bound = terms * U / (1 - terms * U) * magnitudes + 2.0**-126
    worst = np.abs(got.astype(np.float64) - want) - bound
    assert (worst <= 0).all(), f"{where}: off by {worst.max()} more than the bound"


random = np.random.default_rng(0)
for block, rows, cols, tokens in step.share([
        ((1, 1), 96, 66, (2, 512)), ((1, 1), 66, 96, (1024,)), ((1, 1), 67, 53, (2, 512)), ((1, 1), 40, 24, (1000,)),
        ((1, 8), 37, 72, (2, 512)), ((8, 1), 72, 37, (1024,)), ((16, 1), 80, 21, (8, 128)), ((1, 5), 19, 40, (1024,)),
        ((8, 1), 40, 24, (1000,))]):
    compiled = make(rows, cols, tokens, block)
    grid = rows // block[0], cols // block[1]
    for label, mask in masks(random, *grid):
        where = f"{block} {rows}x{cols} {tokens} {label}"
        normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
        stored = np.kron(mask, np.ones(block, bool))
        dense = normal(rows, cols) * stored
        slots = grid[0] * grid[1]
        order = random.permutation(slots)[: mask.sum()]
        arrays = {"w": step.to_values(dense, mask, block, slots, order), "b": normal(cols),
                  "x": normal(*tokens, rows), "r": normal(*tokens, cols), "dy": normal(*tokens, cols)}
        runs = [compiled.run(arrays, {"w": mask}, {"w": order}, threads=threads) for threads in (1, 2, 5)]
        for run in runs:
            # What no block of the pattern has is anything.
            run["dw"] = run["dw"][order]
        for name in runs[0]:
            assert all(run[name].tobytes() == runs[0][name].tobytes() for run in runs), f"{where}: {name}: not the same bits"
        w, x, dy, b = (a.astype(np.float64) for a in (dense, arrays["x"], arrays["dy"], arrays["b"]))
        sums, sizes = x @ w, np.abs(x) @ np.abs(w)
        check(f"{where}: plain", runs[0]["plain"], sums, sizes, rows + 1)
        r = arrays["r"].astype(np.float64)
        y, most = np.maximum(sums + b, 0) + r, sizes + np.abs(b) + np.abs(r)
        check(f"{where}: y", runs[0]["y"], y, most, rows + 3)
        everywhere = tuple(range(len(tokens)))
        check(f"{where}: total", runs[0]["total"], y.sum(everywhere), most.sum(everywhere), rows + 3 + np.prod(tokens))
        check(f"{where}: dx", runs[0]["dx"], dy @ w.T, np.abs(dy) @ np.abs(w.T), cols + 1)
        flat = lambda a: a.reshape(-1, a.shape[-1])
        got = np.zeros(grid + block, np.float32)
        got[mask] = runs[0]["dw"]
        got = got.swapaxes(1, 2).reshape(rows, cols)
        check(f"{where}: dw", got, (flat(x).T @ flat(dy)) * stored, (np.abs(flat(x)).T @ np.abs(flat(dy))) * stored,
              np.prod(tokens) + 1)
