# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step changes outside of tensors: seen, and put back.

"""Side effects of a traced step.

A trace runs the step once and keeps its tensors alone. Numbers that a module or
an optimizer counts would stay what they were, and tensors that it writes into
attributes would stay there, without values.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from sparse_opt import _source
from sparse_opt._errors import ExportError
from sparse_opt._outside import content
from sparse_opt.torch import _random

# What a module keeps its tensors and children in, and what says how a step runs.
_NOT_COUNTED = {"_parameters", "_buffers", "_modules", "training"}
# Of an optimizer: its state and groups are looked at by themselves; schedulers
# note that it ran.
_NOT_COUNTED |= {"state", "param_groups", "_opt_called", "zero_grad"}


@contextlib.contextmanager
def undone(*objects: Any, generators: bool = True) -> Iterator[None]:
    """Puts back attributes of objects, what their lists and dictionaries hold, and
    the states of random generators, those of modules of Python if `generators`."""
    saved: dict[int, Callable[[], Any]] = {}
    for thing in objects:
        _save(thing.__dict__, saved)
    states = random_states()
    try:
        yield
    finally:
        for put_back in saved.values():
            put_back()
        if generators:
            random.setstate(states["random"])
            np.random.set_state(states["numpy.random"])
            torch.set_rng_state(states["torch"])


def _save(value: Any, saved: dict[int, Callable[[], Any]]) -> None:
    """Notes how to put back what lists, dictionaries and sets hold, inner ones too, and
    the states of generators."""
    if id(value) in saved:
        return
    if type(value) in (list, dict, OrderedDict, defaultdict, set, deque):
        content = dict(value) if isinstance(value, dict) else list(value)
        saved[id(value)] = functools.partial(_fill, value, content)
    elif isinstance(value, random.Random):
        saved[id(value)] = functools.partial(value.setstate, value.getstate())
    elif isinstance(value, torch.Generator):
        saved[id(value)] = functools.partial(value.set_state, value.get_state())
    elif isinstance(value, np.random.Generator):
        bits = value.bit_generator
        saved[id(value)] = functools.partial(setattr, bits, "state", bits.state)
    if isinstance(value, (list, dict, set, deque, tuple)):
        for item in list(value.values() if isinstance(value, dict) else value):
            if isinstance(item, _SAVED):
                _save(item, saved)


_SAVED = (
    list, dict, set, deque, tuple, random.Random, torch.Generator, np.random.Generator,
)  # fmt: skip


def _fill(container: Any, content: Any) -> None:
    container.clear()
    (container.update if hasattr(container, "update") else container.extend)(content)


def random_states() -> dict[str, Any]:
    """Returns the states of the generators that a step may draw from."""
    return {
        "random": random.getstate(),
        "numpy.random": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }


def require_no_draws(before: dict[str, Any]) -> None:
    """Raises `ExportError` if random numbers were drawn outside of the trace."""
    after = random_states()
    for name in ("random", "numpy.random"):
        if repr(before[name]) != repr(after[name]):
            raise ExportError(
                f"expected random numbers from torch, but got a step that draws from"
                f" {name}: draw them outside of the step and put them into the batch,"
                " or use torch.rand"
            )
    is_same = torch.equal(before["torch"], after["torch"])
    if not is_same and not _random.is_of_trace(torch.initial_seed()):
        raise ExportError(_random.SEEDED)


class Assignments(TorchFunctionMode):
    """Makes `tensor.data = value` a write of the tensor.

    A trace follows tensors, and this gives one another memory.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function != _SET_DATA:
            return function(*args, **(kwargs or {}))
        tensor, value = args
        if tensor.shape != value.shape or tensor.dtype != value.dtype:
            raise ExportError(
                "expected .data of the shape and the type that it has,"
                f" {tuple(tensor.shape)} and {tensor.dtype}, but got {tuple(value.shape)}"
                f" and {value.dtype}: export a step for each"
            )
        with torch.no_grad():
            tensor.detach().copy_(value)
        return None


_SET_DATA = getattr(torch.Tensor.data, "__set__")


class Made(TorchFunctionMode):
    """Notes the tensors that a trace makes, and the user's lines that made them."""

    def __init__(self) -> None:
        super().__init__()
        self._made = _MADE.get()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        if tensors:
            self.note(tensors, f"one that was made{_user_line()}")
        return result

    def note(self, tensors: Iterable[torch.Tensor], what: str) -> None:
        """Notes tensors that nobody may keep."""
        self._made += [(weakref.ref(t), what) for t in tensors]


Notes = list[tuple[weakref.ref[torch.Tensor], str]]
_MADE: ContextVar[Notes] = ContextVar("made")


