# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the runtime records of patterns, and the history that it does not see.

"""What is recorded of patterns: docs/runs.md."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparse_opt._description import Pattern
from sparse_opt._library import (
    PatternStatistics,
    PatternUpdate,
    RecordedPattern,
    check,
    library,
)

Array = np.ndarray[Any, Any]

# Patterns, and what is known of each.
Both = Sequence[tuple[Pattern, PatternStatistics]]


class History:
    """The blocks that weights ever had, and those that came with their last updates, as
    sessions of the runtime keep them (runtime/session/SessionUpdate.cpp), for weights whose
    sessions last for one update."""

    def __init__(self) -> None:
        # By the names of weights: a bit for each place of the matrix, and a flag for each slot.
        self._ever: dict[str, Array] = {}
        self._newest: dict[str, Array] = {}

    def see(self, name: str, rows: Array, cols: Array, grid: tuple[int, int]) -> None:
        """Adds the blocks that a weight has, by the block row and column of each slot."""
        seen = np.zeros(grid, np.bool_)
        seen[rows[rows >= 0], cols[rows >= 0]] = True
        bits = np.packbits(seen)
        self._ever[name] = bits | self._ever.get(name, np.uint8(0))
        self._newest.setdefault(name, np.zeros(len(rows), np.bool_))

    def record(
        self, name: str, statistics: PatternStatistics, pruned: Array, regrown: Array
    ) -> None:
        """Completes what is counted of a weight by an update of it, whose slots lost and have
        got a block; what it has then was seen."""
        newest = self._newest[name]
        statistics.newest = int(newest.sum())
        statistics.newest_pruned = int((newest & pruned).sum())
        self._newest[name] = regrown

    def count(self, name: str, statistics: PatternStatistics) -> None:
        """Completes what is counted of a weight by its blocks so far."""
        statistics.ever_stored = int(np.unpackbits(self._ever[name]).sum())

    def state(self) -> dict[str, tuple[Array, Array]]:
        return {name: (ever, self._newest[name]) for name, ever in self._ever.items()}

    def load(self, name: str, ever: Array, newest: Array) -> None:
        """Goes on from what `state` had of a weight, whose blocks were seen."""
        if ever.shape == self._ever[name].shape and newest.shape == self._newest[name].shape:
            self._ever[name] = self._ever[name] | ever
            self._newest[name] = newest.astype(np.bool_)


def of_update(both: Both, due: Mapping[str, PatternUpdate | Any]) -> dict[str, Any]:
    """Returns what is recorded of an update.

    Args:
      both: of all weights.
      due: what was done to some, by their names: an update of the runtime's, or what a method
        in Python did.
    """
    return _record(both, due)


def of(both: Both) -> dict[str, Any]:
    """Returns what is recorded of all weights without an update."""
    return _record(both, None)


def _record(both: Both, due: Mapping[str, PatternUpdate | Any] | None) -> dict[str, Any]:
    none = PatternUpdate()
    patterns = (RecordedPattern * len(both))()
    for recorded, (pattern, statistics) in zip(patterns, both):
        update = due.get(pattern.name) if due else None
        recorded.name = pattern.name.encode()
        recorded.rows = pattern.rows
        recorded.block_rows, recorded.block_cols = pattern.block_rows, pattern.block_cols
        recorded.statistics = statistics
        recorded.is_updated = update is not None
        recorded.update = update if isinstance(update, PatternUpdate) else none
    text = ctypes.c_char_p()
    check(
        library().bsr_record_patterns(
            ctypes.c_int64(len(both)), patterns, ctypes.c_int32(due is not None),
            ctypes.byref(text),
        )
    )  # fmt: skip
    entry: dict[str, Any] = json.loads(text.value or b"{}")
    return entry
