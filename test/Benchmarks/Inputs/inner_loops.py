# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The inner loops of products stay as short as they are, for processors with 16 and with 32 registers."""

import sys

sys.path.append(f"{sys.argv[1]}/benchmarks")
import kernels
import machine_code
from machine_code import ArmInstruction, Instruction, split

# Instructions and loads of an iteration for a multiply-add, at most: what they are, and a tenth.
MOST = {
    "haswell": {
        "spmm/f32/16x16": (2.1, 0.75), "spmm_transposed/f32/16x16": (2.1, 0.75), "sddmm/f32/16x16": (1.9, 0.75),
        "spmm/f32/8x8": (2.05, 0.85), "spmm/f32/4x4": (2.7, 0.95), "sddmm/f32/8x8": (2.1, 0.65),
        "spmm/f32/1x1": (2.4, 1.5),
        "spmm/f32/1x8": (2.35, 0.97), "spmm_transposed/f32/1x8": (2.65, 1.1), "sddmm/f32/1x8": (2.05, 0.65),
        "spmm/f32/8x1": (2.65, 1.1), "spmm_transposed/f32/8x1": (2.9, 1.1), "sddmm/f32/8x1": (2.05, 0.65),
        "spmm/f32/16x1": (2.3, 0.97), "spmm_transposed/f32/16x1": (2.75, 1.0),
        "sddmm/f32/16x1": (2.05, 0.65), "sddmm/f32/1x16": (2.05, 0.65), "sddmm/f32/1x1": (4.4, 1.65),
    },
    "znver5": {
        "spmm/f32/16x16": (1.85, 0.45), "spmm_transposed/f32/16x16": (1.85, 0.45), "sddmm/f32/16x16": (1.7, 0.45),
        "spmm/f32/8x8": (2.1, 0.69), "spmm/f32/4x4": (2.2, 0.6), "sddmm/f32/8x8": (2.0, 0.55),
        "spmm/f32/1x1": (2.4, 1.5),
        "spmm/f32/1x8": (2.5, 0.83), "spmm_transposed/f32/1x8": (2.35, 0.85), "sddmm/f32/1x8": (1.9, 0.5),
        "spmm/f32/8x1": (2.35, 0.85), "spmm_transposed/f32/8x1": (2.5, 0.83), "sddmm/f32/8x1": (1.9, 0.5),
        "sddmm/f32/16x1": (1.9, 0.5), "sddmm/f32/1x16": (1.9, 0.5), "sddmm/f32/1x1": (4.4, 1.65),
    },
    # bf16 that is converted to f32.
    "sapphirerapids": {
        "spmm/bf16/16x16": (1.95, 0.37), "spmm_transposed/bf16/16x16": (1.97, 0.37),
        "spmm/bf16/8x8": (1.8, 0.55),
    },
}
# Tiles (AMX): multiply-adds of an iteration, and for each of them instructions, as above, and tiles that are loaded.
TILES = {
    "spmm/bf16/16x16": (4, 58, 1.25), "spmm_transposed/bf16/16x16": (4, 58, 1.25), "sddmm/bf16/16x16": (16, 4.1, 1.25),
    "spmm/bf16/32x32": (4, 31, 1), "spmm_transposed/bf16/32x32": (4, 31.5, 1), "sddmm/bf16/32x32": (16, 3.6, 1),
    "spmm/bf16/64x64": (8, 22, 1.25),
}

for cpu, cases in MOST.items():
    for name, (most, loads) in cases.items():
        op, kind, block = name.split("/")
        case = kernels.Case(op, kind, block, 0.1, "random", 768, 3072, 1024)
        inner, outer = machine_code.measure(case, cpu)
        assert not inner.spills and not outer.spills, f"{name} for {cpu}: expected no spills, but got {inner}, {outer}"
        assert inner.instructions <= most * inner.madds, f"{name} for {cpu}: expected {most} instructions, but got {inner}"
        assert inner.loads <= loads * inner.madds, f"{name} for {cpu}: expected {loads} loads, but got {inner}"
