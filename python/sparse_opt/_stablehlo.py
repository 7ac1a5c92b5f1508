# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lowers StableHLO, as JAX exports it, to `linalg` on tensors.

"""StableHLO to linalg, for whole training steps.

Upstream's `stablehlo-legalize-to-linalg` does most of it. What it has no
lowering for, or one that hides what the compiler must see, is rewritten here
first. Each rewrite states its result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import jax_mlir_ext
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from sparse_opt._errors import ExportError

# The dialects that may be left.
_UPSTREAM = {"arith", "builtin", "func", "linalg", "math", "scf", "tensor"}


def lower(
    text: str,
    arguments: Sequence[Mapping[str, str | int]],
    results: Sequence[Mapping[str, str | int]],
    locations: bool,
) -> str:
    """Returns the step `text`, a StableHLO module, as linalg on tensors.

    Args:
      text: the module, whose function `main` is the step.
      arguments: the attributes of the arguments of the step.
      results: the attributes of its results.
      locations: whether to keep the names of scopes as locations.

    Raises:
      ExportError: an operation has no lowering.
    """
    stablehlo.register_stablehlo_passes()
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        # A run of the pass loads the dialects that the rewrites build.
        _run(ir.Module.create(), "func.func(stablehlo-legalize-to-linalg)")
        module = ir.Module.parse(text)
        _inline(module)
        _simplify_locations(module)
        _run(module, "symbol-dce,func.func(chlo-legalize-to-stablehlo)")
        _rewrite(module, "stablehlo.while", _lower_while)
        _rewrite(module, "stablehlo.gather", _lower_gather)
        _rewrite(module, "stablehlo.scatter", _lower_scatter)
        _rewrite(module, "stablehlo.concatenate", _lower_concatenate)
        _run(module, "func.func(stablehlo-legalize-to-linalg)")
        _make_signless(module)
        # A barrier keeps a recomputation apart from what it recomputes until
        # equal operations are merged.
        _run(module, "canonicalize,cse")
        _rewrite(module, "stablehlo.optimization_barrier", _drop_barrier)
        _run(module, "canonicalize,symbol-dce")
        _require_upstream(module)
        _set_interface(module, arguments, results)
        _simplify_locations(module)
        return _print(module, locations)


def _run(module: ir.Module, pipeline: str) -> None:
    manager = passmanager.PassManager.parse(f"builtin.module({pipeline})")
    manager.run(module.operation)


def _walk(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Yields the operations below `operation`, inner ones first."""
    for region in operation.regions:
        for block in region:
            for child in list(block.operations):
                yield from _walk(child.operation)
                yield child.operation


def _inline(module: ir.Module) -> None:
    """Inlines every call; JAX calls functions of one block only."""
    functions = {f.name.value: f.operation for f in module.body.operations}

    def inline(call: ir.Operation) -> Sequence[ir.Value]:
        callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        return jax_mlir_ext.inlined_func_call(
            functions[callee], list(call.operands), call.location
        )

    while any(op.name == "func.call" for op in _walk(functions["main"])):
        _rewrite(module, "func.call", inline)


def _rewrite(
    module: ir.Module, name: str, rewrite: Callable[[ir.Operation], Sequence[ir.Value] | None]
) -> None:
    """Replaces each operation `name` by what `rewrite` returns, if anything."""
    for operation in _walk(module.operation):
        if operation.name != name:
            continue
        with ir.InsertionPoint(operation), operation.location:
            values = rewrite(operation)
        if values is None:
            continue
        for result, value in zip(operation.results, values):
            result.replace_all_uses_with(value)
        operation.erase()


# Builders.


