# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step with a pattern that is compiled in, beside one that is an argument: against
the dense masked reference, and bit for bit against the same pattern as an argument."""

import json
import os
import tempfile

import numpy as np
import step

SOURCE = """
!w = tensor<64x96xf32>
!u = tensor<96x32xf32>
!x = tensor<40x64xf32>
!h = tensor<40x96xf32>
!y = tensor<40x32xf32>
#left_t = affine_map<(i, j, k) -> (k, i)>
#right = affine_map<(i, j, k) -> (k, j)>
#left = affine_map<(i, j, k) -> (i, k)>
#right_t = affine_map<(i, j, k) -> (j, k)>
#out = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
func.func @step(%w: !w {bsr.name = "w", bsr.result = 0 : i64},
                %m: !w {bsr.name = "m", bsr.result = 1 : i64},
                %u: !u {bsr.name = "u", bsr.result = 2 : i64},
                %x: !x {bsr.name = "x"}, %dy: !y {bsr.name = "dy"})
    -> (!w, !w, !u, !y {bsr.name = "y"}) {
  %0 = arith.constant dense<0.0> : !h
  %1 = arith.constant dense<0.0> : !y
  %2 = arith.constant dense<0.0> : !w
  %3 = arith.constant dense<0.0> : !u
  %rate = arith.constant 0.125 : f32
  %decay = arith.constant 0.75 : f32
  %h = linalg.matmul ins(%x, %w : !x, !w) outs(%0 : !h) -> !h
  %y = linalg.matmul ins(%h, %u : !h, !u) outs(%1 : !y) -> !y
  %dh = linalg.matmul indexing_maps = [#left, #right_t, #out] ins(%dy, %u : !y, !u) outs(%0 : !h) -> !h
  %dw = linalg.matmul indexing_maps = [#left_t, #right, #out] ins(%x, %dh : !x, !h) outs(%2 : !w) -> !w
  %du = linalg.matmul indexing_maps = [#left_t, #right, #out] ins(%h, %dy : !h, !y) outs(%3 : !u) -> !u
  %next:2 = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %m, %dw : !w, !w, !w) outs(%2, %2 : !w, !w) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out0: f32, %out1: f32):
    %4 = arith.mulf %b, %decay : f32
    %5 = arith.addf %4, %c : f32
    %6 = arith.mulf %5, %rate : f32
    %7 = arith.subf %a, %6 : f32
    linalg.yield %7, %5 : f32, f32
  } -> (!w, !w)
  %next_u = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u, %du : !u, !u) outs(%3 : !u) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %4 = arith.mulf %b, %rate : f32
    %5 = arith.subf %a, %4 : f32
    linalg.yield %5 : f32
  } -> !u
  return %next#0, %next#1, %next_u, %y : !w, !w, !u, !y
}
"""

STEPS = 3


def pattern_file(mask, block):
    """The text of a pattern file: what the format names and no more."""
    arrays = step.views(mask)
    return json.dumps({
        "format": "bsr-pattern", "version": 1,
        "shape": [mask.shape[0] * block[0], mask.shape[1] * block[1]], "block": block,
        "row_ptr": arrays["row_ptr"].tolist(), "col_idx": arrays["col_idx"].tolist(),
    })


def reference(state, masks, x, dy):
    """The dense step in f64: weights times masks, under automatic differentiation."""
    w, m, u = (state[name].astype(np.float64) for name in "wmu")
    for _ in range(STEPS):
        h = x @ w
        y, dw, du = h @ u, x.T @ (dy @ u.T) * masks["w"], h.T @ dy * masks["u"]
        m = 0.75 * m + dw
        w, u = w - 0.125 * m, u - 0.125 * du
    return {"w": w, "m": m, "u": u, "y": y}


def check(block, density, seed):
    random = np.random.default_rng(seed)
    mask = random.random((64 // block[0], 96 // block[1])) < density
    mask[1], mask[:, 2] = False, False
    mask[0, 0] = True
    other = random.random((6, 2)) < 0.5
    other[0, 0] = True
    masks = {"w": mask, "u": other}
    blocks = {"w": block, "u": [16, 16]}
    expand = lambda name: np.kron(masks[name], np.ones(blocks[name]))
    state = {"w": random.standard_normal((64, 96)) * expand("w") / 8,
             "m": random.standard_normal((64, 96)) * expand("w") / 8,
             "u": random.standard_normal((96, 32)) * expand("u") / 8}
    state = {name: array.astype(np.float32) for name, array in state.items()}
    x = random.standard_normal((40, 64)).astype(np.float32) / 8
    dy = random.standard_normal((40, 32)).astype(np.float32) / 8
    arrays = {"x": x, "dy": dy}
    for name, owner in [("w", "w"), ("m", "w"), ("u", "u")]:
        arrays[name] = step.to_values(state[name], masks[owner], blocks[owner])

    rest = f"--mark=match=^u$ block=16x16 density={other.mean()}"
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "w.json")
        with open(path, "w") as file:
            file.write(pattern_file(mask, block))
        compiled = step.compile(SOURCE, [f"--mark=match=^w$ pattern={path}", rest])
    first, second = compiled.manifest["patterns"]
    assert first["static"] and first["name"] == "w" and "buffers" not in first, first
    assert first["slots"] == mask.sum() and first["density"] == mask.mean(), first
    assert not second["static"] and second["name"] == "u", second
    assert [b["name"] for b in compiled.manifest["buffers"] if b["kind"] == "row_ptr"] == ["u"]
    assert compiled.manifest["left_dense"] == 0

    got = compiled.run(arrays, {"u": other}, steps=STEPS, threads=1)
    expected = reference(state, {name: expand(name) for name in masks}, x, dy)
    for name, owner in [("w", "w"), ("m", "w"), ("u", "u")]:
        np.testing.assert_allclose(step.to_dense(got[name], masks[owner]), expected[name],
                                   rtol=1e-4, atol=1e-5, err_msg=f"{name} {block}")
    np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-4, atol=1e-5)

    size = f"{block[0]}x{block[1]}"
    dynamic = step.compile(
        SOURCE, [f"--mark=match=^w$ block={size} density={mask.mean()}", rest])
    same = dynamic.run(arrays, masks, steps=STEPS, threads=2)
    for name in got:
        np.testing.assert_array_equal(got[name], same[name], f"{name} {block}")


check([16, 16], 0.4, 0)
check([4, 8], 0.3, 1)
check([1, 1], 0.1, 2)
