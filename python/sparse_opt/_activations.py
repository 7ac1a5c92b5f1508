# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Activations that the kernel of a layer computes with its product.

"""The bodies of activations and of their gradients, as text of MLIR.

Numbers of 16 bits are widened, and the result is rounded once, as frameworks do it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

NAMES = ("relu", "gelu", "gelu_tanh", "silu")


class _Body:
    """Operations on scalars of one type."""

    def __init__(self, type: str) -> None:
        self.type = type
        self.lines: list[str] = []

    def __call__(self, operation: str, *operands: str | float) -> str:
        """Appends an operation on values and numbers, and returns its result."""
        held = [o if isinstance(o, str) else self._number(o) for o in operands]
        return self._append(f"{operation} {', '.join(held)} : {self.type}")

    def _number(self, number: float) -> str:
        return self._append(f"arith.constant {number:.17e} : {self.type}")

    def _append(self, operation: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {operation}")
        return name

    def converted(self, value: str, operation: str, type: str) -> str:
        """Appends a conversion, after which operations have another type."""
        name = self._append(f"{operation} {value} : {self.type} to {type}")
        self.type = type
        return name


def _sum(b: _Body, x: str | float, y: str | float) -> str:
    return b("arith.addf", x, y)


def _product(b: _Body, x: str | float, y: str | float) -> str:
    return b("arith.mulf", x, y)


def _relu(b: _Body, z: str) -> str:
    return b("arith.maximumf", z, 0.0)


def _relu_gradient(b: _Body, z: str, dy: str) -> str:
    # NaN lets the gradient through, as in PyTorch.
    zero = b._number(0.0)
    is_off = b._append(f"arith.cmpf ole, {z}, {zero} : {b.type}")
    return b._append(f"arith.select {is_off}, {zero}, {dy} : {b.type}")


def _normal(b: _Body, z: str) -> str:
    """The share of a normal distribution below z."""
    return _product(b, 0.5, _sum(b, 1.0, b("math.erf", _product(b, z, math.sqrt(0.5)))))


def _gelu(b: _Body, z: str) -> str:
    return _product(b, z, _normal(b, z))


def _gelu_gradient(b: _Body, z: str, dy: str) -> str:
    density = b("math.exp", _product(b, _product(b, z, z), -0.5))
    density = _product(b, density, 1 / math.sqrt(2 * math.pi))
    return _product(b, dy, _sum(b, _normal(b, z), _product(b, z, density)))


_SCALE, _CUBE = math.sqrt(2 / math.pi), 0.044715


def _tanh(b: _Body, z: str) -> str:
    inner = _sum(b, z, _product(b, _CUBE, _product(b, z, _product(b, z, z))))
    return b("math.tanh", _product(b, _SCALE, inner))


def _gelu_tanh(b: _Body, z: str) -> str:
    return _product(b, _product(b, 0.5, z), _sum(b, 1.0, _tanh(b, z)))


def _gelu_tanh_gradient(b: _Body, z: str, dy: str) -> str:
    tanh = _tanh(b, z)
    inner = _product(b, _SCALE, _sum(b, 1.0, _product(b, 3 * _CUBE, _product(b, z, z))))
    rest = b("arith.subf", 1.0, _product(b, tanh, tanh))
    slope = _sum(b, _sum(b, 1.0, tanh), _product(b, z, _product(b, rest, inner)))
    return _product(b, dy, _product(b, 0.5, slope))


def _sigmoid(b: _Body, z: str) -> str:
    return b("arith.divf", 1.0, _sum(b, 1.0, b("math.exp", b("arith.negf", z))))


def _silu(b: _Body, z: str) -> str:
    return b("arith.divf", z, _sum(b, 1.0, b("math.exp", b("arith.negf", z))))


def _silu_gradient(b: _Body, z: str, dy: str) -> str:
    share = _sigmoid(b, z)
    rest = _sum(b, 1.0, _product(b, z, b("arith.subf", 1.0, share)))
    return _product(b, dy, _product(b, share, rest))


_VALUES: dict[str, Callable[[_Body, str], str]] = {
    "relu": _relu, "gelu": _gelu, "gelu_tanh": _gelu_tanh, "silu": _silu,
}  # fmt: skip
_GRADIENTS: dict[str, Callable[[_Body, str, str], str]] = {
    "relu": _relu_gradient, "gelu": _gelu_gradient, "gelu_tanh": _gelu_tanh_gradient,
    "silu": _silu_gradient,
}  # fmt: skip


def value(name: str, result: str, z: str, type: str, element: str) -> str:
    """Returns the operation that makes `result` of the tensor `z` of a type."""
    return _generic(element, result, [z], type, lambda b, z: _VALUES[name](b, z))


def gradient(name: str, result: str, z: str, dy: str, type: str, element: str) -> str:
    """Returns the operation that makes the gradient with respect to `z` of that with respect
    to the activation's result, `dy`."""
    return _generic(
        element, result, [z, dy], type, lambda b, z, dy: _GRADIENTS[name](b, z, dy)
    )


def _generic(
    element: str, result: str, inputs: list[str], type: str, compute: Callable[..., str]
) -> str:
    body = _Body(element)
    operands = [f"%i{number}" for number in range(len(inputs))]
    if element in ("bf16", "f16"):
        widened = []
        for operand in operands:
            body.type = element
            widened.append(body.converted(operand, "arith.extf", "f32"))
        found = body.converted(compute(body, *widened), "arith.truncf", element)
    else:
        found = compute(body, *operands)
    rank = type.count("x")
    dims = ", ".join(f"d{d}" for d in range(rank))
    maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * (len(inputs) + 1))
    kinds = ", ".join(['"parallel"'] * rank)
    block = ", ".join(f"{operand}: {element}" for operand in [*operands, "%o"])
    lines = "\n    ".join(body.lines)
    return f"""{result}_out = tensor.empty() : {type}
  {result} = linalg.generic {{indexing_maps = [{maps}],
      iterator_types = [{kinds}]}}
      ins({', '.join(inputs)} : {', '.join([type] * len(inputs))}) outs({result}_out : {type}) {{
  ^bb0({block}):
    {lines}
    linalg.yield {found} : {element}
  }} -> {type}"""
