# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with sparse weights on tensor cores, in the PTX interpreter, against float64.

    gpu_products.py <chip> [<outputs>x<tokens> <case>...]

The tile of a block of threads is the model's choice, or the given one; the cases are all, or those
of the given numbers.

A step holds the forward product with and without a bias, the input gradient and the weight
gradient; it runs on patterns without blocks, with one, with empty and full lines, and with all. An
element is wrong if it is off by more than rounding allows: sums of n products of magnitude m in f32,
and one rounding to the result's type.
"""

import os
import sys

import numpy as np
import step

ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24}
# Type, type of results, block, grid of blocks, tokens with batches.
CASES = [
    ("bf16", "bf16", (16, 16), (20, 35), (200,)),
    ("bf16", "f32", (16, 16), (5, 3), (2, 3, 8)),
    ("f16", "f16", (16, 16), (9, 17), (136,)),
    ("bf16", "bf16", (32, 32), (9, 10), (2, 136)),
    ("f16", "f32", (32, 32), (8, 8), (128,)),
    ("bf16", "bf16", (64, 64), (5, 6), (264,)),
    ("f16", "f16", (64, 64), (4, 4), (24,)),
    ("bf16", "bf16", (16, 64), (9, 4), (40,)),
    ("bf16", "bf16", (64, 16), (3, 18), (72,)),
    ("f16", "f16", (32, 16), (6, 9), (3, 64)),
    ("bf16", "bf16", (16, 32), (17, 3), (128,)),
]


def round_to(kind, array):
    if kind == "bf16":
        return step.from_bf16(step.to_bf16(array)).astype(np.float64)
    return array.astype(step.TYPES[kind]).astype(np.float64)


def store(kind, array):
    return step.to_bf16(array) if kind == "bf16" else array.astype(step.TYPES[kind])


def load(kind, array):
    return step.from_bf16(array).astype(np.float64) if kind == "bf16" else array.astype(np.float64)


def text(kind, out, block, grid, tokens):
    rows, cols = (g * b for g, b in zip(grid, block))
    lead = "".join(f"{extent}x" for extent in tokens[:-1])
    dim = len(tokens) - 1
    slots = grid[0] * grid[1]
    return f"""
!p = !bsr.pattern<{rows}x{cols}, block = {block[0]}x{block[1]}, slots = {slots}>
!v = tensor<{slots}x{block[0]}x{block[1]}x{kind}>
!dv = tensor<{slots}x{block[0]}x{block[1]}x{out}>
!x = tensor<{lead}{rows}x{tokens[-1]}x{kind}>
!dx = tensor<{lead}{rows}x{tokens[-1]}x{out}>
!y = tensor<{lead}{cols}x{tokens[-1]}x{kind}>
!dy = tensor<{lead}{cols}x{tokens[-1]}x{out}>
!b = tensor<{cols}x{out}>
func.func @step(%p: !p {{bsr.name = "w", bsr.role = "pattern"}}, %w: !v {{bsr.name = "w", bsr.pattern = 0 : i64}},
                %x: !x {{bsr.name = "x", bsr.role = "batch"}}, %g: !y {{bsr.name = "g", bsr.role = "batch"}},
                %b: !b {{bsr.name = "b", bsr.role = "batch"}})
    -> (!dy {{bsr.name = "y"}}, !dy {{bsr.name = "z"}}, !dx {{bsr.name = "dx"}}, !dv {{bsr.name = "dw"}}) {{
  %y = bsr.spmm %p, %w, %x feature_dim = {dim} : !p, !v, !x -> !dy
  %z = bsr.spmm %p, %w, %x bias %b feature_dim = {dim} : !p, !v, !x, !b -> !dy
  %dx = bsr.spmm %p, %w, %g transpose feature_dim = {dim} : !p, !v, !y -> !dx
  %dw = bsr.sddmm %p, %x, %g feature_dim = {dim} : !p, !x, !y -> !dv
  return %y, %z, %dx, %dw : !dy, !dy, !dx, !dv
}}"""


def masks(random, grid):
    """Patterns: name and mask."""
    full = np.ones(grid, bool)
    one = np.zeros(grid, bool)
    one[grid[0] // 2, -1] = True
    lines = random.random(grid) < 0.2
    lines[0], lines[-1] = False, True
    lines[:, 0], lines[1:, 1] = True, False
    yield "random", random.random(grid) < 0.15
    yield "lines", lines
    yield "one", one
    yield "all", full
    yield "none", ~full


def check(name, got, want, magnitudes, terms, out):
    u = ROUNDOFF["f32"]
    bound = terms * u / (1 - terms * u) * magnitudes
    bound += ROUNDOFF[out] * (np.abs(want) + bound) + (2.0**-25 if out == "f16" else 1e-30)
    error = np.abs(got - want)
    assert np.isfinite(got).all() and (error <= bound).all(), f"{name}: off by {np.max(error - bound)} more than rounding"


def run_case(kind, out, block, grid, tokens, random):
    compiled = step.compile(text(kind, out, block, grid, tokens))
    # Not the plain kernels: those of products multiply matrices.
    kernels = [part for part in compiled.host.ptx.split(".entry") if "mma.sync" in part]
    assert len(kernels) == 4, f"expected 4 kernels on tensor cores, but got {len(kernels)}"
    shape = tuple(g * b for g, b in zip(grid, block))
    for name, mask in masks(random, grid):
        order = random.permutation(grid[0] * grid[1])[:mask.sum()]
        dense = round_to(kind, random.standard_normal(shape)) * np.kron(mask, np.ones(block))
        x, g = (round_to(kind, random.standard_normal((*tokens[:-1], extent, tokens[-1]))) for extent in shape)
        b = round_to(out, random.standard_normal(shape[1]))
        values = step.to_values(dense, mask, block, grid[0] * grid[1], order)
        got = compiled.run({"w": store(kind, values), "x": store(kind, x), "g": store(kind, g), "b": store(out, b)},
                           {"w": mask}, {"w": order})
        got = {key: load(out, array) for key, array in got.items()}
        y, size = dense.T @ x, np.abs(dense).T @ np.abs(x)
        check(f"{name} y", got["y"], y, size, shape[0], out)
        start = b[:, None]
        check(f"{name} z", got["z"], y + start, size + np.abs(start), shape[0] + 1, out)
        check(f"{name} dx", got["dx"], dense @ g, np.abs(dense) @ np.abs(g), shape[1], out)
        flat = [np.moveaxis(array, -2, 0).reshape(array.shape[-2], -1) for array in (x, g)]
        dw, size = flat[0] @ flat[1].T, np.abs(flat[0]) @ np.abs(flat[1]).T
        stored = mask if mask.any() else None
        if stored is not None:
            want, sizes = (step.to_values(array, mask, block, len(order), np.arange(len(order))) for array in (dw, size))
            check(f"{name} dw", got["dw"][order], want, sizes, flat[0].shape[1], out)


if __name__ == "__main__":
    chip, tile, *numbers = [*sys.argv[1:], "0x0"] if len(sys.argv) == 2 else sys.argv[1:]
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip} --tile={tile}"
    random = np.random.default_rng(0)
    for number, case in enumerate(CASES):
        if not numbers or str(number) in numbers:
            run_case(*case, random)
            print(number, *case, "ok", flush=True)
