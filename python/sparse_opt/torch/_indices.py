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

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sparse_opt._errors import ExportError
from sparse_opt.torch import _nodes

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


def bounds_of(
    module: torch.fx.GraphModule,
    names: Mapping[torch.fx.Node, str],
    constants: Mapping[torch.fx.Node, torch.Tensor],
) -> tuple[dict[str, Bound], Computed | None]:
    """Returns the bounds of what the batch has, by name, and of what it makes.

    Args:
      module: the step, in PyTorch's operations.
      names: those of the batch, by their placeholders.
      constants: other placeholders whose values are known.

    Raises:
      ExportError: an index may lie anywhere.
    """
    bounds: dict[str, Bound] = {}
    computed: list[_Lookup] = []
    constant: list[_Lookup] = []
    writes = _writes(module)
    ranges = _Ranges(writes)
    constants = {n: value for n, value in constants.items() if n not in writes}
    seen = set()
    for node in module.graph.nodes:
        for index, bound in _lookups(node):
            if (index, str(bound)) in seen:
                continue
            seen.add((index, str(bound)))
            leaf = _uncast(index)
            if leaf in names and leaf not in writes:
                name = names[leaf]
                bounds[name] = _both(bounds.get(name, bound), bound)
                continue
            known = ranges.find(index)
            if known and bound.begin <= known[0] and known[1] < bound.end:
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
    return bounds, (
        _computed(module, computed, names, constants) if computed else None
    )


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


Range = tuple[int, int]


class _Ranges:
    """The least and the largest values that integers can have."""

    def __init__(self, writes: Mapping[torch.fx.Node, Any]) -> None:
        self._writes = writes
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

    def _sources(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """Returns the nodes whose ranges that of `node` depends on."""
        sources: Sequence[Any] = ()
        if node in self._writes:
            return []
        if node.target in _SAME_ELEMENTS or node.target == aten.clamp.default:
            sources = node.args[:1]
        elif node.target == aten._to_copy.default:
            sources = [n for n in node.all_input_nodes if not _is_floating(n)]
        elif node.target == aten.where.self:
            sources = node.args[1:]
        return [n for n in sources if isinstance(n, torch.fx.Node)]

    def _get(self, node: Any) -> Range | None:
        return (node, node) if isinstance(node, int) else self._known.get(node)

    def _compute(self, node: torch.fx.Node) -> Range | None:
        if node in self._writes:
            return None
        args: Any = node.args
        target = node.target
        if target in _SAME_ELEMENTS:
            return self._get(args[0])
        if target == aten._to_copy.default:
            if args[0].meta["val"].dtype == torch.bool:
                return 0, 1
            return None if _is_floating(args[0]) else self._get(args[0])
        if target in (aten.argmax.default, aten.argmin.default):
            return 0, _length(args if len(args) > 1 else (*args, None)) - 1
        if target == operator.getitem and args[1] == 1 and args[0].target in _WITH_PLACES:
            search = args[0]
            dim = search.kwargs.get("dim")
            place = _WITH_PLACES[search.target]
            both = search.args if dim is None else (search.args[0], dim)
            return 0, _length(both, place if dim is None else 1) - 1
        if target == aten.remainder.Scalar and isinstance(args[1], int) and args[1] > 0:
            return 0, args[1] - 1
        if target == aten.clamp.default:
            known = self._get(args[0]) or (-(1 << 63), (1 << 63) - 1)
            low = args[1] if len(args) > 1 and args[1] is not None else known[0]
            high = args[2] if len(args) > 2 and args[2] is not None else known[1]
            return min(max(known[0], low), high), max(min(known[1], high), low)
        if target == aten.where.self:
            first, second = self._get(args[1]), self._get(args[2])
            if first is None or second is None:
                return None
            return min(first[0], second[0]), max(first[1], second[1])
        return None


_WITH_PLACES = {
    aten.max.dim: 1, aten.min.dim: 1, aten.topk.default: 2, aten.sort.default: 1,
    aten.sort.stable: 2, aten.median.dim: 1, aten.kthvalue.default: 2,
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
