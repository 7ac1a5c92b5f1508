# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Branches of Python in an optimizer's step, on numbers that are tensors in a trace.

"""All ways through an optimizer's step.

What an optimizer counts, and its rate, are tensors without values in a trace. Where
its step asks one for its truth (`if`, `while`, `and`, or whether a divisor is 0) it
is run once for each answer, from the same state. Ways that do the same to tensors,
with other numbers, become one whose numbers `torch.where` chooses; otherwise it
chooses between the tensors that the ways leave behind.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from sparse_opt import _source
from sparse_opt._errors import ExportError
from sparse_opt.torch import _effects, _numbers, _private

MAX_BRANCHES = 16

# What a way leaves behind.
Outcome = dict[tuple[Any, ...], Any]
# Where the user's code divides: the calls that lead there.
Site = tuple[tuple[CodeType, int], ...]


class Branched(BaseException):
    """A step of an optimizer has branches; no `except Exception` of its catches it."""


class _Apart(BaseException):
    """The ways through a step do not do the same to tensors."""


class _Way(TorchFunctionMode):
    """Answers what a step asks: as `prefix` says, then with yes."""

    def __init__(
        self,
        numbers: _numbers.Numbers,
        prefix: list[bool] | None,
        uncaught: set[Site],
        calls: _Calls | None = None,
    ) -> None:
        super().__init__()
        self.numbers = numbers
        self.prefix = prefix  # None: a question is an error
        self.uncaught = uncaught
        self.calls = calls
        self.conditions: list[torch.Tensor] = []
        self.answers: list[bool] = []
        self.sites: list[Site | None] = []
        self.known: dict[Any, bool] = {}
        self.division: ZeroDivisionError | None = None

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name == "__bool__" and args[0].numel() == 1:
            return self._answer(args[0], None)
        if self.numbers.key_of(function, args, kwargs) is None:
            if self.calls is not None and not _numbers.is_literal(function, args):
                return self.calls.call(function, args, kwargs)
        elif name in _DIVISORS:
            self._require_divisor(args[_DIVISORS[name]])
        return function(*args, **kwargs)

    def _require_divisor(self, divisor: Any) -> None:
        """Raises what Python does for numbers if the divisor is 0."""
        is_traced = isinstance(divisor, torch.Tensor)
        if not (self._answer(divisor, _site()) if is_traced else divisor):
            self.division = ZeroDivisionError("division by zero")
            raise self.division

    def _answer(self, value: torch.Tensor, site: Site | None) -> bool:
        if site is not None and site in self.uncaught:
            return True
        key = _numbers.key(value)
        if key is not None and key in self.known:
            return self.known[key]
        if self.prefix is None:
            raise Branched
        if key is None and self.calls is not None:
            raise _Apart  # it depends on tensors
        place = len(self.answers)
        answer = self.prefix[place] if place < len(self.prefix) else True
        self.conditions.append((value != 0).reshape(()))
        self.answers.append(answer)
        self.sites.append(site)
        if key is not None:
            self.known[key] = answer
        return answer


# The operand that Python divides by.
_DIVISORS = {
    **dict.fromkeys(("div", "div_", "true_divide", "floor_divide", "remainder"), 1),
    **dict.fromkeys(("__floordiv__", "__mod__", "floor_divide_", "remainder_"), 1),
    **dict.fromkeys(("__rdiv__", "__rtruediv__", "__rfloordiv__", "__rmod__"), 0),
}


def _site() -> Site:
    """Returns where the step of the optimizer is."""
    places = []
    frame: Any = sys._getframe(1)
    while frame and (frame.f_code.co_filename, frame.f_code.co_name) != _FOLLOW:
        if _source.is_user_file(frame.f_code.co_filename):
            places.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(places)


_FOLLOW = (__file__, "follow")


class _Calls:
    """What a way does to tensors: functions, and their arguments but for numbers."""

    def __init__(self, chosen: Outcome | None = None) -> None:
        self.chosen = chosen  # the numbers of all ways: the step is traced with them
        self.skeleton: list[Any] = []
        self.numbers: Outcome = {}
        self._places: dict[int, Any] = {}
        self._alive: list[Any] = []

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        place = len(self.skeleton)
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        sets = name == "__set__" and getattr(owner, "__name__", "") != "grad"
        if sets or name in ("set_", "resize_"):
            raise _Apart  # what is not traced would stay
        leaves, tree = pytree.tree_flatten((args, kwargs))
        shape: list[Any] = []
        for i, leaf in enumerate(leaves):
            if _numbers.is_number(leaf):
                self.numbers["number", place, i] = leaf
                if self.chosen is not None:
                    leaves[i] = self.chosen["number", place, i]
                shape.append("number")
            else:
                shape.append(self.place_of(leaf))
        self.skeleton.append((function, str(tree), tuple(shape)))
        if self.chosen is not None:
            args, kwargs = pytree.tree_unflatten(leaves, tree)
            result = function(*args, **kwargs)
        else:
            with _private.untraced():
                result = function(*args, **kwargs)
        self._alive.append((leaves, result))
        for i, leaf in enumerate(pytree.tree_leaves(result)):
            if not isinstance(leaf, _CONSTANTS):
                self._places.setdefault(id(leaf), ("result", place, i))
        return result

    def place_of(self, value: Any) -> Any:
        """Returns what a value is, equal for values of two ways that correspond."""
        if isinstance(value, _CONSTANTS):
            return type(value), repr(value)
        return self._places.setdefault(id(value), ("given", id(value)))


_CONSTANTS = (
    type(None), bool, int, float, complex, str, slice, torch.dtype, torch.device,
    torch.layout, torch.memory_format,
)  # fmt: skip


@contextlib.contextmanager
def followed(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    numbers: _numbers.Numbers,
    explores: bool,
) -> Iterator[None]:
    """Lets an optimizer's step branch. Raises `Branched` in a step that does, unless
    `explores`."""
    step: Any = optimizer.step
    own = optimizer.__dict__.get("step")

    @functools.wraps(step)
    def follow(*args: Any, **options: Any) -> Any:
        if not explores:
            with _Way(numbers, None, set()):
                return step(*args, **options)
        explorer = _Explorer(model, optimizer, numbers)
        try:
            return explorer.run_as_one(lambda: step(*args, **options))
        except _Apart:
            return explorer.run_apart(lambda: step(*args, **options))

    optimizer.__dict__["step"] = follow
    try:
        yield
    finally:
        del optimizer.__dict__["step"]
        if own is not None:
            optimizer.__dict__["step"] = own


class _Explorer:
    """Runs a step in all ways, and leaves what `torch.where` makes of them."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        numbers: _numbers.Numbers,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.numbers = numbers
        self.uncaught: set[Site] = set()
        self.ways = 0
        self.as_one = True
        self.answers: list[bool] | None = None  # of the first way
        self.params = [p for group in optimizer.param_groups for p in group["params"]]
        self.buffers = list(model.buffers())
        self.before = self._held()
        # What ways that are traced write, and what it held before.
        self.saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.versions: dict[int, int] = {}

    def run_as_one(self, step: Callable[[], Any]) -> Any:
        """Runs a step whose ways do the same to tensors. Raises `_Apart` for others."""
        outcome = self._explore(step, [])
        if outcome is None or self.answers is None:
            raise ZeroDivisionError("division by zero")
        calls = _Calls(chosen=outcome)
        with _Way(self.numbers, self.answers, self.uncaught, calls):
            returned = step()
        for (kind, *place), value in outcome.items():
            if kind == "group" and _numbers.is_number(value):
                self.optimizer.param_groups[place[0]][place[1]] = value
            elif kind == "state" and _numbers.is_number(value):
                self.optimizer.state[self.params[place[0]]][place[1]] = value
        return returned

    def run_apart(self, step: Callable[[], Any]) -> Any:
        """Runs all ways in a trace, and chooses between what they leave."""
        self.as_one, self.ways = False, 0
        for value in self.before.values():
            if isinstance(value, torch.Tensor):
                self.saved[id(value)] = value, value.detach().clone()
                self.versions[id(value)] = value._version
        outcome = self._explore(step, [])
        if outcome is None:
            raise ZeroDivisionError("division by zero")
        returned = outcome.pop(("returned",))
        with torch.no_grad():
            self._leave(outcome)
        return returned

    def _explore(self, step: Callable[[], Any], prefix: list[bool]) -> Outcome | None:
        """Runs the ways whose first answers are `prefix`. None: all of them end in a
        division by zero."""
        way, outcome = self._run_way(step, prefix)
        if outcome is not None and self.answers is None:
            self.answers = way.answers
        for place in reversed(range(len(prefix), len(way.answers))):
            if way.sites[place] in self.uncaught:
                continue
            other = self._explore(step, [*way.answers[:place], False])
            if outcome is None or other is None:
                outcome = outcome if other is None else other
            else:
                outcome = self._chosen(way.conditions[place], outcome, other)
        return outcome

    def _run_way(
        self, step: Callable[[], Any], prefix: list[bool]
    ) -> tuple[_Way, Outcome | None]:
        self.ways += 1
        if self.ways > MAX_BRANCHES * (16 if self.as_one else 1):
            if self.as_one:
                raise _Apart
            raise ExportError(
                f"expected at most {MAX_BRANCHES} ways through"
                f" {type(self.optimizer).__name__}.step(), but got more: choose values"
                " with torch.where instead of if, or count once in a group instead of"
                " once for each parameter"
            )
        calls = _Calls() if self.as_one else None
        way = _Way(self.numbers, prefix, self.uncaught, calls)
        attributes = _effects.Attributes(self.model, [self.optimizer])
        outcome: Outcome | None = None
        with _effects.undone(self.optimizer):
            try:
                with way:
                    returned = step()
                outcome = {("returned",): returned, **self._left()}
                if calls is not None:
                    outcome = self._compared(outcome, calls)
            except ZeroDivisionError as error:
                # Python's own where it is no answer to a question.
                if error is not way.division or not way.answers:
                    raise
                if (site := way.sites[-1]) is not None:
                    self.uncaught.add(site)
            finally:
                changes = attributes.changes(
                    _effects.Attributes(self.model, [self.optimizer])
                )
                self._put_back()
            _effects.require_none(c for c in changes if not c.owner.startswith("group "))
        return way, outcome

    def _compared(self, outcome: Outcome, calls: _Calls) -> Outcome:
        """Returns an outcome without tensors: that of a way that was not traced."""
        places = {
            key: value if _numbers.is_number(value) else calls.place_of(value)
            for key, value in outcome.items()
        }
        return {**places, **calls.numbers, ("calls",): calls.skeleton}

    def _held(self) -> Outcome:
        """Returns what a step may change."""
        held: Outcome = {("buffer", i): b for i, b in enumerate(self.buffers)}
        for i, p in enumerate(self.params):
            held["parameter", i] = p
            held["gradient", i] = p.grad
            for key, value in self.optimizer.state.get(p, {}).items():
                held["state", i, key] = value
        for i, group in enumerate(self.optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    held["group", i, key] = value
        return held

    def _left(self) -> Outcome:
        """Returns what a step may change, apart from what the next way writes."""
        left = self._held()
        for key, value in left.items():
            is_kept = self.as_one or _numbers.is_number(value)
            if isinstance(value, torch.Tensor) and not is_kept:
                if self.versions.get(id(value)) != value._version:
                    left[key] = value.detach().clone()
        return left

    def _put_back(self) -> None:
        with torch.no_grad():
            for place, (tensor, value) in self.saved.items():
                if tensor._version != self.versions[place]:
                    tensor.copy_(value)
                    self.versions[place] = tensor._version
        for i, p in enumerate(self.params):
            p.grad = self.before["gradient", i]

    def _chosen(self, condition: torch.Tensor, yes: Outcome, no: Outcome) -> Outcome:
        chosen: Outcome = {}
        for key in {**yes, **no}:
            if key not in yes or key not in no:
                chosen[key] = self._refused(key, "a value", "none")
            else:
                chosen[key] = self._value(condition, yes[key], no[key], key)
        return chosen

    def _value(self, condition: torch.Tensor, yes: Any, no: Any, key: Any) -> Any:
        if yes is no:
            return yes
        if _numbers.is_number(yes) and _numbers.is_number(no):
            if _numbers.are_equal(yes, no):
                return yes
            traced = isinstance(yes, torch.Tensor) or isinstance(no, torch.Tensor)
            if key[0] == "number" and not traced:
                raise _Apart  # two constants: they may say what a function does
            return self.numbers.chosen(condition, yes, no)
        if isinstance(yes, torch.Tensor) and isinstance(no, torch.Tensor):
            if yes.shape == no.shape and yes.dtype == no.dtype:
                return torch.where(condition, yes, no)
        elif type(yes) is type(no) and not isinstance(yes, torch.Tensor) and yes == no:
            return yes
        return self._refused(key, _shown(yes), _shown(no))

    def _refused(self, key: Any, yes: str, no: str) -> Any:
        if self.as_one:
            raise _Apart
        where = {"returned": "what it returns"}.get(key[0], f"a {key[0]}")
        if key[0] in ("state", "group"):
            where = f"its '{key[-1]}'"
        raise ExportError(
            f"expected {type(self.optimizer).__name__}.step() to leave a number, or a"
            " tensor of one shape and type, on each way through it, but got"
            f" {yes} and {no} for {where}: run the step once before the export, or use"
            " torch.where instead of if"
        )

    def _leave(self, outcome: Outcome) -> None:
        for key, value in outcome.items():
            now: Any = self.before.get(key)
            if value is now:
                continue
            kind, *place = key
            if kind in ("parameter", "buffer"):
                now.copy_(value)
            elif kind == "gradient":
                self.params[place[0]].grad = value
            elif kind == "group":
                self.optimizer.param_groups[place[0]][place[1]] = value
            elif isinstance(now, torch.Tensor) and not _numbers.is_number(now):
                now.copy_(value)
            else:
                self.optimizer.state[self.params[place[0]]][place[1]] = value


def _shown(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"a tensor of shape {tuple(value.shape)} and type {value.dtype}"
