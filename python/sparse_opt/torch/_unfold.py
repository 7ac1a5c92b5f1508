# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Windows of images as rows, for what has no images.

"""Copies windows: for GPUs, and for the scores that patterns are updated by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sparse_opt import _images
from sparse_opt.torch.rewrites import _windows


def rows(x: Tensor, window: Sequence[int]) -> Tensor:
    """Returns the windows of images, [images, windows, channels * places]."""
    extents = _images.extents_of(x.shape[2:], window)
    if any(e.low or e.high for e in extents):
        x = torch.nn.functional.pad(x, [n for e in reversed(extents) for n in (e.low, e.high)])
    kernel, step, stride, out = (
        [getattr(e, name) for e in extents] for name in ("kernel", "step", "stride", "out")
    )
    dims = len(extents)
    if dims <= 2 and max(kernel) > 1:
        flat = [1] * (2 - dims)
        image = x.unsqueeze(2) if dims == 1 else x
        sizes = (tuple(flat + own) for own in (kernel, step, stride))
        kernels, steps, strides = sizes
        return torch.nn.functional.unfold(image, kernels, steps, 0, strides).transpose(1, 2)
    columns = _windows.columns(x, kernel, out, stride, step)
    return columns.view(columns.shape[0], x.shape[0], -1).permute(1, 2, 0)
