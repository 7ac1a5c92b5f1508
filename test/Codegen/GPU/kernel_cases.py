# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes a kernel of a step out of it, with data to run it alone: for scripts/mutate-ptx.

    kernel_cases.py <name> <number> <pattern in the kernel's text> <step.mlir> [<argument of sparse-compile>]...

writes the first kernel whose text the pattern is found in to `name.ptx`, and the arguments of
ptx-run for its first launch, in so many steps on random data and patterns (CASES, in turn),
to `name-0.args` and so on, in the current folder.
"""

import os
import re
import subprocess
import sys
import tempfile

import gpu
import numpy as np
import predict_kernels


def part(choose):
    """What `choose` leaves of random patterns."""
    def place(shape, slots, random):
        return np.where(choose(shape), predict_kernels.random_slots(shape, slots, random), -1)
    return place


def end(shape):
    """The last rows and columns: groups of lines before them have no block."""
    mask = np.zeros(shape, bool)
    mask[shape[0] * 3 // 4:, shape[1] * 4 // 5:] = True
    return mask


def begin(shape):
    return np.logical_not(end(shape)) & (np.add.outer(np.arange(shape[0]), np.arange(shape[1])) < sum(shape) // 3)


def last(shape):
    """The last row that has a block in each column."""
    return np.arange(shape[0])[:, None] >= shape[0] - 2


def uneven(shape):
    """Rows without blocks, some with a few, and whole ones, in no order."""
    return np.arange(shape[1]) * 7 < np.arange(shape[0])[:, None] * 5 % 8 * shape[1]


def columns(shape, slots, random):
    """Every block of the first columns, as far as slots go: chunks that lack none."""
    count = min(slots // shape[0], shape[1])
    slot = np.full(shape, -1)
    slot[:, :count] = random.permutation(slots)[:shape[0] * count].reshape(shape[0], count)
    return slot


def rows(shape, slots, random):
    """Every block of the first rows."""
    return columns(shape[::-1], slots, random).T


def first(place):
    """All blocks of `place` in slot 0, for kernels that only read them: whatever loads a block meets it."""
    return lambda *arguments: np.minimum(place(*arguments), 0)


def normal(random, shape, bits, attributes):
    """Floats with a normal distribution; a bf16 is the upper half of an f32."""
    numbers = random.standard_normal(shape).astype(np.float32)
    return (numbers.view(np.uint32) >> (32 - bits)).astype(f"u{bits // 8}")


def low(random, shape, bits, attributes):
    """Values of which the lowest byte alone is not 0, for large other numbers: one byte too many of what is copied counts."""
    if "pattern_number" in attributes:
        return random.integers(1, 256, shape).astype(f"u{bits // 8}")
    return normal(random, shape, bits, attributes) + np.array(100 << (bits - 9), f"u{bits // 8}")


# The last three are for kernels that read blocks, but write none.
CASES = [(place, normal) for place in (predict_kernels.random_slots, part(end), part(begin), part(last), part(uneven), columns, rows,
                                       first(columns), first(rows))] + [(predict_kernels.random_slots, low)]


class CaseHost(gpu.Host):
    """Runs launches up to the one of the kernel, whose arguments it writes."""

    def __init__(self, text, pattern):
        super().__init__(text)
        self.head, kernels = gpu.split_kernels(self.ptx)
        self.name, self.entry = next(kernel for kernel in kernels.items() if re.search(pattern, kernel[1]))
        self.path = None

    def launch(self, path, entry, extents, arguments, values, folder):
        if entry != self.name or not self.path:
            if self.path:
                super().launch(path, entry, extents, arguments, values, folder)
            return
        words = [word for pair in zip(gpu.LAUNCH_OPTIONS, extents, strict=True) for word in pair]
        written = self.written()
        for i, (name, type) in enumerate(arguments):
            if type == "!llvm.ptr":
                words += ["--arg", values[name].write(f"{self.path}-{i}.bin")]
                continue
            bits = gpu.shape_of(type)[1]
            kind = re.match(r"memref<(?:\d+x)*(\w+)", type)[1].replace("i", "s")
            file = f"{self.path}-{i}.bin"
            values[name].tofile(file)
            size = len(values[name]) * 8 // bits
            words += ["--arg", f"out:{kind}:{size}" if i in written and not self.reads(i) else
                      f"{'inout' if i in written else 'in'}:{kind}:@{file}"]
        with open(f"{self.path}.args", "w") as file:
            file.write("\n".join(words) + "\n")
        self.path = None

    def pointers(self, opcode):
        """The parameters that instructions of `opcode` may reach, by the registers that come from them."""
        code = re.findall(r"^\s+(?:@\S+\s+)?([a-z][\w.:]*)\s+(.*?);", self.entry, re.M)
        reach = {}
        for _ in range(8):
            for name, operands in code:
                words = re.findall(r"%\w+|\w+_param_\d+", operands)
                if name.startswith("ld.param"):
                    reach[words[0]] = {int(words[1].rsplit("_", 1)[1])}
                elif re.match(r"(add|cvta|mov|mad|sub|selp)", name) and words:
                    reach[words[0]] = reach.get(words[0], set()).union(*(reach.get(word, set()) for word in words[1:]))
        return set().union(*(reach.get(word, set()) for name, operands in code if re.match(opcode, name)
                             for word in re.findall(r"\[(%\w+)", operands)))

    def written(self):
        return self.pointers(r"(st|red|atom)\.global")

    def reads(self, parameter):
        return parameter in self.pointers(r"ld\.global|cp\.async")


def main():
    name, number, pattern, source, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        module = f"{folder}/module.mlir"
        done = subprocess.run(["sparse-compile", source, *arguments, "-o", module], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        with open(module) as file:
            host = CaseHost(file.read(), pattern)
        with open(f"{name}.ptx", "w") as file:
            file.write(host.head + host.entry)
        given = predict_kernels.read_arguments(host)
        for case in range(int(number)):
            host.path = os.path.abspath(f"{name}-{case}")
            host.run(*predict_kernels.make_buffers(given, np.random.default_rng(case), *CASES[case % len(CASES)]), folder)
            assert host.path is None, f"expected a launch of {host.name}"


main()
