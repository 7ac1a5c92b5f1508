# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the indices of look-ups come from, and where they have to lie.

"""Bounds of indices.

A look-up in the compiled step does not check its indices. Those that are parts
of the batch are checked before each step, and so are those that are computed
from it: what computes them is kept as a small graph. The others lie in their
table by what makes them, as `argmax` and `clamp` do, or the step is refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sparse_opt._errors import ExportError
from sparse_opt.torch import _arguments, _nodes

aten = torch.ops.aten


@dataclass
class Bound:
    """Indices are at least `begin` and below `end`, or they are `ignored`."""

    begin: int
    end: int
    ignored: int | None = None

    def first_outside(self, indices: Any) -> int | None:
        """Returns the first of `indices`, an array, that is out of bounds."""
        wrong = (indices < self.begin) | (indices >= self.end)
        if self.ignored is not None:
            wrong &= indices != self.ignored
        return int(indices[wrong][0]) if wrong.any() else None

    def __str__(self) -> str:
        return f"indices from {self.begin} to {self.end - 1}"


@dataclass
class Computed:
    """Indices that are computed from the batch alone."""

    graph: torch.fx.GraphModule
    inputs: Sequence[str]
    bounds: Sequence[tuple[Bound, str]]  # with the line of the look-up

    def first_outside(self, batch: Mapping[str, torch.Tensor]) -> str | None:
        """Returns what is wrong with the indices that `batch` has, if anything."""
        # What computes them may write in place.
        inputs = [batch[name].detach().clone() for name in self.inputs]
        with torch.no_grad():
            for indices, (bound, line) in zip(self.graph(*inputs), self.bounds):
                index = bound.first_outside(indices)
                if index is not None:
                    return f"expected {bound}{line}, but got {index}"
        return None


@dataclass
class Lookups:
    """Where the indices of a step have to lie.

    Args:
      bounds: those of what the batch has, by name.
      computed: those of what it makes.
      read: the names of other arguments whose values lie where they have to.
    """

    bounds: dict[str, Bound]
    computed: Computed | None
    read: list[str]


def lookups_of(
    module: torch.fx.GraphModule,
    names: Mapping[torch.fx.Node, str],
    known: Mapping[torch.fx.Node, _arguments.Argument],
) -> Lookups:
    """Returns where the indices of a step have to lie.

    Args:
      module: the step, in PyTorch's operations.
      names: those of the batch, by their placeholders.
      known: other placeholders whose values are known.

    Raises:
      ExportError: an index may lie anywhere.
    """
    bounds: dict[str, Bound] = {}
    differing = _differing_parts(module)
    computed: list[_Lookup] = []
    constant: list[_Lookup] = []
    writes = _writes(module)
    ranges = _Ranges(module, writes)
    constants = {n: a.value for n, a in known.items() if n not in writes}
    seen = set()
    for node in module.graph.nodes:
        for index, bound in _lookups(node):
            if (index, str(bound)) in seen:
                continue
            seen.add((index, str(bound)))
            leaf = _uncast(index)
            is_part = leaf in differing and not _is_whole(index)
            if leaf in names and leaf not in writes and not is_part:
                name = names[leaf]
                bounds[name] = _both(bounds.get(name, bound), bound)
                continue
            lies = ranges.find(index)
            if lies and bound.begin <= lies[0] and lies[1] < bound.end:
                continue
            line = _nodes.line_of_node(node)
            sources = _sources(index, writes)
            placeholders = {n for n in sources if n.op == "placeholder"}
            if not placeholders <= {*names, *constants}:
                raise ExportError(
                    f"expected {bound} by what makes them, but got others"
                    f"{line}: add .clamp({bound.begin}, {bound.end - 1}), or compute"
                    " them from the batch alone"
                )
            kind = computed if placeholders & set(names) else constant
            kind.append(_Lookup(index, bound, line, sources))
    if constant:
        wrong = _computed(module, constant, names, constants).first_outside({})
        if wrong:
            raise ExportError(wrong)
    nodes = set[torch.fx.Node]().union(*(lookup.sources for lookup in constant))
    return Lookups(
        bounds,
        _computed(module, computed, names, constants) if computed else None,
        [argument.name for node, argument in known.items() if node in nodes],
    )


def _differing_parts(module: torch.fx.GraphModule) -> set[Any]:
    """Returns what has parts that look into tables of different sizes."""
    found: dict[Any, set[str]] = {}
    for node in module.graph.nodes:
        for index, bound in _lookups(node):
            found.setdefault(_uncast(index), set()).add(str(bound))
    return {leaf for leaf, bounds in found.items() if len(bounds) > 1}


def _is_whole(node: Any) -> bool:
    """Returns whether `node` has all elements of what `_uncast` returns."""
    return bool(node.meta["val"].numel() >= _uncast(node).meta["val"].numel())


@dataclass
class _Lookup:
    """Indices with their bound, the line that looks up, and what makes them."""

    index: torch.fx.Node
    bound: Bound
    line: str
    sources: set[torch.fx.Node]


def _both(first: Bound, second: Bound) -> Bound:
    return Bound(
        max(first.begin, second.begin),
        min(first.end, second.end),
        first.ignored if first.ignored == second.ignored else None,
    )


def _lookups(node: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, Bound]]:
    """Yields the indices that a node reads or writes by."""
    args: Any = node.args

    def length(dim: int, of: Any = None) -> int:
        shape = (args[0] if of is None else of).meta["val"].shape
        return int(shape[dim]) if shape else 1

    if node.target == aten.embedding.default:
        yield args[1], Bound(0, length(0))
    elif node.target in (
        aten.nll_loss_forward.default, aten.nll_loss2d_forward.default,
    ):  # fmt: skip
        dim = 1 if node.target == aten.nll_loss2d_forward.default else -1
        yield args[1], Bound(0, length(dim), args[4])
    elif node.target in _BY_DIMENSION:
        yield args[2], Bound(0, length(args[1]))
    elif node.target in _BY_POSITION:
        for dim, index in enumerate(args[1]):
            if index is not None and index.meta["val"].dtype not in _MASKS:
                yield index, Bound(-length(dim), length(dim))


_MASKS = (torch.bool, torch.uint8)
_BY_POSITION = {
    aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default,
    aten.index_put_.default, aten._unsafe_index_put.default,
}  # fmt: skip
_BY_DIMENSION = {
    getattr(getattr(aten, name), overload)
    for name, overloads in {
        "gather": ("default",),
        "index_select": ("default",),
        **dict.fromkeys(("index_add", "index_copy"), ("default",)),
        **dict.fromkeys(("index_add_", "index_copy_"), ("default",)),
        **dict.fromkeys(("scatter", "scatter_"), ("src", "value")),
        **dict.fromkeys(("scatter_add", "scatter_add_"), ("default",)),
        **dict.fromkeys(("scatter_reduce", "scatter_reduce_"), ("two",)),
    }.items()
    for overload in overloads
}


_SAME_ELEMENTS = {
    aten.view.default, aten.clone.default, aten.slice.Tensor, aten.alias.default,
    aten.detach.default, aten._unsafe_view.default, aten.squeeze.dim,
    aten.unsqueeze.default, aten.expand.default, aten.select.int,
    aten.permute.default, aten.transpose.int, aten.t.default,
}  # fmt: skip


def _uncast(node: Any) -> Any:
    """Returns the node whose elements `node` has, perhaps as other integers."""
    while (
        isinstance(node, torch.fx.Node)
        and node.target in {*_SAME_ELEMENTS, aten._to_copy.default}
        and (source := node.all_input_nodes[0])
        and not source.meta["val"].dtype.is_floating_point
    ):
        node = source
    return node


def _writes(module: torch.fx.GraphModule) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """Returns what writes into a node's memory, or the views of it that are written into."""
    writes: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in module.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and (
            node.target._schema.is_mutable
        ):
            writer, written = node, node.args[0]
            while isinstance(written, torch.fx.Node):
                # What a known one is a view of knows it, too: chains are long.
                is_known = written in writes
                writes.setdefault(written, []).append(writer)
                if is_known or not _is_view(written):
                    break
                writer, written = written, written.args[0]
    return writes


