# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What follows gradients of sparse weights on their sums, in the PTX interpreter, against float64.

    gpu_updates.py <chip> <rows>[/<share>] [<case>...]

A step adds the gradient of a micro-batch to a sum that it carries, has its half in another type, and updates a
weight and its moment, which the forward product has read; so the kernel of the gradient writes where these lie, or,
of plain kernels, the next one does. Patterns and bounds are those of gpu_products.py. Slots without a block stay as they were.
"""

import os
import sys

import gpu
import gpu_products
import numpy as np
import step

# Type, type of the gradient, block, grid of blocks, tokens with batches.
CASES = [
    ("bf16", "f32", (16, 16), (9, 20), (3, 200)),
    ("f16", "f16", (32, 16), (6, 9), (2, 328)),
    ("bf16", "bf16", (32, 32), (5, 10), (584,)),
    ("f16", "f32", (64, 64), (5, 9), (2, 168)),
    ("f32", "f32", (16, 64), (7, 3), (2, 100)),
    # Without an epilogue: blocks that fragments have several of, and f32.
    ("bf16", "f32", (8, 8), (6, 8), (136,)),
    ("f32", "f32", (16, 16), (4, 6), (72,)),
]
RATE, DECAY = 0.25, 0.75  # exact, as are the products with them


def text(kind, out, block, grid, tokens):
    rows, cols = (g * b for g, b in zip(grid, block))
    lead = "".join(f"{extent}x" for extent in tokens[:-1])
    slots = grid[0] * grid[1]
    dim = len(tokens) - 1
    values = f"{slots}x{block[0]}x{block[1]}"
    widen = "" if out == "f32" else f"%d0 = arith.extf %d : {out} to f32\n    "
    wide = "%d" if out == "f32" else "%d0"
    narrow = "" if kind == "f32" else f"""
  %we = tensor.empty() : !v
  %wn = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%w : !s) outs(%we : !v) {{
  ^bb0(%a: f32, %o: {kind}):
    %0 = arith.truncf %a : f32 to {kind}
    linalg.yield %0 : {kind}
  }} -> !v"""
    return f"""
