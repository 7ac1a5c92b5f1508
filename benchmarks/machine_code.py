#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the machine code of products with a block-sparse matrix does for a multiply-add.

    benchmarks/machine_code.py [--filter REGEX] [--target-cpu NAME]... [--options "..."]
    benchmarks/machine_code.py --target-cpu neoverse-v2 --options=--target-triple=aarch64-linux-gnu

compiles the products of benchmarks/kernels.py for each processor, which this machine need not be, and
counts instructions in the innermost loop that has most of a product's multiply-adds, and in the loop around it:

    madds    vector multiply-adds of an iteration of the innermost loop
    all      instructions of an iteration for one of them
    loads    reads of memory for one of them, those inside of other instructions, too; of a pair of registers two
    stores   writes of memory for one of them
    tiles    tiles that come from memory for one of them, where these are of tiles (AMX)
    spills   vector registers that go to or come from fixed places of the stack, in an iteration, and tiles
             that go to memory in the innermost loop
    outer    the same in the loop around it, without the innermost loop: multiply-adds, instructions, spills

docs/kernels.md says what a processor does of each at once.
"""

import argparse
import re
import subprocess
import tempfile
import typing

import harness
import kernels

INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*?)\s*(?:#\s.*|//.*|<.*)?$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
MULTIPLY_ADD = re.compile(r"v(fmadd|fnmadd|fmsub)\d+p[sd]|vdpbf16ps|tdpbf16ps")
# Registers that hold the stack's place; the frame's only in a function that sets it up.
STACK = re.compile(r"^-?(?:0x[0-9a-f]+)?\(%r[sb]p\)$")


class Instruction(typing.NamedTuple):
    address: int
    name: str
    operands: tuple

    @property
    def memory(self):
        """The memory operand, if the instruction reads or writes one."""
        if self.name.startswith(("lea", "prefetch", "nop", "j", "call")):
            return None
        return next((operand for operand in self.operands if "(" in operand), None)

    @property
    def is_store(self):
        """AT&T's order: what is written comes last."""
        return bool(self.memory and self.operands[-1].startswith(self.memory)
                    and not self.name.startswith(("cmp", "vcmp", "test", "vucom", "ucom", "bt")))

    @property
    def loads(self):
        return int(bool(self.memory) and not self.is_store)

    @property
    def stores(self):
        return int(self.is_store)

    @property
    def target(self):
        """The address that a branch goes to, if the instruction is one."""
        target = self.name.startswith("j") and self.operands and re.match(r"0x([0-9a-f]+)", self.operands[0])
        return int(target[1], 16) if target else None

    @property
    def is_multiply_add(self):
        return bool(MULTIPLY_ADD.match(self.name)) and not self.name.endswith(("ss", "sd"))

    @property
    def is_spill(self):
        vector = any(re.search(r"%[xyz]mm", operand) for operand in self.operands)
        return bool(vector and self.memory and STACK.match(self.memory))

    @property
    def is_tile(self):
        """Whether a tile goes to or comes from memory."""
        return self.name.startswith(("tileload", "tilestore"))


class ArmInstruction(Instruction):
    """An instruction of AArch64."""

    @property
    def memory(self):
        if not self.name.startswith(("ld", "st")):
            return None
        return next((operand for operand in self.operands if operand.startswith("[")), None)

    @property
    def is_store(self):
        return bool(self.memory) and self.name.startswith("st")

    @property
    def registers(self):
        """How many registers go to or come from memory."""
        return 2 if self.name.startswith(("ldp", "ldnp", "stp", "stnp")) else 1

    @property
    def loads(self):
        return super().loads * self.registers

    @property
    def stores(self):
        return super().stores * self.registers

    @property
    def target(self):
        is_branch = re.fullmatch(r"b(\.\w+)?|cbn?z|tbn?z", self.name)
        return int(self.operands[-1], 16) if is_branch else None

    @property
    def is_multiply_add(self):
        return self.name in ("fmla", "fmls", "bfdot", "bfmmla") and self.operands[0].startswith("v")

    @property
    def is_spill(self):
        return bool(self.memory) and self.operands[0][0] in "qdv" and bool(re.match(r"\[(sp|x29)\b", self.memory))


class Counts(typing.NamedTuple):
    madds: int
    instructions: int
    loads: int
    stores: int
    tiles: int
    spills: int


def split(operands):
    """Operands of an instruction: commas within brackets divide none."""
    return tuple(part.strip() for part in re.split(r",(?![^(]*\)|[^\[]*\]|[^{]*})", operands) if part.strip())


