# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products, sums and look-ups of rows cut in tiles by upstream's tiling: the same results."""

import subprocess
import sys

import numpy as np
import step

schedule = sys.argv[1]
PATTERN = "!bsr.pattern<12x16, block = 4x4, slots = 7>"
SOURCE = f"""
func.func @step(%w: tensor<7x4x4xf32> {{bsr.name = "w", bsr.pattern = 3 : i64}},
                %x: tensor<6x12x8xf32> {{bsr.name = "x"}}, %ids: tensor<6x8xi32> {{bsr.name = "ids"}},
                %p: {PATTERN} {{bsr.name = "w", bsr.role = "pattern", bsr.density = 0.5}})
    -> (tensor<6x16x8xf32> {{bsr.name = "y"}}, tensor<5x16xf32> {{bsr.name = "rows"}}, tensor<6x16x8xf32> {{bsr.name = "found"}}) {{
  %y = bsr.spmm %p, %w, %x feature_dim = 1
      : {PATTERN}, tensor<7x4x4xf32>, tensor<6x12x8xf32> -> tensor<6x16x8xf32>
  %rows = bsr.scatter_add %ids, %y feature_dim = 1
      : tensor<6x8xi32>, tensor<6x16x8xf32> -> tensor<5x16xf32>
  %found = bsr.gather_rows %p, %w, %ids feature_dim = 1
      : {PATTERN}, tensor<7x4x4xf32>, tensor<6x8xi32> -> tensor<6x16x8xf32>
  return %y, %rows, %found : tensor<6x16x8xf32>, tensor<5x16xf32>, tensor<6x16x8xf32>
}}"""

tiled = subprocess.run(
    ["sparse-opt", f"--transform-preload-library=transform-library-paths={schedule}",
     "--transform-interpreter", "--canonicalize"],
    input=SOURCE, text=True, check=True, capture_output=True).stdout
assert tiled.count("bsr.spmm") == 6 and tiled.count("bsr.scatter_add") == tiled.count("bsr.gather_rows") == 2, tiled

random = np.random.default_rng(0)
mask = np.zeros(12, bool)
mask[random.permutation(12)[:7]] = True
patterns = {"w": mask.reshape(3, 4)}
arrays = {
    "w": random.standard_normal((7, 4, 4)).astype(np.float32),
    "x": random.standard_normal((6, 12, 8)).astype(np.float32),
    "ids": random.integers(0, 5, (6, 8)).astype(np.int32),
}
whole, tiles = (step.compile(source).run(arrays, patterns) for source in (SOURCE, tiled))
for name in whole:
    np.testing.assert_array_equal(whole[name], tiles[name])