for name, (madds, most, tiles) in TILES.items():
    op, kind, block = name.split("/")
    case = kernels.Case(op, kind, block, 0.1, "random", 768, 3072, 1024)
    inner, outer = machine_code.measure(case, "sapphirerapids", ["--bf16-tiles=amx"])
    assert not inner.spills and not outer.spills, f"{name} by tiles: expected no spills, but got {inner}, {outer}"
    assert inner.madds == madds and inner.tiles == tiles * madds, f"{name} by tiles: expected {madds}, {tiles}, but got {inner}"
    assert inner.instructions <= most * madds, f"{name} by tiles: expected {most} instructions, but got {inner}"


# What is counted as what.
assert split("0x40(%rsp,%rax,4), %ymm0") == ("0x40(%rsp,%rax,4)", "%ymm0")


def one(name, operands):
    return Instruction(0, name, split(operands))


reload, spill, strip = one("vmovups", "0x40(%rsp), %ymm0"), one("vmovups", "%ymm0, 0x40(%rsp)"), one(
    "vmovaps", "%ymm1, (%rsp,%rax)")
assert reload.is_spill and not reload.is_store and spill.is_spill and spill.is_store
assert not strip.is_spill and strip.is_store
assert one("vfmadd231ps", "(%rax), %ymm1, %ymm2").is_multiply_add and not one("vfmadd231ss", "%xmm0, %xmm1, %xmm2").is_multiply_add
assert one("vdpbf16ps", "0x10(%rax){1to16}, %zmm1, %zmm2").memory and not one("prefetcht0", "(%rax)").memory
tile, kept, read = one("tileloadd", "(%rsp,%rax), %tmm0"), one("tilestored", "%tmm0, 0x40(%rsp,%rax)"), one("tdpbf16ps", "%tmm2, %tmm1, %tmm0")
assert tile.is_tile and tile.loads and kept.is_tile and kept.is_store and read.is_multiply_add and not read.is_tile
counts = machine_code.count([tile, kept, read, spill, strip], [tile, kept, read, spill, strip, reload], inner=True)
assert (counts.madds, counts.tiles, counts.stores, counts.spills) == (1, 1, 3, 2)
assert not machine_code.count([spill, tile], [spill, tile]).spills and not machine_code.count([kept, reload], [kept, reload]).spills
loop = [one("vfmadd231ps", "%ymm0, %ymm1, %ymm2"), one("jne", "0x10 <f+0x10>")]
code = [Instruction(0x10 + 4 * i, *instruction[1:]) for i, instruction in enumerate(loop)]
assert machine_code.find_loops(code) == [(0, 2)]


def one_arm(name, operands):
    return ArmInstruction(0, name, split(operands))


assert split("{ v0.4s, v1.4s }, [x1, x2]") == ("{ v0.4s, v1.4s }", "[x1, x2]")
pair, spill, store = one_arm("ldp", "q0, q1, [x1, #0x20]"), one_arm("stur", "q0, [x29, #-0x20]"), one_arm("str", "s0, [x1], #0x4")
assert pair.loads == 2 and not pair.stores and not pair.is_spill and spill.is_spill and spill.stores == 1 and store.is_store
assert one_arm("ldr", "q3, [sp, #0x10]").is_spill and not one_arm("ldr", "x3, [sp, #0x10]").is_spill
assert one_arm("fmla", "v0.4s, v1.4s, v2.s[0]").is_multiply_add and not one_arm("fmadd", "s0, s1, s2, s3").is_multiply_add
assert one_arm("bfdot", "v0.4s, v1.8h, v2.2h[1]").is_multiply_add and not one_arm("prfm", "pldl1keep, [x1]").memory
assert one_arm("tbnz", "w0, #0x3, 0x40").target == one_arm("b.ne", "0x40").target == 0x40 and one_arm("bl", "0x40").target is None
