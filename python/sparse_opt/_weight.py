# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What methods that are written in Python see of a weight.

"""A weight in blocks, as it lies in memory between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sparse_opt import _library
from sparse_opt._description import Array, Blocks, Counters, Pattern
from sparse_opt._errors import StepError

if TYPE_CHECKING:
    from sparse_opt._step import Step


def generator(seed: int, update: int, name: str) -> np.random.Generator:
    """Returns random numbers keyed by a seed, the number of an update, and a name."""
    key = [seed & 0xFFFFFFFF, seed >> 32, update, *name.encode()]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class Weight:
    """A weight in blocks, as it is between two steps.

    Blocks go by their numbers, block row times block columns plus block column. The
    arrays are the memory of the step: what is written to the values the next step
    reads.

    Attributes:
      name: that of the weight.
      shape, block, grid: rows and columns of the matrix, of a block, and blocks in rows
        and columns.
      slots: how many blocks can be stored.
      update: the number of this update, from 1.
      seed: that of the step.
    """

    def __init__(self, step: Step, pattern: Pattern, counters: Counters) -> None:
        self._session, self._pattern, self._arrays = step._session, pattern, step.arrays
        self._buffers = step.buffers
        self._count = int(step._session.view(pattern).blocks)
        self.name = pattern.name
        self.shape = pattern.rows, pattern.cols
        self.block = pattern.block_rows, pattern.block_cols
        self.grid = self.shape[0] // self.block[0], self.shape[1] // self.block[1]
        self.slots = pattern.slots
        self.update, self.seed = counters.pattern_updates + 1, counters.seed

    @property
    def values(self) -> Array:
        """The blocks, `[slots, block rows, block columns]`: block k of the stored ones is
        `values[slot[k]]`. On a GPU a copy is read and written."""
        return self._arrays[self.name]

    @property
    def moments(self) -> Mapping[str, Array]:
        """By their names, the other arrays of which the pattern is, of the same form."""
        return {
            b.name: self._arrays[b.name]
            for b in self._buffers.values()
            if b.kind == "values"
            and b.role != "count"
            and b.pattern == self._pattern.index
            and b.name != self.name
        }

    @cached_property
    def _views(self) -> Blocks:
        return self._session.views(self._pattern)

    @property
    def row_ptr(self) -> Array:
        """Stored block k of block row r has row_ptr[r] <= k < row_ptr[r + 1]."""
        return self._views.row_ptr

    @property
    def col_idx(self) -> Array:
        """The block column of each stored block."""
        return self._views.col_idx

    @property
    def slot(self) -> Array:
        """The slot of each stored block."""
        return self._views.slot

    @cached_property
    def stored(self) -> Array:
        """The numbers of the stored blocks, rising."""
        return self._session.stored(self._pattern, self._count)

    @cached_property
    def absent(self) -> Array:
        """The numbers of the blocks that are not stored, rising."""
        is_absent = np.ones(self._pattern.blocks, bool)
        is_absent[self.stored] = False
        return np.flatnonzero(is_absent)

    def norms(self, norm: str = "l1") -> Array:
        """Returns a number for each stored block that ranks as its norm does.

        Of `l1` and `mean` the sum of magnitudes, of `l2` that of squares, of `linf` the
        largest magnitude, in f64.
        """
        if norm not in _library.NORMS:
            raise StepError(
                f"expected one of {', '.join(_library.NORMS)}, but got '{norm}'"
            )
        return self._session.norms(self._pattern, norm, self._count)

    @cached_property
    def scores(self) -> Array:
        """The norm of the gradient of each block, stored or not, by its number: after a
        call of the step with `scores=True`, of a step that was compiled with
        `options=["--score-norm=l1"]`, l2 or linf."""
        return self._session.scores(self._pattern)

    def random(self, count: int, barred: Array | None = None) -> Array:
        """Returns the numbers, rising, of `count` random blocks that are not stored.

        Or that are none of `barred`, whose numbers rise. Every choice is equally likely,
        and keyed by the seed, the weight's name and the number of the update: the same
        each time that it is asked for.
        """
        barred = self.stored if barred is None else barred
        return self._session.choose_absent(self._pattern, barred, count)

    def largest_scores(self, count: int, barred: Array | None = None) -> Array:
        """Returns the numbers, rising, of the `count` blocks of the largest `scores` that
        are not stored, of equal ones the first.

        Or that are none of `barred`, whose numbers rise. NaN as the score of a block that
        may be chosen is an error.
        """
        barred = self.stored if barred is None else barred
        return self._session.choose_scored(self._pattern, barred, count)

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers keyed by the seed, the weight's name and the number of the
        update, so that a run that is resumed sees those of one that was not."""
        return generator(self.seed, self.update, self.name)
