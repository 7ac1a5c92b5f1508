# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes shares of what the runtime counts, as PatternStatistics.cpp of sparse-train does.

"""What is recorded of patterns: docs/runs.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sparse_opt._description import Pattern
from sparse_opt._library import METHODS, PatternStatistics, PatternUpdate

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
    drops = [
        update.drop
        for update in due.values()
        if isinstance(update, PatternUpdate) and METHODS[update.method] in ("set", "rigl")
    ]
    pruned = sum(s.pruned for p, s in both if p.name in due)
    regrown = sum(s.regrown for p, s in both if p.name in due)
    stored = sum(s.blocks for _, s in both) + pruned - regrown
    return {
        **({"drop": max(drops)} if drops else {}),
        "turnover": pruned / stored if stored else 0,
        **of(both, due),
    }


def of(both: Both, updated: Collection[str] = ()) -> dict[str, Any]:
    """Returns the shares of all weights and of each; with what an update did, if weights
    were `updated`, by their names."""
    entry: dict[str, Any] = {}

    def add_share(
        what: str, share: Callable[[Pattern, PatternStatistics], tuple[float, float]]
    ) -> None:
        shares = {p.name: share(p, s) for p, s in both}
        known = {name: part / all for name, (part, all) in shares.items() if all}
        if known:
            parts, wholes = zip(*shares.values())
            entry[what], entry[f"weight_{what}"] = sum(parts) / sum(wholes), known

    def elements(p: Pattern, blocks: int) -> int:
        return p.block_rows * p.block_cols * blocks

    add_share("density", lambda p, s: (elements(p, s.blocks), elements(p, s.all_blocks)))
    add_share("used", lambda p, s: (elements(p, s.ever_stored), elements(p, s.all_blocks)))
    if updated:
        for what in ("pruned", "regrown"):
            own = {p.name: int(getattr(s, what)) for p, s in both if p.name in updated}
            entry[what], entry[f"weight_{what}"] = sum(own.values()), own
        add_share(
            "lost", lambda p, s: (s.newest_pruned, s.newest) if p.name in updated else (0, 0)
        )
    if both:
        rows = {
            p.name: s.most_in_row * (p.rows // p.block_rows) / s.blocks if s.blocks else 1.0
            for p, s in both
        }
        entry["imbalance"], entry["weight_imbalance"] = max(rows.values()), rows
    return entry
