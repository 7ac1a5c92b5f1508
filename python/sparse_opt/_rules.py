# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The rules of sparsity, which the runtime has: docs/sparsity.md.

"""Groups of weights as the runtime reads them, and what it says is due."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparse_opt import _given
from sparse_opt._description import Pattern
from sparse_opt._errors import StepError
from sparse_opt._library import (
    NewBlocks, PatternUpdate, SparseWeight, WeightRule, c_text, check, library,
)  # fmt: skip
from sparse_opt._method import Method

_DEFAULT: Any = None  # that of the runtime's key


@functools.cache
def _keys() -> Any:
    """Returns the keys of a group, as `bsr_sparsity_keys` has them."""
    return json.loads(library().bsr_sparsity_keys())


@dataclass(frozen=True)
class Group:
    """Weights that are treated alike: the keys of docs/sparsity.md.

    What is left out, or None, is the default of its key.
    """

    match: str = _DEFAULT
    method: str | Method = _DEFAULT
    density: float = _DEFAULT
    distribution: str = _DEFAULT
    densities: Mapping[str, float] = _DEFAULT
    initial_density: float = _DEFAULT
    init: str = _DEFAULT
    file: str = _DEFAULT
    fan_in: str = _DEFAULT
    every: int = _DEFAULT
    updates: int = _DEFAULT
    begin: int = _DEFAULT
    end: int = _DEFAULT
    until: float = _DEFAULT
    drop: float = _DEFAULT
    schedule: str = _DEFAULT
    half_period: int = _DEFAULT
    score: str = _DEFAULT
    allow_return: bool = _DEFAULT
    score_steps: int = _DEFAULT
    new_values: str = _DEFAULT
    new_std: float = _DEFAULT
    new_state: str = _DEFAULT
    new_step: str = _DEFAULT
    new_ramp: int = _DEFAULT

    def __post_init__(self) -> None:
        said = {name: value for name, value in vars(self).items() if value is not None}
        for key in _keys():
            name = key["name"]
            if name not in said:
                default = key["default"]
                value = dict(default) if isinstance(default, dict) else default
                object.__setattr__(self, name, value)
        object.__setattr__(self, "_said", said)

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> Group:
        """Returns the group that a section `sparsity` of a configuration describes."""
        return Rules(keys).groups[0]


# What a dataclass makes refuses other names without a word of those that there are.
Group.__init__ = _given.options()(Group.__init__)  # type: ignore[method-assign]

Groups = Group | Mapping[str, Any] | Sequence[Group | Mapping[str, Any]]


def _plain(value: Any, key: Any = "") -> Any:
    """Returns a value of a group, of one of its keys, as JSON has it."""
    if isinstance(value, Mapping):
        return {_plain(name): _plain(inner, name) for name, inner in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item(), key)
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value), key)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        raise StepError(f"expected text in a group to be UTF-8, but got {value!r}")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise StepError(
        "expected texts, numbers, booleans and dictionaries in a group, but got a"
        f" {type(value).__name__}{f' as {_given.shown(key)}' if key else ''}"
    )


_GROUPS = "groups of weights, or maps of their keys"


def _described(group: Group | Mapping[str, Any]) -> tuple[Any, Method | None]:
    """Returns a group for the runtime, and the method that is not the runtime's."""
    if not isinstance(group, (Group, Mapping)):
        raise _given.refusal(_GROUPS, group)
    keys = dict(vars(group)["_said"] if isinstance(group, Group) else group)
    own = None
    method = next(key for key in _keys() if key["name"] == "method")
    for name in (method["name"], *method["aliases"]):
        if isinstance(keys.get(name), Method):
            # Its updates come when those of set do, or of rigl, which has scores.
            own = keys[name]
            keys[name] = "rigl" if own.needs_scores else "set"
            if own.needs_scores and keys.setdefault("score_steps", own.score_steps) != own.score_steps:
                raise StepError(
                    f"expected score_steps of a group to be that of its method"
                    f" {type(own).__name__}, {own.score_steps}, but got {keys['score_steps']}"
                )
    return _plain(keys), own


