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

from sparse_opt import _description
from sparse_opt._check import Call, Rerun
from sparse_opt._errors import StepError
from sparse_opt._program import Array
from sparse_opt.jax import _checks

# What the runtime holds as bits of another type: NumPy has no bf16, and MLIR
# no unsigned integers.
_HELD_AS = {"bfloat16": np.uint16, "uint32": np.int32, "uint8": np.int8}


class JaxProgram:
    """An exported step with the structure of its state and of its batches."""

    def __init__(
        self, args: Sequence[Any], carried: int, roots: Sequence[str], results: Any
    ) -> None:
        self._carried = tuple(args[:carried])
        self._batch = tuple(args[carried:])
        self._state_roots, self._batch_roots = roots[:carried], roots[carried:]
        self._state_names = _checks.names_of(self._carried, self._state_roots)
        self._batch_names = _checks.names_of(self._batch, self._batch_roots)
        self._outputs = tuple(results[carried:])

    def check(self) -> None:
        """A function of its arguments cannot change."""

    def values(self) -> Iterable[tuple[str, Array]]:
        leaves = tree_util.tree_leaves(self._carried)
        for name, leaf in zip(self._state_names, leaves):
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                yield name, _memory(name, leaf, leaf)

    def examples(self) -> Iterable[tuple[str, Array]]:
        for name, leaf in zip(self._batch_names, tree_util.tree_leaves(self._batch)):
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                yield name, _memory(name, leaf, leaf)

    def rate(self) -> float | None:
        return None

    def inputs(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Iterable[tuple[str, Array]]:
        other = _checks.difference(self._batch, arguments, self._batch_roots)
        if named or other:
            raise StepError(
                "expected what the exported step takes behind its state"
                f" ({', '.join(self._batch_roots) or 'nothing'}), but got"
                f" {f'{min(named)!r} by name' if named else other}"
            )
        leaves = tree_util.tree_leaves(tuple(arguments))
        exported = tree_util.tree_leaves(self._batch)
        return [
            (name, _memory(name, leaf, like))
            for name, leaf, like in zip(self._batch_names, leaves, exported)
        ]

    def outputs(self, arrays: Sequence[Array], trained: bool = True) -> Any:
        # Copies: the next call writes to the same memory.
        leaves = [
            _shown(array.copy(), like)
            for array, like in zip(arrays, tree_util.tree_leaves(self._outputs))
        ]
        structure: Any = tree_util.tree_structure(self._outputs)
        results = tree_util.tree_unflatten(structure, leaves)
        return results[0] if len(results) == 1 else results

    def state(self, read: Callable[[str], Array]) -> Any:
        leaves = [
            _shown(read(name), leaf)
            for name, leaf in zip(
                self._state_names, tree_util.tree_leaves(self._carried)
            )
        ]
        structure: Any = tree_util.tree_structure(self._carried)
        state = tree_util.tree_unflatten(structure, leaves)
        return state[0] if len(state) == 1 else state

    def load_state(self, state: Any, write: Callable[[str, Array], None]) -> None:
        whole = (state,) if len(self._carried) == 1 else tuple(state)
        if other := _checks.difference(self._carried, whole, self._state_roots):
            raise StepError(f"expected a state like the exported one, but got {other}")
        exported = tree_util.tree_leaves(self._carried)
        leaves = tree_util.tree_leaves(whole)
        for name, leaf, like in zip(self._state_names, leaves, exported):
            write(name, _memory(name, leaf, like))

    def rerun(self, call: Call) -> Rerun | None:
        return None

    def store(self, read: Callable[[str], Array]) -> None:
        raise StepError(
            "expected a program with objects of its own, but got a function: use"
            " state_dict()"
        )


def _memory(name: str, leaf: Any, like: Any = None) -> Array:
    """Returns the memory of an array as the runtime holds it.

    Python's numbers take the type of `like`, keys are the numbers that they are
    made of.
    """
    _description.plain(name, leaf)
    if isinstance(leaf, (bool, int, float)) and like is not None:
        return _held(np.asarray(leaf, jax.typeof(like).dtype))
    try:
        return _held(np.asarray(_numbers(leaf)))
    except RuntimeError as error:
        raise StepError(
            f"expected '{name}' to hold values, but got an array that was donated:"
            " compile a step before it is called, and pass what is not donated"
        ) from error
    except jax.errors.TracerArrayConversionError as error:
        raise StepError(
            f"expected an array for '{name}', but got a traced one: call the compiled"
            " step outside of jit and grad"
        ) from error


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _numbers(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _held(array: Array) -> Array:
    dtype = _HELD_AS.get(array.dtype.name)
    return array if dtype is None else array.view(dtype)


def _shown(array: Array, like: Any) -> Any:
    """Returns an array of the step as one of JAX, of the type of `like`."""
    if _is_key(like):
        numbers = jnp.asarray(array.view(np.uint32))
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(like))
    dtype = jax.typeof(like).dtype
    return jnp.asarray(array.view(dtype) if dtype.name in _HELD_AS else array)
