# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Exports JAX training steps to `linalg` on tensors.

"""The JAX front end.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from sparse_opt import _compiler, _given, _inits, _marks, _progress, _versions
from sparse_opt._errors import ExportError
from sparse_opt._marks import Mark, Marks
from sparse_opt._program import Export
from sparse_opt.jax import _checks, _moments
from sparse_opt.jax._checks import leaf_names
from sparse_opt.jax._program import JaxProgram

__all__ = ["Export", "ExportError", "export", "export_function", "leaf_names"]

_TESTED = (("jax", "0.9", "0.11"), ("jaxlib", "0.9", "0.11"))
# What leans on names that another version may not have.
_LEANING = (
    "sparse_opt.jax._stablehlo",
    "sparse_opt.jax._retraces",
    "sparse_opt.jax._points",
)

# The roles of leaves that no pattern of the caller names.
_CARRIED_ROLES = {r"(^|\.)params(\.|$)": "param", "": "state"}
_INPUT_ROLES = {
    r"^(lr|learning_rate)$": "lr",
    r"^(seed|key|rng)(\.|$)": "seed",
    r"^step$": "step",
    r"^apply$": "apply",
    "": "batch",
}


@_given.options(ExportError)
@_progress.job("export", ("trace", "trace again", "lower"))
def export(
    step: Callable[..., Any],
    *args: Any,
    carried: int = 1,
    roles: Mapping[str, str] | None = None,
    inits: Mapping[str, str] | None = None,
    locations: bool | Literal["scopes"] = True,
    marks: Marks = (),
) -> Export:
    """Returns the MLIR text of one training step.

    Args:
      step: the step, `step(state, batch, ...) -> (state, loss)`. Results
        behind the loss are metrics.
      *args: its arguments, arrays or `jax.ShapeDtypeStruct`s; only shapes and
        types matter. A later batch of other shapes has the step exported again. The names of the parameters of `step` begin the names
        of the leaves: `state.params.layers.0.w`.
      carried: how many leading arguments are the state. The first `carried`
        results are their next values, so that
        `step(params, opt_state, batch) -> (params, opt_state, loss)` exports
        with `carried=2`.
      roles: regular expressions searched for in the name of an argument, and
        the `bsr.role` it gets; the first that matches decides. By default a
        carried leaf in `params` is a `param`, other carried leaves are
        `state`, arguments called `lr`, `seed`, `step` and `apply` have these
        roles, and all else is `batch`. What the step keeps of parameters (moments,
        averages) is `state` whatever it is called, if the loss does not read it.
      inits: regular expressions likewise, and the `bsr.init` that tells a
        driver how to begin: `zeros`, `ones`, `constant(c)` or `normal(sd)`.
        Without one, carried leaves of the role `state` that are one constant
        begin so, and new blocks of a weight have it in the state kept of it.
      locations: keep where each operation came from: the path of its
        `jax.named_scope`s and the line of the program; or `"scopes"` alone,
        for a text that is the same wherever the program lies.
      marks: those that `compile` is to be given (`sparse_opt.Mark`), and takes by default. Wrong ones are an
        error before anything is traced.

    Returns:
      A module with the public function `step`. It needs no dialect but those
      of upstream MLIR 22.1, `bsr.gradient` where the step differentiates, and
      `bsr.barrier` where `jax.checkpoint` computes something again.

    Raises:
      ExportError: the step is not of this form, or it does something that has
        no form in `linalg`.
    """
    roles = dict(roles or {})
    inits = dict(inits or {})
    _versions.load("jax", _TESTED, _LEANING)
    from sparse_opt.jax import _export_cache, _points, _retraces

    for pattern in (*roles, *inits):
        _require_pattern(pattern)
    for init in inits.values():
        _inits.require(init)

    roots = _roots(step, args)
    names = _checks.names_of(args, roots)
    _checks.require_distinct(names)
    leaves = tree_util.tree_leaves(args)
    _checks.require_arrays(names, leaves)
    num_carried = len(tree_util.tree_leaves(args[:carried]))
    role_of = _roles_of(names, num_carried, roles)
    given: list[Mark] = []
    if marks:
        weights = (
            _marks.Weight(name, np.shape(leaf), str(leaf.dtype))
            for name, leaf in zip(names, leaves)
            if role_of[name] == "param" and hasattr(leaf, "dtype")
        )
        given = _compiler.require_marks(weights, marks)
    with _points.marking():
        with _retraces.anew():
            traced = _checks.traced(step, args)
        _checks.require_results(traced.out_info, carried, args)
        _checks.require_same_state(args[:carried], traced.out_info[:carried], roots)
        _checks.require_loss(traced.out_info[carried:])
        _progress.stage("trace again")
        _retraces.require_alike(step, args, traced.jaxpr)
    _progress.stage("lower")
    results = ["loss"] + [
        _checks.dotted("metrics", path)
        for path, _ in tree_util.tree_leaves_with_path(traced.out_info[carried:])[1:]
    ]

    # Link by path: the leaves of a carried argument and those of its next
    # value are the same, in the same order.
    parameters = [i for i in range(num_carried) if role_of[names[i]] == "param"]
    for i in _moments.found(traced.jaxpr, num_carried, parameters):
        role_of[names[i]] = "state"

    argument_attributes = []
    for i, name in enumerate(names):
        is_carried = i < num_carried
        attributes: dict[str, str | int] = {"bsr.name": name}
        if is_carried:
            attributes["bsr.result"] = i
        attributes["bsr.role"] = role_of[name]
        init = _first_match(inits, name)
        if is_carried and not init and attributes["bsr.role"] == "state":
            init = _init_of(leaves[i])
        if init:
            attributes["bsr.init"] = init
        argument_attributes.append(attributes)

    result_attributes: list[dict[str, str | int]] = [
        {"bsr.name": name} for name in names[:num_carried] + results
    ]
    result_attributes[num_carried]["bsr.role"] = "loss"

    text = _export_cache.lower(
        traced.lower().as_text(debug_info=True),
        argument_attributes,
        result_attributes,
        locations,
    )

    def again(*args: Any) -> Export:
        return export(
            step, *args, carried=carried, roles=roles, inits=inits, locations=locations
        )

    program = JaxProgram(args, carried, roots, traced.out_info, step, role_of, again)
    return Export.of(text, program, given)


@_given.options(ExportError)
def export_function(
    function: Callable[..., Any],
    *args: Any,
    carried: int = 1,
    roles: Mapping[str, str] | None = None,
    locations: bool | Literal["scopes"] = True,
) -> Export:
    """Returns the MLIR text of a function of a state that trains nothing.

    For `step.bind`, which compiles it on the values that a step trains: validation,
    generation. The parameters of `function` that take the state are called as those of the
    step, since the leaves of both are known by their names.

    Args:
      function: `function(state, batch, ...)`, which returns arrays in any structure.
      *args: its arguments; only shapes and types matter.
      carried: how many leading arguments are the state, or a part of it.
      roles: as of `export`.
      locations: as of `export`.

    Raises:
      ExportError: as `export` does.
    """
    roles = dict(roles or {})
    _versions.load("jax", _TESTED, _LEANING)
    from sparse_opt.jax import _export_cache, _retraces

    for pattern in roles:
        _require_pattern(pattern)
    roots = _roots(function, args)
    names = _checks.names_of(args, roots)
    _checks.require_distinct(names)
    _checks.require_arrays(names, tree_util.tree_leaves(args))
    traced = _checks.traced(function, args)
    _checks.require_outputs(traced.out_info)
    _retraces.require_alike(function, args, traced.jaxpr)
    num_carried = len(tree_util.tree_leaves(args[:carried]))
    role_of = _roles_of(names, num_carried, roles)
    # A moment that is called as its weight has none of the step's marks.
    parameters = [i for i in range(num_carried) if role_of[names[i]] == "param"]
    for i in _moments.unread(traced.jaxpr, parameters):
        role_of[names[i]] = "state"
    argument_attributes: list[dict[str, str | int]] = [
        {"bsr.name": name, "bsr.role": role_of[name]} for name in names
    ]
    result_attributes: list[dict[str, str | int]] = [
        {"bsr.name": _checks.dotted("metrics", path)}
        for path, _ in tree_util.tree_leaves_with_path((traced.out_info,))
    ]
    text = _export_cache.lower(
        traced.lower().as_text(debug_info=True),
        argument_attributes,
        result_attributes,
        locations,
    )
    # What it returns is one value, as the loss of a step is.
    results = (*args[:carried], traced.out_info)
    return Export.of(text, JaxProgram(args, carried, roots, results))


def _roots(step: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """Returns the names of the parameters of `step` that take `args`."""
    if not callable(step):
        raise ExportError(
            f"expected a function to export, but got a {type(step).__name__}:"
            " export(step, state, batch)"
        )
    try:
        signature = inspect.signature(step)
        bound = signature.bind(*args)
    except TypeError as error:
        raise ExportError(
            f"expected arguments that the step accepts, but got '{error}'"
        ) from error
    roots = []
    for name, value in bound.arguments.items():
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        roots += [f"{name}.{i}" for i in range(len(value))] if is_rest else [name]
    return roots


def _require_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ExportError(
            f"expected a regular expression, but got '{pattern}': {error}"
        ) from error


def _init_of(leaf: Any) -> str:
    """Returns how a driver begins state that is one constant but zero, or ''."""
    if not isinstance(leaf, (np.ndarray, jax.Array)) or isinstance(leaf, jax.core.Tracer):
        return ""
    is_here = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
    if not is_here or jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return ""
    rule = _inits.of(np.asarray(leaf).reshape(-1))
    return rule if rule and rule != "zeros" else ""


def _roles_of(
    names: Sequence[str], carried: int, roles: Mapping[str, str]
) -> dict[str, str]:
    """Returns the role of each leaf, the first `carried` of which are the state, by its
    name alone."""
    defaults = [_CARRIED_ROLES] * carried + [_INPUT_ROLES] * (len(names) - carried)
    return {
        name: _first_match({**roles, **rest}, name) for name, rest in zip(names, defaults)
    }


def _first_match(patterns: Mapping[str, str], name: str) -> str:
    """Returns the value of the first pattern found in `name`, or ''."""
    for pattern, value in patterns.items():
        if re.search(pattern, name):
            return value
    return ""
