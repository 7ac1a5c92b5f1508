# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Exports JAX training steps to `linalg` on tensors.

"""The JAX front door.

`export` takes a training step as its author wrote it, jitted or not, with any
optimizer, and returns MLIR text: one public function on tensors whose
arguments and results carry their names and roles:

    step(state, batch, ...) -> (state, loss)

An argument is linked to the result that holds its next value by its path in
the state, so two leaves of one shape can never be confused.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import tree_util

from sparse_opt._errors import ExportError
from sparse_opt._program import Export
from sparse_opt.jax import _stablehlo
from sparse_opt.jax._program import JaxProgram

__all__ = ["Export", "ExportError", "export", "leaf_names"]

_INIT = re.compile(r"zeros|ones|(normal|constant)\([-+]?[0-9.]+(e[-+]?[0-9]+)?\)")

# The roles of leaves that no pattern of the caller names.
_CARRIED_ROLES = {r"\.params(\.|$)": "param", "": "state"}
_INPUT_ROLES = {
    r"^(lr|learning_rate)$": "lr",
    r"^(seed|key|rng)(\.|$)": "seed",
    r"^step$": "step",
    "": "batch",
}


def export(
    step: Callable[..., Any],
    *args: Any,
    carried: int = 1,
    roles: Mapping[str, str] | None = None,
    inits: Mapping[str, str] | None = None,
    locations: bool = True,
) -> Export:
    """Returns the MLIR text of one training step.

    Args:
      step: the step, `step(state, batch, ...) -> (state, loss)`. Results
        behind the loss are metrics.
      *args: its arguments, arrays or `jax.ShapeDtypeStruct`s; only shapes and
        types matter. The names of the parameters of `step` begin the names
        of the leaves: `state.params.layers.0.w`.
      carried: how many leading arguments are the state. The first `carried`
        results are their next values, so that
        `step(params, opt_state, batch) -> (params, opt_state, loss)` exports
        with `carried=2`.
      roles: regular expressions searched for in the name of an argument, and
        the `bsr.role` it gets; the first that matches decides. By default a
        carried leaf under `params` is a `param`, other carried leaves are
        `state`, arguments called `lr`, `seed` and `step` have these roles,
        and all else is `batch`.
      inits: regular expressions likewise, and the `bsr.init` that tells a
        driver how to begin: `zeros`, `ones`, `constant(c)` or `normal(sd)`.
      locations: keep where each operation came from, as the path of its
        `jax.named_scope`s.

    Returns:
      A module with the public function `step`. It needs no dialect but those
      of upstream MLIR 22.1.

    Raises:
      ExportError: the step is not of this form, or it does something that has
        no form in `linalg`.
    """
    roles = dict(roles or {})
    inits = dict(inits or {})
    _require_tested_version()
    for init in inits.values():
        if not _INIT.fullmatch(init):
            raise ExportError(
                "expected an init of the form zeros, ones, constant(c) or normal(sd),"
                f" but got '{init}'"
            )

    names = _argument_names(step, args)
    _require_distinct(names)
    traced = jax.jit(step, keep_unused=True).trace(*args)
    results = _result_leaves(traced.out_info, carried)

    # Link by path: the leaves of a carried argument and those of its next
    # value are the same, in the same order.
    num_carried = len(tree_util.tree_leaves(args[:carried]))
    _require_same_state(args[:carried], traced.out_info[:carried], names)

    argument_attributes = []
    for i, name in enumerate(names):
        is_carried = i < num_carried
        attributes: dict[str, str | int] = {"bsr.name": name}
        if is_carried:
            attributes["bsr.result"] = i
        defaults = _CARRIED_ROLES if is_carried else _INPUT_ROLES
        attributes["bsr.role"] = _first_match({**roles, **defaults}, name)
        if init := _first_match(inits, name):
            attributes["bsr.init"] = init
        argument_attributes.append(attributes)

    result_attributes: list[dict[str, str | int]] = [
        {"bsr.name": name} for name in names[:num_carried] + results
    ]
    result_attributes[num_carried]["bsr.role"] = "loss"

    text = _stablehlo.lower(
        traced.lower().as_text(debug_info=True),
        argument_attributes,
        result_attributes,
        locations,
    )
    program = JaxProgram(args, carried, names, traced.out_info)
    return Export.of(text, program)


# The lowering leans on names of jax and jaxlib that promise nothing, all of them
# in `_stablehlo.py`.
_TESTED = ("0.10.", "0.9.")


def _require_tested_version() -> None:
    if not jax.__version__.startswith(_TESTED):
        raise ExportError(
            f"expected jax of version 0.9 or 0.10, but got {jax.__version__}: install"
            " 'sparse-opt[jax]'"
        )


def leaf_names(root: str, tree: Any) -> list[str]:
    """Returns the dotted names of the leaves of `tree`, in their order."""
    return [_dotted(root, path) for path, _ in tree_util.tree_leaves_with_path(tree)]


def _argument_names(step: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """Returns the dotted names of the leaves of the arguments of `step`."""
    try:
        bound = inspect.signature(step).bind(*args)
    except TypeError as error:
        raise ExportError(
            f"expected arguments that the step accepts, but got '{error}'"
        ) from error
    names = []
    for parameter, value in bound.arguments.items():
        names += leaf_names(parameter, value)
    return names


def _result_leaves(results: Any, carried: int) -> list[str]:
    """Returns the names of the results behind the carried ones."""
    if not isinstance(results, (tuple, list)) or len(results) <= carried:
        raise ExportError(
            f"expected a step that returns {carried} next states and a loss,"
            f" but got '{tree_util.tree_structure(results)}'"
        )
    leaves = tree_util.tree_flatten_with_path(results[carried:])[0]
    if not leaves or leaves[0][1].shape != ():
        got = leaves[0][1].shape if leaves else "nothing"
        raise ExportError(f"expected a loss of shape (), but got {got}")
    return ["loss"] + [_dotted("metrics", path) for path, _ in leaves[1:]]


def _require_same_state(before: Any, after: Any, names: list[str]) -> None:
    """Checks that `after` can be the next value of `before`."""
    structure: Any = tree_util.tree_structure(tuple(before))
    next_structure: Any = tree_util.tree_structure(tuple(after))
    if structure != next_structure:
        raise ExportError(
            f"expected a next state of structure {structure}, but got {next_structure}"
        )
    leaves = tree_util.tree_leaves(before), tree_util.tree_leaves(after)
    for name, old, new in zip(names, *leaves):
        old = jax.typeof(old) if not hasattr(old, "dtype") else old
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ExportError(
                f"expected the next value of '{name}' to be"
                f" {old.dtype}{list(old.shape)}, but got {new.dtype}{list(new.shape)}"
            )


def _require_distinct(names: list[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ExportError(f"expected distinct names, but got '{name}' twice")
        seen.add(name)


def _dotted(root: str, path: tuple[Any, ...]) -> str:
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


def _first_match(patterns: Mapping[str, str], name: str) -> str:
    """Returns the value of the first pattern found in `name`, or ''."""
    for pattern, value in patterns.items():
        if re.search(pattern, name):
            return value
    return ""
