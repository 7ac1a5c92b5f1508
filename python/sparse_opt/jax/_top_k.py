# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lowers the largest elements of rows.

"""`lax.top_k` as one search for a maximum after the other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxlib.mlir import ir

from sparse_opt._errors import ExportError
from sparse_opt.jax._build import Value, place_of
from sparse_opt.jax._traced import replace

_MOST = 64  # the text grows with every search


def lower_top_k(operation: ir.Operation) -> list[Value]:
    """Returns the largest elements of the rows of an array, and their places."""
    count = ir.IntegerAttr(operation.attributes["k"]).value
    if count > _MOST:
        raise ExportError(
            f"expected top_k of at most {_MOST} elements, but got {count}"
            f"{place_of(operation)}: sort outside of the step"
        )
    return replace(lambda x: _top_k(x, count), operation, list(operation.operands))


def _top_k(x: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Searches `count` times; the first of equals comes first, NaN before all."""
    last = x.ndim - 1
    places = lax.broadcasted_iota(jnp.int32, x.shape, last)
    is_float = jnp.issubdtype(x.dtype, jnp.floating)
    least = lax.full_like(x, -np.inf if is_float else np.iinfo(x.dtype).min)
    beyond = lax.full_like(places, x.shape[last])
    taken = lax.full_like(x, False, dtype=jnp.bool_)
    peaks, found = [], []
    for _ in range(count):
        left = lax.select(taken, least, x)
        peak = jnp.max(left, axis=last, keepdims=True)
        is_peak = ~taken & ((left == peak) | (left != left))
        place = jnp.min(lax.select(is_peak, places, beyond), axis=last, keepdims=True)
        taken = taken | (places == place)
        peaks.append(peak)
        found.append(place)
    return lax.concatenate(peaks, last), lax.concatenate(found, last)