@contextlib.contextmanager
def nothing_kept() -> Iterator[None]:
    """Raises `ExportError` if somebody keeps tensors that a trace has made behind it."""
    notes: Notes = []
    token = _MADE.set(notes)
    try:
        yield
    finally:
        _MADE.reset(token)
    if any(made() is not None for made, _ in notes):
        gc.collect()
    for made, what in notes:
        if _is_held(made()):
            raise ExportError(
                "expected a step that keeps tensors in its model and optimizer alone, but got"
                f" one that leaves {what} in an object of its own, which the compiled step"
                " does not change: return it, or make it a buffer of the model"
            )


def _is_held(tensor: torch.Tensor | None) -> bool:
    """Returns whether an object or a container has a tensor: a hook that refers to what
    it is a hook of is never freed, and nobody's."""
    if tensor is None:
        return False
    holders = gc.get_referrers(tensor)
    return any(type(holder) not in _CODE for holder in holders)


# What code has of a tensor: frames, closures and their arguments.
_CODE = (FrameType, CellType, FunctionType, MethodType, tuple, functools.partial)


def _user_line() -> str:
    """Returns ` at FILE:LINE` for the user's code that calls, or ``."""
    frame: Any = sys._getframe(2)
    while frame is not None and not _source.is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return f" at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


class Another(ExportError):
    """An optimizer steps that the step is not exported with."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(f"expected known optimizers, but got {type(optimizer).__name__}")
        self.optimizer = optimizer


@contextlib.contextmanager
def known_optimizers(own: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Raises `Another` in front of the step of an optimizer with other groups, and
    `ExportError` behind that of one with a state of its own."""
    before: dict[int, dict[Any, Any]] = {}

    def of(other: torch.optim.Optimizer) -> torch.optim.Optimizer | None:
        """Returns the optimizer whose groups another one steps."""
        return next((o for o in own if o.param_groups is other.param_groups), None)

    def enter(other: torch.optim.Optimizer, *_: Any) -> None:
        if any(other is o for o in own):
            return
        if of(other) is None:
            raise Another(other)
        before[id(other)] = dict(other.state)

    def leave(other: torch.optim.Optimizer, *_: Any) -> None:
        around = of(other)
        if around is None or any(other is o for o in own):
            return
        if other.state and other.state is not around.state:
            other.state.clear()
            other.state.update(before[id(other)])
            raise ExportError(
                "expected an optimizer that leaves those it steps without a state, but got"
                f" {type(around).__name__} around {type(other).__name__}: let both have one"
                " state, as self.state = base.state does"
            )

    handles = [
        register_optimizer_step_pre_hook(enter),
        register_optimizer_step_post_hook(leave),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Change:
    """An attribute that a step changed."""

    name: str
    owner: str
    values: str  # before and after
    is_tensor: bool

    def __str__(self) -> str:
        return f"'{self.name}' of {self.owner}"


class Attributes:
    """The attributes of modules and of optimizers at one time."""

    def __init__(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        # What an attribute is, what it holds, and both for people.
        self._values: dict[tuple[str, str], tuple[Any, Any, str]] = {}
        for path, module in model.named_modules():
            owner = f"'{path}'" if path else "the model"
            self._add(owner, module.__dict__)
        for i, optimizer in enumerate(optimizers):
            self._add(f"optimizer {i}" if i else "the optimizer", optimizer.__dict__)
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        for i, group in enumerate(groups):
            self._add(f"group {i}", {k: v for k, v in group.items() if k != "params"})

    def _add(self, owner: str, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            if name not in _NOT_COUNTED:
                self._values[owner, name] = value, content(value), _shown(value)

    def changes(self, after: Attributes) -> Iterable[Change]:
        """Yields what another time has otherwise."""
        for key in {**self._values, **after._values}:
            old, was, old_text = self._values.get(key, (None, None, "none"))
            new, now, new_text = after._values.get(key, (None, None, "none"))
            is_tensor = isinstance(new, torch.Tensor)
            if was != now or (is_tensor and old is not new):
                owner, name = key
                values = f" from {old_text} to {new_text}"
                yield Change(
                    name, owner, values if old_text != new_text else "", is_tensor
                )

    def counts(self, after: Attributes) -> Iterable[Change]:
        """Yields what differs in more than the tensors' identity."""
        return (change for change in self.changes(after) if not change.is_tensor)


def require_none(changes: Iterable[Change]) -> None:
    """Raises `ExportError` if a step counts in attributes."""
    for change in changes:
        where = "register it as a buffer of the module"
        if change.owner == "the optimizer" or change.owner.startswith("optimizer "):
            where = "keep it in a tensor of the optimizer's state"
        elif change.owner.startswith("group "):
            where = "run the step once before the export"
        raise ExportError(
            f"expected a step that counts in tensors, but got one that changes {change}"
            f"{change.values}: {where}"
        )


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if isinstance(value, (list, tuple, dict, deque, set)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
