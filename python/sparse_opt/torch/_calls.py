# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Operations of a trace that are calls of functions of the exported module.

"""Attention, and products of groups, on their way through torch-mlir, which has no form for
them.

`cut` makes what an operation takes a result of the graph, and what it returns an argument.
`splice` puts a call in between again, of a function whose body is what the operation
computes, and whose attribute `bsr.attention` or `bsr.grouped` says what that is: the
compiler makes one operation of the call, others inline it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir

from sparse_opt.torch import _grouped, _nodes, _private, _sdpa
from sparse_opt.torch.rewrites import _constants, _decompositions

_ATTENTION = (_sdpa.ATTENTION, _sdpa.ATTENTION_GRADIENT)


@dataclass
class Site:
    """An operation that was cut out of a graph.

    Args:
      operation: what it was.
      names: what its operands are.
      forms: of each operand, its shape and type.
      numbers: of attention, the scale, and what kept probabilities are multiplied with.
      operands: where they are among the results that the graph has more.
      results: where they are among the arguments that it has more; None: unused.
      place: the user's file and line.
    """

    operation: Any
    names: tuple[str, ...]
    forms: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    numbers: tuple[float, ...]
    operands: list[int]
    results: list[int | None]
    place: tuple[str, int] | None

    @property
    def function(self) -> Any:
        """What it computes: equal for what one function computes."""
        return self.operation, self.names, self.forms, self.numbers

    @property
    def name(self) -> str:
        """What its function is called, but for a number."""
        if self.operation in _ATTENTION:
            return f"attention_{'gradient_' * (self.operation is _sdpa.ATTENTION_GRADIENT)}"
        return f"grouped_{_grouped.KINDS[self.operation][0]}_"

    def attribute(self) -> tuple[str, ir.Attribute]:
        """The attribute of its function."""
        if self.operation not in _ATTENTION:
            return "bsr.grouped", ir.StringAttr.get(_grouped.KINDS[self.operation][0])
        attributes: dict[str, Any] = {
            "operands": ir.ArrayAttr.get([ir.StringAttr.get(n) for n in self.names]),
            "scale": ir.FloatAttr.get_f64(self.numbers[0]),
        }
        if "kept" in self.names:
            attributes["kept_factor"] = ir.FloatAttr.get_f64(self.numbers[1])
        return "bsr.attention", ir.DictAttr.get(attributes)

    def compute(self, *tensors: torch.Tensor) -> Any:
        """Returns what it computes."""
        if self.operation not in _ATTENTION:
            return _grouped.composed(self.operation, *tensors)
        given = dict(zip(self.names, tensors))
        operands: list[Any] = [given.get(name) for name in _sdpa.TENSORS]
        if "dy" in given:
            return list(_sdpa.composed_gradient(given["dy"], *operands, *self.numbers))
        composed: Any = _sdpa.composed
        return composed(*operands, *self.numbers)


def _named(node: torch.fx.Node) -> tuple[list[tuple[str, Any]], tuple[Any, ...]]:
    """Returns the operands of an operation, and its numbers."""
    args: list[Any] = list(node.args)
    if node.target not in _ATTENTION:
        return list(zip(_grouped.KINDS[node.target][1], args)), ()
    dy = [("dy", args.pop(0))] if node.target is _sdpa.ATTENTION_GRADIENT else []
    tensors = list(zip(_sdpa.TENSORS, args))
    named = [(n, t) for n, t in [*tensors[:3], *dy, *tensors[3:]] if t is not None]
    return named, tuple(args[len(_sdpa.TENSORS) :])


def cut(module: torch.fx.GraphModule) -> list[Site]:
    """Cuts operations out of a graph that become calls: behind its arguments are the results
    of what was cut out, and behind its results the operands."""
    graph = module.graph
    nodes = list(graph.nodes)
    found = [n for n in nodes if n.target in (*_ATTENTION, *_grouped.KINDS)]
    first = next(n for n in nodes if n.op != "placeholder")
    output = nodes[-1]
    given: dict[torch.fx.Node, int] = {}
    num_arguments = 0
    sites = []
    for node in found:
        named, numbers = _named(node)
        values = [t.meta["val"] for _, t in named]
        users: list[Any] = [node]
        if node.target is _sdpa.ATTENTION_GRADIENT:
            items = {user.args[1]: user for user in node.users}
            users = [items.get(i) for i in range(3)]
        results: list[int | None] = []
        for user in users:
            results.append(None if user is None else num_arguments)
            if user is None:
                continue
            with graph.inserting_before(first):
                argument = graph.placeholder(f"called_{num_arguments}")
            argument.meta["val"] = user.meta["val"]
            num_arguments += 1
            user.replace_all_uses_with(argument)
        sites.append(
            Site(
                node.target,
                tuple(n for n, _ in named),
                tuple((tuple(v.shape), v.dtype) for v in values),
                numbers,
                [given.setdefault(t, len(given)) for _, t in named],
                results,
                _nodes.place_of_node(node),
            )
        )
    # What reads an operation reads an argument now, and an operand may be one.
    output.args = ([*output.args[0], *given],)
    _nodes.erase_unused(graph)
    return sites


def splice(
    module: ir.Module, sites: Sequence[Site], lower: Callable[[torch.fx.GraphModule], ir.Module]
) -> None:
    """Puts calls where operations were cut out, and the functions that they call.

    Args:
      module: what the graph without them became.
      sites: what was cut out of it.
      lower: makes a module of the graph of a function.
    """
    if not sites:
        return
    step = next(op for op in module.body.operations if _name_of(op) == "step")
    block = step.regions[0].blocks[0]
    end = list(block.operations)[-1].operation
    num_results = len(end.operands) - 1 - max(max(site.operands) for site in sites)
    num_taken = sum(place is not None for site in sites for place in site.results)
    num_arguments = len(block.arguments) - num_taken
    names: dict[Any, tuple[str, list[Any]]] = {}
    for site in sites:
        if site.function not in names:
            name = f"{site.name}{len(names)}"
            types = _add_function(module, name, site, lower)
            names[site.function] = name, types
    for site in sites:
        name, types = names[site.function]
        place = ir.Location.unknown()
        if site.place:
            place = ir.Location.file(*site.place, 0)
        with ir.InsertionPoint(end), place:
            call = ir.Operation.create(
                "func.call",
                results=types,
                operands=[end.operands[num_results + i] for i in site.operands],
                attributes={"callee": ir.FlatSymbolRefAttr.get(name)},
            )
        for result, argument in zip(call.results, site.results):
            if argument is not None:
                block.arguments[num_arguments + argument].replace_all_uses_with(result)
    with ir.InsertionPoint(end), end.location:
        results = list(end.operands)[:num_results]
        ir.Operation.create("func.return", operands=results)
    end.erase()
    for _ in range(num_taken):
        block.erase_argument(num_arguments)
    kind = ir.FunctionType.get(
        [a.type for a in block.arguments], [r.type for r in results]
    )
    step.attributes["function_type"] = ir.TypeAttr.get(kind)
    _sort(block)


def _name_of(function: Any) -> str:
    return str(ir.StringAttr(function.attributes["sym_name"]).value)


def _add_function(
    module: ir.Module,
    name: str,
    site: Site,
    lower: Callable[[torch.fx.GraphModule], ir.Module],
) -> list[Any]:
    """Adds the function of what was cut out to a module; returns the types of its
    results."""
    made = lower(_graph_of(site))
    text = made.body.operations[0].get_asm(use_local_scope=True)
    function: Any = ir.Operation.parse(text, context=module.context)
    for inner in [function, *_within(function)]:
        inner.location = ir.Location.unknown(module.context)
    function.attributes["sym_name"] = ir.StringAttr.get(name)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    key, value = site.attribute()
    function.attributes[key] = value
    module.body.append(function)
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    return list(kind.results)


def _graph_of(site: Site) -> torch.fx.GraphModule:
    """Returns the graph of a function."""
    examples = [torch.empty(shape, dtype=dtype) for shape, dtype in site.forms]
    with _private.without_values(examples) as tensors:
        graph = _private.traced(site.compute, _decompositions.table(), tensors)
    _constants.fold(graph)
    return graph


def _within(operation: Any) -> Iterator[Any]:
    """Yields the operations in the regions of one."""
    for region in operation.regions:
        for block in region:
            for child in block.operations:
                yield child.operation
                yield from _within(child.operation)


def _sort(block: Any) -> None:
    """Puts the operations of a block in an order in which values are there before they are
    used, which is the order that they have where that is one."""
    ops = [op.operation for op in block.operations]
    places = {op: i for i, op in enumerate(ops)}
    needed = []
    for op in ops:
        values = [v for each in (op, *_within(op)) for v in each.operands]
        owners = (v.owner for v in values)
        needed.append([places[o] for o in owners if not isinstance(o, ir.Block) and o in places])
    order: list[int] = []
    done = [False] * len(ops)
    stack = list(reversed(range(len(ops))))
    while stack:
        i = stack[-1]
        waiting = [] if done[i] else [j for j in needed[i] if not done[j]]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if not done[i]:
            done[i] = True
            order.append(i)
    for i in order[:-1]:
        ops[i].move_before(ops[order[-1]])
