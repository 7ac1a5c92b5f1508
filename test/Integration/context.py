# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step runs in a context of its version and on its device only."""

import numpy as np
import step

SCALE = """
func.func @step(%x: tensor<8x16xf32> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<8x16xf32> {
  %0 = tensor.empty() : tensor<8x16xf32>
  %next = linalg.add ins(%x, %x : tensor<8x16xf32>, tensor<8x16xf32>) outs(%0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %next : tensor<8x16xf32>
}
"""

x = np.arange(128, dtype=np.float32).reshape(8, 16)
(buffer, *_), run = step.compile(SCALE).bind({"x": x})
# A context, and what the run returns and says it expected: other versions come first.
for context, status, expected in [
    (step.Context(version=2), 1, 1),
    (step.Context(version=-1, device=7), 1, 1),
    (step.Context(device=7), 2, 0),
]:
    got = run(context), context.error
    assert got == (status, expected), got
    assert np.array_equal(buffer, x), "a refused run has touched a buffer"

context = step.Context()
context.error = 5
assert (run(context), context.error) == (0, 5)
assert np.array_equal(buffer, 2 * x)
