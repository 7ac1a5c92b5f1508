# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Groups of weights and the schedules of their updates: docs/sparsity.md.

"""When patterns are updated, and by what numbers."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_opt import _library, _method
from sparse_opt._errors import StepError
from sparse_opt._exclusive import Use, exclusive
from sparse_opt._method import Method
from sparse_opt._description import Array, Pattern

if TYPE_CHECKING:
    from sparse_opt._step import Step


@dataclass(frozen=True)
class Group:
    """Weights that are treated alike: the keys of docs/sparsity.md."""

    match: str = ""
    method: str | Method = "set"
    density: float = 0.0
    distribution: str = "uniform"
    densities: Mapping[str, float] = field(default_factory=dict)
    initial_density: float = 0.0
    init: str = "random"
    file: str = ""
    every: int = 0
    updates: int = 0
    begin: int = 0
    end: int = 0
    until: float = 0.75
    drop: float = 0.5
    schedule: str = "cosine"
    half_period: int = 0
    score: str = "l1"
    allow_return: bool = False

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> Group:
        """Returns the group that a section `sparsity` of a configuration describes."""
        found: dict[str, Any] = {}
        known = {f.name for f in dataclasses.fields(cls)}
        for name, value in _flat(keys):
            key = "density" if name == "sparsity" else _ALIASES.get(name, name)
            if key not in known:
                every = sorted({*known, *_ALIASES, "sparsity"})
                raise StepError(
                    f"expected a key of a group, one of {', '.join(every)}, but got"
                    f" '{name}'"
                )
            if key in found:
                raise StepError(f"expected key '{key}' once, but got '{name}' beside it")
            found[key] = 1 - value if name == "sparsity" else value
        return cls(**found)

    def check(self, where: str) -> None:
        """Raises `StepError` for a value that is none of its key."""

        def refuse(key: str, expected: str) -> None:
            raise StepError(
                f"expected '{where}.{key}' to be {expected}, but got"
                f" {getattr(self, key)!r}"
            )

        for key, choices in _CHOICES.items():
            value = getattr(self, key)
            if value not in choices and not isinstance(value, Method):
                more = " or a Method" if key == "method" else ""
                refuse(key, f"one of {', '.join(choices)}{more}")
        for key in ("density", "initial_density", "until", "drop"):
            value = getattr(self, key)
            if not isinstance(value, (int, float)) or not 0 <= value <= 1:
                refuse(key, "a number from 0 to 1")
        for key in ("every", "updates", "begin", "end", "half_period"):
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                refuse(key, "an integer of at least 0")
        if self.every and self.updates:
            refuse("updates", "left out where there is 'every'")
        if self.end and self.end <= self.begin:
            refuse("end", f"more than 'begin' {self.begin}")
        if self.method == "gmp" and not self.density:
            refuse("density", "more than 0 for method gmp")
        if self.method != "gmp" and self.initial_density:
            refuse("initial_density", "left out for another method than gmp")
        if self.init == "file" and not self.file:
            refuse("file", "a pattern file for init file")
        if self.distribution == "erk" and not self.density:
            refuse("density", "more than 0, to be distributed by erk")
        for expression in (self.match, *self.densities):
            try:
                re.compile(expression)
            except re.error as error:
                raise StepError(
                    f"expected a regular expression in '{where}', but got"
                    f" '{expression}': {error}"
                ) from error


Groups = Group | Mapping[str, Any] | Sequence[Group | Mapping[str, Any]]


def groups_of(groups: Groups) -> list[Group]:
    """Returns groups that may be given as what a configuration has."""
    listed = [groups] if isinstance(groups, (Group, Mapping)) else list(groups)
    return [g if isinstance(g, Group) else Group.of(g) for g in listed]


def score_options(groups: Sequence[Group], options: Sequence[str]) -> list[str]:
    """Returns the options of a step whose blocks are scored if a group needs it."""
    are_needed = any(
        g.method == "rigl" or getattr(g.method, "needs_scores", False) for g in groups
    )
    are_there = any(o.startswith("--score-norm") for o in options)
    return [*options, *(["--score-norm=l1"] if are_needed and not are_there else [])]


_CHOICES = {
    "method": _library.METHODS,
    "distribution": ("uniform", "erk"),
    "init": ("random", "largest", "file"),
    "schedule": _library.SCHEDULES,
    "score": _library.NORMS,
}
_ALIASES = {
    "algorithm": "method",
    "dist_type": "distribution",
    "density.type": "distribution",
    "density.init": "initial_density",
    "density.final": "density",
    "init_method": "init",
    "init.type": "init",
    "init.file": "file",
    "drop_fraction": "drop",
    "drop_fraction.init": "drop",
    "drop_fraction.type": "schedule",
    "drop_fraction.half_period": "half_period",
    "update.every": "every",
    "update.freq": "every",
    "update.number": "updates",
    "update.begin": "begin",
    "update.end": "end",
    "update.stop": "end",
    "update.until": "until",
    "regrow.allow_return": "allow_return",
}


def _flat(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in keys.items():
        if isinstance(value, Mapping) and name != "densities":
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@dataclass
class _Member:
    """A weight of a group."""

    pattern: Pattern
    group: Group
    density: float = 0.0  # asked for; 0 for what the step was compiled with
    first: int = 0  # blocks of the first pattern

    @property
    def most(self) -> int:
        return min(self.pattern.slots, self.pattern.blocks)


class Sparsity:
    """The updates of a step's patterns, as `sparse-train` makes them.

        sparsity = sparse_opt.Sparsity(step, [Group(method="rigl", every=100)], steps=10000)
        for batch in batches:
            loss = step(batch, scores=sparsity.needs_scores)
            sparsity.update()

    Before the first step it makes the patterns that the groups ask for.

    Args:
      step: the compiled step.
      groups: groups, or what a configuration has under `sparsity`. The first that
        matches a weight's name has it.
      steps: how many steps the run has: schedules are over them.
      accumulate: how many calls of the step are one training step. A step that was
        exported with `accumulate=True` says so itself, by its calls with `apply=True`.

    Raises:
      StepError: a value is none of its key, a group matches no weight, or the step was
        not compiled for what one asks.
    """

    def __init__(
        self,
        step: Step,
        groups: Groups,
        *,
        steps: int,
        accumulate: int = 1,
    ) -> None:
        self.groups = groups_of(groups)
        self._step, self._steps, self._accumulate = step, steps, accumulate
        self._updated = -1
        self._before: int | None = None  # training steps of the run that was loaded
        self._members: list[_Member] = []
        for i, group in enumerate(self.groups):
            group.check(self._name(i))
        matched = set()
        for pattern in step.patterns.values():
            for i, group in enumerate(self.groups):
                if re.search(group.match, pattern.name):
                    matched.add(i)
                    if step._is_dynamic(pattern):
                        self._members.append(_Member(pattern, group))
                    break
        for i, group in enumerate(self.groups):
            if i not in matched and group.match:
                raise StepError(
                    f"expected '{self._name(i)}.match' to be the first that matches one"
                    f" of {', '.join(step.patterns) or 'no weights'}, but got"
                    f" '{group.match}'"
                )
            length = max(math.floor(self._length(group)), 0)
            if group.updates and group.updates >= length:
                raise StepError(
                    f"expected '{self._name(i)}.updates' to be less than the {length} steps"
                    f" for them, but got {group.updates}"
                )
            self._distribute(group, [m for m in self._members if m.group is group])
        self._require_room()
        if not step.counters.steps and not step.counters.pattern_updates:
            for member in self._members:
                self._initialize(member)

    def _name(self, index: int) -> str:
        return "sparsity" if len(self.groups) == 1 else f"sparsity[{index}]"

    @property
    def _use(self) -> Use:
        return self._step._use

    def _place(self, more: int = 0) -> tuple[int, bool]:
        """Returns how many training steps are done after `more` calls, and whether the
        last one is."""
        if self._step._sums:
            before = self._before
            if before is None:
                before = self._step._loaded_runs // self._accumulate
            return before + self._step._applied_runs + more, self._step._is_applied
        step, rest = divmod(int(self._step.counters.steps) + more, self._accumulate)
        return step, not rest

    @property
    def needs_scores(self) -> bool:
        """Whether the next call of the step has to score blocks."""
        next_step, is_done = self._place(1)
        # Of a step that sums, any call may be the last of its window.
        return (is_done or self._step._sums) and any(
            m.group.method == "rigl" or getattr(m.group.method, "needs_scores", False)
            for m in self._members
            if self._is_due(m.group, next_step)
        )

    def due(self, step: int) -> dict[str, float]:
        """Returns which weights are updated after `step` steps, and the share of blocks to
        replace of each; of gmp, the share of all blocks to leave."""
        return {
            m.pattern.name: self._left(m, step) / m.pattern.blocks
            if m.group.method == "gmp"
            else self._share(m.group, step)
            for m in self._members
            if self._is_due(m.group, step)
        }

    @exclusive
    def update(self) -> int:
        """Updates the patterns that are due after the step that was called last.

        A second call after the same step does nothing.

        Returns:
          How many blocks were pruned.
        """
        step, is_done = self._place()
        if not is_done or step == self._updated:
            return 0
        due = [m for m in self._members if self._is_due(m.group, step)]
        self._updated = step
        native = {m.pattern.index: m for m in due if isinstance(m.group.method, str)}
        before = self._step.counters.blocks_pruned
        # Scores are gone with the first update: methods that read them come first.
        _method.apply(
            self._step,
            [
                (m.pattern, m.group.method, self._share(m.group, step))
                for m in due
                if isinstance(m.group.method, Method)
            ],
        )
        if native:
            self._step._session.update(
                [self._native(native.get(p.index), step) for p in self._step.patterns.values()]
            )
        return self._step.counters.blocks_pruned - before

    def _native(
        self, member: _Member | None, step: int
    ) -> tuple[str, str, float, int, bool]:
        if member is None:
            return _STAYS
        group = member.group
        if group.method == "gmp":
            return "gmp", group.score, 0.0, self._left(member, step), False
        share = self._share(group, step)
        return str(group.method), group.score, share, 0, group.allow_return

    @exclusive
    def save(self, path: str | os.PathLike[str], metadata: str = "") -> None:
        """Writes a checkpoint of the step, with what its methods know."""
        methods = [m.state_dict() for m in self._methods()]
        state = {
            "metadata": metadata,
            "updated": self._updated,
            "steps": self._place()[0],
            "methods": methods,
        }
        text = json.dumps({"sparsity": _encoded(state)})
        self._step.save(path, text)

    @exclusive
    def load(self, path: str | os.PathLike[str]) -> str:
        """Reads a checkpoint that `save` wrote, and returns its metadata.

        Nothing changes if there is an error: methods have then what they had.
        """
        text = self._step._session.check(os.fspath(path))
        try:
            state = _decoded(json.loads(text)["sparsity"])
            metadata, updated = str(state["metadata"]), int(state["updated"])
            known = list(state["methods"])
            steps = state.get("steps")
        except (ValueError, KeyError, TypeError) as error:
            raise StepError(
                f"expected a checkpoint that Sparsity.save() wrote, but got '{path}'"
                " without what methods know"
            ) from error
        methods = self._methods()
        if len(known) != len(methods):
            raise StepError(
                f"expected a checkpoint of {len(methods)} methods in Python, but got"
                f" '{path}' of {len(known)}"
            )
        before = [copy.deepcopy(method.state_dict()) for method in methods]
        try:
            for method, own in zip(methods, known):
                method.load_state_dict(own)
            self._step.load(path)
        except BaseException:
            for method, own in zip(methods, before):
                method.load_state_dict(own)
            raise
        self._updated, self._before = updated, steps
        return metadata

    def _methods(self) -> list[Method]:
        found = [g.method for g in self.groups if isinstance(g.method, Method)]
        return list({id(m): m for m in found}.values())

    def _distribute(self, group: Group, members: Sequence[_Member]) -> None:
        """Sets the density of each of a group's weights."""
        shared = []
        for member in members:
            for expression, density in group.densities.items():
                if re.search(expression, member.pattern.name):
                    member.density = density
                    break
            else:
                shared.append(member)
        densities = [group.density] * len(shared)
        if group.distribution == "erk" and shared:
            shapes = [(m.pattern.rows, m.pattern.cols) for m in shared]
            densities = _library.erk_densities(shapes, group.density)
        for member, density in zip(shared, densities):
            member.density = density
        for member in members:
            first = group.initial_density if group.method == "gmp" else member.density
            member.first = _count(first, member.pattern.blocks) if first else member.most

    def _require_room(self) -> None:
        """Raises `StepError` unless the slots of each weight have room for its blocks."""
        small = [m for m in self._members if m.first > m.most]
        if small:
            marks = ", ".join(
                f"'match=^{re.escape(m.pattern.name)}$"
                f" block={m.pattern.block_rows}x{m.pattern.block_cols}"
                f" density={m.first / m.pattern.blocks:g}'"
                for m in small
            )
            raise StepError(
                f"expected '{small[0].pattern.name}' to have slots for {small[0].first}"
                f" blocks, but got {small[0].pattern.slots}: compile the step with marks"
                f" {marks} in front of others"
            )

    def _initialize(self, member: _Member) -> None:
        """Makes the first pattern of a weight, and gives it the program's values."""
        group, pattern, step = member.group, member.pattern, self._step
        values = step._first_values(pattern.name)
        if group.init == "file":
            path = group.file.replace("{name}", pattern.name, 1)
            step._session.read_pattern(pattern, path)
        elif group.init == "largest":
            if values is None:
                raise StepError(
                    "expected an export that has values for its weights, but got none for"
                    f" '{pattern.name}': use init random"
                )
            kind = step._step.buffers[pattern.weight].type
            step._session.take_largest(pattern, values, kind, member.first, group.score)
            return
        elif member.first == len(step.blocks(pattern.name).slot):
            return
        else:
            step._session.make_pattern(pattern, member.first)
        if values is not None:
            step.write(pattern.name, values)

    def _end(self, group: Group) -> float:
        return float(group.end) if group.end else group.until * float(self._steps)

    def _length(self, group: Group) -> float:
        return self._end(group) - group.begin

    def _is_due(self, group: Group, step: int) -> bool:
        prunes = group.method == "gmp"
        # Pruning ends with an update; replacing ends before one.
        last = math.floor(self._end(group)) if prunes else math.ceil(self._end(group)) - 1
        if group.method == "static" or not max(group.begin, 1) <= step <= last:
            return False
        if not group.every and not group.updates:
            return False
        if prunes and step == last:
            return True
        if group.every:
            return step % group.every == 0
        length, parts = self._length(group), group.updates + (not prunes)
        elapsed = step - group.begin
        # The quotient may be rounded to the other side of a whole number.
        nearest = math.floor(elapsed * parts / length + 0.5)
        return any(
            1 <= i <= group.updates and math.floor(i * length / parts) == elapsed
            for i in (nearest - 1, nearest, nearest + 1)
        )

    def _share(self, group: Group, step: int) -> float:
        period = float(group.half_period or self._length(group))
        t = (step - group.begin) / period
        return _library.drop_fraction(group.schedule, group.drop, t)

    def _left(self, member: _Member, step: int) -> int:
        """How many blocks gradual pruning leaves of a weight after `step` steps."""
        group, every = member.group, member.pattern.blocks
        t = (step - group.begin) / (math.floor(self._end(group)) - group.begin)
        density = _library.gmp_density(member.first / every, member.density, t)
        return _count(density, every)


