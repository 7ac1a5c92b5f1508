# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An exported JAX program: its state and its batches.

"""What a compiled step takes from a JAX program, and gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from sparse_opt._errors import StepError
from sparse_opt._program import Array

# What the runtime holds as bits of another type: NumPy has no bf16, and MLIR
# no unsigned integers.
_HELD_AS = {"bfloat16": np.uint16, "uint32": np.int32, "uint8": np.int8}


class JaxProgram:
    """An exported step with the structure of its state and of its batches."""

    def __init__(
        self, args: Sequence[Any], carried: int, names: Sequence[str], results: Any
    ) -> None:
        self._carried = tuple(args[:carried])
        self._batch = tuple(args[carried:])
        count = len(tree_util.tree_leaves(self._carried))
        self._state_names, self._batch_names = names[:count], names[count:]
        self._outputs: Any = tree_util.tree_structure(tuple(results[carried:]))

    def check(self) -> None:
        """A function of its arguments cannot change."""

    def values(self) -> Iterable[tuple[str, Array]]:
        leaves = tree_util.tree_leaves(self._carried)
        for name, leaf in zip(self._state_names, leaves):
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                yield name, _held(np.asarray(leaf))

    def rate(self) -> float | None:
        return None

    def inputs(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Iterable[tuple[str, Array]]:
        expected: Any = tree_util.tree_structure(self._batch)
        structure: Any = tree_util.tree_structure(tuple(arguments))
        if structure != expected or named:
            raise StepError(
                f"expected arguments of structure {expected} behind the state, but"
                f" got {structure} and {len(named)} named ones"
            )
        leaves = tree_util.tree_leaves(tuple(arguments))
        exported = tree_util.tree_leaves(self._batch)
        return [
            (name, _held(_as_array(leaf, like)))
            for name, leaf, like in zip(self._batch_names, leaves, exported)
        ]

    def outputs(self, arrays: Sequence[Array]) -> Any:
        leaves = [jnp.array(a) for a in arrays]
        results = tree_util.tree_unflatten(self._outputs, leaves)
        return results[0] if len(results) == 1 else results

    def state(self, read: Callable[[str], Array]) -> Any:
        leaves = [
            jnp.asarray(_shown(read(name), leaf))
            for name, leaf in zip(
                self._state_names, tree_util.tree_leaves(self._carried)
            )
        ]
        structure: Any = tree_util.tree_structure(self._carried)
        state = tree_util.tree_unflatten(structure, leaves)
        return state[0] if len(state) == 1 else state

    def load_state(self, state: Any, write: Callable[[str, Array], None]) -> None:
        whole = (state,) if len(self._carried) == 1 else tuple(state)
        expected: Any = tree_util.tree_structure(self._carried)
        structure: Any = tree_util.tree_structure(whole)
        if structure != expected:
            raise StepError(
                f"expected a state of structure {expected}, but got {structure}"
            )
        for name, leaf in zip(self._state_names, tree_util.tree_leaves(whole)):
            write(name, _held(np.asarray(leaf)))

    def store(self, read: Callable[[str], Array]) -> None:
        raise StepError(
            "expected a program with objects of its own, but got a function: use"
            " state_dict()"
        )


def _as_array(leaf: Any, like: Any) -> Array:
    """Returns the memory of an array; Python's numbers take the exported type."""
    if isinstance(leaf, (bool, int, float)):
        return np.asarray(leaf, jax.typeof(like).dtype)
    return np.asarray(leaf)


def _held(array: Array) -> Array:
    dtype = _HELD_AS.get(array.dtype.name)
    return array if dtype is None else array.view(dtype)


def _shown(array: Array, like: Any) -> Array:
    dtype = jax.typeof(like).dtype
    return array.view(dtype) if dtype.name in _HELD_AS else array
