# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An exported JAX program: its state and its batches.

"""What a compiled step takes from a JAX program, and gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import tree_util

from sparse_opt import _given
from sparse_opt._check import Call, Rerun, Unchecked
from sparse_opt._errors import StepError
from sparse_opt._program import Array, Changes, Export, Layers, Limits, Shapes, Source, Write
from sparse_opt.jax import _checks
from sparse_opt.jax._arrays import alive, example, memory, shown

if TYPE_CHECKING:
    from sparse_opt.jax._user_step import UserStep


class JaxProgram:
    """An exported step with the structure of its state and of its batches.

    Args:
      step: what was exported; None of a function that trains nothing.
      roles: the roles of its arguments, by name.
      export: exports it for other arguments; None of what has one shape.
    """

    framework = "JAX"
    layers: Layers | None = None
    _user_step: UserStep | None = None

    def __init__(
        self,
        args: Sequence[Any],
        carried: int,
        roots: Sequence[str],
        results: Any,
        step: Callable[..., Any] | None = None,
        roles: Mapping[str, str] | None = None,
        export: Callable[..., Export] | None = None,
    ) -> None:
        self._step, self._roles, self._export = step, dict(roles or {}), export
        self._carried = tuple(args[:carried])
        self._batch = tuple(args[carried:])
        self._state_roots, self._batch_roots = roots[:carried], roots[carried:]
        self._state_names = _checks.names_of(self._carried, self._state_roots)
        self._batch_names = _checks.names_of(self._batch, self._batch_roots)
        self._outputs = tuple(results[carried:])
        self.shapes = self._shapes_of(self._batch)

    def check(self) -> None:
        """A function of its arguments cannot change."""

    def values(self) -> Iterable[tuple[str, Array]]:
        leaves = tree_util.tree_leaves(self._carried)
        for name, leaf in zip(self._state_names, leaves):
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                yield name, memory(name, leaf, leaf)

    def examples(self) -> Iterable[tuple[str, Array]]:
        for name, leaf in zip(self._batch_names, tree_util.tree_leaves(self._batch)):
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                yield name, memory(name, leaf, leaf)

    def limits_of(self, name: str) -> Limits:
        return Limits()

    def rate(self) -> float | None:
        return None

    def inputs(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Iterable[tuple[str, Array]]:
        self._require_structure(arguments, named)
        leaves = tree_util.tree_leaves(tuple(arguments))
        exported = tree_util.tree_leaves(self._batch)
        return [
            (name, memory(name, leaf, like))
            for name, leaf, like in zip(self._batch_names, leaves, exported)
        ]

    def _require_structure(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        other = _checks.difference(self._batch, arguments, self._batch_roots)
        if named or other:
            raise StepError(
                "expected what the exported step takes behind its state"
                f" ({', '.join(self._batch_roots) or 'nothing'}), but got"
                f" {f'{min(named)!r} by name' if named else other}"
            )

    def _shapes_of(self, arguments: Sequence[Any]) -> Shapes:
        leaves = tree_util.tree_leaves(tuple(arguments))
        return tuple(zip(self._batch_names, (tuple(np.shape(leaf)) for leaf in leaves)))

    def shapes_of(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Shapes:
        self._require_structure(arguments, named)
        return self.shapes if self._export is None else self._shapes_of(arguments)

    def call_of(self, batch: Any) -> Sequence[Any]:
        if len(self._batch) == 1:
            return (batch,)
        names = ", ".join(self._batch_roots)
        return tuple(_given.listed(f"a tuple of {names} in shapes=", batch))

    def again(self, arguments: Sequence[Any]) -> Export:
        assert self._export is not None
        leaves = [
            example(name, leaf, like)
            for name, leaf, like in zip(
                self._batch_names,
                tree_util.tree_leaves(tuple(arguments)),
                tree_util.tree_leaves(self._batch),
            )
        ]
        structure: Any = tree_util.tree_structure(self._batch)
        batch = tree_util.tree_unflatten(structure, leaves)
        # Values that are gone, since they were donated, leave their shapes.
        carried = tree_util.tree_map(alive, self._carried)
        return self._export(*carried, *batch)

    def outputs(self, arrays: Sequence[Array]) -> Any:
        # Copies: the next call writes to the same memory.
        leaves = [
            shown(array.copy(), like)
            for array, like in zip(arrays, tree_util.tree_leaves(self._outputs))
        ]
        structure: Any = tree_util.tree_structure(self._outputs)
        results = tree_util.tree_unflatten(structure, leaves)
        return results[0] if len(results) == 1 else results

    def state(self, step: Source) -> Any:
        leaves = [
            shown(step._current(name), leaf)
            for name, leaf in zip(
                self._state_names, tree_util.tree_leaves(self._carried)
            )
        ]
        structure: Any = tree_util.tree_structure(self._carried)
        state = tree_util.tree_unflatten(structure, leaves)
        return state[0] if len(state) == 1 else state

    def load_state(self, state: Any, write: Write) -> None:
        whole = (state,) if len(self._carried) == 1 else tuple(state)
        if other := _checks.difference(self._carried, whole, self._state_roots):
            raise StepError(f"expected a state like the exported one, but got {other}")
        exported = tree_util.tree_leaves(self._carried)
        leaves = tree_util.tree_leaves(whole)
        for name, leaf, like in zip(self._state_names, leaves, exported):
            write(name, memory(name, leaf, like))

    def rerun(self, call: Call) -> Rerun | None:
        if self._step is None:
            return None
        if self._user_step is None:
            self._user_step = self._make_user_step(self._step)
        return self._user_step.run(call)

    def _make_user_step(self, step: Callable[..., Any]) -> UserStep:
        try:
            from sparse_opt.jax._user_step import UserStep, Parts
        except (ImportError, AttributeError) as error:
            raise Unchecked(
                f"JAX {jax.__version__} lacks what it needs ({error})"
            ) from error
        metrics = [
            _checks.dotted("metrics", path)
            for path, _ in tree_util.tree_leaves_with_path(self._outputs)
        ]
        return UserStep(
            Parts(
                step,
                (*self._carried, *self._batch),
                list(zip(self._state_names, tree_util.tree_leaves(self._carried))),
                list(zip(self._batch_names, tree_util.tree_leaves(self._batch))),
                ["loss", *metrics[1:]],
                frozenset(
                    n for n in self._state_names if self._roles.get(n) == "param"
                ),
            )
        )

    def forget(self) -> None:
        self._user_step = None

    def changes(self, of: str | None = None) -> Changes:
        return {}, {}

    def outdated(self, step: Source) -> None:
        """A function has no objects of its own."""

    def store(self, step: Source) -> None:
        raise StepError(
            "expected a program with objects of its own, but got a function: use"
            " state_dict()"
        )