def _is_view(node: torch.fx.Node) -> bool:
    """Returns whether a node may share the memory of its first argument."""
    if node.target in (operator.getitem, aten._unsafe_view.default):
        return True
    return isinstance(node.target, torch._ops.OpOverload) and any(
        result.alias_info is not None for result in node.target._schema.returns
    )


def _sources(
    node: torch.fx.Node, writes: Mapping[torch.fx.Node, Sequence[torch.fx.Node]]
) -> set[torch.fx.Node]:
    """Returns all that `node` is computed from, and itself."""
    found: set[torch.fx.Node] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [*node.all_input_nodes, *writes.get(node, ())]
    return found


def _computed(
    module: torch.fx.GraphModule,
    lookups: Sequence[_Lookup],
    names: Mapping[torch.fx.Node, str],
    constants: Mapping[torch.fx.Node, torch.Tensor],
) -> Computed:
    """Returns what computes indices."""
    nodes = set[torch.fx.Node]().union(*(lookup.sources for lookup in lookups))
    graph = torch.fx.Graph()
    root = torch.nn.Module()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    inputs = [n for n in module.graph.nodes if n in nodes and n in names]
    for node in inputs:
        copies[node] = graph.placeholder(names[node].replace(".", "_"))
    for node in module.graph.nodes:
        if node not in nodes or node in copies:
            continue
        if node.op == "call_function":
            copies[node] = graph.node_copy(node, lambda n: copies[n])
            continue
        value = constants[node] if node.op == "placeholder" else getattr(
            module, str(node.target)
        )
        name = f"constant_{len(copies)}"
        root.register_buffer(name, value.detach().clone())
        copies[node] = graph.get_attr(name)
    graph.output([copies[lookup.index] for lookup in lookups])
    bounds = [(lookup.bound, lookup.line) for lookup in lookups]
    return Computed(
        torch.fx.GraphModule(root, graph), [names[n] for n in inputs], bounds
    )


