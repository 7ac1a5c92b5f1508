# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What exports made of traces, kept on disk.

"""Texts of exports, by all that they are made of.

An export always runs the step, twice, and knows what it did. The graph of that, which
takes longer, is a function of it, of the forms of the step's arguments, and of the
versions of what computes it: of these the key of a run is a hash, under which the key of
the graph is kept. The text, which takes longer still, is a function of the graph, and of
the rules by which arguments begin, and is kept under the key of the graph. What has
something in it whose content is not known (an operation of another library, an object that
is no number) has no key, nor has what is made while PyTorch calls modes of the user's.
Their exports are made each time, and so are all of them where
`SPARSE_OPT_CACHE_EXPORTS=0`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from sparse_opt import _export_cache, _progress, cache
from sparse_opt.torch import _arguments, _capture, _indices, _private, _recording


class Kept:
    """What an export made of a graph: the text of the step, its results, and the arguments
    that it uses, with the place of the next value of each."""

    def __init__(
        self, text: str, results: Sequence[tuple[str, str]], used: Mapping[str, int | None]
    ) -> None:
        self.text, self.results, self.used = text, results, used

    def capture(
        self, recorded: _capture.Recorded, lookups: _indices.Lookups
    ) -> _capture.Capture:
        """Returns the step that this was made of."""
        used = [a for a in recorded.arguments if a.name in self.used]
        for argument in used:
            argument.result = self.used[argument.name]
        results = [(name, role) for name, role in self.results]
        return _capture.capture_of(recorded, used, results, lookups, None)


class _Run:
    """What is kept of a run: the key of its graph, where indices have to lie, and the content
    of the arguments that were looked at for that."""

    def __init__(
        self, graph: str, bounds: Mapping[str, Sequence[Any]], read: Mapping[str, str]
    ) -> None:
        self.graph, self.read = graph, read
        self.bounds = {name: _indices.Bound(*bound) for name, bound in bounds.items()}

    @property
    def lookups(self) -> _indices.Lookups:
        return _indices.Lookups(self.bounds, None, list(self.read))


Lower = Callable[[_capture.Capture, Mapping[str, str], bool], str]


def export(
    recorded: _capture.Recorded, rules: Mapping[str, str], locations: bool, lower: Lower
) -> tuple[str, _capture.Capture]:
    """Returns the text of a step that has run once, and what its arguments and results are.
    Raises `ExportError` if it does something else when it runs again.

    Args:
      rules: how arguments begin, by their names.
      locations: whether the text has the user's lines.
      lower: makes the text of a graph that is linked with its arguments.
    """
    _progress.stage("trace again")
    key = _key_of_run(recorded, rules, locations)
    run = _export_cache.read(key, cache.RUN, _Run)
    kept = _export_cache.read(run.graph, cache.EXPORT, Kept) if run else None
    if run and kept and run.read == _contents_of(recorded, run.read):
        captured = kept.capture(recorded, run.lookups)
        _capture.require_alike(recorded)
        return kept.text, captured
    traced = _capture.traced(recorded)
    graph = _key_of_graph(traced, rules, locations)
    kept = _export_cache.read(graph, cache.EXPORT, Kept)
    if kept is None:
        captured = _capture.decomposed(traced)
        text = lower(captured, rules, locations)
        used = {a.name: a.result for a in captured.arguments}
        kept = Kept(text, captured.results, used)
        _export_cache.write(graph, cache.EXPORT, vars(kept))
    else:
        captured = kept.capture(recorded, traced.lookups)
    lookups = traced.lookups
    if graph and not lookups.computed:
        bounds = {name: dataclasses.astuple(b) for name, b in lookups.bounds.items()}
        read = _contents_of(recorded, lookups.read)
        _export_cache.write(key, cache.RUN, {"graph": graph, "bounds": bounds, "read": read})
    return kept.text, captured


def _key_of_run(
    recorded: _capture.Recorded, rules: Mapping[str, str], locations: bool
) -> str | None:
    """Returns what the graph of a run is kept under; None: under nothing.

    An optimizer's step that branches is run in ways which no graph has.
    """
    if recorded.known.branches:
        return None
    return _key("run", recorded, recorded.recording.content, rules, locations)


def _key_of_graph(
    traced: _capture.Traced, rules: Mapping[str, str], locations: bool
) -> str | None:
    """Returns what the text of a graph is kept under; None: under nothing."""

    def content() -> Any:
        return _content_of(traced.graph), tuple(traced.recorded.recording.numbers)

    return _key("graph", traced.recorded, content, rules, locations)


def _key(
    kind: str,
    recorded: _capture.Recorded,
    content: Callable[[], Any],
    rules: Mapping[str, str],
    locations: bool,
) -> str | None:
    if _export_cache.is_off() or _private.has_modes():
        return None
    try:
        known = content()
        if known is None:
            return None
        parts = (
            kind,
            _versions(),
            _private.settings(),
            _forms_of(recorded.arguments),
            known,
            (recorded.runs, recorded.is_step, len(recorded.function.output_types)),
            tuple(rules.items()),
            locations,
        )
    except _export_cache.Unknown:
        return None
    return _export_cache.key_of(parts)


def _contents_of(recorded: _capture.Recorded, names: Iterable[str]) -> dict[str, str]:
    """Returns hashes of what arguments hold."""
    values = {a.name: a.value for a in recorded.arguments}
    return {name: _numbers_of(values[name]) for name in names}


@functools.cache
def _versions() -> tuple[Any, ...]:
    """Returns what computes a text: this package by its content, others by their versions."""
    return (
        _export_cache.own_version(),
        torch.__version__,
        torch.version.git_version,
        torch.__file__,
        importlib.metadata.version("torch-mlir"),
        _export_cache.libraries_of("torch_mlir"),
    )


def _forms_of(arguments: Sequence[_arguments.Argument]) -> tuple[Any, ...]:
    """Returns all of arguments but their values, and which share their memory."""
    first: dict[int, int] = {}
    forms = []
    for i, argument in enumerate(arguments):
        value = argument.value
        memory = value.untyped_storage()
        forms.append(
            (
                argument.name, argument.role, tuple(argument.aliases), type(value).__qualname__,
                _form(value), value.requires_grad, value.is_leaf, _private.is_view(value),
                memory.nbytes(), first.setdefault(memory.data_ptr(), i),
            )  # fmt: skip
        )
    return tuple(forms)


def _form(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise _export_cache.Unknown
        return (
            tuple(value.shape), value.stride(), value.storage_offset(), str(value.dtype),
            str(value.device), value.is_conj(), value.is_neg(),
        )  # fmt: skip
    if isinstance(value, (list, tuple)):
        return tuple(map(_form, value))
    return type(value).__qualname__


def _content_of(module: torch.fx.GraphModule) -> tuple[Any, ...]:
    """Returns all that a graph has: operations, their operands, what they make, and the
    user's lines."""
    places: dict[torch.fx.Node, int] = {}
    forms: dict[int, Any] = {}  # Most values are the same few objects.
    content = []
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if id(value) not in forms:
            forms[id(value)] = _form(value)
        content.append(
            (
                node.op, node.name, _target_of(module, node), _operand(node.args, places),
                _operand(node.kwargs, places), forms[id(value)], node.stack_trace,
            )  # fmt: skip
        )
        places[node] = len(places)
    return tuple(content)


