# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations with gradients: a builder that remembers how each is differentiated."""

import math

from fuzz.builder import Builder, Expr, derivatives, select


class Tape(Builder):
    """Operations whose operands need a gradient are recorded; `backward` writes the gradients."""

    def __init__(self, random, style):
        super().__init__(random, style)
        self.records, self.needed = [], set()

    def record(self, inputs, result, backward):
        """`backward(cotangent)` returns pairs of an input and its part of the gradient."""
        if any(v.name in self.needed for v in inputs):
            self.needed.add(result.name)
            self.records.append((result, backward))
        return result

    def backward(self, loss):
        """The gradients of `loss` by the names of values."""
        gradients = {loss.name: self.fill((), 1.0, loss.kind)}
        for result, backward in reversed(self.records):
            if result.name in gradients:
                for value, part in backward(gradients[result.name]):
                    if value.name in self.needed:
                        known = gradients.get(value.name)
                        gradients[value.name] = self.plain(lambda a, b: a + b, known, part) if known else part
        return gradients

    # Element by element.

    def plain(self, function, *values, extents=None):
        """An element-wise operation without a gradient; shapes are aligned at their ends."""
        extents = extents or max((v.shape for v in values), key=len)
        return self.emit(extents, function(*[self.read(v, self.align(v, extents)) for v in values]))

    @staticmethod
    def align(value, extents):
        start = len(extents) - len(value.shape)
        return tuple(None if e == 1 != extents[start + i] else start + i for i, e in enumerate(value.shape))

    def apply(self, function, *values, dims=None, extents=None):
        """An element-wise operation; `dims[i]` says which loops the dimensions of `values[i]` are."""
        extents = tuple(extents or max((v.shape for v in values), key=len))
        dims = dims or [self.align(v, extents) for v in values]
        reads = [self.read(v, d) for v, d in zip(values, dims)]
        root = function(*reads)
        result = self.emit(extents, root)
        everything = tuple(range(len(extents)))

        def backward(cotangent):
            parts = []
            for leaf, g in derivatives(root, self.read(cotangent, everything)):
                value, places = leaf.data
                if value.name not in self.needed:
                    continue
                used = tuple(d for d in places if d is not None)
                part = self.emit(extents, g)
                lost = [d for d in everything if d not in used]
                if lost:
                    part = self.reduce(part, lost)
                if len(used) != len(places):
                    groups, group = [], []
                    for i, d in enumerate(places):
                        group.append(i)
                        if d is not None:
                            groups.append(group)
                            group = []
                    if group and groups:
                        groups[-1] += group
                    part = self.reshape(part, groups, value.shape)
                parts.append((value, part))
            return parts
        return self.record(values, result, backward)

    def constant(self, number, shape, kind):
        return self.fill(shape, number, kind)

    # Products.

    def einsum(self, maps, a, b, kind=None):
        left, out = maps.split("->")
        of_a, of_b = left.split(",")
        result = self.product(maps, a, b, kind)

        def backward(cotangent):
            g = cotangent if cotangent.kind == a.kind else self.cast(cotangent, a.kind)
            parts = []
            if a.name in self.needed:
                pair = (g, b, f"{out},{of_b}->{of_a}") if self.chance(0.6) else (b, g, f"{of_b},{out}->{of_a}")
                parts.append((a, self.product(pair[2], pair[0], pair[1])))
            if b.name in self.needed:
                pair = (g, a, f"{out},{of_a}->{of_b}") if self.chance(0.4) else (a, g, f"{of_a},{out}->{of_b}")
                parts.append((b, self.product(pair[2], pair[0], pair[1])))
            return parts
        return self.record([a, b], result, backward)

    def cast(self, value, kind):
        if value.kind == kind:
            return value
        self.count("cast." + kind)
        return self.apply(lambda x: x.cast(kind), value)

    # Sums.

    def sum(self, value, axes):
        axes = [a % len(value.shape) for a in axes]
        result = self.reduce(value, axes)
        kept = tuple(d for d in range(len(value.shape)) if d not in axes)

        def backward(cotangent):
            return [(value, self.emit(value.shape, self.read(cotangent, kept)))]
        return self.record([value], result, backward)

    def maximum(self, value, axes):
        """The largest elements; no gradient."""
        return self.reduce(value, [a % len(value.shape) for a in axes], "max")

    # Shapes.

    def permute(self, value, order):
        inverse = [order.index(i) for i in range(len(order))]
        result = self.transpose(value, order)
        return self.record([value], result, lambda g: [(value, self.transpose(g, inverse))])

    def collapse(self, value, first, count=2):
        """`count` dimensions from `first` as one."""
        rank = len(value.shape)
        groups = [[d] for d in range(first)] + [list(range(first, first + count))] + [[d] for d in range(first + count, rank)]
        shape = value.shape[:first] + (math.prod(value.shape[first:first + count]),) + value.shape[first + count:]
        self.count("collapse")
        result = self.reshape(value, groups, shape)
        return self.record([value], result, lambda g: [(value, self.reshape(g, groups, value.shape))])

    def expand(self, value, dim, extents):
        rank = len(value.shape) + len(extents) - 1
        groups = [[d] for d in range(dim)] + [list(range(dim, dim + len(extents)))] + \
            [[d] for d in range(dim + len(extents), rank)]
        shape = value.shape[:dim] + tuple(extents) + value.shape[dim + 1:]
        self.count("expand")
        result = self.reshape(value, groups, shape)
        return self.record([value], result, lambda g: [(value, self.reshape(g, groups, value.shape))])

    def part(self, value, axis, start, size, drop=False):
        """A slice along `axis`, without it if `drop` (of one entry)."""
        offsets, sizes = [0] * len(value.shape), list(value.shape)
        offsets[axis], sizes[axis] = start, size
        shape = sizes[:axis] + sizes[axis + 1:] if drop else sizes
        result = self.slice(value, offsets, sizes, shape)

        def backward(cotangent):
            return [(value, self.insert(cotangent, self.fill(value.shape, 0.0, value.kind), offsets, sizes))]
        return self.record([value], result, backward)

    def join(self, parts, axis):
        result = self.concatenate(parts, axis)

        def backward(cotangent):
            found, at = [], 0
            for value in parts:
                offsets = [0] * len(value.shape)
                offsets[axis] = at
                found.append((value, self.slice(cotangent, offsets, list(value.shape))))
                at += value.shape[axis]
            return found
        return self.record(parts, result, backward)

    # Look-ups.

    def lookup(self, table, ids):
        """Rows of `table`, a row for each entry of `ids`."""
        self.count("lookup")
        rank, width = len(ids.shape), table.shape[1]
        extents = ids.shape + (width,)

        def body(names, _):
            row = self.line(f"arith.index_cast {names[0]} : {ids.kind} to index")
            column = self.line(f"linalg.index {rank} : index")
            return [self.line(f"tensor.extract {table.name}[{row}, {column}] : {table.type}")]
        result = self.generic(extents, [(ids, tuple(range(rank)))], [(table.kind, tuple(range(rank + 1)))], [], body)

        def backward(cotangent):
            flat, g, rank = ids, cotangent, len(ids.shape)
            if rank == 2 and self.chance(0.5):
                flat = self.reshape(ids, [[0, 1]], (ids.shape[0] * ids.shape[1],))
                g = self.reshape(g, [[0, 1], [2]], (flat.shape[0], width))
                rank = 1
            hot = self.one_hot(flat, table.shape[0], table.kind)
            letters = "bt"[:rank]
            return [(table, self.product(f"{letters}v,{letters}d->vd", hot, g))]
        return self.record([table], result, backward)

    def one_hot(self, ids, count, kind):
        rank = len(ids.shape)
        number = Expr("index", [], ids.kind, rank)
        label = self.read(ids, tuple(range(rank)))
        hot = select(Expr("arith.cmpi", [number, label], "i1", "eq"), Expr("constant", [], kind, 1.0), 0.0)
        return self.emit_one(ids.shape + (count,), hot, tuple(range(rank + 1)))

    def pick(self, value, labels):
        """The entry of each row (the last dimension) at its label."""
        self.count("pick")
        rank = len(labels.shape)
        dims = tuple(range(rank))

        def body(names, _):
            at = [self.line(f"linalg.index {d} : index") for d in dims]
            at.append(self.line(f"arith.index_cast {names[0]} : {labels.kind} to index"))
            return [self.line(f"tensor.extract {value.name}[{', '.join(at)}] : {value.type}")]
        result = self.generic(labels.shape, [(labels, dims)], [(value.kind, dims)], [], body)

        def backward(cotangent):
            number = Expr("index", [], labels.kind, rank)
            hit = Expr("arith.cmpi", [number, self.read(labels, dims)], "i1", "eq")
            g = select(hit, self.read(cotangent, dims), 0.0)
            return [(value, self.emit_one(value.shape, g, tuple(range(rank + 1))))]
        return self.record([value], result, backward)

    # What networks are made of.

    def softmax(self, x):
        rank = len(x.shape)
        whole, row = tuple(range(rank)), tuple(range(rank - 1))
        top = self.maximum(x, [-1])
        e = self.apply(lambda a, m: (a - m).math("exp"), x, top, dims=[whole, row], extents=x.shape)
        total = self.sum(e, [-1])
        self.count("softmax")
        return self.apply(lambda a, s: a / s, e, total, dims=[whole, row], extents=x.shape)

    def log_softmax(self, x):
        rank = len(x.shape)
        whole, row = tuple(range(rank)), tuple(range(rank - 1))
        top = self.maximum(x, [-1])
        below = self.apply(lambda a, m: a - m, x, top, dims=[whole, row], extents=x.shape)
        total = self.sum(self.apply(lambda a: a.math("exp"), below), [-1])
        self.count("log_softmax")
        return self.apply(lambda a, s: a - s.math("log"), below, total, dims=[whole, row], extents=x.shape)

    def norm(self, x, scale, shift, center=True, axis=-1):
        """Layer norm, or the RMS norm if not `center`."""
        rank = len(x.shape)
        axis %= rank
        whole, row = tuple(range(rank)), tuple(d for d in range(rank) if d != axis)
        count = x.shape[axis]
        read = lambda f, *values: self.apply(f, *values, extents=x.shape, dims=[
            whole if v.shape == x.shape else (axis,) if v in (scale, shift) else row for v in values])
        mean_of = lambda v: self.apply(lambda s: s * (1.0 / count) if self.chance(0.5) else s / float(count), self.sum(v, [axis]))
        if center:
            x = read(lambda a, m: a - m, x, mean_of(x))
        variance = mean_of(self.apply(lambda a: a * a, x))
        if self.chance(0.5):
            root = self.apply(lambda v: (v + 1e-2).math("rsqrt"), variance)
            y = read(lambda a, r: a * r, x, root)
        else:
            root = self.apply(lambda v: (v + 1e-2).math("sqrt"), variance)
            y = read(lambda a, r: a / r, x, root)
        self.count("layer_norm" if center else "rms_norm")
        if scale:
            y = read(lambda a, s: a * s, y, scale)
        return read(lambda a, s: a + s, y, shift) if shift else y
