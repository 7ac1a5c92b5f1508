# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step does when it is traced, so that a second run can be compared.

"""The operations of a step, where they come from, and the numbers of random ones.

A second run of a step needs no graph: it records what the first trace recorded. Of an
operation that is what it computes of tensors that have places, and the user's line.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from sparse_opt import _source
from sparse_opt.torch import _private, _random

# What an operation is, equal in two runs of one step, and where it comes from.
Trace = list[tuple[Any, tuple[str, int] | None]]


class Recording(_private.DispatchMode):  # type: ignore[no-untyped-call]
    """Records a run of a step.

    Args:
      first: the one that this repeats: operations on the same tensors return the same.
      is_traced: whether a tracer is to see each operation.
    """

    def __init__(self, first: Recording | None = None, is_traced: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_traced = is_traced
        self.results = _private.Results()
        self._numbering = _random.Numbering()
        self.numbers = self._numbering.taken
        self.trace: Trace = []
        # The forms of results; None for those that are computed again.
        self._forms: list[Any] = []
        # Those of the others, by their places.
        self._other_forms: dict[int, Any] = {}
        # Whether it has a value that is no number, or a tensor from elsewhere.
        self._has_unknown = False
        self._first = first
        # The places of tensors, by their identity. Weak: autograd takes a gradient that
        # nobody else has, and copies others.
        self._places: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._num_places = itertools.count()

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function of tensors whose arguments and results are recorded."""

        def run(*tensors: torch.Tensor) -> Any:
            for tensor in tensors:
                self._give_place(tensor)
            results = function(*tensors)
            self.trace.append((("output", self._key(results)), None))
            return results

        return run

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if _private.is_query_of_device(func, args):
            return args[0].fake_device
        kwargs = kwargs or {}
        if _random.is_random_operation(func):
            self._numbering.take()
        place = user_place()
        if _private.is_profiling(func):
            return func(*args, **kwargs)
        key = func, self._key(args), self._key(kwargs)
        self.trace.append((key, place))
        _private.give_place(place)
        if torch.Tag.data_dependent_output in func.tags and not _has_traced(args):
            # What is known when the step is traced, as states of generators.
            self._forms.append(None)
            with _private.undispatched():
                return func(*args, **kwargs)
        form = self._known_form(key)
        if form is not None and _private.are_unknown(args):
            result = _private.made(func, args, form)
        else:
            operands = None if self._is_traced else _private.operands_of((args, kwargs))
            result, form = self.results.of(func, args, kwargs, operands)
            if form is None:
                self._other_forms[len(self._forms)] = _private.all_forms(result)
        self._forms.append(form)
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._give_place(tensor)
        return result

    def content(self) -> Any:
        """Returns all that a step did, equal where a graph of it is; None: it has something
        whose content is not known."""
        functions = {key[0] for key, _ in self.trace[:-1]}
        is_known = all(getattr(f, "namespace", "") in LIBRARIES for f in functions)
        if self._has_unknown or not is_known:
            return None
        return self.trace, self._forms, self._other_forms, self.numbers

    def _known_form(self, key: Any) -> Any:
        """Returns the form of the next result in the first run, as long as both are alike."""
        first, place = self._first, len(self._forms)
        if first is None or place >= len(first._forms) or first.trace[place][0] != key:
            self._first = None
            return None
        return first._forms[place]

    def _give_place(self, tensor: torch.Tensor) -> int:
        """Gives a tensor that has no place the next one."""
        known = self._places.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        place = next(self._num_places)
        self._places[id(tensor)] = weakref.ref(tensor), place
        return place

    def _place_of(self, tensor: torch.Tensor) -> int:
        known = self._places.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        self._has_unknown = True
        return self._give_place(tensor)

    def _key(self, value: Any) -> Any:
        """Returns what an operand is, equal in two runs."""
        if isinstance(value, torch.Tensor):
            if not _private.is_without_values(value):
                self._has_unknown |= value.layout is not torch.strided
                return _constant(value)
            return "tensor", self._place_of(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._key, value))
        if isinstance(value, dict):
            return tuple((key, self._key(item)) for key, item in value.items())
        if value is None or type(value) in _private.OPERANDS:
            return type(value), repr(value)
        # Others, as generators, are made anew in each run.
        self._has_unknown = True
        return type(value), repr(value) if isinstance(value, tuple(_private.OPERANDS)) else ""


# The libraries whose operations are known by their names.
LIBRARIES = ("aten", "prim", "prims", "sparse_opt")


def user_place() -> tuple[str, int] | None:
    """Returns the user's innermost file and line: of a module, or of the step."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if _private.has_lines(code) and _source.is_user_file(code.co_filename):
            return code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _has_traced(args: Any) -> bool:
    tensors = (a for a in args if isinstance(a, torch.Tensor))
    return any(map(_private.is_without_values, tensors))


def _constant(tensor: torch.Tensor) -> Any:
    if tensor.layout is not torch.strided:
        return "constant", tensor.dtype, tensor.layout
    with _private.undispatched():
        return (
            "constant", tensor.dtype, tuple(tensor.shape), tensor.stride(), str(tensor.device),
            tensor.requires_grad, repr(tensor.tolist()),
        )  # fmt: skip


def place_of_difference(first: Trace, second: Trace) -> str | None:
    """Returns ` at FILE:LINE` of the first operation that another run has otherwise, or
    ``; None if there is none."""
    for i, (one, other) in enumerate(itertools.zip_longest(first, second)):
        if one is None or other is None or one[0] != other[0]:
            # What a run returns has no line: what is in front of it has one.
            places = [place for _, place in first[i:] or first[-1:] if place]
            return f" at {places[0][0]}:{places[0][1]}" if places else ""
    return None
