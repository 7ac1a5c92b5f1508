# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step, its arguments and its results have to be.

"""Checks of what is exported, and what JAX's own errors mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import tree_util

from sparse_opt import _source
from sparse_opt._errors import ExportError

def require_distinct(names: Sequence[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ExportError(f"expected distinct names, but got '{name}' twice")
        seen.add(name)


def require_arrays(names: Sequence[str], leaves: Sequence[Any]) -> None:
    """Raises `ExportError` if an argument cannot be one of a compiled step."""
    for name, leaf in zip(names, leaves):
        is_number = isinstance(leaf, (bool, int, float, complex))
        if not is_number and not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise ExportError(
                f"expected arrays in the arguments, but got a {type(leaf).__name__} as"
                f" '{name}': close over what is no array, or make it one; of a module"
                " eqx.partition(model, eqx.is_array) or nnx.split(model) takes the arrays"
            )
        shape = np.shape(leaf) if is_number else leaf.shape
        if not all(isinstance(length, int) for length in shape):
            raise ExportError(
                "expected shapes that are numbers, but got"
                f" ({', '.join(map(str, shape))}) for '{name}': export the step once"
                " for each shape, and pad batches to it"
            )
        if 0 in shape:
            raise ExportError(
                f"expected arrays with elements, but got shape {tuple(shape)} for"
                f" '{name}': leave it out"
            )
        if isinstance(leaf, complex) or np.issubdtype(_kind(leaf), np.complexfloating):
            raise ExportError(
                f"expected real numbers, but got complex ones in '{name}': pass real"
                " and imaginary parts as two arrays"
            )


def _kind(leaf: Any) -> Any:
    dtype = getattr(leaf, "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else np.bool_


def traced(step: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Returns `step` as JAX traces it; errors name the user's line."""
    try:
        return jax.jit(step, keep_unused=True).trace(*args)
    except Exception as error:
        raise ExportError(_explain(error)) from error


def _explain(error: Exception) -> str:
    line = _source.line_of_error(error.__traceback__)
    text = str(error)
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError) or (
        isinstance(error, jax.errors.ConcretizationTypeError)
        and ("size argument" in text or "value for the size" in text)
    ):
        return (
            "expected shapes that do not depend on data, but got an operation whose"
            f" result depends on values{line}: use jnp.where on the whole array"
        )
    if isinstance(error, TypeError) and "concrete values of integer type" in text:
        return (
            "expected shapes that do not depend on the arguments, but got one made of a"
            f" number in them{line}: close over it, as eqx.partition(model, eqx.is_array)"
            " does for a module"
        )
    if isinstance(
        error,
        (
            jax.errors.ConcretizationTypeError,
            jax.errors.TracerArrayConversionError,
            jax.errors.TracerIntegerConversionError,
        ),
    ):
        return (
            "expected a step whose control flow does not depend on data, but got an"
            f" array read as a number{line}: keep it an array (jnp.where instead of"
            " if, jnp instead of np, no float())"
        )
    first = f"{type(error).__name__}: {text}".splitlines()[0]
    return f"expected a step that JAX can trace, but got '{first}'{line}"


def require_results(results: Any, carried: int, args: Sequence[Any]) -> None:
    """Raises `ExportError` if these are not next states and more."""
    if not isinstance(results, (tuple, list)) or len(results) <= carried:
        expected = "its next state" if carried == 1 else f"{carried} next states"
        instead = "return (state, loss), and say with carried= how many states there are"
        if any(map(_is_changed_in_place, args)):
            instead = _IN_PLACE
        raise ExportError(
            f"expected a step that returns {expected} and a loss, but got"
            f" {_described(results)}: {instead}"
        )


# What to do of modules that a step changes in place.
_IN_PLACE = (
    "take graph, state = nnx.split((model, optimizer)) outside of the step, model, optimizer"
    " = nnx.merge(graph, state) in it, and return nnx.state((model, optimizer)), loss"
)


def _is_changed_in_place(argument: Any) -> bool:
    """Returns whether an argument is a module of nnx, or an optimizer with one."""
    return any(base.__module__.startswith("flax.nnx") for base in type(argument).__mro__)


def require_loss(results: Any) -> None:
    """Raises `ExportError` if what is behind the states does not begin with a loss."""
    leaves = tree_util.tree_leaves(results)
    if not leaves or leaves[0].shape != ():
        got = leaves[0].shape if leaves else "nothing"
        raise ExportError(
            f"expected a loss of shape (), but got {got}: return its mean"
        )


def require_outputs(results: Any) -> None:
    """Raises `ExportError` if a function returns nothing."""
    if not tree_util.tree_leaves(results):
        raise ExportError("expected a function that returns arrays, but got nothing")


def _described(results: Any) -> str:
    if isinstance(results, (tuple, list)):
        return f"a {type(results).__name__} of {len(results)}"
    return "an array" if hasattr(results, "shape") else f"a {type(results).__name__}"


def require_same_state(before: Any, after: Any, roots: Sequence[str]) -> None:
    """Checks that `after` can be the next value of `before`."""
    if other := difference(before, after, roots):
        is_in_place = any(map(_is_changed_in_place, before))
        instead = _IN_PLACE if is_in_place else "return (state, loss)"
        raise ExportError(
            f"expected a next state like the state, but got {other}: {instead}"
        )
    leaves = tree_util.tree_leaves(before), tree_util.tree_leaves(after)
    for name, old, new in zip(names_of(before, roots), *leaves):
        old = jax.typeof(old) if not hasattr(old, "dtype") else old
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ExportError(
                f"expected the next value of '{name}' to be"
                f" {old.dtype}{list(old.shape)}, but got {new.dtype}{list(new.shape)}"
            )


def names_of(values: Sequence[Any], roots: Sequence[str]) -> list[str]:
    """Returns the dotted names of the leaves of values called as `roots`."""
    return [
        name
        for i, value in enumerate(values)
        for name in leaf_names(roots[i] if i < len(roots) else str(i), value)
    ]


def leaf_names(root: str, tree: Any) -> list[str]:
    """Returns the dotted names of the leaves of `tree`, in their order."""
    return [dotted(root, path) for path, _ in tree_util.tree_leaves_with_path(tree)]


def dotted(root: str, path: tuple[Any, ...]) -> str:
    """Returns the dotted form of a path in a pytree."""
    parts = [root]
    for key in path:
        for field in ("key", "idx", "name"):
            if hasattr(key, field):
                parts.append(str(getattr(key, field)))
                break
        else:
            parts.append(str(key))
    return ".".join(parts)


def difference(
    expected: Sequence[Any], got: Sequence[Any], roots: Sequence[str]
) -> str:
    """Returns how the structures of some values differ first, or ''."""
    structure: Any = tree_util.tree_structure(tuple(got))
    if structure == tree_util.tree_structure(tuple(expected)):
        return ""
    if len(got) != len(expected):
        return f"{len(got)} values instead of {len(expected)}"
    before, after = names_of(expected, roots), names_of(got, roots)
    if missing := [name for name in before if name not in after]:
        return f"none for '{missing[0]}'"
    if unknown := [name for name in after if name not in before]:
        return f"one too many, '{unknown[0]}'"
    return f"other containers around the same arrays, {structure}"
