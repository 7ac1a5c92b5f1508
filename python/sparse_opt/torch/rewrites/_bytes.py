# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Operations on bytes, as operations on integers of 32 bits.

"""Bytes as torch-mlir computes with them.

It takes unsigned ones for signed where it extends or compares them, and ends the process
on a number beside signed ones. In 32 bits both are integers of one kind, and the low byte
of a result is what PyTorch has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten


def widen(module: torch.fx.GraphModule) -> None:
    """Rewrites operations that compute with bytes."""
    graph = module.graph
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if _makes_bytes_of_reals(node):
            # torch-mlir makes signed ones of them, up to 127.
            with graph.inserting_before(node):
                whole = _converted(graph, node, node.args[0], torch.int32)
            node.args = (whole, *node.args[1:])
            continue
        if not isinstance(value, torch.Tensor) or not _computes(node.target):
            continue
        if not any(map(_is_of_bytes, pytree.tree_leaves((node.args, node.kwargs)))):
            continue
        if node.target in _EXTREMES:
            operand: Any = node.args[0]
            node.args = (operand, list(range(operand.meta["val"].dim())), False)
            node.target = _EXTREMES[node.target]
        else:
            _widen(graph, node, value)


def _makes_bytes_of_reals(node: torch.fx.Node) -> bool:
    """Returns whether a node converts floating-point numbers to unsigned bytes."""
    if node.target not in _CONVERSIONS or node.meta["val"].dtype != torch.uint8:
        return False
    operand: Any = node.args[0]
    return bool(operand.meta["val"].is_floating_point())


def _computes(target: Any) -> bool:
    """Returns whether an operation is one of values, not of what lies where."""
    tags = getattr(target, "tags", ())
    is_of_values = torch.Tag.pointwise in tags and target not in _MOVES
    return target in _SUMS or target in _EXTREMES or is_of_values


def _is_of_bytes(argument: Any) -> bool:
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dtype in _BYTES


def _widen(graph: torch.fx.Graph, node: torch.fx.Node, value: torch.Tensor) -> None:
    """Computes what a node does in 32 bits, and makes it of the type that it has."""
    common = _common_type(node) if value.dtype in (*_BYTES, torch.bool) else None

    def wide(argument: Any) -> Any:
        if _is_of_bytes(argument):
            return _converted(graph, node, argument, torch.int32)
        if argument is torch.uint8 or argument is torch.int8:
            return torch.int32
        if common is None:
            return argument
        # Beside bytes a number is one.
        if isinstance(argument, torch.fx.Node):
            byte = _converted(graph, node, argument, common)
            return _converted(graph, node, byte, torch.int32)
        return _wrapped(argument, common) if type(argument) is int else argument

    with graph.inserting_before(node):
        node.args, node.kwargs = pytree.tree_map(wide, (node.args, node.kwargs))
    if value.dtype not in (torch.int8, torch.uint8, torch.int16):
        return
    with graph.inserting_after(node):
        narrow = graph.call_function(aten._to_copy.default, (node,), {"dtype": value.dtype})
    narrow.meta.update(node.meta)
    node.meta["val"] = value.new_empty(value.shape, dtype=torch.int32)
    node.meta.pop("tensor_meta", None)
    node.replace_all_uses_with(narrow, delete_user_cb=lambda user: user is not narrow)


def _common_type(node: torch.fx.Node) -> torch.dtype | None:
    """Returns the type that two operands come to have, if it is one of bytes."""
    target: Any = node.target
    if target in _BOUNDS or torch.Tag.pointwise not in target.tags or len(node.args) < 2:
        return None
    operands: list[Any] = [
        a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args[:2]
    ]
    if not all(isinstance(x, (torch.Tensor, int, float)) for x in operands):
        return None
    common = torch.result_type(*operands)
    return common if common in _BYTES else None


def _converted(
    graph: torch.fx.Graph, user: torch.fx.Node, argument: torch.fx.Node, dtype: torch.dtype
) -> torch.fx.Node:
    value = argument.meta["val"]
    node = graph.call_function(aten._to_copy.default, (argument,), {"dtype": dtype})
    node.meta["val"] = value.new_empty(value.shape, dtype=dtype)
    node.meta["stack_trace"] = user.meta.get("stack_trace")
    return node


def _wrapped(number: int, dtype: torch.dtype) -> int:
    """Returns the byte that a number is beside others."""
    least = torch.iinfo(dtype).min
    return (number - least) % 256 + least


_BYTES = (torch.int8, torch.uint8)
_CONVERSIONS = {aten._to_copy.default, torch.ops.prims.convert_element_type.default}
# The least and the greatest of all are those along all dimensions.
_EXTREMES = {aten.max.default: aten.amax.default, aten.min.default: aten.amin.default}
_SUMS = {
    aten.sum.default, aten.sum.dim_IntList, aten.cumsum.default, aten.prod.default,
    aten.prod.dim_int,
}  # fmt: skip
_MOVES = {
    aten._to_copy.default, aten.clone.default, aten.copy.default, aten.where.self,
}  # fmt: skip
# Their numbers stay what they are.
_BOUNDS = {aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default}
