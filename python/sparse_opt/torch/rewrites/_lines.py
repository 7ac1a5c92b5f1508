# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Convolutions of stride one, of images that lie in one line.

"""Where windows overlap, a channel of all images lies in one line, with zeros between rows and
between images. What all windows have at one of their places is that line from another element
on, so that windows are slices of it, and sums of gradients are sums of slices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch


def _round(columns: int) -> int:
    """Returns as many columns or a few more, which vectors divide."""
    return -(-columns // 64) * 64


MOST_WASTE = 1.25
"""Columns of a product, at most, as a multiple of the windows that are there to stay."""


def _lengthen(x: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """Returns `x` with zeros in front of its last dimension and behind it: a concatenation is
    written in one pass, a padding in two."""
    zeros = [x.new_zeros([*x.shape[:-1], n]) for n in (low, high)]
    return torch.cat([part for part in (zeros[0], x, zeros[1]) if part.shape[-1]], -1)


class Line:
    """How images `[images, channels, *size]` lie in a line, and the windows in it.

    The zeros behind a row are those in front of the next one. `zeros` of them lie in front of
    the first image. Window `q` has element `q + offset` of the line at each of `offsets`, one
    for each place; of the windows, `[images, *rows]`, those of `[images, *out]` are there to
    stay.
    """

    def __init__(
        self,
        images: int,
        size: Sequence[int],
        kernel: Sequence[int],
        paddings: Sequence[int],
        steps: Sequence[int],
    ) -> None:
        self.images, self.size = images, list(size)
        self.rows = [n + padding for n, padding in zip(size, paddings)]
        self.out = [
            n + 2 * padding - step * (k - 1)
            for n, k, padding, step in zip(size, kernel, paddings, steps)
        ]
        pitches = [math.prod(self.rows[d + 1 :]) for d in range(len(size))]
        self.offsets = [
            sum(i * step * pitch for i, step, pitch in zip(place, steps, pitches))
            for place in itertools.product(*map(range, kernel))
        ]
        self.zeros = sum(padding * pitch for padding, pitch in zip(paddings, pitches))
        self.elements = images * math.prod(self.rows)
        self.columns = _round(self.elements)

    @property
    def reach(self) -> int:
        """How far the last place of a window is behind the first."""
        return self.offsets[-1]

    def is_short(self) -> bool:
        """Whether few columns are none of a window."""
        return self.columns <= MOST_WASTE * self.images * math.prod(self.out)

    def _join(self, x: torch.Tensor, low: int, length: int) -> torch.Tensor:
        """Returns a line of `length` for each channel, `x` from element `low` on."""
        images, channels = x.shape[:2]
        x = x.transpose(0, 1)
        for d in reversed(range(len(self.rows))):
            # Behind each row, whose elements are one dimension by now.
            pitch = math.prod(self.rows[d + 1 :])
            zeros = (self.rows[d] - x.shape[2 + d]) * pitch
            x = x.reshape([channels, images, *x.shape[2 : 2 + d], -1])
            x = _lengthen(x, 0, zeros)
        return _lengthen(x.reshape(channels, -1), low, length - low - self.elements)

    def _split(self, line: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
        """Returns the images `[images, channels, *size]` of lines that begin with them."""
        x = line.narrow(1, 0, self.elements).reshape([-1, self.images, *self.rows])
        for d, n in enumerate(size, 2):
            x = x.narrow(d, 0, n)
        return x.transpose(0, 1).contiguous()

    def _windows(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the windows as columns, whose rows are channels, and in each the places."""
        line = self._join(x, self.zeros, self.columns + self.reach)
        parts = [line.narrow(1, offset, self.columns) for offset in self.offsets]
        joined = torch.cat([part.unsqueeze(1) for part in parts], 1)
        return joined.reshape(-1, self.columns)

    def convolve(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._split(weight.flatten(1) @ self._windows(x), self.out)

    def gradients(
        self, gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns those of `x` and of `weight`."""
        # Where no window is, the line has zeros. A window at each element of the images.
        first = self.reach - self.zeros
        line = self._join(gradient, first, _round(self.columns + self.reach))
        own = line.narrow(1, first, self.columns)
        of_weight = (own @ self._windows(x).transpose(0, 1)).reshape(weight.shape)
        windows = weight.flatten(1).transpose(0, 1) @ line
        windows = windows.view(x.shape[1], len(self.offsets), -1)
        parts = [
            windows[:, place].narrow(1, self.reach - offset, self.elements)
            for place, offset in enumerate(self.offsets)
        ]
        return self._split(sum(parts[1:], parts[0]), self.size), of_weight


def find(
    x: torch.Tensor,
    weight: torch.Tensor,
    strides: Sequence[int],
    paddings: Sequence[int],
    steps: Sequence[int],
) -> Line | None:
    """Returns the line of a convolution's images; None where its windows are no slices of one,
    or do not overlap, or the line would be much longer than there are windows."""
    kernel = weight.shape[2:]
    spans = [step * (k - 1) for k, step in zip(kernel, steps)]
    if max(strides) > 1 or not any(spans) or any(p > s for p, s in zip(paddings, spans)):
        return None
    line = Line(x.shape[0], x.shape[2:], kernel, paddings, steps)
    return line if line.is_short() else None
