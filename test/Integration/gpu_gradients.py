# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of sparse weights alone, in the PTX interpreter, against float64.

    gpu_gradients.py <chip> <rows>[/<share>] [<case>...]

A thread block has block rows of so many rows together; or a cluster of <share> thread blocks
has, if blocks are of 64 by 64. Tokens are many: thread blocks have a part of a window, or several
windows.
"""

import os
import sys

import gpu_products
import numpy as np
import step

# Type, type of results, block, grid of blocks, tokens with batches.
CASES = [
    ("bf16", "bf16", (16, 16), (9, 20), (3, 200)),
    ("f16", "f32", (16, 16), (5, 26), (2, 328)),
    ("bf16", "f32", (32, 32), (5, 10), (584,)),
    ("bf16", "bf16", (64, 64), (3, 5), (5, 104)),
    ("f16", "f16", (32, 16), (6, 9), (3, 200)),
    ("f16", "f32", (64, 64), (5, 9), (2, 168)),
]


def text(kind, out, block, grid, tokens):
    rows, cols = (g * b for g, b in zip(grid, block))
    lead = "".join(f"{extent}x" for extent in tokens[:-1])
    slots = grid[0] * grid[1]
    return f"""
!p = !bsr.pattern<{rows}x{cols}, block = {block[0]}x{block[1]}, slots = {slots}>
!x = tensor<{lead}{rows}x{tokens[-1]}x{kind}>
!y = tensor<{lead}{cols}x{tokens[-1]}x{kind}>
!dv = tensor<{slots}x{block[0]}x{block[1]}x{out}>
func.func @step(%p: !p {{bsr.name = "w", bsr.role = "pattern"}}, %x: !x {{bsr.name = "x", bsr.role = "batch"}},
                %g: !y {{bsr.name = "g", bsr.role = "batch"}}) -> (!dv {{bsr.name = "dw"}}) {{
  %dw = bsr.sddmm %p, %x, %g feature_dim = {len(tokens) - 1} : !p, !x, !y -> !dv
  return %dw : !dv
}}"""


def run_case(product, kind, out, block, grid, tokens, random):
    compiled = step.compile(text(kind, out, block, grid, tokens))
    assert sum(product in part for part in compiled.ptx.split(".entry")) == 1
    interpreted = compiled.interpret()  # a pattern without values is none of a session
    # Where half of the blocks are stored, thread blocks of a cluster share some columns, each pair others.
    for name, mask in [*gpu_products.masks(random, grid), ("half", random.random(grid) < 0.5)]:
        order = random.permutation(mask.size)[:mask.sum()]
        x, g = (gpu_products.round_to(kind, random.standard_normal((*tokens[:-1], extent * b, tokens[-1])))
                for extent, b in zip(grid, block))
        got = interpreted.run({"x": gpu_products.store(kind, x), "g": gpu_products.store(kind, g)}, {"w": mask}, {"w": order})
        if not mask.any():
            continue
        x, g = (np.moveaxis(array, -2, 0).reshape(array.shape[-2], -1) for array in (x, g))
        want, size = (step.to_values(array, mask, block, len(order), np.arange(len(order)))
                      for array in (x @ g.T, np.abs(x) @ np.abs(g).T))
        gpu_products.check(f"{name} dw", gpu_products.load(out, got["dw"])[order], want, size, x.shape[1], out)


if __name__ == "__main__":
    chip, sizes = sys.argv[1:3]
    rows, _, share = sizes.partition("/")
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip} --tile={rows}x0" + (f" --share={share}" if share else "")
    product = "wgmma.mma" if int(share or 1) > 1 else "mma.sync"
    random = np.random.default_rng(0)
    for number, case in enumerate(CASES):
        if len(sys.argv) == 3 or str(number) in sys.argv[3:]:
            run_case(product, *case, random)
            print(number, *case, "ok", flush=True)
