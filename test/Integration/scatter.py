# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that add rows by index, compiled, against numpy in f64.

A step whose gradients are such loops: of a table of words, in merged tokens, and of
a block-sparse one, whose gradient's norm scales its update.
"""

import numpy as np
import step

BATCH, TOKENS, WORDS, WIDTH, BLOCK = 3, 20, 16, 24, 4
COUNT = BATCH * TOKENS
TABLE, UPDATES, MERGED = f"tensor<{WORDS}x{WIDTH}xf32>", f"tensor<{COUNT}x{WIDTH}xf32>", f"tensor<{BATCH}x{TOKENS}x{WIDTH}xf32>"
ROW = f"tensor<{WIDTH}xf32>"


def scatter(result, indices, updates):
    return f"""
  %{result} = scf.for %i = %c0 to %n step %c1 iter_args(%rows = %zeros) -> {TABLE} {{
    %id = tensor.extract %{indices}[%i] : tensor<{COUNT}xi32>
    %at = arith.index_cast %id : i32 to index
    %new = tensor.extract_slice %{updates}[%i, 0] [1, {WIDTH}] [1, 1] : {UPDATES} to {ROW}
    %old = tensor.extract_slice %rows[%at, 0] [1, {WIDTH}] [1, 1] : {TABLE} to {ROW}
    %sum = linalg.add ins(%old, %new : {ROW}, {ROW}) outs(%old : {ROW}) -> {ROW}
    %next = tensor.insert_slice %sum into %rows[%at, 0] [1, {WIDTH}] [1, 1] : {ROW} into {TABLE}
    scf.yield %next : {TABLE}
  }}"""


TEXT = f"""
func.func @step(%w: {TABLE} {{bsr.name = "w", bsr.result = 0 : i64}}, %t: {TABLE} {{bsr.name = "t", bsr.result = 1 : i64}},
                %ids: tensor<{COUNT}xi32> {{bsr.name = "ids"}}, %u: {UPDATES} {{bsr.name = "u"}}, %v: {MERGED} {{bsr.name = "v"}})
    -> ({TABLE}, {TABLE}, tensor<f32> {{bsr.name = "norm"}}) {{
  %zeros = arith.constant dense<0.0> : {TABLE}
  %zero = arith.constant dense<0.0> : tensor<f32>
  %empty = tensor.empty() : {TABLE}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant {COUNT} : index
  %tokens = tensor.empty() : {MERGED}
  %square = linalg.square ins(%v : {MERGED}) outs(%tokens : {MERGED}) -> {MERGED}
  %merged = tensor.collapse_shape %square [[0, 1], [2]] : {MERGED} into {UPDATES}
  {scatter("dw", "ids", "u")}{scatter("dt", "ids", "merged")}
  %norm = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>],
                          iterator_types = ["reduction", "reduction"]}} ins(%dw : {TABLE}) outs(%zero : tensor<f32>) {{
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  }} -> tensor<f32>
  %nw = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>,
                        affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      ins(%w, %dw, %norm : {TABLE}, {TABLE}, tensor<f32>) outs(%empty : {TABLE}) {{
  ^bb0(%a: f32, %g: f32, %s: f32, %o: f32):
    %0 = arith.divf %g, %s : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  }} -> {TABLE}
  %nt = linalg.sub ins(%t, %dt : {TABLE}, {TABLE}) outs(%empty : {TABLE}) -> {TABLE}
  return %nw, %nt, %norm : {TABLE}, {TABLE}, tensor<f32>
}}"""

random = np.random.default_rng(0)
arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in
          {"w": (WORDS, WIDTH), "t": (WORDS, WIDTH), "u": (COUNT, WIDTH), "v": (BATCH, TOKENS, WIDTH)}.items()}
# Some words often, the last one never.
arrays["ids"] = (random.integers(0, WORDS - 1, COUNT) // random.integers(1, 5, COUNT)).astype(np.int32)
mask = random.permutation(WORDS * WIDTH // BLOCK**2).reshape(WORDS // BLOCK, -1) % 2 == 0
full = np.kron(mask, np.ones((BLOCK, BLOCK)))
wide = {name: array.astype(np.float64) for name, array in arrays.items()}
hot = arrays["ids"][None, :] == np.arange(WORDS)[:, None]
gradient = hot @ wide["u"] * full
want = {"norm": np.sum(gradient**2), "t": wide["t"] - hot @ (wide["v"] ** 2).reshape(COUNT, WIDTH)}
want["w"] = step.to_values(wide["w"] * full - gradient / want["norm"], mask, (BLOCK, BLOCK))

arrays["w"] = step.to_values(arrays["w"], mask, (BLOCK, BLOCK))
compiled = step.compile(TEXT, [f"--mark=match=^w$ block={BLOCK}x{BLOCK} density=0.5"])
assert compiled.manifest["kernels"]["launches"] < 20, f"expected no loop, but got {compiled.manifest['kernels']}"
one, two = (compiled.run(arrays, {"w": mask}, threads=threads) for threads in (1, 2))
for name, expected in want.items():
    assert one[name].tobytes() == two[name].tobytes(), f"{name} depends on threads"
    error = np.max(np.abs(one[name] - expected)) / np.max(np.abs(expected))
    assert error <= 1e-6, f"{name} is wrong by {error} of the largest"
