# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels in Triton, whose compiler is known to be right on GPUs."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax(x, y, columns, SIZE: tl.constexpr):
    """A row of y a program."""
    row, at = tl.program_id(0) * columns, tl.arange(0, SIZE)
    inside = at < columns
    scores = tl.load(x + row + at, mask=inside, other=-float("inf")).to(tl.float32)
    powers = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row + at, powers / tl.sum(powers, 0), mask=inside)


@triton.jit
def norm(x, weight, bias, y, means, deviations, columns, epsilon, SIZE: tl.constexpr):
    """Layer normalisation of a row a program."""
    row = tl.program_id(0)
    total = tl.zeros([SIZE], tl.float32)
    for begin in range(0, columns, SIZE):
        at = begin + tl.arange(0, SIZE)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros([SIZE], tl.float32)
    for begin in range(0, columns, SIZE):
        at = begin + tl.arange(0, SIZE)
        away = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32) - mean
        squares += tl.where(at < columns, away * away, 0.0)
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(deviations + row, scale)
    for begin in range(0, columns, SIZE):
        at = begin + tl.arange(0, SIZE)
        inside = at < columns
        value = (tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32) - mean) * scale
        tl.store(y + row * columns + at, value * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside), mask=inside)


@triton.jit
def norm_gradient(x, weight, dy, means, deviations, dx, dweight, columns, SIZE: tl.constexpr):
    """The gradient of x, and what each row adds to that of the weight."""
    row, at = tl.program_id(0), tl.arange(0, SIZE)
    inside, place = at < columns, tl.program_id(0) * columns + at
    scale = tl.load(deviations + row)
    normal = tl.where(inside, (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - tl.load(means + row)) * scale, 0.0)
    given = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
    weighted = given * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    along, mean = tl.sum(weighted * normal, 0) / columns, tl.sum(weighted, 0) / columns
    tl.store(dx + place, (weighted - normal * along - mean) * scale, mask=inside)
    tl.store(dweight + place, given * normal, mask=inside)


@triton.jit
def column_sums(x, y, rows, columns, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for begin in range(0, rows, HEIGHT):
        row = begin + tl.arange(0, HEIGHT)
        total += tl.load(x + row[:, None] * columns + at[None, :], mask=(row[:, None] < rows) & (at[None, :] < columns), other=0.0)
    tl.store(y + at, tl.sum(total, 0), mask=at < columns)


@triton.jit
def scan(x, sums, ordered, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    value = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(value, 0))
    tl.store(ordered + at, tl.sort(value))


@triton.jit
def largest(x, places, least, SIZE: tl.constexpr):
    row = tl.program_id(0)
    value = tl.load(x + row * SIZE + tl.arange(0, SIZE))
    tl.store(places + row, tl.argmax(value, 0))
    tl.store(least + row, tl.min(value, 0))


@triton.jit
def histogram(x, counts, SIZE: tl.constexpr, BINS: tl.constexpr):
    tl.store(counts + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, SIZE)), BINS))


