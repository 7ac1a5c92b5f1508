# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of pairs of bf16 by the instruction of this processor have the bits of those that are emulated: of
single instructions, and of long sums, of all numbers: subnormal ones, zeros, infinities, NaN. Which NaN it is may
differ."""

import os

import numpy as np
import step

ROWS, COLS = 96, 256
SPECIAL = np.array([0x0000, 0x0001, 0x007F, 0x0080, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FC0, 0x1F80, 0x2000, 0x5F80],
                   np.uint16)
SPECIAL = np.concatenate([SPECIAL, SPECIAL | 0x8000])


def of_all_bits(random, shape):
    return random.integers(0, 1 << 16, shape).astype(np.uint16)


def of_special_numbers(random, shape):
    return random.choice(SPECIAL, shape)


def of_tiny_products(random, shape):
    """Products and sums are around the smallest normal number."""
    return step.to_bf16(random.standard_normal(shape) * 2.0**-63)


def of_large_sums(random, shape):
    """Terms that cancel."""
    return step.to_bf16(random.standard_normal(shape) * 2.0 ** random.integers(-12, 12, shape))


def dense(terms):
    """A product of `terms` summands: of two, an instruction makes each result."""
    a, b, c = f"tensor<{ROWS}x{terms}xbf16>", f"tensor<{terms}x{COLS}xbf16>", f"tensor<{ROWS}x{COLS}xf32>"
    return f"""
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @step(%a: {a} {{bsr.name = "a", bsr.role = "batch"}}, %b: {b} {{bsr.name = "b", bsr.role = "batch"}},
                %c: {c} {{bsr.name = "c", bsr.role = "batch"}}) -> ({c} {{bsr.name = "y"}}) {{
  %y = linalg.generic {{indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %b : {a}, {b}) outs(%c : {c}) {{
  ^bb0(%l: bf16, %r: bf16, %o: f32):
    %x = arith.extf %l : bf16 to f32
    %z = arith.extf %r : bf16 to f32
    %m = arith.mulf %x, %z : f32
    %s = arith.addf %m, %o : f32
    linalg.yield %s : f32
  }} -> {c}
  return %y : {c}
}}"""


def sparse(block, tokens):
    """A product with a block-sparse matrix, with its transpose, and the gradient at its values."""
    size, slots = 4 * block, 9
    p = f"!bsr.pattern<{size}x{size}, block = {block}x{block}, slots = {slots}>"
    w, x = f"tensor<{slots}x{block}x{block}xbf16>", f"tensor<{size}x{tokens}xbf16>"
    return f"""
func.func @step(%p: {p} {{bsr.name = "w"}}, %w: {w} {{bsr.name = "values", bsr.role = "batch"}},
                %x: {x} {{bsr.name = "x", bsr.role = "batch"}}, %dy: {x} {{bsr.name = "dy", bsr.role = "batch"}})
    -> ({x} {{bsr.name = "y"}}, {x} {{bsr.name = "dx"}}, {w} {{bsr.name = "dw"}}) {{
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : {p}, {w}, {x} -> {x}
  %dx = bsr.spmm %p, %w, %dy transpose feature_dim = 0 : {p}, {w}, {x} -> {x}
  %dw = bsr.sddmm %p, %x, %dy feature_dim = 0 : {p}, {x}, {x} -> {w}
  return %y, %dx, %dw : {x}, {x}, {w}
}}""", {"values": (slots, block, block), "x": (size, tokens), "dy": (size, tokens)}


def compare(what, text, draw, shapes, patterns={}):
    """Runs `text` by the instruction and without it, on the same numbers."""
    steps = {way: step.compile(text, [f"--bf16-dots={way}", "--vector-bits=512", "--num-registers=32"])
             for way in ("native", "emulated")}
    for way, compiled in steps.items():
        assert compiled.manifest["compiler"]["bf16_dots"] == way, compiled.manifest["compiler"]
    for seed in range(3):
        for numbers in draw:
            random = np.random.default_rng(seed)
            arrays = {name: numbers(random, shape) for name, shape in shapes.items()}
            if "c" in arrays:
                # Sums that go on from any number.
                start = step.from_bf16(arrays["c"])
                arrays["c"] = np.where(seed == 1, start, np.float32(0)).astype(np.float32)
            native, emulated = (compiled.run(arrays, patterns) for compiled in steps.values())
            for name, got in native.items():
                want = emulated[name]
                if got.dtype == np.uint16:
                    got, want = step.from_bf16(got), step.from_bf16(want)
                differ = (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))
                assert not differ.any(), (
                    f"{what}, {numbers.__name__}, seed {seed}, {name}: {differ.sum()} of {differ.size} differ, as "
                    f"{got[differ][0]!r} and {want[differ][0]!r}")


DRAWS = [of_all_bits, of_special_numbers, of_tiny_products, of_large_sums]
for terms in (2, 4, 64, 700):
    compare(f"dense product of {terms} terms", dense(terms), DRAWS,
            {"a": (ROWS, terms), "b": (terms, COLS), "c": (ROWS, COLS)})
for block, tokens in ((8, 128), (16, 192), (32, 52)):
    text, shapes = sparse(block, tokens)
    mask = np.random.default_rng(block).permutation(16).reshape(4, 4) < 9
    compare(f"sparse products of {block}x{block} blocks", text, DRAWS, shapes, {"w": mask})
