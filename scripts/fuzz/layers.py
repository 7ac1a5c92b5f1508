# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What models are made of: each function adds a layer to a step and returns its activations.

Activations are `[tokens, features]` or `[batch, tokens, features]`. A layer is drawn from LAYERS
by its weight; `class_of` names the known class of what it needs, if any (see programs.CLASSES).
"""

import math

import numpy as np

from fuzz import indices, regions
from fuzz.builder import Expr, select

FEATURES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 16, 18, 20, 21, 24, 30, 32, 32, 33, 40, 48, 64, 64, 96, 128]


def letters(x):
    return "bt"[-(len(x.shape) - 1):]


def features(net, at_least=1):
    most = net.limits["features"]
    known = [e for w in net.weights for e in w.shape if at_least <= e <= most]
    if known and net.chance(0.25):
        return int(net.choose(known))  # weights of one shape are marked differently
    return int(net.choose([f for f in FEATURES if at_least <= f <= most]))


def linear(net, x, out=None, weight=None):
    """x W or W x, of a weight as JAX or PyTorch stores it, of a weight used before, of flattened tokens."""
    width, out, t = x.shape[-1], out or features(net), letters(x)
    transposed = net.chance(0.4)
    if weight is None:
        fits = [w for w in net.weights if w.shape in ((width, out), (out, width)) and w.kind == net.kind] if width > 1 else []
        if fits and net.chance(0.4):
            weight = net.choose(fits)
            transposed = weight.shape == (out, width)
            net.count("layer.tied")
        else:
            weight = net.weight((out, width) if transposed else (width, out))
    w = "ed" if transposed else "de"
    matrix = weight if weight.kind == net.compute else net.cast(weight, net.compute)
    way = int(net.random.integers(5))
    if way == 0 and len(x.shape) == 2:
        # W x of feature-major activations.
        net.count("linear.left")
        y = net.einsum(f"{w},dt->et", matrix, net.permute(x, [1, 0]), net.sums())
        y = net.permute(y, [1, 0])
    elif way == 1 and len(x.shape) == 3:
        net.count("linear.flat")
        flat = net.einsum(f"td,{w}->te", net.collapse(x, 0), matrix, net.sums())
        y = net.expand(flat, 0, x.shape[:2])
    elif way == 2:
        net.count("linear.transposed")
        wt = net.permute(matrix, [1, 0])
        y = net.einsum(f"{t}d,{w[::-1]}->{t}e", x, wt, net.sums())
    else:
        net.count("linear")
        y = net.einsum(f"{t}d,{w}->{t}e", x, matrix, net.sums())
    y = net.cast(y, net.compute)
    if net.chance(0.4):
        bias = net.cast(net.vector(out), net.compute)
        y = net.apply(lambda a, b: a + b, y, bias)
    return y


ACTIVATIONS = {
    "relu": lambda x: x.max(0.0),
    "relu_select": lambda x: select(x.compare("ogt", 0.0), x, 0.0),
    "leaky": lambda x: select(x.compare("oge", 0.0), x, x * 0.1),
    "tanh": lambda x: x.math("tanh"),
    "gelu": lambda x: x * 0.5 * ((x * math.sqrt(0.5)).math("erf") + 1.0),
    "gelu_tanh": lambda x: x * 0.5 * (((x * x * x * 0.044715 + x) * 0.7978845608).math("tanh") + 1.0),
    "silu": lambda x: x / ((-x).math("exp") + 1.0),
    "sigmoid": lambda x: 1.0 / ((-x).math("exp") + 1.0),
    "softplus": lambda x: x.math("exp").math("log1p"),
    "square": lambda x: x * x * 0.1,
    "sin": lambda x: x.math("sin") + x,
    "elu": lambda x: select(x.compare("ogt", 0.0), x, x.min(0.0).math("expm1")),
    "clamp": lambda x: x.max(-1.0).min(1.0),
    "abs": lambda x: x.math("absf"),
}
KINKS = {"relu", "relu_select", "leaky", "clamp", "abs", "elu"}


def activation(net, x):
    # In few bits ties are likely, and a rounding decides on which side of one the derivative is.
    name = net.choose([n for n in ACTIVATIONS if n not in KINKS or net.compute in ("f32", "f64")])
    net.count("activation." + name)
    return net.apply(ACTIVATIONS[name], x)


def mlp(net, x):
    y = activation(net, linear(net, x))
    return linear(net, y)


def residual(net, x):
    y = activation(net, linear(net, x))
    y = linear(net, y, x.shape[-1])
    return net.apply(lambda a, b: a + b, x, y)


def norm(net, x):
    scale = net.cast(net.vector(x.shape[-1], 1.0), net.compute) if net.chance(0.7) else None
    shift = net.cast(net.vector(x.shape[-1]), net.compute) if net.chance(0.5) else None
    return net.norm(x, scale, shift, center=x.shape[-1] > 1 and net.chance(0.6))


def gated(net, x):
    """Two halves of one product, one of which gates the other."""
    out = features(net)
    net.count("layer.gated")
    if net.chance(0.5):
        both = linear(net, x, 2 * out)
        a, b = (net.part(both, len(x.shape) - 1, start, out) for start in (0, out))
    else:
        a, b = linear(net, x, out), linear(net, x, out)
    gate = ACTIVATIONS[net.choose(["silu", "gelu_tanh", "sigmoid"])]
    return net.apply(lambda p, q: gate(p) * q, a, b)


# The value of scores that a mask leaves out. Rows may lose all scores: with an infinity those are NaN.
HIDDEN = {"f16": [-1e4], "bf16": [-1e4, -1e9], "f32": [-1e4, -1e9, -3.4028235e38], "f64": [-1e4, -1e9]}

# Which keys (columns) a query (a row) sees, of positions; every query sees its own.
SEEN = {
    "causal": lambda row, column, width: Expr("arith.cmpi", [column, row], "i1", "sle"),
    "anticausal": lambda row, column, width: Expr("arith.cmpi", [row, column], "i1", "sle"),
    "window": lambda row, column, width: both(
        Expr("arith.cmpi", [column, row], "i1", "sle"),
        Expr("arith.cmpi", [row, Expr("arith.addi", [column, width], column.kind)], "i1", "slt")),
    "band": lambda row, column, width: both(
        Expr("arith.cmpi", [column, Expr("arith.addi", [row, width], row.kind)], "i1", "slt"),
        Expr("arith.cmpi", [row, Expr("arith.addi", [column, width], column.kind)], "i1", "slt")),
    "prefix": lambda row, column, width: either(
        Expr("arith.cmpi", [column, row], "i1", "sle"), Expr("arith.cmpi", [column, width], "i1", "slt")),
}


def both(a, b):
    return Expr("arith.andi", [a, b], "i1")


def either(a, b):
    return Expr("arith.ori", [a, b], "i1")


def mask_scores(net, scores):
    """Scores `[batch, heads, queries, keys]` with a bias, a mask of positions, one of the batch's padding, in any order."""
    batch, heads, queries, keys = scores.shape
    hidden, everything = float(net.choose(HIDDEN[net.compute])), (0, 1, 2, 3)

    def positions(s):
        name = net.choose(list(SEEN))
        net.count("attention." + name)
        number, kind = int(net.random.integers(1, keys + 1)), net.choose(["i32", "i64"])

        def seen(a):
            row, column = (Expr("index", [], kind, d) for d in (2, 3))
            return select(SEEN[name](row, column, Expr("constant", [], kind, number)), a, hidden)
        return net.apply(seen, s)

    def padding(s):
        net.count("attention.padding")
        lengths = net.random.integers(1, keys + 1, batch)
        there = net.batch((np.arange(keys)[None] < lengths[:, None]).astype(float), net.compute)
        function = (lambda a, m: select(m.compare("ogt", 0.5), a, hidden)) if net.chance(0.5) else \
            (lambda a, m: a + (1.0 - m) * -1e4)
        return net.apply(function, s, there, dims=[everything, (0, 3)], extents=s.shape)

    def bias(s):
        """One that is trained, of all heads or of each, as relative positions have it."""
        net.count("attention.bias")
        shape, dims = ((heads, queries, keys), (1, 2, 3)) if net.chance(0.6) else ((queries, keys), (2, 3))
        trained = net.cast(net.vector(shape), net.compute)
        return net.apply(lambda a, b: a + b, s, trained, dims=[everything, dims], extents=s.shape)

    steps = [step for step, likely in ((positions, 0.6), (padding, 0.25), (bias, 0.2)) if net.chance(likely)]
    for i in net.random.permutation(len(steps)):
        scores = steps[int(i)](scores)
    return scores