@triton.jit
def scatter(x, y, count, BINS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(y + at % BINS, tl.load(x + at, mask=at < count, other=0.0), mask=at < count)


@triton.jit
def functions(x, waves, curves, logarithms, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    value = tl.load(x + at, mask=inside, other=1.0)
    tl.store(waves + at, tl.sin(value) + tl.cos(value), mask=inside)
    tl.store(curves + at, libdevice.tanh(value) + libdevice.erf(value), mask=inside)
    tl.store(logarithms + at, tl.log(tl.abs(value) + 1) + tl.exp2(-tl.abs(value)), mask=inside)


@triton.jit
def product(a, b, c, rows, columns, depth, a_row, a_step, b_step, b_column,
            M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    """c = a b of any strides, a tile a program."""
    across = tl.cdiv(columns, N)
    row = tl.program_id(0) // across * M + tl.arange(0, M)
    column = tl.program_id(0) % across * N + tl.arange(0, N)
    step = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for begin in range(0, depth, K):
        inside = begin + step < depth
        left = tl.load(a + row[:, None] * a_row + (begin + step)[None, :] * a_step, mask=inside[None, :] & (row[:, None] < rows), other=0.0)
        right = tl.load(b + (begin + step)[:, None] * b_step + column[None, :] * b_column, mask=inside[:, None] & (column[None, :] < columns), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(c + row[:, None] * columns + column[None, :], total, mask=(row[:, None] < rows) & (column[None, :] < columns))


@triton.jit
def product_by_maps(a, b, c, rows, columns, depth, TRANSPOSED: tl.constexpr,
                    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TYPE: tl.constexpr):
    """The same by copies of boxes; with all programs that there are, each takes several tiles."""
    down, across = tl.cdiv(rows, M), tl.cdiv(columns, N)
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0)):
        row, column = tile % down * M, tile // down * N
        total = tl.zeros((M, N), tl.float32)
        for begin in range(0, depth, K):
            if TRANSPOSED:
                total = tl.dot(a.load([row, begin]), b.load([column, begin]).T, total)
            else:
                total = tl.dot(a.load([row, begin]), b.load([begin, column]), total)
        c.store([row, column], total.to(TYPE))


@triton.jit
def attention(q, k, v, y, logarithms, tokens, scale, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr):
    """Flash attention; `logarithms` are those of the sums of each row's powers of two."""
    begin, head = tl.program_id(0) * M, tl.program_id(1) * tokens
    row, column, feature = begin + tl.arange(0, M), tl.arange(0, N), tl.arange(0, WIDTH)
    queries = tl.load(q + (head + row)[:, None] * WIDTH + feature[None, :], mask=row[:, None] < tokens, other=0.0)
    most, total = tl.full([M], -float("inf"), tl.float32), tl.zeros([M], tl.float32)
    result = tl.zeros([M, WIDTH], tl.float32)
    end = tl.minimum(tokens, begin + M) if CAUSAL else tokens
    for first in range(0, end, N):
        key = first + column
        keys = tl.load(k + (head + key)[None, :] * WIDTH + feature[:, None], mask=key[None, :] < tokens, other=0.0)
        scores = tl.where(key[None, :] < tokens, tl.dot(queries, keys) * (scale * 1.4426950408889634), -float("inf"))
        if CAUSAL:
            scores = tl.where(row[:, None] >= key[None, :], scores, -float("inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        powers, less = tl.exp2(scores - now[:, None]), tl.exp2(most - now)
        total, most = total * less + tl.sum(powers, 1), now
        values = tl.load(v + (head + key)[:, None] * WIDTH + feature[None, :], mask=key[:, None] < tokens, other=0.0)
        result = tl.dot(powers.to(values.dtype), values, result * less[:, None])
    tl.store(logarithms + head + row, most + tl.log2(total), mask=row < tokens)
    tl.store(y + (head + row)[:, None] * WIDTH + feature[None, :], result / total[:, None], mask=row[:, None] < tokens)


@triton.jit
def attention_gradient(q, k, v, dy, logarithms, means, dq, dk, dv, tokens, scale,
                       WIDTH: tl.constexpr, M: tl.constexpr, CAUSAL: tl.constexpr):
    """Of M keys and of M queries a program; `means` are the sums of y dy over features."""
    begin, head = tl.program_id(0) * M, tl.program_id(1) * tokens
    own, feature = begin + tl.arange(0, M), tl.arange(0, WIDTH)
    place = (head + own)[:, None] * WIDTH + feature[None, :]
    keys, values = tl.load(k + place), tl.load(v + place)
    key_sum, value_sum = tl.zeros([M, WIDTH], tl.float32), tl.zeros([M, WIDTH], tl.float32)
    for first in range(begin if CAUSAL else 0, tokens, M):
        row = first + tl.arange(0, M)
        there = (head + row)[:, None] * WIDTH + feature[None, :]
        queries, given = tl.load(q + there), tl.load(dy + there)
        powers = tl.exp2(tl.dot(keys, tl.trans(queries)) * (scale * 1.4426950408889634) - tl.load(logarithms + head + row)[None, :])
        if CAUSAL:
            powers = tl.where(row[None, :] >= own[:, None], powers, 0.0)
        value_sum += tl.dot(powers.to(given.dtype), given)
        away = powers * (tl.dot(values, tl.trans(given)) - tl.load(means + head + row)[None, :])
        key_sum += tl.dot(away.to(queries.dtype), queries)
    tl.store(dv + place, value_sum)
    tl.store(dk + place, key_sum * scale)
    queries, given = tl.load(q + place), tl.load(dy + place)
    query_sum = tl.zeros([M, WIDTH], tl.float32)
    for first in range(0, begin + M if CAUSAL else tokens, M):
        row = first + tl.arange(0, M)
        there = (head + row)[:, None] * WIDTH + feature[None, :]
        keys, values = tl.load(k + there), tl.load(v + there)
        powers = tl.exp2(tl.dot(queries, tl.trans(keys)) * (scale * 1.4426950408889634) - tl.load(logarithms + head + own)[:, None])
        if CAUSAL:
            powers = tl.where(own[:, None] >= row[None, :], powers, 0.0)
        away = powers * (tl.dot(given, tl.trans(values)) - tl.load(means + head + own)[:, None])
        query_sum += tl.dot(away.to(keys.dtype), keys)
    tl.store(dq + place, query_sum * scale)
