# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes shares of what the runtime counts, as PatternStatistics.cpp of sparse-train does.

"""What is recorded of patterns: docs/runs.md."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from sparse_opt._description import Pattern
from sparse_opt._library import PatternStatistics

if TYPE_CHECKING:
    from sparse_opt._step import Step


def of(step: Step, updated: Collection[str] = ()) -> dict[str, Any]:
    """Returns the shares of all weights and of each; with what an update did, if weights
    were `updated`, by their names."""
    both = [(p, step._session.statistics(p)) for p in step.patterns.values()]
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
