# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Arrays of JAX as the runtime holds them.

"""Between arrays of JAX and those of a step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparse_opt import _description
from sparse_opt._errors import StepError

Array = np.ndarray[Any, Any]

# What the runtime holds as bits of another type: NumPy has no bf16, and MLIR
# no unsigned integers.
_HELD_AS = {"bfloat16": np.uint16, "uint32": np.int32, "uint8": np.int8}


def memory(name: str, leaf: Any, like: Any = None) -> Array:
    """Returns the memory of an array as the runtime holds it.

    Python's numbers take the type of `like`, keys are the numbers that they are
    made of.
    """
    _description.plain(name, leaf)
    if isinstance(leaf, (bool, int, float)) and like is not None:
        return _held(np.asarray(leaf, jax.typeof(like).dtype))
    try:
        return _held(numbers(leaf))
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


def example(name: str, leaf: Any, like: Any) -> Any:
    """Returns a part of a batch of another shape, as an export takes it."""
    shape = np.shape(leaf)
    _description.require_rank(name, shape, len(np.shape(like)))
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        array, dtype = memory(name, leaf, like), dtype_of(like)
        held = np.dtype(_HELD_AS.get(dtype.name, dtype))
        _description.require(name, array.shape, held, array)
    if shape == np.shape(like):
        return alive(like)
    return _described(like, shape)


def alive(leaf: Any) -> Any:
    """Returns an array, or where it has no values any more what describes it."""
    is_gone = isinstance(leaf, jax.Array) and leaf.is_deleted()
    return _described(leaf, leaf.shape) if is_gone else leaf


def _described(like: Any, shape: tuple[int, ...]) -> Any:
    is_weak = bool(getattr(like, "weak_type", False))
    struct: Any = jax.ShapeDtypeStruct
    return struct(shape, like.dtype, weak_type=is_weak)


def is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def numbers(leaf: Any) -> Array:
    """Returns what an array holds; of keys, the numbers that they are made of."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _held(array: Array) -> Array:
    dtype = _HELD_AS.get(array.dtype.name)
    return array if dtype is None else array.view(dtype)


def dtype_of(like: Any) -> Any:
    """Returns the type of the numbers in arrays that are like one."""
    return np.dtype(np.uint32) if is_key(like) else jax.typeof(like).dtype


def decoded(array: Array, dtype: Any) -> Array:
    """Returns what the runtime holds, as numbers of its type."""
    return array.view(dtype) if dtype.name in _HELD_AS else array


def shown(array: Array, like: Any) -> Any:
    """Returns an array of the step as one of JAX, of the type of `like`."""
    values = jnp.asarray(decoded(array, dtype_of(like)))
    if not is_key(like):
        return values
    return jax.random.wrap_key_data(values, impl=jax.random.key_impl(like))
