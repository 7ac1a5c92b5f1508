# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Orderings, and what goes to or through places along a dimension.

"""Sorting, searches, running products, and writes at places, in terms of comparisons.

The graph of a search grows with every element that it finds; that of an ordering by
ranks, which compares all pairs, does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

# Most searches, one after the other.
MOST_SEARCHED = 64
# Most elements of which all pairs are compared.
MOST_ORDERED = 1024


def _along(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns the places of the elements of `x` along a dimension."""
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    return torch.arange(x.shape[dim]).view(shape)


def _is_nan(x: torch.Tensor) -> torch.Tensor:
    return x != x


def _ranks(x: torch.Tensor, dim: int, descending: bool) -> torch.Tensor:
    """Returns how many elements come before each one: the first of equals does, and NaN
    is larger than all numbers."""
    mine, other = x.unsqueeze(dim + 1), x.unsqueeze(dim)
    larger, smaller = (mine, other) if not descending else (other, mine)
    before = (larger > smaller) | (_is_nan(larger) & ~_is_nan(smaller))
    equal = (mine == other) | (_is_nan(mine) & _is_nan(other))
    places = torch.arange(x.shape[dim])
    shape = [1] * mine.dim()
    shape[dim + 1] = x.shape[dim]
    there = places.view(shape)
    here = there.transpose(dim, dim + 1)
    return (before | (equal & (there < here))).to(torch.int64).sum(dim + 1)


def _at_ranks(x: torch.Tensor, dim: int, ranks: torch.Tensor, first: int, count: int) -> Any:
    """Returns the elements of some ranks, and their places."""
    shape = [1] * (x.dim() + 1)
    shape[dim] = count
    wanted = torch.arange(first, first + count).view(shape)
    hits = ranks.unsqueeze(dim) == wanted
    zero = torch.zeros((), dtype=x.dtype)
    values = torch.where(hits, x.unsqueeze(dim), zero).sum(dim + 1).to(x.dtype)
    places = torch.where(hits, _along(x, dim).unsqueeze(dim), 0).sum(dim + 1)
    return values, places


def _ordered(x: torch.Tensor, dim: int, descending: bool, first: int, count: int) -> Any:
    if not x.dim() or not 1 <= x.shape[dim] <= MOST_ORDERED or x.dtype == torch.bool:
        return NotImplemented
    dim = dim % x.dim()
    return _at_ranks(x, dim, _ranks(x, dim, descending), first, count)


