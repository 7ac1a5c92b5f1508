# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparse products of bf16 by tiles, `--bf16-tiles=emulated` or as the argument says, have the bits that TDPBF16PS of
Intel's Software Developer's Manual makes of them: products of lower numbers of pairs have a sum, those of upper ones
another, both together are added to the tile, and subnormal numbers are zeros. Blocks beside a number that is not
finite have none."""

import sys

import numpy as np
import step

GRID = 5


def flush(x):
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


def multiply(sums, a, b):
    """Tiles of `sums` with the product of `a` and `b` added, of any size; the sum of an f32 and of a product of bf16 of
    the numbers here is exact in float64."""
    a, b = flush(a).astype(np.float64), flush(b).astype(np.float64)
    parts = []
    for half in (0, 1):
        part = np.zeros(sums.shape, np.float32)
        for k in range(half, a.shape[1], 2):
            part = flush((part + np.outer(a[:, k], b[k])).astype(np.float32))
        parts.append(part)
    return flush(flush(sums) + flush(parts[0] + parts[1]))


def program(br, bc, tokens, slots):
    rows, cols = GRID * br, GRID * bc
    p = f"!bsr.pattern<{rows}x{cols}, block = {br}x{bc}, slots = {slots}>"
    w, x, y = f"tensor<{slots}x{br}x{bc}xbf16>", f"tensor<{rows}x{tokens}xbf16>", f"tensor<{cols}x{tokens}xbf16>"
    return f"""
#id = affine_map<(i, j) -> (i, j)>
func.func @step(%p: {p} {{bsr.name = "w"}}, %w: {w} {{bsr.name = "values", bsr.role = "batch"}},
                %x: {x} {{bsr.name = "x", bsr.role = "batch"}}, %dy: {y} {{bsr.name = "dy", bsr.role = "batch"}})
    -> ({y} {{bsr.name = "y"}}, {y} {{bsr.name = "relu"}}, {x} {{bsr.name = "dx"}}, {w} {{bsr.name = "dw"}}) {{
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : {p}, {w}, {x} -> {y}
  %e = tensor.empty() : {y}
  %relu = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%y, %dy : {y}, {y}) outs(%e : {y}) {{
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %zero = arith.constant 0.0 : bf16
    %max = arith.maximumf %a, %zero : bf16
    %sum = arith.addf %max, %b : bf16
    linalg.yield %sum : bf16
  }} -> {y}
  %dx = bsr.spmm %p, %w, %dy transpose feature_dim = 0 : {p}, {w}, {y} -> {x}
  %dw = bsr.sddmm %p, %x, %dy feature_dim = 0 : {p}, {x}, {y} -> {w}
  return %y, %relu, %dx, %dw : {y}, {y}, {x}, {w}
}}"""


def sum_up(weights, rows, block):
    """The product of `weights`, a line of blocks of `block` features, with `rows`, in steps of 32 features."""
    sums = np.zeros((weights.shape[0], rows.shape[1]), np.float32)
    for first in range(0, weights.shape[1], 32):
        sums = multiply(sums, weights[:, first : first + 32], rows[first : first + 32])
    return sums


def spmm(dense, mask, x):
    """`dense` transposed times `x`."""
    br, bc = dense.shape[0] // GRID, dense.shape[1] // GRID
    result = []
    for col in range(GRID):
        features = np.concatenate([np.arange(row * br, row * br + br) for row in np.flatnonzero(mask[:, col])] or
                                  [np.zeros(0, int)])
        result.append(sum_up(dense[features, col * bc : col * bc + bc].T, x[features], br))
    return np.concatenate(result)


def same(got, want, where):
    got, want = step.from_bf16(got), step.from_bf16(step.to_bf16(want))
    differ = (got != want) & ~(np.isnan(got) & np.isnan(want))
    assert not differ.any(), f"{where}: {differ.sum()} of {differ.size} differ, as {got[differ][0]!r} and {want[differ][0]!r}"


def check(way, br, bc, tokens):
    mask = np.random.default_rng(br).permutation(GRID * GRID).reshape(GRID, GRID) < 14
    mask[:, 3], mask[2] = False, False
    slots = GRID * GRID
    compiled = step.compile(program(br, bc, tokens, slots),
                            [f"--bf16-tiles={way}", "--vector-bits=512", "--num-registers=32"])
    assert compiled.manifest["compiler"]["bf16_tiles"] == way
    for seed, scale in enumerate((1.0, 2.0**-63)):
        random = np.random.default_rng(seed)
        draw = lambda *shape: step.from_bf16(step.to_bf16(random.standard_normal(shape) * scale))
        x, dy = draw(GRID * br, tokens), draw(GRID * bc, tokens)
        dense = np.where(np.kron(mask, np.ones((br, bc))), draw(GRID * br, GRID * bc), 0)
        values = step.to_values(dense, mask, (br, bc), slots)
        arrays = {"values": step.to_bf16(values), "x": step.to_bf16(x), "dy": step.to_bf16(dy)}
        got = compiled.run(arrays, {"w": mask})
        where = f"{br}x{bc}, {tokens} tokens, scale {scale}"
        same(got["y"], spmm(dense, mask, x), where + ", spmm")
        # What follows a product, in its kernel.
        if not seed:
            after = np.maximum(step.from_bf16(step.to_bf16(spmm(dense, mask, x))), np.float32(0)) + dy
            same(got["relu"], after, where + ", followed")
        same(got["dx"], spmm(dense.T, mask.T, dy), where + ", transposed")
        dw = sum_up(x, dy.T, br)
        same(got["dw"][: mask.sum()], step.to_values(dw, mask, (br, bc), slots)[: mask.sum()], where + ", sddmm")
        if seed:
            continue
        # A row that is not finite is in no sum of other blocks.
        arrays["x"][:br] = 0x7F80
        got = compiled.run(arrays, {"w": mask})
        others = np.repeat(~mask[0], bc)
        same(got["y"][others], spmm(dense, mask, x)[others], where + ", beside infinities")


for br, bc, tokens in ((16, 16, 320), (32, 32, 256), (64, 32, 256), (16, 96, 256)):
    check(sys.argv[1] if len(sys.argv) > 1 else "emulated", br, bc, tokens)
