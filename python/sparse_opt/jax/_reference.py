# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Evaluates the trace of a step as a compiled step has to.

"""A trace with `w * mask` in the place of weights, in its own types or in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from sparse_opt.jax import _points, _retraces, _rounding, _supports
from sparse_opt.jax._supports import NONE, UNKNOWN, Support, Supports

# What depends on the bits of its operands is computed in the program's own types.
_OWN_TYPES = frozenset(
    ("bitcast_convert_type", "nextafter", "random_gamma", "reduce_precision")
)


@dataclass
class Seen:
    """What an evaluation has met."""

    weights: set[str] = field(default_factory=set)  # that something is differentiated at
    doubts: list[str] = field(default_factory=list)  # lines that are not followed
    epsilon: float = 0.0  # the coarsest type


class Stale(Exception):
    """A value of another trace, which its program kept; the line that reads it."""


class Reference:
    """Evaluates functions on arrays and their supports.

    Args:
      masks: which entries of the weights with a number are stored.
      is_exact: whether to compute in float64.
      attempt: which changes of results by roundings, in float64.
    """

    def __init__(
        self, masks: Mapping[int, Any], is_exact: bool, attempt: Any = None
    ) -> None:
        self._masks, self._is_exact, self._attempt = masks, is_exact, attempt
        self._supports = Supports()
        self.seen = Seen()
        self.gradients: dict[str, Any] = {}

    def run(
        self, function: ClosedJaxpr, values: Sequence[Any], supports: Sequence[Support]
    ) -> list[Any]:
        """Returns what a function returns."""
        jaxpr = function.jaxpr
        known = dict(zip(jaxpr.constvars, map(self._up, function.consts)))
        known.update(zip(jaxpr.invars, map(self._up, values)))
        places: dict[Any, Support] = dict(zip(jaxpr.invars, supports))

        def read(atom: Any, line: str) -> Any:
            if isinstance(atom, Literal):
                return self._up(atom.val)
            if atom not in known:
                raise Stale(line)
            return known[atom]

        for equation in jaxpr.eqns:
            line = _retraces.line_of(equation)
            operands = [read(atom, line) for atom in equation.invars]
            inputs = [
                _supports.of_literal(atom)
                if isinstance(atom, Literal)
                else places.get(atom, NONE)
                for atom in equation.invars
            ]
            results = self._evaluate(equation, operands, inputs)
            known.update(zip(equation.outvars, results))
            found = self._supports.results(equation, inputs)
            places.update(zip(equation.outvars, found))
        return [read(atom, "") for atom in jaxpr.outvars]

    def _evaluate(
        self, equation: Any, values: Sequence[Any], inputs: Sequence[Support]
    ) -> Sequence[Any]:
        """Returns the results of an equation."""
        primitive = equation.primitive
        if primitive is _points.ARGUMENT:
            self.seen.weights.update(inputs[0].names)
            return values
        if primitive is _points.GRADIENT:
            return [self._masked_gradient(equation, values[0], inputs[1])]
        if (function := _supports.called(equation)) is not None:
            return self.run(function, values, inputs)
        special = {"scan": self._scan, "while": self._while, "cond": self._cond}
        if primitive.name in special:
            return special[primitive.name](equation, values, inputs)
        options = tuple(equation.params.values())
        if any(s.is_marked for s in inputs) and _differentiates(options):
            self.seen.doubts.append(_retraces.line_of(equation))
        for variable in equation.outvars:
            self.seen.epsilon = max(self.seen.epsilon, epsilon_of(variable.aval.dtype))
        return self._bind(equation, values)

    def _masked_gradient(self, equation: Any, gradient: Any, support: Support) -> Any:
        """Returns a gradient of a value, 0 where that value has no blocks."""
        missing = equation.params["missing"]
        if support == UNKNOWN:
            self.seen.doubts.append(_retraces.line_of(equation))
        elif support.is_marked:
            mask = support.mask(self._masks)
            places = tuple(i for i, is_missing in enumerate(missing) if is_missing)
            mask = jnp.expand_dims(mask, places)
            gradient = jnp.where(mask, gradient, jnp.zeros((), gradient.dtype))
        if support.name:
            batch = tuple(range(gradient.ndim - len(support.shape)))
            self.gradients[support.name] = gradient.sum(batch)
        return gradient

    def _scan(
        self, equation: Any, values: Sequence[Any], inputs: Sequence[Support]
    ) -> list[Any]:
        p = equation.params
        consts, count = p["num_consts"], p["num_carry"]
        supports = self._supports.scan_body(equation, inputs)
        outside = self.gradients

        def body(carry: Any, rows: Any) -> Any:
            self.gradients = {}
            operands = [*values[:consts], *carry, *rows]
            results = self.run(p["jaxpr"], operands, supports)
            return results[:count], (results[count:], self.gradients)

        first = list(values[consts : consts + count])
        rows = list(values[consts + count :])
        try:
            carry, (results, gradients) = lax.scan(
                body, first, rows, p["length"], p["reverse"], p["unroll"]
            )
        finally:
            self.gradients = outside
        self.gradients.update({n: g.sum(0) for n, g in gradients.items()})
        return [*carry, *results]

    def _while(
        self, equation: Any, values: Sequence[Any], inputs: Sequence[Support]
    ) -> list[Any]:
        p = equation.params
        first = p["cond_nconsts"]
        last = first + p["body_nconsts"]
        carried = self._supports.while_carry(equation, inputs)

        def goes_on(carry: Any) -> Any:
            operands, supports = [*values[:first], *carry], [*inputs[:first], *carried]
            return self._apart(p["cond_jaxpr"], operands, supports)[0]

        def body(carry: Any) -> Any:
            operands = [*values[first:last], *carry]
            supports = [*inputs[first:last], *carried]
            return self._apart(p["body_jaxpr"], operands, supports)

        found: list[Any] = lax.while_loop(goes_on, body, list(values[last:]))
        return found

    def _cond(
        self, equation: Any, values: Sequence[Any], inputs: Sequence[Support]
    ) -> list[Any]:
        def way(branch: Any) -> Any:
            return lambda *operands: self._apart(branch, operands, inputs[1:])

        ways = [way(branch) for branch in equation.params["branches"]]
        found: list[Any] = lax.switch(values[0], ways, *values[1:])
        return found

    def _apart(
        self, function: ClosedJaxpr, values: Sequence[Any], supports: Sequence[Support]
    ) -> list[Any]:
        """Returns what a function returns whose gradients are not seen outside."""
        outside, self.gradients = self.gradients, {}
        try:
            return self.run(function, values, supports)
        finally:
            self.gradients = outside

    def _bind(self, equation: Any, values: Sequence[Any]) -> list[Any]:
        """Returns the results of one operation, in float64 if it has that."""
        if not self._is_exact:
            return _bind(equation, values, equation.params)
        if equation.primitive.name not in _OWN_TYPES:
            try:
                found = _bind(equation, values, self._exact(equation.params))
            except Stale:
                raise
            except Exception:
                pass  # There is no such operation in float64.
            else:
                is_moved = self._attempt is not None
                return _rounding.moved(equation, found, self._attempt) if is_moved else found
        own = [
            _cast(value, atom.aval.dtype) for value, atom in zip(values, equation.invars)
        ]
        return list(map(self._up, _bind(equation, own, equation.params)))

    def _up(self, value: Any) -> Any:
        """Returns a value as it is computed with."""
        return _cast(value, jnp.float64) if self._is_exact else value

    def _exact(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options of an operation in float64."""
        return {name: self._exact_option(value) for name, value in params.items()}

    def _exact_option(self, value: Any) -> Any:
        if isinstance(value, (np.dtype, type)) and epsilon_of(value):
            return np.dtype(np.float64)
        if isinstance(value, tuple):
            parts = map(self._exact_option, value)
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, (Jaxpr, ClosedJaxpr)):
            function = _supports.closed(value)
            supports = [NONE] * len(function.jaxpr.invars)
            inputs = [
                _described(
                    v.aval.shape, np.float64 if epsilon_of(v.aval.dtype) else v.aval.dtype
                )
                for v in function.jaxpr.invars
            ]
            # What an operation does within itself.
            inner = Reference(self._masks, self._is_exact)
            made = jax.make_jaxpr(lambda *a: inner.run(function, a, supports))(*inputs)
            return made if isinstance(value, ClosedJaxpr) else made.jaxpr
        return value


def _differentiates(value: Any) -> bool:
    """Returns whether options of an equation have a function that differentiates."""
    if isinstance(value, (tuple, list)):
        return any(map(_differentiates, value))
    if not isinstance(value, (Jaxpr, ClosedJaxpr)):
        return False
    return any(
        equation.primitive is _points.GRADIENT
        or _differentiates(tuple(equation.params.values()))
        for equation in value.eqns
    )


def _described(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def epsilon_of(dtype: Any) -> float:
    """Returns the roundoff of a type; 0 of those that are no floating point."""
    is_real = dtype is not float and jnp.issubdtype(dtype, jnp.floating)
    return float(jnp.finfo(dtype).eps) if is_real else 0.0  # type: ignore[no-untyped-call]


def _cast(value: Any, dtype: Any) -> Any:
    """Returns a value with floating point in another type, if it has any."""
    own = getattr(value, "dtype", None)
    if own is None or own == dtype or not epsilon_of(own) or not epsilon_of(dtype):
        return value
    return jnp.asarray(value).astype(dtype)


def _bind(equation: Any, values: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    with equation.ctx.manager:
        found = equation.primitive.bind(*values, **params)
    return list(found) if equation.primitive.multiple_results else [found]