def disassemble(path):
    """The instructions of each function of an object file."""
    command = [harness.find_tool("llvm-objdump"), "-d", "--no-show-raw-insn", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kind = Instruction
    if "file format elf64-littleaarch64" in text:
        kind = ArmInstruction
        text = subprocess.run([*command, "--mattr=+v8.6a,+fullfp16,+sha3"], capture_output=True, text=True, check=True).stdout
    functions, current = {}, []
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            current = functions.setdefault(match[1], [])
        elif match := INSTRUCTION.match(line):
            current.append(kind(int(match[1], 16), match[2], split(match[3])))
    return functions


def find_loops(code):
    """The ranges of instructions of `code` that a branch backwards ends, the innermost first."""
    number = {instruction.address: i for i, instruction in enumerate(code)}
    ranges = set()
    for i, instruction in enumerate(code):
        first = number.get(instruction.target)
        if first is not None and first <= i:
            ranges.add((first, i + 1))
    return sorted(ranges, key=lambda r: r[1] - r[0])


def count(code, function, inner=False):
    """The counts of `code`, a part of `function`. What only tiles read from the stack, or write there, is no spill."""
    places = [{i.memory for i in function if i.is_spill and i.is_store == is_store} for is_store in (False, True)]
    spilled = places[0] & places[1]
    return Counts(
        madds=sum(instruction.is_multiply_add for instruction in code),
        instructions=len(code),
        loads=sum(i.loads for i in code),
        stores=sum(i.stores for i in code),
        tiles=sum(i.is_tile and not i.is_store for i in code),
        spills=sum(i.is_spill and i.memory in spilled or inner and i.is_tile and i.is_store for i in code))


def find_main_loop(functions):
    """The counts of the innermost loop with the most multiply-adds, and those of what else the loop around it has."""
    best = None
    for code in functions.values():
        loops = find_loops(code)
        for first, end in loops:
            inside = [(a, b) for a, b in loops if first <= a and b <= end and (a, b) != (first, end)]
            counts = count(code[first:end], code, inner=True)
            # Of two loops with tiles, the shorter one is for what is left of blocks.
            size = counts.madds, counts.tiles and counts.instructions
            if inside or not counts.madds or (best and (best[0].madds, best[0].tiles and best[0].instructions) >= size):
                continue
            around = next(((a, b) for a, b in loops if a <= first and end <= b and (a, b) != (first, end)), None)
            rest = count(code[around[0]:first] + code[end:around[1]], code) if around else Counts(0, 0, 0, 0, 0, 0)
            best = counts, rest
    return best


def measure(case, cpu, options=()):
    """The counts of the kernel of `case` for `cpu`: those of its innermost loop, and of the loop around it."""
    br, bc = (int(extent) for extent in case.block.split("x"))
    blocks = max(1, round(case.density * (case.rows // br) * (case.cols // bc)))
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        subprocess.run([harness.find_tool("sparse-compile"), "-", "--emit=obj", f"--target-cpu={cpu}", *options, "-o", file.name],
                       input=kernels.step_source(case, blocks), text=True, check=True)
        found = find_main_loop(disassemble(file.name))
    if not found:
        raise SystemExit(f"error: expected a loop with multiply-adds in {case} for {cpu}, but got none")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="^(spmm|spmm_transposed|sddmm)/f32/[0-9]+x[0-9]+/0.1/random/768/3072/1024",
                        metavar="REGEX", help="the cases, by their names in benchmarks/kernels.py")
    parser.add_argument("--target-cpu", action="append", metavar="NAME",
                        help="a processor as LLVM names it (default: haswell, znver5 and sapphirerapids)")
    parser.add_argument("--options", default="", metavar="OPTIONS", help="further options of sparse-compile")
    options = parser.parse_args()
    cases = [case for case in kernels.all_cases() if re.search(options.filter, str(case))]
    if not cases:
        parser.error(f"expected --filter to match a case (see benchmarks/kernels.py --list), but got '{options.filter}'")
    for cpu in options.target_cpu or ["haswell", "znver5", "sapphirerapids"]:
        print(f"\n{cpu}")
        print(f"  {'product':34} {'madds':>6} {'all':>6} {'loads':>6} {'stores':>6} {'tiles':>6} {'spills':>6}   outer: {'madds':>5} {'all':>5} {'spills':>6}")
        for case in cases:
            inner, outer = measure(case, cpu, options.options.split())
            per = [value / inner.madds for value in (inner.instructions, inner.loads, inner.stores, inner.tiles)]
            print(f"  {'/'.join(map(str, case[:4])):34} {inner.madds:6} {per[0]:6.2f} {per[1]:6.2f} {per[2]:6.2f} {per[3]:6.2f} {inner.spills:6}"
                  f"          {outer.madds:5} {outer.instructions:5} {outer.spills:6}", flush=True)


if __name__ == "__main__":
    main()
