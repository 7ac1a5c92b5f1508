# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains with the compiled BERT-tiny step and compares with the golden data.

"""Runs the shared library of a compiled step and compares it with JAX.

    python3 compiled.py STEP.so golden.json

needs `numpy` alone. The pattern updates are those of the golden data, after a
check that the blocks it drops are the ones of lowest L1 norm here as well.
Losses must agree within 1e-4 and the final state within 1e-3, relatively.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import counter

LOSS_TOLERANCE = 1e-4
STATE_TOLERANCE = 1e-3
_TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "i1": np.bool_,
}


def aligned(size: int) -> np.ndarray:
    """Returns `size` zero bytes that begin at a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def index_views(
    blocks: list[tuple[int, int]], slots: list[int], grid: tuple[int, int]
) -> Any:
    """Yields the name and content of the six index arrays of a pattern."""
    for major, names in (
        (0, ("row_ptr", "col_idx", "slot")),
        (1, ("col_ptr", "row_idx", "slot_t")),
    ):
        order = sorted(range(len(blocks)), key=lambda i: (blocks[i][major], blocks[i]))
        counts = np.bincount([b[major] for b in blocks], minlength=grid[major])
        yield names[0], np.concatenate([[0], np.cumsum(counts)])
        yield names[1], [blocks[i][1 - major] for i in order]
        yield names[2], [slots[i] for i in order]


class Pattern:
    """The pattern of one weight, and the buffers that lie on it."""

    def __init__(self, entry: dict[str, Any], buffers: list[np.ndarray], of: list[int]):
        self.block = entry["block"]
        self.grid = tuple(n // b for n, b in zip(entry["shape"], self.block))
        self.slots = entry["slots"]
        self.views = {k: buffers[i] for k, i in entry["buffers"].items()}
        self.values = [buffers[i] for i in of]
        self.weight = buffers[entry["weight"]]
        self.slot_of: dict[tuple[int, int], int] = {}

    def set(self, blocks: dict[tuple[int, int], int]) -> None:
        self.slot_of = blocks
        views = index_views(list(blocks), list(blocks.values()), self.grid)
        for name, content in views:
            self.views[name][: len(content)] = content

    def pack(self, values: np.ndarray, dense: np.ndarray) -> None:
        """Copies the stored blocks of `dense` to `values`."""
        rows, cols = self.block
        for (r, c), slot in self.slot_of.items():
            values[slot] = dense[r * rows : (r + 1) * rows, c * cols : (c + 1) * cols]

    def unpack(self, values: np.ndarray) -> np.ndarray:
        """Returns the dense matrix of `values`."""
        rows, cols = self.block
        dense = np.zeros((self.grid[0] * rows, self.grid[1] * cols), values.dtype)
        for (r, c), slot in self.slot_of.items():
            dense[r * rows : (r + 1) * rows, c * cols : (c + 1) * cols] = values[slot]
        return dense

    def update(self, drop: list[Any], grow: list[Any]) -> bool:
        """Drops and grows blocks; returns whether those are the ones to drop."""
        norms = {b: np.abs(self.weight[s]).sum() for b, s in self.slot_of.items()}
        lowest = set(sorted(norms, key=norms.get)[: len(drop)])
        blocks = dict(self.slot_of)
        for old, new in zip(map(tuple, drop), map(tuple, grow)):
            slot = blocks[new] = blocks.pop(old)
            for values in self.values:
                values[slot] = 0
        self.set(blocks)
        return lowest == set(map(tuple, drop))


def load(path: str) -> tuple[dict[str, Any], Callable[[list[np.ndarray]], None]]:
    """Returns the manifest of a compiled step, and the step on its buffers."""
    library = ctypes.CDLL(str(Path(path).resolve()))
    text = ctypes.c_char.in_dll(library, "bsr_step_manifest")
    manifest = json.loads(ctypes.string_at(ctypes.addressof(text)))
    arena = aligned(manifest["arena_bytes"])

    def run(buffers: list[np.ndarray]) -> None:
        addresses = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
        library.bsr_step_run(addresses, ctypes.c_void_p(arena.ctypes.data))

    return manifest, run


def main() -> None:
    manifest, run = load(sys.argv[1])
    golden = json.loads(Path(sys.argv[2]).read_text())
    entries = manifest["buffers"]
    buffers = []
    for entry in entries:
        dtype = np.dtype(_TYPES[entry["type"]])
        data = aligned(int(np.prod(entry["shape"])) * dtype.itemsize)
        buffers.append(data.view(dtype).reshape(entry["shape"]))

    patterns = {}
    for number, entry in enumerate(manifest["patterns"]):
        of = [
            i
            for i, e in enumerate(entries)
            if e["kind"] == "values" and e["pattern"] == number
        ]
        pattern = patterns[entry["name"]] = Pattern(entry, buffers, of)
        first = [tuple(b) for b in golden["patterns"][entry["name"]]]
        pattern.set({block: slot for slot, block in enumerate(first)})

    def pattern_of(entry: dict[str, Any]) -> Pattern:
        return patterns[manifest["patterns"][entry["pattern"]]["name"]]

    for entry, data in zip(entries, buffers):
        if entry["carried"]:
            dense = counter.tensor(entry["name"], golden["state"][entry["name"]])
            if entry["kind"] == "values":
                pattern_of(entry).pack(data, dense)
            else:
                data[...] = dense

    losses, same_choice = [], True
    updates = {u["after"]: u for u in golden["updates"]}
    for step in range(golden["steps"]):
        if update := updates.get(step):
            for name, pattern in patterns.items():
                same_choice &= pattern.update(
                    update["drop"][name], update["grow"][name]
                )
        for entry, data in zip(entries, buffers):
            if entry.get("role") == "batch":
                name = f"{entry['name']}/{step % golden['num_batches']}"
                data[...] = counter.tensor(name, golden["batch"][entry["name"]])
            elif entry.get("role") == "lr":
                data[...] = golden["lr"][step]
        run(buffers)
        losses += [
            float(d) for e, d in zip(entries, buffers) if e.get("role") == "loss"
        ]

    loss_error = max(
        abs(a / b - 1) for a, b in zip(losses, golden["losses"], strict=True)
    )
    errors = {}
    for entry, data in zip(entries, buffers):
        if not entry["carried"]:
            continue
        want = golden["final"].pop(entry["name"])
        dense = pattern_of(entry).unpack(data) if entry["kind"] == "values" else data
        flat = dense.astype(np.float64).ravel()
        at, scale = flat[want["at"]], max(want["norm"], 1e-30)
        errors[entry["name"]] = max(
            abs(flat.sum() - want["sum"]) / max(scale, abs(want["sum"])),
            abs(np.linalg.norm(flat) - want["norm"]) / scale,
            np.linalg.norm(at - want["is"]) / max(np.linalg.norm(want["is"]), 1e-30),
        )
    worst = max(errors, key=errors.get)
    print(f"loss: relative error {loss_error:.1e}")
    print(f"state: relative error {errors[worst]:.1e} in '{worst}'")
    failures = []
    if not loss_error <= LOSS_TOLERANCE:
        failures.append(
            f"expected losses within {LOSS_TOLERANCE}, but got {loss_error:.1e}"
        )
    if not errors[worst] <= STATE_TOLERANCE:
        failures.append(
            f"expected a state within {STATE_TOLERANCE}, but got {errors[worst]:.1e}"
        )
    if not same_choice:
        failures.append(
            "expected the blocks of the golden data to be lowest, but got others"
        )
    if golden["final"]:
        failures.append(
            f"expected every state tensor, but got none for {list(golden['final'])}"
        )
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
