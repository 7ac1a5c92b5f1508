# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs steps that are compiled for a GPU, whose kernels the PTX interpreter executes.

`step.compile` takes it where BSR_COMPILE has --target=gpu. The runtime launches them on a driver whose GPU is the
interpreter; memory that nothing was written to may not be read.
"""

import ctypes
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import step

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from sparse_opt import _runtime as runtime  # noqa: E402

SHARED_OFFSET = 208  # of shared memory, behind a multiple of 1024
if os.environ.get("PTX_RUN_DEVICE") != "1":
    # The runtime then finds this driver under the name that the system's has.
    tools = os.path.dirname(os.path.realpath(shutil.which("sparse-compile")))
    ctypes.CDLL(os.path.join(tools, "..", "lib", "fake-driver", "libcuda.so.1"))

LAUNCH_OPTIONS = "--cluster", "--grid", "--block", "--shared"
WORDS = {"f64": 64, "i64": 64, "f32": 32, "i32": 32, "f16": 16, "bf16": 16, "i8": 8, "i1": 8}


def read_target():
    """The `#bsr.gpu` that BSR_COMPILE asks for, its chip, and whether it has more than sparse-compile has options for."""
    asked = os.environ["BSR_COMPILE"]
    chip = re.search(r"--chip=(\w+)", asked)
    chip = chip[1] if chip else "sm_90a"
    tile = re.search(r"--tile=(\d+)x(\d+)", asked)
    share = re.search(r"--share=(\d+)(?:x(\d+))?", asked)
    sizes = f", tile_outputs = {tile[1]}, tile_tokens = {tile[2]}" if tile else ""
    sizes += f", share_outputs = {share[1]}, share_tokens = {share[2] or 0}" if share else ""
    tf32 = ", tf32 = true" if "--tf32" in asked else ""
    return f'#bsr.gpu<chip = "{chip}"{sizes}{tf32}>', chip, bool(share or (tile and tile[0] != "--tile=0x0"))


def compile(source, arguments):
    """Compiles `source`, a path or MLIR text, for the GPU that BSR_COMPILE asks for."""
    text = open(source).read() if os.path.exists(source) else source
    target, chip, has_sizes = read_target()
    os.environ["FAKE_DRIVER_CHIP"] = chip
    library = os.path.join(tempfile.mkdtemp(), "step.so")
    own = [argument for argument in arguments if argument.startswith(("--mark=", "--score-norm="))]
    targeted = text
    if has_sizes:
        targeted = subprocess.run(["sparse-opt", f"--bsr-set-target=target='{target}'", "-"], input=text, text=True, check=True,
                                  capture_output=True).stdout
    else:
        own += [f"--target={chip}", *(["--tf32"] if "tf32" in target else [])]
    own += ["--cubin=false"]  # an interpreter of PTX has no use for it
    subprocess.run(["sparse-compile", *own, "-o", library, "-"], input=targeted, text=True, check=True)
    return Step(library, text, arguments)


def lower(source, arguments):
    """The module that bsr-to-gpu makes with what of sparse-compile's `arguments` is not of processors."""
    marks = [a.replace("--mark=", "--bsr-mark=", 1) for a in arguments if a.startswith("--mark=")]
    options = [f"target='{read_target()[0]}'"]
    options += [a.removeprefix("--") for a in arguments if a.startswith("--score-norm=")]
    return subprocess.run(["sparse-opt", *marks, "--bsr-to-gpu=" + " ".join(options), source if os.path.exists(source) else "-"],
                          input=None if os.path.exists(source) else source,
                          text=True, check=True, capture_output=True).stdout


def shape_of(text):
    """The shape of `memref<2x3xf32>` and the bits of an element."""
    *extents, kind = re.match(r"memref<([^,>]*)", text)[1].split("x")
    return tuple(map(int, extents)), WORDS[kind]


class TensorMap:
    """What copies of boxes are told of a matrix in a buffer."""

    def __init__(self, buffer, matrix, box, swizzle):
        self.buffer, (self.matrix, self.bits), self.box, self.swizzle = buffer, matrix, box, swizzle

    def write(self, file):
        """The argument of ptx-run, whose buffer is written to `file`."""
        self.buffer.tofile(file)
        matrix, box = ("x".join(map(str, reversed(extents))) for extents in (self.matrix, self.box))
        return f"map:u{self.bits}:{matrix}:{box}:{self.swizzle}:@{file}"


def function(text, name):
    """The lines of the function of a name that matches this pattern, from its arguments on; none if there is none."""
    found = re.search(rf"func\.func (?:public )?@{name}\((.*?)\n  }}\n", text, re.S)
    return found[0].splitlines() if found else []


