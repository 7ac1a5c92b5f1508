# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lowers look-ups by index and their gradients.

"""Gathers and scatter-adds of whole rows, in one form each."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from sparse_opt.jax._build import (
    Value,
    add_scalars,
    create,
    elementwise,
    empty,
    generic,
    index_type,
    is_unsigned,
    is_zero,
    loop_index,
    multiply_scalars,
    reshape,
    scalar,
    splat,
    tensor_type,
    transpose,
    zeros,
)
from sparse_opt.jax._scatters import kind_of


def _index_columns(
    indices: Value, vector_dim: int, num_columns: int
) -> list[Value]:
    """Returns the components of the index vectors `indices`, one tensor each."""
    type = ir.RankedTensorType(indices.type)
    shape = list(type.shape)
    integer = ir.IntegerType(type.element_type)
    if integer.is_unsigned or integer.width < 32:
        # What the ids are compared with must fit their type.
        signless = tensor_type(shape, ir.IntegerType.get_signless(32))
        indices = create("stablehlo.convert", [signless], [indices]).result
    if vector_dim == len(shape):
        return [indices]
    column_shape = shape[:vector_dim] + shape[vector_dim + 1 :]
    if num_columns == 1:
        return [reshape(indices, column_shape)]

    # Most often the vectors were just put together.
    owner = indices.owner
    if (
        not isinstance(owner, ir.Block)
        and owner.name == "stablehlo.concatenate"
        and len(owner.operands) == num_columns
        and ir.IntegerAttr(owner.attributes["dimension"]).value == vector_dim
    ):
        return [reshape(column, column_shape) for column in owner.operands]

    columns = []
    element = ir.RankedTensorType(indices.type).element_type
    for i in range(num_columns):
        start = [i if d == vector_dim else 0 for d in range(len(shape))]
        limit = [i + 1 if d == vector_dim else n for d, n in enumerate(shape)]
        column = create(
            "stablehlo.slice",
            [tensor_type([b - a for a, b in zip(start, limit)], element)],
            [indices],
            start_indices=ir.DenseI64ArrayAttr.get(start),
            limit_indices=ir.DenseI64ArrayAttr.get(limit),
            strides=ir.DenseI64ArrayAttr.get([1] * len(shape)),
        ).result
        columns.append(reshape(column, column_shape))
    return columns


def lower_gather(operation: ir.Operation) -> list[Value] | None:
    """Lowers a gather of whole rows to one generic.

    The indices are operands, already inside the bounds, so the body is nothing
    but the address:

        %rows = linalg.generic {
            indexing_maps = [(s, h) -> (s), (s, h) -> (s, h)],
            iterator_types = ["parallel", "parallel"]}
            ins(%ids : tensor<SxI>) outs(%empty : tensor<SxHxT>) {
        ^bb0(%id: I, %out: T):
          %row = arith.index_cast %id : I to index
          %col = linalg.index 1 : index
          %x = tensor.extract %table[%row, %col] : tensor<VxHxT>
          linalg.yield %x : T
        }

    An operand dimension is indexed (a slice of one), batched, or taken whole;
    gathers of wider slices are left to StableHLO's own lowering.
    """
    table, indices = operation.operands
    table_type = ir.RankedTensorType(table.type)
    result_type = ir.RankedTensorType(operation.result.type)
    numbers = stablehlo.GatherDimensionNumbers(
        operation.attributes["dimension_numbers"]
    )
    sizes = list(ir.DenseI64ArrayAttr(operation.attributes["slice_sizes"]))
    indexed = list(numbers.start_index_map)
    batched = list(numbers.operand_batching_dims)
    whole = [d for d in range(table_type.rank) if d not in indexed + batched]
    if is_unsigned(table_type.element_type):
        return None
    if any(sizes[d] != 1 for d in indexed):
        return None
    if any(sizes[d] != table_type.shape[d] for d in whole):
        return None

    offset_dims = list(numbers.offset_dims)
    index_dims = [d for d in range(result_type.rank) if d not in offset_dims]
    vector_dim = numbers.index_vector_dim
    kept = [
        d
        for d in range(table_type.rank)
        if d not in list(numbers.collapsed_slice_dims) + batched
    ]

    columns = []
    for dim, column in zip(indexed, _index_columns(indices, vector_dim, len(indexed))):
        low, high = splat(column, 0), splat(column, table_type.shape[dim] - 1)
        columns.append(
            create("stablehlo.clamp", [column.type], [low, column, high]).result
        )

    # The loop of each batched and whole dimension of the table.
    loops = {}
    for dim, index_dim in zip(batched, numbers.start_indices_batching_dims):
        loops[dim] = index_dims[index_dim - (index_dim > vector_dim)]
    for dim, offset_dim in zip(kept, offset_dims):
        if dim in whole:
            loops[dim] = offset_dim

    def body(*scalars: Value) -> Value:
        address: list[Value] = []
        for dim in range(table_type.rank):
            if dim in indexed:
                index = scalars[indexed.index(dim)]
                address.append(
                    create("arith.index_cast", [index_type()], [index]).result
                )
            else:
                address.append(loop_index(loops[dim]))
        return create(
            "tensor.extract", [table_type.element_type], [table, *address]
        ).result

    init = empty(result_type.shape, result_type.element_type)
    dims = [index_dims] * len(columns) + [list(range(result_type.rank))]
    return [generic(columns, init, dims, 0, body)]


def lower_scatter(operation: ir.Operation) -> list[Value] | None:
    """Lowers a scatter-add of whole rows, the gradient of a gather; no other one.

    It is the product of a one-hot matrix with the updates, in this one form, of
    which the compiler makes `bsr.scatter_add`: a product adds 0 times infinity,
    NaN, to rows that nothing is added to. All scatter dimensions are one loop `s`,
    the rows of all batches `v`, and what a row has `h`:

        %hot = linalg.generic {
            indexing_maps = [(s, v) -> (s), (s, v) -> (s, v)],
            iterator_types = ["parallel", "parallel"]}
            ins(%ids : tensor<SxI>) outs(%empty : tensor<SxVxT>) {
        ^bb0(%id: I, %out: T):
          %i = linalg.index 1 : index
          %v = arith.index_cast %i : index to I
          %eq = arith.cmpi eq, %v, %id : I
          %x = arith.select %eq, %one, %zero : T
          linalg.yield %x : T
        }
        %sum = linalg.generic {
            indexing_maps = [(v, h, s) -> (s, v), (v, h, s) -> (s, h),
                             (v, h, s) -> (v, h)],
            iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%hot, %updates : tensor<SxVxT>, tensor<SxHxT>)
            outs(%zeros : tensor<VxHxT>) {
        ^bb0(%a: T, %b: T, %out: T):
          %ab = arith.mulf %a, %b : T
          %x = arith.addf %out, %ab : T
          linalg.yield %x : T
        }

    With one update a batch nothing is summed, and it is one generic:
    `select(index(v) == id, update, 0)`. Ids out of bounds match no index, so
    that their updates are dropped, as they must be.
    """
    if kind_of(operation) != "add" or len(operation.operands) != 3:
        return None
    operand, indices, updates = operation.operands
    type = ir.RankedTensorType(operand.type)
    element = type.element_type
    numbers = stablehlo.ScatterDimensionNumbers(
        operation.attributes["scatter_dimension_numbers"]
    )
    indexed = list(numbers.scattered_dims_to_operand_dims)
    batched = list(numbers.input_batching_dims)
    vector_dim = numbers.index_vector_dim
    update_shape = list(ir.RankedTensorType(updates.type).shape)
    window_dims = list(numbers.update_window_dims)
    windows = dict(
        zip(
            [
                d
                for d in range(type.rank)
                if d not in list(numbers.inserted_window_dims) + batched
            ],
            window_dims,
        )
    )
    whole = [d for d in range(type.rank) if d not in indexed + batched]
    if (
        not indexed
        or is_unsigned(element)
        or any(update_shape[windows[d]] != type.shape[d] for d in whole)
        or any(update_shape[windows[d]] != 1 for d in indexed if d in windows)
    ):
        return None

    # Bring the ids to [batched..., s], the updates to [batched..., s, whole...].
    index_dims = [d for d in range(len(update_shape)) if d not in window_dims]
    batch_order = [d - (d > vector_dim) for d in numbers.scatter_indices_batching_dims]
    scattered = [d for d in range(len(index_dims)) if d not in batch_order]
    ids = _linear_ids(_index_columns(indices, vector_dim, len(indexed)), indexed, type)
    ids = transpose(ids, batch_order + scattered)
    unit_dims = [windows[d] for d in indexed if d in windows]
    order = [index_dims[d] for d in batch_order + scattered]
    order += unit_dims + [windows[d] for d in whole]
    updates = transpose(updates, order)

    # The sum has the rows of all batches, and what a row has.
    batch_shape, whole_shape, indexed_shape = (
        [type.shape[d] for d in dims] for dims in (batched, whole, sorted(indexed))
    )
    num_rows, width = math.prod(indexed_shape), math.prod(whole_shape)
    num_scattered = math.prod(update_shape[index_dims[d]] for d in scattered)
    if num_scattered > 1:
        num_batches = math.prod(batch_shape)
        ids = reshape(ids, [num_batches, num_scattered])
        ids = _rows_of_batches(ids, num_rows)
        updates = reshape(updates, [num_batches * num_scattered, width])
        total = generic(
            [_one_hot(ids, num_batches * num_rows, element), updates],
            zeros([num_batches * num_rows, width], element),
            [[2, 0], [2, 1], [0, 1]],
            1,
            lambda a, b, out: add_scalars(out, multiply_scalars(a, b)),
        )
    else:
        loops = list(range(len(batched) + 1 + len(whole)))
        batch_loops, row_loop = loops[: len(batched)], len(batched)
        total = generic(
            [reshape(ids, batch_shape), reshape(updates, batch_shape + whole_shape)],
            empty([*batch_shape, num_rows, *whole_shape], element),
            [batch_loops, [d for d in loops if d != row_loop], loops],
            0,
            lambda id, update, _: (
                create(
                    "arith.select",
                    [element],
                    [_equals_index(row_loop, id), update, scalar(element, 0)],
                ).result
            ),
        )

    # Split the rows again, and put the dimensions where they belong.
    split_dims = batched + sorted(indexed) + whole
    total = reshape(total, [type.shape[d] for d in split_dims])
    total = transpose(total, [split_dims.index(d) for d in range(type.rank)])
    return [total if is_zero(operand) else elementwise("add", operand, total)]


def _rows_of_batches(ids: Value, num_rows: int) -> Value:
    """Returns the row of each id [batches, n] among those of all batches.

    An id out of bounds must not land on the row of another batch: it becomes -1.
    """
    num_batches, num_ids = ir.RankedTensorType(ids.type).shape
    if num_batches > 1:
        type = ir.RankedTensorType(ids.type)
        batch = create(
            "stablehlo.iota",
            [type],
            [],
            iota_dimension=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0),
        ).result
        first = elementwise("multiply", batch, splat(ids, num_rows))
        clamped = create(
            "stablehlo.clamp",
            [type],
            [splat(ids, 0), ids, splat(ids, num_rows - 1)],
        ).result
        rows = elementwise("add", first, clamped)
        ids = elementwise("select", _equal(clamped, ids), rows, splat(ids, -1))
    return reshape(ids, [num_batches * num_ids])


def _linear_ids(
    columns: Sequence[Value], indexed: Sequence[int], type: ir.RankedTensorType
) -> Value:
    """Returns the row-major place of index vectors among the indexed dimensions.

    A vector out of bounds in one dimension must not land on another row: it
    becomes -1.
    """
    if len(columns) == 1:
        return columns[0]
    terms, inside = [], []
    stride = 1
    for dim in sorted(indexed, reverse=True):
        column = columns[list(indexed).index(dim)]
        size = type.shape[dim]
        clamped = create(
            "stablehlo.clamp",
            [column.type],
            [splat(column, 0), column, splat(column, size - 1)],
        ).result
        inside.append(_equal(clamped, column))
        terms.append(elementwise("multiply", clamped, splat(column, stride)))
        stride *= size
    place = functools.reduce(functools.partial(elementwise, "add"), terms)
    valid = functools.reduce(functools.partial(elementwise, "and"), inside)
    return elementwise("select", valid, place, splat(place, -1))


def _equal(lhs: Value, rhs: Value) -> Value:
    type = ir.RankedTensorType(lhs.type)
    return create(
        "stablehlo.compare",
        [tensor_type(type.shape, ir.IntegerType.get_signless(1))],
        [lhs, rhs],
        comparison_direction=ir.Attribute.parse("#stablehlo<comparison_direction EQ>"),
    ).result


def _one_hot(ids: Value, num_rows: int, element: ir.Type) -> Value:
    """Returns the one-hot matrix of `ids`, which has one more dimension."""
    shape = list(ir.RankedTensorType(ids.type).shape)
    rank = len(shape)

    def body(id: Value, _: Value) -> Value:
        one, zero = scalar(element, 1), scalar(element, 0)
        return create(
            "arith.select", [element], [_equals_index(rank, id), one, zero]
        ).result

    dims = [list(range(rank)), list(range(rank + 1))]
    return generic([ids], empty(shape + [num_rows], element), dims, 0, body)


def _equals_index(loop: int, id: Value) -> Value:
    """Returns whether `id` is the index of loop `loop`."""
    index = create("arith.index_cast", [id.type], [loop_index(loop)]).result
    i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
    equal = ir.IntegerAttr.get(i64, 0)
    return create("arith.cmpi", [i1], [index, id], predicate=equal).result