def _target_of(module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    if node.op == "call_function":
        is_known = getattr(node.target, "namespace", "") in _recording.LIBRARIES
        if not is_known and node.target is not operator.getitem:
            raise _export_cache.Unknown
        return str(node.target)
    if node.op == "get_attr":
        return node.target, _constant(getattr(module, str(node.target)))
    if node.op not in ("placeholder", "output"):
        raise _export_cache.Unknown
    return node.target


def _constant(value: Any) -> Any:
    """Returns the content of what a graph has as an attribute."""
    if isinstance(value, torch.fx.GraphModule):
        return _content_of(value)
    if type(value) is not torch.Tensor or _private.is_without_values(value):
        raise _export_cache.Unknown
    form = _form(value)
    if form[-2:] != (False, False):
        raise _export_cache.Unknown
    return form, value.requires_grad, _numbers_of(value)


def _numbers_of(value: torch.Tensor) -> str:
    """Returns a hash of the numbers in a tensor."""
    numbers = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(numbers.tobytes()).hexdigest()


def _operand(value: Any, places: Mapping[torch.fx.Node, int]) -> Any:
    """Returns an operand with its type: 1, 1.0 and True are three."""
    if isinstance(value, torch.fx.Node):
        return "node", places[value]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return (kind, *(_operand(item, places) for item in value))
    if isinstance(value, dict):
        return "dict", tuple((key, _operand(item, places)) for key, item in value.items())
    if value is None or type(value) in _private.OPERANDS:
        return type(value).__name__, repr(value)
    raise _export_cache.Unknown
