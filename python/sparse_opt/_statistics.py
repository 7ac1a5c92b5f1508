# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes shares of what the runtime counts, as PatternStatistics.cpp of sparse-train does.

"""What is recorded of patterns: docs/runs.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sparse_opt._description import Pattern
from sparse_opt._library import METHODS, PatternStatistics, PatternUpdate

# Patterns, and what is known of each.
Both = Sequence[tuple[Pattern, PatternStatistics]]


def of_update(
    both: Both, due: Mapping[str, PatternUpdate | Any], has_history: bool = True
) -> dict[str, Any]:
    """Returns what is recorded of an update.

    Args:
      both: of all weights.
      due: what was done to some, by their names: an update of the runtime's, or what a method
        in Python did.
      has_history: whether the blocks that were ever stored are known.
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
        **of(both, due, has_history),
    }


def of(
    both: Both, updated: Collection[str] = (), has_history: bool = True
) -> dict[str, Any]:
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
    if has_history:
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
