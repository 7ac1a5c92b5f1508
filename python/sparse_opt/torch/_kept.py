# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What exports made of traces, kept on disk.

"""Texts of exports, by all that they are made of.

An export always runs the step and has its graph. What follows, decompositions, torch-mlir
and the text, is a function of that graph, of the forms of the step's arguments, of the
rules by which they begin, and of the versions of what computes it: of these the key is a
hash. A graph with something in it whose content is not known (an operation of another
library, an object that is no number) has no key, nor has one that is made while PyTorch
calls modes of the user's. Their exports are made each time, and so are all of them where
`SPARSE_OPT_CACHE_EXPORTS=0`.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.metadata
import json
import operator
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch_mlir

from sparse_opt import cache
from sparse_opt.torch import _arguments, _capture, _private


class _Unknown(Exception):
    """Something has a content that is not known."""


class Kept:
    """What an export made of a trace: the text of the step, its results, and the arguments
    that it uses, with the place of the next value of each."""

    def __init__(
        self, text: str, results: Sequence[tuple[str, str]], used: Mapping[str, int | None]
    ) -> None:
        self.text, self.results, self.used = text, results, used

    @classmethod
    def of(cls, capture: _capture.Capture, text: str) -> Kept:
        return cls(text, capture.results, {a.name: a.result for a in capture.arguments})

    def capture(self, traced: _capture.Traced) -> _capture.Capture:
        """Returns the step of a trace that this was made of."""
        used = [a for a in traced.arguments if a.name in self.used]
        for argument in used:
            argument.result = self.used[argument.name]
        results = [(name, role) for name, role in self.results]
        return _capture.capture_of(traced, used, results, None)


def find(key: str | None) -> Kept | None:
    """Returns what was kept under a key; None: nothing, or it was damaged."""
    content = cache.read(f"{key}{cache.EXPORT}") if key else None
    if content is None:
        return None
    try:
        return Kept(**json.loads(gzip.decompress(content)))
    except (OSError, EOFError, zlib.error, ValueError, TypeError):
        return None  # It is written again.


def keep(key: str | None, kept: Kept) -> None:
    """Keeps something under a key, where there is one and the folder can be written."""
    if key:
        content = json.dumps(vars(kept)).encode()
        cache.write(f"{key}{cache.EXPORT}", gzip.compress(content, 1, mtime=0))


def key_of(traced: _capture.Traced, rules: Mapping[str, str], locations: bool) -> str | None:
    """Returns what the text of a trace is kept under; None: under nothing.

    Args:
      rules: how arguments begin, by their names.
      locations: whether the text has the user's lines.
    """
    if os.environ.get("SPARSE_OPT_CACHE_EXPORTS") == "0" or _private.has_modes():
        return None
    try:
        parts = (
            _versions(),
            _private.settings(),
            _forms_of(traced.arguments),
            _content_of(traced.graph),
            (traced.runs, traced.is_step, len(traced.function.output_types)),
            tuple(traced.recording.numbers),
            tuple(rules.items()),
            locations,
        )
    except _Unknown:
        return None
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:32]


@functools.cache
def _versions() -> tuple[Any, ...]:
    """Returns what computes a text: this package by its content, others by their versions."""
    own = Path(_arguments.__file__).parents[1]
    sources = hashlib.sha256()
    for path in sorted(own.rglob("*.py")):
        if path.stat().st_mtime > cache.LOADED:
            raise _Unknown  # What runs is what it was before.
        sources.update(f"{path.relative_to(own)}\0".encode())
        sources.update(hashlib.sha256(path.read_bytes()).digest())
    libraries = []
    for folder in torch_mlir.__path__:
        for path in sorted(Path(folder).rglob("*.so")):
            status = path.stat()
            libraries.append((str(path), status.st_mtime_ns, status.st_size))
    return (
        sources.hexdigest(),
        torch.__version__,
        torch.version.git_version,
        torch.__file__,
        importlib.metadata.version("torch-mlir"),
        tuple(libraries),
        sys.version,
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
            raise _Unknown
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


_LIBRARIES = ("aten", "prim", "prims", "sparse_opt")


def _target_of(module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    if node.op == "call_function":
        is_known = getattr(node.target, "namespace", "") in _LIBRARIES
        if not is_known and node.target is not operator.getitem:
            raise _Unknown
        return str(node.target)
    if node.op == "get_attr":
        return node.target, _constant(getattr(module, str(node.target)))
    if node.op not in ("placeholder", "output"):
        raise _Unknown
    return node.target


def _constant(value: Any) -> Any:
    """Returns the content of what a graph has as an attribute."""
    if isinstance(value, torch.fx.GraphModule):
        return _content_of(value)
    if type(value) is not torch.Tensor or _private.is_without_values(value):
        raise _Unknown
    form = _form(value)
    if form[-2:] != (False, False):
        raise _Unknown
    numbers = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return form, value.requires_grad, hashlib.sha256(numbers.tobytes()).hexdigest()


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
    raise _Unknown
