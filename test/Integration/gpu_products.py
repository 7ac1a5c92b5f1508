# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with sparse weights, in the PTX interpreter, against float64.

    gpu_products.py <chip> [<outputs>x<tokens>[/<blocks>[x<blocks>]|/tf32][@<density>] <case>...]

The tile of a thread block is the model's choice, or the given one, and so are the thread blocks
that share copies along outputs (by warps) or along outputs and tokens (by warpgroups);
patterns have slots for all blocks, or for a share of them, of which kernels may depend; the cases are
all, or those of the given numbers. With tf32, f32 in blocks of 16 to 64 is rounded and multiplied on
tensor cores.

A step holds the forward product with and without a bias, the input gradient and the weight
gradient; it runs on patterns without blocks, with one, with empty and full lines, and with all. An
element is wrong if it is off by more than rounding allows: sums of n products of magnitude m in f32,
or f64, and one rounding to the result's type.
"""

import os
import re
import sys

import numpy as np
import step

ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
# Half of the distance of the smallest numbers.
LEAST = {"bf16": 0, "f16": 2.0**-25, "f32": 0, "f64": 0}
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
    ("bf16", "bf16", (8, 8), (34, 36), (200,)),
    ("f16", "f32", (8, 8), (6, 40), (2, 24)),
    ("bf16", "bf16", (4, 4), (36, 52), (136,)),
    ("f16", "f16", (4, 4), (8, 68), (3, 40)),
    ("bf16", "f32", (8, 16), (6, 5), (72,)),
    ("f16", "f16", (16, 8), (5, 6), (64,)),
    ("bf16", "bf16", (4, 8), (12, 10), (40,)),
    ("bf16", "bf16", (8, 4), (10, 12), (40,)),
    ("f16", "f16", (4, 64), (24, 3), (136,)),
    ("bf16", "bf16", (64, 4), (2, 20), (64,)),
    ("bf16", "f32", (8, 64), (18, 2), (24,)),
    ("f16", "f16", (32, 8), (4, 18), (128,)),
    ("bf16", "bf16", (4, 16), (12, 5), (200,)),
    ("bf16", "bf16", (32, 4), (3, 36), (72,)),
    ("f32", "f32", (16, 16), (10, 12), (200,)),
    ("f32", "f32", (8, 8), (12, 20), (2, 36)),
    ("f32", "f32", (32, 32), (5, 4), (132,)),
    ("f32", "f32", (64, 64), (3, 4), (68,)),
    ("f32", "f32", (4, 4), (20, 33), (72,)),
    ("f32", "f32", (2, 2), (30, 41), (60,)),
    ("f32", "f32", (1, 1), (70, 45), (264,)),
    ("bf16", "bf16", (1, 1), (45, 70), (136,)),
    ("f16", "f32", (2, 2), (21, 30), (2, 40)),
    ("f32", "f32", (1, 64), (37, 2), (40,)),
    ("f32", "f32", (64, 1), (2, 37), (128,)),
    ("f32", "f32", (2, 16), (20, 5), (28,)),
    ("f32", "f32", (32, 8), (5, 9), (72,)),
    ("bf16", "f32", (2, 8), (17, 9), (72,)),
    ("f16", "f16", (64, 1), (2, 37), (264,)),
    # Lines that do not fill those of tensor cores.
    ("bf16", "bf16", (8, 8), (5, 7), (72,)),
    ("f16", "f32", (4, 4), (9, 11), (2, 40)),
    # Plain kernels: f64, rows that copies cannot read, blocks that are no power of two.
    ("f64", "f64", (16, 16), (5, 4), (40,)),
    ("f32", "f32", (8, 8), (5, 4), (30,)),
    ("f32", "f32", (3, 5), (7, 6), (24,)),
    ("f32", "f32", (16, 64), (9, 4), (2, 40)),
    ("f32", "f32", (64, 16), (3, 9), (72,)),
    ("f32", "f32", (32, 16), (4, 9), (3, 64)),
]


def round_to(kind, array):
    if kind == "bf16":
        return step.from_bf16(step.to_bf16(array)).astype(np.float64)
    return array.astype(step.TYPES[kind]).astype(np.float64)


def round_to_tf32(array):
    """Rounds f32 to 10 bits of mantissa, ties away from zero."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def is_tf32(kind, block=(16,)):
    """True if products of this kind are rounded to tf32."""
    return kind == "f32" and "--tf32" in os.environ["BSR_COMPILE"] and min(block) >= 16


def store(kind, array):
    return step.to_bf16(array) if kind == "bf16" else array.astype(step.TYPES[kind])


def load(kind, array):
    return step.from_bf16(array).astype(np.float64) if kind == "bf16" else array.astype(np.float64)


def text(kind, out, block, grid, tokens, slots=None):
    rows, cols = (g * b for g, b in zip(grid, block))
    lead = "".join(f"{extent}x" for extent in tokens[:-1])
    dim = len(tokens) - 1
    slots = slots or grid[0] * grid[1]
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


