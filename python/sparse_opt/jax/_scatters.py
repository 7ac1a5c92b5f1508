# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lowers writes at places that do not add whole rows.

"""Scatters that set, multiply, or take an extreme, and those of windows.

Each element of a window becomes an update of a row of its own. The last update of a
row is put; what is combined is reduced over all updates, with what changes nothing in
the place of those of other rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from sparse_opt._errors import ExportError
from sparse_opt.jax._build import Value, place_of
from sparse_opt.jax._traced import replace

_KINDS = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "multiply",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
}


def kind_of(scatter: ir.Operation) -> str:
    """Returns what `scatter` does with what falls on one place.

    Raises:
      ExportError: it is something else.
    """
    body = scatter.regions[0].blocks[0]
    operations = list(body.operations)
    returned = operations[-1].operands[0]
    if len(operations) == 1 and returned == body.arguments[1]:
        return "set"
    combine = operations[0].operation
    is_known = combine.name in _KINDS and set(combine.operands) == set(body.arguments)
    if is_known and len(operations) == 2 and returned == combine.result:
        return _KINDS[combine.name]
    raise ExportError(
        "expected a scatter that adds, multiplies, sets or takes an extreme, but got one"
        f" by '{combine.name}'{place_of(scatter)}: read with x[i], compute, and write"
        " with x.at[i].set(...)"
    )


def lower_any_scatter(operation: ir.Operation) -> list[Value]:
    """Lowers a scatter of any kind, with windows of any size."""
    if len(operation.operands) != 3:
        raise ExportError(
            f"expected a scatter of one array, but got several{place_of(operation)}:"
            " write to one after the other"
        )
    numbers = stablehlo.ScatterDimensionNumbers(
        operation.attributes["scatter_dimension_numbers"]
    )
    kind = kind_of(operation)

    def run(x: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
        return _scatter(x, indices, updates, numbers, kind)

    return replace(run, operation, list(operation.operands))


def _scatter(
    x: jax.Array, indices: jax.Array, updates: jax.Array, numbers: Any, kind: str
) -> jax.Array:
    indexed = list(numbers.scattered_dims_to_operand_dims)
    batched = list(numbers.input_batching_dims)
    window_dims = list(numbers.update_window_dims)
    inserted = list(numbers.inserted_window_dims)
    inner = [d for d in range(x.ndim) if d not in inserted + batched]
    windows = dict(zip(inner, window_dims))
    starts = _starts(indices, numbers, indexed, batched)
    # The dimensions of the operand that an index or the size of a window restricts.
    places = [
        d
        for d in range(x.ndim)
        if d in indexed + batched or updates.shape[windows[d]] != x.shape[d]
    ]
    whole = [d for d in range(x.ndim) if d not in places]
    # Updates as [scattered..., elements of windows..., whole...].
    outer = [d for d in range(updates.ndim) if d not in window_dims]
    inside = [d for d in places if d in windows]
    order = outer + [windows[d] for d in inside] + [windows[d] for d in whole]
    updates = updates.transpose(order)
    sizes = [updates.shape[len(outer) + i] for i in range(len(inside))]
    shape = [*updates.shape[: len(outer)], *sizes]
    rows = _rows(x.shape, starts, places, dict(zip(inside, range(len(inside)))), shape)
    num_rows = math.prod(x.shape[d] for d in places)
    moved = places + whole
    flat = x.transpose(moved).reshape(num_rows, -1)
    values = updates.reshape(rows.size, -1)
    flat = _combine(flat, rows.reshape(-1), values, kind)
    back = [moved.index(d) for d in range(x.ndim)]
    return flat.reshape([x.shape[d] for d in moved]).transpose(back)


def _starts(
    indices: jax.Array, numbers: Any, indexed: Sequence[int], batched: Sequence[int]
) -> dict[int, jax.Array]:
    """Returns where windows begin, by dimension of the operand."""
    vector_dim = numbers.index_vector_dim
    if vector_dim == indices.ndim:
        indices = indices[..., None]
    columns = jnp.moveaxis(indices, vector_dim, -1)
    starts = {d: columns[..., i].astype(jnp.int32) for i, d in enumerate(indexed)}
    shape = columns.shape[:-1]
    for d, index_dim in zip(batched, numbers.scatter_indices_batching_dims):
        place = index_dim - (index_dim > vector_dim)
        starts[d] = lax.broadcasted_iota(jnp.int32, shape, place)
    return starts


def _rows(
    sizes: Sequence[int],
    starts: dict[int, jax.Array],
    places: Sequence[int],
    inside: dict[int, int],
    shape: Sequence[int],
) -> jax.Array:
    """Returns the row of each update among those of `places`, or -1 where its window
    is not inside of the operand."""
    rank = len(shape) - len(inside)
    row = jnp.zeros(shape, jnp.int32)
    is_inside = jnp.ones(shape, bool)
    for d in places:
        length = shape[rank + inside[d]] if d in inside else 1
        place = jnp.zeros(shape, jnp.int32)
        if d in starts:
            first = starts[d].reshape([*starts[d].shape] + [1] * len(inside))
            first = jnp.broadcast_to(first, shape)
            is_inside &= (first >= 0) & (first <= sizes[d] - length)
            place = place + first
        if d in inside:
            place = place + lax.broadcasted_iota(jnp.int32, tuple(shape), rank + inside[d])
        row = row * sizes[d] + place
    return jnp.where(is_inside, row, -1)


def _combine(x: jax.Array, rows: jax.Array, values: jax.Array, kind: str) -> jax.Array:
    """Combines rows of `x` with the updates that name them."""
    entries = lax.broadcasted_iota(jnp.int32, (x.shape[0], rows.size), 1)
    hits = rows[None, :] == lax.broadcasted_iota(jnp.int32, entries.shape, 0)
    if kind == "set":
        last = jnp.max(jnp.where(hits, entries, -1), axis=1)
        chosen = values.at[jnp.maximum(last, 0)].get(mode="clip")
        return jnp.where((last >= 0)[:, None], chosen, x)
    neutral, along, join = _reductions(x.dtype)[kind]
    masked = jnp.where(hits[:, :, None], values[None], jnp.asarray(neutral, x.dtype))
    return join(x, along(masked, 1))


def _reductions(
    dtype: Any,
) -> dict[str, tuple[Any, Callable[..., jax.Array], Callable[..., jax.Array]]]:
    """Returns for each kind what changes nothing, the reduction, and that of two."""
    limits: tuple[Any, Any] = (-np.inf, np.inf)
    if jnp.issubdtype(dtype, jnp.integer):
        limits = np.iinfo(dtype).min, np.iinfo(dtype).max
    return {
        "add": (0, lambda x, d: jnp.sum(x, d, dtype=dtype), lax.add),
        "multiply": (1, _product, lax.mul),
        "max": (limits[0], jnp.max, lax.max),
        "min": (limits[1], jnp.min, lax.min),
    }


def _product(x: jax.Array, dim: int) -> jax.Array:
    """A product of halves, as long as there are some."""
    while (length := x.shape[dim]) > 1:
        half = length // 2
        rest = lax.slice_in_dim(x, 2 * half, length, axis=dim)
        low = lax.slice_in_dim(x, 0, half, axis=dim)
        x = low * lax.slice_in_dim(x, half, 2 * half, axis=dim)
        x = lax.concatenate([x, rest], dim) if length % 2 else x
    return lax.squeeze(x, [dim])