_STAYS = ("static", "l1", 0.0, 0, False)


def updates_of(
    patterns: Sequence[Pattern | None],
    method: str,
    norm: str,
    drop: float,
    density: float | None,
    allow_return: bool,
) -> list[tuple[str, str, float, int, bool]]:
    """Returns what an update of patterns by one method is for the runtime; those in the
    place of which there is none stay."""
    for value, known in ((method, _library.METHODS), (norm, _library.NORMS)):
        if value not in known:
            raise StepError(f"expected one of {', '.join(known)}, but got '{value}'")
    if (density is None) == (method == "gmp"):
        raise StepError(
            "expected a density for the method gmp and for no other, but got"
            f" {density} for {method}"
        )
    if density is not None and not 0 <= density <= 1:
        raise StepError(f"expected a density from 0 to 1, but got {density}")
    return [
        (method, norm, drop, _count(density or 0.0, p.blocks), allow_return)
        if p is not None
        else _STAYS
        for p in patterns
    ]


def _count(density: float, blocks: int) -> int:
    """Returns the number of blocks of a density, as the compiler rounds it."""
    return max(1, math.floor(density * blocks + 0.5))


def _encoded(value: Any) -> Any:
    """Returns a value of a method's state as JSON holds it."""
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": [value.dtype.str, list(value.shape), data]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"map": [[_encoded(k), _encoded(v)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_encoded(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise StepError(
        "expected numbers, texts, arrays, lists and dictionaries in the state of a method,"
        f" but got a {type(value).__name__}"
    )


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "map" in value:
        return {_decoded(k): _decoded(v) for k, v in value["map"]}
    kind, shape, data = value["array"]
    array: Array = np.frombuffer(base64.b64decode(data), np.dtype(kind)).reshape(shape)
    return array.copy()
