# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differences of a product from itself are 0, where it is computed again too: `x - max(x)` has a 0 in each row and
nothing above it, whatever is fused."""

import numpy as np
import step

ROWS, COLUMNS = 33, 48
MATRIX, ROW = f"tensor<{ROWS}x{COLUMNS}xf32>", f"tensor<{ROWS}xf32>"
SAME, BY_ROW = "affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> (i)>"
TEXT = f"""
func.func @step(%a: {MATRIX} {{bsr.name = "a"}}, %b: {MATRIX} {{bsr.name = "b"}}) -> ({MATRIX} {{bsr.name = "d"}}) {{
  %e = tensor.empty() : {MATRIX}
  %least = arith.constant dense<0xFF800000> : {ROW}
  %x = linalg.mul ins(%a, %b : {MATRIX}, {MATRIX}) outs(%e : {MATRIX}) -> {MATRIX}
  %top = linalg.reduce {{ arith.maximumf }} ins(%x : {MATRIX}) outs(%least : {ROW}) dimensions = [1]
  %d = linalg.generic {{indexing_maps = [{SAME}, {BY_ROW}, {SAME}], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %top : {MATRIX}, {ROW}) outs(%e : {MATRIX}) {{
  ^bb0(%p: f32, %t: f32, %o: f32):
    %r = arith.subf %p, %t : f32
    linalg.yield %r : f32
  }} -> {MATRIX}
  return %d : {MATRIX}
}}"""

random = np.random.default_rng(0)
a, b = (random.normal(0, 10, (ROWS, COLUMNS)).astype(np.float32) for _ in range(2))
for options in (["-O0"], ["-O3"], ["--target=scalar"]):
    d = step.compile(TEXT, options).run({"a": a, "b": b})["d"]
    x = a * b
    assert np.array_equal(d, x - x.max(1, keepdims=True)), (options, d.max(), int((d.max(1) != 0).sum()))
