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
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
    _float64_shadows,
    _function,
    _optimizer,
    _optimizers,
    _private,
)
from sparse_opt.torch._memory import from_numpy


# Seconds of an operation, on the average of a step whose time counts: what the check's
# mode adds to each in Python is little beside it.
_OPERATION = 3e-4


class UserStep:
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
        self._first: _optimizer.State = {}  # what optimizers have in front of one
        self._counters, self._names, self._draws = counters, names, draws
        # Rates that are all 0 have none.
        self._ratios = _optimizer.exported_ratios(optimizers.first)
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
            if (mask := call.state.stored(name)) is not None
        }
        drawn = _states()
        rerun = Rerun(has_random=bool(self._draws))
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.random.fork_rng(devices=()),
            _attention_of(tensors.values()),
            _private.uncompiled(call.is_exact),
            _effects.undone(
                *self._model.modules(), *self._optimizers.objects, generators=False
            ),
            _borrowed(tensors, self._parameters.values(), call.state.names) as shared,
        ):
            types = self._take(call, tensors, shared)
            shadows = _float64_shadows.Shadows(call.seed, call.is_exact, call.attempt)
            places = {_place(tensors[name]) for name in shared}
            work = _Work(self, call, masks, shadows, places)
            with work.hooks(), _noted(self._optimizers.objects) as others:
                start = time.perf_counter()
                returned = self._call(shadows, batch)
                seconds = time.perf_counter() - start - work.seconds
            rerun.expected = list(work.expected(tensors, types, returned))
        is_own = not call.waits and all(t.is_cpu for t in tensors.values())
        if is_own and seconds >= _OPERATION * shadows.operations:
            rerun.seconds = seconds
        rerun.others = others
        rerun.drawn = [n for n, s in _states().items() if s != drawn[n]]
        rerun.draws_alike = shadows.draws == self._draws
        return rerun

    def _call(self, shadows: _float64_shadows.Shadows, batch: Any) -> Any:
        try:
            with shadows:
                return self._train_step(self._model, self._optimizers.given, batch)
        except _float64_shadows.Unknown as error:
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
            **{n: m.__dict__[key] for n, (m, key) in self.attributes.items()},
        }

    def _take(
        self, call: Call, tensors: Mapping[str, torch.Tensor], shared: Collection[str]
    ) -> dict[str, torch.dtype]:
        """Puts values of the step into model and optimizer; returns their types.

        Tensors that are not `shared` get memory of their own for it."""
        types: dict[str, torch.dtype] = {}
        for name, tensor in tensors.items():
            if name in call.state.names:
                types[name] = tensor.dtype
                value, is_kept = _read(call, name, tensor.dtype)
                value = value.reshape(tensor.shape)
                if name in shared:
                    tensor.data.copy_(value)
                else:
                    tensor.data = value.clone() if is_kept else value
        types |= self._take_state(call)
        groups = self._optimizers.param_groups
        for i, key in self._counters:
            name = _optimizer.name_of((i, key))
            if name in call.state.names:
                value = torch.from_numpy(call.state.read(name))
                types[name] = value.dtype
                groups[i][key] = _optimizer.as_number(value)
        for part in self._optimizers.parts:
            for group in part.param_groups:
                if "fused" in group:
                    group["fused"] = not call.is_exact and _may_fuse(part, group)
        for group, ratio in zip(groups, self._ratios):
            if call.rate is not None and group["lr"] is not None:
                rate = call.rate * ratio
                is_tensor = isinstance(group["lr"], torch.Tensor)
                group["lr"] = torch.full_like(group["lr"], rate) if is_tensor else rate
        return types

    def _take_state(self, call: Call) -> dict[str, torch.dtype]:
        """Puts the optimizers' state of the step into them; returns its types."""
        if not self._first:
            self.note(_optimizer.initial_state(self._model, self._optimizers))
        types: dict[str, torch.dtype] = {}
        for part in self._optimizers.parts:
            firsts = self._firsts(call, part)
            types |= {name: first.dtype for name, first in firsts.items()}
            state: defaultdict[Any, Any] = defaultdict(dict)
            # What an optimizer makes in its first step is its own.
            if any(part.state.values()) or not _are_first(call, firsts):
                for p, name in self._optimized(part):
                    for key, first in self._first.get(name, {}).items():
                        state[p][key] = self._held(call, f"optimizer.{name}.{key}", first)
            part.state = state
        return types

    def _firsts(self, call: Call, part: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        """Returns what an optimizer that is new has of the step's arrays, by name."""
        return {
            full: first
            for _, name in self._optimized(part)
            for key, first in self._first.get(name, {}).items()
            if (full := f"optimizer.{name}.{key}") in call.state.names
        }

    def _held(self, call: Call, name: str, first: torch.Tensor) -> Any:
        """Returns what an optimizer has for an array of the step."""
        value, is_kept = first, True
        if name in call.state.names:
            value, is_kept = _read(call, name, first.dtype)
        if _optimizer.is_number(first):
            return _optimizer.as_number(value)
        return value.to(first.device, copy=is_kept)

    def note(self, state: _optimizer.State) -> None:
        """Takes what the optimizers' state is in front of the first step.

        Of an optimizer that has taken steps the step's own values count."""
        new = {
            name
            for part in self._optimizers.parts
            if not any(part.state.values())
            for _, name in self._optimized(part)
        }
        self._first = {
            name: {
                key: _compact(
                    value, name in new or f"optimizer.{name}.{key}" not in self._names
                )
                for key, value in values.items()
            }
            for name, values in state.items()
        }

    def _optimized(
        self, part: torch.optim.Optimizer | None = None
    ) -> Iterator[tuple[torch.Tensor, str]]:
        """Yields the parameters of an optimizer, or of all, and their names."""
        for owner, p in self._optimizers.owned():
            if part is None or owner is part:
                yield p, self._places[id(p)]


class _Work:
    """What is done to one eager step, and seen of it.

    Attributes:
      seconds: what that took.
    """

    def __init__(
        self,
        eager: UserStep,
        call: Call,
        masks: Mapping[str, torch.Tensor],
        shadows: _float64_shadows.Shadows,
        borrowed: Collection[int],
    ) -> None:
        self._user_step, self._call, self._masks = eager, call, masks
        self._shadows, self._borrowed = shadows, borrowed
        self.seconds = 0.0
        self._stepped: set[int] = set()  # optimizers, by identity
        self._unsure: dict[str, Array | None] = {}
        # Of gradients: what has them, its version then, what the step would store.
        self._gradients: dict[str, tuple[torch.Tensor, int, Array]] = {}
        self._sums: dict[str, torch.Tensor] = {}
        held = {n: m.__dict__[key] for n, (m, key) in eager.attributes.items()}
        self._attributes = {n: (t.shape, t.dtype) for n, t in held.items()}

    @contextlib.contextmanager
    def hooks(self) -> Iterator[None]:
        """Masks gradients, and what the optimizer leaves behind."""
        eager = self._user_step
        handles: list[Any] = []
        masked = {}
        for name, p in eager._parameters.items():
            mask = self._masks.get(name)
            if mask is not None:
                mask = masked[id(p)] = mask.to(p.device)
                if p.requires_grad:
                    hook = self._timed(_masked, mask, self._call.is_exact)
                    handles.append(p.register_hook(hook))  # type: ignore[no-untyped-call]
            if _arguments.SUM + name in self._call.state.names and p.requires_grad:
                add = self._timed(self._add, name)
                register: Any = p.register_post_accumulate_grad_hook
                handles.append(register(add))
        for part in eager._optimizers.parts:
            inner = _optimizers.innermost(part)
            before, behind = (self._timed(f, part) for f in (self._look, self._mask))
            handles.append(inner.register_step_pre_hook(before))
            handles.append(inner.register_step_post_hook(behind))
        try:
            with _private.changed_calls(eager._model, functools.partial(_put, masked)):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _timed(self, hook: Callable[..., Any], *first: Any) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return hook(*first, *arguments)
            finally:
                self.seconds += time.perf_counter() - start

        return run

    def _look(self, part: torch.optim.Optimizer, *_: Any) -> None:
        """Notes which gradients are nothing but rounding."""
        for group in part.param_groups:
            if group.get("fused") and not _are_plain_gradients(group):
                group["fused"] = False
        if id(part) in self._stepped:
            with torch.no_grad():
                self._mask_state(part)  # Only another step of one call reads it.
        exact: dict[str, Array] | None = None
        pack = self._call.state.pack
        with torch.no_grad(), _private.undispatched():
            optimized = self._user_step._optimized(part)
            found = {n: p.grad for p, n in optimized if p.grad is not None}
            if self._call.is_exact:
                exact = {n: pack(n, _numbers(self._shadows.of(g))) for n, g in found.items()}
            gradients = {n: pack(n, _numbers(g)) for n, g in found.items()}
            epsilon, noise = self._shadows.epsilon, self._user_step.noise
            self._unsure |= unsure(gradients, exact, epsilon, noise)
            self._gradients |= {
                n: (g, g._version, gradients[n]) for n, g in found.items()
            }

    def _mask(self, part: torch.optim.Optimizer, *_: Any) -> None:
        """Drops of weights what is stored nowhere."""
        self._stepped.add(id(part))
        with torch.no_grad():
            for p, name in self._user_step._optimized(part):
                if name in self._masks:
                    self._drop(p, self._masks[name])

    def _mask_state(self, part: torch.optim.Optimizer) -> None:
        """Drops of an optimizer's state what is stored nowhere."""
        for p, name in self._user_step._optimized(part):
            for key, value in part.state.get(p, {}).items():
                stored = self._call.state.stored(f"optimizer.{name}.{key}")
                if stored is not None and isinstance(value, torch.Tensor):
                    self._drop(value, torch.from_numpy(stored).reshape(value.shape))

    def _drop(self, tensor: torch.Tensor, mask: torch.Tensor) -> None:
        """Makes 0 of what a mask leaves out."""
        if self._call.is_exact or not _is_plain(tensor):
            tensor.mul_(mask.to(tensor.device))
            return
        # NumPy is twice as fast where types differ.
        array = tensor.detach().numpy()
        np.multiply(array, mask.numpy(), out=array)

    def _add(self, name: str, p: torch.Tensor) -> None:
        """Makes the gradient of a micro-batch the mean of all so far."""
        total = from_numpy(self._call.state.read(_arguments.SUM + name), p.dtype).to(p.device)
        count = float(self._call.state.read(_arguments.COUNT)) + 1
        assert p.grad is not None
        self._sums[name] = total.reshape(p.shape) + p.grad
        p.grad = (self._sums[name] / count).to(p.dtype)

    def expected(
        self,
        tensors: Mapping[str, torch.Tensor],
        types: Mapping[str, torch.dtype],
        returned: Any,
    ) -> Iterator[Expected]:
        """Yields what the compiled step has to have after its run."""
        leaves = pytree.tree_leaves(returned)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                name = f"results[{i}]" if i else "loss"
                yield self._expect(name, "result", leaf, leaf.dtype, i)
        # An optimizer that has not stepped, and buffers that were replaced.
        waits = self._call.waits
        now = {**tensors, **dict(self._user_step._model.named_buffers()), **self._left()}
        for name in (n for n in tensors if n in types):
            kind = "parameter" if name in self._user_step._parameters else "buffer"
            is_old = waits and kind == "parameter"
            yield self._expect(name, kind, None if is_old else now[name], types[name])
        for name, total in self._sums.items():
            new = total if waits else torch.zeros_like(total)
            yield self._expect(_arguments.SUM + name, "state", new, total.dtype)
        for part, p in self._user_step._optimizers.owned():
            name = self._user_step._places[id(p)]
            for key, value in part.state.get(p, {}).items():
                full = f"optimizer.{name}.{key}"
                if full in types and value is not None:
                    left = None if waits else torch.as_tensor(value)
                    yield self._expect(full, "state", left, types[full])
        for i, key in self._user_step._counters:
            full = _optimizer.name_of((i, key))
            if full in types:
                number = self._user_step._optimizers.param_groups[i][key]
                left = None if waits else torch.as_tensor(number)
                yield self._expect(full, "state", left, types[full])

    def _left(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that the step left in plain attributes."""
        left = {}
        for name, (module, key) in self._user_step.attributes.items():
            old, new = self._attributes[name], module.__dict__.get(key)
            if isinstance(new, torch.Tensor) and (new.shape, new.dtype) == old:
                left[name] = new
        return left

    def _expect(
        self,
        name: str,
        kind: str,
        value: torch.Tensor | None,
        dtype: torch.dtype,
        place: int = -1,
    ) -> Expected:
        """Returns what is expected of a tensor; without a value, what it was before."""
        owner = name.removeprefix("optimizer.").removeprefix(_arguments.SUM)
        owner = owner.rpartition(".")[0] if name.startswith("optimizer.") else owner
        before = exact = entries = None
        if place < 0:
            before = _numbers(from_numpy(self._call.state.kept(name), dtype))
        if value is None:
            assert before is not None
            numbers = before
        else:
            whole = _numbers(value)
            numbers = self._stored(name, whole, place)
            if self._call.is_exact:
                twin = _numbers(self._shadows.of(value.detach()))
                exact = self._stored(name, twin, place)
            is_borrowed = _place(value) in self._borrowed
            if is_borrowed and np.may_share_memory(numbers, whole):
                numbers = numbers.copy()  # It gets back what it had.
            parameter = self._user_step._parameters.get(owner)
            if parameter is not None and parameter.shape == value.shape:
                entries = self._unsure.get(owner)

        def decode(array: Array) -> Array:
            if array.dtype in (np.float32, np.float64):
                return array.reshape(-1)
            return _numbers(from_numpy(np.ascontiguousarray(array), dtype))

        gradient = None
        if kind == "parameter" and name in self._gradients:
            held, version, gradient = self._gradients[name]
            if held._version != version or gradient.size != numbers.size:
                gradient = None  # It is another one now.

        return Expected(
            name,
            kind,
            numbers,
            exact,
            before,
            entries if entries is not None and entries.size == numbers.size else None,
            epsilon=torch.finfo(dtype).eps if dtype.is_floating_point else 0.0,
            coarsest=self._shadows.epsilon,
            is_marked=owner in self._masks,
            decode=decode,
            gradient=gradient,
            place=place,
        )

    def _stored(self, name: str, numbers: Array, place: int) -> Array:
        """Returns the numbers of a tensor that the step stores: of a result, all."""
        return numbers if place >= 0 else self._call.state.pack(name, numbers)


def _put(
    masks: Mapping[int, torch.Tensor], parameter: torch.Tensor, tensor: torch.Tensor
) -> torch.Tensor:
    """Returns what `functional_call` puts in the place of a parameter, masked."""
    mask = masks.get(id(parameter))
    return tensor if mask is None else tensor * mask


def _masked(mask: torch.Tensor, is_exact: bool, gradient: torch.Tensor) -> torch.Tensor:
    """Returns a gradient, 0 where a mask is."""
    if is_exact or gradient.requires_grad or not _is_plain(gradient):
        return torch.mul(mask, gradient)
    result = torch.empty_like(gradient)
    np.multiply(gradient.detach().numpy(), mask.numpy(), out=result.numpy())
    return result


def _may_fuse(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool:
    """Returns whether one operation may do what PyTorch's optimizer does in many: in the
    same types, in less time."""
    return (
        type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
        and not any(group[key] for key in ("foreach", "capturable", "differentiable"))
        and all(_is_plain(p) for p in group["params"])
    )


def _are_plain_gradients(group: Mapping[str, Any]) -> bool:
    """Returns whether PyTorch's operation, which reads gradients as they lie in memory,
    reads them as their parameters."""
    gradients = (p.grad for p in group["params"])
    return all(g is None or _is_plain(g) for g in gradients)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether NumPy computes with a tensor as it is."""
    return (
        tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and tensor.dtype in (torch.float32, torch.float64)
    )


def _attention_of(
    tensors: Iterable[torch.Tensor],
) -> contextlib.AbstractContextManager[Any]:
    """Lets a device draw the random numbers of attention one by one, as the step does.
    Kernels of processors draw none."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return contextlib.nullcontext()
    return sdpa_kernel(SDPBackend.MATH)


def _compact(value: torch.Tensor, counts: bool) -> torch.Tensor:
    """Returns a tensor in less memory: one of a constant as a view of one number, one
    that does not count without its values."""
    if value.numel() <= 1:
        return value
    if value.is_floating_point() and value.numel():
        least, most = value.aminmax()
        if bool(least == most):
            return least.expand(value.shape)
    return value if counts else value.new_empty(0)


def _are_first(call: Call, firsts: Mapping[str, torch.Tensor]) -> bool:
    """Returns whether the step has the state of a new optimizer."""
    # Numbers tell soonest.
    for name, first in sorted(firsts.items(), key=lambda pair: pair[1].numel()):
        kept = _numbers(from_numpy(call.state.kept(name), first.dtype))
        if not first.numel():
            same = not kept.size
        elif _is_constant(first):
            same = bool((kept == float(first.flatten()[0])).all())
        else:
            same = np.array_equal(kept, call.state.pack(name, _numbers(first)))
        if not same:
            return False
    return True


def _is_constant(tensor: torch.Tensor) -> bool:
    return not any(tensor.stride())


def _read(call: Call, name: str, dtype: torch.dtype) -> tuple[torch.Tensor, bool]:
    """Returns what the step had, and whether it is not to be written."""
    array = call.state.read(name)
    is_kept = np.may_share_memory(array, call.state.kept(name))
    return from_numpy(array, dtype), is_kept


def _place(tensor: torch.Tensor) -> int:
    """Returns where the memory of a tensor lies."""
    return tensor.untyped_storage().data_ptr()


def _numbers(tensor: torch.Tensor) -> Array:
    """Returns numbers in one line, of a type that NumPy has."""
    if _is_plain(tensor):
        found: Array = tensor.detach().numpy().reshape(-1)
        return found
    dtype = torch.float32 if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.dtype
    if not dtype.is_floating_point:
        dtype = torch.float64
    array: Array = tensor.detach().cpu().to(dtype).flatten().numpy()
    return array


def _states() -> dict[str, Any]:
    """Returns the states of generators that no compiled step draws from."""
    kind, numbers, *rest = np.random.get_state(legacy=True)
    return {
        "random": random.getstate(),
        "numpy.random": (kind, np.asarray(numbers).tobytes(), *rest),
    }


@contextlib.contextmanager
def _borrowed(
    tensors: Mapping[str, torch.Tensor],
    parameters: Iterable[torch.Tensor],
    given: Collection[str],
) -> Iterator[Collection[str]]:
    """Puts back what tensors hold, bit for bit, and gradients.

    Yields the names of those whose memory is written: others see it, or no value is
    `given` for them. The rest keep their memory, and get other memory meanwhile.
    """
    shared = {n for n, t in tensors.items() if n not in given or not _private.is_alone(t)}
    saved = [
        (t, t.data, t.detach().clone() if name in shared else None)
        for name, t in tensors.items()
    ]
    gradients = [(p, p.grad) for p in parameters]
    for p, _ in gradients:
        p.grad = None
    try:
        yield shared
    finally:
        for tensor, memory, value in saved:
            if value is not None:
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
