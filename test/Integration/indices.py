# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Look-ups, slices and entries at places that are computed, against NumPy."""

import tempfile

import numpy as np

import step

TEXT = """
#id = affine_map<(t) -> (t)>
#row = affine_map<(t, f) -> (t)>
#all = affine_map<(t, f) -> (t, f)>
func.func @step(%w: tensor<16x8xf32> {bsr.name = "w", bsr.result = 0 : i64},
                %x: tensor<6x8xf32> {bsr.name = "x"}, %s: tensor<2x3xf32> {bsr.name = "s"},
                %nt: tensor<TYPE> {bsr.name = "n"}, %ids: tensor<5xTYPE> {bsr.name = "ids"})
    -> (tensor<16x8xf32>, tensor<5x8xf32> {bsr.name = "rows"}, tensor<5x8xf32> {bsr.name = "marked"},
        tensor<2x3xf32> {bsr.name = "slice"}, tensor<6x8xf32> {bsr.name = "put"},
        tensor<6x8xf32> {bsr.name = "entry"}, tensor<6x8xf32> {bsr.name = "loop"}) {
  %one = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %n0 = tensor.extract %nt[] : tensor<TYPE>
  %n = arith.index_cast %n0 : TYPE to index
  %e = tensor.empty() : tensor<5x8xf32>
  %rows = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<5xTYPE>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%id: TYPE, %o: f32):
    %at = arith.index_cast %id : TYPE to index
    %f = linalg.index 1 : index
    %v = tensor.extract %x[%at, %f] : tensor<6x8xf32>
    linalg.yield %v : f32
  } -> tensor<5x8xf32>
  %marked = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<5xTYPE>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%id: TYPE, %o: f32):
    %at = arith.index_cast %id : TYPE to index
    %f = linalg.index 1 : index
    %v = tensor.extract %w[%at, %f] : tensor<16x8xf32>
    linalg.yield %v : f32
  } -> tensor<5x8xf32>
  %slice = tensor.extract_slice %x[%n, %n] [2, 3] [2, 2] : tensor<6x8xf32> to tensor<2x3xf32>
  %put = tensor.insert_slice %s into %x[%n, %n] [2, 3] [2, 2] : tensor<2x3xf32> into tensor<6x8xf32>
  %entry = tensor.insert %one into %x[%n, %n] : tensor<6x8xf32>
  %loop = scf.for %i = %c0 to %c3 step %c1 iter_args(%y = %x) -> tensor<6x8xf32> {
    %at = arith.addi %n, %i : index
    %1 = tensor.insert_slice %s into %y[%at, 0] [2, 3] [1, 1] : tensor<2x3xf32> into tensor<6x8xf32>
    scf.yield %1 : tensor<6x8xf32>
  }
  return %w, %rows, %marked, %slice, %put, %entry, %loop : tensor<16x8xf32>, tensor<5x8xf32>,
      tensor<5x8xf32>, tensor<2x3xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>
}
"""


def expected(w, x, s, n, ids):
    """What the step computes, in NumPy."""
    put, entry, loop = x.copy(), x.copy(), x.copy()
    i, j = np.clip(n, 0, 3), np.clip(n, 0, 3)
    put[i : i + 3 : 2, j : j + 5 : 2] = s
    entry[np.clip(n, 0, 5), np.clip(n, 0, 7)] = 1
    for k in range(3):
        at = np.clip(n + k, 0, 4)
        loop[at : at + 2, :3] = s
    return {
        "rows": x[np.clip(ids, 0, 5)], "marked": w[np.clip(ids, 0, 15)],
        "slice": x[i : i + 3 : 2, j : j + 5 : 2], "put": put, "entry": entry, "loop": loop,
    }


rng = np.random.default_rng(0)
mask = rng.random((4, 2)) < 0.6
w = np.kron(mask, np.ones((4, 4))).astype(np.float32) * rng.normal(size=(16, 8)).astype(np.float32)
x, s = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 8), (2, 3)))
for kind, dtype in (("i32", np.int32), ("i64", np.int64)):
    most = np.iinfo(dtype).max
    path = tempfile.mkstemp(suffix=".mlir")[1]
    with open(path, "w") as file:
        file.write(TEXT.replace("TYPE", kind))
    for options in ([], ["--target=scalar"]):
        compiled = step.compile(path, ["--mark=match=^w block=4x4 density=0.6", *options])
        for n, ids in (
            (1, [0, 5, 2, 3, 1]), (3, [15, 6, 5, 0, 1]), (5, [-1, 16, -2, 100, 4]),
            (-1, [-7, 7, -7, 7, 0]), (1 << 20, [1 << 30, -1 << 30, most, ~most, 0]),
            (most - 2, [most] * 5), (~most, [~most] * 5),
        ):
            inputs = {"x": x, "s": s, "n": np.array(n, dtype), "ids": np.array(ids, dtype)}
            got = compiled.run({"w": step.to_values(w, mask, (4, 4), slots=5), **inputs}, {"w": mask})
            for name, value in expected(w, x, s, n, np.array(ids)).items():
                np.testing.assert_array_equal(got[name], value, f"{name} at {n}, {ids}, {kind}, {options}")
