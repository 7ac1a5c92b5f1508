# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The schedule of the updates of layers.

"""Updates the patterns of layers when they are due: docs/sparsity.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from sparse_opt import _given
from sparse_opt._errors import StepError
from sparse_opt._library import PatternUpdate
from sparse_opt._method import Method
from sparse_opt._rules import Group, Groups, Member, Rules, Updates, require_first
from sparse_opt._pattern_updates import needs_scores
from sparse_opt.torch import _updates


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
        not the keys `init` and `file`.
      optimizer: or several, which hold their weights.
      groups: groups, or what a configuration has under `sparsity`. The first that matches
        a weight's name has it.
      steps: how many steps the run has: schedules are over them.
      seed: of the choices.

    Attributes:
      groups: the groups with all keys.
      done: how many steps were made.

    A copy has copies of model and optimizers: copy or pickle the three together.

    Raises:
      StepError: a value is none of its key, a group matches no weight or has `init` or
        `file`, or a layer does not begin with as many blocks as its group says.
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
    ) -> None:
        seed = _given.seed(seed)
        rules = Rules(groups)
        for name, group in rules.named():
            for key in ("init", "file"):
                if (value := getattr(group, key)) != getattr(Group(), key):
                    raise StepError(
                        f"expected configuration key '{name}.{key}' to be left out for layers,"
                        f" but got '{value}': sparsify chooses the blocks that they begin with"
                    )
        self.groups, self.done = rules.groups, 0
        self._model, self._given, self._seed = model, optimizer, seed
        self._late: dict[str, Any] = {}  # what was due when gradients were no numbers
        layers = _updates.trained(model)
        _updates.optimizers_of(layers, optimizer)
        _updates.require_alike(layers)
        patterns = _updates.compiled(layers).patterns
        self._updates = Updates(
            rules, steps, [Member(p, is_frozen=False, has_scores=True) for p in patterns]
        )
        for member in self._updates.members:
            layer = layers[member.pattern.name]
            if not int(layer.num_updates):
                require_first(member, int(layer.mask().sum()))
        self._keep()

    def update(self) -> int:
        """Does the updates that are due after one more step; returns how many blocks were
        pruned. Call it after `optimizer.step()`.

        Where gradients that score blocks are no numbers (a step that a GradScaler skips),
        the update is made after the next step.
        """
        layers = _updates.trained(self._model)
        due = {**self._late, **dict(self._due(self.done + 1))}
        due = {name: update for name, update in due.items() if name in layers}
        pruned: int | None = 0
        if due:
            optimizers = _updates.optimizers_of(layers, self._given)
            pruned = _updates.update(layers, optimizers, due, self._seed)
        self._late = due if pruned is None else {}
        self.done += 1
        self._keep()
        return pruned or 0

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
        return {"done": self.done, "methods": [m.state_dict() for m in self._methods()]}

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
        for method, own in zip(methods, known):
            method.load_state_dict(own)
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
