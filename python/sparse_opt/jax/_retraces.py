# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Two traces of one function.

"""Where a function, traced again, computes something else."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from sparse_opt._errors import ExportError
from sparse_opt._outside import Outside
from sparse_opt._source import is_user_file, line_of_error

# A function that was jitted is traced again where this has a value of its own.
_FRESH: Any = jax.make_user_context(None)  # type: ignore[no-untyped-call]
_PLACES = itertools.count(1)


def anew() -> contextlib.AbstractContextManager[Any]:
    """Has functions traced that were traced before."""
    return _FRESH(next(_PLACES))  # type: ignore[no-any-return]


def line_of(equation: Any) -> str:
    """Returns ` at FILE:LINE` of the user's line that an equation comes from, or ``."""
    trace_back = getattr(equation.source_info, "traceback", None)
    for frame in getattr(trace_back, "frames", ()):
        if is_user_file(frame.file_name):
            return f" at {frame.file_name}:{frame.line_num}"
    return ""



def require_alike(
    function: Callable[..., Any], args: Sequence[Any], first: ClosedJaxpr
) -> None:
    """Raises `ExportError` if a function that was traced computes something else when it
    is traced again. Warns of what it changes outside of its arguments."""
    before = Outside(function)
    try:
        with anew():
            second = jax.jit(function, keep_unused=True).trace(*args).jaxpr
    except Exception as error:
        line = line_of_error(error.__traceback__)
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ExportError(
            f"expected a step that can be traced twice, but got '{text}'{line}: make what"
            " it keeps outside a part of the state or of the batch"
        ) from error
    found = difference(first, second)
    if len(second.jaxpr.invars) != len(first.jaxpr.invars):
        # An array of the first trace is one more argument of the second.
        raise ExportError(
            "expected a step that keeps its arrays in its arguments, but got one of the"
            f" trace in another object{line_of(found) if found else ''}: make it a part of"
            " the state, or compute it outside of the step"
        )
    place = None if found is None else line_of(found) if found else ""
    before.require_alike(Outside(function), place, "a part of the state or of the batch")


def difference(first: ClosedJaxpr, second: ClosedJaxpr) -> Any:
    """Returns an equation of the second trace that the first has not, None if there is
    none, or False if what is returned differs."""
    return _Pair(first, second).difference()


class _Pair:
    """Two functions, and which variables of them are alike."""

    def __init__(self, first: Any, second: Any) -> None:
        self._jaxprs = [_open(f)[0] for f in (first, second)]
        self._names: list[dict[Any, Any]] = [{}, {}]
        for names, function in zip(self._names, (first, second)):
            jaxpr, consts = _open(function)
            names.update(zip(jaxpr.constvars, consts))

    def difference(self) -> Any:
        first, second = self._jaxprs
        self._define(first.invars, second.invars)
        for one, other in zip(first.eqns, second.eqns):
            if one.primitive is not other.primitive or not self._same(
                one.invars, other.invars
            ):
                return other
            found = _difference_of_params(one.params, other.params)
            if found is not None:
                return found or other
            self._define(one.outvars, other.outvars)
        if len(first.eqns) != len(second.eqns):
            more = second.eqns[len(first.eqns) :]
            return more[0] if more else False
        return None if self._same(first.outvars, second.outvars) else False

    def _define(self, first: Sequence[Any], second: Sequence[Any]) -> None:
        for one, other in zip(first, second):
            self._names[0][one] = self._names[1][other] = _Place(len(self._names[0]))

    def _same(self, first: Sequence[Any], second: Sequence[Any]) -> bool:
        if len(first) != len(second):
            return False
        values = zip(map(self._read(0), first), map(self._read(1), second))
        return all(_same_value(a, b) for a, b in values)

    def _read(self, side: int) -> Any:
        names = self._names[side]

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else names.get(atom)

        return read


class _Place(int):
    """The number of a variable."""


def _open(function: Any) -> tuple[Jaxpr, Sequence[Any]]:
    return (
        (function, ()) if isinstance(function, Jaxpr) else (function.jaxpr, function.consts)
    )


def _same_value(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if isinstance(first, _Place) or isinstance(second, _Place):
        return type(first) is type(second) and bool(first == second)
    try:
        one, other = np.asarray(first), np.asarray(second)
    except Exception:
        return False  # Keys, say: numbers will tell.
    is_alike = one.dtype.kind != "O" and one.dtype == other.dtype
    return is_alike and one.shape == other.shape and one.tobytes() == other.tobytes()


def _difference_of_params(first: Any, second: Any) -> Any:
    """Returns what differs in the functions of two equations; False of their options."""
    for name, one in first.items():
        found = _difference_of(one, second.get(name))
        if found is not None:
            return found
    return None


def _difference_of(first: Any, second: Any) -> Any:
    if isinstance(first, (Jaxpr, ClosedJaxpr)):
        is_alike = isinstance(second, type(first))
        return _Pair(first, second).difference() if is_alike else False
    if isinstance(first, (tuple, list)):
        if not isinstance(second, (tuple, list)) or len(first) != len(second):
            return False
        found = (_difference_of(a, b) for a, b in zip(first, second))
        return next((f for f in found if f is not None), None)
    # A function that JAX calls later, as custom derivatives have, is made anew for each
    # trace.
    is_function = callable(first) or hasattr(first, "call_wrapped")
    if is_function and not isinstance(first, type):
        return None
    try:
        return None if first is second or bool(first == second) else False
    except Exception:
        return None
