# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradient descent with min(1, 1 / ||g||) as written, without an epsilon, where a norm is 0 or
infinite, as a whole and row by row, against NumPy."""

import numpy as np
import step

SIZE, BLOCK, TOKENS, RATE = 64, 16, 32, 0.1


def source(norms):
    """A step that clips to norm 1: `norms` is "r, c" for the norm of all, "c" for those of rows."""
    row = "" if norms == "r, c" else "r"
    shape = f"tensor<{SIZE}xf32>" if row else "tensor<f32>"
    kinds = ", ".join(f'"{"parallel" if dim == row else "reduction"}"' for dim in "rc")
    rows = '"parallel"' if row else ""
    return f"""
#x = affine_map<(r, c, t) -> (t, r)>
#y = affine_map<(r, c, t) -> (t, c)>
#g = affine_map<(r, c, t) -> (r, c)>
#matrix = affine_map<(r, c) -> (r, c)>
#norm = affine_map<(r, c) -> ({row})>
#each = affine_map<({row}) -> ({row})>
!matrix = tensor<{SIZE}x{SIZE}xf32>
!tokens = tensor<{TOKENS}x{SIZE}xf32>
!norm = {shape}
func.func @step(%w: !matrix {{bsr.name = "w", bsr.result = 0 : i64}},
                %x: !tokens {{bsr.name = "x"}}, %dy: !tokens {{bsr.name = "dy"}}) -> !matrix {{
  %zeros = arith.constant dense<0.0> : !matrix
  %zero = arith.constant dense<0.0> : !norm
  %g = linalg.generic {{indexing_maps = [#x, #y, #g],
                       iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %dy : !tokens, !tokens) outs(%zeros : !matrix) {{
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  }} -> !matrix
  %squares = linalg.generic {{indexing_maps = [#matrix, #norm], iterator_types = [{kinds}]}}
      ins(%g : !matrix) outs(%zero : !norm) {{
  ^bb0(%a: f32, %sum: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  }} -> !norm
  %scale = linalg.generic {{indexing_maps = [#each, #each], iterator_types = [{rows}]}}
      ins(%squares : !norm) outs(%zero : !norm) {{
  ^bb0(%a: f32, %out: f32):
    %one = arith.constant 1.0 : f32
    %0 = math.sqrt %a : f32
    %1 = arith.divf %one, %0 : f32
    %2 = arith.minimumf %1, %one : f32
    linalg.yield %2 : f32
  }} -> !norm
  %next = linalg.generic {{indexing_maps = [#matrix, #matrix, #norm, #matrix],
                          iterator_types = ["parallel", "parallel"]}}
      ins(%w, %g, %scale : !matrix, !matrix, !norm) outs(%zeros : !matrix) {{
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %rate = arith.constant {RATE} : f32
    %0 = arith.mulf %b, %c : f32
    %1 = arith.mulf %0, %rate : f32
    %2 = arith.subf %a, %1 : f32
    linalg.yield %2 : f32
  }} -> !matrix
  return %next : !matrix
}}"""


random = np.random.default_rng(0)
mask = random.permutation(16).reshape(4, 4) < 8
dense_mask = np.kron(mask, np.ones((BLOCK, BLOCK)))
x, dy = random.standard_normal((2, TOKENS, SIZE)).astype(np.float32)
w = random.standard_normal((SIZE, SIZE)).astype(np.float32) * dense_mask
dead = x.copy()
dead[:, 5] = 0
for norms, axes in [("r, c", None), ("c", 1)]:
    for level in ["-O0", "-O1", "-O3"]:
        compiled = step.compile(
            source(norms), ["--mark=match=^w$ block=16x16 density=0.5", level])
        for batch in [x, 0 * x, dead, np.float32(1e30) * x]:
            got = compiled.run({"x": batch, "dy": dy, "w": step.to_values(w, mask, (BLOCK, BLOCK))},
                               {"w": mask})["w"]
            g = (batch.T.astype(np.float64) @ dy) * dense_mask
            with np.errstate(all="ignore"):
                squares = (g**2).sum(axes, keepdims=True).astype(np.float32)
                expected = w - RATE * g * np.minimum(1, 1 / np.sqrt(squares))
            np.testing.assert_allclose(step.to_dense(got, mask), expected * dense_mask,
                                       rtol=1e-4, atol=1e-5, err_msg=f"{norms} {level}")
