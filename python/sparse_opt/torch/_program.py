# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An exported PyTorch program: its model, its optimizer and its batches.

"""What a compiled step takes from a PyTorch program, and gives back."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from sparse_opt import _description, _device_arrays
from sparse_opt._errors import StepError
from sparse_opt._program import Array, Changes, Export, Limits, Shapes, Source, Write
from sparse_opt._check import Call, Rerun
from sparse_opt.torch import (
    _arguments,
    _capture,
    _function,
    _objects,
    _optimizer,
    _optimizers,
    _upgrade,
    _user_step,
)
from sparse_opt.torch._memory import HELD_AS, NUMPY_OF, from_numpy, to_numpy


class TorchProgram:
    """An exported step with the model and the optimizer that it trains.

    Args:
      export: exports it for another batch; None of what has one shape.
    """

    framework = "PyTorch"

    def __init__(
        self,
        model: torch.nn.Module,
        batch: Any,
        capture: _capture.Capture,
        layers: _upgrade.Layers,
        train_step: _function.TrainStep | None = None,
        export: Callable[[Any], Export] | None = None,
    ) -> None:
        optimizers = capture.optimizers
        self._export = export
        self._model = model
        self._optimizers = optimizers
        self._counters = capture.counters
        self._scheduled = capture.scheduled
        self._moving = [*capture.counters, *capture.scheduled]
        self._structure = _arguments.structure_of(model, optimizers, self._moving)
        self._leaves = _arguments.batch_leaves(batch)
        _, self._tree = _arguments.flatten(batch)
        self.shapes = _shapes_of(self._leaves, [leaf for _, leaf in self._leaves])
        # By name alone: their values are the user's, or as large as the model.
        self._names = dict.fromkeys(a.name for a in capture.arguments)
        self.layers = layers
        layers.use(self._names)
        self._returns = capture.returns
        self._output_types = capture.output_types
        self._bounds = capture.bounds
        self._computed = capture.computed
        self._have_rates = [g["lr"] is not None for g in optimizers.param_groups]
        self._ratios = _optimizer.exported_ratios(optimizers.first)
        self._rates = _optimizer.rates_of(optimizers)
        self._parameters = list(model.parameters())
        self._flags = self._state_of_flags()
        self._objects = _objects.Objects(model, optimizers, self._counters, self.store)
        weakref.finalize(self, _objects.remove, self._objects.hooks)
        self._user_step: _user_step.UserStep | None = None
        if train_step is not None:
            self._user_step = _user_step.UserStep(
                train_step, model, optimizers, self._counters, self._names, capture.draws
            )

    def check(self, runs: bool = True) -> None:
        """Raises `StepError` if the program has changed; its modes matter if it `runs`."""
        now = _arguments.structure_of(self._model, self._optimizers, self._moving)
        for before, after, what in zip(self._structure, now, _WHAT):
            if before != after and (runs or what != _WHAT[1]):
                more = ", with scheduled=[...] for what a schedule changes"
                raise StepError(
                    f"expected {what} as they were exported, but got"
                    f" {_difference(before, after)}: export the step again"
                    f"{more if what == _WHAT[2] else ''}"
                )

    def values(self) -> Iterable[tuple[str, Array]]:
        self._objects.begin()
        tensors: dict[str, torch.Tensor] = {
            **dict(self._model.named_buffers()),
            **_arguments.unsaved_tensors(self._model),
            **_optimizer.counters_of(self._optimizers, self._counters),
            **{n: torch.tensor(v, dtype=torch.float64) for n, v in self._schedule().items()},
        }
        with self.layers.dense():
            tensors |= {name: p.detach() for name, p in self._model.named_parameters()}
            initial = _optimizer.initial_state(self._model, self._optimizers)
        if self._user_step is not None:
            self._user_step.note(initial)
        for name, state in initial.items():
            for key, value in state.items():
                tensors[f"optimizer.{name}.{key}"] = value
        for name in self._names:
            if name in tensors:
                yield name, to_numpy(tensors[name])

    def examples(self) -> Iterable[tuple[str, Array]]:
        for name, leaf in self._leaves:
            if isinstance(leaf, torch.Tensor):
                yield name, to_numpy(leaf)

    def limits_of(self, name: str) -> Limits:
        if bound := self._bounds.get(name):
            return Limits(bound.begin, bound.end, bound.ignored)
        # Only a call of the step knows what it would look up by negative ones.
        is_computed_with = self._computed is not None and name in self._computed.inputs
        return Limits(least=0 if is_computed_with else None)

    def rate(self) -> float | None:
        self._check_cheaply()
        self._optimizers.note_step()
        groups = self._optimizers.param_groups
        for i, (group, had_rate) in enumerate(zip(groups, self._have_rates)):
            if (group["lr"] is not None) != had_rate:
                raise StepError(
                    f"expected group {i} {'with' if had_rate else 'without'} a learning"
                    f" rate, as it was exported, but got {group['lr']}: export the step"
                    " again"
                )
        ratios = _optimizer.ratios_of(self._optimizers.first)
        if ratios is not None and not _same_ratios(ratios, self._ratios):
            raise StepError(
                "expected learning rates in the ratios"
                f" {_shown_ratios(self._ratios)} of the exported groups, but got"
                f" {_shown_ratios(ratios)}: export the step again"
            )
        return _optimizer.rate_of(self._optimizers)

    def _schedule(self) -> dict[str, float]:
        """Returns the options of the next step that are arguments."""
        schedule = _optimizer.schedule_of(self._optimizers, self._scheduled)
        return {name: v for name, v in schedule.items() if name in self._names}

    def _state_of_flags(self) -> tuple[bool, list[bool], list[dict[str, Any]]]:
        """Returns what changes meaning and is quick to read: before each step."""
        options = _optimizer.options_of(self._optimizers, self._moving)
        with _objects.plain():
            trained = [p.requires_grad for p in self._parameters]
        return self._model.training, trained, options

    def _check_cheaply(self) -> None:
        if self._state_of_flags() != self._flags:
            self.check()
            # Options that were written in place look new, but are equal.
            self._flags = self._state_of_flags()

    def inputs(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Iterable[tuple[str, Array]]:
        leaves = self._leaves_of(_batch_of(arguments, named))
        arrays: list[tuple[str, Array]] = [
            (name, np.array(number)) for name, number in self._schedule().items()
        ]
        for (name, exported), leaf in zip(self._leaves, leaves):
            if not isinstance(exported, torch.Tensor):
                if not _is_same(exported, leaf):
                    raise StepError(
                        f"expected '{name}' to be {exported!r}, but got {leaf!r}: a"
                        " value that is no tensor is a constant of the step, export it"
                        " again"
                    )
                continue
            array = _array(name, leaf, exported)
            bound = self._bounds.get(name)
            index = None
            if bound is not None:
                # Of a tensor on a GPU this waits for a copy.
                on_gpu = isinstance(leaf, torch.Tensor) and leaf.is_cuda
                index = bound.first_outside(
                    to_numpy(leaf.detach().cpu()) if on_gpu else array
                )
            if index is not None:
                raise StepError(f"expected {bound} in '{name}', but got {index}")
            if name in self._names:
                arrays.append((name, array))
        if self._computed is not None:
            tensors = {
                name: torch.as_tensor(leaf)
                for (name, exported), leaf in zip(self._leaves, leaves)
                if isinstance(exported, torch.Tensor)
            }
            if wrong := self._computed.first_outside(tensors):
                raise StepError(wrong)
        return arrays

    def shapes_of(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Shapes:
        batch = _batch_of(arguments, named)
        if self._export is None:
            return self.shapes
        return _shapes_of(self._leaves, self._leaves_of(batch))

    def call_of(self, batch: Any) -> Sequence[Any]:
        return (batch,)

    def again(self, arguments: Sequence[Any]) -> Export:
        assert self._export is not None
        leaves = [
            _example(name, leaf, exported) if isinstance(exported, torch.Tensor) else leaf
            for (name, exported), leaf in zip(self._leaves, self._leaves_of(arguments[0]))
        ]
        batch = pytree.tree_unflatten(leaves, self._tree)
        with self._objects.paused(), _optimizer.with_rates(self._optimizers, self._rates):
            export = self._export(batch)
        assert isinstance(export.program, TorchProgram)
        # Steps of all shapes have the same weights.
        _objects.remove(export.program._objects.hooks)
        export.program._objects = self._objects
        return export

    def _leaves_of(self, batch: Any) -> list[Any]:
        """Returns the parts of a batch in the order of the exported one."""
        leaves, tree = _arguments.flatten(batch)
        if tree != self._tree:
            # Another container or another order is the same batch.
            given = dict(_arguments.batch_leaves(batch))
            leaves = [given.pop(name, None) for name, _ in self._leaves]
        if tree != self._tree and (given or len(leaves) != tree.num_leaves):
            raise StepError(
                f"expected a batch of structure {_shown(self._tree)}, but got"
                f" {_shown(tree)}"
            )
        return leaves

    def rerun(self, call: Call) -> Rerun | None:
        """Runs the user's own step on what the compiled one has."""
        if self._user_step is None:
            return None
        leaves = [
            _own(name, leaf, exported) if isinstance(exported, torch.Tensor) else leaf
            for (name, exported), leaf in zip(self._leaves, self._leaves_of(call.batch[0]))
        ]
        batch = pytree.tree_unflatten(leaves, self._tree)
        # Its weights are those of the step now.
        with self._objects.paused(), self.layers.dense():
            return self._user_step.run(call, batch)

    def forget(self) -> None:
        return None

    def outputs(self, arrays: Sequence[Array]) -> Any:
        tensors = [
            from_numpy(a.copy(), dtype) for a, dtype in zip(arrays, self._output_types)
        ]
        return pytree.tree_unflatten(tensors, self._returns)

    def state(self, step: Source) -> dict[str, Any]:
        """Returns the model's `state_dict`, made of the step's values: its hooks may give
        them other names and forms."""
        values = dict(self._values_of(self._held(), step))
        taken = {value.data_ptr() for value in values.values()}
        with self._objects.paused(), self._holding(values):
            return {
                name: _own_state(value, taken)
                for name, value in self._model.state_dict().items()
            }

    def _held(self) -> dict[str, torch.Tensor]:
        """Returns the parameters and buffers that the step has, by their first names."""
        named = (*self._model.named_parameters(), *self._model.named_buffers())
        held = self._names.keys() | self.layers.buffers
        return {name: tensor for name, tensor in named if name in held}

    def _values_of(
        self, tensors: Mapping[str, torch.Tensor], step: Source
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields what the step has for tensors of the model, by their names."""
        for name, tensor in tensors.items():
            if name not in self._names:
                continue
            value = from_numpy(step._current(name), tensor.dtype).to(tensor.device)
            if name in self.layers.marks:
                yield from self.layers.of_step(name, value, step)
            else:
                yield name, value

    @contextlib.contextmanager
    def _holding(self, values: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Gives the model other values for a while."""
        memory = {name: tensor.data for name, tensor in self._held().items()}
        held = self._held()
        try:
            for name, value in values.items():
                held[name].data = value
            yield
        finally:
            for name, tensor in held.items():
                tensor.data = memory[name]

    def load_state(self, state: Any, write: Write) -> None:
        if not isinstance(state, Mapping):
            raise StepError(
                f"expected a state_dict of the exported model, but got a"
                f" {type(state).__name__}"
            )
        with self._objects.paused():
            expected = self._model.state_dict(keep_vars=True)
        if set(state) != set(expected):
            odd = min(set(state) ^ set(expected))
            got = "one too many" if odd in state else "none"
            raise StepError(
                f"expected a state_dict of the exported model, but got {got}: '{odd}'"
            )
        held = self._held()
        unsaved = _arguments.unsaved_tensors(self._model)
        if any(expected.get(n) is not t for n, t in held.items() if n not in unsaved):
            state = self._renamed(state)
        _require_ties(state, expected)
        for name, value in state.items():
            if name in self.layers.marks:
                dense, blocks = self.layers.of_state(name, state)
                write(name, to_numpy(dense), blocks)
            elif name in self._names and name in held:
                is_tensor = isinstance(value, torch.Tensor)
                plain = _description.plain(name, value)
                write(name, to_numpy(value) if is_tensor else np.asarray(plain))

    def _renamed(self, state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Returns what a model whose hooks give tensors other names makes of a state."""
        values = {name: tensor.detach().clone() for name, tensor in self._held().items()}
        given = {
            name: torch.as_tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in state.items()
        }
        with self._objects.paused(), self._holding(values):
            try:
                self._model.load_state_dict(given)
            except (RuntimeError, TypeError) as error:
                raise StepError(
                    "expected a state_dict that the exported model takes, but got"
                    f" '{str(error).splitlines()[-1].strip()}'"
                ) from error
            return {name: tensor.detach() for name, tensor in self._held().items()}

    def store(self, step: Source) -> None:
        """Copies weights and optimizer state into the user's objects."""
        # Tensors are plain for other threads as soon as they have their values.
        with _objects.plain(), torch.no_grad():
            self.check(runs=False)
            tensors = {**self._held(), **_arguments.unsaved_tensors(self._model)}
            for name, new in self._values_of(tensors, step):
                tensors[name].copy_(new)
        self._objects.end()
        names = _optimizers.parameter_names(self._model, self._optimizers)
        initial = _optimizer.initial_state(self._model, self._optimizers)
        for part, p in self._optimizers.owned():
            name = names[id(p)]
            for key, before in initial.get(name, {}).items():
                full = f"optimizer.{name}.{key}"
                value: Any = before
                if full in self._names:
                    value = from_numpy(step._current(full), before.dtype)
                    value = self.layers.state_of_step(name, value, step)
                held = part.state[p].get(key)
                if _optimizer.is_number(before):
                    value = _optimizer.as_number(value)
                elif isinstance(held, torch.Tensor) and _is_like(held, value):
                    with torch.no_grad():
                        held.copy_(value)
                    continue
                part.state[p][key] = value
        groups = self._optimizers.param_groups
        for i, key in self._counters:
            name = _optimizer.name_of((i, key))
            if name in self._names:
                number = _optimizer.as_number(torch.from_numpy(step._current(name)))
                groups[i][key] = number
        self._objects.stored()

    def changes(self, of: str | None = None) -> Changes:
        if of is not None:
            own = self.layers.buffers if of in self.layers.marks else ()
            if not self._objects.has_written({of, *own}):
                return {}, {}
        written = self._objects.written()
        if not written:
            return {}, {}
        with self._objects.paused():
            return self._changes(written)

    def _changes(self, written: Set[str]) -> Changes:
        names = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        of_model = {name for name in names if name in written}
        of_layers = of_model & (self.layers.marks.keys() | self.layers.buffers)
        values: dict[str, Array] = {}
        patterns: dict[str, tuple[Array, Array]] = {}
        if of_layers:
            state = self._model.state_dict()
            for name in self.layers.marks:
                dense, patterns[name] = self.layers.of_state(name, state)
                values[name] = to_numpy(dense)
        for name, value in self.values():
            is_of_all = name.startswith("optimizer.") and _objects.ALL_STATE in written
            if (is_of_all or name in written) and name not in values:
                values[name] = value
        self._objects.take()
        return values, patterns

    def outdated(self, step: Source) -> None:
        self._objects.wait(step)


class TorchFunction(TorchProgram):
    """An exported function of a model: it has no optimizer, and no mode to keep."""

    def check(self, runs: bool = True) -> None:
        """The model may train meanwhile: the function has its own mode."""

    def rate(self) -> float | None:
        return None

    def changes(self, of: str | None = None) -> Changes:
        return {}, {}

    def outdated(self, step: Source) -> None:
        """The step that it is bound to says so itself."""


def _require_ties(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises `StepError` if names of one tensor of the model have several values."""
    first: dict[int, str] = {}
    for name in state:
        known = first.setdefault(id(expected.get(name, name)), name)
        if known == name:
            continue
        value, other = (torch.as_tensor(state[n]).double() for n in (known, name))
        if not torch.equal(value, other):
            raise StepError(
                f"expected one value of '{known}' and '{name}', which the model ties, but"
                " got two: give both the one that is to count"
            )


def _is_like(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.shape == other.shape and tensor.dtype == other.dtype


def _own_state(value: Any, taken: Collection[int]) -> Any:
    """Returns what a state_dict has as the caller's own."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    is_ours = value.untyped_storage().data_ptr() in taken
    return value.detach() if is_ours else value.detach().clone()


def _array(name: str, leaf: Any, like: torch.Tensor) -> Any:
    """Returns the memory of a part of a batch, which may be that of a GPU."""
    if not isinstance(leaf, torch.Tensor):
        array = np.asarray(_description.plain(name, leaf))
        # As the memory of a tensor of that type.
        held = HELD_AS.get(like.dtype)
        is_like = held is not None and array.dtype.name == _type(like)
        return array.view(NUMPY_OF[held]) if held and is_like else array
    if leaf.dtype != like.dtype:
        raise StepError(
            f"expected '{name}' of type {_type(like)}, but got {_type(leaf)}: convert"
            " it with .to()"
        )
    if leaf.is_cuda:
        return _device_arrays.as_array(leaf.detach())
    try:
        return to_numpy(leaf)
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise StepError(
            f"expected '{name}' to be a dense tensor with values, but got"
            f" '{str(error).splitlines()[0]}'"
        ) from error


def _batch_of(arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    if len(arguments) != 1 or named:
        raise StepError(
            f"expected one batch, but got {len(arguments)} arguments and"
            f" {len(named)} named ones"
        )
    return arguments[0]


def _shapes_of(exported: Sequence[tuple[str, Any]], leaves: Sequence[Any]) -> Shapes:
    return tuple(
        (name, tuple(leaf.shape if hasattr(leaf, "shape") else np.shape(leaf)))
        for (name, like), leaf in zip(exported, leaves)
        if isinstance(like, torch.Tensor)
    )


def _example(name: str, leaf: Any, like: torch.Tensor) -> torch.Tensor:
    """Returns a part of a batch of another shape, as an export takes it."""
    shape = leaf.shape if hasattr(leaf, "shape") else np.shape(leaf)
    _description.require_rank(name, tuple(shape), like.dim())
    array = _array(name, leaf, like)
    if not isinstance(leaf, torch.Tensor):
        _description.require(name, tuple(shape), to_numpy(like).dtype, array)
    return _own(name, leaf, like)


def _own(name: str, leaf: Any, like: torch.Tensor) -> torch.Tensor:
    """Returns a copy of a part of a batch, where the exported one was."""
    with torch.inference_mode(False):
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(like.device, copy=True)
        array = np.array(_array(name, leaf, like))
        return from_numpy(array, like.dtype).to(like.device)


def _is_same(exported: Any, leaf: Any) -> bool:
    """Returns whether a part of a batch that is no tensor is the exported one."""
    try:
        return bool(exported == leaf)
    except (RuntimeError, ValueError):  # an array, which is true or false by element
        return False


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


_WHAT = ("parameters and buffers", "modules in training mode", "optimizer options")


def _difference(before: Sequence[Any], after: Sequence[Any]) -> str:
    """Returns what differs first."""
    for old, new in zip(before, after):
        if old != new:
            if isinstance(old, dict):
                key = min(k for k in {*old, *new} if old.get(k) != new.get(k))
                return f"{key} {new.get(key)} instead of {old.get(key)}"
            return f"{new} instead of {old}"
    return f"{len(after)} of them instead of {len(before)}"


def _shown(tree: Any) -> str:
    """Returns a structure without its leaves' names, for people."""
    text = str(pytree.tree_unflatten(["*"] * tree.num_leaves, tree)).replace("'*'", "*")
    return text if len(text) <= 200 else f"{text[:200]}..."


def _same_ratios(ratios: Sequence[float], exported: Sequence[float]) -> bool:
    """Returns whether they differ by no more than rounding."""
    return all(map(functools.partial(math.isclose, rel_tol=1e-6), ratios, exported))


def _shown_ratios(ratios: Sequence[float]) -> list[float]:
    return [float(f"{ratio:.9g}") for ratio in ratios]
