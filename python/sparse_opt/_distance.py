# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# How far the arrays of a step are from those of its program.

"""Sizes of differences, in one pass over the memory of what differs.

The arrays of a step are larger than caches: they are read once, piece by piece, and
what is computed of a piece stays in a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Sizes = tuple[float, float]  # the largest of numbers, the root of the mean of their squares

_PIECE = 1 << 16  # entries, of which a few arrays fit into a processor's own cache
# Squares of numbers between these are numbers of f32 themselves.
_LEAST, _MOST = 1e-12, 1e15


@dataclass(frozen=True)
class Distance:
    """How far an array is from the program's.

    Attributes:
      sure: the difference where no entry is unsure.
      unsure: the largest difference elsewhere.
      change: what the program changes.
      size: the largest number of the program's.
      is_number: whether there is a number wherever the program has one.
    """

    sure: Sizes
    unsure: float
    change: Sizes
    size: float
    is_number: bool = True


NOWHERE = Distance((0.0, 0.0), 0.0, (0.0, 0.0), 0.0)


def distance(
    got: Array,
    value: Array,
    before: Array | None,
    unsure: Array | None,
    ignored: Array | None,
) -> Distance:
    """Compares an array with the program's, all of one dimension and one size.

    Args:
      got: what a step has.
      value: what the program has.
      before: what both had before.
      unsure: which entries of the program are rounding alone; None: none.
      ignored: which entries may be anything; None: none.
    """
    if ignored is None:
        try:
            return _distance(got, value, before, unsure)
        except _NotFinite:
            pass
    return _distance_of_some(got, value, before, unsure, ignored)


def sizes(array: Array) -> Sizes:
    """Returns the sizes of numbers, of which some may be infinite or none."""
    try:
        return _sizes(array)
    except _NotFinite:
        return _sizes(array[np.isfinite(array)])


def at_most(array: Array, bound: float) -> Array | None:
    """Returns which entries are of a size up to `bound`; None: none."""
    found = np.zeros(array.size, np.bool_)
    has_some = False
    for start in range(0, array.size, _PIECE):
        piece = slice(start, start + _PIECE)
        are_small = np.abs(array[piece]) <= bound
        if are_small.any():
            found[piece] = are_small
            has_some = True
    return found if has_some else None


def products(
    got: Array, value: Array, weights: Array, unsure: Array | None
) -> tuple[float, float]:
    """Returns the largest difference times its weight, and the largest weight, where no
    entry is unsure."""
    largest, most = 0.0, 0.0
    with np.errstate(all="ignore"):
        for start in range(0, value.size, _PIECE):
            piece = slice(start, start + _PIECE)
            sizes = np.abs(weights[piece])
            most = max(most, float(sizes.max()))
            if unsure is not None:
                sizes *= ~unsure[piece]
            sizes *= np.abs(got[piece] - value[piece])
            largest = max(largest, float(sizes.max()))
    return largest, most


def _largest(numbers: Array) -> float:
    """Returns the largest size of numbers; NaN if one is none."""
    # `numbers.max()` goes through Python, which takes as long as a thousand numbers.
    return float(max(np.maximum.reduce(numbers), -np.minimum.reduce(numbers)))


class _NotFinite(Exception):
    """An array has infinities, or what is no number."""


class _Sum:
    """The sizes of numbers that come in pieces."""

    def __init__(self) -> None:
        self.largest, self._squares, self._count = 0.0, 0.0, 0

    def add(self, numbers: Array, count: int | None = None) -> None:
        """Takes in a piece; `count` of it count, the others are 0."""
        self._count += numbers.size if count is None else count
        largest = _largest(numbers)
        if not largest < np.inf:
            raise _NotFinite
        if not largest:
            return
        self.largest = max(self.largest, largest)
        scale = 1.0
        if not _LEAST < largest < _MOST:
            scale, numbers = largest, numbers / largest
        self._squares += float(np.dot(numbers, numbers)) * scale * scale

    @property
    def sizes(self) -> Sizes:
        return self.largest, (self._squares / self._count) ** 0.5 if self._count else 0.0


def _sizes(array: Array) -> Sizes:
    total = _Sum()
    with np.errstate(all="ignore"):
        for start in range(0, array.size, _PIECE):
            total.add(array[start : start + _PIECE])
    return total.sizes


def _distance(
    got: Array, value: Array, before: Array | None, unsure: Array | None
) -> Distance:
    """The distance of arrays of which all entries are numbers."""
    apart, changes, size, rest = _Sum(), _Sum(), 0.0, 0.0
    room = np.empty(min(_PIECE, value.size), np.result_type(got, value))
    with np.errstate(all="ignore"):
        for start in range(0, value.size, _PIECE):
            piece = slice(start, start + _PIECE)
            own = value[piece]
            buffer = room[: own.size]
            np.subtract(got[piece], own, out=buffer)
            count = own.size
            if unsure is not None and (others := int(np.count_nonzero(unsure[piece]))):
                rest = max(rest, _taken_out(buffer, unsure[piece], others))
                count -= others
            apart.add(buffer, count)
            size = max(size, _largest(own))
            if before is None:
                changes.add(own)
            else:
                changes.add(np.subtract(own, before[piece], out=buffer))
    return Distance(apart.sizes, rest, changes.sizes, size)


def _taken_out(numbers: Array, places: Array, count: int) -> float:
    """Makes the numbers in `count` places 0; returns the largest of them."""
    if count < numbers.size // 16:
        indices = np.flatnonzero(places)
        taken = numbers[indices]
        numbers[indices] = 0.0
    else:
        taken = numbers * places
        numbers -= taken
    largest = _largest(taken)
    if not largest < np.inf:
        raise _NotFinite
    return largest


def _distance_of_some(
    got: Array,
    value: Array,
    before: Array | None,
    unsure: Array | None,
    ignored: Array | None,
) -> Distance:
    """The distance of arrays of which some entries are no numbers."""
    with np.errstate(all="ignore"):
        apart = got - value
        moved = value if before is None else value - before
        if ignored is not None:
            apart[ignored] = 0.0
        odd = ~np.isfinite(apart)
        apart[odd & ((got == value) | (np.isnan(got) & np.isnan(value)))] = 0.0
        is_number = bool(np.isfinite(apart).all())
        sure = apart if unsure is None else apart[~unsure]
        rest = apart[:0] if unsure is None else apart[unsure]
    return Distance(sizes(sure), sizes(rest)[0], sizes(moved), sizes(value)[0], is_number)
