# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks and cleans a traced step, and links its results with its arguments.

"""The graph of a step.

Its placeholders are the step's arguments. Its output has the next values of those
that the step may write, then what it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sparse_opt._errors import ExportError
from sparse_opt.torch import _arguments, _effects, _indices, _nodes, _private
from sparse_opt.torch.rewrites import _orderings

aten = torch.ops.aten


def erase_profiling(module: torch.fx.GraphModule) -> None:
    """Erases the `record_function` around `optimizer.step`."""
    for node in reversed(list(module.graph.nodes)):
        if _private.is_profiling(node.target):
            module.graph.erase_node(node)


def _key(
    module: torch.fx.GraphModule, node: torch.fx.Node, places: Mapping[torch.fx.Node, int]
) -> Any:
    """Returns what a node computes of the nodes that have places."""
    if node.op == "get_attr":
        constant = getattr(module, str(node.target))
        if not isinstance(constant, torch.Tensor):
            return (type(constant).__name__,)  # such as a generator
        return str(constant.dtype), repr(constant.tolist())
    operands = torch.fx.map_arg((node.args, node.kwargs), lambda n: ("node", places[n]))
    return node.op, node.target, repr(operands)


def require_equal_runs(module: torch.fx.GraphModule, change: _effects.Change) -> None:
    """Raises `ExportError` if two runs of a step in one graph return different values.
    Keeps the results of the first."""
    numbers = _value_numbers(module)
    output = next(n for n in module.graph.nodes if n.op == "output")
    values = list(output.args[0])
    first, second = values[: len(values) // 2], values[len(values) // 2 :]
    if [numbers[n] for n in first] != [numbers[n] for n in second]:
        raise ExportError(
            "expected a step that does the same each time, but got one that depends on"
            f" {change}, which it sets: register it as a buffer of the module, or run"
            " the step once before the export if that sets it once and for all"
        )
    output.args = (first,)
    _nodes.erase_unused(module.graph)


def _value_numbers(module: torch.fx.GraphModule) -> dict[torch.fx.Node, int]:
    """Returns a number for each node, equal where values are."""
    numbers: dict[torch.fx.Node, int] = {}
    known: dict[Any, int] = {}
    for node in module.graph.nodes:
        if node.op == "output":
            continue
        source = _uncopied(node)
        if source is not node:
            numbers[node] = numbers[source]
            continue
        key = _key(module, node, numbers)
        numbers[node] = known.setdefault(key, len(known))
    return numbers


def require_lowerable(module: torch.fx.GraphModule) -> None:
    """Raises `ExportError` for what torch-mlir accepts and then fails on."""
    for node in module.graph.nodes:
        name = str(node.target).partition(".default")[0]
        layout = getattr(node.meta.get("val"), "layout", torch.strided)
        if layout is not torch.strided:
            raise ExportError(
                f"expected dense tensors, but got one of layout {layout} by '{name}'"
                f"{_nodes.line_of_node(node)}: leave sparse=True out, or call to_dense()"
            )
        if node.target in _ORDERINGS:
            raise ExportError(
                "expected orderings of at most"
                f" {_orderings.MOST_ORDERED} elements, but got '{name}'"
                f"{_nodes.line_of_node(node)}: do it outside of the step"
            )
        if node.target is aten.masked_scatter.default:
            raise ExportError(
                f"expected operations that lower to linalg, but got '{name}'"
                f"{_nodes.line_of_node(node)}: use torch.where with values in their places"
            )
        if node.target in _PRODUCTS:
            types = {
                operand.meta["val"].dtype
                for operand in node.args
                if isinstance(operand, torch.fx.Node)
            }
            if len(types) > 1:
                raise ExportError(
                    "expected factors of one type, but got"
                    f" {' and '.join(sorted(map(str, types)))} in '{name}'"
                    f"{_nodes.line_of_node(node)}: convert one with .to()"
                )


_ORDERINGS = {
    aten.sort.default, aten.sort.stable, aten.topk.default, aten.kthvalue.default,
}  # fmt: skip
_PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default}


def lookups_of(
    module: torch.fx.GraphModule, arguments: Sequence[_arguments.Argument]
) -> _indices.Lookups:
    """Returns where the indices of look-ups have to lie."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    output = next(n for n in module.graph.nodes if n.op == "output")
    carried = [
        n for n, a in zip(placeholders, arguments) if a.role in _arguments.CARRIED
    ]
    unchanged = {n for n, v in zip(carried, output.args[0]) if _uncopied(v) is n}
    names, constants = {}, {}
    for node, argument in zip(placeholders, arguments):
        if argument.role == "batch":
            names[node] = argument.name
        elif argument.role in ("buffer", "constant") and node in unchanged:
            constants[node] = argument
    return _indices.lookups_of(module, names, constants)


def link(
    module: torch.fx.GraphModule,
    arguments: list[_arguments.Argument],
    num_outputs: int,
    is_step: bool = True,
) -> list[tuple[str, str]]:
    """Links arguments to their next values; drops what the step does not use.

    A value that the step does not change is no result. An argument that it
    neither reads nor changes is none.
    """
    output = next(n for n in module.graph.nodes if n.op == "output")
    values = list(output.args[0])
    carried = [a for a in arguments if a.role in _arguments.CARRIED]
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    node_of = {a.name: n for a, n in zip(arguments, placeholders)}

    kept: list[torch.fx.Node] = []
    results: list[tuple[str, str]] = []
    for argument, value in zip(carried, values):
        if _uncopied(value) is node_of[argument.name]:
            continue
        argument.result = len(kept)
        kept.append(value)
        results.append((argument.name, argument.role))
    kept += values[len(carried) :]
    if is_step:
        results.append(("loss", "loss"))
    first = 1 if is_step else 0
    results += [(f"metrics.{i}", "metric") for i in range(first, num_outputs)]
    output.args = (kept,)

    _nodes.erase_unused(module.graph)
    for argument in list(arguments):
        node = node_of[argument.name]
        is_input = argument.role in ("lr", "batch") if is_step else argument.role == "batch"
        if not node.users and argument.result is None and not is_input:
            module.graph.erase_node(node)
            arguments.remove(argument)
    return results


def _uncopied(node: torch.fx.Node) -> torch.fx.Node:
    """Returns what `node` is a copy of."""
    copies = (aten.clone.default, aten.detach.default, aten.alias.default)
    while node.op == "call_function" and node.target in copies:
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        node = source
    return node
