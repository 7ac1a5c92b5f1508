# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step may do with its state besides updating it, and loops around tensors."""

import numpy as np
import step

SOURCE = """
#map = affine_map<(d0) -> (d0)>
func.func @step(%a: tensor<40xf32> {bsr.name = "a", bsr.result = 1 : i64},
                %b: tensor<40xf32> {bsr.name = "b", bsr.result = 0 : i64},
                %kept: tensor<40xf32> {bsr.name = "kept", bsr.result = 2 : i64},
                %reset: tensor<40xf32> {bsr.name = "reset", bsr.result = 3 : i64},
                %one: tensor<40xf32> {bsr.name = "one", bsr.result = 4 : i64},
                %two: tensor<40xf32> {bsr.name = "two", bsr.result = 5 : i64},
                %tail: tensor<2x20xf32> {bsr.name = "tail", bsr.result = 6 : i64},
                %count: tensor<i32> {bsr.name = "count", bsr.result = 7 : i64},
                %powers: tensor<40xf32> {bsr.name = "powers", bsr.result = 10 : i64})
    -> (tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>,
        tensor<40xf32>, tensor<2x20xf32>, tensor<i32>, tensor<40xf32> {bsr.name = "old"},
        tensor<40xf32> {bsr.name = "sum"}, tensor<40xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %cst = arith.constant dense<7.0> : tensor<40xf32>
  %init = tensor.empty() : tensor<40xf32>
  %sum = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
      ins(%one, %two : tensor<40xf32>, tensor<40xf32>) outs(%init : tensor<40xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<40xf32>
  // The second half of `a`, in another shape, beside zeros.
  %half = tensor.extract_slice %a[20] [20] [1] : tensor<40xf32> to tensor<20xf32>
  %rows = tensor.insert_slice %half into %tail[1, 0] [1, 20] [1, 1] : tensor<20xf32> into tensor<2x20xf32>
  %n = tensor.extract %count[] : tensor<i32>
  %c1_i32 = arith.constant 1 : i32
  %next_n = arith.addi %n, %c1_i32 : i32
  %next_count = tensor.from_elements %next_n : tensor<i32>
  // Doubled three times, in turns with another.
  %next_powers:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%p = %powers, %q = %powers)
      -> (tensor<40xf32>, tensor<40xf32>) {
    %doubled = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
        ins(%p : tensor<40xf32>) outs(%init : tensor<40xf32>) {
    ^bb0(%x: f32, %out: f32):
      %0 = arith.addf %x, %x : f32
      linalg.yield %0 : f32
    } -> tensor<40xf32>
    scf.yield %q, %doubled : tensor<40xf32>, tensor<40xf32>
  }
  return %a, %b, %kept, %cst, %sum, %sum, %rows, %next_count, %kept, %sum, %next_powers#1
      : tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>,
        tensor<40xf32>, tensor<2x20xf32>, tensor<i32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>
}
"""

names = ["a", "b", "kept", "reset", "one", "two", "powers"]
random = np.random.default_rng(0)
state = {name: random.standard_normal(40).astype(np.float32) for name in names}
state |= {"tail": np.ones((2, 20), np.float32), "count": np.int32(5)}

compiled = step.compile(SOURCE)
got = {name: array.copy() for name, array in state.items()}
for _ in range(2):
    expected = got | {
        "a": got["b"], "b": got["a"], "old": got["kept"], "reset": np.full(40, 7, np.float32),
        "sum": got["one"] + got["two"], "one": got["one"] + got["two"],
        "two": got["one"] + got["two"], "tail": np.stack([got["tail"][0], got["a"][20:]]),
        "count": got["count"] + 1, "powers": 4 * got["powers"],
    }
    got = compiled.run({name: got[name] for name in state})
    for name in expected:
        np.testing.assert_array_equal(got[name], expected[name], name)
