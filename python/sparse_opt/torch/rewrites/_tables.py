# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Look-ups in tables whose gradients PyTorch computes by operations of their own.

"""Look-ups in terms of `embedding`, whose gradient is dense.

Bags are sums, means and maxima of the rows of their tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


def with_dense_gradient(embedding: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns `embedding`, whose gradient holds its zeros: the update is the same."""

    @functools.wraps(embedding)
    def run(
        weight: torch.Tensor,
        input: torch.Tensor,
        padding_idx: int = -1,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> torch.Tensor:
        rows = embedding(weight, input, padding_idx, False, False)
        if scale_grad_by_freq and rows.requires_grad:
            indices = input.flatten()
            equal = (indices.unsqueeze(1) == indices).sum(1)
            counts = equal.to(rows.dtype).view(*input.shape, 1)
            register: Any = rows.register_hook
            register(lambda gradient: gradient / counts)
        return rows

    return run


def embedding_bag(
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> torch.Tensor:
    """PyTorch's bags: of the rows of `input` [bags, tokens], or of `input` [tokens] from
    one of the `offsets` to the next. Returns [bags, features]."""
    options: dict[str, Any] = {"scale_grad_by_freq": scale_grad_by_freq}
    rows = functional.embedding(
        input, weight, padding_idx, max_norm, norm_type, **options
    )
    if input.dim() == 2 and padding_idx is None:
        is_in, counts = None, torch.full_like(input[:, :1], input.shape[1])
    else:
        is_in = _bags_of(input, offsets, include_last_offset)
        if padding_idx is not None:
            is_in = is_in & (input != padding_idx % weight.shape[0])
        counts = is_in.sum(1, keepdim=True)
    if mode == "max":
        # Of equal rows the first one has the gradient.
        largest = _among(rows, is_in, float("-inf")).max(1)[0]
        return torch.where(counts == 0, torch.zeros_like(largest), largest)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    total = _among(rows, is_in, 0.0).sum(1)
    return total / counts.clamp(min=1) if mode == "mean" else total


def _bags_of(
    input: torch.Tensor, offsets: torch.Tensor | None, include_last: bool
) -> torch.Tensor:
    """Returns which tokens are in which bag, [bags, tokens]."""
    if input.dim() == 2:
        return torch.ones_like(input, dtype=torch.bool)
    assert offsets is not None
    starts = offsets[:-1] if include_last else offsets
    places = torch.arange(input.shape[0], device=input.device)
    # The bag of a token: that of the last offset that is not behind it.
    bag = (starts <= places.unsqueeze(1)).sum(1) - 1
    is_in = bag == torch.arange(starts.shape[0], device=input.device).unsqueeze(1)
    return is_in & (places < offsets[-1]) if include_last else is_in


def _among(rows: torch.Tensor, is_in: torch.Tensor | None, other: float) -> torch.Tensor:
    """Returns the rows of each bag, [bags, tokens, features], and `other` for those that
    are not in it."""
    if is_in is None:
        return rows
    return torch.where(is_in.unsqueeze(2), rows, rows.new_full((), other))
