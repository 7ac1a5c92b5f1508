# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The schedule of the updates of layers.

"""Updates the patterns of layers when they are due: docs/sparsity.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from sparse_opt import _given, _statistics
from sparse_opt._errors import StepError
from sparse_opt._library import PatternUpdate
from sparse_opt._method import Method
from sparse_opt._rules import Group, Groups, Member, Rules, Updates, require_first
from sparse_opt._pattern_updates import needs_scores
from sparse_opt._products import Matrix
from sparse_opt.torch import _gpu, _updates
from sparse_opt.torch._new_blocks import Ages, Start


class Sparsity:
    """The updates of a model's layers, by the rules that compiled steps have.

        sparsity = nn.Sparsity(model, optimizer, [Group(method="rigl", every=100)], steps=10000)
        for batch in batches:
            loss_of(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            sparsity.update()

    Args:
      model: whose layers have the patterns that they begin with: sparsify chooses these,
        not the keys `init`, `file` and `fan_in`.
      optimizer: or several, which hold their weights.
      groups: groups, or what a configuration has under `sparsity`. The first that matches
        a weight's name has it.
      steps: how many steps the run has: schedules are over them.
      seed: of the choices.
      new_values, new_state: what new blocks begin with, as `update_patterns` has it.
      new_step: whose step count corrects the bias of a new block: that of its `matrix`, or
        that of the `block` itself, which takes Adam, AdamW, NAdam, RAdam or Adamax.
      new_ramp: over how many steps the updates of a new block rise to what the optimizer
        makes; 0 for at once.

    Attributes:
      groups: the groups with all keys.
      done: how many steps were made.

    A copy has copies of model and optimizers: copy or pickle the three together.

    Raises:
      StepError: a value is none of its key, a group matches no weight or has `init`, `file`
        or `fan_in`, a layer does not begin with as many blocks as its group says, or `new_step`
        or `new_ramp` are not for this optimizer.
    """

    @_given.options()
    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        groups: Groups,
        *,
        steps: int,
        seed: int = 0,
        new_values: Literal["zero", "random"] = "zero",
        new_state: Literal["first", "mean"] = "first",
        new_step: Literal["matrix", "block"] = "matrix",
        new_ramp: int = 0,
    ) -> None:
        seed = _given.seed(seed)
        self._start = Start(new_values, new_state)
        own_step = _given.choice(new_step, ("matrix", "block")) == "block"
        ramp = _given.integer("new_ramp", new_ramp, 0, 2**63 - 1)
        if own_step and new_state != "first":
            raise StepError(
                "expected new_state 'first' with new_step 'block', which counts from the first"
                f" step of a block, but got '{new_state}'"
            )
        rules = Rules(groups)
        for name, group in rules.named():
            for key in ("init", "file", "fan_in"):
                if (value := getattr(group, key)) != getattr(Group(), key):
                    raise StepError(
                        f"expected configuration key '{name}.{key}' to be left out for layers,"
                        f" but got '{value}': sparsify chooses what they begin with"
                    )
            if group.score_steps > 1:
                raise StepError(
                    f"expected configuration key '{name}.score_steps' to be 1 for layers, but got"
                    f" {group.score_steps}: nn.keep_gradients(model) in front of several backward"
                    " passes adds these up"
                )
            for key in ("new_values", "new_std", "new_state", "new_step", "new_ramp"):
                if (value := getattr(group, key)) != getattr(Group(), key):
                    raise StepError(
                        f"expected configuration key '{name}.{key}' to be left out for layers,"
                        f" but got '{value}': nn.Sparsity has arguments of these names"
                    )
        self.groups, self.done = rules.groups, 0
        self._model, self._given, self._seed = model, optimizer, seed
        self._late: dict[str, Any] = {}  # what was due when gradients were no numbers
        layers = _updates.trained(model)
        optimizers = _updates.optimizers_of(layers, optimizer)
        # Without them, optimizers have no hooks.
        self._ages = Ages(model, optimizers, new_step, ramp) if own_step or ramp else None
        _updates.require_alike(layers)
        self._history = _statistics.History()
        self._see_all(layers)
        patterns = [
            dataclasses.replace(p, extents=layers[p.name].extents)
            for p in _updates.compiled(layers).patterns
        ]
        self._updates = Updates(
            rules, steps, [Member(p, is_frozen=False, has_scores=True) for p in patterns]
        )
        for member in self._updates.members:
            layer = layers[member.pattern.name]
            if not int(layer.num_updates):
                require_first(member, int(layer.mask().sum()))
        self._keep()

    def update(self) -> dict[str, Any]:
        """Does the updates that are due after one more step. Call it after
        `optimizer.step()`.

        Where gradients that score blocks are no numbers (a step that a GradScaler skips),
        the update is made after the next step.

        Returns:
          What `sparse_opt.Sparsity.update` does, of the weights that are trained, for
          `sparse_opt.Recorder`: `pruned` and `regrown` blocks, `turnover`, `drop`, `density`,
          `used`, `lost`, `imbalance`, and of each weight `weight_density` and so on. Nothing
          where no update was due. Updates by `nn.update_patterns` are seen in `used` alone.
        """
        layers = _updates.trained(self._model)
        due = {**self._late, **dict(self._due(self.done + 1))}
        due = {name: update for name, update in due.items() if name in layers}
        entry: dict[str, Any] = {}
        updated: dict[str, Any] | None = {}
        if due:
            self._see_all(layers)
            optimizers = _updates.optimizers_of(layers, self._given)
            updated = _updates.update(
                layers, optimizers, due, self._seed, self._start, self._ages
            )
        if updated:
            patterns = _updates.compiled(layers).patterns
            for name, weight in updated.items():
                self._see(name, weight.matrix, weight.pattern)
                if name in due:
                    self._history.record(name, weight.statistics, weight.pruned, weight.regrown)
                self._history.count(name, weight.statistics)
            both = [(p, updated[p.name].statistics) for p in patterns]
            entry = _statistics.of_update(both, due)
        self._late = due if updated is None else {}
        self.done += 1
        self._keep()
        return entry

    def _see_all(self, layers: Mapping[str, Any]) -> None:
        """Notes the blocks that layers have."""
        for name, layer in layers.items():
            self._see(name, layer.matrix, _gpu.host(layer.pattern))

    def _see(self, name: str, matrix: Matrix, pattern: Any) -> None:
        self._history.see(name, *matrix.blocks_of(pattern), matrix.grid)

    def _due(self, step: int) -> Iterator[tuple[str, PatternUpdate | tuple[Method, float]]]:
        """Yields what is updated after so many steps, by the names of weights."""
        for member, update in self._updates.due(step):
            name, method = member.pattern.name, member.group.method
            yield name, (method, update.drop) if isinstance(method, Method) else update

    def _keep(self) -> None:
        """Lets layers keep the gradients of the next step if they will be scored."""
        due = {**self._late, **dict(self._due(self.done + 1))}
        scored = {name for name, update in due.items() if needs_scores(update)}
        for name, layer in _updates.trained(self._model).items():
            _updates.keep(layer, name in scored)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a run that goes on needs, beside the states of model and optimizer."""
        history = {
            name: tuple(torch.from_numpy(part.copy()) for part in parts)
            for name, parts in self._history.state().items()
        }
        state = {
            "done": self.done,
            "methods": [m.state_dict() for m in self._methods()],
            "history": history,
        }
        return {**state, "new_blocks": self._ages.state_dict()} if self._ages else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what `state_dict` returned."""
        methods = self._methods()
        if not isinstance(state, Mapping) or not {"done", "methods"} <= set(state):
            raise _given.refusal("what state_dict() of a Sparsity returned", state)
        done = _given.integer("'done'", state["done"], 0, 2**63 - 1)
        known = _given.listed("a list of the states of methods", state["methods"])
        if len(known) != len(methods):
            raise StepError(
                f"expected the state of {len(methods)} methods in Python, but got that of"
                f" {len(known)}"
            )
        new_blocks = state.get("new_blocks")
        if new_blocks is not None and self._ages is None:
            raise StepError(
                "expected new_step or new_ramp for the state of a schedule that had them, but got"
                " neither"
            )
        if self._ages is not None:
            # Blocks of a run without these options are of no age.
            self._ages.load_state_dict(new_blocks)
        for method, own in zip(methods, known):
            method.load_state_dict(own)
        # Of a schedule that kept none, it begins with the blocks that are there.
        self._history = _statistics.History()
        layers = _updates.trained(self._model)
        self._see_all(layers)
        for name, parts in state.get("history", {}).items():
            if name in layers:
                self._history.load(name, *(part.cpu().numpy() for part in parts))
        self.done = done
        self._keep()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Goes on as a copy, which has a model and optimizers of its own."""
        vars(self).update(state)
        # What a model has in an attribute is copied before the model is.
        if vars(self._model):
            self._keep()

    def _methods(self) -> list[Method]:
        found = [g.method for g in self.groups if isinstance(g.method, Method)]
        return list({id(m): m for m in found}.values())
