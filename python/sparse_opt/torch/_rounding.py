# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Results of PyTorch's operations in float64, as roundings may change them.

"""What a rounding may do to the result of an operation.

Where a function is within a roundoff of its limit, float32 often has the limit itself,
and float64 next to nothing else: what the program computes of the rest (`1 - tanh(x)^2`)
is as good as 0 in both, but an optimizer that divides by the size of a gradient makes
whole steps of it. So results in float64 are moved at random by up to a roundoff of the
type that the program computes with (Monte Carlo arithmetic: D. S. Parker, UCLA, 1997).
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

# What tends to a limit: moved where it is a number of the program's type, too.
_BOUNDED = frozenset((
    aten._log_softmax, aten._softmax, aten.erf, aten.gelu, aten.log_sigmoid_forward,
    aten.logsumexp, aten.sigmoid, aten.silu, aten.softplus, aten.tanh,
))  # fmt: skip
# Of these an error is as large as one of 1.
_LOGARITHMS = frozenset((aten._log_softmax, aten.logsumexp))
# What rounds. What chooses, moves or compares numbers does not.
_ROUNDED = _BOUNDED | frozenset((
    aten._log_softmax_backward_data, aten._softmax_backward_data, aten.add, aten.addcdiv,
    aten.addcmul, aten.addmm, aten.addmv, aten.baddbmm, aten.bmm, aten.convolution,
    aten.convolution_backward, aten.cos, aten.cumsum, aten.div, aten.dot, aten.elu, aten.exp,
    aten.expm1, aten.gelu_backward, aten.lerp, aten.linalg_vector_norm, aten.log, aten.log1p,
    aten.mean, aten.mm, aten.mul, aten.mv, aten.native_batch_norm, aten.native_group_norm,
    aten.native_layer_norm, aten.native_layer_norm_backward, aten.pow, aten.reciprocal,
    aten.rsqrt, aten.rsub, aten.sigmoid_backward, aten.silu_backward, aten.sin, aten.sqrt,
    aten.sub, aten.sum, aten.tanh_backward, aten.var, aten.var_mean,
))  # fmt: skip


class Rounding:
    """Moves results by up to a roundoff.

    Args:
      seed: of the changes; equal numbers change alike.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def moved(self, func: Any, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Returns a result in float64 as an operation of a type may have it.

        What is a number of that type was not rounded.
        """
        operation = getattr(func, "overloadpacket", None)
        if operation not in _ROUNDED or exact.dtype != torch.float64:
            return exact
        size = exact.abs() + 1 if operation in _LOGARITHMS else exact
        # Of a type, `eps` is two roundoffs.
        change = self._noise(exact) * torch.finfo(dtype).eps * size
        if operation not in _BOUNDED:
            change = torch.where(exact.to(dtype).double() == exact, 0.0, change)
        return exact + change

    def _noise(self, exact: torch.Tensor) -> torch.Tensor:
        """Returns a number in [-0.5, 0.5) for each: its bits, mixed."""
        bits = exact.contiguous().view(torch.int64) ^ (self._seed * 0x2545F491)
        for _ in range(2):
            bits = bits * -0x61C8864680B583EB
            bits = bits ^ (bits >> 32)
        return (bits & (2**52 - 1)).double() * 2.0**-52 - 0.5
