# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks of arguments of the public API.

"""Arguments as users give them: as what is computed with, or one sentence that names them."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from sparse_opt._errors import StepError

P = ParamSpec("P")
R = TypeVar("R")


def shown(value: Any) -> str:
    """Returns a value as a sentence has it: in one line, or what it is where that is long."""
    if isinstance(value, str) and value.isprintable():
        return f"'{value}'"
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def refusal(expected: str, value: Any) -> StepError:
    return StepError(f"expected {expected}, but got {shown(value)}")


def require_known(
    expected: str, name: Any, known: Collection[str], error: type[ValueError] = StepError
) -> None:
    """Raises an error that has the known name which is nearest to one that is not, or all."""
    if name in known:
        return
    nearest = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
    hint = f"the nearest is '{nearest[0]}'" if nearest else f"there are {', '.join(known)}"
    raise error(f"expected {expected}, but got {shown(name)}: {hint}")


def options(
    error: type[ValueError] = StepError, within: Callable[..., Any] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator of a public function, or of a class's `__init__`, which refuses
    options by names that it has not. Others may be those of the function `within` it."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = function.__qualname__.removesuffix(".__init__")
        known = [
            parameter.name
            for each in (function, *([within] if within else []))
            for parameter in inspect.signature(each).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and parameter.name != "self"
        ]

        @functools.wraps(function)
        def checked(*arguments: P.args, **named: P.kwargs) -> R:
            for name in named:
                require_known(f"an option of {called}", name, known, error)
            return function(*arguments, **named)

        return checked

    return decorate


def integer(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """Returns an integer of Python's or of others; a flag is none."""
    number = _integer(value)
    if number is None or number < least:
        raise refusal(f"{name} to be an integer from {least}", value)
    if most is not None and number > most:
        raise refusal(f"{name} to be an integer from {least} to {most}", value)
    return number


def _integer(value: Any) -> int | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # as arrays that are no number say
        return None


def seed(value: Any) -> int:
    """Returns what keys the random choices of a run."""
    return integer("seed", value, 0, 2**64 - 1)


def share(name: str, value: Any) -> float:
    """Returns a part of a whole, from none to all of it."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise refusal(f"{name} to be a number from 0 to 1", value)
    return float(value)


def number(name: str, value: Any) -> float:
    """Returns a finite number of at least 0."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise refusal(f"{name} to be a number of at least 0", value)
    return float(value)


def density(value: Any) -> float:
    """Returns the share of the blocks of a weight that is stored."""
    if not _is_number(value) or not 0 < value <= 1:
        raise refusal("a density above 0, at most 1", value)
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def flag(name: str, value: Any) -> bool:
    """Returns whether something is wanted."""
    if not isinstance(value, (int, np.bool_)) or value not in (0, 1):
        raise refusal(f"{name} to be True or False", value)
    return bool(value)


def choice(value: Any, known: Sequence[str]) -> str:
    """Returns one of some texts."""
    if not isinstance(value, str) or value not in known:
        raise refusal(f"one of {', '.join(known)}", value)
    return value


def block(value: Any) -> tuple[int, int]:
    """Returns the rows and the columns of a block, which are equal where one number is given."""
    both = value if isinstance(value, (list, tuple)) else (value, value)
    sizes = [size for size in map(_integer, both) if size is not None and size > 0]
    if len(both) != 2 or len(sizes) != 2:
        raise refusal("block to be an integer from 1, or two (rows and columns)", value)
    return sizes[0], sizes[1]


def size(name: str, value: Any) -> int:
    """Returns a number of rows or columns, which kernels count in 32 bits."""
    return integer(name, value, 1, 2**31 - 1)


def listed(expected: str, value: Any) -> list[Any]:
    """Returns what is given in a list, or in another collection, which a text is not."""
    try:
        found = list(value)
    except TypeError as error:
        raise refusal(expected, value) from error
    if isinstance(value, str):
        raise refusal(expected, value)
    return found


def mask(expected: str, value: Any) -> np.ndarray[Any, Any]:
    """Returns an array of flags of any framework that NumPy reads, or of lists."""
    try:
        found = np.asarray(value).astype(np.bool_)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refusal(expected, value) from error
    if isinstance(value, str) or not found.ndim:
        raise refusal(expected, value)
    return found


def name(text: str) -> str:
    """Returns the name of a weight, which messages, marks and files hold in one line."""
    if not text.isprintable():
        raise refusal("names of layers without control characters", text)
    return text
