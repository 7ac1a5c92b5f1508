# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The user's step as a function of tensors.

"""A step without side effects.

It runs on the tensors that it is given, in the place of parameters, buffers and
optimizer state, and returns the next values of what it may write. What Python
counts meanwhile becomes values as well, or is refused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sparse_opt._errors import ExportError
from sparse_opt.torch import (
    _arguments,
    _branches,
    _effects,
    _gradients,
    _numbers,
    _optimizer,
    _optimizers,
    _points,
    _private,
    _recording,
    _sdpa,
)

TrainStep = Callable[[torch.nn.Module, Any, Any], Any]


class Counted(ExportError):
    """A step changes numbers in an optimizer's groups."""

    def __init__(self, counters: list[_optimizer.Counter]) -> None:
        super().__init__(f"expected numbers that stay, but got {counters}")
        self.counters = counters


class StepFunction:
    """The user's step as a function of a flat list of tensors."""

    def __init__(
        self,
        train_step: TrainStep,
        model: torch.nn.Module,
        optimizers: _optimizers.Optimizers,
        batch: Any,
        arguments: list[_arguments.Argument],
        counters: Sequence[_optimizer.Counter],
        branches: bool,
        is_step: bool = True,
        scheduled: Sequence[_optimizer.Scheduled] = (),
    ) -> None:
        self.train_step = train_step
        self.is_step = is_step
        self.branches = branches
        self.model = model
        self.optimizers = optimizers
        self.batch = batch
        self.arguments = arguments
        self.numbers = {a.name for a in arguments if _optimizer.is_number(a.value)}
        self.output_types: list[torch.dtype] = []
        self.changes: list[_effects.Change] = []
        self.counts: list[_effects.Change] = []
        # Attention that PyTorch takes apart, and why.
        self.apart: dict[str, None] = {}
        self.returns: Any = None
        self.names = _optimizers.parameter_names(model, optimizers)
        self.has_tensor_rate = any(
            isinstance(group["lr"], torch.Tensor)
            for group in optimizers.first.param_groups
        )
        self.counters = {c: _optimizer.name_of(c) for c in counters}
        self.scheduled = scheduled
        self.made = _effects.Made()
        self.options = set(_optimizer.schedule_of(optimizers, scheduled))
        self.attributes = _arguments.attributes_of(model)
        # Those that are parameters or buffers as well.
        named = itertools.chain(model.named_parameters(), model.named_buffers())
        known = {id(tensor): name for name, tensor in named}
        self.same = [
            (module, key, known[id(value)])
            for module in model.modules()
            for key, value in module.__dict__.items()
            if id(value) in known
        ]

    def again(self) -> StepFunction:
        """Returns the step as it is before it runs."""
        return StepFunction(
            self.train_step, self.model, self.optimizers, self.batch, self.arguments,
            list(self.counters), self.branches, self.is_step, self.scheduled,
        )  # fmt: skip

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Runs the step; returns the next values of what it may write, then its
        outputs.

        A step that changes attributes runs twice: the results of the second time,
        behind the others, tell whether it depends on them.
        """
        results = self._run_once(tensors)
        if not self.changes:
            return results
        changes = self.changes
        again = self._run_once(tensors)
        counts = {str(change) for change in self.counts}
        _effects.require_none([c for c in changes if str(c) in counts] or self.counts)
        self.changes = changes
        return [*results, *again]

    def _run_once(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        # A write must not reach an argument: the copy takes it.
        values = {
            a.name: t if a.role in _arguments.INPUTS else t.clone()
            for a, t in zip(self.arguments, tensors)
        }
        given = {a.name: t for a, t in zip(self.arguments, tensors)}
        of_batch = (values[a.name] for a in self.arguments if a.role == "batch")
        self.made.note(of_batch, "a part of the batch")
        named = {
            role: {a.name: values[a.name] for a in self.arguments if a.role == role}
            for role in ("param", "buffer", "constant")
        }
        params = named["param"]
        constants = {n: t for n, t in named["constant"].items() if n not in self.options}
        buffers = {**named["buffer"], **constants}
        schedule = _optimizer.traced_schedule(self.optimizers, self.scheduled, values)
        for name, p in self.model.named_parameters():
            _take_place(params[name], p)
        totals, sums = _summed(params, values) if "apply" in values else ({}, [])
        state = self._state(values)
        numbers = _numbers.Numbers()
        for name in self.numbers:
            # A rate may be 0.
            is_option = name in self.options and not name.endswith(".lr")
            numbers.add(values[name], never_zero=is_option)
        parts = self.optimizers.parts
        gradients = _gradients.Gradients(
            params, {*self.model.modules(), *self.optimizers.objects}
        )
        with (
            _private.tensors_of(self.model, {**params, **buffers}),
            _optimizer.swapped(
                self.optimizers,
                self.names,
                params,
                state,
                values["lr"],
                {c: values[name] for c, name in self.counters.items()},
                schedule,
            ),
            contextlib.ExitStack() as stack,
            _optimizer.TensorFactors(),
            _effects.Assignments(),
            self.made,
            gradients,
            _effects.known_optimizers(parts),
            _points.marked(self.model, params),
            _sdpa.Attention(self._take_apart).running(),
            numbers,
        ):
            for part in parts:
                stack.enter_context(
                    _branches.followed(self.model, part, numbers, self.branches)
                )
            for group in self.optimizers.first.param_groups:
                if group["lr"] is not None and not self.has_tensor_rate:
                    numbers.add(group["lr"])
            for name, (module, key) in self.attributes.items():
                module.__dict__[key] = values[name]
            for module, key, name in self.same:
                module.__dict__[key] = values[name]
            own_groups = self.optimizers.param_groups
            groups = [dict(group) for group in own_groups]
            rates = [(group["lr"], getattr(group["lr"], "_version", 0)) for group in groups]
            draws = _effects.random_states()
            before = _effects.Attributes(self.model, parts)
            own = self.optimizers.given
            returned = self.train_step(self.model, own, self._batch(values))
            for handle in sums:
                handle.remove()  # What it holds would outlive the trace.
            _effects.require_no_draws(draws)
            for group, (rate, version) in zip(own_groups, rates):
                if group["lr"] is not rate or getattr(rate, "_version", 0) != version:
                    raise ExportError(
                        "expected a step that leaves the learning rate alone, but got"
                        " one that changes it: call scheduler.step() behind the step"
                    )
            for (i, key), held in schedule.items():
                if own_groups[i][key] is not held:
                    raise ExportError(
                        f"expected a step that leaves '{key}' of group {i} alone, which a"
                        " schedule changes, but got one that changes it, too: leave it to"
                        " one of them"
                    )
            if counters := _optimizer.counted(self.optimizers, groups):
                raise Counted(counters)
            for (i, key), name in self.counters.items():
                group = own_groups[i]
                number = torch.as_tensor(group[key]).to(torch.float64)
                group[key], values[name] = values[name], number
            self._read_attributes(values)
            after_all = _effects.Attributes(self.model, parts)
            self.changes = list(before.changes(after_all))
            self.counts = list(before.counts(after_all))
            owners = self.optimizers.owners()
            after = {
                name: dict(owners[id(params[name])].state[params[name]])
                for name in state
            }
            # A buffer may be written, or another tensor put in its place.
            for name, buffer in self.model.named_buffers(remove_duplicate=False):
                if name in buffers:
                    values[name] = buffer
            gradients.require_none_left()
        outputs = self._outputs(returned)
        self.output_types = [output.dtype for output in outputs]
        next_values = dict(values)
        for name, tensors_after in after.items():
            for key, value in tensors_after.items():
                full = f"optimizer.{name}.{key}"
                if full in values:
                    kept = values[full]
                    if not kept.dim():  # as a number counts
                        value = torch.as_tensor(value).to(kept.dtype)
                    next_values[full] = value
        if "apply" in values:
            self._wait(given, next_values, totals)
        carried = [
            next_values[a.name].detach()
            for a in self.arguments
            if a.role in _arguments.CARRIED
        ]
        return [*carried, *outputs]

    def _take_apart(self, reason: str) -> None:
        place = _recording.user_place()
        where = f" at {place[0]}:{place[1]}" if place else ""
        self.apart[f"scaled_dot_product_attention{where} is taken apart: {reason}"] = None

    def _read_attributes(self, values: dict[str, torch.Tensor]) -> None:
        """Takes the tensors that a step left in attributes for their next values.

        Where it left something else the attribute is none: another run of the
        step tells whether it reads what the one before it left.
        """
        for name, (module, key) in list(self.attributes.items()):
            old, new = values[name], module.__dict__.get(key)
            if (
                isinstance(new, torch.Tensor)
                and new.shape == old.shape
                and new.dtype == old.dtype
            ):
                module.__dict__[key], values[name] = old, new
            else:
                del self.attributes[name]

    def _wait(
        self,
        given: Mapping[str, torch.Tensor],
        next_values: dict[str, torch.Tensor],
        totals: Mapping[str, torch.Tensor],
    ) -> None:
        """Leaves what an optimizer changes alone until the last micro-batch."""
        apply = given["apply"]
        for argument in self.arguments:
            name = argument.name
            if argument.role not in ("param", "state"):
                continue
            if name == _arguments.COUNT:
                new, old = torch.zeros_like(given[name]), given[name] + 1
            elif (
                name.startswith(_arguments.SUM)
                and name.removeprefix(_arguments.SUM) in totals
            ):
                old = totals[name.removeprefix(_arguments.SUM)]
                new = torch.zeros_like(old)
            else:
                new, old = next_values[name].detach(), given[name]
            next_values[name] = torch.where(apply, new, old)

    def _state(self, values: Mapping[str, torch.Tensor]) -> _optimizer.State:
        state: _optimizer.State = {}
        owners = self.optimizers.owners()
        held: dict[str, dict[str, torch.Tensor]] = {}
        for full, value in values.items():
            prefix, _, key = full.rpartition(".")
            held.setdefault(prefix, {})[key] = value
        for p, name in self.names.items():
            if tensors := held.get(f"optimizer.{name}"):
                state[name] = {
                    key: _optimizer.as_read(owners[p], values[name], key, value)
                    for key, value in tensors.items()
                }
        return state

    def _batch(self, values: Mapping[str, torch.Tensor]) -> Any:
        named = _arguments.batch_leaves(self.batch)
        leaves = [values.get(name, leaf) for name, leaf in named]
        return pytree.tree_unflatten(leaves, pytree.tree_structure(self.batch))

    def _outputs(self, returned: Any) -> list[torch.Tensor]:
        """Checks what the step returned: a loss, and perhaps metrics."""
        leaves, self.returns = pytree.tree_flatten(returned)
        for i, leaf in enumerate(leaves or [None]):
            if not isinstance(leaf, torch.Tensor):
                expected, instead = (
                    ("a function that returns tensors", "tensors")
                    if not self.is_step
                    else ("a step that returns tensors behind its loss", "tensors alone")
                    if i
                    else ("a step that returns its loss as a tensor", "loss.detach()")
                )
                raise ExportError(
                    f"expected {expected}, but got {type(leaf).__name__}: return"
                    f" {instead}"
                )
        if self.is_step and leaves[0].numel() != 1:
            raise ExportError(
                "expected a loss of shape (), but got"
                f" {tuple(leaves[0].shape)}: return its mean"
            )
        return [leaf.detach() for leaf in leaves]


def _summed(
    params: Mapping[str, Any], values: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], list[Any]]:
    """Makes gradients the means over micro-batches; returns their sums, once they are
    known, and the hooks that do it."""
    totals: dict[str, torch.Tensor] = {}
    count = values[_arguments.COUNT] + 1

    def add(name: str, p: torch.Tensor) -> None:
        if name in totals:
            raise ExportError(
                "expected one backward() in the step of a micro-batch, but got another"
                f" that reaches '{name}': add the losses"
            )
        assert p.grad is not None
        totals[name] = values[f"{_arguments.SUM}{name}"] + p.grad
        p.grad = (totals[name] / count).to(p.dtype)

    hooked = [(name, p) for name, p in params.items() if p.requires_grad]
    return totals, [
        p.register_post_accumulate_grad_hook(functools.partial(add, name))
        for name, p in hooked
    ]


def _take_place(traced: Any, p: torch.Tensor) -> None:
    """Gives a traced tensor what the parameter `p` has, its hooks too."""
    traced.requires_grad_(p.requires_grad)
    traced.__dict__.update(p.__dict__)
    for hook in (p._backward_hooks or {}).values():
        traced.register_hook(hook)
    for hook in (p._post_accumulate_grad_hooks or {}).values():
        traced.register_post_accumulate_grad_hook(hook)
