# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Convolutions of images that lie in one line.

"""A channel of all images lies in one line, with zeros between rows and between images. What all
windows have at one of their places is that line from another element on, so that windows are
slices of it, and sums of gradients are sums of slices. Of a stride above one, elements whose
places have one remainder (a phase) lie in a line of their own, which windows read one by one.

What is written here is computed by whoever's arrays it is given: PyTorch's where a step is
traced, and values of a program (`_images.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


_VECTORS = 64
_ROUNDS = 256, 192, 128
"""Columns of a panel, and of a round of sampled products, whose sums are in registers meanwhile."""

_MOST_MORE = 1.07


def _round(columns: int, *sizes: int) -> int:
    """Returns as many columns or a few more, which one of `sizes` divides, or else panels."""
    for size in sizes:
        found = -(-columns // size) * size
        if found <= _MOST_MORE * columns:
            return found
    return -(-columns // _VECTORS) * _VECTORS


@dataclass(frozen=True)
class Extent:
    """One dimension of a convolution: elements of an image, places of a window, and zeros in
    front of the image and behind it."""

    size: int
    kernel: int
    low: int
    high: int
    stride: int
    step: int

    @property
    def span(self) -> int:
        """How far the last place of a window is behind the first."""
        return self.step * (self.kernel - 1)

    @property
    def out(self) -> int:
        """How many windows there are."""
        return (self.size + self.low + self.high - self.span - 1) // self.stride + 1

    @property
    def shares(self) -> bool:
        """Whether zeros behind a row are those in front of the next one."""
        return self.stride == 1 and max(self.low, self.high) <= self.span

    @property
    def phases(self) -> int:
        """How many remainders of places windows read: all, or the first one."""
        return 1 if self.span % self.stride == 0 == self.step % self.stride else self.stride

    @property
    def pitch(self) -> int:
        """From one row to the next, with what lies between; of a phase."""
        if self.shares:
            return self.size + max(self.low, self.high)
        return self.out + self.span // self.stride


@dataclass(frozen=True)
class Arrays:
    """What arrays do besides their own `shape`, `reshape`, `permute`, `narrow` and `+`."""

    cat: Callable[[Sequence[Any], int], Any]
    zeros: Callable[[Any, list[int]], Any]  # of the type of an array, and a shape
    # Of a dimension, from an element on, so many, each n-th.
    pick: Callable[[Any, int, int, int, int], Any]

    def pad(self, x: Any, dim: int, low: int, high: int) -> Any:
        """Returns `x` with zeros in front of a dimension and behind it, or without some of the
        last elements: a concatenation is written in one pass, a padding in two."""
        if high < 0:
            x, high = x.narrow(dim, 0, x.shape[dim] + high), 0
        parts = [self.zeros(x, [*x.shape[:dim], n, *x.shape[dim + 1 :]]) for n in (low, high) if n]
        if not parts:
            return x
        return self.cat([*parts[: low > 0], x, *parts[low > 0 :]], dim)


class Line:
    """How images `[images, channels, *size]` lie in a line, and the windows in it.

    Attributes:
      zeros: how many elements lie in front of the first image, all zeros.
      elements: of the images, with what lies between rows, in each phase.
      columns: windows, and a few more: one at each element.
      places: for each place of a window its phase, and how many elements behind that of a
        window's first place it lies.
    """

    def __init__(self, arrays: Arrays, images: int, extents: Sequence[Extent]) -> None:
        self.arrays, self.images, self.extents = arrays, images, extents
        self.rows = [e.pitch for e in extents]
        self.out = [e.out for e in extents]
        pitches = [math.prod(self.rows[d + 1 :]) for d in range(len(extents))]
        self.phases = [e.phases for e in extents]
        self.places = []
        for place in itertools.product(*(range(e.kernel) for e in extents)):
            phase = shift = 0
            for i, e, pitch in zip(place, extents, pitches):
                phase = phase * e.phases + i * e.step % e.stride
                shift += i * e.step // e.stride * pitch
            self.places.append((phase, shift))
        self.zeros = sum(e.low * pitch for e, pitch in zip(extents, pitches) if e.shares)
        self.elements = images * math.prod(self.rows)
        self.columns = _round(self.elements, *_ROUNDS)

    @property
    def reach(self) -> int:
        """How far the last place of a window is behind the first, in its phase."""
        return max(shift for _, shift in self.places)

    def windows(self, x: Any) -> Any:
        """Returns the windows of images as columns, whose rows are channels, and in each of
        these the places of a window."""
        channels = x.shape[1]
        length = self.columns + self.reach
        line = self._join(self._phases_of(x), self.zeros, length)
        line = line.reshape([channels, -1])
        parts = [
            line.narrow(1, phase * length + shift, self.columns) for phase, shift in self.places
        ]
        joined = self.arrays.cat([part.reshape([channels, 1, -1]) for part in parts], 1)
        return joined.reshape([channels * len(parts), self.columns])

    def split(self, y: Any) -> Any:
        """Returns results, `[images, channels, *out]`, of the products of all columns."""
        return self._split(y, self.out)

    def gradient_line(self, gradient: Any) -> tuple[Any, Any]:
        """Returns a line of the gradient of results, with zeros where no window is, and its part
        that has a window at each column."""
        first = self.reach - self.zeros
        channels = gradient.shape[1]
        rows = gradient.permute(_swapped(gradient)).reshape([channels, self.images, *self.out])
        line = self._join(rows, first, _round(self.columns + self.reach))
        return line, line.narrow(1, first, self.columns)

    def sum_windows(self, windows: Any) -> Any:
        """Returns the gradient of images by that of windows, the product of `gradient_line`'s
        line."""
        channels, length = windows.shape[0] // len(self.places), windows.shape[1]
        windows = windows.reshape([channels, len(self.places), length])
        sums: list[Any] = [None] * math.prod(self.phases)
        for number, (phase, shift) in enumerate(self.places):
            place = windows.narrow(1, number, 1).reshape([channels, length])
            part = place.narrow(1, self.reach - shift, self.elements)
            sums[phase] = part if sums[phase] is None else sums[phase] + part
        if len(sums) == 1:
            return self._of_phases(sums[0])
        none = self.arrays.zeros(windows, [channels, self.elements])
        parts = [none if part is None else part for part in sums]
        return self._of_phases(
            self.arrays.cat([part.reshape([channels, 1, self.elements]) for part in parts], 1)
        )

    def _join(self, rows: Any, low: int, length: int) -> Any:
        """Returns a line of `length` for each channel of `[channels, images, *rows]`, which
        begin at element `low`."""
        channels = rows.shape[0]
        for d in reversed(range(len(self.rows))):
            # Behind each row, whose elements are one dimension by now.
            pitch = math.prod(self.rows[d + 1 :])
            zeros = (self.rows[d] - rows.shape[2 + d]) * pitch
            rows = rows.reshape([channels, self.images, *rows.shape[2 : 2 + d], -1])
            if d or self.images > 1:  # else they are those behind the line
                rows = self.arrays.pad(rows, 2 + d, 0, zeros)
        line = rows.reshape([channels, -1])
        return self.arrays.pad(line, 1, low, length - low - line.shape[1])

    def _split(self, line: Any, size: Sequence[int]) -> Any:
        """Returns the images `[images, channels, *size]` of lines that begin with them."""
        x = line.narrow(1, 0, self.elements).reshape([-1, self.images, *self.rows])
        for d, n in enumerate(size, 2):
            x = x.narrow(d, 0, n)
        return x.permute(_swapped(x))

    def _phases_of(self, x: Any) -> Any:
        """Returns `[channels * phases, images, *rows]` of images."""
        channels = x.shape[1]
        parts = [x.permute(_swapped(x))]
        for d, e in enumerate(self.extents, 2):
            if e.stride > 1:
                parts = [self._phase(x, d, e, phase) for x in parts for phase in range(e.phases)]
            elif not e.shares:
                parts = [self.arrays.pad(x, d, e.low, e.pitch - e.low - e.size) for x in parts]
        shape = parts[0].shape
        joined = self.arrays.cat([part.reshape([channels, 1, *shape[1:]]) for part in parts], 1)
        return joined.reshape([-1, *shape[1:]])

    def _phase(self, x: Any, dim: int, extent: Extent, phase: int) -> Any:
        """Returns the elements of a phase, with zeros around them."""
        zeros = -(-max(extent.low - phase, 0) // extent.stride)
        first = zeros * extent.stride + phase - extent.low
        held = min(-(-(extent.size - first) // extent.stride), extent.pitch - zeros)
        if held <= 0:
            shape = [*x.shape[:dim], extent.pitch, *x.shape[dim + 1 :]]
            return self.arrays.zeros(x, shape)
        picked = self.arrays.pick(x, dim, first, held, extent.stride)
        return self.arrays.pad(picked, dim, zeros, extent.pitch - zeros - held)

    def _of_phases(self, line: Any) -> Any:
        """Returns images `[images, channels, *size]` of `[channels, phases, elements]`."""
        dims = len(self.extents)
        rows = [e.size if e.shares else e.pitch for e in self.extents]
        if all(e.stride == 1 for e in self.extents):
            x = self._split(line, rows)
        else:
            x = line.reshape([-1, *self.phases, self.images, *self.rows])
            for d, n in enumerate(rows, 2 + dims):
                x = x.narrow(d, 0, n)
            pairs = [n for d in range(dims) for n in (2 + dims + d, 1 + d)]
            x = x.permute([1 + dims, 0, *pairs])
            for d, e in enumerate(self.extents):
                x = self.arrays.pad(x, 3 + 2 * d, 0, e.stride - e.phases)
            whole = [row * e.stride for row, e in zip(rows, self.extents)]
            x = x.reshape([self.images, -1, *whole])
        for d, e in enumerate(self.extents, 2):
            if not e.shares:
                held = min(e.size, x.shape[d] - e.low)
                x = self.arrays.pad(x.narrow(d, e.low, held), d, 0, e.size - held)
        return x


def _swapped(x: Any) -> list[int]:
    """Images and channels the other way round."""
    return [1, 0, *range(2, len(x.shape))]
