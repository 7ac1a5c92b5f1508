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
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from sparse_opt import _source
from sparse_opt.torch import _private, _random

# What an operation is, equal in two runs of one step, and where it comes from.
Trace = list[tuple[Any, tuple[str, int] | None]]


class Recording(_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records a run of a step.

    Args:
      first: the one that this repeats: operations on the same tensors return the same.
    """

    def __init__(self, first: Recording | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._numbering = _random.Numbering()
        self.numbers = self._numbering.taken
        self.trace: Trace = []
        # The forms of results; None for those that are computed again.
        self._forms: list[Any] = []
        self._first = first
        # Weak: autograd takes a gradient that nobody else has, and copies others.
        self._places: Any = WeakTensorKeyDictionary()
        self._num_places = itertools.count()

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function of tensors whose arguments and results are recorded."""

        def run(*tensors: torch.Tensor) -> Any:
            for tensor in tensors:
                self._place_of(tensor)
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
            result = func(*args, **kwargs)
            form = _private.form_of(func, args, result)
        self._forms.append(form)
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._place_of(tensor)
        return result

    def _known_form(self, key: Any) -> Any:
        """Returns the form of the next result in the first run, as long as both are alike."""
        first, place = self._first, len(self._forms)
        if first is None or place >= len(first._forms) or first.trace[place][0] != key:
            self._first = None
            return None
        return first._forms[place]

    def _place_of(self, tensor: torch.Tensor) -> int:
        place: int | None = self._places.get(tensor)
        if place is None:
            place = self._places[tensor] = next(self._num_places)
        return place

    def _key(self, value: Any) -> Any:
        """Returns what an operand is, equal in two runs."""
        if isinstance(value, torch.Tensor):
            if not _private.is_without_values(value):
                return _constant(value)
            return "tensor", self._place_of(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._key, value))
        if isinstance(value, dict):
            return tuple((key, self._key(item)) for key, item in value.items())
        # Others, as generators, are made anew in each run.
        return type(value), repr(value) if isinstance(value, _CONSTANTS) else ""


_CONSTANTS = (
    type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout,
    torch.memory_format,
)  # fmt: skip


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
    with _private.undispatched():
        return "constant", tensor.dtype, repr(tensor.tolist())


def place_of_difference(first: Trace, second: Trace) -> str | None:
    """Returns ` at FILE:LINE` of the first operation that another run has otherwise, or
    ``; None if there is none."""
    for i, (one, other) in enumerate(itertools.zip_longest(first, second)):
        if one is None or other is None or one[0] != other[0]:
            # What a run returns has no line: what is in front of it has one.
            places = [place for _, place in first[i:] or first[-1:] if place]
            return f" at {places[0][0]}:{places[0][1]}" if places else ""
    return None
