# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Element-wise operations that torch-mlir has not, or has otherwise.

"""Element-wise operations in terms of others.

NaN goes through all of them as it does in PyTorch: a comparison with NaN is false.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def _maximum(x: torch.Tensor, y: torch.Tensor) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    return torch.where((x > y) | (x != x), x, y)


def _minimum(x: torch.Tensor, y: torch.Tensor) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    return torch.where((x < y) | (x != x), x, y)


def _clamp(x: torch.Tensor, min: Any = None, max: Any = None) -> Any:
    """NaN is neither below nor above a bound."""
    dtype = x.dtype
    for bound in (min, max):
        dtype = dtype if bound is None else torch.result_type(x.to(dtype), bound)
    if not dtype.is_floating_point:
        return _clamp_integers(x, min, max)
    x = x.to(dtype)
    if min is not None:
        x = torch.where(x < min, torch.full((), min, dtype=dtype), x)
    if max is not None:
        x = torch.where(x > max, torch.full((), max, dtype=dtype), x)
    return x


def _clamp_integers(x: torch.Tensor, *bounds: int | None) -> Any:
    """A bound outside of a type is none, or its end."""
    limits = torch.iinfo(x.dtype)
    within = [b if b is None else min(max(b, limits.min), limits.max) for b in bounds]
    return NotImplemented if within == list(bounds) else aten.clamp(x, *within)


def _clamp_tensor(x: torch.Tensor, min: Any = None, max: Any = None) -> torch.Tensor:
    if min is not None:
        x = torch.maximum(*_promoted(x, min))
    if max is not None:
        x = torch.minimum(*_promoted(x, max))
    return x


def _promoted(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.result_type(x, y)
    return x.to(dtype), y.to(dtype)


def _hardtanh(x: torch.Tensor, min_val: Any = -1, max_val: Any = 1) -> Any:
    return _clamp(x, min_val, max_val)


def _is_finite(x: torch.Tensor) -> Any:
    if not x.dtype.is_floating_point:
        return torch.ones_like(x, dtype=torch.bool)
    return x.abs() < math.inf


def _fmod(x: torch.Tensor, y: Any) -> Any:
    """What the quotient leaves, with the sign of `x`."""
    y = torch.full((), y, dtype=torch.result_type(x, y)) if not _is_tensor(y) else y
    x, y = _promoted(x, y)
    if not x.dtype.is_floating_point:
        return x - torch.div(x, y, rounding_mode="trunc") * y
    return aten.fmod.Tensor(x, y)


def _fmod_of_number(x: torch.Tensor, y: Any) -> Any:
    return _fmod(x, y)


def _fmod_of_integers(x: torch.Tensor, y: torch.Tensor) -> Any:
    is_float = torch.result_type(x, y).is_floating_point
    return NotImplemented if is_float else _fmod(x, y)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _signbit(x: torch.Tensor) -> torch.Tensor:
    """Below 0, or the 0 of which the reciprocal is."""
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | ((x == 0) & (torch.reciprocal(x) < 0))


def _copysign(x: torch.Tensor, y: Any) -> torch.Tensor:
    size = x.abs()
    size = size if size.dtype.is_floating_point else size.to(torch.get_default_dtype())
    if not _is_tensor(y):
        return -size if math.copysign(1.0, y) < 0 else size
    return torch.where(_signbit(y), -size, size)


def _of_halves(operation: Callable[..., Any], rewrite: Any = None) -> Callable[..., Any]:
    """Computes an operation on 16-bit floats in f32 and rounds once, as PyTorch does, where
    torch-mlir, or a rewrite, makes several operations of it."""

    def wide(x: torch.Tensor, *others: Any, **options: Any) -> Any:
        if x.dtype not in (torch.bfloat16, torch.float16):
            return NotImplemented if rewrite is None else rewrite(x, *others, **options)
        others = tuple(y.float() if _is_tensor(y) else y for y in others)
        return operation(x.float(), *others, **options).to(x.dtype)

    return wide


def _hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The larger one is outside of the root, so that no square overflows."""
    x, y = x.abs(), y.abs()
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = torch.where(large == 0, 0.0, small / large)
    # An infinity has no ratio to another.
    length = large * torch.sqrt(1 + ratio * ratio)
    return torch.where(large == math.inf, large, length)


def _xlogy(x: Any, y: Any) -> torch.Tensor:
    """0 where `x` is 0, whatever the logarithm is, but for NaN."""
    x, y = (v if _is_tensor(v) else torch.tensor(v) for v in (x, y))
    dtype = torch.result_type(x, y)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    x, y = x.to(dtype), y.to(dtype)
    product = torch.where(x == 0, 0.0, x * torch.log(y))
    return torch.where(y != y, y, product)


def _bitwise(operation: Any) -> Callable[..., Any]:
    def of_number(x: torch.Tensor, number: Any) -> torch.Tensor:
        dtype = torch.result_type(x, number)
        result: torch.Tensor = operation(x.to(dtype), torch.full((), number, dtype=dtype))
        return result

    return of_number


def _pow(x: torch.Tensor, exponent: Any) -> Any:
    """Powers of integers, which torch-mlir has of floats alone, by squaring."""
    if x.dtype.is_floating_point or not isinstance(exponent, int) or exponent < 0:
        return NotImplemented
    dtype = torch.result_type(x, exponent)
    power, square = torch.ones_like(x, dtype=dtype), x.to(dtype)
    while exponent:
        power = power * square if exponent % 2 else power
        exponent //= 2
        square = square * square if exponent else square
    return power


