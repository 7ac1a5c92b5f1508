# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An optimizer's state: created without a step, and swapped for traced tensors.

"""The state of `torch.optim` optimizers, by the names of their parameters."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from sparse_opt import _inits, _source
from sparse_opt._errors import ExportError, StepError
from sparse_opt.torch import _effects, _memory, _private, _updates, _upgrade
from sparse_opt.torch._optimizers import Optimizers, parameter_names

# State by the name of a parameter and the key of the optimizer.
State = dict[str, dict[str, torch.Tensor]]
# A number that an optimizer counts in a group: the group's place among those of all
# optimizers, and the key.
Counter = tuple[int, str]
# An option that changes between steps, a number or a tuple of them: likewise.
Scheduled = tuple[int, str]


def rate_of(optimizers: Optimizers) -> float:
    """Returns the learning rate of the first group; those of the other groups of its
    optimizer are ratios of it."""
    return _rate(optimizers.first.param_groups[0])


def _rate(group: Mapping[str, Any]) -> float:
    """Returns a group's learning rate; that of an optimizer which makes its own is 0."""
    return 0.0 if group["lr"] is None else float(group["lr"])


def rates_of(optimizers: Optimizers) -> list[float | None]:
    """Returns the learning rates of all groups."""
    groups = optimizers.param_groups
    return [None if g["lr"] is None else float(g["lr"]) for g in groups]


@contextlib.contextmanager
def with_rates(optimizers: Optimizers, rates: Sequence[float | None]) -> Iterator[None]:
    """Has groups with other learning rates for a while."""
    groups = optimizers.param_groups
    held = [group["lr"] for group in groups]
    try:
        for group, rate in zip(groups, rates):
            if isinstance(group["lr"], torch.Tensor) and rate is not None:
                group["lr"] = torch.full_like(group["lr"], rate)
            else:
                group["lr"] = rate
        yield
    finally:
        for group, rate in zip(groups, held):
            group["lr"] = rate


def ratios_of(optimizer: torch.optim.Optimizer) -> list[float] | None:
    """Returns the groups' learning rates as ratios of the first one.

    A warm-up from 0 has the ratios of the rates that its scheduler began with.
    None: all rates are 0, and there is no scheduler.
    """
    groups = optimizer.param_groups
    rates = [_rate(g) for g in groups]
    if not any(rates):
        rates = [float(g.get("initial_lr") or 0.0) for g in groups]
    if not any(rates):
        is_one = len(rates) == 1 or all(g["lr"] is None for g in groups)
        return [1.0] * len(rates) if is_one else None
    return [rate / rates[0] if rates[0] else math.inf for rate in rates]


def exported_ratios(optimizer: torch.optim.Optimizer) -> list[float]:
    """Returns the ratios that a step takes as constants."""
    ratios = ratios_of(optimizer)
    if ratios is None or not all(map(math.isfinite, ratios)):
        rates = [_rate(g) for g in optimizer.param_groups]
        raise ExportError(
            "expected a first group with a learning rate above 0, of which the other"
            f" groups' are multiples, but got the rates {rates}: export the step with"
            " those of the first step that has one"
        )
    return ratios


def options_of(
    optimizers: Optimizers, moving: Collection[Counter | Scheduled]
) -> list[dict[str, Any]]:
    """Returns what a step takes from the groups as constants but for the rates."""
    return [
        {
            k: v
            for k, v in group.items()
            if k not in NOT_OPTIONS and (i, k) not in moving
        }
        for i, group in enumerate(optimizers.param_groups)
    ]


# A scheduler writes `initial_lr`; the rest says how a step runs, not what it is.
NOT_OPTIONS = {
    "params", "param_names", "lr", "initial_lr", "foreach", "fused", "capturable",
}  # fmt: skip


