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
from torch.fx import traceback
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

from sparse_opt.torch.rewrites import _elementwise, _orderings, _windows

aten = torch.ops.aten


def table() -> Mapping[Any, Callable[..., Any]]:
    """Returns all decompositions that a step is traced with."""
    return {
        **get_decomposition_table(),
        aten.nll_loss_backward.default: _nll_loss_backward,
        aten.var_mean.correction: _var_mean,
        aten.select_backward.default: _select_backward,
        aten.constant_pad_nd.default: _constant_pad_nd,
        aten.cumsum.default: _cumsum,
        torch.ops.prims.copy_strided.default: _copy_strided,
        **_elementwise.TABLE,
        **_orderings.TABLE,
        **_windows.TABLE,
    }


class Gradients(torch.fx.Interpreter):
    """Runs a graph, with backward operations as gradients of what they belong to, and the
    line of each node kept."""

    def run_node(self, node: torch.fx.Node) -> Any:
        traceback.set_stack_trace([node.stack_trace or ""])
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        return getattr(self, node.op)(node.target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        own = _windows.GRADIENTS.get(target)
        result = own(*args, **kwargs) if own else NotImplemented
        if result is NotImplemented:
            return super().call_function(target, args, kwargs)
        return result


def _copy_strided(x: torch.Tensor, stride: Sequence[int]) -> Any:
    """A copy in rows: where elements lie is the compiler's."""
    return aten.clone(x, memory_format=torch.contiguous_format)


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