Range = tuple[float, float]


class _Ranges:
    """The least and the largest values that indices, and what makes them, can have."""

    def __init__(self, module: torch.fx.GraphModule, writes: Mapping[torch.fx.Node, Any]):
        self._module = module
        self._writes = writes
        self._variable = set[torch.fx.Node]()
        for node in module.graph.nodes:
            is_given = node.op == "placeholder" or node.target in _DRAWN
            if is_given or not self._variable.isdisjoint(node.all_input_nodes):
                self._variable.add(node)
        self._known: dict[torch.fx.Node, Range | None] = {}

    def find(self, node: torch.fx.Node) -> Range | None:
        """Returns the range of `node`, if it is known."""
        # Without recursion, and each node once: chains are as long as programs.
        stack = [node]
        while stack:
            missing = [n for n in self._sources(stack[-1]) if n not in self._known]
            if not missing:
                node = stack.pop()
                self._known[node] = self._compute(node)
            stack += missing
        return self._known[node]

    def _is_written(self, node: torch.fx.Node) -> bool:
        """Returns whether somebody may write into a node, but for one that goes on."""
        writes = self._writes.get(node, ())
        return not (not writes or len(writes) == 1 and writes[0].target in _IN_PLACE)

    def _sources(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """Returns the nodes whose ranges that of `node` depends on."""
        target = _IN_PLACE.get(node.target, node.target)
        sources: Sequence[Any] = ()
        if self._is_written(node):
            return []
        if target in {*_SAME_ELEMENTS, *_OF_ONE}:
            sources = node.args[:1]
        elif target == aten._to_copy.default:
            sources = node.all_input_nodes
        elif target == aten.where.self:
            sources = node.args[1:]
        return [n for n in sources if isinstance(n, torch.fx.Node)]

    def _get(self, node: Any) -> Range | None:
        return self._known.get(node) if isinstance(node, torch.fx.Node) else (node, node)

    def _compute(self, node: torch.fx.Node) -> Range | None:
        if self._is_written(node):
            return None
        args: Any = node.args
        target = _IN_PLACE.get(node.target, node.target)
        if target in _OF_ONE:
            return self._constant(node) or _OF_ONE[target](self._get(args[0]), node)
        if target in _SAME_ELEMENTS:
            return self._get(args[0]) or self._constant(node)
        if target == aten._to_copy.default:
            return self._converted(node)
        if target in (aten.argmax.default, aten.argmin.default):
            return 0, _length(args if len(args) > 1 else (*args, None)) - 1
        if target == operator.getitem and args[1] == 1 and args[0].target in _WITH_PLACES:
            search = args[0]
            dim = search.kwargs.get("dim")
            place = _WITH_PLACES[search.target]
            both = search.args if dim is None else (search.args[0], dim)
            return 0, _length(both, place if dim is None else 1) - 1
        if target in _DRAWN:
            return _DRAWN[target](args)
        if target == aten.where.self:
            return _union(self._get(args[1]), self._get(args[2]))
        return self._constant(node)

    def _converted(self, node: torch.fx.Node) -> Range | None:
        source: Any = node.args[0]
        if source.meta["val"].dtype == torch.bool:
            return 0, 1
        known = self._get(source)
        if known is None or _is_floating(node) or not _is_floating(source):
            return known
        return int(known[0]), int(known[1])

    def _constant(self, node: torch.fx.Node) -> Range | None:
        """Returns the range of what is computed from constants alone."""
        if node in self._variable or node.op != "call_function":
            return None
        sources = _sources(node, self._writes)
        if not self._variable.isdisjoint(sources):
            return None
        known = _computed(self._module, [_Lookup(node, Bound(0, 0), "", sources)], {}, {})
        with torch.no_grad():
            (value,) = known.graph()
        low, high = value.min().item(), value.max().item()
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _union(first: Range | None, second: Range | None) -> Range | None:
    if first is None or second is None:
        return None
    return min(first[0], second[0]), max(first[1], second[1])


def _clamped(known: Range | None, node: torch.fx.Node) -> Range | None:
    if _is_floating(node):  # NaN is beyond no bound.
        return None
    low, high = known or (-(1 << 63), (1 << 63) - 1)
    args: Any = node.args
    least = args[1] if len(args) > 1 and args[1] is not None else low
    most = args[2] if len(args) > 2 and args[2] is not None else high
    return min(max(low, least), most), max(min(high, most), least)


def _remainder(known: Range | None, node: torch.fx.Node) -> Range | None:
    divisor: Any = node.args[1]
    is_known = isinstance(divisor, int) and divisor > 0 and not _is_floating(node)
    return (0, divisor - 1) if is_known else None


def _moved(sign: int) -> Callable[[Range | None, torch.fx.Node], Range | None]:
    def move(known: Range | None, node: torch.fx.Node) -> Range | None:
        by: Any = node.args[1]
        is_number = isinstance(by, int) and not node.kwargs and len(node.args) == 2
        if known is None or not is_number:
            return None
        return known[0] + sign * by, known[1] + sign * by

    return move


def _filled(known: Range | None, node: torch.fx.Node) -> Range | None:
    value: Any = node.args[2]
    return _union(known, (value, value))


def _of_bounds(
    function: Callable[[float], float],
) -> Callable[[Range | None, torch.fx.Node], Range | None]:
    def run(known: Range | None, node: torch.fx.Node) -> Range | None:
        return None if known is None else (function(known[0]), function(known[1]))

    return run


# The range of a function of one tensor, from that of the tensor.
_OF_ONE: dict[Any, Callable[[Range | None, torch.fx.Node], Range | None]] = {
    aten.clamp.default: _clamped,
    aten.remainder.Scalar: _remainder,
    aten.add.Tensor: _moved(1), aten.add.Scalar: _moved(1),
    aten.sub.Tensor: _moved(-1), aten.sub.Scalar: _moved(-1),
    aten.relu.default: _of_bounds(lambda n: max(n, 0)),
    aten.ceil.default: _of_bounds(math.ceil), aten.floor.default: _of_bounds(math.floor),
    aten.masked_fill.Scalar: _filled,
}  # fmt: skip
_IN_PLACE: dict[Any, Any] = {
    aten.relu_.default: aten.relu.default, aten.ceil_.default: aten.ceil.default,
    aten.floor_.default: aten.floor.default, aten.clamp_.default: aten.clamp.default,
    aten.masked_fill_.Scalar: aten.masked_fill.Scalar,
}  # fmt: skip
# Random indices, by what the call says.
_DRAWN: dict[Any, Callable[[Any], Range]] = {
    aten.randint.default: lambda args: (0, args[0] - 1),
    aten.randint.low: lambda args: (args[0], args[1] - 1),
    aten.randint_like.default: lambda args: (0, args[1] - 1),
    aten.randint_like.low_dtype: lambda args: (args[1], args[2] - 1),
    aten.randperm.default: lambda args: (0, args[0] - 1),
    aten.multinomial.default: lambda args: (0, args[0].meta["val"].shape[-1] - 1),
}

_WITH_PLACES = {
    aten.max.dim: 1, aten.min.dim: 1, aten.topk.default: 2, aten.sort.default: 1,
    aten.sort.stable: 2, aten.median.dim: 1, aten.nanmedian.dim: 1,
    aten.kthvalue.default: 2, aten.cummax.default: 1, aten.cummin.default: 1,
}  # fmt: skip


def _is_floating(node: torch.fx.Node) -> bool:
    return bool(node.meta["val"].dtype.is_floating_point)


def _length(args: Sequence[Any], place: int = 1) -> int:
    """Returns the length of the dimension that an operation searches."""
    value = args[0].meta["val"]
    dim = args[place] if len(args) > place else -1
    if dim is None:
        return int(value.numel())
    return int(value.shape[dim]) if value.dim() else 1