def masks(random, grid, slots=None):
    """Patterns, of at most so many blocks: name and mask."""
    full = np.ones(grid, bool)
    one = np.zeros(grid, bool)
    one[grid[0] // 2, -1] = True
    lines = random.random(grid) < 0.2
    lines[0], lines[-1] = False, True
    lines[:, 0], lines[1:, 1] = True, False
    for name, mask in ("random", random.random(grid) < 0.15), ("lines", lines), ("one", one), ("all", full), ("none", ~full):
        blocks = random.permutation(np.flatnonzero(mask))
        mask.flat[blocks[slots or mask.size:]] = False
        yield name, mask


def check(name, got, want, magnitudes, terms, out):
    u = min(ROUNDOFF["f32"], ROUNDOFF[out])
    bound = terms * u / (1 - terms * u) * magnitudes
    bound += ROUNDOFF[out] * (np.abs(want) + bound) + LEAST[out] + 1e-30
    error = np.abs(got - want)
    assert np.isfinite(got).all() and (error <= bound).all(), f"{name}: off by {np.max(error - bound)} more than rounding"


def what_is_expected(kind, block, grid, tokens):
    """What tells the kernels of products from plain ones, and how many have it."""
    powers = all(extent in (1, 2, 4, 8, 16, 32, 64) for extent in block)
    if kind == "f64" or not powers or tokens[-1] % (4 if kind == "f32" else 8):
        return r"cp\.async", 0
    is_filled = all(extent * g % 16 == 0 for extent, g in zip(block, grid))
    isOnTensorCores = is_tf32(kind, block) or (kind != "f32" and min(block) >= 4 and is_filled)
    return (r"mma(\.sync|_async)" if isOnTensorCores else r"cp\.async"), 4


def check_infinity(run, before, x, mask, block):
    """An infinity in an input reaches no output but those of a packed line that stores a block there."""
    rows, cols = max(1, 8 // block[0]), max(1, 16 // block[1])
    row = np.flatnonzero(mask.any(1))[0] // rows * rows
    x = x.copy()
    x[..., row * block[0], :] = np.inf
    with np.errstate(invalid="ignore"):
        after = run(x)
    reached = mask[row:row + rows].any(0).reshape(-1, cols).any(1).repeat(cols * block[1])
    assert (before[..., ~reached, :] == after[..., ~reached, :]).all(), "expected an infinity to stay where blocks are"
    own = mask[row].repeat(block[1])
    assert not np.isfinite(after[..., own, :]).any(), "expected an infinity to reach what is multiplied by it"


def run_case(kind, out, block, grid, tokens, random):
    slots = max(1, round(float(os.environ["DENSITY"]) * grid[0] * grid[1]))
    compiled = step.compile(text(kind, out, block, grid, tokens, slots))
    sign, count = what_is_expected(kind, block, grid, tokens)
    kernels = [part for part in compiled.ptx.split(".entry") if re.search(sign, part)]
    assert len(kernels) == count, f"expected {count} kernels with {sign}, but got {len(kernels)}"
    share = re.search(r"--share=(\d+)(x\d+)?", os.environ["BSR_COMPILE"])
    if share:
        warpgroups, boxes = (sum(text in part for part in kernels) for text in ("wgmma", "bulk.tensor"))
        gradients = int(block == (64, 64) and share[1] != "1")
        expected = (3 if share[2] else 0) + gradients
        assert warpgroups == expected, f"expected {expected} kernels of warpgroups, but got {warpgroups}"
        assert boxes == 3 + gradients, f"expected {3 + gradients} kernels of tensor copies, but got {boxes}"
    shape = tuple(g * b for g, b in zip(grid, block))
    for name, mask in masks(random, grid, slots):
        order = random.permutation(slots)[:mask.sum()]
        dense = round_to(kind, random.standard_normal(shape)) * np.kron(mask, np.ones(block))
        x, g = (round_to(kind, random.standard_normal((*tokens[:-1], extent, tokens[-1]))) for extent in shape)
        b = round_to(out, random.standard_normal(shape[1]))
        values = step.to_values(dense, mask, block, slots, order)

        def run(x):
            got = compiled.run({"w": store(kind, values), "x": store(kind, x), "g": store(kind, g), "b": store(out, b)},
                               {"w": mask}, {"w": order})
            return {key: load(out, array) for key, array in got.items()}

        got = run(x)
        if is_tf32(kind, block):
            dense, x, g = (round_to_tf32(array) for array in (dense, x, g))
        if name == "random" and sign == "mma.sync" and min(block) < 16 and mask.any():
            check_infinity(lambda x: run(x)["y"], got["y"], x, mask, block)
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
    tile, _, density = tile.partition("@")
    os.environ["DENSITY"] = density or "1"
    tile, _, share = tile.partition("/")
    more = " --tf32" if share == "tf32" else f" --share={share}" if share else ""
    os.environ["BSR_COMPILE"] = f"--target=gpu --chip={chip} --tile={tile}{more}"
    random = np.random.default_rng(0)
    for number in step.share(map(int, numbers) if numbers else range(len(CASES))):
        run_case(*CASES[number], random)
        print(number, *CASES[number], "ok", flush=True)