def initial_state(model: torch.nn.Module, optimizers: Optimizers) -> State:
    """Returns the optimizers' tensors as the next step will find them.

    Optimizers create their state in their first step. A copy of that step runs
    with gradients of zero; what it first assigns is the initial state. The
    update functions of `torch.optim` are left out of it, for they create
    momentum from a gradient. Nothing of the user's is changed. State of layers
    whose weights are dense now is dense, too.
    """
    names = parameter_names(model, optimizers)
    result: State = {}
    for part in optimizers.parts:
        if isinstance(part, torch.optim.SparseAdam):
            raise ExportError(
                f"expected an optimizer that takes dense gradients, but got"
                f" {type(part).__name__}: use torch.optim.Adam, and leave sparse=True out"
            )
        result.update(_initial_state(part, names))
    return _upgrade.dense_state(model, optimizers, result)


def first_rules(model: torch.nn.Module, optimizers: Optimizers) -> Iterator[tuple[str, str]]:
    """Yields how state begins that optimizers which have taken steps began above zero: so do
    new blocks, whatever it is now."""
    names = parameter_names(model, optimizers)
    for part, p in optimizers.owned():
        for key in part.state.get(p, {}):
            if first := _updates.first_value(part, p, key):
                rule = _inits.of(torch.tensor([first], dtype=torch.float64))
                if rule is not None:
                    yield f"optimizer.{names[id(p)]}.{key}", rule