class Rules:
    """Groups with the rule of each: those that are given, or what a configuration has.

    Attributes:
      groups: the groups with all keys.
    """

    def __init__(self, groups: Groups) -> None:
        given: Any = [groups] if isinstance(groups, (Group, Mapping)) else groups
        listed = _given.listed(_GROUPS, given)
        described = [_described(group) for group in listed]
        self._handle = ctypes.c_void_p()
        self._destroy = library().bsr_sparsity_destroy
        text = json.dumps([keys for keys, _ in described]).encode()
        check(library().bsr_sparsity_create(text, None, ctypes.byref(self._handle)))
        resolved = json.loads(library().bsr_sparsity_text(self._handle))
        self.groups = [
            Group(**(keys if own is None else {**keys, "method": own}))
            for keys, (_, own) in zip(resolved, described)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return Rules, (self.groups,)

    def named(self) -> Iterator[tuple[str, Group]]:
        """Yields the groups with what messages call them."""
        for i, group in enumerate(self.groups):
            yield f"sparsity[{i}]" if len(self.groups) > 1 else "sparsity", group

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._destroy(self._handle)


def groups_of(groups: Groups) -> list[Group]:
    """Returns groups that may be given as what a configuration has."""
    return Rules(groups).groups


def compile_options(groups: Groups, options: Sequence[str]) -> list[str]:
    """Returns the options of a step with those that it needs for the groups and has not."""
    rules = Rules(groups)
    needed = library().bsr_sparsity_options(rules._handle).decode().split()
    named = {option.lstrip("-").partition("=")[0] for option in options}
    added = [o for o in needed if o[2:].partition("=")[0] not in named]
    return [*options, *added]


@dataclass
class Member:
    """A weight of a group.

    Attributes:
      is_frozen: whether the step does not train it: its pattern stays as it begins.
      has_scores: whether the step computes scores of its blocks.
      first: how many blocks the first pattern has.
      file: where that is read from, if it is.
      start: what regrown blocks begin with.
    """

    pattern: Pattern
    is_frozen: bool
    has_scores: bool
    group: Group = _DEFAULT
    first: int = 0
    file: str = ""
    start: NewBlocks = field(default_factory=NewBlocks)


def require_first(member: Member, stored: int) -> None:
    """Raises `StepError` if the weight of a layer has another number of blocks than it is to
    begin with."""
    if member.first != stored:
        raise StepError(
            f"expected '{member.pattern.name}' to begin with {member.first} blocks, as its"
            f" group says, but got {stored}: give sparsify that density"
        )


class Updates:
    """The updates of a run of some steps by rules.

    Attributes:
      members: the weights whose patterns may change.
    """

    def __init__(self, rules: Rules, steps: int, weights: Sequence[Member]) -> None:
        steps = _given.integer("steps", steps, 0, 2**63 - 1)
        self._rules, self._steps, self._weights = rules, steps, weights
        self._handle = ctypes.c_void_p()
        runtime = library()
        self._destroy = runtime.bsr_updates_destroy
        entries = (SparseWeight * len(weights))()
        for entry, weight in zip(entries, weights):
            p = weight.pattern
            entry.name = c_text("a name", p.name)
            entry.rows, entry.cols, entry.slots = p.rows, p.cols, p.slots
            entry.extents = p.extents
            entry.block_rows, entry.block_cols = p.block_rows, p.block_cols
            entry.is_static, entry.is_frozen = p.is_static, weight.is_frozen
            entry.has_scores = weight.has_scores
        count = ctypes.c_int64(len(weights))
        check(
            runtime.bsr_updates_create(
                rules._handle, ctypes.c_int64(steps), count, entries,
                ctypes.byref(self._handle),
            )
        )  # fmt: skip
        self.members = []
        for i, weight in enumerate(weights):
            rule, index = WeightRule(), ctypes.c_int64(i)
            check(runtime.bsr_updates_rule(self._handle, index, ctypes.byref(rule)))
            if rule.group < 0:
                continue
            weight.group = rules.groups[rule.group]
            most = min(weight.pattern.slots, weight.pattern.blocks)
            weight.first = most if rule.blocks < 0 else rule.blocks
            weight.file = os.fsdecode(rule.file)
            # Not the rule's memory.
            weight.start = NewBlocks.from_buffer_copy(rule.start)
            self.members.append(weight)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._destroy(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return Updates, (self._rules, self._steps, self._weights)

    def due(self, step: int) -> Iterator[tuple[Member, PatternUpdate]]:
        """Yields the weights that are updated after `step` steps, and how each is."""
        count = len(self._weights)
        due = (PatternUpdate * count)()
        check(
            library().bsr_updates_due(
                self._handle, ctypes.c_int64(step), ctypes.c_int64(count), due
            )
        )
        for weight, update in zip(self._weights, due):
            if update.method:
                yield weight, update

    def scored(self, step: int) -> Iterator[tuple[Member, int]]:
        """Yields the weights whose scores of `step` an update reads, and of how many steps
        it does: of one, after it, or of several, of which this is one."""
        count = len(self._weights)
        scored = (ctypes.c_int32 * count)()
        check(
            library().bsr_updates_scored(
                self._handle, ctypes.c_int64(step), ctypes.c_int64(count), scored
            )
        )
        for weight, steps in zip(self._weights, scored):
            if steps:
                yield weight, steps
