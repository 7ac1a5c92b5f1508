# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Of which weights the values of a trace are.

"""Where the values of a trace can be other than 0, followed from the weights.

Casts, reshapes, concatenations, sums and multiples of a marked weight, and of its
gradients, are 0 where no block is. A value that is computed of a weight in another way is
none of a weight (a product), or `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from sparse_opt.jax import _points


@dataclass(frozen=True)
class Support:
    """Which entries of an array may be other than 0.

    Attributes:
      of: what it is made by; two that are equal hold the same entries.
      key: of a weight, the number of its mask; None of one that is not marked.
      name: of a weight.
      bind: makes its mask of those of `parts`.
    """

    of: str
    shape: tuple[int, ...] = ()
    parts: tuple[Support, ...] = ()
    key: int | None = None
    name: str = field(default="", compare=False)
    bind: Any = field(default=None, compare=False, repr=False)

    @property
    def is_marked(self) -> bool:
        """Whether a marked weight is in it."""
        return self.key is not None or any(p.is_marked for p in self.parts)

    @property
    def names(self) -> Iterator[str]:
        """Yields the weights that it is of."""
        if self.name:
            yield self.name
        for part in self.parts:
            yield from part.names

    def mask(self, masks: Mapping[int, Any]) -> Any:
        """Returns the entries, given those of the weights."""
        if self.parts:
            return self.bind(*(part.mask(masks) for part in self.parts))
        if self.key is None:
            return jnp.ones(self.shape, jnp.bool_)
        return masks[self.key].reshape(self.shape)


# Of what no weight is followed into, of one number everywhere, of zeros.
NONE, UNIFORM, ZERO = Support("none"), Support("uniform"), Support("zero")
# Of what is made of a marked weight in a way that is not followed.
UNKNOWN = Support("unknown", key=-1)
_CONSTANT = (UNIFORM, ZERO)


def weight(name: str, shape: tuple[int, ...], key: int | None) -> Support:
    """Returns the support of a weight with the mask of a number."""
    return Support("weight", shape, key=key, name=name)


# Operations that make 0 of 0, entry by entry.
_ALIKE = frozenset(
    (
        "neg", "abs", "sign", "sqrt", "cbrt", "sin", "tan", "tanh", "asin", "atan", "sinh",
        "asinh", "atanh", "expm1", "log1p", "erf", "square", "floor", "ceil", "round",
        "convert_element_type", "reduce_precision", "copy", "copy_p", "name", "device_put",
        "sharding_constraint", "optimization_barrier", _points.ARGUMENT.name,
    )
)  # fmt: skip
_SUMS = frozenset(("add", "sub", "add_any", "max", "min"))
_STRUCTURE = frozenset(
    (
        "reshape", "transpose", "squeeze", "slice", "rev", "broadcast_in_dim",
        "concatenate",
    )
)  # fmt: skip
# What takes a part of a weight, of which a gradient may be asked for.
_PARTS = frozenset(("gather", "dynamic_slice", "split", "pad", "dynamic_update_slice"))
_CALLS = frozenset(
    (
        "jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint",
        "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    )
)  # fmt: skip


def called(equation: Any) -> ClosedJaxpr | None:
    """Returns what an equation calls once, on its own operands."""
    if equation.primitive.name not in _CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = equation.params.get(name)
        if found is not None:
            return closed(found)
    return None


def closed(jaxpr: Any) -> ClosedJaxpr:
    """Returns a function of JAX with its constants."""
    return ClosedJaxpr(jaxpr, ()) if isinstance(jaxpr, Jaxpr) else jaxpr


class Supports:
    """Follows weights through traces."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[Support, ...]], list[Support]] = {}

    def of(self, function: ClosedJaxpr, inputs: Sequence[Support]) -> list[Support]:
        """Returns the supports of what a function returns."""
        key = id(function.jaxpr), tuple(inputs)
        if key in self._known:
            return self._known[key]
        jaxpr = function.jaxpr
        known: dict[Any, Support] = dict(zip(jaxpr.invars, inputs))

        def read(atom: Any) -> Support:
            return of_literal(atom) if isinstance(atom, Literal) else known.get(atom, NONE)

        for equation in jaxpr.eqns:
            found = self.results(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, found))
        self._known[key] = [read(atom) for atom in jaxpr.outvars]
        return self._known[key]

    def results(self, equation: Any, inputs: Sequence[Support]) -> list[Support]:
        """Returns the supports of what an equation computes."""
        name = equation.primitive.name
        shapes = _shapes(equation.invars)
        inputs = [
            UNIFORM if s == NONE and not shape else s for s, shape in zip(inputs, shapes)
        ]
        if all(s == NONE for s in inputs):
            return [NONE] * len(equation.outvars)
        if (function := called(equation)) is not None:
            return self.of(function, inputs)
        if name == "scan":
            carry, rows = self._scan(equation, inputs)
            return [*carry, *map(_stacked, rows, _shapes(equation.outvars[len(carry) :]))]
        if name == "while":
            return self.while_carry(equation, inputs)
        if name == "cond":
            branches = [self.of(b, inputs[1:]) for b in equation.params["branches"]]
            return [_joined(*found) for found in zip(*branches)]
        if name == "optimization_barrier":
            return list(inputs)
        shape = equation.outvars[0].aval.shape
        return [_of_operation(equation, inputs, shape)] * len(equation.outvars)

    def scan_body(self, equation: Any, inputs: Sequence[Support]) -> list[Support]:
        """Returns the supports of what the body of a scan takes."""
        consts = equation.params["num_consts"]
        count = equation.params["num_carry"]
        carry, _ = self._scan(equation, inputs)
        rows = map(_row, inputs[consts + count :])
        return [*inputs[:consts], *carry[:count], *rows]

    def _scan(
        self, equation: Any, inputs: Sequence[Support]
    ) -> tuple[list[Support], list[Support]]:
        """Returns the supports of what a scan carries, and of a round's results."""
        p = equation.params
        count, consts = p["num_carry"], list(inputs[: p["num_consts"]])
        carry = list(inputs[p["num_consts"] :][:count])
        rows = [_row(s) for s in inputs[p["num_consts"] + count :]]
        while True:
            found = self.of(p["jaxpr"], [*consts, *carry, *rows])
            joined = list(map(_joined, carry, found[:count]))
            if joined == carry:
                return carry, found[count:]
            carry = joined

    def while_carry(self, equation: Any, inputs: Sequence[Support]) -> list[Support]:
        """Returns the supports of what a loop carries."""
        p = equation.params
        first = p["cond_nconsts"]
        last = first + p["body_nconsts"]
        consts, carry = list(inputs[first:last]), list(inputs[last:])
        while True:
            found = self.of(p["body_jaxpr"], [*consts, *carry])
            joined = list(map(_joined, carry, found))
            if joined == carry:
                return carry
            carry = joined


