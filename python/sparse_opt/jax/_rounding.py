# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Results of JAX's operations in float64, as roundings may change them.

"""What a rounding may do to the result of an operation: sparse_opt/torch/_rounding.py
says why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

# What tends to a limit: moved where it is a number of the program's type, too.
_BOUNDED = frozenset(("erf", "erfc", "logistic", "tanh"))
# What rounds. What chooses, moves or compares numbers does not.
_ROUNDED = _BOUNDED | frozenset((
    "add", "add_any", "atan2", "cbrt", "conv_general_dilated", "cos", "cumprod", "cumsum",
    "div", "dot_general", "erf_inv", "exp", "exp2", "expm1", "integer_pow", "log", "log1p",
    "mul", "pow", "reduce_prod", "reduce_sum", "rsqrt", "sin", "sqrt", "square", "sub",
    "tan",
))  # fmt: skip


def moved(equation: Any, results: Sequence[Any], attempt: Any) -> list[Any]:
    """Returns results in float64 as an operation may have them in its own types.

    Args:
      attempt: which changes, an integer of 64 bits; equal numbers change alike.
    """
    if equation.primitive.name not in _ROUNDED:
        return list(results)
    is_bounded = equation.primitive.name in _BOUNDED
    return [
        _moved(result, variable.aval.dtype, attempt, is_bounded)
        for result, variable in zip(results, equation.outvars)
    ]


def _moved(exact: Any, dtype: Any, attempt: Any, is_bounded: bool) -> Any:
    if exact.dtype != jnp.float64 or not jnp.issubdtype(dtype, jnp.floating):
        return exact
    # A number in [-0.5, 0.5) for each: its bits, mixed.
    bits = lax.bitcast_convert_type(exact, jnp.uint64) ^ attempt
    for _ in range(2):
        bits = bits * jnp.uint64(0x9E3779B97F4A7C15)
        bits = bits ^ (bits >> 32)
    noise = (bits >> 12).astype(jnp.float64) * 2.0**-52 - 0.5
    # Of a type, `eps` is two roundoffs.
    change = noise * float(jnp.finfo(dtype).eps) * exact  # type: ignore[no-untyped-call]
    if not is_bounded:
        change = jnp.where(exact.astype(dtype).astype(jnp.float64) == exact, 0.0, change)
    return exact + change
