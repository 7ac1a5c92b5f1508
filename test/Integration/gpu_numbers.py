# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step decides and computes by numbers out of its tensors, on a GPU, against numpy."""

import os

import numpy as np
import step

os.environ["BSR_COMPILE"] = "--target=gpu"
SOURCE = """
#id = affine_map<(i) -> (i)>
#all = affine_map<(i) -> ()>
!t = tensor<300xf32>
func.func @step(%g: !t {bsr.name = "g"}, %v: tensor<3xf32> {bsr.name = "v"})
    -> (!t {bsr.name = "y"}, tensor<f32> {bsr.name = "limit"}, !t {bsr.name = "filled"}) {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %two = arith.constant 2.0 : f32
  %c2 = arith.constant 2 : index
  %e = tensor.empty() : !t
  %squares = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction"]} ins(%g : !t) outs(%zero : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %square = tensor.extract %squares[] : tensor<f32>
  %norm = math.sqrt %square : f32
  %entry = tensor.extract %v[%c2] : tensor<3xf32>
  %limit = arith.mulf %entry, %two : f32
  %isLarge = arith.cmpf ogt, %norm, %limit : f32
  %y = scf.if %isLarge -> (!t) {
    %scaled = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%g : !t) outs(%e : !t) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.divf %a, %norm : f32
      %1 = arith.mulf %0, %limit : f32
      linalg.yield %1 : f32
    } -> !t
    scf.yield %scaled : !t
  } else {
    %isZero = arith.cmpf oeq, %norm, %two : f32
    %other = scf.if %isZero -> (!t) {
      scf.yield %g : !t
    } else {
      %doubled = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%g : !t) outs(%e : !t) {
      ^bb0(%a: f32, %o: f32):
        %0 = arith.addf %a, %a : f32
        linalg.yield %0 : f32
      } -> !t
      scf.yield %doubled : !t
    }
    scf.yield %other : !t
  }
  %result = tensor.from_elements %limit : tensor<f32>
  %filled = linalg.fill ins(%norm : f32) outs(%e : !t) -> !t
  return %y, %result, %filled : !t, tensor<f32>, !t
}
"""

compiled = step.compile(SOURCE)
random = np.random.default_rng(0)
g = random.standard_normal(300).astype(np.float32)
two = np.zeros(300, np.float32)
two[7] = 2
for name, g, limit in [("large", g, 3.0), ("small", g, 300.0), ("two", two, 300.0), ("nothing", 0 * g, -1.0)]:
    got = compiled.run({"g": g, "v": np.array([np.nan, 9, limit / 2], np.float32)})
    norm = np.sqrt((g.astype(np.float64) ** 2).sum())
    with np.errstate(all="ignore"):
        want = g / norm * limit if norm > limit else g if norm == 2 else g + g
    np.testing.assert_allclose(got["y"], want, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(got["limit"], limit)
    np.testing.assert_allclose(got["filled"], norm, rtol=1e-5)
print("4 decisions")