def _topk(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """One search for a maximum after the other; of equals the first comes first."""
    if k > MOST_SEARCHED or not x.dim() or x.dtype == torch.bool:
        return _ordered(x, dim, largest, 0, k)
    dim = dim % x.dim()
    keys = x
    if not largest:
        # The order of integers turned around; NaN is the largest in both.
        is_float = x.dtype.is_floating_point
        keys = torch.where(_is_nan(x), -math.inf, -x) if is_float else ~x
    places = _along(x, dim)
    lowest = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    taken = torch.zeros_like(x, dtype=torch.bool)
    values, found = [], []
    for _ in range(k):
        left = torch.where(taken, lowest, keys)
        peak = left.amax(dim, keepdim=True)
        # NaN comes first, and equals nothing.
        is_peak = ~taken & ((left == peak) | (left != left))
        place = torch.where(is_peak, places, x.shape[dim]).amin(dim, keepdim=True)
        hit = places == place
        values.append(torch.where(hit, x, 0).sum(dim, keepdim=True).to(x.dtype))
        found.append(place)
        taken = taken | hit
    return torch.cat(values, dim), torch.cat(found, dim)


def _extreme(is_largest: bool) -> Callable[..., Any]:
    """The first of the largest along a dimension, or of the smallest: NaN is both."""

    def find(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
        if not x.dtype.is_floating_point or not x.dim() or not x.shape[dim]:
            return NotImplemented
        reduced = x.amax if is_largest else x.amin
        peak = reduced(dim, keepdim=True)
        places = _along(x, dim % x.dim())
        place = torch.where((x == peak) | _is_nan(x), places, x.shape[dim])
        return reduced(dim, keepdim), place.amin(dim, keepdim)

    return find


def _place_of_extreme(is_largest: bool) -> Callable[..., Any]:
    find = _extreme(is_largest)

    def place(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is not None:
            found = find(x, dim, keepdim)
        elif keepdim or not x.numel():
            return NotImplemented
        else:
            found = find(x.reshape(-1), 0)
        return found if found is NotImplemented else found[1]

    return place


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    return _ordered(x, dim, descending, 0, x.shape[dim]) if x.dim() else NotImplemented


def _stable_sort(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    return _sort(x, dim, descending)


def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    found = _ordered(x, dim, False, k - 1, 1)
    if found is NotImplemented or keepdim:
        return found
    return tuple(part.squeeze(dim) for part in found)


def _median(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower one of two; NaN where one is."""
    found = _kthvalue(x, (x.shape[dim] + 1) // 2 if x.dim() else 1, dim, keepdim)
    if found is NotImplemented or not x.dtype.is_floating_point:
        return found
    last = _kthvalue(x, x.shape[dim], dim, keepdim)
    largest, place = last
    # Of several the first one.
    first = torch.where(_is_nan(x), _along(x, dim % x.dim()), x.shape[dim])
    place = torch.minimum(place, first.amin(dim, keepdim=keepdim))
    is_nan = _is_nan(largest)
    return (
        torch.where(is_nan, largest, found[0]),
        torch.where(is_nan, place, found[1]),
    )


def _median_of_all(x: torch.Tensor) -> Any:
    found = _median(x.reshape(-1))
    return found if found is NotImplemented else found[0]


def _nanmedian(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower one of two of the numbers, which come before NaN."""
    if _ordered(x[..., :1], -1, False, 0, 1) is NotImplemented:
        return NotImplemented
    if not 1 <= x.shape[dim] <= MOST_ORDERED:
        return NotImplemented
    dim = dim % x.dim()
    count = (~_is_nan(x)).to(torch.int64).sum(dim, keepdim=True)
    wanted = torch.clamp((count - 1) // 2, min=0)
    hits = _ranks(x, dim, False) == wanted
    zero = torch.zeros((), dtype=x.dtype)
    value = torch.where(hits, x, zero).sum(dim, keepdim=keepdim).to(x.dtype)
    return value, torch.where(hits, _along(x, dim), 0).sum(dim, keepdim=keepdim)


def _nanmedian_of_all(x: torch.Tensor) -> Any:
    found = _nanmedian(x.reshape(-1))
    return found if found is NotImplemented else found[0]


# Running values.


def _scan(
    parts: tuple[torch.Tensor, ...],
    dim: int,
    neutral: tuple[Any, ...],
    combine: Callable[..., tuple[torch.Tensor, ...]],
) -> tuple[torch.Tensor, ...]:
    """Combines each place with all before it, in twice as long steps each time."""
    length, step = parts[0].shape[dim], 1
    behind = [0, 0] * (parts[0].dim() - 1 - dim)
    while step < length:
        before = tuple(
            aten.constant_pad_nd(
                part.narrow(dim, 0, length - step), [*behind, step, 0], value
            )
            for part, value in zip(parts, neutral)
        )
        parts = combine(before, parts)
        step *= 2
    return parts


def _cumprod(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    x = x.to(dtype or (x.dtype if x.dtype.is_floating_point else torch.int64))
    if not x.dim():
        return x.clone()
    return _scan((x,), dim % x.dim(), (1,), lambda a, b: (a[0] * b[0],))[0]


def _logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    if not x.dim():
        return x.clone()

    def combine(a: Any, b: Any) -> tuple[torch.Tensor]:
        high, low = torch.maximum(a[0], b[0]), torch.minimum(a[0], b[0])
        # Infinities have no difference.
        gap = torch.where(high == low, 0.0, low - high)
        return (high + torch.log1p(torch.exp(gap)),)

    return _scan((x,), dim % x.dim(), (-math.inf,), combine)[0]


def _cummax(sign: int) -> Callable[..., Any]:
    def run(x: torch.Tensor, dim: int) -> Any:
        """Of equals the last; NaN stays."""
        if not x.dim():
            return x.clone(), torch.zeros((), dtype=torch.int64)
        dim = dim % x.dim()
        edge: Any = sign * -math.inf
        if not x.dtype.is_floating_point:
            edge = getattr(torch.iinfo(x.dtype), "min" if sign > 0 else "max")

        def combine(a: Any, b: Any) -> tuple[torch.Tensor, ...]:
            new = b[0] >= a[0] if sign > 0 else b[0] <= a[0]
            new = (new & ~_is_nan(a[0])) | _is_nan(b[0])
            return tuple(torch.where(new, v, u) for u, v in zip(a, b))

        places = _along(x, dim).expand(x.shape)
        return _scan((x, places), dim, (edge, 0), combine)

    return run


def _prod(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _prod_of_dim(x.reshape(-1), 0, dtype=dtype)


def _prod_of_dim(
    x: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Of halves, as long as there are some."""
    x = x.to(dtype or (x.dtype if x.dtype.is_floating_point else torch.int64))
    if not x.dim():
        return x.clone()
    while (length := x.shape[dim]) > 1:
        half = length // 2
        rest = x.narrow(dim, 2 * half, length - 2 * half)
        x = x.narrow(dim, 0, half) * x.narrow(dim, half, half)
        x = torch.cat([x, rest], dim) if length % 2 else x
    return x if keepdim else x.squeeze(dim)


# Writes at places.


def _has_lines_of(self: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    """Returns whether `index` has places for each line of `dim`, and no other."""
    lengths = [n for d, n in enumerate(self.shape) if d != dim]
    return (
        0 < self.dim() == index.dim()
        and lengths == [n for d, n in enumerate(index.shape) if d != dim]
    )


def _rows_of(index: torch.Tensor, dim: int) -> torch.Tensor | None:
    """Returns the places that an index has for all lines alike, as one that is expanded
    does; None if it is none."""
    for d in reversed(range(index.dim())):
        if d != dim:
            if index.shape[d] != 1 and index.stride(d) != 0:
                return None
            index = index.select(d, 0)
    return index


def _add_rows(self: torch.Tensor, dim: int, rows: torch.Tensor, src: torch.Tensor) -> Any:
    """Adds rows at places along `dim`: a loop over rows, as the gradient of a look-up."""
    added = aten.index_put(self.movedim(dim, 0), [rows], src.movedim(dim, 0), True)
    return added.movedim(0, dim)


def _put_rows(
    self: torch.Tensor, dim: int, rows: torch.Tensor, src: torch.Tensor | None, value: Any
) -> torch.Tensor:
    """Puts rows, or a number, at places along `dim`."""
    last = _last_hits(rows, 0, self.shape[dim])
    shape = [-1 if d == dim else 1 for d in range(self.dim())]
    put = torch.full((), value, dtype=self.dtype)
    if src is not None:
        put = src.index_select(dim, last.clamp(min=0))
    return torch.where((last >= 0).view(shape), put, self)


def _last_hits(index: torch.Tensor, dim: int, length: int) -> torch.Tensor:
    """Returns for each place along `dim` the last entry of `index` that names it, or -1."""
    shape = [1] * (index.dim() + 1)
    shape[dim] = length
    named = index.unsqueeze(dim) == torch.arange(length, dtype=index.dtype).view(shape)
    entries = _along(index, dim).unsqueeze(dim)
    return torch.where(named, entries, -1).amax(dim + 1)


def _scatter(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> Any:
    """Puts the last entry that names a place (the gradient of a maximum, of `topk`)."""
    dim = dim % self.dim() if self.dim() else 0
    if not _has_lines_of(self, dim, index):
        return NotImplemented
    src = src[tuple(slice(n) for n in index.shape)]
    if index.shape[dim] == 1:
        return torch.where(index == _along(self, dim), src, self)
    if (rows := _rows_of(index, dim)) is not None:
        return _put_rows(self, dim, rows, src, 0)
    last = _last_hits(index, dim, self.shape[dim])
    return torch.where(last >= 0, src.gather(dim, last.clamp(min=0)), self)


def _scatter_value(self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    """Any entry that names a place puts the same."""
    dim = dim % self.dim() if self.dim() else 0
    if not _has_lines_of(self, dim, index):
        return NotImplemented
    if (rows := _rows_of(index, dim)) is not None:
        return _put_rows(self, dim, rows, None, value)
    last = _last_hits(index, dim, self.shape[dim])
    return torch.where(last >= 0, torch.full((), value, dtype=self.dtype), self)


def _hits(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Returns which places of `self` (behind `dim`) which entries of `index` name."""
    shape = [1] * (self.dim() + 1)
    shape[dim + 1] = self.shape[dim]
    places = torch.arange(self.shape[dim], dtype=index.dtype).view(shape)
    return index.unsqueeze(dim + 1) == places


def _scatter_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> Any:
    """A sum over the places that hit each entry (the gradient of `gather`)."""
    dim = dim % self.dim() if self.dim() else 0
    if not _has_lines_of(self, dim, index):
        return NotImplemented
    src = src[tuple(slice(n) for n in index.shape)]
    rows = _rows_of(index, dim)
    if rows is not None and self.dtype.is_floating_point:
        return _add_rows(self, dim, rows, src)
    zero = torch.zeros((), dtype=src.dtype)
    added = torch.where(_hits(self, dim, index), src.unsqueeze(dim + 1), zero)
    # A single place needs no sum.
    added = added.squeeze(dim) if index.shape[dim] == 1 else added.sum(dim)
    return self + added


def _scatter_reduce(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    dim = dim % self.dim() if self.dim() else 0
    if not _has_lines_of(self, dim, index):
        return NotImplemented
    src = src[tuple(slice(n) for n in index.shape)]
    rows = _rows_of(index, dim)
    neutral, along, join = _reductions(self.dtype)[reduce]
    if rows is not None:
        shape = [-1 if d == dim else 1 for d in range(self.dim())]
        hits = rows.unsqueeze(1) == torch.arange(self.shape[dim], dtype=rows.dtype)
        count = hits.to(torch.int64).sum(0).view(shape)
    if rows is not None and neutral == 0 and self.dtype.is_floating_point:
        found = _add_rows(torch.zeros_like(self), dim, rows, src)
    else:
        hits = _hits(self, dim, index)
        other = torch.full((), neutral, dtype=src.dtype)
        found = along(torch.where(hits, src.unsqueeze(dim + 1), other), dim)
        if rows is None:
            count = hits.to(torch.int64).sum(dim)
    if include_self:
        found, count = join(self, found), count + 1
    if reduce == "mean":
        size = count.clamp(min=1)
        is_float = self.dtype.is_floating_point
        found = found / size if is_float else found // size
    return found if include_self else torch.where(count > 0, found, self)


def _reductions(dtype: torch.dtype) -> dict[str, tuple[Any, Any, Any]]:
    """Returns for each kind what changes nothing, the reduction, and that of two."""
    least, most = (
        (-math.inf, math.inf)
        if dtype.is_floating_point
        else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    )

    def total(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.sum(dim).to(dtype)

    def product(x: torch.Tensor, dim: int) -> torch.Tensor:
        return _prod_of_dim(x, dim).to(dtype)

    return {
        "sum": (0, total, torch.add),
        "mean": (0, total, torch.add),
        "prod": (1, product, torch.mul),
        "amax": (least, torch.amax, torch.maximum),
        "amin": (most, torch.amin, torch.minimum),
    }


def _index_put(
    self: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Puts rows: those of the last entry that names them, or one number."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    if accumulate or not dims:
        return NotImplemented
    given = [indices[d] for d in dims]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return _masked_put(self, indices, values)
    if dims != list(range(dims[0], dims[0] + len(dims))):
        return NotImplemented
    given = aten.broadcast_tensors(given)
    first, shape = dims[0], self.shape
    lengths = [shape[d] for d in dims]
    row = torch.zeros((), dtype=torch.int64)
    for index, length in zip(given, lengths):
        row = row * length + torch.where(index < 0, index + length, index)
    row = row.reshape(-1)
    rest = [*shape[:first], *shape[first + len(dims) :]]
    last = _last_hits(row, 0, math.prod(lengths)).view([*lengths] + [1] * (len(rest) - first))
    if values.numel() == 1:
        values = values.reshape([])
        return torch.where(last >= 0, values, self)
    # What is put has the dimensions of the indices in the place of those indexed.
    full = [*shape[:first], *given[0].shape, *shape[first + len(dims) :]]
    flat = [*shape[:first], row.numel(), *shape[first + len(dims) :]]
    values = values.expand(full).reshape(flat)
    rows = values.index_select(first, last.clamp(min=0).reshape(-1)).view(shape)
    return torch.where(last >= 0, rows, self)


def _unsafe_index_put(
    self: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False
) -> Any:
    return aten.index_put(self, indices, values, accumulate)


def _masked_put(self: torch.Tensor, indices: Any, values: torch.Tensor) -> Any:
    mask, *others = indices
    if others or mask is None or mask.dtype != torch.bool or values.numel() != 1:
        return NotImplemented
    mask = mask.view([*mask.shape] + [1] * (self.dim() - mask.dim()))
    return torch.where(mask, values.reshape([]), self)


TABLE: dict[Any, Callable[..., Any]] = {
    aten.topk.default: _topk,
    aten.max.dim: _extreme(is_largest=True),
    aten.min.dim: _extreme(is_largest=False),
    aten.argmax.default: _place_of_extreme(is_largest=True),
    aten.argmin.default: _place_of_extreme(is_largest=False),
    aten.sort.default: _sort,
    aten.sort.stable: _stable_sort,
    aten.kthvalue.default: _kthvalue,
    aten.median.dim: _median,
    aten.median.default: _median_of_all,
    aten.nanmedian.dim: _nanmedian,
    aten.nanmedian.default: _nanmedian_of_all,
    aten.cumprod.default: _cumprod,
    aten.logcumsumexp.default: _logcumsumexp,
    aten.cummax.default: _cummax(1),
    aten.cummin.default: _cummax(-1),
    aten.prod.default: _prod,
    aten.prod.dim_int: _prod_of_dim,
    aten.scatter_add.default: _scatter_add,
    aten.scatter.src: _scatter,
    aten.scatter.value: _scatter_value,
    aten.scatter_reduce.two: _scatter_reduce,
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _unsafe_index_put,
}