def _initial_state(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> State:
    held = {p: values for p, values in optimizer.state.items() if values}
    recorded: dict[Any, Mapping[str, Any]] = dict(held)
    trained = (p for g in optimizer.param_groups for p in g["params"] if p.requires_grad)
    first: dict[Any, Mapping[str, Any]] = {}
    if not all(p in held for p in trained):
        # Those that have state have taken steps; others begin.
        first = _first_state(optimizer)
        recorded = {**first, **held}
    result: State = {}
    for p, values in recorded.items():
        tensors = {}
        for key, value in values.items():
            if value is None:  # momentum of SGD before its first step
                _require_no_dampening(optimizer, p, names[id(p)])
                value = _memory.zeros_like(p)
            if isinstance(value, torch.Tensor):
                is_new = p in first and p not in held and _is_new(value)
                tensors[key] = value if is_new else value.detach().clone()
            elif _counts(value):
                tensors[key] = tensor_of(value)
        if tensors:
            result[names[id(p)]] = tensors
    return result


def _is_new(value: torch.Tensor) -> bool:
    """Returns whether the state that a first step has made is large and nobody else's: a
    copy would take longer than to make it."""
    is_large = value.numel() >= _memory.LARGE and not value.requires_grad
    return is_large and _private.is_alone(value)


def _require_no_dampening(
    optimizer: torch.optim.Optimizer, parameter: torch.Tensor, name: str
) -> None:
    """Raises `ExportError` if momentum begins with more of a gradient than it takes later."""
    for group in optimizer.param_groups:
        is_in = any(p is parameter for p in group["params"])
        if is_in and parameter.requires_grad and group.get("dampening"):
            raise ExportError(
                "expected a momentum that takes as much of each gradient, but got dampening"
                f" {group['dampening']} before the first step of '{name}', which takes all"
                " of it: run the step once before the export"
            )


def _first_state(optimizer: torch.optim.Optimizer) -> dict[Any, Mapping[str, Any]]:
    """Returns the state that an optimizer's first step would find."""
    with (
        _effects.undone(optimizer),
        _effects.known_optimizers([optimizer]),
        _without_updates(optimizer) as is_own,
        _unchanged(optimizer, writes=not is_own),
    ):
        state: defaultdict[Any, Any] = defaultdict(dict if is_own else _FirstValues)
        optimizer.state = state
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = _memory.zeros_like(p) if p.requires_grad else None
        try:
            with _Zeros():
                optimizer.step()
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(_explain(optimizer, error)) from error
        return {
            p: values.first if isinstance(values, _FirstValues) else values
            for p, values in state.items()
        }


def _counts(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def tensor_of(number: float) -> torch.Tensor:
    """Returns what stands for a number: beside a tensor of another type it counts as
    one still."""
    tensor = torch.tensor(float(number), dtype=torch.float64)
    setattr(tensor, "number", type(number))
    return tensor


def counters_of(
    optimizers: Optimizers, counters: Iterable[Counter]
) -> dict[str, torch.Tensor]:
    """Returns the values of counters by the names of their arguments."""
    groups = optimizers.param_groups
    return {name_of(c): tensor_of(groups[c[0]][c[1]]) for c in counters}


def name_of(counter: Counter | Scheduled) -> str:
    return "optimizer.groups.{}.{}".format(*counter)


def traced_schedule(
    optimizers: Optimizers,
    scheduled: Iterable[Scheduled],
    values: Mapping[str, torch.Tensor],
) -> dict[Scheduled, Any]:
    """Returns what holds the arguments of options in the groups."""
    held: dict[Scheduled, Any] = {}
    groups = optimizers.param_groups
    for i, key in scheduled:
        value = _option(groups[i], key)
        parts = [values[name] for name in _names_of((i, key), value)]
        held[i, key] = tuple(parts) if isinstance(value, tuple) else parts[0]
    return held


def counted(
    optimizers: Optimizers, before: Sequence[Mapping[str, Any]]
) -> list[Counter]:
    """Returns the numbers in the groups that are not what they were."""
    return [
        (i, key)
        for i, (old, new) in enumerate(zip(before, optimizers.param_groups))
        for key, value in old.items()
        if _counts(value)
        and (
            new.get(key) != value
            if _counts(new.get(key))
            else isinstance(new.get(key), torch.Tensor) and not new[key].dim()
        )
    ]


def scheduled_of(optimizers: Optimizers, keys: Sequence[str]) -> list[Scheduled]:
    """Returns the options that change between steps: those of these keys, the momentum
    that a scheduler which is there moves, and the rates of all optimizers but the first.

    One of 0 stays a constant, as PyTorch leaves out what it does; but for the decay of
    weights and for rates, of which 0 is a number like others.
    """
    for key in keys:
        groups = [g for g in optimizers.param_groups if _are_numbers(g.get(key))]
        if not groups or key in ("lr", "initial_lr"):
            known = {k for o in optimizers.parts for k, v in o.defaults.items() if _are_numbers(v)}
            names = ", ".join(dict.fromkeys(type(o).__name__ for o in optimizers.parts))
            raise ExportError(
                f"expected options of {names} that are numbers in scheduled, of"
                f" {', '.join(sorted(known - {'lr'})) or 'none'}, but got '{key}'"
            )
    found = []
    others = set(optimizers.others)
    for i, group in enumerate(optimizers.param_groups):
        moved = list(keys)
        if "base_momentum" in group:  # of OneCycleLR or CyclicLR
            moved.append("betas" if "betas" in group else "momentum")
        if i in others and group["lr"] is not None:
            moved.append("lr")
        for key in dict.fromkeys(moved):
            value = _option(group, key)
            if _are_numbers(value) and (key in _ZEROS or _all(value)):
                found.append((i, key))
    return found


# Options whose 0 does to numbers what leaving it out does, or what any number does.
_ZEROS = {"weight_decay", "lr"}


def _option(group: Mapping[str, Any], key: str) -> Any:
    """Returns an option, and a rate that is a tensor as a number."""
    value = group.get(key)
    is_rate = key == "lr" and isinstance(value, torch.Tensor)
    return float(value) if is_rate else value  # type: ignore[arg-type]


def _are_numbers(value: Any) -> bool:
    return all(map(_counts, value)) if isinstance(value, tuple) else _counts(value)


def _all(value: Any) -> bool:
    return all(value) if isinstance(value, tuple) else bool(value)


def schedule_of(
    optimizers: Optimizers, scheduled: Iterable[Scheduled]
) -> dict[str, float]:
    """Returns the numbers of options that change, by the names of their arguments."""
    numbers = {}
    groups = optimizers.param_groups
    for i, key in scheduled:
        value = _option(groups[i], key)
        if not _are_numbers(value) or not (key in _ZEROS or _all(value)):
            raise StepError(
                f"expected '{key}' of group {i} to be a number other than 0, as it was"
                f" exported, but got {value}: export the step again"
            )
        parts = value if isinstance(value, tuple) else (value,)
        numbers.update({n: float(v) for n, v in zip(_names_of((i, key), value), parts)})
    return numbers


def _names_of(scheduled: Scheduled, value: Any) -> list[str]:
    name = name_of(scheduled)
    if not isinstance(value, tuple):
        return [name]
    return [f"{name}.{place}" for place in range(len(value))]


def is_number(value: torch.Tensor) -> bool:
    """Returns whether a tensor of the state is a number in the optimizer's own."""
    return hasattr(value, "number")


def as_number(value: torch.Tensor) -> int | float:
    """Returns the number that the optimizer goes on with."""
    number = float(value)
    return int(number) if number.is_integer() else number


# What PyTorch's optimizers count for a parameter, whatever its shape is.
_COUNTS = frozenset(("eta", "mu", "mu_product", "step"))


def as_read(
    optimizer: torch.optim.Optimizer, p: torch.Tensor, key: str, value: torch.Tensor
) -> torch.Tensor:
    """Returns a tensor of the state in the type that the optimizer computes with.

    PyTorch's own read a count as a number of Python's: 1 - 0.999**step has half of the
    digits of f32, which an update would not have.
    """
    is_number = not value.dim() and value.dtype == torch.float32
    is_count = is_number and (p.dim() > 0 or key in _COUNTS)
    return value.double() if is_count and is_own(optimizer) else value


def is_own(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether an optimizer is PyTorch's own."""
    return type(optimizer).__module__.startswith("torch.optim")


def _explain(optimizer: torch.optim.Optimizer, error: Exception) -> str:
    """Returns what a first step that failed asks for."""
    name = type(optimizer).__name__
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        return (
            "expected an optimizer that steps without a closure, but got"
            f" {name}: use one that takes gradients alone, as torch.optim.AdamW"
        )
    first = f"{type(error).__name__}: {error}".splitlines()[0]
    return (
        f"expected {name} to make its state in a step with gradients of zero, but got"
        f" '{first}'{_source.line_of_error(error.__traceback__)}: run the step once"
        " before the export"
    )


class _FirstValues(dict[str, Any]):
    """A parameter's state that remembers what was first assigned to each key."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self.first:
            is_tensor = isinstance(value, torch.Tensor)
            self.first[key] = value.detach().clone() if is_tensor else value
        super().__setitem__(key, value)


class _Zeros(TorchFunctionMode):
    """Makes the zeros that state begins with in memory that nobody has touched."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        format = kwargs.get("memory_format", torch.preserve_format)
        is_plain = kwargs.keys() <= {"memory_format"} and format is torch.preserve_format
        if function is torch.zeros_like and len(args) == 1 and is_plain:
            return _memory.zeros_like(args[0])
        return function(*args, **kwargs)


@contextlib.contextmanager
def _unchanged(optimizer: torch.optim.Optimizer, writes: bool) -> Iterator[None]:
    """Puts gradients and state back as they were, and what a step writes."""
    state = optimizer.state
    params = [p for group in optimizer.param_groups for p in group["params"]]
    before = [(p.detach().clone() if writes else None, p.grad) for p in params]
    options = [dict(group) for group in optimizer.param_groups]
    try:
        yield
    finally:
        optimizer.state = state
        with torch.no_grad():
            for p, (value, grad) in zip(params, before):
                if value is not None:
                    p.copy_(value)
                p.grad = grad
        for group, old in zip(optimizer.param_groups, options):
            group.clear()
            group.update(old)


@contextlib.contextmanager
def _without_updates(optimizer: torch.optim.Optimizer) -> Iterator[bool]:
    """Yields whether the optimizer is PyTorch's own, its update replaced by none."""
    found = []
    for cls in type(optimizer).__mro__:
        module = sys.modules[cls.__module__]
        name = cls.__name__.lower()
        if cls.__module__.startswith("torch.optim.") and callable(
            getattr(module, name, None)
        ):
            found.append((module, name, getattr(module, name)))
        elif cls.__module__ == "torch.optim":
            # Public names are re-exported: the function lies in their file.
            place = sys.modules.get(f"torch.optim.{name}") or sys.modules.get(
                f"torch.optim._{name}"
            )
            if place is not None and callable(getattr(place, name, None)):
                found.append((place, name, getattr(place, name)))
    for module, name, _ in found:
        setattr(module, name, lambda *args, **options: None)
    try:
        yield bool(found)
    finally:
        for module, name, function in found:
            setattr(module, name, function)


@contextlib.contextmanager
def swapped(
    optimizers: Optimizers,
    names: Mapping[int, str],
    params: Mapping[str, torch.Tensor],
    state: Mapping[str, Mapping[str, torch.Tensor]],
    rate: torch.Tensor,
    counters: Mapping[Counter, torch.Tensor],
    scheduled: Mapping[Scheduled, Any],
) -> Iterator[None]:
    """Puts traced tensors into groups and state of optimizers for a while."""
    groups = optimizers.param_groups
    before = [dict(group) for group in groups]
    state_before = [part.state for part in optimizers.parts]
    ratios = exported_ratios(optimizers.first)
    for part in optimizers.parts:
        part.state = defaultdict(dict)
        for group in part.param_groups:
            own, group["params"] = group["params"], [params[names[id(p)]] for p in group["params"]]
            for p, user_p in zip(group["params"], own):
                tensors = state.get(names[id(user_p)])
                if tensors:
                    part.state[p] = dict(tensors)
            group.update({k: v for k, v in _traced_options(part) if k in group})
    for group, ratio in zip(optimizers.first.param_groups, ratios):
        if group["lr"] is not None:
            group["lr"] = rate if ratio == 1.0 else rate * ratio
    for (i, key), number in {**counters, **scheduled}.items():
        groups[i][key] = number
    try:
        yield
    finally:
        for part, held in zip(optimizers.parts, state_before):
            part.state = held
        for group, old in zip(groups, before):
            group.clear()
            group.update(old)


def _traced_options(optimizer: torch.optim.Optimizer) -> Iterable[tuple[str, bool]]:
    """Yields what updates one tensor at a time, with a step count that is one, too."""
    yield "foreach", False
    yield "fused", False
    # In a trace the count is a tensor either way. The form of Adam that is capturable
    # divides by the rate: at a rate of 0, as warm-ups have first, 0 by 0.
    yield "capturable", not isinstance(optimizer, torch.optim.Adam)


class TensorFactors(TorchFunctionMode):
    """Lets a tensor be the `alpha` or the `value` of an update.

    PyTorch reads it as a number, which a traced learning rate does not have.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name in ("lerp", "lerp_"):
            weight = kwargs.get("weight", args[-1])
            if isinstance(weight, torch.Tensor) and not weight.dim():
                weight = weight.to(args[0].dtype)  # as a number would count
                if "weight" in kwargs:
                    kwargs["weight"] = weight
                else:
                    args = (*args[:-1], weight)
        if isinstance(kwargs.get("alpha"), torch.Tensor) and name in _SCALED_SUMS:
            x, y = args
            return getattr(x, name)(y * kwargs["alpha"])
        if isinstance(kwargs.get("value"), torch.Tensor) and name in _SCALED_PRODUCTS:
            x, y, z = args
            y = kwargs["value"] * y
            product = y * z if "mul" in name else y / z
            return x.add_(product) if name.endswith("_") else x.add(product)
        return function(*args, **kwargs)


_SCALED_SUMS = {"add", "add_", "sub", "sub_"}
_SCALED_PRODUCTS = {"addcmul", "addcmul_", "addcdiv", "addcdiv_"}