def _gelu(x: torch.Tensor, approximate: str = "none") -> Any:
    if approximate != "tanh":
        return NotImplemented
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))


# Terms of Stirling's series for the logarithm of the gamma function, and of that of its
# derivative, by rising powers of 1 / x^2.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_SHIFT = 8


def _shifted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns `x` of at least `_SHIFT`, whether that is another, and 1 / x^2."""
    is_small = x < _SHIFT
    large = torch.where(is_small, x + _SHIFT, x)
    return large, is_small, 1 / (large * large)


def _series(terms: Any, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x)
    for term in reversed(terms):
        total = total * x + term
    return total


def _reflected(
    x: torch.Tensor,
) -> tuple[torch.dtype, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the type of a result, x in f64, whether it is below 1/2, and 1 - x there."""
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    x = x.to(torch.float64)
    is_low = x < 0.5
    return dtype, x, is_low, torch.where(is_low, 1 - x, x)


def _lgamma(x: torch.Tensor) -> torch.Tensor:
    """Stirling's series in f64 behind 8, a product before, a reflection below 1/2."""
    dtype, x, is_low, y = _reflected(x)
    large, is_small, square = _shifted(y)
    product = torch.ones_like(y)
    for i in range(_SHIFT):
        product = product * torch.where(is_small, y + i, 1.0)
    value = (large - 0.5) * torch.log(large) - large + 0.5 * math.log(2 * math.pi)
    value = value + _series(_STIRLING, square) / large - torch.log(product)
    sine = torch.sin(math.pi * (x - torch.floor(x))).abs()
    mirrored = math.log(math.pi) - torch.log(sine) - value
    result = torch.where(is_low, mirrored, value)
    return torch.where(x.abs() == math.inf, math.inf, result).to(dtype)


def _digamma(x: torch.Tensor) -> torch.Tensor:
    """The derivative of `lgamma`, by the same steps."""
    dtype, x, is_low, y = _reflected(x)
    large, is_small, square = _shifted(y)
    steps = torch.zeros_like(y)
    for i in range(_SHIFT):
        steps = steps + torch.where(is_small, 1 / (y + i), 0.0)
    terms = [(2 * i + 1) * term for i, term in enumerate(_STIRLING)]
    value = torch.log(large) - 0.5 / large - _series(terms, square) * square - steps
    part = math.pi * (x - torch.floor(x))
    mirrored = value - math.pi * torch.cos(part) / torch.sin(part)
    return torch.where(is_low, mirrored, value).to(dtype)


def _cdist(
    x: torch.Tensor, y: torch.Tensor, p: float, compute_mode: int | None = None
) -> torch.Tensor:
    """Distances of all rows to all rows, by their differences."""
    sizes = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (sizes != 0).to(x.dtype).sum(-1)
    if p == 1:
        return sizes.sum(-1)
    if p == math.inf:
        return sizes.amax(-1)
    if p == 2:
        return torch.sqrt((sizes * sizes).sum(-1))
    return torch.pow(torch.pow(sizes, p).sum(-1), 1 / p)


def _cdist_backward(
    gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, p: float, distance: torch.Tensor
) -> torch.Tensor:
    """Nothing where rows are equal."""
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    gradient, distance = gradient.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        each = gradient * torch.sign(difference)
    elif p == math.inf:
        is_largest = difference.abs() == distance
        each = torch.where(is_largest, gradient * torch.sign(difference), 0.0)
    else:
        ratio = difference.abs() / distance
        power = ratio if p == 2 else torch.pow(ratio, p - 1)
        each = gradient * torch.sign(difference) * power
        each = torch.where((distance == 0) | (difference == 0), 0.0, each)
    return each.sum(-2)


TABLE: dict[Any, Callable[..., Any]] = {
    aten.maximum.default: _maximum,
    aten.minimum.default: _minimum,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp_tensor,
    aten.hardtanh.default: _hardtanh,
    aten.isfinite.default: _is_finite,
    aten.fmod.Scalar: _fmod_of_number,
    aten.fmod.Tensor: _fmod_of_integers,
    aten.signbit.default: _signbit,
    aten.copysign.Tensor: _copysign,
    aten.copysign.Scalar: _copysign,
    aten.elu.default: _of_halves(aten.elu),
    aten.hypot.default: _of_halves(aten.hypot, _hypot),
    aten.logaddexp.default: _of_halves(aten.logaddexp),
    aten.xlogy.Tensor: _xlogy,
    aten.xlogy.Scalar_Self: _xlogy,
    aten.xlogy.Scalar_Other: _xlogy,
    aten.bitwise_or.Scalar: _bitwise(torch.bitwise_or),
    aten.bitwise_xor.Scalar: _bitwise(torch.bitwise_xor),
    aten.pow.Tensor_Scalar: _pow,
    aten.gelu.default: _of_halves(aten.gelu, _gelu),
    aten.lgamma.default: _lgamma,
    aten.digamma.default: _digamma,
    aten._cdist_forward.default: _cdist,
    aten._cdist_backward.default: _cdist_backward,
}
