# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains with the compiled BERT-tiny step and compares with the golden data.

"""Runs the shared library of a compiled step and compares it with JAX.

    python3 compiled.py STEP.so golden.json

The pattern updates are those of the golden data, after a check that the blocks
it drops are the ones of lowest L1 norm here as well. Losses must agree within
1e-4 and the final state within 1e-3, relatively. Prints how far they are, and a
checksum of the state.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import counter

LOSS_TOLERANCE = 1e-4
STATE_TOLERANCE = 1e-3

Block = tuple[int, int]


class Buffer:
    """A zeroed buffer, aligned as the compiled step expects."""

    def __init__(self, num_bytes: int, code: str = "B"):
        self.raw = (ctypes.c_char * (num_bytes + 64))()
        start = -ctypes.addressof(self.raw) % 64
        self.address = ctypes.addressof(self.raw) + start
        view = memoryview(self.raw).cast("B")[start : start + num_bytes]
        self.data = view.cast(code)


class Pattern:
    """The pattern of one weight, and the buffers of values that lie on it."""

    def __init__(self, entry: dict[str, Any], data: list[Any], values: list[Any]):
        self.block = entry["block"]
        self.width = entry["shape"][1]
        self.grid = [n // b for n, b in zip(entry["shape"], self.block)]
        self.views = {view: data[i] for view, i in entry["buffers"].items()}
        self.values = values
        self.weight = data[entry["weight"]]
        self.slot_of: dict[Block, int] = {}

    def set(self, slot_of: dict[Block, int]) -> None:
        """Makes `slot_of` the stored blocks, in both index views."""
        self.slot_of = slot_of
        for major, names in (
            (0, ("row_ptr", "col_idx", "slot")),
            (1, ("col_ptr", "row_idx", "slot_t")),
        ):
            order = sorted(slot_of, key=lambda b: (b[major], b[1 - major]))
            majors = [block[major] for block in order]
            counts = [majors.count(i) for i in range(self.grid[major])]
            for name, content in zip(
                names,
                (
                    itertools.accumulate(counts, initial=0),
                    (block[1 - major] for block in order),
                    (slot_of[block] for block in order),
                ),
            ):
                for i, index in enumerate(content):
                    self.views[name][i] = index

    def rows(self, block: Block) -> Iterator[tuple[slice, slice]]:
        """Yields where each row of a block lies, in the values and densely."""
        height, width = self.block
        for i in range(height):
            stored = (self.slot_of[block] * height + i) * width
            dense = (block[0] * height + i) * self.width + block[1] * width
            yield slice(stored, stored + width), slice(dense, dense + width)

    def pack(self, values: Any, matrix: Sequence[float]) -> None:
        """Copies the stored blocks of `matrix` to `values`."""
        for block in self.slot_of:
            for stored, dense in self.rows(block):
                values[stored] = matrix[dense]

    def unpack(self, values: Any) -> list[float]:
        """Returns the dense matrix of `values`."""
        matrix = [0.0] * (self.grid[0] * self.block[0] * self.width)
        for block in self.slot_of:
            for stored, dense in self.rows(block):
                matrix[dense] = values[stored]
        return matrix

    def norm(self, block: Block) -> float:
        """Returns the L1 norm of a block of the weight."""
        return math.fsum(abs(x) for at, _ in self.rows(block) for x in self.weight[at])

    def update(self, drop: list[Block], grow: list[Block]) -> bool:
        """Drops and grows blocks; returns whether those are the ones to drop."""
        lowest = sorted(self.slot_of, key=self.norm)[: len(drop)]
        slot_of = dict(self.slot_of)
        for old, new in zip(drop, grow, strict=True):
            for values in self.values:
                for at, _ in self.rows(old):
                    for i in range(at.start, at.stop):
                        values[i] = 0.0
            slot_of[new] = slot_of.pop(old)
        self.set(slot_of)
        return set(lowest) == set(drop)


def load(path: str) -> tuple[dict[str, Any], Callable[[list[Buffer]], None]]:
    """Returns the manifest of a compiled step, and the step on its buffers."""
    library = ctypes.CDLL(str(Path(path).resolve()))
    text = ctypes.c_char.in_dll(library, "bsr_step_manifest")
    manifest = json.loads(ctypes.string_at(ctypes.addressof(text)))
    arena = Buffer(manifest["arena_bytes"])
    # bsr_context of bsr/step.h: version, device, communicator (of two words), error.
    context = (ctypes.c_int32 * 6)(1, 0, 0, 0, 0, 0)

    def run(buffers: list[Buffer]) -> None:
        addresses = (ctypes.c_void_p * len(buffers))(*(b.address for b in buffers))
        if library.bsr_step_run(context, addresses, ctypes.c_void_p(arena.address)):
            raise RuntimeError("expected the step to run on the host")

    return manifest, run


def blocks(pairs: list[list[int]]) -> list[Block]:
    return [(row, col) for row, col in pairs]


def error_of(got: Sequence[float], want: dict[str, Any]) -> float:
    """Returns how far a tensor is from its golden sum, norm and samples."""

    def norm(values: Sequence[float]) -> float:
        return math.sqrt(math.fsum(x * x for x in values))

    samples = [got[i] - x for i, x in zip(want["at"], want["is"], strict=True)]
    size = max(want["norm"], 1e-30)
    return max(
        abs(math.fsum(got) - want["sum"]) / max(size, abs(want["sum"])),
        abs(norm(got) - want["norm"]) / size,
        norm(samples) / max(norm(want["is"]), 1e-30),
    )


def main() -> None:
    manifest, run = load(sys.argv[1])
    golden = json.loads(Path(sys.argv[2]).read_text())
    entries = manifest["buffers"]
    codes = {"f32": "f", "i32": "i"}
    buffers = [Buffer(4 * math.prod(e["shape"]), codes[e["type"]]) for e in entries]
    data = [buffer.data for buffer in buffers]
    patterns = []
    for number, entry in enumerate(manifest["patterns"]):
        values = [
            d
            for e, d in zip(entries, data)
            if e["kind"] == "values" and e["pattern"] == number
        ]
        pattern = Pattern(entry, data, values)
        first = blocks(golden["patterns"].pop(entry["name"]))
        pattern.set({block: slot for slot, block in enumerate(first)})
        patterns.append(pattern)
    for entry, view in zip(entries, data):
        if entry["carried"]:
            tensor = counter.tensor(entry["name"], golden["state"][entry["name"]])
            if entry["kind"] == "values":
                patterns[entry["pattern"]].pack(view, tensor)
            else:
                view[:] = tensor

    losses, same_choice = [], True
    updates = {update["after"]: update for update in golden["updates"]}
    for step in range(golden["steps"]):
        if update := updates.get(step):
            for entry, pattern in zip(manifest["patterns"], patterns):
                drop = blocks(update["drop"][entry["name"]])
                grow = blocks(update["grow"][entry["name"]])
                same_choice &= pattern.update(drop, grow)
        for entry, view in zip(entries, data):
            if entry.get("role") == "batch":
                name = f"{entry['name']}/{step % golden['num_batches']}"
                view[:] = counter.tensor(name, golden["batch"][entry["name"]])
            elif entry.get("role") == "lr":
                view[0] = golden["lr"][step]
        run(buffers)
        losses += [v[0] for e, v in zip(entries, data) if e.get("role") == "loss"]

    pairs = zip(losses, golden["losses"], strict=True)
    loss_error = max(abs(got / want - 1) for got, want in pairs)
    errors = {}
    for entry, view in zip(entries, data):
        if entry["carried"]:
            is_sparse = entry["kind"] == "values"
            got = patterns[entry["pattern"]].unpack(view) if is_sparse else view
            errors[entry["name"]] = error_of(got, golden["final"].pop(entry["name"]))
    worst = max(errors, key=errors.__getitem__)
    print(f"loss: relative error {loss_error:.1e}")
    print(f"state: relative error {errors[worst]:.1e} in '{worst}'")
    carried = [view for entry, view in zip(entries, data) if entry["carried"]]
    digest = functools.reduce(lambda crc, view: zlib.crc32(view, crc), carried, 0)
    print(f"state: checksum {digest:08x}")

    failures = []
    if not loss_error <= LOSS_TOLERANCE:
        failures.append(f"losses within {LOSS_TOLERANCE}, but got {loss_error:.1e}")
    if not errors[worst] <= STATE_TOLERANCE:
        failures.append(
            f"a state within {STATE_TOLERANCE}, but got {errors[worst]:.1e}"
        )
    if not same_choice:
        failures.append("to drop the blocks of the golden data, but got others")
    if missing := [*golden["patterns"], *golden["final"]]:
        failures.append(f"every weight and state, but got no {', '.join(missing)}")
    sys.exit("\n".join(f"expected {failure}" for failure in failures) or 0)


if __name__ == "__main__":
    main()
