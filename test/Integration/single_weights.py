# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of single weights that kernels put in order, against float64.

A layer with its bias, activation and residual, their sum over tokens, and its input
gradient, for enough tokens that the order is worth it, and for some that keep the
other kernel. The bounds are those of operations.py: a sum of n products in f32 differs
from the exact one by at most n u / (1 - n u) times the sum of magnitudes.
"""

import numpy as np
import step

U = 2.0**-24


def make(rows, cols, tokens, slots):
    pattern = f"!bsr.pattern<{rows}x{cols}, block = 1x1, slots = {slots}>"
    dims = "x".join(map(str, tokens))
    dim = len(tokens)
    x, y = f"tensor<{dims}x{rows}xf32>", f"tensor<{dims}x{cols}xf32>"
    same = f"affine_map<({', '.join(f'd{i}' for i in range(dim + 1))}) -> ({', '.join(f'd{i}' for i in range(dim + 1))})>"
    loops = ", ".join(['"parallel"'] * (dim + 1))
    last = same.split(" -> ")[0] + f" -> (d{dim})>"
    summed = ", ".join(['"reduction"'] * dim + ['"parallel"'])
    return step.compile(f"""
func.func @step(%w: tensor<{slots}x1x1xf32> {{bsr.name = "w", bsr.pattern = 5 : i64}}, %b: tensor<{cols}xf32> {{bsr.name = "b"}},
                %x: {x} {{bsr.name = "x"}}, %r: {y} {{bsr.name = "r"}}, %dy: {y} {{bsr.name = "dy"}},
                %p: {pattern} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 1.0}})
    -> ({y} {{bsr.name = "y"}}, {y} {{bsr.name = "plain"}}, {x} {{bsr.name = "dx"}}, tensor<{cols}xf32> {{bsr.name = "total"}}) {{
  %zero = arith.constant 0.0 : f32
  %product = bsr.spmm %p, %w, %x bias %b feature_dim = {dim} : {pattern}, tensor<{slots}x1x1xf32>, {x}, tensor<{cols}xf32> -> {y}
  %empty = tensor.empty() : {y}
  %y = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = [{loops}]}}
      ins(%product, %r : {y}, {y}) outs(%empty : {y}) {{
  ^bb0(%a: f32, %c: f32, %o: f32):
    %m = arith.maximumf %a, %zero : f32
    %s = arith.addf %m, %c : f32
    linalg.yield %s : f32
  }} -> {y}
  %plain = bsr.spmm %p, %w, %x feature_dim = {dim} : {pattern}, tensor<{slots}x1x1xf32>, {x} -> {y}
  %dx = bsr.spmm %p, %w, %dy transpose feature_dim = {dim} : {pattern}, tensor<{slots}x1x1xf32>, {y} -> {x}
  %none = arith.constant dense<0.0> : tensor<{cols}xf32>
  %total = linalg.generic {{indexing_maps = [{same}, {last}], iterator_types = [{summed}]}} ins(%y : {y}) outs(%none : tensor<{cols}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  }} -> tensor<{cols}xf32>
  return %y, %plain, %dx, %total : {y}, {y}, {x}, tensor<{cols}xf32>
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
for rows, cols, tokens in [(96, 66, (2, 512)), (66, 96, (1024,)), (67, 53, (2, 512)), (40, 24, (1000,))]:
    compiled = make(rows, cols, tokens, rows * cols)
    for label, mask in masks(random, rows, cols):
        where = f"{rows}x{cols} {tokens} {label}"
        normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
        dense = normal(rows, cols) * mask
        order = random.permutation(rows * cols)[: mask.sum()]
        arrays = {"w": step.to_values(dense, mask, (1, 1), rows * cols, order), "b": normal(cols),
                  "x": normal(*tokens, rows), "r": normal(*tokens, cols), "dy": normal(*tokens, cols)}
        runs = [compiled.run(arrays, {"w": mask}, {"w": order}, threads=threads) for threads in (1, 2, 5)]
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
