# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Pooling, padding and convolutions, as slices and what joins them.

"""Operations on windows of spatial dimensions, one dimension after the other.

Each is a function of slices, so that its gradient is that of slices: PyTorch's own
backward operations are the gradients of these functions (`GRADIENTS`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from sparse_opt.torch.rewrites import _lines

aten = torch.ops.aten

Window = tuple[int, int]


def _per_dim(values: Sequence[int] | int, count: int) -> list[int]:
    """Returns one number for each of `count` dimensions."""
    numbers = [values] if isinstance(values, int) else list(values)
    return numbers * count if len(numbers) == 1 else numbers


def _pad(x: torch.Tensor, dim: int, low: int, high: int, value: Any) -> Any:
    if not low and not high:
        return x
    if min(low, high) < 0:
        behind = x.dim() - 1 - dim
        return aten.constant_pad_nd(x, [0, 0] * behind + [low, high], value)
    # A concatenation is written in one pass, a padding in two.
    shapes = [[*x.shape[:dim], n, *x.shape[dim + 1 :]] for n in (low, high) if n]
    parts = [x.new_full(shape, value) for shape in shapes]
    return torch.cat([*parts[: low > 0], x, *parts[low > 0 :]], dim)


def _left_over(length: int, stride: int) -> int:
    """Returns how many elements are missing from the last `stride` of them."""
    return -length % stride


def _slices(
    x: torch.Tensor, dim: int, count: int, out: int, stride: int, step: int
) -> list[torch.Tensor]:
    """Returns for each place of a window those elements of `out` windows.

    Of a stride above one, elements whose places have one remainder are a tensor of their own,
    of which the windows are slices: gradients of these are sums and one concatenation.
    """
    if stride == 1:
        return [x.narrow(dim, i * step, out) for i in range(count)]
    rows = (count - 1) * step // stride + out
    length = rows * stride
    if length < x.shape[dim]:
        x = x.narrow(dim, 0, length)
    x = _pad(x, dim, 0, length - x.shape[dim], 0)
    phases = x.reshape([*x.shape[:dim], rows, stride, *x.shape[dim + 1 :]]).unbind(dim + 1)
    places = [divmod(i * step, stride) for i in range(count)]
    return [phases[phase].narrow(dim, row, out) for row, phase in places]


class _Pool:
    """The windows of a pooling along one dimension of `length`."""

    def __init__(
        self, length: int, kernel: int, stride: int, padding: int, step: int, ceil: bool
    ) -> None:
        self.kernel, self.stride, self.padding, self.step = kernel, stride, padding, step
        self.length = length
        span = step * (kernel - 1) + 1
        room = length + 2 * padding - span
        self.out = (room + (stride - 1 if ceil else 0)) // stride + 1
        # The last one begins inside of the elements, or of what is before them.
        if ceil and (self.out - 1) * stride >= length + padding:
            self.out -= 1
        self.high = max((self.out - 1) * stride + span - length - padding, 0)

    def slices(self, x: torch.Tensor, dim: int, fill: Any) -> list[torch.Tensor]:
        high = self.high + _left_over(self.length + self.padding + self.high, self.stride)
        x = _pad(x, dim, self.padding, high, fill)
        return _slices(x, dim, self.kernel, self.out, self.stride, self.step)

    def counts(self, with_padding: bool) -> list[int]:
        """Returns the number of elements that each mean is of."""
        begins = [i * self.stride - self.padding for i in range(self.out)]
        ends = [min(b + self.kernel, self.length + self.padding) for b in begins]
        if with_padding:
            return [e - b for b, e in zip(begins, ends)]
        return [min(e, self.length) - max(b, 0) for b, e in zip(begins, ends)]


def _pools(
    x: torch.Tensor, kernel: Any, stride: Any, padding: Any, step: Any, ceil: bool, dims: int
) -> list[tuple[int, _Pool]]:
    kernels = _per_dim(kernel, dims)
    strides = _per_dim(stride, dims) if stride else kernels
    paddings, steps = _per_dim(padding, dims), _per_dim(step, dims)
    return [
        (d - dims + x.dim(), _Pool(x.shape[d - dims], *sizes, ceil))
        for d, sizes in enumerate(zip(kernels, strides, paddings, steps))
    ]


def _avg_pool(dims: int) -> Callable[..., Any]:
    def pool(
        x: torch.Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        divisor: Any = divisor_override or 1
        for dim, along in _pools(x, kernel, stride, padding, 1, ceil_mode, dims):
            x = _added(along.slices(x, dim, 0))
            counts = along.counts(count_include_pad)
            if divisor_override is None and len(set(counts)) == 1:
                divisor = divisor * counts[0]
            elif divisor_override is None:
                sizes = torch.cat([torch.full((1,), n, dtype=x.dtype) for n in counts])
                divisor = divisor * sizes.view([-1] + [1] * (x.dim() - 1 - dim))
        return x / divisor

    return pool


def _added(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the sum of tensors, in pairs."""
    while len(parts) > 1:
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])] + list(odd)
    return parts[0]