def attention(net, x):
    """Heads from one product or three, keys shared by groups of heads or not, masks, biases, dropout."""
    flat = len(x.shape) == 2
    if flat:
        x = net.expand(x, 0, (1, x.shape[0]))
    net.count("layer.attention")
    batch, tokens, width = x.shape
    heads, size = int(net.choose([1, 2, 3, 4])), int(net.choose([1, 2, 4, 5, 8, 16]))
    inner, groups = heads * size, 1
    if net.chance(0.4):
        fused = linear(net, x, 3 * inner)
        parts = [net.part(fused, 2, i * inner, inner) for i in range(3)]
    else:
        groups = int(net.choose([g for g in (1, 1, 2, 3, 4) if heads % g == 0]))
        parts = [linear(net, x, inner)] + [linear(net, x, inner // groups) for _ in range(2)]
    q, k, v = (net.expand(p, 2, (p.shape[2] // size, size)) for p in parts)
    if groups > 1:
        net.count("attention.grouped")
        k, v = (net.collapse(net.apply(lambda a: a * 1.0 if net.chance(0.5) else a, p, dims=[(0, 1, 2, 4)],
                                       extents=(batch, tokens, heads // groups, groups, size)), 2) for p in (k, v))
    scale = float(net.choose([1 / math.sqrt(size), 0.5, 1.0]))
    early = net.chance(0.3)
    if early:
        q = net.apply(lambda a: a * scale, q)
    head_major = net.chance(0.5)
    if head_major:
        q, k, v = (net.permute(p, [0, 2, 1, 3]) for p in (q, k, v))
    left, right = ("bhqd", "bhkd") if head_major else ("bqhd", "bkhd")
    scores = net.cast(net.einsum(f"{left},{right}->bhqk", q, k, net.sums()), net.compute)
    if not early and net.chance(0.5):
        scores = net.apply(lambda s: s * scale if net.chance(0.5) else s / (1 / scale), scores)
        early = True
    scores = mask_scores(net, scores)
    if not early:
        scores = net.apply(lambda s: s * scale, scores)
    p = net.softmax(scores)
    if net.chance(0.1):
        # A second use, so that probabilities are needed.
        net.count("attention.probabilities")
        net.output(f"probabilities{len(net.outputs)}", p)
    if net.chance(0.2):
        net.count("attention.dropout")
        keep = net.batch((net.random.random(p.shape) < 0.9).astype(float), net.compute)
        p = net.apply(lambda a, m: a * m * (1 / 0.9), p, keep)
    y = net.cast(net.einsum(f"bhqk,{right}->{left}", p, v, net.sums()), net.compute)
    if head_major:
        y = net.permute(y, [0, 2, 1, 3])
    y = linear(net, net.collapse(y, 2), width if net.chance(0.5) else None)
    if y.shape == x.shape and net.chance(0.7):
        y = net.apply(lambda a, b: a + b, x, y)
    return net.collapse(y, 0) if flat else y


def heads(net, x):
    """Weights with a dimension for the heads, as einsum has them."""
    width, t = x.shape[-1], letters(x)
    count, size = int(net.choose([2, 3, 4])), int(net.choose([2, 4, 8]))
    net.count("layer.heads")
    w = net.cast(net.weight((width, count, size), "row,col,col"), net.compute)
    y = net.cast(net.einsum(f"{t}d,dhe->{t}he", x, w, net.sums()), net.compute)
    y = net.apply(ACTIVATIONS["tanh"], y)
    out = features(net)
    o = net.cast(net.weight((count, size, out), "row,row,col"), net.compute)
    return net.cast(net.einsum(f"{t}he,heo->{t}o", y, o, net.sums()), net.compute)


def mixer(net, x):
    """A product over the tokens."""
    tokens = x.shape[-2]
    net.count("layer.mixer")
    w = net.cast(net.weight((tokens, tokens)), net.compute)
    maps = "bsd,st->btd" if len(x.shape) == 3 else "sd,st->td"
    y = net.cast(net.einsum(maps, x, w, net.sums()), net.compute)
    return net.apply(lambda a, b: a + b.math("tanh"), x, y)


def rotary(net, x):
    """Features turned in pairs by angles that the step computes from positions."""
    if x.shape[-1] % 2:
        return x
    net.count("layer.rotary")
    half, axis = x.shape[-1] // 2, len(x.shape) - 1
    a, b = (net.part(x, axis, start, half) for start in (0, half))
    far = net.choose([1.0, 10.0])

    def turn(sign):
        def function(p, q):
            row, column = (Expr("arith.sitofp", [Expr("index", [], "i32", axis - i)], "f32") for i in (1, 0))
            angle = row * far * (column * (-1.0 / half)).math("exp")
            cosine, sine = angle.math("cos").cast(net.compute), angle.math("sin").cast(net.compute)
            return p * cosine + q * sine * sign
        return function
    return net.join([net.apply(turn(-1.0), a, b), net.apply(turn(1.0), b, a)], axis)


def stack(net, x):
    """Layers of one stacked weight, taken one after the other."""
    width, t = x.shape[-1], letters(x)
    count = int(net.choose([2, 3]))
    net.count("layer.stack")
    w = net.weight((count, width, width), "stack,row,col")
    for i in range(count):
        matrix = net.cast(net.part(w, 0, i, 1, drop=True), net.compute)
        y = net.cast(net.einsum(f"{t}d,de->{t}e", x, matrix, net.sums()), net.compute)
        x = net.apply(lambda a, b: a + b.math("tanh"), x, y)
    return x


def experts(net, x):
    """A batch of products, an expert for each entry of the batch."""
    width, out = x.shape[-1], features(net)
    if len(x.shape) == 2:
        x = net.expand(x, 0, (1, x.shape[0]))
    net.count("layer.experts")
    w = net.cast(net.weight((x.shape[0], width, out), "stack,row,col"), net.compute)
    return net.cast(net.einsum("btd,bde->bte", x, w, net.sums()), net.compute)


def recurrent(net, x):
    """A recurrent layer over the tokens, its steps one after the other."""
    axis, size = len(x.shape) - 2, int(net.choose([2, 4, 8, 12]))
    # Of vectors the gradient is a sum of outer products.
    if x.shape[axis] > 6 or (axis == 0 and not net.allowed("unmasked")):
        return x
    net.count("layer.recurrent")
    w = net.cast(net.weight((size, size)), net.compute)
    inputs, t = linear(net, x, size), letters(x)[:-1]
    states, h = [], None
    for i in range(x.shape[axis]):
        now = net.part(inputs, axis, i, 1, drop=True)
        if h is not None:
            again = net.cast(net.einsum(f"{t}d,de->{t}e", h, w, net.sums()), net.compute) if t else \
                net.cast(net.einsum("d,de->e", h, w, net.sums()), net.compute)
            now = net.apply(lambda a, b: a + b, now, again)
        h = net.apply(ACTIVATIONS["tanh"], now)
        states.append(net.expand(h, axis - 1, (x.shape[0], 1)) if axis else net.expand(h, 0, (1, size)))
    return net.join(states, axis)


def pieces(net, x):
    """Activations that are cut along the features, treated apart and joined."""
    width, axis = x.shape[-1], len(x.shape) - 1
    if width < 2:
        return x
    at = int(net.random.integers(1, width))
    net.count("layer.pieces")
    a, b = net.part(x, axis, 0, at), net.part(x, axis, at, width - at)
    a, b = activation(net, a), linear(net, b) if net.chance(0.5) else activation(net, b)
    return net.join([b, a] if net.chance(0.5) else [a, b], axis)


def shifted(net, x):
    """The tokens of a time and the time before."""
    axis = len(x.shape) - 2
    tokens = x.shape[axis]
    if tokens < 2:
        return x
    net.count("layer.shifted")
    first = net.constant(0.0, x.shape[:axis] + (1, x.shape[-1]), x.kind)
    before = net.join([first, net.part(x, axis, 0, tokens - 1)], axis)
    return net.apply(lambda a, b: a * 0.7 + b * 0.3, x, before)


def dropout(net, x):
    """A mask that comes with the batch."""
    net.count("layer.dropout")
    mask = net.batch((net.random.random(x.shape) < 0.8).astype(float), net.compute)
    return net.apply(lambda a, m: a * m / 0.8, x, mask)


# What needs gradients that are found in other ways.

def joined(net, x):
    """A product with two weights under each other, or beside each other."""
    width, t = x.shape[-1], letters(x)
    net.count("layer.joined")
    if net.chance(0.5) and width > 1:
        out, at = features(net), int(net.random.integers(1, width))
        w = net.join([net.weight((at, out)), net.weight((width - at, out))], 0)
    else:
        w = net.join([net.weight((width, features(net))), net.weight((width, features(net)))], 1)
    return net.cast(net.einsum(f"{t}d,de->{t}e", x, net.cast(w, net.compute), net.sums()), net.compute)


def sliced(net, x):
    """A product with a part of a weight."""
    width, t, out = x.shape[-1], letters(x), features(net, 2)
    net.count("layer.sliced")
    if net.chance(0.5):
        w = net.part(net.weight((width, out)), 1, 0, max(1, out // 2))
    else:
        w = net.part(net.weight((width + 4, out)), 0, 2, width)
    return net.cast(net.einsum(f"{t}d,de->{t}e", x, net.cast(w, net.compute), net.sums()), net.compute)


def chunked(net, x):
    """Products with all parts of a weight, of different things: queries of one sequence, keys of another."""
    width, t, out = x.shape[-1], letters(x), features(net)
    count, axis = int(net.choose([2, 3])), int(net.random.integers(2))
    net.count("layer.chunked")
    shape = (width, count * out) if axis else (count * width, out)
    w = net.weight(shape)
    if net.chance(0.5):
        w = net.cast(w, net.compute)
    total = None
    for i in range(count):
        part = net.cast(net.part(w, axis, i * shape[axis] // count, shape[axis] // count), net.compute)
        y = net.cast(net.einsum(f"{t}d,de->{t}e", x, part, net.sums()), net.compute)
        total = y if total is None else net.apply(lambda a, b: a + b.math("tanh"), total, y)
    if axis == 0 and net.chance(0.3):
        # All of it as well.
        whole = net.apply(lambda a: a * 0.5, net.cast(w, net.compute))
        wide = net.join([x] * count, len(x.shape) - 1)
        y = net.cast(net.einsum(f"{t}d,de->{t}e", wide, whole, net.sums()), net.compute)
        total = net.apply(lambda a, b: a + b, total, y)
    return total


def split_heads(net, x):
    """A product with a matrix that is reshaped to heads in front of it."""
    width, t = x.shape[-1], letters(x)
    count, size = int(net.choose([2, 3])), int(net.choose([2, 4, 8]))
    net.count("layer.split_heads")
    w = net.expand(net.cast(net.weight((width, count * size)), net.compute), 1, (count, size))
    return net.collapse(net.cast(net.einsum(f"{t}d,dhe->{t}he", x, w, net.sums()), net.compute), len(x.shape) - 1)


def repeated(net, x):
    """A batch of products with one weight, copied for each entry: a sum over the batch in the gradient."""
    if len(x.shape) == 2:
        return linear(net, x)
    width, out = x.shape[-1], features(net)
    net.count("layer.repeated")
    w = net.cast(net.weight((width, out)), net.compute)
    copies = net.apply(lambda a: a * 1.0, w, dims=[(1, 2)], extents=(x.shape[0], width, out))
    return net.cast(net.einsum("btd,bde->bte", x, copies, net.sums()), net.compute)


def outer(net, x):
    """A product that is written element by element."""
    if math.prod(x.shape[:-1]) > 8:
        return linear(net, x)
    width, out, rank = x.shape[-1], features(net), len(x.shape)
    net.count("layer.outer")
    w = net.cast(net.weight((width, out)), net.compute)
    terms = net.apply(lambda a, b: a * b, x, w, extents=x.shape + (out,),
                      dims=[tuple(range(rank)), (rank - 1, rank)])
    return net.sum(terms, [rank - 1])


def normed_weight(net, x):
    """A weight whose rows are divided by their norms, or that goes through a function."""
    width, out, t = x.shape[-1], features(net), letters(x)
    net.count("layer.normed_weight")
    w = net.weight((width, out))
    way = int(net.random.integers(3))
    if way == 0:
        squares = net.sum(net.apply(lambda a: a * a, w), [1])
        w = net.apply(lambda a, s: a / (s + 0.1).math("sqrt"), w, squares, dims=[(0, 1), (0,)], extents=w.shape)
    elif way == 1:
        w = net.apply(lambda a: a.math("tanh"), w)
    else:
        # Not 0 where no block is.
        w = net.apply(lambda a: (a * 0.5).math("exp") * 0.1, w)
    return net.cast(net.einsum(f"{t}d,de->{t}e", x, net.cast(w, net.compute), net.sums()), net.compute)


def padded(net, x):
    """More entries in front of and behind a dimension, or fewer, and a product of what is left."""
    axis, rank = int(net.random.integers(len(x.shape))), len(x.shape)
    low, high = [0] * rank, [0] * rank
    low[axis], high[axis] = (int(net.random.integers(-2, 3)) for _ in range(2))
    if x.shape[axis] + low[axis] + high[axis] < 1 or max(-low[axis], 0) + max(-high[axis], 0) > x.shape[axis]:
        return x
    net.count("layer.padded")
    x = net.padded(x, low, high, float(net.choose([0.0, 0.0, 0.5])))
    return linear(net, x) if net.chance(0.5) else activation(net, x)


def strided(net, x):
    """Every second or third entry of a dimension, and maybe put back among zeros."""
    axis, rank = int(net.random.integers(len(x.shape))), len(x.shape)
    stride = int(net.choose([2, 3]))
    start = int(net.random.integers(min(stride, x.shape[axis])))
    offsets, sizes, strides = [0] * rank, list(x.shape), [1] * rank
    offsets[axis], strides[axis] = start, stride
    whole = (x.shape[axis] - start + stride - 1) // stride
    sizes[axis] = int(net.choose([1, whole, whole]))
    net.count("layer.strided")
    part = net.cut(x, offsets, sizes, None, strides)
    part = activation(net, part)
    if net.chance(0.5):
        return linear(net, part)
    return net.apply(lambda a, b: a + b, x, net.paste(part, x.shape, offsets, sizes, strides))


def multiples(net, x):
    """A batch of products with multiples of one weight, stacked."""
    width, out, t = x.shape[-1], features(net), letters(x)
    net.count("layer.multiples")
    w = net.cast(net.weight((width, out)), net.compute)
    count = int(net.choose([2, 3]))
    stacked = net.join([net.expand(net.apply(lambda a: a * factor, w) if factor != 1.0 else w, 0, (1, width))
                        for factor in (1.0, 2.0, -0.5)[:count]], 0)
    if t == "t" and net.chance(0.6):
        # A batch of products, of copies of the activations.
        copies = net.apply(lambda a: a * 1.0, x, dims=[(1, 2)], extents=(count, *x.shape))
        y = net.cast(net.einsum("ntd,nde->nte", copies, stacked, net.sums()), net.compute)
        return net.sum(net.apply(ACTIVATIONS["tanh"], y) if net.chance(0.5) else y, [0])
    y = net.cast(net.einsum(f"{t}d,nde->{t}ne", x, stacked, net.sums()), net.compute)
    y = net.apply(ACTIVATIONS["tanh"], y) if net.chance(0.5) else y
    return net.sum(y, [len(y.shape) - 2])


def head(net, x):
    """A product of the sum of all tokens with a weight, often of one row or column, added to each token."""
    width, out = x.shape[-1], int(net.choose([1, 1, x.shape[-1]]))
    net.count("layer.head")
    pooled = net.sum(x, list(range(len(x.shape) - 1)))
    w = "de" if net.chance(0.5) else "ed"
    weight = net.cast(net.weight((width, out) if w == "de" else (out, width)), net.compute)
    y = net.apply(ACTIVATIONS["tanh"], net.cast(net.einsum(f"d,{w}->e", pooled, weight, net.sums()), net.compute))
    if net.chance(0.5):
        net.output(f"pooled{len(net.outputs)}", net.plain(lambda a: a + 5.0, pooled))
    return net.apply(lambda a, b: a + b, x, y)


def matrix_of_vector(net, x):
    """A product with a weight of one row or of one column."""
    width, t = x.shape[-1], letters(x)
    net.count("layer.matrix_of_vector")
    w = net.cast(net.weight((width, 1)), net.compute)
    y = net.apply(ACTIVATIONS["tanh"], net.cast(net.einsum(f"{t}d,de->{t}e", x, w, net.sums()), net.compute))
    out = features(net)
    u = net.cast(net.weight((1, out)), net.compute)
    return net.cast(net.einsum(f"{t}d,de->{t}e", y, u, net.sums()), net.compute)


LAYERS = {
    mlp: 3, residual: 3, linear: 3, activation: 1, norm: 3, gated: 2, attention: 3, heads: 1.5, mixer: 1, rotary: 1,
    stack: 1, experts: 1, recurrent: 1, pieces: 1, shifted: 0.5, dropout: 0.5, normed_weight: 1,
    joined: 0.7, sliced: 0.7, chunked: 1.2, split_heads: 0.7, repeated: 0.7, outer: 0.7, multiples: 0.5,
    padded: 0.7, strided: 0.7, head: 0.7, matrix_of_vector: 0.5,
    regions.branched: 0.8, regions.looped: 0.8, indices.integers: 0.8, indices.constants: 0.5, indices.computed: 1,
}
CLASS_OF = {layer: "unmasked" for layer in (joined, sliced, chunked, split_heads, repeated, outer, multiples, experts)}
CLASS_OF[normed_weight] = "reparameterized"