def split_kernels(ptx):
    """What stands in front of all kernels, and the text of each by its name."""
    head, *kernels = re.split(r"(?m)^(?=\.visible \.entry )", ptx)
    # Declarations of what kernels share stand anywhere.
    shared = "".join(re.findall(r"(?m)^\.extern .*\n", ptx))
    kernels = [re.sub(r"(?m)^\.extern .*\n", "", text) for text in [head, *kernels]]
    return kernels[0] + shared, {re.search(r"\.entry (\w+)", kernel)[1]: kernel for kernel in kernels[1:]}


class Host:
    """The function of a step, and the one of its plans: constants, views of the arena, and launches."""

    def __init__(self, text):
        self.body = function(text, r"\w+")
        self.plans = function(text, re.search(r"@(\w+)", self.body[0])[1] + "_plans")
        self.planned = None  # the arena in which plans are, and the patterns that they are of
        self.arguments = re.findall(r"(%arg\d+): (memref<[^>]*>)", self.body[0])
        binary = re.search(r'assembly = "((?:[^"\\]|\\.)*)"', text)
        self.ptx = re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), binary[1]) if binary else ""

    def run(self, buffers, arena, folder, hasScores=False):
        """Runs the step on flat arrays of bytes, in the order of its arguments; all of it if it `hasScores`."""
        # ptx-run reads a file a launch, and a step has many kernels: each is a file.
        path = os.path.join(folder, "kernels")
        os.makedirs(path, exist_ok=True)
        head, kernels = split_kernels(self.ptx)
        for name, kernel in kernels.items():
            with open(os.path.join(path, name + ".ptx"), "w") as file:
                file.write(head + kernel)
        values = {name: buffer for (name, _), buffer in zip(self.arguments, [*buffers, arena])}
        patterns = [values[name].tobytes() for name in re.findall(r'(%arg\d+): memref<[^>]*> {bsr.kind = "(?:row_|col_|slot)', self.body[0])]
        if not self.planned or self.planned[0] is not arena or self.planned[1] != patterns:
            self.planned = arena, patterns
            self.interpret(self.plans, dict(values), path, folder)
        self.interpret(self.body, values, path, folder, hasScores)

    def count(self):
        """The launches of a step, and those of its plans."""
        return tuple(sum("gpu.launch_func" in line for line in lines) for lines in (self.body, self.plans))

    def interpret(self, lines, values, path, folder, hasScores=False):
        """Does what a function does, whose arguments `values` has."""
        isSkipped = False
        for line in lines[1:]:
            if re.match(r"\s+scf\.if %arg\d+ {$", line):  # what computes scores
                isSkipped = not hasScores
            elif isSkipped:
                isSkipped = line.strip() != "}"
            elif match := re.match(r"\s+(%\w+) = arith\.constant (-?\d+) : (?:index|i32)$", line):
                values[match[1]] = int(match[2])
            elif match := re.match(r"\s+(%\w+) = memref\.view (%\w+)\[(%\w+)\]\[\] : .* to (memref<.*>)", line):
                shape, bits = shape_of(match[4])
                start = values[match[3]]
                values[match[1]] = values[match[2]][start:start + math.prod(shape) * bits // 8]
            elif match := re.match(r"\s+(%\w+) = memref\.reinterpret_cast (%\w+) to offset", line):
                values[match[1]] = values[match[2]]  # the kernel knows offset and strides
            elif match := re.match(r"\s+(%\w+) = memref\.cast (%\w+) : (memref<.*>) to memref<\*", line):
                values[match[1]] = values[match[2]], shape_of(match[3])  # for a tensor map
            elif match := re.match(r"\s+(%\w+) = nvgpu\.tma\.create\.descriptor (%\w+) box.* -> "
                                   r"<tensor = (memref<.*?>), swizzle = swizzle_(\d+)b", line):
                values[match[1]] = TensorMap(*values[match[2]], shape_of(match[3])[0], match[4])
            elif match := re.match(r"\s+(%\w+) = builtin\.unrealized_conversion_cast (%\w+) : .* to !llvm\.ptr", line):
                values[match[1]] = values[match[2]]
            elif match := re.match(
                    r"\s+gpu\.launch_func\s+@kernels::@(\w+)(?: clusters in \((.*?)\))? blocks in \((.*?)\) threads in \((.*?)\)\s+"
                    r"(?:dynamic_shared_memory_size (%\w+)\s+)?args\((.*)\)", line):
                extents = [",".join(str(values[v.strip()]) for v in match[i].split(",")) if match[i] else "1" for i in (2, 3, 4)]
                shared = values[match[5]] if match[5] else 0
                arguments = re.findall(r"(%\w+) : (memref<.*?>+(?=,|$)|!llvm\.ptr|\w+)", match[6])
                self.launch(path, match[1], [*extents, str(shared)], arguments, values, folder)
            elif not re.match(r"\s+(return$|%\w+ = arith\.constant |}$)", line) and line.strip():
                raise ValueError(f"expected launches, but got {line.strip()}")

    def command(self, path, entry, extents, arguments, values, folder, kind="inout"):
        """What runs a kernel of folder `path`, whose buffers are of this kind, in the interpreter."""
        # Variables of shared memory are multiples of 16, and more is theirs to ask for.
        command = ["ptx-run", os.path.join(path, entry + ".ptx"), "--entry", entry]
        if os.environ.get("PTX_RUN_DEVICE") != "1":
            command += ["--shared-offset", str(SHARED_OFFSET)]
        for option, extent in zip(LAUNCH_OPTIONS, extents, strict=True):
            command += [option, extent]
        for i, (name, type) in enumerate(arguments):
            file = os.path.join(folder, f"argument-{i}")
            if type == "index":
                command += ["--arg", f"u32:{values[name]}"]
            elif type == "!llvm.ptr":
                command += ["--arg", values[name].write(file)]
            else:
                values[name].tofile(file)
                command += ["--arg", f"{kind}:b{shape_of(type)[1]}:@{file}"]
        return command

    def launch(self, path, entry, extents, arguments, values, folder):
        command = [*self.command(path, entry, extents, arguments, values, folder), "--write", folder]
        done = subprocess.run(command, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        arguments = [(i, name) for i, (name, type) in enumerate(arguments) if type.startswith("memref")]
        before = {name: values[name].copy() for _, name in arguments}
        for i, name in arguments:
            after = np.fromfile(os.path.join(folder, f"argument-{i}"), np.uint8)
            # One buffer may be several arguments, in place: what was written counts.
            changed = after != before[name]
            values[name][changed] = after[changed]


class Step(step.Step):
    """A step that the runtime launches on a GPU: the PTX interpreter behind a driver, or, where PTX_RUN_DEVICE is 1, one of
    this machine. `source` and `arguments` are what it was compiled of."""

    def __init__(self, library, source, arguments):
        super().__init__(library)
        self.path, self.source, self.arguments = library, source, arguments
        text = ctypes.addressof(ctypes.c_char.in_dll(self.library, "bsr_step_ptx"))
        self.ptx = ctypes.string_at(text).decode()
        self.launches = self.manifest["launches"]

    def bind(self, arrays, patterns={}, orders={}, entry="bsr_step_run"):
        buffers = self.make_buffers(arrays, patterns, orders)[0]
        compiled = runtime.Step(self.path)
        session = runtime.Session(compiled, "cuda", 0)
        described = list(zip(compiled.buffers, buffers, strict=True))
        for pattern in compiled.patterns:
            if not pattern.is_static:
                rows, cols, slots = (next(array for buffer, array in described if (buffer.kind, buffer.pattern) == (kind, pattern.index))
                                     for kind in ("row_ptr", "col_idx", "slot"))
                session.set_blocks(pattern, rows, cols[:rows[-1]], slots[:rows[-1]])
        for buffer, array in described:
            if buffer.kind not in (*step.VIEWS, "scores"):
                session.write(buffer, array)

        def run_once():
            session.run_scores() if entry == "bsr_step_run_scores" else session.run()
            for buffer, array in described:
                if buffer.carried or buffer.kind == "output" or (buffer.kind == "scores" and entry == "bsr_step_run_scores"):
                    session.read(buffer, array)
            return 0

        return buffers, run_once

    def interpret(self, host=Host):
        """The same step, whose launches are given to the interpreter one by one by a `host`."""
        return InterpretedStep(self, host)


class InterpretedStep(step.Step):
    """A step whose launches are given to the interpreter one by one."""

    def __init__(self, compiled, host):
        super().__init__(compiled.path)
        self.host = host(lower(compiled.source, compiled.arguments))
        # Where the scores of a weight are in the arena.
        self.scores = {name: int(offset) for name, offset in
                       re.findall(r'name = "([^"]*)", offset = (\d+)', self.host.body[0])}

    def bind(self, arrays, patterns={}, orders={}, entry="bsr_step_run"):
        buffers, _ = self.make_buffers(arrays, patterns, orders)
        arena = np.full(shape_of(self.host.arguments[-1][1])[0], 0xFF, np.uint8)

        def run_once():
            with tempfile.TemporaryDirectory() as folder:
                described = list(zip(self.manifest["buffers"], buffers))
                self.host.run([b.reshape(-1).view(np.uint8) for d, b in described if d["kind"] != "scores"], arena, folder,
                              hasScores=entry == "bsr_step_run_scores")
                for buffer, scores in described:
                    if buffer["kind"] == "scores":
                        start = self.scores[buffer["name"]]
                        scores[...] = arena[start:start + scores.nbytes].view(np.float32).reshape(scores.shape)
            return 0

        return buffers, run_once
