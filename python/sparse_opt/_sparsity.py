# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The updates of a step's patterns: docs/sparsity.md.

"""Does what is due after each step, and keeps what methods know."""

from __future__ import annotations

import base64
import copy
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_opt import _given, _library, _method, _statistics
from sparse_opt._description import Array, Pattern
from sparse_opt._errors import StepError
from sparse_opt._exclusive import Use, exclusive
from sparse_opt._library import NewBlocks, PatternUpdate
from sparse_opt._method import Method
from sparse_opt._rules import Group, Groups, Member, Rules, Updates, require_first
from sparse_opt._weight import Weight

if TYPE_CHECKING:
    from sparse_opt._step import Step


class Sparsity:
    """The updates of a step's patterns, as `sparse-train` makes them.

        sparsity = sparse_opt.Sparsity(step, [Group(method="rigl", every=100)], steps=10000)
        for batch in batches:
            loss = step(batch, scores=sparsity.needs_scores)
            changed = sparsity.update()

    Before the first step it makes the patterns that the groups ask for.

    Args:
      step: the compiled step.
      groups: groups, or what a configuration has under `sparsity`. The first that
        matches a weight's name has it.
      steps: how many steps the run has: schedules are over them.
      accumulate: how many calls of the step are one training step. A step that was
        exported with `accumulate=True` says so itself, by its calls with `apply=True`.
      done: how many training steps the run had made before this step was compiled, as
        those by layers (`nn.Sparsity.done`).

    Raises:
      StepError: a value is none of its key, a group matches no weight, or the step was
        not compiled for what one asks.
    """

    @_given.options()
    def __init__(
        self,
        step: Step,
        groups: Groups,
        *,
        steps: int,
        accumulate: int = 1,
        done: int = 0,
    ) -> None:
        rules = Rules(groups)
        self.groups = rules.groups
        self._step, self._accumulate, self._done = step, accumulate, done
        self._updated = -1
        self._before: int | None = None  # training steps of the run that was loaded
        for name, group in rules.named():
            if group.init == "largest" and group.file:
                raise StepError(
                    f"expected configuration key '{name}.file' to be left out for init"
                    f" largest, since the program has the weights, but got '{group.file}'"
                )
        scored = {b.pattern for b in step._step.buffers if b.kind == "scores"}
        members = [
            Member(p, is_frozen=not step._is_dynamic(p), has_scores=p.index in scored)
            for p in step.patterns.values()
        ]
        try:
            self._updates = Updates(rules, steps, members)
        except StepError as error:
            raise _named(error) from error
        if not step.counters.steps and not step.counters.pattern_updates:
            # Before one is written: the program's own objects then have what the step has.
            values = step._program_values()
            for member in self._updates.members:
                self._initialize(member, values.get(member.pattern.name))
                step._session.scale_fan_in(member.pattern, member.group.fan_in)
        for member in self._updates.members:
            if not member.is_frozen and not member.pattern.is_static:
                member.start = completed(step, member.pattern, member.start)
                # Refused before the first step, if at all.
                try:
                    step._session.set_new_blocks(member.pattern, member.start)
                except StepError as error:
                    raise _named(error) from error

    @property
    def _use(self) -> Use:
        return self._step._use

    def _place(self, more: int = 0) -> tuple[int, bool]:
        """Returns how many training steps are done after `more` calls, and whether the
        last one is."""
        if self._step._sums:
            before = self._before
            if before is None:
                before = self._done + self._step._loaded_runs // self._accumulate
            return before + self._step._applied_runs + more, self._step._is_applied
        step, rest = divmod(int(self._step.counters.steps) + more, self._accumulate)
        return self._done + step, not rest

    @property
    def needs_scores(self) -> bool:
        """Whether the next call of the step has to score blocks."""
        next_step, is_done = self._place(1)
        # Of a step that sums, any call may be the last of its window.
        return (is_done or self._step._sums) and any(self._updates.scored(next_step))

    def _keep_scores(self, step: int) -> None:
        """Sums the scores of `step`, or shows them to methods, for updates that want those of
        several steps."""
        session, counters = self._step._session, self._step._session.counters()
        summed = [0] * len(self._step.patterns)
        for member, steps in self._updates.scored(step):
            if isinstance(member.group.method, Method):
                if steps > 1:
                    member.group.method.see(Weight(self._step, member.pattern, counters))
            else:
                summed[member.pattern.index] = steps
        if max(summed, default=0) > 1:
            session.sum_scores(summed)

    def due(self, step: int) -> dict[str, float]:
        """Returns which weights are updated after `step` steps, and the share of blocks to
        replace of each; of gmp, the share of all blocks to leave, with distribution global of
        those of all its weights."""
        updates = list(self._updates.due(step))
        together: dict[int, int] = {}
        for member, due in updates:
            together[due.together] = together.get(due.together, 0) + member.pattern.blocks
        return {
            m.pattern.name: due.blocks
            / (together[due.together] if due.together else m.pattern.blocks)
            if not _library.has_drop(due)
            else due.drop
            for m, due in updates
        }

    @exclusive
    def update(self) -> dict[str, Any]:
        """Updates the patterns that are due after the step that was called last.

        A second call after the same step does nothing.

        Returns:
          What `sparse-train` records of an update, under the same names (docs/runs.md):
          `pruned` and `regrown` blocks, `turnover`, `drop`, `density`, `used`, `lost`,
          `imbalance`, and of each weight `weight_density` and so on. Nothing where no
          update was due.
        """
        step, is_done = self._place()
        if not is_done or step == self._updated:
            return {}
        self._updated = step
        self._keep_scores(step)
        native, own = {}, []
        updates = list(self._updates.due(step))
        for member, due in updates:
            self._step._session.set_new_blocks(member.pattern, member.start)
            if isinstance(member.group.method, Method):
                own.append((member.pattern, member.group.method, due.drop))
            else:
                native[member.pattern.index] = due
        # Scores are gone with the first update: methods that read them come first.
        _method.apply(self._step, own)
        if native:
            stays = PatternUpdate()
            self._step._session.update(
                [native.get(p.index, stays) for p in self._step.patterns.values()]
            )
        if not updates:
            return {}
        done = {
            m.pattern.name: m.group.method if isinstance(m.group.method, Method) else due
            for m, due in updates
        }
        return _statistics.of_update(self._statistics(), done)

    def describe(self) -> dict[str, Any]:
        """Returns what `sparse-train` records of patterns before the first step."""
        return _statistics.of(self._statistics())

    def _statistics(self) -> _statistics.Both:
        step = self._step
        return [(p, step._session.statistics(p)) for p in step.patterns.values()]

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

    def _initialize(self, member: Member, values: Array | None) -> None:
        """Makes the first pattern of a weight, and gives it the program's values."""
        group, pattern, step = member.group, member.pattern, self._step
        if pattern.name in step._of_layers:
            require_first(member, len(step.blocks(pattern.name).slot))
            if group.fan_in != "dense":
                raise StepError(
                    f"expected fan_in dense for '{pattern.name}', the weight of a layer, which has"
                    f" its values, but got {group.fan_in}: give it to the layer or to sparsify"
                )
            return
        if group.init == "file":
            step._session.read_pattern(pattern, member.file)
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
            origin = step.origins.get(pattern.name)  # of a convolution, by its own extents
            step.write(pattern.name, values.reshape(origin.shape) if origin else values)


