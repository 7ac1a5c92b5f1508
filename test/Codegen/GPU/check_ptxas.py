# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assembles the kernels of a step with NVIDIA's ptxas, and checks what a chip has to give for them.

    check_ptxas.py <ptxas> <chip>,... <step.mlir> [<argument of sparse-compile>]...
    check_ptxas.py <ptxas> <chip>,... <kernels.ptx>

No kernel may spill registers, or need more of them or of shared memory, static and dynamic, than a
block may have, and of none may ptxas say that it has products of warpgroups wait for each other (C75xx).
Of a step the host may have nothing but launches and what their arguments are made of. What each chip's kernels need most is printed. With NVDISASM in the environment, the
path of NVIDIA's disassembler, no loop with tensor cores or tensor copies may have a memory barrier of the whole GPU or make
L1 invalid, and machine instructions are counted, beside those of PTX, and of such loops for each tensor instruction.
"""

import math
import os
import re
import subprocess
import sys
import tempfile

import gpu

# KiB of shared memory a block, after opting in: CUDA C++ Programming Guide, technical specifications.
SHARED = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_90a": 227, "sm_100a": 227}
REGISTERS = 65536  # a block
# What a step leaves to the host: launches, with constants, views of the arena, and tensor maps; scores in steps that have some.
HOST = re.compile(r"\s*(gpu\.launch_func .*|return|}|scf\.if %arg\d+ {|%\w+ = (arith\.constant|memref\.(view|cast|reinterpret_cast)|"
                  r"nvgpu\.tma\.create\.descriptor|builtin\.unrealized_conversion_cast) .*)?$")


def run(*command):
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"error: expected '{' '.join(command)}' to succeed, but got: {done.stderr.strip()}")
    return done.stdout, done.stderr


def read_bodies(ptx):
    """The text of each entry by its name."""
    parts = re.split(r"\.entry\s+(\w+)", ptx)
    return dict(zip(parts[1::2], parts[2::2]))


def count_ptx(body):
    lines = (line.strip() for line in body[body.index("{"):].splitlines())
    return sum(line.endswith(";") and not line.startswith((".", "//")) for line in lines)


def read_machine(cubin):
    """Of each kernel its machine instructions, without the padding behind its last one: opcodes, and where control goes from each."""
    sass, _ = run(os.environ["NVDISASM"], "-c", cubin)
    kernels = {}
    for name, text in re.findall(r"\.section\s+\.text\.(\w+),(.*?)(?=\n\t\.section\t|\Z)", sass, re.S):
        code, labels = [], {}
        for label, guard, opcode, operands in re.findall(
                r"^(?:(\.L\w+):|\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*))$", text, re.M):
            if label:
                labels[label] = len(code)
            else:
                code.append((guard, opcode, operands.strip()))
        next_to = []
        for at, (guard, opcode, operands) in enumerate(code):
            target = re.search(r"`\((\.L\w+)\)", operands) if opcode.startswith("BRA") else None
            # A condition may be an operand, too.
            ends = not guard and (opcode in ("EXIT", "RET") or (opcode == "BRA" and operands.startswith("`")))
            next_to.append(([] if ends or at + 1 == len(code) else [at + 1]) + ([labels[target[1]]] if target else []))
        opcodes = [opcode for _, opcode, _ in code]
        while opcodes and opcodes[-1] in ("NOP", "BRA"):
            opcodes.pop()
        kernels[name] = opcodes, next_to
    return kernels


def find_loops(next_to):
    """The outermost loops: instructions that come back to each other (Tarjan's strongly connected components)."""
    number, low, open_, loops = {}, {}, [], []
    for root in range(len(next_to)):
        work = [] if root in number else [(root, iter(next_to[root]))]
        if work:
            number[root] = low[root] = len(number)
            open_.append(root)
        while work:
            at, rest = work[-1]
            for to in rest:
                if to not in number:
                    number[to] = low[to] = len(number)
                    open_.append(to)
                    work.append((to, iter(next_to[to])))
                    break
                if to in low:
                    low[at] = min(low[at], low[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == number[at]:
                    begin = open_.index(at)
                    loop, open_ = open_[begin:], open_[:begin]
                    for member in loop:
                        del low[member]  # what is left to come back to
                    if len(loop) > 1 or at in next_to[at]:
                        loops.append(loop)
    return loops


def check_mainloops(name, opcodes, next_to):
    """What is wrong in the loops of a kernel with tensor cores or tensor copies, and their instructions, all and of tensor cores."""
    wrong, count, tensor = [], 0, 0
    for loop in find_loops(next_to):
        inside = [opcodes[at] for at in loop if at < len(opcodes)]
        products = sum(opcode.startswith(("HMMA", "HGMMA")) for opcode in inside)
        if products:
            count, tensor = count + len(inside), tensor + products
        if products or any(opcode.startswith("UTMALDG") for opcode in inside):
            wrong += [f"{name}: expected no barrier of all memory in a mainloop, but got {opcode}"
                      for opcode in sorted(set(inside)) if re.match(r"MEMBAR\..*\b(GPU|SYS|VC)|CCTL\.IVALL", opcode)]
    return wrong, count, tensor


def main():
    ptxas, chips, source, *arguments = sys.argv[1:]
    wrong = []
    for chip in chips.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path, cubin, dynamic = source, f"{folder}/kernels.cubin", {}
            if not source.endswith(".ptx"):
                module, path = f"{folder}/module.mlir", f"{folder}/kernels.ptx"
                run("sparse-compile", source, *arguments, f"--target={chip}", "-o", module)
                with open(module) as file:
                    text = file.read()
                host = gpu.Host(text)
                wrong += [f"{chip}: expected launches alone on the host, but got '{line.strip()}'"
                          for line in host.body[1:] + host.plans[1:] if not HOST.match(line)]
                with open(path, "w") as file:
                    file.write(host.ptx)
                for name, size in re.findall(r"@kernels::@(\w+).*dynamic_shared_memory_size (%\w+)", text):
                    value = re.search(rf"{size} = arith\.constant (\d+)", text)
                    dynamic[name] = max(dynamic.get(name, 0), int(value[1]))
            _, said = run(ptxas, f"-arch={chip}", "-v", path, "-o", cubin)
            wrong += [f"{chip}: expected products that ptxas lets run beside each other, but got '{line}'"
                      for line in re.findall(r"\(C75\d\d\).*", said)]
            bodies = read_bodies(open(path).read())
            found = re.findall(r"Compiling entry function '(\w+)' for '(\w+)'\n.*\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
                               r"(\d+) bytes spill loads\n.*?Used (\d+) registers(.*)", said)
            names = {name for name, *_ in found}
            if names != bodies.keys() or not names:
                sys.exit(f"error: expected ptxas to say what {len(bodies)} kernels need, but got it of {len(names)}")
            most = {"registers": 0, "bytes of shared memory": 0}
            for name, target, frame, stores, loads, registers, rest in found:
                threads = re.search(r"\.(?:max|req)ntid ([\d, ]+)", bodies[name])
                block = math.prod(map(int, threads[1].split(","))) if threads else 1024  # as many as may be
                static = re.search(r"(\d+) bytes smem", rest)
                shared = (int(static[1]) if static else 0) + dynamic.get(name, 0)
                if int(frame) or int(stores) or int(loads):
                    wrong.append(f"{name} for {target}: expected no memory for registers, but got {frame} bytes, "
                                 f"{stores} stored, {loads} loaded")
                if int(registers) * block > REGISTERS:
                    wrong.append(f"{name} for {target}: expected {REGISTERS} registers, but got {registers} x {block}")
                if shared > SHARED[chip] * 1024:
                    wrong.append(f"{name} for {target}: expected {SHARED[chip]} KiB of shared memory, but got {shared} bytes")
                most["registers"] = max(most["registers"], int(registers))
                most["bytes of shared memory"] = max(most["bytes of shared memory"], shared)
            needs = ", ".join(f"{number} {what}" for what, number in most.items())
            machine = read_machine(cubin) if os.environ.get("NVDISASM") else {}
            mainloops = {name: check_mainloops(f"{name} for {chip}", *kernel) for name, kernel in machine.items()}
            wrong += [line for lines, _, _ in mainloops.values() for line in lines]
            print(f"{chip}: {len(found)} kernels, 0 spills, at most {needs}" if not wrong else "\n".join(wrong))
            if machine:
                ptx = {name: count_ptx(body) for name, body in bodies.items()}
                print(f"{chip}: {sum(len(opcodes) for opcodes, _ in machine.values())} machine instructions of {sum(ptx.values())} of PTX")
                ratios = {name: count / tensor for name, (_, count, tensor) in mainloops.items() if tensor}
                if ratios:
                    most = max(ratios, key=ratios.get)
                    print(f"{chip}: {min(ratios.values()):.1f} to {ratios[most]:.1f} ({most}) machine instructions of mainloops "
                          "for a tensor instruction")
    sys.exit(bool(wrong))


main()
