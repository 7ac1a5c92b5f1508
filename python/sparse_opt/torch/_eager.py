# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The user's own step, run beside a compiled one.

"""One eager step on the weights and the state of a compiled step.

The user's model and optimizer hold them for its time, and get everything back that they
had. Weights are masked, gradients of weights in blocks by hooks, and so is what the
optimizer leaves behind: `w * mask` as docs/optimizers.md defines it.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from sparse_opt import _source
from sparse_opt._check import Call, Expected, Rerun, Unchecked, require_memory, unsure
from sparse_opt._errors import StepError
from sparse_opt._program import Array
from sparse_opt.torch import (
    _arguments,
    _effects,
    _function,
    _optimizer,
    _optimizers,
    _private,
    _shadows,
)
from sparse_opt.torch._memory import from_numpy


class Eager:
    """Runs a step as its author wrote it.

    Args:
      names: the arguments of the compiled step.
      draws: how many random operations its trace had.
    """

    def __init__(
        self,
        train_step: _function.TrainStep,
        model: torch.nn.Module,
        optimizers: _optimizers.Optimizers,
        counters: Sequence[_optimizer.Counter],
        names: Mapping[str, None],
        draws: int,
    ) -> None:
        self._train_step = train_step
        self._model, self._optimizers = model, optimizers
        self.attributes: Mapping[str, tuple[torch.nn.Module, str]] = {}
        self.noise: dict[str, float] = {}  # gradients below it are unsure
        self._counters, self._names, self._draws = counters, names, draws
        self._places = _optimizers.parameter_names(model, optimizers)
        self._parameters = {n: p for n, p in model.named_parameters()}

    def run(self, call: Call, batch: Any) -> Rerun:
        """Returns what the step leaves behind.

        Raises:
          Unchecked: it cannot be run.
        """
        self.attributes = _arguments.attributes_of(self._model)
        tensors = self._tensors(call)
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        require_memory((6 if call.is_exact else 4) * size + 3 * call.size)
        masks = {
            name: torch.from_numpy(mask).reshape(self._parameters[name].shape)
            for name in self._parameters
            if (mask := call.stored(name)) is not None
        }
        drawn = _states()
        rerun = Rerun(has_random=bool(self._draws))
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.random.fork_rng(devices=()),
            sdpa_kernel(SDPBackend.MATH),
            _private.uncompiled(),
            _effects.undone(
                *self._model.modules(), *self._optimizers.objects, generators=False
            ),
            _borrowed(tensors.values(), self._parameters.values()),
        ):
            before = self._take(call, tensors)
            shadows = _shadows.Shadows(call.seed, call.is_exact)
            work = _Work(self, call, masks, shadows)
            with work.hooks(), _noted(self._optimizers.objects) as others:
                returned = self._call(shadows, batch)
            rerun.expected = list(work.expected(tensors, before, returned))
        rerun.others = others
        rerun.drawn = [n for n, s in _states().items() if s != drawn[n]]
        rerun.draws_alike = shadows.draws == self._draws
        return rerun

    def _call(self, shadows: _shadows.Shadows, batch: Any) -> Any:
        try:
            with shadows:
                return self._train_step(self._model, self._optimizers.given, batch)
        except _shadows.Unknown as error:
            raise Unchecked(f"it draws random numbers by {error}") from error
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            line = _source.line_of_error(error.__traceback__)
            if "FakeTensor" in text or "fake tensor" in text.lower():
                raise StepError(
                    "expected a step that keeps its tensors in model and optimizer, but got"
                    f" one of the export in another object{line}: make it a buffer of the"
                    " model, or compute it outside of the step"
                ) from error
            raise Unchecked(f"the program's own step raises '{text}'{line}") from error

    def _tensors(self, call: Call) -> dict[str, torch.Tensor]:
        """Returns what holds the step's values in the user's model, by name."""
        return {
            **self._parameters,
            **dict(self._model.named_buffers()),
            **_arguments.unsaved_tensors(self._model),
        }

    def _take(
        self, call: Call, tensors: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Puts values of the step into model and optimizer; returns them."""
        values: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            if name in call.names:
                values[name] = from_numpy(call.read(name), tensor.dtype)
                tensor.data.copy_(values[name].reshape(tensor.shape))
        self._take_state(call, values)
        groups = self._optimizers.param_groups
        for i, key in self._counters:
            name = _optimizer.name_of((i, key))
            if name in call.names:
                values[name] = torch.from_numpy(call.read(name))
                groups[i][key] = _optimizer.as_number(values[name])
        for group in groups:
            if group.get("fused"):
                group["fused"] = False
        ratios = _optimizer.exported_ratios(self._optimizers.first)
        for group, ratio in zip(groups, ratios):
            if call.rate is not None and group["lr"] is not None:
                rate = call.rate * ratio
                is_tensor = isinstance(group["lr"], torch.Tensor)
                group["lr"] = torch.full_like(group["lr"], rate) if is_tensor else rate
        return values

    def _take_state(self, call: Call, values: dict[str, torch.Tensor]) -> None:
        initial = _optimizer.initial_state(self._model, self._optimizers)
        for part in self._optimizers.parts:
            state: defaultdict[Any, Any] = defaultdict(dict)
            is_new = not any(part.state.values())
            for p, name in self._optimized(part):
                for key, first in initial.get(name, {}).items():
                    full = f"optimizer.{name}.{key}"
                    value = first
                    if full in call.names:
                        value = values[full] = from_numpy(call.read(full), first.dtype)
                        is_new = is_new and torch.equal(value, first.cpu())
                    held: Any = value.to(first.device, copy=True)
                    if _optimizer.is_number(first):
                        held = _optimizer.as_number(value)
                    state[p][key] = held
            # What an optimizer makes in its first step is its own.
            part.state = defaultdict(dict) if is_new else state

    def _optimized(
        self, part: torch.optim.Optimizer | None = None
    ) -> Iterator[tuple[torch.Tensor, str]]:
        """Yields the parameters of an optimizer, or of all, and their names."""
        for owner, p in self._optimizers.owned():
            if part is None or owner is part:
                yield p, self._places[id(p)]


