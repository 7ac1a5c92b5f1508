# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a function of the user's keeps outside of its arguments.

"""State that the code of a step reaches: globals, what it closes over, defaults.

An export runs Python, a compiled step does not. What changes each time that the code
runs (counters, meters, iterators) stays behind a compiled step as it was.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import sysconfig
import warnings
from collections import deque
from collections.abc import Iterator
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from sparse_opt._errors import ExportError
from sparse_opt._source import is_user_file, user_level

_MOST_BYTES = 1 << 20


class Outside:
    """The state that a function reaches, at one time.

    Args:
      function: what is called.
      known: objects whose state is looked at elsewhere.
    """

    def __init__(self, function: Any, known: tuple[type, ...] = ()) -> None:
        self._known = known
        self._seen: set[int] = set()
        # What holds a value, for people, and what of it can be compared.
        self._contents: dict[str, Any] = {}
        self._shown: dict[str, str] = {}
        for name, state in (
            ("random numbers of Python", random.getstate()),
            ("random numbers of NumPy", np.random.get_state()),
        ):
            self._contents[name], self._shown[name] = repr(state), ""
        self._visit_callable(function)

    def changes(self, after: Outside) -> Iterator[str]:
        """Yields what another time has otherwise, with its values where they are short."""
        for name, content in self._contents.items():
            if name in after._contents and after._contents[name] != content:
                old, new = self._shown[name], after._shown[name]
                yield f"{name}, from {old} to {new}" if old != new else name

    def require_alike(self, after: Outside, line: str | None, instead: str) -> None:
        """Raises `ExportError` if a second trace of a step differs from the first, at
        `line`; None if it does not. Warns of what changed nevertheless.

        Args:
          after: what the second trace left behind, where this is what it found.
          instead: where the state is to be.
        """
        changes = list(self.changes(after))
        if line is not None:
            what = changes[0] if changes else "something that it keeps outside"
            raise ExportError(
                "expected a step that does the same each time, but got one that computes"
                f" something else when it is traced again{line}, by {what}: make it"
                f" {instead}"
            )
        if changes:
            more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
            warnings.warn(
                "expected a step that changes nothing outside of its arguments, but got"
                f" one that changes {changes[0]}{more}, each time that it runs: the"
                " compiled step leaves that as it is",
                stacklevel=user_level(),
            )

    def _visit_callable(self, function: Any, name: str = "") -> None:
        while True:
            if isinstance(function, functools.partial):
                for i, value in enumerate((*function.args, *function.keywords.values())):
                    self._add(f"argument {i} of a partial", value)
                function = function.func
            elif isinstance(function, MethodType):
                owner = function.__self__
                self._add(name or f"an object of {type(owner).__name__}", owner)
                function = function.__func__
            elif not isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
                function = function.__wrapped__  # as jitted ones are
            else:
                break
        if isinstance(function, FunctionType):
            self._visit_function(function)
        elif _is_own(type(function)):
            self._add(name or f"an object of {type(function).__name__}", function)
            self._visit_callable(type(function).__call__)

    def _visit_function(self, function: FunctionType) -> None:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        if hasattr(function, "__wrapped__"):
            self._visit_callable(function.__wrapped__)
        if not _is_own_file(function.__code__.co_filename):
            return
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                self._add(f"'{name}', which {code.co_name} closes over", cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        own = function.__defaults__ or ()
        taking = code.co_varnames[code.co_argcount - len(own) : code.co_argcount]
        defaults = dict(zip(taking, own)) | (function.__kwdefaults__ or {})
        for argument, value in defaults.items():
            self._add(f"the default of '{argument}' of {code.co_name}", value)
        names = set(_names_of(code))
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            if isinstance(value, ModuleType):
                if _is_own_file(getattr(value, "__file__", None)):
                    for inner in sorted(names & vars(value).keys()):
                        self._add(f"'{name}.{inner}'", vars(value)[inner])
            else:
                self._add(f"the global '{name}'", value)

    def _add(self, name: str, value: Any) -> None:
        """Notes a value, and what its code reaches if it is a function."""
        owner = getattr(value, "__self__", None)
        if isinstance(value, BuiltinMethodType) and not isinstance(owner, ModuleType):
            self._contents[name], self._shown[name] = content(owner), _shown(value)
        elif isinstance(value, (FunctionType, MethodType, functools.partial)) or (
            callable(value) and hasattr(value, "__wrapped__")
        ):
            self._visit_callable(value, name)
        elif isinstance(value, type):
            if _is_own(value):
                self._visit_class(value)
        elif not isinstance(value, (*self._known, ModuleType)):
            self._contents[name] = content(value)
            self._shown[name] = _shown(value)
            if _is_own(type(value)):
                self._visit_class(type(value))

    def _visit_class(self, cls: type) -> None:
        if id(cls) in self._seen:
            return
        self._seen.add(id(cls))
        for name, value in vars(cls).items():
            if isinstance(value, FunctionType):
                self._visit_function(value)
            elif not name.startswith("__") and isinstance(value, (int, float, list, dict)):
                self._add(f"'{name}' of the class {cls.__name__}", value)


def content(value: Any) -> Any:
    """Returns what of a value can be compared later: numbers, text, containers, how far
    iterators and generators are."""
    return _Content().of(value, 4)


class _Content:
    """Takes values apart, of large ones the size alone."""

    def __init__(self) -> None:
        self._left = 10_000

    def of(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return type(value).__name__, repr(value)
        if isinstance(value, np.ndarray):
            is_small = value.nbytes < _MOST_BYTES and not value.dtype.hasobject
            return "array", value.shape, value.tobytes() if is_small else b""
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return "tensor"
        if (state := _state_of(value)) is not None:
            return state
        if isinstance(value, (dict, list, tuple, deque)):
            if not depth or len(value) > self._left:
                return type(value).__name__, len(value)
            if isinstance(value, dict):
                return [(repr(k), self.of(v, depth - 1)) for k, v in value.items()]
            return [self.of(v, depth - 1) for v in value]
        if isinstance(value, (set, frozenset)):
            return len(value)
        if isinstance(value, GeneratorType):
            frame = value.gi_frame
            return frame and (frame.f_lasti, self.of(dict(frame.f_locals), depth - 1))
        if hasattr(value, "__next__"):
            left = getattr(value, "__length_hint__", None)
            return type(value).__name__, left() if left else repr(value)
        if depth and _is_own(type(value)):
            return self.of(getattr(value, "__dict__", None), depth - 1)
        return type(value).__name__


def _state_of(value: Any) -> Any:
    """Returns the state of a generator of random numbers; None: it is none."""
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if type(value).__module__.startswith("torch") and hasattr(value, "get_state"):
        return bytes(value.get_state().numpy())
    return None


# Where code lies that is installed, and not the user's own.
_INSTALLED = tuple(
    path + os.sep
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def _is_own_file(name: str | None) -> bool:
    return bool(name) and is_user_file(str(name)) and not str(name).startswith(_INSTALLED)


def _is_own(cls: type) -> bool:
    """Returns whether a class is of the user's own code."""
    module = sys.modules.get(cls.__module__)
    is_main = cls.__module__ == "__main__"
    return is_main or _is_own_file(getattr(module, "__file__", None))


def _names_of(code: CodeType) -> Iterator[str]:
    """Yields the globals and attributes that code names, and functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple, dict, deque, set)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value) if isinstance(value, (int, float, str)) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:40]}..."
