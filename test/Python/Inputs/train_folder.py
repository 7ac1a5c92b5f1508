# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What tests of Export.save share: runs of sparse-train, and the order of its examples.

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

_MASK = 2**64 - 1


def _mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def order(count: int, seed: int = 0) -> Iterator[int]:
    """Yields the examples in the order in which sparse-train takes them: a shuffle of
    Fisher and Yates in each epoch, of SplitMix64."""
    epoch = 0
    while True:
        state, own = _mix(_mix(_mix(seed) ^ 3) ^ epoch), list(range(count))
        for i in range(count - 1, 0, -1):
            state = (state + 0x9E3779B97F4A7C15) & _MASK
            j = (_mix(state) >> 32) * (i + 1) >> 32
            own[i], own[j] = own[j], own[i]
        yield from own
        epoch += 1


def refused(folder: Path, *settings: str) -> str:
    """Returns the error of a run that sparse-train refuses."""
    command = ["sparse-train", "--config", str(folder / "train.yaml")]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.run(command, capture_output=True, text=True).stderr.strip()


def train(folder: Path, *settings: str) -> list[float]:
    """Runs sparse-train from a folder, and returns its losses."""
    command = ["sparse-train", "--config", str(folder / "train.yaml")]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, capture_output=True)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]


def resume(run: Path) -> None:
    """Goes on with a run from its newest checkpoint."""
    cache = f"compile.cache={run.parent / 'cache'}"
    command = ["sparse-train", "--resume", str(run), "--set", cache]
    subprocess.run(command, check=True, capture_output=True)