class _Work:
    """What is done to one eager step, and seen of it."""

    def __init__(
        self,
        eager: Eager,
        call: Call,
        masks: Mapping[str, torch.Tensor],
        shadows: _shadows.Shadows,
    ) -> None:
        self._eager, self._call, self._masks = eager, call, masks
        self._shadows = shadows
        self._unsure: dict[str, torch.Tensor] = {}
        self._sums: dict[str, torch.Tensor] = {}
        held = {n: m.__dict__[key] for n, (m, key) in eager.attributes.items()}
        self._attributes = {n: (t.shape, t.dtype) for n, t in held.items()}

    @contextlib.contextmanager
    def hooks(self) -> Iterator[None]:
        """Masks gradients, and what the optimizer leaves behind."""
        eager = self._eager
        handles: list[Any] = []
        masked = {}
        for name, p in eager._parameters.items():
            mask = self._masks.get(name)
            if mask is not None:
                mask = masked[id(p)] = mask.to(p.device)
                if p.requires_grad:
                    hook = functools.partial(torch.mul, mask)
                    handles.append(p.register_hook(hook))  # type: ignore[no-untyped-call]
            if _arguments.SUM + name in self._call.names and p.requires_grad:
                add = functools.partial(self._add, name)
                register: Any = p.register_post_accumulate_grad_hook
                handles.append(register(add))
        for part in eager._optimizers.parts:
            inner = _optimizers.innermost(part)
            before, behind = (functools.partial(f, part) for f in (self._look, self._mask))
            handles.append(inner.register_step_pre_hook(before))
            handles.append(inner.register_step_post_hook(behind))
        try:
            with _private.masked_calls(eager._model, masked):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _look(self, part: torch.optim.Optimizer, *_: Any) -> None:
        """Notes which gradients are nothing but rounding."""
        with torch.no_grad(), _private.undispatched():
            optimized = self._eager._optimized(part)
            found = [(n, p.grad) for p, n in optimized if p.grad is not None]
            largest = max((float(g.abs().max()) for _, g in found), default=0.0)
            for name, gradient in found:
                exact = self._shadows.of(gradient) if self._call.is_exact else None
                epsilon, noise = self._shadows.epsilon, self._eager.noise
                self._unsure[name] = unsure(name, gradient, exact, largest, epsilon, noise)

    def _mask(self, part: torch.optim.Optimizer, *_: Any) -> None:
        """Drops what is stored nowhere."""
        with torch.no_grad():
            for p, name in self._eager._optimized(part):
                if name not in self._masks:
                    continue
                mask = self._masks[name].to(p.device)
                p.mul_(mask)
                for key, value in part.state.get(p, {}).items():
                    stored = self._call.stored(f"optimizer.{name}.{key}")
                    if stored is not None and isinstance(value, torch.Tensor):
                        value.mul_(torch.from_numpy(stored).reshape(value.shape).to(p.device))

    def _add(self, name: str, p: torch.Tensor) -> None:
        """Makes the gradient of a micro-batch the mean of all so far."""
        total = from_numpy(self._call.read(_arguments.SUM + name), p.dtype).to(p.device)
        count = float(self._call.read(_arguments.COUNT)) + 1
        assert p.grad is not None
        self._sums[name] = total.reshape(p.shape) + p.grad
        p.grad = (self._sums[name] / count).to(p.dtype)

    def expected(
        self,
        tensors: Mapping[str, torch.Tensor],
        before: Mapping[str, torch.Tensor],
        returned: Any,
    ) -> Iterator[Expected]:
        """Yields what the compiled step has to have after its run."""
        leaves = pytree.tree_leaves(returned)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                yield self._expect(f"results[{i}]" if i else "loss", "result", leaf, None, i)
        # An optimizer that has not stepped, and buffers that were replaced.
        waits = self._call.waits
        now = {**tensors, **dict(self._eager._model.named_buffers()), **self._left()}
        for name in (n for n in tensors if n in before):
            kind = "parameter" if name in self._eager._parameters else "buffer"
            is_old = waits and kind == "parameter"
            value = before[name] if is_old else now[name]
            yield self._expect(name, kind, value, before[name])
        for name, total in self._sums.items():
            full = _arguments.SUM + name
            old = from_numpy(self._call.read(full), total.dtype)
            yield self._expect(full, "state", total if waits else torch.zeros_like(total), old)
        for part, p in self._eager._optimizers.owned():
            name = self._eager._places[id(p)]
            for key, value in part.state.get(p, {}).items():
                full = f"optimizer.{name}.{key}"
                if full in before and value is not None:
                    new = before[full] if waits else torch.as_tensor(value)
                    yield self._expect(full, "state", new, before[full])
        for i, key in self._eager._counters:
            full = _optimizer.name_of((i, key))
            if full in before:
                number = self._eager._optimizers.param_groups[i][key]
                new = before[full] if waits else torch.as_tensor(number)
                yield self._expect(full, "state", new, before[full])

    def _left(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that the step left in plain attributes."""
        left = {}
        for name, (module, key) in self._eager.attributes.items():
            old, new = self._attributes[name], module.__dict__.get(key)
            if isinstance(new, torch.Tensor) and (new.shape, new.dtype) == old:
                left[name] = new
        return left

    def _expect(
        self,
        name: str,
        kind: str,
        value: torch.Tensor,
        before: torch.Tensor | None,
        place: int = -1,
    ) -> Expected:
        is_exact = self._call.is_exact
        exact = self._shadows.of(value.detach()) if is_exact else value
        dtype = value.dtype if before is None else before.dtype
        owner = name.removeprefix("optimizer.").removeprefix(_arguments.SUM)
        owner = owner.rpartition(".")[0] if name.startswith("optimizer.") else owner
        unsure = self._unsure.get(owner)
        has_unsure = unsure is not None and unsure.shape == value.shape

        def decode(array: Array) -> Array:
            return _numbers(from_numpy(np.ascontiguousarray(array), dtype))

        return Expected(
            name,
            kind,
            _numbers(value).copy(),
            _numbers(exact),
            None if before is None else _numbers(before),
            unsure.cpu().flatten().numpy() if unsure is not None and has_unsure else None,
            epsilon=torch.finfo(dtype).eps if dtype.is_floating_point else 0.0,
            coarsest=self._shadows.epsilon,
            is_marked=owner in self._masks,
            decode=decode,
            place=place,
        )


def _numbers(tensor: torch.Tensor) -> Array:
    """Returns numbers in one line, of a type that NumPy has."""
    dtype = torch.float32 if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.dtype
    if not dtype.is_floating_point:
        dtype = torch.float64
    array: Array = tensor.detach().cpu().to(dtype).flatten().numpy()
    return array


def _states() -> dict[str, str]:
    """Returns the states of generators that no compiled step draws from."""
    return {"random": repr(random.getstate()), "numpy.random": repr(np.random.get_state())}


@contextlib.contextmanager
def _borrowed(tensors: Any, parameters: Any) -> Iterator[None]:
    """Puts back what tensors hold, bit for bit, and gradients."""
    saved = [(t, t.data, t.detach().clone()) for t in tensors]
    gradients = [(p, p.grad) for p in parameters]
    for p, _ in gradients:
        p.grad = None
    try:
        yield
    finally:
        for tensor, memory, value in saved:
            memory.copy_(value)
            tensor.data = memory
        for p, gradient in gradients:
            p.grad = gradient


@contextlib.contextmanager
def _noted(known: Sequence[torch.optim.Optimizer]) -> Iterator[list[str]]:
    """Yields the names of other optimizers that step."""
    others: list[str] = []

    def note(other: torch.optim.Optimizer, *_: Any) -> None:
        if not any(other is optimizer for optimizer in known):
            others.append(type(other).__name__)

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield others
    finally:
        handle.remove()
