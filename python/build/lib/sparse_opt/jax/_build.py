# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds and rewrites operations.

"""What the rewrites share: walking, replacing and building operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jaxlib.mlir import ir

if TYPE_CHECKING:
    Value = ir.Value[Any]
else:
    Value = ir.Value  # has a parameter in its stub alone


def walk(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Yields the operations below `operation`, inner ones first."""
    for region in operation.regions:
        for block in region:
            for child in list(block.operations):
                yield from walk(child.operation)
                yield child.operation


_LINE = re.compile(r'"([^"]*)":(\d+)')
_NAME = re.compile(r'loc\("([^"]*)"')


def place_of(operation: ir.Operation) -> str:
    """Returns ` at FILE:LINE`, or else the path of the scopes, or ``."""
    text = str(operation.location)
    if found := _LINE.search(text):
        return f" at {found[1]}:{found[2]}"
    named = _NAME.search(text)
    return f" at {named[1]}" if named else ""


def rewrite_all(
    module: ir.Module,
    name: str,
    rewrite: Callable[[ir.Operation], Sequence[Value] | None],
) -> None:
    """Replaces each operation `name` by what `rewrite` returns, if anything."""
    for operation in walk(module.operation):
        if operation.name != name:
            continue
        with ir.InsertionPoint(operation), operation.location:
            values = rewrite(operation)
        if values is None:
            continue
        for result, value in zip(operation.results, values):
            result.replace_all_uses_with(value)
        operation.erase()


def tensor_type(shape: Sequence[int], element: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(list(shape), element)


def index_type() -> ir.Type:
    return ir.IndexType.get()


def create(
    name: str,
    results: Sequence[ir.Type],
    operands: Sequence[Value],
    **attributes: ir.Attribute,
) -> ir.Operation:
    return ir.Operation.create(
        name, results=list(results), operands=list(operands), attributes=attributes
    )


def scalar(element: ir.Type, value: int) -> Value:
    """Returns the constant `value` as a scalar."""
    is_integer = isinstance(element, (ir.IntegerType, ir.IndexType))
    attribute: ir.Attribute = (
        ir.IntegerAttr.get(element, value)
        if is_integer
        else ir.FloatAttr.get(element, float(value))
    )
    return create("arith.constant", [element], [], value=attribute).result


def splat(like: Value, value: int) -> Value:
    """Returns a StableHLO constant of the type of `like`."""
    type = ir.RankedTensorType(like.type)
    attribute = ir.DenseElementsAttr.get_splat(
        type, ir.IntegerAttr.get(type.element_type, value)
    )
    return create("stablehlo.constant", [type], [], value=attribute).result


def reshape(value: Value, shape: Sequence[int]) -> Value:
    type = ir.RankedTensorType(value.type)
    if list(type.shape) == list(shape):
        return value
    result = tensor_type(shape, type.element_type)
    return create("stablehlo.reshape", [result], [value]).result


def transpose(value: Value, permutation: Sequence[int]) -> Value:
    if list(permutation) == list(range(len(permutation))):
        return value
    type = ir.RankedTensorType(value.type)
    result = tensor_type([type.shape[i] for i in permutation], type.element_type)
    return create(
        "stablehlo.transpose",
        [result],
        [value],
        permutation=ir.DenseI64ArrayAttr.get(list(permutation)),
    ).result


def elementwise(name: str, *operands: Value) -> Value:
    return create(f"stablehlo.{name}", [operands[-1].type], operands).result


def generic(
    inputs: Sequence[Value],
    init: Value,
    dims: Sequence[Sequence[int]],
    num_reductions: int,
    body: Callable[..., Value],
) -> Value:
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
        create("linalg.yield", [], [body(*block.arguments)])
    return operation.result


def loop_index(dim: int) -> Value:
    """Returns the index of loop `dim` of the `linalg.generic` being built."""
    i64 = ir.IntegerType.get_signless(64)
    return create(
        "linalg.index", [index_type()], [], dim=ir.IntegerAttr.get(i64, dim)
    ).result


def empty(shape: Sequence[int], element: ir.Type) -> Value:
    return create("tensor.empty", [tensor_type(shape, element)], []).result


def is_unsigned(element: ir.Type) -> bool:
    return isinstance(element, ir.IntegerType) and element.is_unsigned


def is_zero(value: Value) -> bool:
    """Returns whether `value` is known to be zero everywhere."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    if owner.name == "stablehlo.broadcast_in_dim":
        return is_zero(owner.operands[0])
    if owner.name != "stablehlo.constant":
        return False
    attribute = ir.DenseElementsAttr(owner.attributes["value"])
    if not attribute.is_splat:
        return False
    splat = attribute.get_splat_value()
    return isinstance(splat, (ir.IntegerAttr, ir.FloatAttr)) and splat.value == 0


def multiply_scalars(lhs: Value, rhs: Value) -> Value:
    suffix = "i" if isinstance(lhs.type, ir.IntegerType) else "f"
    return create(f"arith.mul{suffix}", [lhs.type], [lhs, rhs]).result


def add_scalars(lhs: Value, rhs: Value) -> Value:
    suffix = "i" if isinstance(lhs.type, ir.IntegerType) else "f"
    return create(f"arith.add{suffix}", [lhs.type], [lhs, rhs]).result


def zeros(shape: Sequence[int], element: ir.Type) -> Value:
    init = empty(shape, element)
    operation = ir.Operation.create(
        "linalg.fill",
        results=[init.type],
        operands=[scalar(element, 0), init],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])},
        regions=1,
    )
    block = ir.Block.create_at_start(
        operation.regions[0], [element] * 2, [ir.Location.current] * 2
    )
    with ir.InsertionPoint(block):
        create("linalg.yield", [], [block.arguments[0]])
    return operation.result
