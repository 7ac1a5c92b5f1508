# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# How the new blocks of layers start.

"""What blocks begin with that an update of a pattern brings, and their first steps.

Values and moments are written once, at the update. Steps are another matter: an optimizer
counts them for a whole matrix. `Ages` lets it step new blocks once more as parameters of
their own, which have their own counts, and keeps what comes of that. Slots are numbers of the
processor, by which PyTorch reads and writes tensors of any device.
"""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sparse_opt import _given
from sparse_opt._errors import ExportError, StepError
from sparse_opt.torch import _gpu, _optimizers, _sharded


@dataclass(frozen=True)
class Start:
    """What new blocks begin with.

    Attributes:
      values: `zero`, or `random`, as those of a new layer.
      state: what the optimizer began with (`first`), or the `mean` of what it keeps of the
        other blocks of the matrix.
    """

    values: str = "zero"
    state: str = "first"

    def __post_init__(self) -> None:
        _given.choice(self.values, ("zero", "random"))
        _given.choice(self.state, ("first", "mean"))


# They divide moments by 1 - beta^t, or by more that depends on t, and treat entries one by one.
_CORRECTING = (
    torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam,
    torch.optim.Adamax,
)  # fmt: skip


@dataclass
class _Cohort:
    """Blocks of a weight that came with one update.

    Attributes:
      slots: theirs.
      age: how many steps were made with them.
      state: what the optimizer keeps of a parameter of that age as a whole: its step count.
    """

    slots: Tensor
    age: int = 0
    state: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Held:
    """What the new blocks of a weight had in front of a step, in this process's slots.

    Attributes:
      rows: of each cohort, the places of its slots in the tensors of this process.
      values: `[all rows, block rows, block columns]`.
      state: what the optimizer keeps of each slot, in the same order.
    """

    weight: torch.nn.Parameter
    group: dict[str, Any]
    cohorts: list[_Cohort]
    rows: list[Tensor]
    values: Tensor
    state: dict[str, Tensor]

    @property
    def all_rows(self) -> Tensor:
        return torch.cat(self.rows)

    def by_cohort(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yields the flat parts of a tensor of all rows."""
        width = tensor[:1].numel() if len(tensor) else 0
        sizes = [len(rows) * width for rows in self.rows]
        return iter(torch.split(tensor.reshape(-1), sizes))


class Ages:
    """The steps that optimizers have made with new blocks.

    Args:
      model: whose layers have them.
      optimizers: which step their weights.
      step: whose step count corrects the bias of a new block: the `matrix`'s, or that of the
        `block` itself.
      ramp: over how many steps the updates of a new block rise to what the optimizer makes.

    Raises:
      StepError: an optimizer is none of those that this can be done for.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        step: str,
        ramp: int,
    ) -> None:
        self._model, self._step, self._ramp = model, step, ramp
        self._optimizers = list({id(o): o for o in map(_optimizers.innermost, optimizers)}.values())
        self._cohorts: dict[str, list[_Cohort]] = {}
        for optimizer in self._optimizers:
            if hasattr(optimizer, "optim"):
                raise StepError(
                    "expected an optimizer that steps all weights on each rank for new_step and"
                    f" new_ramp, but got {type(optimizer).__name__}"
                )
        weights = self._weights()
        for name, weight in weights.items():
            if weight.device.type not in ("cpu", "cuda"):
                raise StepError(
                    "expected layers on a processor or an NVIDIA GPU for new_step and new_ramp, but"
                    f" got '{name}' on '{weight.device}'"
                )
            owner = next(o for o in self._optimizers if _group_of(o, weight) is not None)
            if step == "block" and not isinstance(owner, _CORRECTING):
                raise StepError(
                    "expected an optimizer that corrects bias by its step count (Adam, AdamW,"
                    f" NAdam, RAdam or Adamax) for new_step 'block', but got"
                    f" {type(owner).__name__} for '{name}'"
                )
        self._watch()

    def _weights(self) -> dict[str, torch.nn.Parameter]:
        from sparse_opt.torch import _updates

        return {name: layer.weight for name, layer in _updates.trained(self._model).items()}

    def _watch(self) -> None:
        self._held: dict[int, list[_Held]] = {}  # by the identity of optimizers
        # Hooks of a schedule that is gone do nothing.
        own = weakref.ref(self)

        def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if ages := own():
                ages._look(optimizer)

        def behind(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if ages := own():
                ages._correct(optimizer)

        for optimizer in self._optimizers:
            for handle in (
                optimizer.register_step_pre_hook(before),
                optimizer.register_step_post_hook(behind),
            ):
                weakref.finalize(self, handle.remove)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_held"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # Copies of optimizers have no hooks.
        self._watch()

    def begin(self, name: str, changed: Tensor, new: Tensor) -> None:
        """Notes the slots of a weight that an update changed, and those of new blocks."""
        cohorts = self._cohorts.pop(name, [])
        for cohort in cohorts:
            cohort.slots = cohort.slots[~changed[cohort.slots]]
        cohorts.append(_Cohort(new.nonzero().flatten()))
        if kept := [cohort for cohort in cohorts if len(cohort.slots)]:
            self._cohorts[name] = kept

    @torch.no_grad()
    def _look(self, optimizer: torch.optim.Optimizer) -> None:
        """Copies what new blocks have in front of a step."""
        self._held[id(optimizer)] = held = []
        if _gpu.is_captured():
            raise StepError(
                "expected optimizer.step() outside of the capture of a graph with new_step or"
                " new_ramp, but got it within: a graph has no hooks"
            )
        if not self._cohorts:
            return
        weights = self._weights()
        for name, cohorts in self._cohorts.items():
            weight = weights.get(name)
            group = None if weight is None else _group_of(optimizer, weight)
            if weight is None or group is None:
                continue
            if weight.dim() != 3:
                raise ExportError(
                    "expected a step without blocks that have a step count or a ramp of their"
                    f" own, but got some of '{name}': use an nn.Sparsity without new_step and"
                    " new_ramp, or wait until they are old"
                )
            numbers = _sharded.local_slots(weight)
            rows = [
                cohort.slots if numbers is None
                else torch.isin(numbers.cpu(), cohort.slots).nonzero().flatten()
                for cohort in cohorts
            ]  # fmt: skip
            every = torch.cat(rows)
            state = _by_slots(weight, optimizer.state.get(weight, {}))
            state = {key: value[every] for key, value in state.items()}
            values = _sharded.local(weight)[every]
            held.append(_Held(weight, group, cohorts, rows, values, state))

    @torch.no_grad()
    def _correct(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives new blocks the step that is right for their age."""
        # A fused step of a GradScaler may have done nothing.
        overflow = getattr(optimizer, "found_inf", None)
        held = self._held.pop(id(optimizer), [])
        held = [one for one in held if one.weight.grad is not None]
        if not held or (overflow is not None and bool(overflow)):
            return
        if self._step == "block":
            _step_again(optimizer, held)
        for one in held:
            for cohort in one.cohorts:
                cohort.age += 1
            if any(cohort.age < self._ramp for cohort in one.cohorts):
                weight, rows = _sharded.local(one.weight), one.all_rows
                shares = torch.cat(
                    [
                        one.values.new_full((len(rows), 1, 1), min(1, cohort.age / self._ramp))
                        for rows, cohort in zip(one.rows, one.cohorts)
                    ]
                )
                weight[rows] = torch.lerp(one.values, weight[rows], shares)
            for cohort in one.cohorts:
                if cohort.age >= self._ramp and (
                    self._step == "matrix" or not _is_young(optimizer, one, cohort)
                ):
                    cohort.slots = cohort.slots[:0]
        self._cohorts = {
            name: left
            for name, cohorts in self._cohorts.items()
            if (left := [cohort for cohort in cohorts if len(cohort.slots)])
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "new_step": self._step,
            "blocks": {
                name: [copy.deepcopy(vars(cohort)) for cohort in cohorts]
                for name, cohorts in self._cohorts.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Takes what `state_dict` returned, or None of a run in which all blocks are old."""
        state = {"new_step": self._step, "blocks": {}} if state is None else state
        try:
            step = state["new_step"]
            cohorts = {
                name: [_Cohort(**copy.deepcopy(cohort)) for cohort in found]
                for name, found in state["blocks"].items()
            }
        except (AttributeError, KeyError, TypeError) as error:
            raise _given.refusal("'new_blocks' of what state_dict() returned", state) from error
        if step != self._step:
            raise StepError(
                f"expected new_step '{step}', with which the schedule was saved, but got"
                f" '{self._step}'"
            )
        self._cohorts = cohorts


def _group_of(
    optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter
) -> dict[str, Any] | None:
    groups = (g for g in optimizer.param_groups if any(p is weight for p in g["params"]))
    return next(groups, None)


def _by_slots(weight: torch.nn.Parameter, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns what an optimizer keeps of each slot of a weight, of this process's slots."""
    found = ((key, value) for key, value in state.items() if is_by_slots(weight, value))
    return {key: _sharded.local(value) for key, value in found}


def is_by_slots(weight: Tensor, value: Any) -> bool:
    """Returns whether an optimizer keeps a value for each slot of a weight: moments, and means
    of rows or columns of each block (Adafactor)."""
    is_alike = isinstance(value, Tensor) and value.dim() == weight.dim()
    return is_alike and bool(value.shape[0] == weight.shape[0])


# Beside the keys of an optimizer's state.
_VALUES, _GRADIENT = "values of blocks", "gradients of blocks"


def _step_again(optimizer: torch.optim.Optimizer, held: Sequence[_Held]) -> None:
    """Steps the values that new blocks had as parameters of their own, with the optimizer's
    code. Those that have the same counts are one parameter: entries are stepped one by one."""
    twin: Any = object.__new__(type(optimizer))
    # Not the step that a scheduler has put around the optimizer's; gradients are unscaled.
    without = ("step", "grad_scale")
    vars(twin).update({k: v for k, v in vars(optimizer).items() if k not in without})
    twin._optimizer_step_pre_hooks = OrderedDict()
    twin._optimizer_step_post_hooks = OrderedDict()
    twin.state = defaultdict(dict)
    alike: dict[tuple[Any, ...], list[tuple[_Held, int, dict[str, Tensor]]]] = {}
    for one in held:
        assert one.weight.grad is not None
        tensors = {
            _VALUES: one.values,
            _GRADIENT: _sharded.local(one.weight.grad)[one.all_rows],
            **one.state,
        }
        parts = zip(*map(one.by_cohort, tensors.values()))
        for i, (cohort, part) in enumerate(zip(one.cohorts, parts)):
            counts = tuple(float(value) for value in cohort.state.values())
            which = id(one.group), one.values.dtype, counts
            alike.setdefault(which, []).append((one, i, dict(zip(tensors, part))))
    groups: dict[int, dict[str, Any]] = {}
    stepped = []
    for members in alike.values():
        one, i, first = members[0]
        known = one.cohorts[i].state
        # Of blocks that were never stepped, the optimizer makes the state.
        keys = first if known else (_VALUES, _GRADIENT)
        joined = {key: torch.cat([tensors[key] for _, _, tensors in members]) for key in keys}
        parameter = torch.nn.Parameter(joined.pop(_VALUES))
        parameter.grad = joined.pop(_GRADIENT)
        if known:
            twin.state[parameter] = {**copy.deepcopy(known), **joined}
        groups.setdefault(id(one.group), {**one.group, "params": []})["params"].append(parameter)
        stepped.append((parameter, members))
    twin.param_groups = list(groups.values())
    twin.step()
    made: dict[int, list[dict[str, Tensor]]] = {id(one): [{} for _ in one.rows] for one in held}
    for parameter, members in stepped:
        state = twin.state[parameter]
        kept = {key: value for key, value in state.items() if is_by_slots(parameter, value)}
        rest = {key: value for key, value in state.items() if key not in kept}
        sizes = [tensors[_VALUES].numel() for _, _, tensors in members]
        for key, value in {_VALUES: parameter.detach(), **kept}.items():
            for (one, i, _), found in zip(members, torch.split(value, sizes)):
                made[id(one)][i][key] = found
        for one, i, _ in members:
            one.cohorts[i].state = rest
    for one in held:
        rows = one.all_rows
        kept = _by_slots(one.weight, optimizer.state[one.weight])
        for key, value in {_VALUES: _sharded.local(one.weight), **kept}.items():
            value[rows] = torch.cat([found[key] for found in made[id(one)]]).view_as(one.values)


def _is_young(optimizer: torch.optim.Optimizer, held: _Held, cohort: _Cohort) -> bool:
    """Returns whether a step count of its own still makes a difference to a cohort."""
    decays = [float(beta) for beta in held.group["betas"]]
    if isinstance(optimizer, torch.optim.NAdam):
        decays.append(0.96 ** held.group["momentum_decay"])  # of its momentum, by the step
    return max(decays) ** cohort.age > torch.finfo(held.weight.dtype).eps / 4