def _tensor(shape: Sequence[int], element: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(list(shape), element)


def _index() -> ir.Type:
    return ir.IndexType.get()


def _op(
    name: str,
    results: Sequence[ir.Type],
    operands: Sequence[ir.Value],
    **attributes: ir.Attribute,
) -> ir.Operation:
    return ir.Operation.create(
        name, results=list(results), operands=list(operands), attributes=attributes
    )


def _scalar(element: ir.Type, value: int) -> ir.Value:
    """Returns the constant `value` as a scalar."""
    if isinstance(element, (ir.IntegerType, ir.IndexType)):
        attribute = ir.IntegerAttr.get(element, value)
    else:
        attribute = ir.FloatAttr.get(element, float(value))
    return _op("arith.constant", [element], [], value=attribute).result


def _splat(like: ir.Value, value: int) -> ir.Value:
    """Returns a StableHLO constant of the type of `like`."""
    type = ir.RankedTensorType(like.type)
    attribute = ir.DenseElementsAttr.get_splat(
        type, ir.IntegerAttr.get(type.element_type, value)
    )
    return _op("stablehlo.constant", [type], [], value=attribute).result


def _reshape(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    type = ir.RankedTensorType(value.type)
    if list(type.shape) == list(shape):
        return value
    result = _tensor(shape, type.element_type)
    return _op("stablehlo.reshape", [result], [value]).result


def _transpose(value: ir.Value, permutation: Sequence[int]) -> ir.Value:
    if list(permutation) == list(range(len(permutation))):
        return value
    type = ir.RankedTensorType(value.type)
    result = _tensor([type.shape[i] for i in permutation], type.element_type)
    return _op(
        "stablehlo.transpose",
        [result],
        [value],
        permutation=ir.DenseI64ArrayAttr.get(list(permutation)),
    ).result


def _elementwise(name: str, *operands: ir.Value) -> ir.Value:
    return _op(f"stablehlo.{name}", [operands[-1].type], operands).result


def _generic(
    inputs: Sequence[ir.Value],
    init: ir.Value,
    dims: Sequence[Sequence[int]],
    num_reductions: int,
    body: Callable[..., ir.Value],
) -> ir.Value:
    """Returns a `linalg.generic` whose last `num_reductions` loops reduce.

    Args:
      inputs: its inputs.
      init: its init.
      dims: for each input, and then the init, the loops that index it.
      num_reductions: how many loops reduce; the others are parallel.
      body: builds the value to yield from the scalars.
    """
    num_parallel = len(dims[-1])
    num_loops = num_parallel + num_reductions
    maps = [
        ir.AffineMap.get(num_loops, 0, [ir.AffineDimExpr.get(d) for d in operand])
        for operand in dims
    ]
    iterators = ["parallel"] * num_parallel + ["reduction"] * num_reductions
    operands = [*inputs, init]
    operation = ir.Operation.create(
        "linalg.generic",
        results=[init.type],
        operands=operands,
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse(f"#linalg.iterator_type<{i}>") for i in iterators]
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
    )
    elements = [ir.RankedTensorType(v.type).element_type for v in operands]
    locations = [ir.Location.current] * len(elements)
    block = ir.Block.create_at_start(operation.regions[0], elements, locations)
    with ir.InsertionPoint(block):
        _op("linalg.yield", [], [body(*block.arguments)])
    return operation.result


def _loop_index(dim: int) -> ir.Value:
    """Returns the index of loop `dim` of the `linalg.generic` being built."""
    i64 = ir.IntegerType.get_signless(64)
    return _op("linalg.index", [_index()], [], dim=ir.IntegerAttr.get(i64, dim)).result


def _empty(shape: Sequence[int], element: ir.Type) -> ir.Value:
    return _op("tensor.empty", [_tensor(shape, element)], []).result


def _is_unsigned(element: ir.Type) -> bool:
    return isinstance(element, ir.IntegerType) and element.is_unsigned


def _is_zero(value: ir.Value) -> bool:
    """Returns whether `value` is known to be zero everywhere."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    if owner.name == "stablehlo.broadcast_in_dim":
        return _is_zero(owner.operands[0])
    if owner.name != "stablehlo.constant":
        return False
    attribute = ir.DenseElementsAttr(owner.attributes["value"])
    return attribute.is_splat and attribute.get_splat_value().value == 0


# Gather and scatter.


def _index_columns(
    indices: ir.Value, vector_dim: int, num_columns: int
) -> list[ir.Value]:
    """Returns the components of the index vectors `indices`, one tensor each."""
    type = ir.RankedTensorType(indices.type)
    shape = list(type.shape)
    if _is_unsigned(type.element_type):
        signless = _tensor(shape, ir.IntegerType.get_signless(32))
        indices = _op("stablehlo.convert", [signless], [indices]).result
    if vector_dim == len(shape):
        return [indices]
    column_shape = shape[:vector_dim] + shape[vector_dim + 1 :]
    if num_columns == 1:
        return [_reshape(indices, column_shape)]

    # Most often the vectors were just put together.
    owner = indices.owner
    if (
        not isinstance(owner, ir.Block)
        and owner.name == "stablehlo.concatenate"
        and len(owner.operands) == num_columns
        and ir.IntegerAttr(owner.attributes["dimension"]).value == vector_dim
    ):
        return [_reshape(column, column_shape) for column in owner.operands]

    columns = []
    element = ir.RankedTensorType(indices.type).element_type
    for i in range(num_columns):
        start = [i if d == vector_dim else 0 for d in range(len(shape))]
        limit = [i + 1 if d == vector_dim else n for d, n in enumerate(shape)]
        column = _op(
            "stablehlo.slice",
            [_tensor([b - a for a, b in zip(start, limit)], element)],
            [indices],
            start_indices=ir.DenseI64ArrayAttr.get(start),
            limit_indices=ir.DenseI64ArrayAttr.get(limit),
            strides=ir.DenseI64ArrayAttr.get([1] * len(shape)),
        ).result
        columns.append(_reshape(column, column_shape))
    return columns


def _lower_gather(operation: ir.Operation) -> list[ir.Value] | None:
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
    numbers = stablehlo.GatherDimensionNumbers(operation.attributes["dimension_numbers"])
    sizes = list(ir.DenseI64ArrayAttr(operation.attributes["slice_sizes"]))
    indexed = list(numbers.start_index_map)
    batched = list(numbers.operand_batching_dims)
    whole = [d for d in range(table_type.rank) if d not in indexed + batched]
    if _is_unsigned(table_type.element_type):
        return None
    if any(sizes[d] != 1 for d in indexed):
        return None
    if any(sizes[d] != table_type.shape[d] for d in whole):
        return None

    offset_dims = list(numbers.offset_dims)
    index_dims = [d for d in range(result_type.rank) if d not in offset_dims]
    vector_dim = numbers.index_vector_dim
    kept = [d for d in range(table_type.rank) if d not in list(numbers.collapsed_slice_dims) + batched]

    columns = []
    for dim, column in zip(indexed, _index_columns(indices, vector_dim, len(indexed))):
        low, high = _splat(column, 0), _splat(column, table_type.shape[dim] - 1)
        columns.append(_op("stablehlo.clamp", [column.type], [low, column, high]).result)

    # The loop of each batched and whole dimension of the table.
    loops = {}
    for dim, index_dim in zip(batched, numbers.start_indices_batching_dims):
        loops[dim] = index_dims[index_dim - (index_dim > vector_dim)]
    for dim, offset_dim in zip(kept, offset_dims):
        if dim in whole:
            loops[dim] = offset_dim

    def body(*scalars: ir.Value) -> ir.Value:
        address = []
        for dim in range(table_type.rank):
            if dim in indexed:
                index = scalars[indexed.index(dim)]
                address.append(_op("arith.index_cast", [_index()], [index]).result)
            else:
                address.append(_loop_index(loops[dim]))
        return _op("tensor.extract", [table_type.element_type], [table, *address]).result

    init = _empty(result_type.shape, result_type.element_type)
    dims = [index_dims] * len(columns) + [list(range(result_type.rank))]
    return [_generic(columns, init, dims, 0, body)]


def _lower_scatter(operation: ir.Operation) -> list[ir.Value]:
    """Lowers a scatter-add of whole rows, the gradient of a gather.

    It is the product of a one-hot matrix with the updates, in this one form,
    whose scatter dimensions are collapsed into the one loop `s`:

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

    Batched dimensions are outermost in ids, one-hot matrix and updates. With
    one update a batch nothing is summed, and it is one generic:
    `select(index(v) == id, update, 0)`. Ids out of bounds match no index, so
    that their updates are dropped, as they must be.
    """
    operand, indices, updates = operation.operands
    _require_add(operation)
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
            [d for d in range(type.rank) if d not in list(numbers.inserted_window_dims) + batched],
            window_dims,
        )
    )
    whole = [d for d in range(type.rank) if d not in indexed + batched]
    if (
        not indexed
        or _is_unsigned(element)
        or any(update_shape[windows[d]] != type.shape[d] for d in whole)
        or any(update_shape[windows[d]] != 1 for d in indexed if d in windows)
    ):
        raise ExportError(
            f"expected a scatter-add of whole rows, but got '{numbers}'"
            f" on {type} at {operation.location}"
        )

    # Bring the ids to [batched..., s], the updates to [batched..., s, whole...].
    index_dims = [d for d in range(len(update_shape)) if d not in window_dims]
    batch_order = [
        d - (d > vector_dim) for d in numbers.scatter_indices_batching_dims
    ]
    scattered = [d for d in range(len(index_dims)) if d not in batch_order]
    batch_shape = [type.shape[d] for d in batched]
    num_scattered = math.prod(update_shape[index_dims[d]] for d in scattered)
    s_shape = batch_shape + ([num_scattered] if num_scattered > 1 else [])

    ids = _linear_ids(_index_columns(indices, vector_dim, len(indexed)), indexed, type)
    ids = _reshape(_transpose(ids, batch_order + scattered), s_shape)
    unit_dims = [windows[d] for d in indexed if d in windows]
    order = [index_dims[d] for d in batch_order + scattered]
    order += unit_dims + [windows[d] for d in whole]
    updates = _transpose(updates, order)
    updates = _reshape(updates, s_shape + [type.shape[d] for d in whole])

    # The result has the operand's dimensions, the indexed ones as one.
    out_dims = [d for d in range(type.rank) if d == min(indexed) or d not in indexed]
    num_rows = math.prod(type.shape[d] for d in indexed)
    out_shape = [num_rows if d in indexed else type.shape[d] for d in out_dims]
    loop = {d: i for i, d in enumerate(out_dims)}
    batch_loops = [loop[d] for d in batched]
    whole_loops = [loop[d] for d in whole]
    row_loop = loop[min(indexed)]
    out_loops = list(range(len(out_dims)))
    init = _empty(out_shape, element)

    if num_scattered > 1:
        s = len(out_dims)
        total = _generic(
            [_one_hot(ids, num_rows, element), updates],
            _zeros(out_shape, element),
            [batch_loops + [s, row_loop], batch_loops + [s] + whole_loops, out_loops],
            1,
            lambda a, b, out: _add(out, _multiply(a, b)),
        )
    else:
        total = _generic(
            [ids, updates],
            _empty(out_shape, element),
            [batch_loops, batch_loops + whole_loops, out_loops],
            0,
            lambda id, update, _: _op(
                "arith.select",
                [element],
                [_equals_index(row_loop, id), update, _scalar(element, 0)],
            ).result,
        )

    # Split the rows again, and put the dimensions where they belong.
    split_dims: list[int] = []
    for d in out_dims:
        split_dims += sorted(indexed) if d in indexed else [d]
    total = _reshape(total, [type.shape[d] for d in split_dims])
    total = _transpose(total, [split_dims.index(d) for d in range(type.rank)])
    return [total if _is_zero(operand) else _elementwise("add", operand, total)]


def _require_add(scatter: ir.Operation) -> None:
    """Checks that `scatter` adds what falls on one place."""
    body = scatter.regions[0].blocks[0]
    combine = body.operations[0].operation
    returned = list(body.operations)[-1].operands[0]
    if (
        combine.name != "stablehlo.add"
        or set(combine.operands) != set(body.arguments)
        or returned != combine.result
    ):
        raise ExportError(
            f"expected a scatter that adds, but got '{combine.name}'"
            f" at {scatter.location}"
        )


def _linear_ids(
    columns: Sequence[ir.Value], indexed: Sequence[int], type: ir.RankedTensorType
) -> ir.Value:
    """Returns the row-major place of index vectors among the indexed dimensions.

    A vector out of bounds in one dimension must not land on another row: it
    becomes -1.
    """
    if len(columns) == 1:
        return columns[0]
    place = valid = None
    stride = 1
    for dim in sorted(indexed, reverse=True):
        column = columns[list(indexed).index(dim)]
        size = type.shape[dim]
        clamped = _op(
            "stablehlo.clamp",
            [column.type],
            [_splat(column, 0), column, _splat(column, size - 1)],
        ).result
        inside = _equal(clamped, column)
        term = _elementwise("multiply", clamped, _splat(column, stride))
        place = _elementwise("add", place, term) if place else term
        valid = _elementwise("and", valid, inside) if valid else inside
        stride *= size
    return _elementwise("select", valid, place, _splat(place, -1))


def _equal(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    type = ir.RankedTensorType(lhs.type)
    return _op(
        "stablehlo.compare",
        [_tensor(type.shape, ir.IntegerType.get_signless(1))],
        [lhs, rhs],
        comparison_direction=ir.Attribute.parse("#stablehlo<comparison_direction EQ>"),
    ).result


def _one_hot(ids: ir.Value, num_rows: int, element: ir.Type) -> ir.Value:
    """Returns the one-hot matrix of `ids`, which has one more dimension."""
    shape = list(ir.RankedTensorType(ids.type).shape)
    rank = len(shape)

    def body(id: ir.Value, _: ir.Value) -> ir.Value:
        one, zero = _scalar(element, 1), _scalar(element, 0)
        return _op("arith.select", [element], [_equals_index(rank, id), one, zero]).result

    dims = [list(range(rank)), list(range(rank + 1))]
    return _generic([ids], _empty(shape + [num_rows], element), dims, 0, body)


def _equals_index(loop: int, id: ir.Value) -> ir.Value:
    """Returns whether `id` is the index of loop `loop`."""
    index = _op("arith.index_cast", [id.type], [_loop_index(loop)]).result
    i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
    equal = ir.IntegerAttr.get(i64, 0)
    return _op("arith.cmpi", [i1], [index, id], predicate=equal).result


def _multiply(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    suffix = "i" if isinstance(lhs.type, ir.IntegerType) else "f"
    return _op(f"arith.mul{suffix}", [lhs.type], [lhs, rhs]).result


def _add(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    suffix = "i" if isinstance(lhs.type, ir.IntegerType) else "f"
    return _op(f"arith.add{suffix}", [lhs.type], [lhs, rhs]).result


def _zeros(shape: Sequence[int], element: ir.Type) -> ir.Value:
    init = _empty(shape, element)
    operation = ir.Operation.create(
        "linalg.fill",
        results=[init.type],
        operands=[_scalar(element, 0), init],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])},
        regions=1,
    )
    block = ir.Block.create_at_start(
        operation.regions[0], [element] * 2, [ir.Location.current] * 2
    )
    with ir.InsertionPoint(block):
        _op("linalg.yield", [], [block.arguments[0]])
    return operation.result


# Concatenation, barriers and loops.


def _lower_concatenate(operation: ir.Operation) -> list[ir.Value] | None:
    """Lowers a concatenation to a chain of `tensor.insert_slice`.

    StableHLO's own lowering is a scalar gather, opaque to every rewrite. It is
    kept for unsigned integers, which `tensor` operations cannot be converted
    from.
    """
    type = ir.RankedTensorType(operation.result.type)
    if _is_unsigned(type.element_type):
        return None
    dim = ir.IntegerAttr(operation.attributes["dimension"]).value
    result = _empty(type.shape, type.element_type)
    offset = 0
    for operand in operation.operands:
        shape = list(ir.RankedTensorType(operand.type).shape)
        offsets = [offset if d == dim else 0 for d in range(type.rank)]
        result = _op(
            "tensor.insert_slice",
            [type],
            [operand, result],
            static_offsets=ir.DenseI64ArrayAttr.get(offsets),
            static_sizes=ir.DenseI64ArrayAttr.get(shape),
            static_strides=ir.DenseI64ArrayAttr.get([1] * type.rank),
            operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0]),
        ).result
        offset += shape[dim]
    return [result]


def _drop_barrier(operation: ir.Operation) -> list[ir.Value]:
    return list(operation.operands)


def _lower_while(operation: ir.Operation) -> list[ir.Value]:
    """Lowers a counted loop (scan, fori_loop) to `scf.for`.

    The condition compares one loop value with a constant, which the body
    increments by a constant.
    """
    condition, body = (region.blocks[0] for region in operation.regions)
    counter = _loop_counter(operation, condition, body)
    if counter is None:
        raise ExportError(
            "expected a loop of a constant number of steps, but got one that"
            f" depends on data at {operation.location}"
        )
    place, first, bound, stride = counter
    i64 = ir.IntegerType.get_signless(64)
    bounds = [_scalar(_index(), n) for n in (first, bound, stride)]
    loop = ir.Operation.create(
        "scf.for",
        results=[v.type for v in operation.operands],
        operands=[*bounds, *operation.operands],
        regions=1,
    )
    types = [_index(), *(v.type for v in operation.operands)]
    block = ir.Block.create_at_start(
        loop.regions[0], types, [ir.Location.current] * len(types)
    )
    with ir.InsertionPoint(block):
        type = ir.RankedTensorType(body.arguments[place].type)
        scalar = _op("arith.index_cast", [type.element_type], [block.arguments[0]])
        count = _op("tensor.from_elements", [type], [scalar.result]).result
        for i, argument in enumerate(body.arguments):
            argument.replace_all_uses_with(
                count if i == place else block.arguments[i + 1]
            )
        for child in list(body.operations):
            if child.operation.name == "stablehlo.return":
                _op("scf.yield", [], list(child.operands))
                child.operation.erase()
            else:
                marker = _op("tensor.empty", [_tensor([], i64)], [])
                child.operation.move_before(marker)
                marker.erase()
    return list(loop.results)


def _loop_counter(
    operation: ir.Operation, condition: ir.Block, body: ir.Block
) -> tuple[int, int, int, int] | None:
    """Returns the counter's place, first value, bound and stride."""
    compare = list(condition.operations)[-1].operands[0].owner
    if isinstance(compare, ir.Block) or compare.name != "stablehlo.compare":
        return None
    if "LT" not in str(compare.attributes["comparison_direction"]):
        return None
    argument, bound = compare.operands
    if argument.owner != condition:
        return None
    place = ir.BlockArgument(argument).arg_number
    increment = list(body.operations)[-1].operands[place].owner
    if isinstance(increment, ir.Block) or increment.name != "stablehlo.add":
        return None
    if increment.operands[0] != body.arguments[place]:
        return None
    constants = [
        _constant(v) for v in (operation.operands[place], bound, increment.operands[1])
    ]
    if None in constants or constants[2] <= 0:
        return None
    return place, *constants


def _constant(value: ir.Value) -> int | None:
    """Returns the integer that `value` is known to be."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "stablehlo.constant":
        return None
    attribute = ir.DenseElementsAttr(owner.attributes["value"])
    if not isinstance(attribute.type.element_type, ir.IntegerType):
        return None
    return ir.IntegerAttr(attribute.get_splat_value()).value


# The finished module.


def _make_signless(module: ir.Module) -> None:
    """Retypes what is left of unsigned integers, and drops the casts between."""

    def retype(value: ir.Value) -> None:
        type = value.type
        if isinstance(type, ir.RankedTensorType) and _is_unsigned(type.element_type):
            width = type.element_type.width
            value.set_type(_tensor(type.shape, ir.IntegerType.get_signless(width)))

    for operation in _walk(module.operation):
        for value in operation.results:
            retype(value)
        for region in operation.regions:
            for block in region:
                for argument in block.arguments:
                    retype(argument)
    for operation in _walk(module.operation):
        if operation.name == "func.func":
            block = operation.regions[0].blocks[0]
            inputs = [a.type for a in block.arguments]
            outputs = [v.type for v in list(block.operations)[-1].operands]
            type = ir.FunctionType.get(inputs, outputs)
            operation.attributes["function_type"] = ir.TypeAttr.get(type)
    _rewrite(module, "builtin.unrealized_conversion_cast", _drop_cast)


def _drop_cast(operation: ir.Operation) -> list[ir.Value] | None:
    same = operation.operands[0].type == operation.result.type
    return list(operation.operands) if same else None


def _require_upstream(module: ir.Module) -> None:
    """Checks that no operation of a foreign dialect is left."""

    def is_foreign(operation: ir.Operation) -> bool:
        if operation.name == "builtin.unrealized_conversion_cast":
            return True
        return operation.name.split(".")[0] not in _UPSTREAM

    for operation in _walk(module.operation):
        if is_foreign(operation) and not is_foreign(operation.parent):
            raise ExportError(
                "expected operations that lower to linalg, but got"
                f" '{operation.name}' at {operation.location}"
            )


def _set_interface(
    module: ir.Module,
    arguments: Sequence[Mapping[str, str | int]],
    results: Sequence[Mapping[str, str | int]],
) -> None:
    """Names the step and gives its arguments and results their attributes."""
    for name in list(module.operation.attributes):
        del module.operation.attributes[name]
    function = module.body.operations[0]
    function.attributes["sym_name"] = ir.StringAttr.get("step")
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [_dictionary(a) for a in arguments]
    )
    function.attributes["res_attrs"] = ir.ArrayAttr.get(
        [_dictionary(r) for r in results]
    )


def _dictionary(attributes: Mapping[str, str | int]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    return ir.DictAttr.get(
        {
            name: ir.StringAttr.get(value)
            if isinstance(value, str)
            else ir.IntegerAttr.get(i64, value)
            for name, value in attributes.items()
        }
    )


_SCOPE = re.compile(r'"([^"]*)"(?!:\d)')


def _simplify_locations(module: ir.Module) -> None:
    """Reduces each location to the path of its scopes.

    JAX names an operation `jit(step)/jvp(layers.0)/dot_general`; the jitted
    function at the front is always the same. Inlining adds call sites, of
    which the deepest path is kept.
    """
    for operation in _walk(module.operation):
        if operation.parent.name.startswith("linalg."):
            operation.location = ir.Location.unknown()
            continue
        scopes = _SCOPE.findall(str(operation.location))
        scope = max(scopes, key=lambda s: s.count("/"), default="")
        scope = re.sub(r"^jit\([^()]*\)/?", "", scope)
        operation.location = (
            ir.Location.name(scope) if scope else ir.Location.unknown()
        )


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ARGUMENT_LOCATION = re.compile(
    rf" loc\((?:{_QUOTED}|#loc\d*|[^()\"#]|\((?:#loc\d*|{_QUOTED})\))*\)"
)
_ALIAS = re.compile(r"^(#loc\d*) = (loc\(.*\))$", re.MULTILINE)


def _print(module: ir.Module, locations: bool) -> str:
    """Returns the text of `module`, with locations on whole operations only.

    Those of block arguments and of the scalar code inside an operation say
    nothing new, and are most of the text.
    """
    text = module.operation.get_asm(enable_debug_info=locations) + "\n"
    if not locations:
        return text
    aliases = dict(_ALIAS.findall(text))
    lines = []
    for line in _ALIAS.sub("", text).splitlines():
        if line.lstrip().startswith(("^bb", "func.func")):
            line = _ARGUMENT_LOCATION.sub("", line)
        else:
            line = re.sub(
                r" loc\((#loc\d*)\)$",
                lambda m: "" if aliases[m[1]] == "loc(unknown)" else m[0],
                line,
            )
        if line:
            lines.append(line)
    body = "\n".join(lines) + "\n"
    used = set(re.findall(r" loc\((#loc\d*)\)$", body, re.MULTILINE))
    return body + "".join(
        f"{alias} = {location}\n" for alias, location in aliases.items() if alias in used
    )