def _adaptive_windows(length: int, out: int) -> list[Window]:
    return [(i * length // out, -(-(i + 1) * length // out)) for i in range(out)]


def _adaptive_avg_pool(x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    for dim, out in enumerate(sizes, x.dim() - len(sizes)):
        means = [
            aten.slice.Tensor(x, dim, begin, end).mean(dim, keepdim=True)
            for begin, end in _adaptive_windows(x.shape[dim], out)
        ]
        x = torch.cat(means, dim)
    return x


Places = tuple[torch.Tensor, torch.Tensor]


def _largest(values: Sequence[torch.Tensor], places: Sequence[torch.Tensor]) -> Places:
    """Returns the largest of each element, the first of equals, and where it is; NaN is
    the largest."""
    value, place = values[0], places[0]
    for other, there in zip(values[1:], places[1:]):
        is_larger = (other > value) | (other != other)
        value = torch.where(is_larger, other, value)
        place = torch.where(is_larger, there, place)
    return value, place


def _places(x: torch.Tensor, dims: int) -> torch.Tensor:
    """Returns the place of each element among those of its last `dims` dimensions."""
    shape = [1] * (x.dim() - dims) + list(x.shape[-dims:])
    return torch.arange(math.prod(shape)).view(shape)


def _least(dtype: torch.dtype) -> Any:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _max_pool(dims: int) -> Callable[..., Places]:
    def pool(
        x: torch.Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Places:
        place = _places(x, dims)
        pools = _pools(x, kernel, stride, padding, dilation, ceil_mode, dims)
        # The first of equals along the rows is PyTorch's.
        for dim, along in reversed(pools):
            values = along.slices(x, dim, _least(x.dtype))
            x, place = _largest(values, along.slices(place, dim, 0))
        return x, place

    return pool


def _adaptive_max_pool(x: torch.Tensor, sizes: Sequence[int]) -> Places:
    place = _places(x, len(sizes))
    for dim, out in reversed(list(enumerate(sizes, x.dim() - len(sizes)))):
        windows = _adaptive_windows(x.shape[dim], out)
        x, place = _largest(_picked(x, dim, windows), _picked(place, dim, windows))
    return x, place


def _picked(x: torch.Tensor, dim: int, windows: Sequence[Window]) -> list[torch.Tensor]:
    """Returns for each place of the longest window the elements of all windows, of
    shorter ones the last."""
    longest = max(end - begin for begin, end in windows)
    return [
        torch.cat([x.narrow(dim, min(b + i, e - 1), 1) for b, e in windows], dim)
        for i in range(longest)
    ]


def _replication_pad(x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    for i, (low, high) in enumerate(zip(padding[::2], padding[1::2])):
        dim = x.dim() - 1 - i
        first, last = x.narrow(dim, 0, 1), x.narrow(dim, x.shape[dim] - 1, 1)
        inner = _pad(x, dim, min(low, 0), min(high, 0), 0)
        parts = [first] * max(low, 0) + [inner] + [last] * max(high, 0)
        x = torch.cat(parts, dim)
    return x


def _roll(x: torch.Tensor, shifts: Any, dims: Any = ()) -> torch.Tensor:
    """Two slices, in the other order."""
    if not dims:
        return _roll(x.reshape(-1), shifts, [0]).view(x.shape)
    shifts = [shifts] if isinstance(shifts, int) else shifts
    for shift, dim in zip(shifts, [dims] if isinstance(dims, int) else dims):
        length = x.shape[dim] if x.dim() else 1
        shift = shift % length
        if shift:
            rest = length - shift
            x = torch.cat([x.narrow(dim, rest, shift), x.narrow(dim, 0, rest)], dim)
    return x.clone()


def _unfold(x: torch.Tensor, dim: int, size: int, step: int) -> torch.Tensor:
    if not x.dim():
        return x.reshape([1])
    dim = dim % x.dim()
    out = (x.shape[dim] - size) // step + 1
    return torch.stack(_slices(x, dim, size, out, step, 1), -1)


def _diagonal(
    x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    """A slice of the flat matrix."""
    x = x.movedim([dim1, dim2], [-2, -1])
    *shape, rows, columns = x.shape
    first = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    flat = x.reshape([*shape, rows * columns])
    last = first + (count - 1) * (columns + 1) + 1
    return aten.slice.Tensor(flat, -1, first, last, columns + 1)


def _diagonal_scatter(
    x: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """A choice by row and column."""
    moved = x.movedim([dim1, dim2], [-2, -1])
    rows, columns = moved.shape[-2:]
    row, column = torch.arange(rows).unsqueeze(1), torch.arange(columns)
    # The diagonal along the dimension that it has an element of at each place.
    count = src.shape[-1]
    low, size = (max(-offset, 0), rows) if rows <= columns else (max(offset, 0), columns)
    line = _pad(src, src.dim() - 1, low, size - low - count, 0)
    line = line.unsqueeze(-1 if rows <= columns else -2)
    chosen = torch.where(column - row == offset, line, moved)
    return chosen.movedim([-2, -1], [dim1, dim2])


def _as_strided(x: torch.Tensor, size: Any, stride: Any, offset: Any = None) -> Any:
    """A line of the memory of a whole tensor, such as a diagonal."""
    if len(size) != 1 or not x.is_contiguous():
        return NotImplemented
    first = offset or 0
    last = first + (size[0] - 1) * stride[0] + 1
    return aten.slice.Tensor(x.reshape(-1), 0, first, last, stride[0])


def _as_strided_scatter(
    x: torch.Tensor, src: torch.Tensor, size: Any, stride: Any, offset: Any = None
) -> Any:
    if len(size) != 1 or not x.is_contiguous():
        return NotImplemented
    first = offset or 0
    last = first + (size[0] - 1) * stride[0] + 1
    flat = aten.slice_scatter(x.reshape(-1), src, 0, first, last, stride[0])
    return flat.view(x.shape)


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A product of the weight and the windows of the input, or one for each group; a transposed
    one is that of an input with zeros between."""
    if _is_left(weight.shape[2:], stride, dilation, transposed, groups):
        return NotImplemented
    dims = weight.dim() - 2
    strides, paddings, steps, extras = (
        _per_dim(v, dims) for v in (stride, padding, dilation, output_padding)
    )
    line = None
    if transposed:
        x = _spread(x, weight, strides, paddings, steps, extras)
        weight = _turned(weight, groups)
        strides, paddings = [1] * dims, [0] * dims
    if groups == 1:
        line = _lines.find(x, weight, strides, paddings, steps)
    if line:
        y = line.convolve(x, weight)
    else:
        size = x.shape[2:]
        for d, (zeros, stride_of) in enumerate(zip(paddings, strides), 2):
            more = 0
            if zeros:
                more = _left_over(x.shape[d] + 2 * zeros, stride_of)
            x = _pad(x, d, zeros, zeros + more, 0)
        out = [
            (n - step * (k - 1) - 1) // stride_of + 1
            for n, k, stride_of, step in zip(
                (n + 2 * padding for n, padding in zip(size, paddings)),
                weight.shape[2:], strides, steps,
            )
        ]  # fmt: skip
        y = _of_groups(x, weight, out, strides, steps, groups)
    return y if bias is None else y + bias.view([-1] + [1] * dims)


_MOST_PLACES = 256
"""Of a window, each of which is a slice of the input."""


def _is_left(
    kernel: Sequence[int], stride: Any, dilation: Any, transposed: bool, groups: int
) -> bool:
    """Whether windows are so large that a convolution stays what it is."""
    if transposed or groups > 1 or math.prod(kernel) <= _MOST_PLACES:
        return False
    dims = len(kernel)
    return not _lie_side_by_side(kernel, _per_dim(stride, dims), _per_dim(dilation, dims))


def _lie_side_by_side(
    kernel: Sequence[int], strides: Sequence[int], steps: Sequence[int]
) -> bool:
    """Whether no two windows of several elements have one in common."""
    return all(
        k == 1 or k == stride and step == 1 for k, stride, step in zip(kernel, strides, steps)
    )


def _spread(
    x: torch.Tensor,
    weight: torch.Tensor,
    strides: Sequence[int],
    paddings: Sequence[int],
    steps: Sequence[int],
    extras: Sequence[int],
) -> torch.Tensor:
    """Puts `stride - 1` zeros between elements, and pads."""
    for d, (stride, padding, step, extra) in enumerate(
        zip(strides, paddings, steps, extras), 2
    ):
        length = x.shape[d]
        if stride > 1:
            x = _pad(x.unsqueeze(d + 1), d + 1, 0, stride - 1, 0)
            x = x.reshape([*x.shape[:d], length * stride, *x.shape[d + 2 :]])
            x = x.narrow(d, 0, (length - 1) * stride + 1)
        room = step * (weight.shape[d] - 1) - padding
        x = _pad(x, d, room, room + extra, 0)
    return x


def _turned(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Returns the weight of the convolution that a transposed one is."""
    ins, outs = weight.shape[0] // groups, weight.shape[1]
    weight = weight.reshape([groups, ins, outs, *weight.shape[2:]]).transpose(1, 2)
    weight = weight.reshape([groups * outs, ins, *weight.shape[3:]])
    return weight.flip(list(range(2, weight.dim())))


def _of_groups(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: Sequence[int],
    strides: Sequence[int],
    steps: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Convolves the channels of each group, in `out` windows."""
    kernel = weight.shape[2:]
    ins, outs = weight.shape[1], weight.shape[0] // groups
    if ins == 1 and groups > 1:
        # A product of numbers, for each channel its own.
        terms = []
        parts = _of_windows(x, kernel, out, strides, steps)
        for part, place in zip(parts, itertools.product(*map(range, kernel))):
            index: Any = (slice(None), 0, *place)
            factor = weight[index]
            factor = factor.view([1, groups, outs] + [1] * len(out))
            terms.append(part.unsqueeze(2) * factor)
        return _added(terms).reshape([x.shape[0], groups * outs, *out])
    taken = columns(x, kernel, out, strides, steps)
    if groups == 1:
        y = weight.reshape(outs, -1) @ taken
    else:
        taken = taken.reshape(groups, -1, taken.shape[1])
        y = torch.bmm(weight.reshape(groups, outs, -1), taken)
    # Places of a channel stay one dimension, and views can be taken of what is returned.
    y = y.view(groups, outs, x.shape[0], -1).permute(2, 0, 1, 3).contiguous()
    return y.view([x.shape[0], groups * outs, *out])


def _of_windows(
    x: torch.Tensor,
    kernel: Sequence[int],
    out: Sequence[int],
    strides: Sequence[int],
    steps: Sequence[int],
) -> list[torch.Tensor]:
    """Returns for each place of a window those elements of all windows."""
    parts = [x]
    for d, sizes in enumerate(zip(kernel, out, strides, steps), 2):
        parts = [part for each in parts for part in _slices(each, d, *sizes)]
    return parts


def columns(
    x: torch.Tensor,
    kernel: Sequence[int],
    out: Sequence[int],
    strides: Sequence[int],
    steps: Sequence[int],
) -> torch.Tensor:
    """Returns the windows as columns, whose rows are channels, and in each of these the places
    of a window."""
    channels = x.shape[1]
    if all(k * stride == 1 for k, stride in zip(kernel, strides)):
        return x.flatten(2).transpose(0, 1).reshape(channels, -1)
    if _lie_side_by_side(kernel, strides, steps):
        # The places of a window are dimensions of their own.
        for d, (k, length, stride) in enumerate(zip(kernel, out, strides)):
            d = 2 + 2 * d
            x = x.narrow(d, 0, length * k) if k > 1 else _slices(x, d, 1, length, stride, 1)[0]
            x = x.reshape([*x.shape[:d], length, k, *x.shape[d + 1 :]])
        dims = range(2, x.dim(), 2)
        return x.permute(1, *(d + 1 for d in dims), 0, *dims).reshape(
            channels * math.prod(kernel), -1
        )
    n = x.shape[0]
    parts = _of_windows(x.transpose(0, 1), kernel, out, strides, steps)
    joined = torch.cat([part.reshape(channels, 1, n, -1) for part in parts], 1)
    return joined.reshape(channels * len(parts), -1)


TABLE: dict[Any, Callable[..., Any]] = {
    aten.avg_pool2d.default: _avg_pool(2),
    aten.avg_pool3d.default: _avg_pool(3),
    aten._adaptive_avg_pool2d.default: _adaptive_avg_pool,
    aten._adaptive_avg_pool3d.default: _adaptive_avg_pool,
    aten.max_pool2d_with_indices.default: _max_pool(2),
    aten.max_pool3d_with_indices.default: _max_pool(3),
    aten.adaptive_max_pool2d.default: _adaptive_max_pool,
    aten.adaptive_max_pool3d.default: _adaptive_max_pool,
    aten.replication_pad1d.default: _replication_pad,
    aten.replication_pad2d.default: _replication_pad,
    aten.replication_pad3d.default: _replication_pad,
    aten.roll.default: _roll,
    aten.unfold.default: _unfold,
    aten.as_strided.default: _as_strided,
    aten.as_strided_scatter.default: _as_strided_scatter,
    aten.diagonal.default: _diagonal,
    aten.diagonal_copy.default: _diagonal,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.convolution.default: _convolution,
}


def _gradient(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the backward operation of `forward(x, *arguments)`."""

    def backward(gradient: torch.Tensor, x: torch.Tensor, *arguments: Any) -> Any:
        def run(x: torch.Tensor) -> Any:
            result = forward(x, *arguments)
            return result[0] if isinstance(result, tuple) else result

        return torch.func.vjp(run, x)[1](gradient)[0]

    return backward


def _adaptive_gradient(forward: Callable[..., Any], dims: int) -> Callable[..., Any]:
    def backward(gradient: torch.Tensor, x: torch.Tensor, *indices: Any) -> Any:
        return _gradient(forward)(gradient, x, gradient.shape[-dims:])

    return backward


def _max_gradient(dims: int) -> Callable[..., Any]:
    def backward(gradient: torch.Tensor, x: torch.Tensor, *arguments: Any) -> Any:
        return _gradient(_max_pool(dims))(gradient, x, *arguments[:-1])

    return backward


def _convolution_gradient(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Any,
    *arguments: Any,
) -> Any:
    *sizes, mask = arguments
    stride, _, dilation, transposed, _, groups = sizes
    if _is_left(weight.shape[2:], stride, dilation, transposed, groups):
        return NotImplemented

    line = None
    if not transposed and groups == 1:
        each = (_per_dim(v, x.dim() - 2) for v in sizes[:3])
        line = _lines.find(x, weight, *each)

    def run(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return _convolution(x, weight, None, *sizes)

    gradients: Any
    if line:
        gradients = line.gradients(gradient, x, weight)
    else:
        gradients = torch.func.vjp(run, x, weight)[1](gradient)
    others = [d for d in range(gradient.dim()) if d != 1]
    found = (*gradients, gradient.sum(others) if mask[2] else None)
    return tuple(g.contiguous() if wanted else None for g, wanted in zip(found, mask))


def _like(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the backward operation that knows the shape of its argument alone."""

    def backward(gradient: torch.Tensor, sizes: Any, *arguments: Any) -> Any:
        return _gradient(forward)(gradient, gradient.new_zeros(sizes), *arguments)

    return backward


def _weight_norm_gradient(
    gradient: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> Any:
    """Of a matrix of which each line along `dim` has its own length."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]

    def run(v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        length = torch.sqrt((v * v).sum(others, keepdim=True))
        return v * (g / length)

    return torch.func.vjp(run, v, g)[1](gradient)


# Backward operations in terms of the gradients of the functions above. They are taken
# where a trace can differentiate, in front of decompositions.
GRADIENTS: dict[Any, Callable[..., Any]] = {
    aten.avg_pool2d_backward.default: _gradient(_avg_pool(2)),
    aten.avg_pool3d_backward.default: _gradient(_avg_pool(3)),
    aten._adaptive_avg_pool2d_backward.default: _adaptive_gradient(_adaptive_avg_pool, 2),
    aten._adaptive_avg_pool3d_backward.default: _adaptive_gradient(_adaptive_avg_pool, 3),
    aten.max_pool2d_with_indices_backward.default: _max_gradient(2),
    aten.max_pool3d_with_indices_backward.default: _max_gradient(3),
    aten.adaptive_max_pool2d_backward.default: _adaptive_gradient(_adaptive_max_pool, 2),
    aten.adaptive_max_pool3d_backward.default: _adaptive_gradient(_adaptive_max_pool, 3),
    aten.replication_pad1d_backward.default: _gradient(_replication_pad),
    aten.replication_pad2d_backward.default: _gradient(_replication_pad),
    aten.replication_pad3d_backward.default: _gradient(_replication_pad),
    aten.unfold_backward.default: _like(_unfold),
    aten.diagonal_backward.default: _like(_diagonal),
    aten._weight_norm_interface_backward.default: _weight_norm_gradient,
    aten.convolution_backward.default: _convolution_gradient,
}