#id = affine_map<(s, r, c) -> (s, r, c)>
#none = affine_map<(s, r, c) -> ()>
!p = !bsr.pattern<{rows}x{cols}, block = {block[0]}x{block[1]}, slots = {slots}>
!v = tensor<{values}x{kind}>
!d = tensor<{values}x{out}>
!s = tensor<{values}xf32>
!h = tensor<{values}xbf16>
!x = tensor<{lead}{rows}x{tokens[-1]}x{kind}>
!y = tensor<{lead}{cols}x{tokens[-1]}x{kind}>
func.func @step(%p: !p {{bsr.name = "w", bsr.role = "pattern"}},
                %w: !s {{bsr.name = "w", bsr.pattern = 0 : i64, bsr.result = 0 : i64}},
                %m: !s {{bsr.name = "m", bsr.role = "state", bsr.pattern = 0 : i64, bsr.result = 1 : i64}},
                %s: !s {{bsr.name = "s", bsr.role = "state", bsr.pattern = 0 : i64, bsr.result = 2 : i64}},
                %lr: tensor<f32> {{bsr.name = "lr", bsr.role = "lr"}},
                %x: !x {{bsr.name = "x", bsr.role = "batch"}}, %g: !y {{bsr.name = "g", bsr.role = "batch"}})
    -> (!s, !s, !s, !y {{bsr.name = "y"}}, !h {{bsr.name = "half"}}) {{{narrow}
  %dw = bsr.sddmm %p, %x, %g feature_dim = {dim} : !p, !x, !y -> !d
  %se = tensor.empty() : !s
  %he = tensor.empty() : !h
  %sn = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%s, %dw : !s, !d) outs(%se : !s) {{
  ^bb0(%a: f32, %d: {out}, %o: f32):
    {widen}%1 = arith.addf %a, {wide} : f32
    linalg.yield %1 : f32
  }} -> !s
  %hn = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%dw : !d) outs(%he : !h) {{
  ^bb0(%d: {out}, %o: bf16):
    {widen}%c = arith.constant 0.5 : f32
    %1 = arith.mulf {wide}, %c : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  }} -> !h
  %mn = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%m, %dw : !s, !d) outs(%se : !s) {{
  ^bb0(%a: f32, %d: {out}, %o: f32):
    {widen}%c = arith.constant {DECAY} : f32
    %1 = arith.mulf %a, %c : f32
    %2 = arith.addf %1, {wide} : f32
    linalg.yield %2 : f32
  }} -> !s
  %un = linalg.generic {{indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%w, %mn, %lr : !s, !s, tensor<f32>) outs(%se : !s) {{
  ^bb0(%a: f32, %b: f32, %r: f32, %o: f32):
    %1 = arith.mulf %b, %r : f32
    %2 = arith.subf %a, %1 : f32
    linalg.yield %2 : f32
  }} -> !s
  %y = bsr.spmm %p, {"%w" if kind == "f32" else "%wn"}, %x feature_dim = {dim} : !p, !v, !x -> !y
  return %un, %mn, %sn, %y, %hn : !s, !s, !s, !y, !h
}}"""


def run_case(kind, out, block, grid, tokens, random):
    compiled = step.compile(text(kind, out, block, grid, tokens))
    isFused = gpu_products.is_tf32(kind, block) or (kind != "f32" and min(block) >= 16)
    updates = gpu.lower(compiled.source, ()).count('bsr.kind = "elementwise"') - (kind != "f32")
    assert updates == (0 if isFused else 1), f"expected {0 if isFused else 1} launches behind the gradient, but got {updates}"
    for name, mask in [*gpu_products.masks(random, grid), ("half", random.random(grid) < 0.5)]:
        order = random.permutation(mask.size)[:mask.sum()]
        x, g = (gpu_products.round_to(kind, random.standard_normal((*tokens[:-1], extent * b, tokens[-1])))
                for extent, b in zip(grid, block))
        before = {key: random.standard_normal((mask.size, *block)).astype(np.float32) for key in "wms"}
        got = compiled.run({**before, "lr": np.float32(RATE), "x": gpu_products.store(kind, x), "g": gpu_products.store(kind, g)},
                           {"w": mask}, {"w": order})
        absent = np.setdiff1d(np.arange(mask.size), order)
        for key in "wms" if isFused else "":
            assert np.array_equal(got[key][absent], before[key][absent]), f"{name}: expected slots without blocks of {key} to stay"
        if not mask.any():
            continue
        w = {key: before[key][order].astype(np.float64) for key in "wms"}
        dense = step.to_dense(gpu_products.round_to(kind, before["w"].astype(np.float64)), mask, order)
        rounded = dense, x, g
        if gpu_products.is_tf32(kind, block):
            rounded = [gpu_products.round_to_tf32(array) for array in rounded]
        dense, x, g = rounded
        gpu_products.check(f"{name} y", gpu_products.load(kind, got["y"]), dense.T @ x, np.abs(dense).T @ np.abs(x), x.shape[-2], kind)
        x, g = (np.moveaxis(array, -2, 0).reshape(array.shape[-2], -1) for array in (x, g))
        dw, size = (step.to_values(array, mask, block, len(order), np.arange(len(order)))
                    for array in (x @ g.T, np.abs(x) @ np.abs(g).T))
        m = DECAY * w["m"] + dw
        terms = x.shape[1]
        # The gradient is rounded to its type, as if it were in memory.
        for key, want, magnitude, type in (("s", w["s"] + dw, np.abs(w["s"]) + size, "f32"), ("m", m, np.abs(w["m"]) + size, "f32"),
                                           ("w", w["w"] - RATE * m, np.abs(w["w"]) + np.abs(w["m"]) + size, "f32"),
                                           ("half", dw / 2, size, "bf16")):
            error = gpu_products.ROUNDOFF[out] * np.abs(dw) / gpu_products.ROUNDOFF["f32"] * 2 if out != "f32" else 0
            gpu_products.check(f"{name} {key}", gpu_products.load(type, got[key])[order], want, magnitude + error / (terms + 4), terms + 4, type)


if __name__ == "__main__":
    chip, sizes = sys.argv[1:3]
    rows, _, share = sizes.partition("/")
    tf32 = " --tf32" if share == "tf32" else ""
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip} --tile={rows}x0" + (tf32 or (f" --share={share}" if share else ""))
    random = np.random.default_rng(0)
    for number, case in enumerate(CASES):
        if len(sys.argv) == 3 or str(number) in sys.argv[3:]:
            run_case(*case, random)
            print(number, *case, "ok", flush=True)
