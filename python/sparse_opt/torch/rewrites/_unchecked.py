# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Functions of PyTorch that look at values, without that look.

"""What PyTorch checks in Python by reading tensors, which a trace cannot.

The step computes what PyTorch does after the check. A number of classes that is left
to the values stays an error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


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


def with_cumulative_average(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the `forward` of BatchNorm, which counts in a tensor without a momentum:
    its statistics are means over all batches."""

    @functools.wraps(forward)
    def run(self: Any, input: torch.Tensor) -> Any:
        count = self.num_batches_tracked
        if self.momentum is not None or not self.training or count is None:
            return forward(self, input)
        self._check_input_dim(input)
        with torch.no_grad():
            count.add_(1)
            share = 1.0 / count.double()
            held = input.to(self.running_mean.dtype)
            var, mean = torch.var_mean(held, [0, *range(2, input.dim())])
            for running, now in ((self.running_mean, mean), (self.running_var, var)):
                running.copy_((1.0 - share) * running + share * now)
        return functional.batch_norm(
            input, None, None, self.weight, self.bias, True, 0.0, self.eps
        )

    return run
