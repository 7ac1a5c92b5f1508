# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assembles the kernels of a step with NVIDIA's ptxas, and checks what a chip has to give for them.

    check_ptxas.py <ptxas> <chip>,... <step.mlir> [<argument of sparse-compile>]...
    check_ptxas.py <ptxas> <chip>,... <kernels.ptx>

No kernel may spill registers, or need more of them or of shared memory, static and dynamic, than a
block may have. Of a step the host may have nothing but launches and what their arguments are made of. What each chip's kernels need most is printed. With NVDISASM in the environment, the
path of NVIDIA's disassembler, their machine instructions are counted beside those of PTX.
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


def count_machine(cubin):
    """Machine instructions of each kernel, without the padding behind its last one."""
    sass, _ = run(os.environ["NVDISASM"], "-c", cubin)
    counts = {}
    for name, text in re.findall(r"\.section\s+\.text\.(\w+),(.*?)(?=\n\t\.section\t|\Z)", sass, re.S):
        opcodes = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", text, re.M)
        while opcodes and opcodes[-1] in ("NOP", "BRA"):
            opcodes.pop()
        counts[name] = len(opcodes)
    return counts


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
            print(f"{chip}: {len(found)} kernels, 0 spills, at most {needs}" if not wrong else "\n".join(wrong))
            if os.environ.get("NVDISASM"):
                machine = count_machine(cubin)
                ptx = {name: count_ptx(body) for name, body in bodies.items()}
                print(f"{chip}: {sum(machine.values())} machine instructions of {sum(ptx.values())} of PTX")
    sys.exit(bool(wrong))


main()
