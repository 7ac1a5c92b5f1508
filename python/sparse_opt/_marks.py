# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Marks: which weights a step has in blocks, before anything is compiled.

"""Marks as users give them, and as the compiler takes them.

`match=weight$` matches the weights of norms and convolutions as well. What no block
fits stays dense, which one line says; a mark that nothing fits is an error that says
what could be marked.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from sparse_opt import _given, _say
from sparse_opt._errors import StepError

_MOST_NAMED = 3
_DIMS = ("stack", "row", "col")
# What a mark has that says nothing of it: lib/Transforms/Sparsity/Mark.cpp, and
# lib/Transforms/Attention/AttentionMark.h.
_OF_WEIGHTS = {"block": (16, 16), "density": 0.1}
_OF_ATTENTION = {"block": (64, 64), "window": 3, "global_": 0, "random": 0, "seed": 0}
# Keys that are no names in Python, or keywords of it.
_NAMES = {"attention-mask": "attention_mask", "global": "global_"}
_TEXTS = {name: key for key, name in _NAMES.items()}


@dataclass(frozen=True, init=False, repr=False)
class Mark:
    """Which weights are block-sparse, and how: the options of the pass `bsr-mark`.

        sparse_opt.Mark("weight$", block=16, density=0.1)

    Wherever a mark is taken, so is a dictionary of these keys, `{"match": "weight$",
    "block": 16}`, and the text that `str(mark)` is, `match=weight$ block=16x16
    density=0.1`; there, `global_` is `global`, and `attention_mask` also `attention-mask`.

    Args:
      match: a regular expression, found anywhere in the names of weights. Extended ones of
        POSIX have no `\\d`: `[0-9]`.
      block: rows and columns of a block, `(16, 8)` or `"16x8"`; both of one number. By
        default 16x16, those of the `pattern` file, or, of attention, 64x64.
      density: the share of the blocks that is stored, above 0, at most 1; by default 0.1.
      dims: what each dimension of a weight is, if it is no matrix: `("stack", "row",
        "col")`, or `"row,col,col"`. Stacks come first, then rows, then columns.
      pattern: the file of a pattern that never changes, instead of a density.
      mask: a regular expression of the names of the program's own masks.
      attention_mask: whether what matches are masks of attention, of any role.
      attention: in place of `match`, a regular expression of the names of attention, which is
        computed on blocks of queries by keys: docs/attention.md.
      window: of attention, how many blocks of keys around the diagonal a row of blocks
        has; by default 3.
      global_: of attention, how many first blocks see everything, and are seen; by default 0.
      random: of attention, how many random blocks a row has besides; by default 0.
      seed: of these.

    Raises:
      StepError: a value is none of its key, keys exclude each other, or one is unknown.
    """

    match: str | None
    attention: str | None
    block: tuple[int, int] | None
    density: float | None
    dims: tuple[str, ...] | None
    pattern: str | None
    mask: str | None
    attention_mask: bool
    window: int | None
    global_: int | None
    random: int | None
    seed: int | None

    @_given.options()
    def __init__(
        self,
        match: str | None = None,
        *,
        block: int | str | Sequence[int] | None = None,
        density: float | None = None,
        dims: str | Sequence[str] | None = None,
        pattern: str | os.PathLike[str] | None = None,
        mask: str | None = None,
        attention_mask: bool = False,
        attention: str | None = None,
        window: int | None = None,
        global_: int | None = None,
        random: int | None = None,
        seed: int | None = None,
    ) -> None:
        if (match is None) == (attention is None):
            got = "neither" if match is None else "both"
            raise StepError(f"expected match or attention in a mark, but got {got}")
        said: dict[str, Any] = {
            "match": None if match is None else _regex("match", match),
            "attention": None if attention is None else _regex("attention", attention),
            "block": None if block is None else _block(block),
            "density": None if density is None else _given.density(density),
            "dims": None if dims is None else _dims(dims),
            "pattern": None if pattern is None else _file(pattern),
            "mask": None if mask is None else _regex("mask", mask),
            "attention_mask": _given.flag("attention_mask", attention_mask),
            "window": window,
            "global_": global_,
            "random": random,
            "seed": seed,
        }
        for name in ("window", "global_", "random", "seed"):
            if said[name] is not None:
                said[name] = _given.integer(_TEXTS.get(name, name), said[name], 0, 2**63 - 1)
        if attention is not None and any(letter.isspace() for letter in attention):
            raise _given.refusal("attention to be a regular expression without spaces", attention)
        if pattern is not None and density is not None:
            raise _given.refusal("no density beside a pattern file", density)
        own, others = _OF_WEIGHTS, _OF_ATTENTION
        if attention is not None:
            own, others = others, {"density": 0, "dims": 0, "pattern": 0, "mask": 0, "attention_mask": 0}
        kind = "weights" if attention is None else "attention"
        for name in others.keys() - {"block"}:
            if said[name] not in (None, False):
                raise _given.refusal(f"no {_TEXTS.get(name, name)} in a mark of {kind}", said[name])
        if pattern is None:
            said |= {name: value for name, value in own.items() if said[name] is None}
        for name, value in said.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, mark: AnyMark) -> Mark:
        """Returns the mark that is given as one, as a dictionary or as a text.

        Raises:
          StepError: it is none.
        """
        if isinstance(mark, Mark):
            return mark
        if isinstance(mark, str):
            keys = _parsed(mark)
        elif isinstance(mark, Mapping):
            keys = dict(mark)
        else:
            raise _given.refusal(
                "a mark, or a text or a dictionary of its keys, as 'match=weight$ block=16x16'",
                mark,
            )
        known = [_TEXTS.get(name, name) for name in cls.__dataclass_fields__]
        for key in keys:
            if key not in cls.__dataclass_fields__:
                _given.require_known("a key of a mark", key, known)
        return cls(**{_NAMES.get(key, key): value for key, value in keys.items()})

    @classmethod
    def named(
        cls, name: str, block: tuple[int, int], density: float, dims: Sequence[str] | None = None
    ) -> Mark:
        """Returns the mark of one weight."""
        return cls(f"^{_escaped(name)}$", block=block, density=density, dims=dims)

    def __str__(self) -> str:
        """Returns the text that the compiler takes."""
        return " ".join(
            f"{_TEXTS.get(name, name)}={_text_of(value)}" for name, value in self._said().items()
        )

    def __repr__(self) -> str:
        keys = []
        for name, value in self._said().items():
            if name == "block" and value[0] == value[1]:
                value = value[0]
            keys.append(f"{value!r}" if name == "match" else f"{name}={value!r}")
        return f"Mark({', '.join(keys)})"

    def _said(self) -> dict[str, Any]:
        return {name: v for name, v in vars(self).items() if v is not None and v is not False}

    def matches(self, name: str) -> bool:
        """Returns whether it is of the weight with a name."""
        return self.match is not None and _search(self.match, name)

    def fits(self, shape: Sequence[int]) -> bool:
        """Returns whether what has this shape is matrices that the blocks divide."""
        dims = self.dims or ("row", "col")
        if len(dims) != len(shape):
            return False
        rows, cols = (
            math.prod(size for size, dim in zip(shape, dims) if dim == kind)
            for kind in ("row", "col")
        )
        height, width = self.block or (1, 1)
        return rows * cols != 1 and not (rows % height or cols % width)


AnyMark: TypeAlias = "Mark | str | Mapping[str, Any]"
Marks: TypeAlias = "AnyMark | Sequence[AnyMark]"


def listed(marks: Any) -> list[Mark]:
    """Returns marks that are given as such, as dictionaries or as texts; one needs no list."""
    if isinstance(marks, (Mark, str, Mapping)):
        marks = [marks]
    return [Mark.of(mark) for mark in _given.listed("a list of marks", marks)]


_TOKEN = re.compile(r"""([^\s=]+)(?:=('[^']*'|"[^"]*"|\{[^{}]*\}|\S*))?(?!\S)""")
_QUOTED = re.compile(r"""('|"|\{).*(?:\1|\})""", re.DOTALL)
_NUMBERS = {"density": float, "window": int, "global": int, "random": int, "seed": int}


def _parsed(text: str) -> dict[str, Any]:
    """Returns the keys of a text, in which values with spaces are in quotes or braces."""
    keys: dict[str, Any] = {}
    for key, value in _TOKEN.findall(text):
        if len(value) > 2 and _QUOTED.fullmatch(value):
            value = value[1:-1]
        try:
            keys[key] = _NUMBERS[key](value) if key in _NUMBERS else value
        except ValueError:
            keys[key] = value  # which the check of the key refuses
        if key == "attention-mask":
            keys[key] = {"": True, "true": True, "false": False}.get(value.lower(), value)
    return keys


def _text_of(value: Any) -> str:
    """Returns a value of a mark as its text has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ("x" if isinstance(value[0], int) else ",").join(map(str, value))
    if isinstance(value, str) and any(letter.isspace() for letter in value):
        return f'"{value}"' if "'" in value else f"'{value}'"
    return str(value)


def _regex(name: str, value: Any) -> str:
    expected = f"{name} to be a regular expression"
    if not isinstance(value, str) or not value or "\0" in value:
        raise _given.refusal(expected, value)
    try:
        _search(value, "")
    except re.error as error:
        raise StepError(f"{_given.refusal(expected, value)}: {error}") from error
    return value


_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \\t", "digit": "0-9", "lower": "a-z",
    "space": "\\s", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


def _search(regex: str, name: str) -> bool:
    """Returns whether an expression of POSIX is found in a name."""
    known = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], found[0]), regex)
    return re.search(known, name) is not None


def _escaped(name: str) -> str:
    # A space would end an expression that is not quoted.
    return re.sub(r"([][.*+?^${}()|\\])", r"\\\1", name).replace(" ", ".")


def _block(value: Any) -> tuple[int, int]:
    sizes = re.fullmatch(r"([0-9]+)(?:x([0-9]+))?", value) if isinstance(value, str) else None
    try:
        return _given.block((int(sizes[1]), int(sizes[2] or sizes[1])) if sizes else value)
    except StepError:
        expected = "block to be an integer from 1, two (rows and columns), or a text like 16 or 16x8"
        raise _given.refusal(expected, value) from None


def _dims(value: Any) -> tuple[str, ...]:
    expected = "dims of stack, row or col for each dimension, in this order, with a row and a col"
    dims = value.split(",") if isinstance(value, str) else _given.listed(expected, value)
    is_known = all(dim in _DIMS for dim in dims) and {"row", "col"} <= set(dims)
    if not is_known or dims != sorted(dims, key=_DIMS.index):
        raise _given.refusal(expected, value)
    return tuple(dims)


def _file(value: Any) -> str:
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path or "\0" in path:
        raise _given.refusal("pattern to be the path of a file", value)
    return path


def blocks_of(mark: Mark) -> str:
    """Returns what divides the weights of a mark, in words."""
    return "blocks" if mark.block is None else f"blocks of {_text_of(mark.block)}"


def require_apart(names: Collection[str], marks: Sequence[Mark]) -> None:
    """Raises `StepError` if marks match weights, by name, that lie in blocks already."""
    for mark in marks:
        for name in names:
            if mark.matches(name):
                raise StepError(
                    "expected marks of weights that no layer has in blocks, but got"
                    f" {_given.shown(mark.match)}, which matches '{name}': the step takes over"
                    " the blocks of layers"
                )


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


@dataclass(frozen=True)
class Argument:
    """An argument of the text of a step: its type is that of an element, as `f32`."""

    name: str
    role: str
    shape: tuple[int, ...]
    type: str
    is_carried: bool

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def may_be_weight(self) -> bool:
        return self.role in ("", "param") and self.type.lstrip("b").startswith("f")

    @property
    def is_weight(self) -> bool:
        return self.may_be_weight and (self.role == "param" or self.is_carried)


_ARGUMENT = re.compile(
    r'%[\w$.-]+: (?:tensor<((?:\d+x)*)([a-z]+\d+)>|!(\w+))[^{},"]*\{((?:"(?:[^"\\]|\\.)*"|[^{}"])*)\}'
)
_ALIAS = re.compile(r"^!(\w+) = tensor<((?:\d+x)*)([a-z]+\d+)>", re.MULTILINE)
_ATTRIBUTE = re.compile(r'bsr\.(name|role) = "((?:[^"\\]|\\.)*)"')


def arguments_of(export: str) -> dict[str, Argument]:
    """Returns the arguments of a step that have a name, by it."""
    aliases = {name: (sizes, kind) for name, sizes, kind in _ALIAS.findall(export)}
    arguments: dict[str, Argument] = {}
    for sizes, kind, alias, attributes in _ARGUMENT.findall(export):
        if alias in aliases:
            sizes, kind = aliases[alias]
        known = {key: unescaped(value) for key, value in _ATTRIBUTE.findall(attributes)}
        if kind and "name" in known:
            shape = tuple(int(n) for n in sizes.split("x") if n)
            name, role = known["name"], known.get("role", "")
            is_carried = "bsr.result" in attributes
            arguments.setdefault(name, Argument(name, role, shape, kind, is_carried))
    return arguments


def unescaped(text: str) -> str:
    """Returns a string of MLIR's text."""
    if "\\" not in text:
        return text
    raw = re.sub(
        rb"\\([0-9A-Fa-f]{2}|.)",
        lambda found: bytes.fromhex(found[1].decode()) if len(found[1]) == 2 else found[1],
        text.encode(errors="surrogateescape"),
    )
    return raw.decode(errors="surrogateescape")


def of_weights(marks: Sequence[Mark]) -> list[Mark]:
    """Returns what marks say of weights alone: masks are found by what a step does."""
    own = (mark for mark in marks if mark.attention is None and not mark.attention_mask)
    return [replace(mark, mask=None) for mark in own]


def fitted(export: str, marks: Sequence[Mark], says: bool = True) -> list[Mark]:
    """Returns marks that match only what their blocks fit; logs what stays dense if it
    `says` so.

    Raises:
      StepError: a mark matches no weight, or fits nothing of what it matches, but
        something else.
    """
    arguments = arguments_of(export).values()
    shapes = {a.name: a.shape for a in arguments if a.may_be_weight}
    unused = re.search(r"bsr\.unused = \[([^\]]*)\]", export)
    names = re.findall(r'"((?:[^"\\]|\\.)*)"', unused[1]) if unused else []
    return [_fit(mark, shapes, [unescaped(name) for name in names], says) for mark in marks]


def _fit(
    mark: Mark, shapes: Mapping[str, tuple[int, ...]], unused: Sequence[str], says: bool
) -> Mark:
    if mark.match is None or mark.attention_mask or not shapes:
        return mark
    matched = [name for name in shapes if mark.matches(name)]
    fit = [name for name in matched if mark.fits(shapes[name])]
    others = [name for name in shapes if name not in matched and mark.fits(shapes[name])]
    left = [name for name in matched if name not in fit]
    shown, what = _given.shown(mark.match), f"matrices that {blocks_of(mark)} divide"
    if not matched and not any(map(mark.matches, unused)):
        raise StepError(
            f"expected {shown} to match the bsr.name of a weight, but got no match in"
            f" {len(shapes)} names: "
            + (
                f"the nearest are {named(_nearest(mark.match, others), shapes)}"
                if others
                else f"none is of {what}"
            )
        )
    if fit and left:
        if says:
            _say.line(
                f"{shown} marks {len(fit)} of {len(matched)} weights, the"
                f" {what}; dense stay {named(left, shapes)}"
            )
        return replace(mark, match=f"^({'|'.join(map(_escaped, fit))})$")
    if left and others:
        raise StepError(
            f"expected {shown} to match {what}, but got"
            f" {named(left, shapes)}: choose another block, or mark"
            f" {named(others, shapes)}"
        )
    return mark  # The compiler says what is wrong with it.


def _nearest(match: str, names: Sequence[str]) -> list[str]:
    """Returns names, those first that are most like an expression."""
    matcher = difflib.SequenceMatcher(b=match, autojunk=False)

    def likeness(name: str) -> float:
        matcher.set_seq1(name)
        return matcher.ratio()

    return sorted(names, key=likeness, reverse=True)


def named(names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> str:
    """Returns the first of some weights, with their shapes, and how many more there are."""
    first = [f"'{name}' {list(shapes[name])}" for name in names[:_MOST_NAMED]]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
