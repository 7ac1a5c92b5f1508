# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lowers sorting, and reductions of nothing.

"""Sorting by ranks, which compare all pairs, and regions on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.mlir import ir

from sparse_opt._errors import ExportError
from sparse_opt.jax._build import Value, create, place_of, tensor_type
from sparse_opt.jax._traced import replace

_MOST = 1024  # the elements of a line of which all pairs are compared


def lower_reduce(operation: ir.Operation) -> list[Value] | None:
    """Lowers a reduction over no dimension, in which each element is combined with the
    init, and one of no elements, which is the init."""
    count = len(operation.results)
    operands = list(operation.operands)
    shape = list(ir.RankedTensorType(operands[0].type).shape)
    if not all(shape):
        size = list(ir.RankedTensorType(operation.results[0].type).shape)
        return [_broadcast(init, size, []) for init in operands[count:]]
    if list(ir.DenseI64ArrayAttr(operation.attributes["dimensions"])):
        return None
    inits = [_broadcast(init, shape, []) for init in operands[count:]]
    return _on_arrays(operation.regions[0].blocks[0], [*inits, *operands[:count]], shape)


def _broadcast(value: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    type = ir.RankedTensorType(value.type)
    return create(
        "stablehlo.broadcast_in_dim",
        [tensor_type(shape, type.element_type)],
        [value],
        broadcast_dimensions=ir.DenseI64ArrayAttr.get(list(dims)),
    ).result


def _on_arrays(
    body: ir.Block, arguments: Sequence[Value], shape: Sequence[int]
) -> list[Value]:
    """Returns what a region of scalars returns, of arrays of one shape."""
    values: dict[Any, Value] = dict(zip(body.arguments, arguments))
    for child in body.operations:
        operation = child.operation
        if operation.name == "stablehlo.return":
            return [values[v] for v in operation.operands]
        if operation.name == "stablehlo.constant":
            constant = operation.clone()
            values[operation.result] = _broadcast(constant.result, shape, [])
            continue
        elements = [ir.RankedTensorType(r.type).element_type for r in operation.results]
        attributes = {name: operation.attributes[name] for name in operation.attributes}
        copy = create(
            operation.name,
            [tensor_type(shape, element) for element in elements],
            [values[v] for v in operation.operands],
            **attributes,
        )
        values.update(zip(operation.results, copy.results))
    raise AssertionError("expected a region that returns")


def lower_sort(operation: ir.Operation) -> list[Value]:
    """Lowers a sort to the rank of each element: how many come before it."""
    operands = list(operation.operands)
    dim = ir.IntegerAttr(operation.attributes["dimension"]).value
    shape = list(ir.RankedTensorType(operands[0].type).shape)
    length = shape[dim]
    if length > _MOST:
        raise ExportError(
            f"expected orderings of at most {_MOST} elements, but got {length}"
            f"{place_of(operation)}: sort outside of the step"
        )
    # The one before varies along `dim`, the one behind along the next dimension.
    pairs = [*shape[:dim], length, length, *shape[dim + 1 :]]
    others = [d + (d > dim) for d in range(len(shape))]
    arguments = []
    for operand in operands:
        arguments.append(_broadcast(operand, pairs, others))
        behind = [dim + 1 if d == dim else other for d, other in enumerate(others)]
        arguments.append(_broadcast(operand, pairs, behind))
    (before,) = _on_arrays(operation.regions[0].blocks[0], arguments, pairs)

    def run(before: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        return _sorted(before, arrays, dim)

    return replace(run, operation, [before, *operands])


def _sorted(
    before: jax.Array, arrays: Sequence[jax.Array], dim: int
) -> tuple[jax.Array, ...]:
    """Puts each element at its rank; equals stay in their order."""
    here = lax.broadcasted_iota(jnp.int32, before.shape, dim)
    there = lax.broadcasted_iota(jnp.int32, before.shape, dim + 1)
    earlier = before | (~jnp.swapaxes(before, dim, dim + 1) & (here < there))
    ranks = jnp.sum(earlier.astype(jnp.int32), axis=dim)
    wanted = lax.broadcasted_iota(jnp.int32, before.shape, dim)
    hits = jnp.expand_dims(ranks, dim) == wanted
    return tuple(_picked(hits, array, dim) for array in arrays)


def _picked(hits: jax.Array, array: jax.Array, dim: int) -> jax.Array:
    """Returns the one element that is hit in each line."""
    values = jnp.expand_dims(array, dim)
    if array.dtype == bool:
        return jnp.any(hits & values, axis=dim + 1)
    zero = jnp.zeros((), array.dtype)
    return jnp.sum(jnp.where(hits, values, zero), axis=dim + 1, dtype=array.dtype)
