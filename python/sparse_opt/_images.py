# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Programs of convolutions with one block-sparse matrix.

"""What the products of a convolutional layer read and make: images. A kernel is one of a few
numbers of images of one size, as others are of a few numbers of tokens."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from sparse_opt import _lines
from sparse_opt._lines import Extent, Line
from sparse_opt._product_text import Operands
from sparse_opt._products import ITEMSIZES, Matrix

_MOST_WINDOWS, _MOST_POINTS = 1024, 256
"""Of the images of a call: so many fill the kernels' tiles, and what they read stays in a cache
nearby. Images whose windows are elements lie apart."""


@dataclass(frozen=True)
class Convolved(Matrix):
    """The type of a block-sparse matrix that multiplies windows of images of one size."""

    extents: tuple[Extent, ...] = ()

    __hash__ = Matrix.__hash__  # else it would be that of the fields, at each call

    @property
    def channels(self) -> int:
        return self.cols // math.prod(e.kernel for e in self.extents)

    @functools.cached_property
    def image_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of an image that is read, and of what is made of it."""
        x = (self.channels, *(e.size for e in self.extents))
        y = (self.rows, *(e.out for e in self.extents))
        return {"x": x, "dx": x, "y": y, "z": y, "dy": y}

    def row_bytes(self, name: str) -> int:
        shape = self.image_shapes.get(name)
        return math.prod(shape) * ITEMSIZES[self.type] if shape else 0

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        windows = math.prod(e.out for e in self.extents)
        most = _MOST_POINTS if _are_points(self.extents) else _MOST_WINDOWS
        most = max(most // windows, 1).bit_length() - 1
        return tuple(1 << n for n in reversed(range(most + 1)))

    def operands(self, tokens: int) -> Operands:
        return _Points(self, tokens) if _are_points(self.extents) else _Windows(self, tokens)


def window_of(
    kernel: Sequence[int],
    pads: Sequence[tuple[int, int]],
    stride: Sequence[int],
    step: Sequence[int],
) -> tuple[int, ...]:
    """Returns five numbers for each dimension: places of a window, zeros in front of images and
    behind them, and from one window, and from one place, to the next."""
    return tuple(
        n for k, pad, s, d in zip(kernel, pads, stride, step) for n in (k, *pad, s, d)
    )


def extents_of(size: Sequence[int], window: Sequence[int]) -> tuple[Extent, ...]:
    return tuple(Extent(n, *window[5 * d : 5 * d + 5]) for d, n in enumerate(size))


def result_size(size: Sequence[int], window: Sequence[int]) -> list[int]:
    return [e.out for e in extents_of(size, window)]


@functools.cache
def convolved(matrix: Matrix, size: tuple[int, ...], window: tuple[int, ...]) -> Convolved:
    """Returns a matrix as that of windows of images of a size."""
    own = {field.name: getattr(matrix, field.name) for field in fields(Matrix)}
    return Convolved(**own, extents=extents_of(size, window))


def _are_points(extents: Sequence[Extent]) -> bool:
    """Whether the windows of an image are its elements."""
    return all(e.kernel == e.stride == 1 and e.low == e.high == 0 for e in extents)


class _Value:
    """A tensor of a program, which grows by what is done with it."""

    def __init__(self, lines: list[str], name: str, shape: Sequence[int], kind: str) -> None:
        self.lines, self.name, self.shape, self.kind = lines, name, list(shape), kind

    @property
    def type(self) -> str:
        return f"tensor<{'x'.join(map(str, self.shape))}x{self.kind}>"

    def _made(self, text: str, shape: Sequence[int], kind: str = "") -> _Value:
        made = _Value(self.lines, f"%t{len(self.lines)}", shape, kind or self.kind)
        self.lines.append(f"{made.name} = {text.replace('TYPE', made.type)}")
        return made

    def reshape(self, shape: Sequence[int]) -> _Value:
        known = math.prod(n for n in shape if n != -1)
        shape = [math.prod(self.shape) // known if n == -1 else n for n in shape]
        joint, olds, news = _groups(self.shape, shape)
        found = self
        if any(len(group) > 1 for group in olds):
            found = found._made(
                f"tensor.collapse_shape {found.name} {olds} : {found.type} into TYPE", joint
            )
        if any(len(group) > 1 for group in news):
            found = found._made(
                f"tensor.expand_shape {found.name} {news} output_shape {shape} : {found.type}"
                " into TYPE",
                shape,
            )
        return found

    def permute(self, dims: Sequence[int]) -> _Value:
        shape = [self.shape[d] for d in dims]
        empty = self._made("tensor.empty() : TYPE", shape)
        return self._made(
            f"linalg.transpose ins({self.name} : {self.type}) outs({empty.name} : {empty.type})"
            f" permutation = {list(dims)}",
            shape,
        )

    def narrow(self, dim: int, start: int, length: int) -> _Value:
        return self if length == self.shape[dim] else self.slice(dim, start, length, 1)

    def slice(self, dim: int, start: int, length: int, step: int) -> _Value:
        shape = [*self.shape[:dim], length, *self.shape[dim + 1 :]]
        offsets = [start if d == dim else 0 for d in range(len(shape))]
        steps = [step if d == dim else 1 for d in range(len(shape))]
        return self._made(
            f"tensor.extract_slice {self.name}{offsets} {shape} {steps} : {self.type}"
            " to TYPE",
            shape,
        )

    def __add__(self, other: _Value) -> _Value:
        types = f"{self.type}, {other.type}"
        empty = self._made("tensor.empty() : TYPE", self.shape)
        return self._made(
            f"linalg.add ins({self.name}, {other.name} : {types}) outs({empty.name} :"
            f" {empty.type}) -> TYPE",
            self.shape,
        )

    def rounded(self, kind: str) -> _Value:
        if kind == self.kind:
            return self
        dims = ", ".join(f"d{d}" for d in range(len(self.shape)))
        maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * 2)
        kinds = ", ".join(['"parallel"'] * len(self.shape))
        empty = self._made("tensor.empty() : TYPE", self.shape, kind)
        return self._made(
            f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f" ins({self.name} : {self.type}) outs({empty.name} : {empty.type}) {{\n"
            f"  ^bb0(%0: {self.kind}, %1: {kind}):\n"
            f"    %2 = arith.truncf %0 : {self.kind} to {kind}\n"
            f"    linalg.yield %2 : {kind}\n  }} -> TYPE",
            self.shape,
            kind,
        )


def _groups(
    olds: Sequence[int], news: Sequence[int]
) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Returns the shortest runs of dimensions that have as many elements in two shapes: how
    many, and the dimensions of each in both."""
    joint: list[int] = []
    old_groups: list[list[int]] = []
    new_groups: list[list[int]] = []
    i = j = 0
    while i < len(olds) or j < len(news):
        old, new = olds[i : i + 1], news[j : j + 1]
        a, b = math.prod(old), math.prod(new)
        if joint and (not old or not new):
            # Ones that are left belong to the last run.
            old_groups[-1] += range(i, len(olds))
            new_groups[-1] += range(j, len(news))
            break
        first, second = [i], [j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a *= olds[i]
                first.append(i)
                i += 1
            else:
                b *= news[j]
                second.append(j)
                j += 1
        joint.append(a)
        old_groups.append(first)
        new_groups.append(second)
    return joint, old_groups, new_groups


def _cat(parts: Sequence[_Value], dim: int) -> _Value:
    first = parts[0]
    if len(parts) == 1:
        return first
    shape = [*first.shape]
    shape[dim] = sum(part.shape[dim] for part in parts)
    names = ", ".join(part.name for part in parts)
    types = ", ".join(part.type for part in parts)
    return first._made(f"tensor.concat dim({dim}) {names} : ({types}) -> TYPE", shape)


def _zeros(like: _Value, shape: Sequence[int]) -> _Value:
    return like._made("arith.constant dense<0.0> : TYPE", shape)


_ARRAYS = _lines.Arrays(_cat, _zeros, _Value.slice)


class _Points(Operands):
    """Windows are elements: each image is channels by elements, and stays where it is."""

    def __init__(self, matrix: Convolved, images: int) -> None:
        super().__init__(matrix, images)
        points = math.prod(e.size for e in matrix.extents)
        self.x = f"tensor<{images}x{matrix.cols}x{points}x{matrix.type}>"
        self.y = self.product = f"tensor<{images}x{matrix.rows}x{points}x{matrix.type}>"


class _Windows(Operands):
    """Windows are columns, slices of the line that images lie in."""

    feature_dim = 0

    def __init__(self, matrix: Convolved, images: int) -> None:
        super().__init__(matrix, images)
        self._shapes = {name: [images, *shape] for name, shape in matrix.image_shapes.items()}
        self.x, self.y = self._value("%x", "x").type, self._value("%y", "y").type
        self._line = Line(_ARRAYS, images, matrix.extents)
        self._product = [matrix.rows, self._line.columns]
        self.product = self._value("%y", self._product).type
        self._gradients: tuple[_Value, _Value] | None = None

    def _value(self, name: str, shape: str | Sequence[int], kind: str = "") -> _Value:
        """Returns a value of a shape, or that of an argument."""
        found = self._shapes[shape] if isinstance(shape, str) else shape
        return _Value(self.body, name, found, kind or self.matrix.type)

    def read_x(self) -> tuple[str, str]:
        windows = self._line.windows(self._value("%x", "x"))
        return windows.name, windows.type

    def made_y(self, product: str) -> str:
        name: str = self._line.split(self._value(product, self._product)).name
        return name

    def read_dy(self, dy: str, for_dx: bool) -> tuple[str, str]:
        if self._gradients is None:
            self._gradients = self._line.gradient_line(self._value(dy, "y"))
        found = self._gradients[0 if for_dx else 1]
        return found.name, found.type

    def product_dx(self, dy: str) -> str:
        assert self._gradients is not None
        # Sums of 16-bit floats are rounded once.
        kind = self.matrix.type if self.matrix.type == "f64" else "f32"
        columns = self._gradients[0].shape[1]
        self._dx = self._value("%dx", [self.matrix.cols, columns], kind)
        return self._dx.type

    def made_dx(self, product: str) -> str:
        dx: _Value = self._line.sum_windows(self._dx)
        return dx.rounded(self.matrix.type).name
