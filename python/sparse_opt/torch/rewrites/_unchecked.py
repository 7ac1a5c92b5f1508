# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Functions of PyTorch that look at values, without that look.

"""What PyTorch checks in Python by reading tensors, which a trace cannot.

The step computes what PyTorch does after the check. A number of classes that is left
to the values stays an error, and gradients of tables are dense.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch


def is_all_true(valid: torch.Tensor, message: str) -> bool:
    """Takes the arguments of a distribution for valid."""
    return True


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """PyTorch's loss, whose variances may not be negative."""
    if not isinstance(var, torch.Tensor):
        var = var * torch.ones_like(input)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    reductions: dict[str, Callable[..., torch.Tensor]] = {
        "mean": torch.mean, "sum": torch.sum, "none": torch.clone,
    }  # fmt: skip
    return reductions[reduction](loss)


def with_classes(one_hot: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns `one_hot` for a number of classes that is given."""

    @functools.wraps(one_hot)
    def run(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        if num_classes == -1:
            raise RuntimeError("one_hot without a number of classes")
        return one_hot(tensor, num_classes)

    return run


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
        return embedding(weight, input, padding_idx, scale_grad_by_freq, False)

    return run
