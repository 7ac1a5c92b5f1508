# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations with gradients: a builder that remembers how each is differentiated."""

import math

from fuzz.builder import Builder, Expr, derivatives, select, sources


class Tape(Builder):
    """Operations whose operands need a gradient are recorded; `backward` writes the gradients."""

    def __init__(self, random, style):
        super().__init__(random, style)
        self.records, self.needed = [], set()
        self.like = {}  # values that have the mask of a weight -> the weight
        self.inner = {}  # gradients of such values and gradients that are no update -> the weight
        self.at = {}  # a gradient that is marked -> the value that it is at
        self.marked = False  # whether gradients are marked

    def record(self, inputs, result, backward):
        """`backward(cotangent)` returns pairs of an input and its part of the gradient."""
        if result.name not in [v.name for v in inputs] and any(v.name in self.needed for v in inputs):
            self.needed.add(result.name)
            self.records.append((result, backward))
        return result

    def backward(self, loss):
        """The gradients of `loss` by the names of values; they have gradients themselves."""
        gradients = {loss.name: self.fill((), 1.0, loss.kind)}
        for result, backward in self.records[::-1]:
            if result.name in gradients:
                if result.name in self.like:
                    own = gradients[result.name] = self.own(gradients[result.name], self.at.get(result.name, result))
                    self.inner[own.name] = self.like[result.name]
                for value, part in backward(gradients[result.name]):
                    if value.name in self.needed:
                        known = gradients.get(value.name)
                        gradients[value.name] = self.apply(lambda a, b: a + b, known, part) if known else part
        return gradients

    def own(self, gradient, at):
        """A value of its own for the gradient at the value `at`: there it is masked. It is marked if the program does
        so."""
        if not self.marked:
            return self.apart(gradient)
        extents, dims = gradient.shape, tuple(range(len(gradient.shape)))
        if at.shape != extents:  # a gradient of each example
            at = self.generic(extents, [(at, self.align(at, extents))], [(at.kind, dims)], [], lambda names, _: names)
        self.count("marked")
        made = self.generic(
            extents, [(gradient, dims), (at, dims)], [(gradient.kind, dims)], [], lambda names, _: [self.line(
                f"bsr.gradient {names[0]} at {names[1]} : {gradient.kind}, {at.kind}")])
        self.at[made.name] = at
        return self.record([gradient], made, lambda g: [(gradient, g)])

    def apart(self, value):
        """A copy: a value of its own."""
        own = value
        while own.name == value.name:  # a copy may be left out
            own = self.apply(lambda a: a, value)
        return own

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
        return self.expression(extents, function(*[self.read(v, d) for v, d in zip(values, dims)]))

    def expression(self, extents, root, whole=False):
        """The tensor of an expression, as one operation if it is to stay `whole`."""
        everything = tuple(range(len(extents)))
        result = self.emit_one(extents, root, everything) if whole else self.emit(extents, root)

        def backward(cotangent):
            return [(leaf.data[0], self.gather(extents, leaf.data, g))
                    for leaf, g in derivatives(root, self.read(cotangent, everything))
                    if leaf.data[0].name in self.needed]
        return self.record([value for value, _ in sources(root)], result, backward)

    def gather(self, extents, source, g):
        """The gradient of a tensor that an expression reads, from that of what it reads in each point."""
        value, places = source
        used = tuple(d for d in places if d is not None)
        part = self.expression(extents, g)
        lost = [d for d in range(len(extents)) if d not in used]
        if lost:
            part = self.sum(part, lost)
        if len(used) == len(places):
            return part
        groups, group = [], []
        for i, d in enumerate(places):
            group.append(i)
            if d is not None:
                groups.append(group)
                group = []
        if group and groups:
            groups[-1] += group
        return self.regroup(part, groups, value.shape)

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
                parts.append((a, self.einsum(pair[2], pair[0], pair[1])))
            if b.name in self.needed:
                pair = (g, a, f"{out},{of_a}->{of_b}") if self.chance(0.4) else (a, g, f"{of_a},{out}->{of_b}")
                parts.append((b, self.einsum(pair[2], pair[0], pair[1])))
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
            return [(value, self.expression(value.shape, self.read(cotangent, kept)))]
        return self.record([value], result, backward)

    def maximum(self, value, axes):
        """The largest elements; no gradient."""
        return self.reduce(value, [a % len(value.shape) for a in axes], "max")

    # Shapes.

    def permute(self, value, order):
        inverse = [order.index(i) for i in range(len(order))]
        result = self.transpose(value, order)
        return self.record([value], result, lambda g: [(value, self.permute(g, inverse))])

    def regroup(self, value, groups, shape):
        """Collapses or expands; `groups` are dimensions of the larger shape."""
        result = self.reshape(value, groups, shape)
        return self.record([value], result, lambda g: [(value, self.regroup(g, groups, value.shape))])

    def collapse(self, value, first, count=2):
        """`count` dimensions from `first` as one."""
        rank = len(value.shape)
        groups = [[d] for d in range(first)] + [list(range(first, first + count))] + [[d] for d in range(first + count, rank)]
        shape = value.shape[:first] + (math.prod(value.shape[first:first + count]),) + value.shape[first + count:]
        self.count("collapse")
        return self.regroup(value, groups, shape)

    def expand(self, value, dim, extents):
        rank = len(value.shape) + len(extents) - 1
        groups = [[d] for d in range(dim)] + [list(range(dim, dim + len(extents)))] + \
            [[d] for d in range(dim + len(extents), rank)]
        shape = value.shape[:dim] + tuple(extents) + value.shape[dim + 1:]
        self.count("expand")
        return self.regroup(value, groups, shape)

    def part(self, value, axis, start, size, drop=False):
        """A slice along `axis`, without it if `drop` (of one entry)."""
        offsets, sizes = [0] * len(value.shape), list(value.shape)
        offsets[axis], sizes[axis] = start, size
        return self.cut(value, offsets, sizes, sizes[:axis] + sizes[axis + 1:] if drop else sizes)

    def cut(self, value, offsets, sizes, shape=None, strides=None):
        """A slice."""
        result = self.slice(value, offsets, sizes, shape, strides)
        return self.record([value], result,
                           lambda g: [(value, self.paste(g, value.shape, offsets, sizes, strides))])

    def paste(self, part, shape, offsets, sizes, strides=None):
        """`part` among zeros."""
        result = self.insert(part, self.fill(shape, 0.0, part.kind), offsets, sizes, strides)
        return self.record([part], result, lambda g: [(part, self.cut(g, offsets, sizes, part.shape, strides))])

    def padded(self, value, low, high, number=0.0):
        """With `low` and `high` entries before and behind each dimension, or without so many."""
        self.count("pad.below_zero" if min(low + high) < 0 else "pad")
        result, back = self.pad(value, low, high, number), ([-n for n in low], [-n for n in high])
        return self.record([value], result, lambda g: [(value, self.padded(g, *back))])

    def join(self, parts, axis):
        result = self.concatenate(parts, axis)

        def backward(cotangent):
            found, at = [], 0
            for value in parts:
                found.append((value, self.part(cotangent, axis, at, value.shape[axis])))
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
            if math.prod(ids.shape) == 1 and self.chance(0.7):
                return [(table, self.only_row(table, flat, g))]
            if rank == 2 and self.chance(0.5):
                flat = self.reshape(ids, [[0, 1]], (ids.shape[0] * ids.shape[1],))
                g = self.regroup(g, [[0, 1], [2]], (flat.shape[0], width))
                rank = 1
            hot = self.one_hot(flat, table.shape[0], table.kind)
            letters = "bts"[:rank]
            return [(table, self.einsum(f"{letters}v,{letters}d->vd", hot, g))]
        return self.record([table], result, backward)

    def only_row(self, table, ids, g):
        """The gradient of a table that one row was read of: a selection."""
        self.count("lookup.one")
        rank = len(ids.shape)
        ids = self.reshape(ids, [], ()) if rank else ids
        g = self.regroup(g, [list(range(rank + 1))], (table.shape[1],)) if rank else g
        hit = Expr("arith.cmpi", [Expr("index", [], ids.kind, 0), self.read(ids, ())], "i1", "eq")
        return self.expression(table.shape, select(hit, self.read(g, (1,)), 0.0), whole=True)

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
            return [(value, self.expression(value.shape, g, whole=True))]
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
