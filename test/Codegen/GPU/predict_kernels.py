# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what the model counts in kernels with what the PTX interpreter counts when it runs them.

    predict_kernels.py <tolerance> <least kernels> <step.mlir> [<argument of sparse-compile>]...

The model runs some thread blocks, this all of them, on other random patterns; integers of other data are the model's, and all else is zero but
what follows from these. Warp instructions and bytes of first-level memory (whole sectors, and wavefronts of shared memory) of each kernel may
differ by the tolerance, 0.1 for 10 %.
"""

import os
import re
import subprocess
import sys
import tempfile

import gpu
import numpy as np


def read_report(text):
    """The rows of the table of --print-report, by the name of the kernel."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("predicted for"))
    rows = {}
    for line in lines[start + 2:]:
        if line.startswith("an update of patterns"):
            break
        if line.startswith(("total", "plans of patterns")):
            continue
        if len(line.split()) < 16:
            break
        name, launches, _, _, *numbers = line.split()
        instructions, l1 = float(numbers[8]), float(numbers[9]) * 1024
        rows[name] = {"launches": int(launches), "instructions": instructions, "bytes": l1}
    return rows


class CountingHost(gpu.Host):
    """Counts what each kernel does in its first launch."""

    def __init__(self, text):
        super().__init__(text)
        self.counts = {}
        self.conflicts = {}  # wavefronts of shared memory that kernels on tensor cores would not need, and all
        self.sums = set()  # those that add parts of groups that are cut, which depends on the pattern

    def launch(self, path, entry, extents, arguments, values, folder):
        # What makes the plan of a pattern runs as often as it is launched, for those that read it.
        if all(re.match(r"memref<[0-9x]*i32", type) for _, type in arguments):
            super().launch(path, entry, extents, arguments, values, folder)
        if entry in self.counts:
            return
        if extents[-1] == "0" and any(re.match(r"memref<\d+x\d+x\d+x256x\d+xf32", type) for _, type in arguments):
            self.sums.add(entry)
        command = self.command(path, entry, extents, arguments, values, folder, kind="in") + ["--counts"]
        done = subprocess.run(command, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        found = dict(re.findall(r"^([\w .]+): (\d+)$", done.stdout, re.M))
        with open(os.path.join(path, entry + ".ptx")) as file:
            if "mma" in file.read():
                fronts = int(found.get("shared wavefronts", 0))
                self.conflicts[entry] = fronts - int(found.get("shared wavefronts without conflicts", 0)), fronts
        self.counts[entry] = {
            "instructions": int(found["warp instructions"]),
            "bytes": 32 * (int(found.get("global sectors", 0)) - int(found.get("global sectors past L1", 0)))
                     + 128 * int(found.get("shared wavefronts", 0))
                     + int(found.get("shared bytes of bulk copies", 0)) + int(found.get("shared bytes of wgmma", 0)),
        }


def random_slots(shape, slots, random):
    """The slot of each block of a random pattern that fills all slots, or -1."""
    slot = np.full(shape, -1)
    slot.reshape(-1)[random.permutation(slot.size)[:slots]] = random.permutation(slots)
    return slot


def index_arrays(types, random, place):
    """The six arrays of a pattern of these sizes, whose slots `place` gives; other slots have no block."""
    slots = types["col_idx"]
    slot = place((types["row_ptr"] - 1, types["col_ptr"] - 1), slots, random)
    count = (slot >= 0).sum()
    arrays = {}
    for pointers, others, places, of in (("row_ptr", "col_idx", "slot", slot), ("col_ptr", "row_idx", "slot_t", slot.T)):
        arrays[pointers] = np.concatenate([[0], np.cumsum((of >= 0).sum(1))])
        arrays[others], arrays[places] = np.zeros(slots), np.full(slots, -1)
        arrays[others][:count] = np.nonzero(of >= 0)[1]
        arrays[places][:count] = of[of >= 0]
    return {kind: array.astype(np.int32) for kind, array in arrays.items()}


def read_arguments(host):
    """The arguments of the step: their names, types, and what they are of a pattern."""
    given = [(f"%arg{number}", type, dict(re.findall(r'bsr\.(kind|pattern_number) = "?(\w+)', attributes)))
             for number, type, attributes in re.findall(r"%arg(\d+): (memref<[^>]*>)(?: \{(.*?)\})?(?=, %|\))", host.body[0])]
    assert [name for name, _, _ in given] == [name for name, _ in host.arguments]
    return given


def make_buffers(given, random, place=random_slots, make_numbers=None):
    """The buffers of these arguments, as bytes, and the arena: random patterns, the integers of the model, and what `make_numbers` gives of floats, or zeros."""
    sizes = {}
    for _, type, attributes in given:
        if len(attributes) == 2:
            sizes.setdefault(attributes["pattern_number"], {})[attributes["kind"]] = int(np.prod(gpu.shape_of(type)[0]))
    patterns = {number: index_arrays(types, random, place) for number, types in sizes.items()}
    buffers = []
    for _, type, attributes in given:
        shape, bits = gpu.shape_of(type)
        if len(attributes) == 2:
            array = patterns[attributes["pattern_number"]][attributes["kind"]]
        elif make_numbers and re.search(r"[x<]b?f(16|32)", type):
            array = make_numbers(random, shape, bits, attributes)
        elif re.search(r"[x<]i32", type):
            array = (np.arange(np.prod(shape)) * 37 % 64).astype(np.int32)
        else:
            array = np.zeros(int(np.prod(shape)) * bits // 8, np.uint8)
        buffers.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return buffers[:-1], buffers[-1]


def main():
    tolerance, least, source, *arguments = sys.argv[1:]
    os.environ["PTX_RUN_DEVICE"] = "0"  # a GPU counts nothing
    with tempfile.TemporaryDirectory() as folder:
        module = f"{folder}/module.mlir"
        done = subprocess.run(["sparse-compile", source, *arguments, "-o", module, "--print-report"], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        rows = read_report(done.stderr)
        with open(module) as file:
            host = CountingHost(file.read())
        host.run(*make_buffers(read_arguments(host), np.random.default_rng(0)), folder)

    assert rows.keys() == host.counts.keys(), rows.keys() ^ host.counts.keys()
    assert sum(row["launches"] for row in rows.values()) == sum(host.count())
    assert len(rows) >= int(least), len(rows)
    wrong, worst, exact = [], 0.0, 0
    for name, counted in host.counts.items():
        for what, number in counted.items():
            predicted = rows[name][what]
            error = (predicted - number) / max(number, 1)
            exact += abs(error) < 1e-3
            if name in host.sums:
                continue
            worst = max(worst, abs(error))
            if abs(error) > float(tolerance):
                wrong.append((name, what, predicted, number))
    for name, what, predicted, number in wrong:
        print(f"{name}: predicted {predicted:.0f} {what}, but counted {number}")
    print(f"{len(rows)} kernels, {exact} of {2 * len(rows)} counts within 0.1 %, differences of at most {worst:.2%}")
    for name, (extra, fronts) in host.conflicts.items():
        if extra:
            print(f"{name}: {extra} of {fronts} wavefronts of shared memory by bank conflicts")
    print(f"{sum(not extra for extra, _ in host.conflicts.values())} of {len(host.conflicts)} kernels on tensor cores without bank conflicts")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
