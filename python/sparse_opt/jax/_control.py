# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lowers concatenations, branches and loops.

"""Concatenations, branches and loops, in forms that rewrites see through."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.mlir import ir

from sparse_opt.jax._build import (
    Value,
    create,
    empty,
    index_type,
    is_unsigned,
    scalar,
    splat,
    tensor_type,
)
from sparse_opt.jax._traced import replace


def move_empty_slice(operation: ir.Operation) -> None:
    """Lets a slice without elements begin at 0, where one is allowed.

    `lax.scan` with an unroll of all its steps takes what is left behind the end.
    """
    shape = ir.RankedTensorType(operation.result.type).shape
    if not all(shape):
        for name, values in (
            ("start_indices", [0] * len(shape)),
            ("limit_indices", shape),
            ("strides", [1] * len(shape)),
        ):
            operation.attributes[name] = ir.DenseI64ArrayAttr.get(values)


def lower_pad(operation: ir.Operation) -> list[Value] | None:
    """Lowers a padding between elements, in slices and paddings around them.

    StableHLO's own begins behind the end where no element is left.
    """
    low, high, between = (
        list(ir.DenseI64ArrayAttr(operation.attributes[f"{name}"]))
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    operand, filling = operation.operands
    shape = ir.RankedTensorType(operand.type).shape
    if not all(shape):
        size = ir.RankedTensorType(operation.result.type).shape
        return replace(lambda x: jnp.full(size, x), operation, [filling])
    if not any(between):
        return None

    def run(x: jax.Array, value: jax.Array) -> jax.Array:
        for dim, count in enumerate(between):
            x = _spread(x, value, dim, count) if count and x.shape[dim] > 1 else x
        edges = [(max(a, 0), max(b, 0), 0) for a, b in zip(low, high)]
        x = lax.pad(x, value, edges)
        first = [max(-a, 0) for a in low]
        last = [n - max(-b, 0) for n, b in zip(x.shape, high)]
        return lax.slice(x, first, last)

    return replace(run, operation, [operand, filling])


def _spread(x: jax.Array, value: jax.Array, dim: int, count: int) -> jax.Array:
    """Puts `count` times `value` between the elements along a dimension."""
    length = x.shape[dim]
    x = lax.expand_dims(x, [dim + 1])
    edges = [(0, count if d == dim + 1 else 0, 0) for d in range(x.ndim)]
    x = lax.pad(x, value, edges)
    x = lax.collapse(x, dim, dim + 2)
    return lax.slice_in_dim(x, 0, length * (count + 1) - count, axis=dim)


def lower_concatenate(operation: ir.Operation) -> list[Value] | None:
    """Lowers a concatenation to a chain of `tensor.insert_slice`.

    StableHLO's own lowering is a scalar gather, opaque to every rewrite. It is
    kept for unsigned integers, which `tensor` operations cannot be converted
    from.
    """
    type = ir.RankedTensorType(operation.result.type)
    if is_unsigned(type.element_type):
        return None
    dim = ir.IntegerAttr(operation.attributes["dimension"]).value
    result = empty(type.shape, type.element_type)
    offset = 0
    for operand in operation.operands:
        shape = list(ir.RankedTensorType(operand.type).shape)
        if not all(shape):
            continue
        offsets = [offset if d == dim else 0 for d in range(type.rank)]
        result = create(
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


def lower_case(operation: ir.Operation) -> list[Value]:
    """Lowers branches (lax.cond, lax.switch) to all of them and a choice of results.

    What a step computes has no side effects. A choice, unlike a branch, is
    element-wise: optimizers that skip an update stay so. An index that names no
    branch means the last one.
    """
    index = operation.operands[0]
    branches = []
    for region in operation.regions:
        for child in list(region.blocks[0].operations):
            if child.operation.name == "stablehlo.return":
                branches.append(list(child.operands))
            else:
                child.operation.move_before(operation)
    *others, chosen = branches
    for i, values in reversed(list(enumerate(others))):
        is_here = create(
            "stablehlo.compare",
            [tensor_type([], ir.IntegerType.get_signless(1))],
            [index, splat(index, i)],
            comparison_direction=ir.Attribute.parse("#stablehlo<comparison_direction EQ>"),
        ).result
        chosen = [
            create("stablehlo.select", [value.type], [is_here, value, other]).result
            for value, other in zip(values, chosen)
        ]
    return chosen


def lower_while(operation: ir.Operation) -> list[Value]:
    """Lowers a counted loop (scan, fori_loop) to `scf.for`, others to `scf.while`.

    The condition of a counted one compares a loop value with a constant, which
    the body increments by a constant.
    """
    condition, body = (region.blocks[0] for region in operation.regions)
    counter = _loop_counter(operation, condition, body)
    if counter is None:
        return _lower_condition(operation)
    place, first, bound, stride = counter
    i64 = ir.IntegerType.get_signless(64)
    bounds = [scalar(index_type(), n) for n in (first, bound, stride)]
    loop = ir.Operation.create(
        "scf.for",
        results=[v.type for v in operation.operands],
        operands=[*bounds, *operation.operands],
        regions=1,
    )
    types = [index_type(), *(v.type for v in operation.operands)]
    block = ir.Block.create_at_start(
        loop.regions[0], types, [ir.Location.current] * len(types)
    )
    with ir.InsertionPoint(block):
        type = ir.RankedTensorType(body.arguments[place].type)
        cast = create("arith.index_cast", [type.element_type], [block.arguments[0]])
        count = create("tensor.from_elements", [type], [cast.result]).result
        for i, argument in enumerate(body.arguments):
            argument.replace_all_uses_with(
                count if i == place else block.arguments[i + 1]
            )
        for child in list(body.operations):
            if child.operation.name == "stablehlo.return":
                create("scf.yield", [], list(child.operands))
                child.operation.erase()
            else:
                marker = create("tensor.empty", [tensor_type([], i64)], [])
                child.operation.move_before(marker)
                marker.erase()
    return list(loop.results)


def _lower_condition(operation: ir.Operation) -> list[Value]:
    """Lowers a loop that ends when a condition of data says so."""
    types = [v.type for v in operation.operands]
    loop = ir.Operation.create(
        "scf.while", results=types, operands=list(operation.operands), regions=2
    )
    for region, (old,) in zip(loop.regions, operation.regions):
        block = ir.Block.create_at_start(
            region, types, [ir.Location.current] * len(types)
        )
        for argument, new in zip(old.arguments, block.arguments):
            argument.replace_all_uses_with(new)
        with ir.InsertionPoint(block):
            for child in list(old.operations):
                values = list(child.operands)
                if child.operation.name != "stablehlo.return":
                    marker = create("tensor.empty", [tensor_type([], index_type())], [])
                    child.operation.move_before(marker)
                    marker.erase()
                    continue
                if region == loop.regions[0]:
                    flag = ir.IntegerType.get_signless(1)
                    going = create("tensor.extract", [flag], values).result
                    create("scf.condition", [], [going, *block.arguments])
                else:
                    create("scf.yield", [], values)
                child.operation.erase()
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
    first = _constant(operation.operands[place])
    last = _constant(bound)
    stride = _constant(increment.operands[1])
    if first is None or last is None or stride is None or stride <= 0:
        return None
    return place, first, last, stride


def _constant(value: Value) -> int | None:
    """Returns the integer that `value` is known to be."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "stablehlo.constant":
        return None
    attribute = ir.DenseElementsAttr(owner.attributes["value"])
    if not attribute.is_splat:
        return None
    splat = attribute.get_splat_value()
    return splat.value if isinstance(splat, ir.IntegerAttr) else None
