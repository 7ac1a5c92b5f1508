# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Convolutions of stride one in steps, of images that lie in one line.

"""Which convolutions of a step read windows in a line, and the products that they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sparse_opt import _lines
from sparse_opt._lines import Extent

MOST_WASTE = 1.25
"""Columns of a product, at most, as a multiple of the windows that are there to stay."""

_ARRAYS = _lines.Arrays(
    cat=lambda parts, dim: torch.cat(list(parts), dim),
    zeros=lambda like, shape: like.new_zeros(shape),
    pick=lambda x, dim, first, count, step: torch.ops.aten.slice.Tensor(
        x, dim, first, first + (count - 1) * step + 1, step
    ),
)


class Line(_lines.Line):
    """The line of tensors."""

    def is_short(self) -> bool:
        """Whether few columns are none of a window."""
        return self.columns <= MOST_WASTE * self.images * math.prod(self.out)

    def convolve(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.split(weight.flatten(1) @ self.windows(x))
        return y.contiguous()

    def gradients(
        self, gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns those of `x` and of `weight`."""
        line, own = self.gradient_line(gradient)
        of_weight = (own @ self.windows(x).transpose(0, 1)).reshape(weight.shape)
        windows = weight.flatten(1).transpose(0, 1) @ line
        return self.sum_windows(windows).contiguous(), of_weight


def find(
    x: torch.Tensor,
    weight: torch.Tensor,
    strides: Sequence[int],
    paddings: Sequence[int],
    steps: Sequence[int],
) -> Line | None:
    """Returns the line of a convolution's images; None where its windows are no slices of one,
    or do not overlap, or the line would be much longer than there are windows."""
    extents = [
        Extent(n, k, padding, padding, stride, step)
        for n, k, padding, stride, step in zip(
            x.shape[2:], weight.shape[2:], paddings, strides, steps
        )
    ]
    spans = [e.span for e in extents]
    if max(strides) > 1 or not any(spans) or any(p > s for p, s in zip(paddings, spans)):
        return None
    line = Line(_ARRAYS, x.shape[0], extents)
    return line if line.is_short() else None
