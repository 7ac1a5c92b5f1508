# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Operations of PyTorch in terms of those that lower well.

"""Decompositions in front of torch-mlir's own.

Gradients of look-ups compare with an iota instead of scattering, and moments
stay in the type of their input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

aten = torch.ops.aten


def table() -> Mapping[Any, Callable[..., Any]]:
    """Returns all decompositions that a step is traced with."""
    return {
        **get_decomposition_table(),
        aten.nll_loss_backward.default: _nll_loss_backward,
        aten.var_mean.correction: _var_mean,
        aten.scatter_add.default: _scatter_add,
        aten.scatter.src: _scatter,
        aten.cumsum.default: _cumsum,
    }


def _nll_loss_backward(
    gradient: torch.Tensor,
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """-1 at the label, where PyTorch's own scatters."""
    label = target.unsqueeze(-1)
    classes = torch.arange(scores.shape[-1], dtype=target.dtype)
    if reduction == 1:  # mean
        gradient = gradient / total_weight
    if reduction == 0:  # none
        gradient = gradient.unsqueeze(-1)
    hit = (label == classes) & (label != ignore_index)
    result = torch.where(hit, -gradient, torch.zeros((), dtype=scores.dtype))
    return result if weight is None else result * weight


def _var_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two passes in the type of `x`, where torch-mlir's own computes in f64."""
    dims = list(range(x.dim())) if dim is None else [d % x.dim() for d in dim]
    count = 1
    for d in dims:
        count *= x.shape[d]
    mean = torch.sum(x, dims, keepdim=True) / count
    centred = x - mean
    divisor = max(count - (1 if correction is None else correction), 0)
    variance = torch.sum(centred * centred, dims, keepdim=True) / divisor
    if not keepdim:
        for d in sorted(dims, reverse=True):
            variance, mean = variance.squeeze(d), mean.squeeze(d)
    return variance, mean


def _scatter_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> Any:
    """A sum over the places that hit each entry (the gradient of `gather`)."""
    dim = dim % self.dim() if self.dim() else 0
    lengths = [n for d, n in enumerate(self.shape) if d != dim]
    if lengths != [n for d, n in enumerate(index.shape) if d != dim]:
        return NotImplemented
    src = src[tuple(slice(n) for n in index.shape)]
    shape = [1] * (self.dim() + 1)
    shape[dim + 1] = self.shape[dim]
    places = torch.arange(self.shape[dim], dtype=index.dtype).view(shape)
    hits = index.unsqueeze(dim + 1) == places
    zero = torch.zeros((), dtype=src.dtype)
    added = torch.where(hits, src.unsqueeze(dim + 1), zero)
    # A single place needs no sum.
    added = added.squeeze(dim) if index.shape[dim] == 1 else added.sum(dim)
    return self + added


def _scatter(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> Any:
    """Puts one place per line of `dim` (the gradient of a maximum)."""
    dim = dim % self.dim() if self.dim() else 0
    shape = [1 if d == dim else n for d, n in enumerate(self.shape)]
    if list(index.shape) != shape or list(src.shape) != shape:
        return NotImplemented
    places = torch.arange(self.shape[dim], dtype=index.dtype)
    places = places.view([-1 if d == dim else 1 for d in range(self.dim())])
    return torch.where(index == places, src, self)


def _cumsum(
    x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Sums over what is not behind each place."""
    if dtype is None:
        dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    if not x.dim():
        return x.to(dtype)
    dim = dim % x.dim()
    places = torch.arange(x.shape[dim])
    shape = [1] * (x.dim() + 1)
    shape[dim] = shape[dim + 1] = x.shape[dim]
    before = (places.unsqueeze(1) <= places).view(shape)
    return torch.where(before, x.to(dtype).unsqueeze(dim + 1), 0).sum(dim)
