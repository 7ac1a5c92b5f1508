# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The update of `torch.optim.Adafactor` without a number read from a tensor.

"""Adafactor on tensors alone.

PyTorch's own update reads norms and the step count as Python numbers, which a
traced step cannot. This is the same arithmetic, in f32 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]


def update(
    params: Tensors,
    grads: Tensors,
    row_vars: Sequence[torch.Tensor | None],
    col_vars: Sequence[torch.Tensor | None],
    variances: Sequence[torch.Tensor | None],
    steps: Tensors,
    grad_scale: Any,
    found_inf: Any,
    *,
    d: float,
    lr: torch.Tensor | float,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
    has_complex: bool,
) -> None:
    """Updates parameters and state in place, as `_single_tensor_adafactor` does."""
    for p, grad, row, col, variance, step in zip(
        params, grads, row_vars, col_vars, variances, steps
    ):
        grad = -grad if maximize else grad
        smallest = torch.finfo(p.dtype).eps if eps1 is None else eps1
        step += 1
        decay = step**beta2_decay
        rate = torch.minimum(torch.as_tensor(lr), step.rsqrt())
        alpha = rate * _rms(p).clamp(min=eps2)
        if weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        if row is not None and col is not None:
            squares = grad * grad
            row.lerp_(squares.mean(-1, keepdim=True), decay)
            col.lerp_(squares.mean(-2, keepdim=True), decay)
            estimate = row * col / row.mean(-2, keepdim=True).clamp(min=smallest)
        else:
            assert variance is not None
            variance.lerp_(grad * grad, decay)
            estimate = variance
        change = estimate.clamp(min=smallest * smallest).rsqrt() * grad
        p.sub_(change * (alpha / (_rms(change) / d).clamp(min=1.0)))


def _rms(x: torch.Tensor) -> torch.Tensor:
    return (x * x).mean().sqrt()