def of_literal(atom: Any) -> Support:
    """Returns the support of a constant in a trace."""
    return ZERO if not jnp.shape(atom.val) and atom.val == 0 else NONE


def _shapes(variables: Sequence[Any]) -> list[tuple[int, ...]]:
    return [v.aval.shape for v in variables]


def _of_operation(
    equation: Any, inputs: Sequence[Support], shape: tuple[int, ...]
) -> Support:
    """Returns the support of the result of one operation."""
    name = equation.primitive.name
    if all(s in _CONSTANT for s in inputs):
        is_moved = name in _STRUCTURE or name in _ALIKE
        if is_moved and len(set(inputs)) == 1:
            return inputs[0]
        return UNIFORM if is_moved or _is_elementwise(equation, shape) else NONE
    if name in _ALIKE or (name == "integer_pow" and equation.params["y"] > 0):
        return inputs[0]
    if name == _points.GRADIENT.name:
        return inputs[1] if not any(equation.params["missing"]) else _unsure(inputs)
    if name in _STRUCTURE:
        return _structured(equation, inputs, shape)
    if name in _PARTS:
        return _unsure(inputs[:1])
    if not _is_elementwise(equation, shape):
        return NONE
    if name in _SUMS:
        return _sum(inputs)
    if name == "select_n":
        return _sum(inputs[1:])
    if name == "mul":
        return _product(inputs)
    if name == "div":
        return _product(inputs) if _is_of_weight(inputs[0]) else _unsure(inputs)
    return _unsure(inputs)


def _is_elementwise(equation: Any, shape: tuple[int, ...]) -> bool:
    """Returns whether all operands have the shape of the result, or are one number."""
    name = equation.primitive.name
    reads_others = name.startswith(("cum", "dot", "conv", "sort", "scatter", "random"))
    shapes = _shapes(equation.invars)
    return not reads_others and all(s in ((), shape) for s in shapes)


def _is_of_weight(support: Support) -> bool:
    return support not in (NONE, UNIFORM, ZERO, UNKNOWN)


def _unsure(inputs: Sequence[Support]) -> Support:
    return UNKNOWN if any(s.is_marked for s in inputs) else NONE


def _sum(inputs: Sequence[Support]) -> Support:
    """Returns the support of a sum, or of a choice."""
    others = {s for s in inputs if s != ZERO}
    return others.pop() if len(others) == 1 else _unsure(inputs)


def _product(inputs: Sequence[Support]) -> Support:
    """Returns the support of a multiple of a weight."""
    if ZERO in inputs:
        return ZERO
    weights = [s for s in inputs if _is_of_weight(s)]
    if not weights or any(s == NONE for s in inputs) or len(set(weights)) > 1:
        return _unsure(inputs)
    return weights[0]


def _structured(
    equation: Any, inputs: Sequence[Support], shape: tuple[int, ...]
) -> Support:
    """Returns the support of the same entries at other places."""
    params = equation.params
    if not all(map(_is_of_weight, inputs)):
        return _unsure(inputs)
    if not any(s.is_marked for s in inputs):
        return weight("", shape, None)

    def bind(*masks: Any) -> Any:
        return equation.primitive.bind(*masks, **params)

    of = f"{equation.primitive.name} {sorted(map(str, params.items()))}"
    return Support(of, shape, tuple(inputs), bind=bind)


def _stacked(support: Support, shape: tuple[int, ...]) -> Support:
    """Returns the support of the results of all rounds."""
    if not _is_of_weight(support) or not support.is_marked:
        return support if support in (UNKNOWN, ZERO, UNIFORM) else NONE

    def bind(mask: Any) -> Any:
        return jnp.broadcast_to(mask, shape)

    return Support("stack", shape, (support,), bind=bind)


def _row(support: Support) -> Support:
    """Returns the support of what one round takes of an array."""
    if support.of == "stack":
        return support.parts[0]
    return support if support in _CONSTANT else _unsure([support])


def _joined(*supports: Support) -> Support:
    """Returns the support of what is one of several."""
    others = {s for s in supports if s != ZERO}
    if not others:
        return ZERO
    return others.pop() if len(others) == 1 else _unsure(supports)
