# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Which weights a mark takes, before anything is compiled.

"""Marks that match more than matrices that their blocks divide.

`match=weight$` matches the weights of norms and convolutions as well. What no block
fits stays dense, which one line says; a mark that nothing fits is an error that says
what could be marked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparse_opt import _say
from sparse_opt._errors import StepError

_ARGUMENT = re.compile(r"tensor<((?:\d+x)*)(b?f\d+)>[^{},]*\{([^{}]*)\}")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Mark:
    """What a mark says of plain matrices."""

    match: re.Pattern[str]
    rows: int
    cols: int
    density: float

    @classmethod
    def of(cls, mark: str) -> Mark | None:
        """Returns what a mark says; None if it is of other arguments, or the compiler has
        to say what is wrong with it."""
        options = dict(part.partition("=")[::2] for part in mark.split())
        block = re.fullmatch(r"(\d+)x(\d+)", options.get("block", "16x16"))
        if not {"match"} <= set(options) <= {"match", "block", "density"} or not block:
            return None
        sizes = int(block[1]), int(block[2])
        try:
            match, density = re.compile(options["match"]), float(options.get("density", "0.1"))
        except (re.error, ValueError):
            return None
        return cls(match, *sizes, density) if all(sizes) else None

    def fits(self, shape: Sequence[int]) -> bool:
        """Returns whether blocks divide what has this shape."""
        if len(shape) != 2 or shape[0] * shape[1] == 1:
            return False
        return not (shape[0] % self.rows or shape[1] % self.cols)


def text_of(name: str, rows: int, cols: int, density: float) -> str:
    """Returns the mark of one weight."""
    # A space would end the expression.
    escaped = re.sub(r"([][.*+?^${}()|\\])", r"\\\1", name).replace(" ", ".")
    return f"match=^{escaped}$ block={rows}x{cols} density={density!r}"


def require_apart(names: Collection[str], marks: Sequence[str]) -> None:
    """Raises `StepError` if marks match weights, by name, that lie in blocks already."""
    for mark in marks:
        for name in names:
            if _matches(mark, name):
                raise StepError(
                    f"expected marks of weights that no layer has in blocks, but got '{mark}',"
                    f" which matches '{name}': the step takes over the blocks of layers"
                )


def _matches(mark: Any, name: str) -> bool:
    """Returns whether a mark is of a weight; one that is none the compiler refuses."""
    match = re.search(r"(?:^|\s)match=(\S+)", mark) if isinstance(mark, str) else None
    try:
        return match is not None and re.search(match[1], name) is not None
    except re.error:
        return False


@dataclass(frozen=True)
class Weight:
    """An argument that may be marked."""

    name: str
    shape: Sequence[int]
    dtype: str  # as NumPy and PyTorch name it: float32


def step_of(weights: Iterable[Weight]) -> str:
    """Returns a step that has these weights and computes nothing."""
    arguments = (
        f"%arg{i}: tensor<{''.join(f'{n}x' for n in w.shape)}{_TYPES.get(w.dtype, 'f32')}>"
        f' {{bsr.name = {json.dumps(w.name, ensure_ascii=False)}, bsr.role = "param"}}'
        for i, w in enumerate(weights)
    )
    return f"func.func @step({', '.join(arguments)}) {{ return }}\n"


_TYPES = {"bfloat16": "bf16", "float16": "f16", "float64": "f64", "bool": "i1"} | {
    f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def of_weights(marks: Sequence[str]) -> list[str]:
    """Returns what marks say of weights alone: masks are found by what a step does."""
    own = (mark for mark in marks if not _ATTENTION.match(mark))
    return [_MASK.sub("", mark) for mark in own]


_ATTENTION = re.compile(r"\s*attention=")
_MASK = re.compile(r"(?:^|\s)mask=\S+")


def fitted(export: str, marks: Sequence[str], says: bool = True) -> list[str]:
    """Returns marks that match only what their blocks fit; logs what stays dense if it
    `says` so.

    Raises:
      StepError: a mark fits nothing of what it matches, but something else.
    """
    shapes = _shapes(export)
    return [_fit(mark, shapes, says) for mark in marks]


def _shapes(export: str) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a step's weights, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for sizes, _, attributes in _ARGUMENT.findall(export):
        name = re.search(r'bsr\.name = "([^"]*)"', attributes)
        role = re.search(r'bsr\.role = "([^"]*)"', attributes)
        if name and (role is None or role[1] == "param"):
            shape = tuple(int(n) for n in sizes.split("x") if n)
            shapes.setdefault(name[1], shape)
    return shapes


def _fit(text: str, shapes: Mapping[str, tuple[int, ...]], says: bool) -> str:
    mark = Mark.of(text) if isinstance(text, str) else None
    if mark is None:
        return text
    matched = [name for name in shapes if mark.match.search(name)]
    fit = [name for name in matched if mark.fits(shapes[name])]
    if len(fit) == len(matched):
        return text
    others = [name for name in shapes if name not in matched and mark.fits(shapes[name])]
    left = [name for name in matched if name not in fit]
    what = f"matrices that blocks of {mark.rows}x{mark.cols} divide"
    if fit:
        if says:
            _say.line(
                f"'{mark.match.pattern}' marks {len(fit)} of {len(matched)} weights, the"
                f" {what}; dense stay {_named(left, shapes)}"
            )
        names = "|".join(map(re.escape, fit))
        return text.replace(f"match={mark.match.pattern}", f"match=^({names})$")
    if others:
        raise StepError(
            f"expected '{mark.match.pattern}' to match {what}, but got"
            f" {_named(left, shapes)}: choose another block, or mark"
            f" {_named(others, shapes)}"
        )
    return text  # The compiler says what is wrong with it.


def _named(names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> str:
    first = [f"'{name}' {list(shapes[name])}" for name in names[:_MOST_NAMED]]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
