# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Numbers of Python that are tensors in a trace.

"""What an optimizer counts, and its rate, as they count in Python.

A number there is a value: `k += 1` makes another one, and equal expressions are
equal. A tensor that stands for a number has a key, which is equal where the
expressions are.
"""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_KEY = "_sparse_opt_key"
_CONSTANTS = (int, float, torch.dtype, torch.device, type(None))


def key(value: Any) -> Any:
    """Returns the key of a number in a trace; None: it is none."""
    return getattr(value, _KEY, None)


def is_number(value: Any) -> bool:
    """Returns whether a value is a number, in Python or in a trace."""
    is_python = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_python or key(value) is not None


def are_equal(x: Any, y: Any) -> bool:
    """Returns whether two numbers are known to be one."""
    if key(x) is None and key(y) is None:
        return type(x) is type(y) and bool(x == y or x != x and y != y)
    return key(x) is not None and key(x) == key(y)


def literal(number: float, dtype: torch.dtype) -> torch.Tensor:
    """Returns a constant beside numbers of a trace."""
    tensor = torch.tensor(number, dtype=dtype)
    setattr(tensor, _KEY, ("literal", repr(number), dtype))
    return tensor


def is_literal(function: Callable[..., Any], args: Any) -> bool:
    """Returns whether a call makes a tensor of a constant."""
    return function is torch.tensor and isinstance(args[0], (int, float))


class Numbers(TorchFunctionMode):
    """Makes functions of numbers numbers, each expression once."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[Any, int] = {}
        self._values: dict[int, torch.Tensor] = {}
        self._never_zero: set[int] = set()

    def add(self, tensor: torch.Tensor, never_zero: bool = False) -> None:
        """Makes a tensor a number that is equal to no other, as far as is known."""
        place = len(self._keys)
        setattr(tensor, _KEY, self._keys.setdefault(("number", place), place))
        if never_zero:
            self._never_zero.add(key(tensor))

    def chosen(self, condition: torch.Tensor, yes: Any, no: Any) -> torch.Tensor:
        """Returns one of two numbers."""
        yes, no = (torch.as_tensor(v).to(torch.float64) for v in (yes, no))
        number = torch.where(condition, yes, no)
        self.add(number)
        return number

    def key_of(self, function: Callable[..., Any], args: Any, kwargs: Any) -> int | None:
        """Returns the key of a function of numbers and constants alone."""
        parts: list[Any] = []
        has_number = False
        for arg in (*args, *kwargs.values()):
            known = key(arg)
            has_number |= known is not None
            if known is None and not isinstance(arg, _CONSTANTS):
                return None
            parts.append((type(arg), repr(arg)) if known is None else known)
        if not has_number:
            return None
        name = _out_of_place(getattr(function, "__name__", repr(function)))
        expression = name, tuple(parts), tuple(kwargs)
        return self._keys.setdefault(expression, len(self._keys))

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        known = self.key_of(function, args, kwargs)
        if known is None:
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if name in _WITH_ZERO and key(args[0]) in self._never_zero and _is_zero(args[1]):
            return _WITH_ZERO[name]
        in_place = name != _out_of_place(name)
        if in_place and not _is_operator():
            # Code that knows that it has a tensor.
            result = function(*args, **kwargs)
            self.add(args[0])
            return result
        if known in self._values:
            return self._values[known]
        if in_place:
            function = getattr(torch.Tensor, _out_of_place(name))
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor) and not result.dim():
            setattr(result, _KEY, known)
            self._values[known] = result
        return result


# What a number that is never 0, as options of optimizers are, says beside 0.
_WITH_ZERO = {"ne": True, "gt": True, "ge": True, "eq": False, "lt": False, "le": False}
_WITH_ZERO |= {f"__{name}__": answer for name, answer in _WITH_ZERO.items()}


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and not value


def _is_operator() -> bool:
    """Returns whether it is `+=`, or another operator, that changes a number, and not
    the method of a tensor."""
    frame: Any = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return bool(frame) and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(
        ("BINARY_OP", "INPLACE_")
    )


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _out_of_place(name: str) -> str:
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name