def _named(error: StepError) -> StepError:
    """Returns an error of a step that was compiled without what its groups need, with what
    to do."""
    text = str(error)
    return StepError(f"{text}: compile it with sparsity=groups") if " compiled with --" in text else error


def started(values: str, state: str, std: float) -> NewBlocks:
    """Returns what new blocks begin with, as the runtime takes it."""
    values = _given.choice(values, _library.NEW_VALUES)
    state = _given.choice(state, _library.NEW_STATE)
    return NewBlocks(
        _library.NEW_VALUES.index(values),
        _library.NEW_STATE.index(state),
        _given.number("new_std", std),
    )


def completed(step: Step, pattern: Pattern, start: NewBlocks) -> NewBlocks:
    """Returns what new blocks of a pattern begin with, with the standard deviation of the
    program's own values where none is said."""
    is_random = _library.NEW_VALUES[start.values] == "random"
    if not is_random or start.std or step._step.buffers[pattern.weight].init:
        return start
    std = step._first_std.get(pattern.name, 0.0)
    return NewBlocks(start.values, start.state, std, start.own_steps, start.ramp)


def updates_of(
    patterns: Sequence[Pattern | None],
    method: str,
    norm: str,
    drop: float,
    density: float | None,
    allow_return: bool,
) -> list[PatternUpdate]:
    """Returns what an update of patterns by one method is for the runtime; those in the
    place of which there is none stay."""
    method = _given.choice(method, _library.METHODS)
    norm = _given.choice(norm, _library.NORMS)
    drop, allow_return = _given.share("drop", drop), _given.flag("allow_return", allow_return)
    if (density is None) == (method == "gmp"):
        raise StepError(
            "expected a density for the method gmp and for no other, but got"
            f" {density} for {method}"
        )
    density = None if density is None else _given.share("density", density)
    numbers = _library.METHODS.index(method), _library.NORMS.index(norm)
    return [
        PatternUpdate(
            *numbers, drop, _library.density_blocks(density or 0.0, p.blocks), allow_return
        )
        if p is not None
        else PatternUpdate()
        for p in patterns
    ]


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
