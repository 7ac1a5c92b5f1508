# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Operations of PyTorch in terms of those that lower well.

"""Decompositions in front of torch-mlir's own.

Gradients of look-ups compare with an iota instead of scattering, and moments
stay in the type of their input.
"""

from __future__ import annotations

import math
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
        aten.select_backward.default: _select_backward,
        aten.constant_pad_nd.default: _constant_pad_nd,
        aten.scatter_add.default: _scatter_add,
        aten.scatter.src: _scatter,
        aten.scatter.value: _scatter_value,
        aten.cumsum.default: _cumsum,
        aten.topk.default: _topk,
        aten.sort.default: _sort,
        aten.sort.stable: _stable_sort,
    }


# The graph grows with every element that is searched.
MOST_ORDERED = 64


def _topk(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """One search for a maximum after the other; of equals the first comes first."""
    if k > MOST_ORDERED or not x.dim() or x.dtype == torch.bool:
        return NotImplemented
    dim = dim % x.dim()
    # Negation turns the order around, that of integers but for the smallest.
    keys = x if largest else (-x if x.dtype.is_floating_point else ~x)
    places = torch.arange(x.shape[dim])
    places = places.view([-1 if d == dim else 1 for d in range(x.dim())])
    lowest = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    taken = torch.zeros_like(x, dtype=torch.bool)
    values, found = [], []
    for _ in range(k):
        left = torch.where(taken, lowest, keys)
        peak = left.amax(dim, keepdim=True)
        # NaN comes first, and equals nothing.
        is_peak = ~taken & ((left == peak) | (left != left))
        place = torch.where(is_peak, places, x.shape[dim]).amin(dim, keepdim=True)
        hit = places == place
        values.append(torch.where(hit, x, 0).sum(dim, keepdim=True).to(x.dtype))
        found.append(place)
        taken = taken | hit
    return torch.cat(values, dim), torch.cat(found, dim)


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    length = x.shape[dim] if x.dim() else 0
    return _topk(x, length, dim, descending) if length else NotImplemented


def _stable_sort(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    return _sort(x, dim, descending)


def _select_backward(
    gradient: torch.Tensor, sizes: list[int], dim: int, index: int
) -> Any:
    """A slice of zeros is written, where PyTorch's own compares with an iota."""
    index = index % sizes[dim]
    line = gradient.unsqueeze(dim)
    return aten.slice_backward(line, sizes, dim, index, index + 1, 1)


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


def _constant_pad_nd(x: torch.Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    """Slices for what is below zero: MLIR takes a padding that leaves the shape as it
    is, such as a shift, for none."""
    if all(n >= 0 for n in pad):
        return NotImplemented
    for i, (low, high) in enumerate(zip(pad[::2], pad[1::2])):
        dim = x.dim() - 1 - i
        start = max(-low, 0)
        x = x.narrow(dim, start, x.shape[dim] + min(high, 0) - start)
    rest = [max(n, 0) for n in pad]
    return aten.constant_pad_nd(x, rest, value) if any(rest) else x.clone()


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
    """Puts a few places per line of `dim` (the gradient of a maximum, or of `topk`),
    one after the other."""
    dim = dim % self.dim() if self.dim() else 0
    if not _is_few(self, dim, index):
        return NotImplemented
    places = torch.arange(self.shape[dim], dtype=index.dtype)
    places = places.view([-1 if d == dim else 1 for d in range(self.dim())])
    for i in range(index.shape[dim]):
        place, value = index.narrow(dim, i, 1), src.narrow(dim, i, 1)
        lines = tuple(slice(n) for n in place.shape)
        self = torch.where(place == places, value[lines], self)
    return self


def _scatter_value(
    self: torch.Tensor, dim: int, index: torch.Tensor, value: Any
) -> Any:
    dim = dim % self.dim() if self.dim() else 0
    if not _is_few(self, dim, index):
        return NotImplemented
    return _scatter(self, dim, index, torch.full_like(index, value, dtype=self.dtype))


def _is_few(self: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    """Returns whether `index` has few places for each line of `dim`."""
    lengths = [n for d, n in enumerate(self.shape) if d != dim]
    return (
        0 < self.dim() == index.dim()
        and index.shape[dim] <= MOST_ORDERED
        and lengths == [n for d, n in enumerate(index.shape) if d != dim]
    )


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
