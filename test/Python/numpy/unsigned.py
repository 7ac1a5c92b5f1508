# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Arguments of unsigned integers, as JAX's programs have them, keep their type.

# RUN: %numpy_python %s | FileCheck %s

import os
import tempfile

import numpy as np

import sparse_opt

TEXT = """
#id = affine_map<(i) -> (i)>
func.func @step(%key: tensor<2xui32> {bsr.name = "key", bsr.role = "state", bsr.result = 0 : i64},
                %n: tensor<4xui64> {bsr.name = "n", bsr.role = "batch"},
                %b: tensor<4xui8> {bsr.name = "b", bsr.role = "batch"})
    -> (tensor<2xui32>, tensor<4xui64> {bsr.name = "third"}, tensor<4xf32> {bsr.name = "float"}) {
  %0 = builtin.unrealized_conversion_cast %key : tensor<2xui32> to tensor<2xi32>
  %1 = linalg.add ins(%0, %0 : tensor<2xi32>, tensor<2xi32>) outs(%0 : tensor<2xi32>) -> tensor<2xi32>
  %2 = builtin.unrealized_conversion_cast %1 : tensor<2xi32> to tensor<2xui32>
  %3 = builtin.unrealized_conversion_cast %n : tensor<4xui64> to tensor<4xi64>
  %4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%3 : tensor<4xi64>) outs(%3 : tensor<4xi64>) {
  ^bb0(%a: i64, %out: i64):
    %three = arith.constant 3 : i64
    %q = arith.divui %a, %three : i64
    linalg.yield %q : i64
  } -> tensor<4xi64>
  %5 = builtin.unrealized_conversion_cast %4 : tensor<4xi64> to tensor<4xui64>
  %6 = builtin.unrealized_conversion_cast %b : tensor<4xui8> to tensor<4xi8>
  %e = tensor.empty() : tensor<4xf32>
  %7 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%6 : tensor<4xi8>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: i8, %out: f32):
    %f = arith.uitofp %a : i8 to f32
    linalg.yield %f : f32
  } -> tensor<4xf32>
  return %2, %5, %7 : tensor<2xui32>, tensor<4xui64>, tensor<4xf32>
}
"""

step = sparse_opt.compile(TEXT, [], options=["-O", "1"])
n = np.array([0, 5, 2**63, 2**64 - 1], np.uint64)
b = np.array([0, 127, 128, 255], np.uint8)
step.write("key", np.array([3, 2**31 + 1], np.uint32))

# CHECK: uint32 uint64 float32
# CHECK: [6, 2] [0, 1, 3074457345618258602, 6148914691236517205] [0.0, 127.0, 128.0, 255.0]
third, number = step(n=n, b=b)
print(step.arrays["key"].dtype, third.dtype, number.dtype)
print(step.read("key").tolist(), third.tolist(), number.tolist())

# A checkpoint keeps them, too.
# CHECK: again [6, 2]
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "key.bsr")
    step.save(path)
    step.write("key", np.zeros(2, np.uint32))
    step.load(path)
    print("again", step.read("key").tolist())
