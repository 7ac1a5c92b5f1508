# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contractions, reductions and element-wise operations, compiled, against numpy.

Each case builds operations over random extents; one step holds several cases. A
sum of n terms must agree within n unit roundoffs of the sum of magnitudes, and the
functions of `math` within 8 units in the last place of the terms they make.
"""

import itertools
import os
import string

import numpy as np
import references
import step

KINDS = {np.dtype(t): k for k, t in step.TYPES.items() if k != "bf16"}
ROUNDOFF = 2.0**-24
EXTENTS = [1, 2, 3, 5, 7, 8, 13, 16, 17, 30, 33, 64]
MULTIPLY_ADD = "%m = arith.mulf %a, %b : f32\n %s = arith.addf %m, %o : f32\n linalg.yield %s : f32"
ADD = "%s = arith.addf %a, %o : f32\n linalg.yield %s : f32"
NEGATE = "%n = arith.negf %a : f32\n linalg.yield %n : f32"
COPY = "linalg.yield %a : f32"


class Tensor:
    """An SSA value with its shape and element type."""

    def __init__(self, name, shape, kind="f32"):
        self.name, self.shape, self.kind = name, tuple(shape), kind

    @property
    def type(self):
        return f"tensor<{''.join(f'{extent}x' for extent in self.shape)}{self.kind}>"


class Program:
    """A step under construction: its arguments, its operations, and what its results must be."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.arguments, self.lines, self.arrays, self.wanted = [], [], {}, []

    def extents(self, count):
        return [int(extent) for extent in self.random.choice(EXTENTS, count)]

    def name(self):
        return f"%v{len(self.lines)}"

    def add(self, array):
        """An argument that holds `array`."""
        name = f"a{len(self.arguments)}"
        tensor = Tensor("%" + name, array.shape, KINDS[array.dtype])
        self.arguments.append(f'{tensor.name}: {tensor.type} {{bsr.name = "{name}"}}')
        self.arrays[name] = array
        return tensor

    def normal(self, *shape):
        array = self.random.standard_normal(shape).astype(np.float32)
        return array, self.add(array)

    def op(self, text, shape, kind="f32"):
        """The result of the operation `text`, in which {type} is the type of the result."""
        result = Tensor(self.name(), shape, kind)
        self.lines.append(f"{result.name} = {text.format(type=result.type)}")
        return result

    def empty(self, shape, kind="f32"):
        return self.op("tensor.empty() : {type}", shape, kind)

    def fill(self, shape, value="0.0", kind="f32"):
        scalar = self.name()
        self.lines.append(f"{scalar} = arith.constant {value}" + f" : {kind}" * (kind != "i1"))
        empty = self.empty(shape, kind)
        return self.op(f"linalg.fill ins({scalar} : {kind}) outs({empty.name} : {empty.type}) -> {{type}}", shape, kind)

    def generic(self, maps, inputs, body, inits=None, kind="f32", extents=None):
        """A linalg.generic with maps as in einsum ("ij,jk->ik"; 0 is a constant). Loops that
        no result has are reductions. The body calls inputs %a, %b, ... and inits %o, %p."""
        left, right = maps.split("->")
        operands, results = left.split(",")[:len(inputs)], right.split(",")
        loops = sorted(set(right + left) - set("0,"), key=(right + left).index)
        extent = dict(extents or {})
        for letters, tensor in zip(operands, inputs):
            extent.update(zip(letters, tensor.shape if tensor.shape else ()))
        if inits is None:
            inits = [self.empty([extent.get(l, 1) for l in letters], kind) for letters in results]
        names = {0: [chr(ord("a") + i) for i in range(len(operands))], 1: ["o", "p"][:len(results)]}
        to_map = lambda letters: f"affine_map<({', '.join(loops)}) -> ({', '.join(letters)})>"
        kinds = ", ".join('"parallel"' if loop in right else '"reduction"' for loop in loops)
        list_of = lambda tensors: f"{', '.join(t.name for t in tensors)} : {', '.join(t.type for t in tensors)}"
        block = ", ".join(f"%{name}: {t.kind}" for name, t in zip(names[0] + names[1], [*inputs, *inits]))
        first = self.name()
        types = ", ".join(t.type for t in inits)
        results_of = f"{first}:{len(inits)}" if len(inits) > 1 else first
        self.lines.append(
            f"{results_of} = linalg.generic {{indexing_maps = [{', '.join(map(to_map, operands + results))}], "
            f"iterator_types = [{kinds}]}} " + (f"ins({list_of(inputs)}) " if inputs else "")
            + f"outs({list_of(inits)}) {{\n^bb0({block}):\n {body}\n}} -> "
            + (f"({types})" if len(inits) > 1 else types))
        results = [Tensor(f"{first}#{i}" if len(inits) > 1 else first, t.shape, t.kind) for i, t in enumerate(inits)]
        return results if len(results) > 1 else results[0]

    def check(self, tensor, want, bound=0.0):
        """Makes `tensor` a result that must equal `want` within `bound`."""
        want = np.asarray(want)
        assert tensor.shape == want.shape, (tensor.shape, want.shape)
        self.wanted.append((tensor, want, bound))

    def run(self, label):
        results = ", ".join(f'{t.type} {{bsr.name = "r{i}"}}' for i, (t, _, _) in enumerate(self.wanted))
        values = f"{', '.join(t.name for t, _, _ in self.wanted)} : {', '.join(t.type for t, _, _ in self.wanted)}"
        compiled = step.compile(f"func.func @step({', '.join(self.arguments)}) -> ({results}) {{\n"
                                + "\n".join(self.lines) + f"\nreturn {values}\n}}")
        one, two, five = (compiled.run(self.arrays, threads=threads) for threads in (1, 2, 5))
        for number, (_, want, bound) in enumerate(self.wanted):
            got = one[f"r{number}"]
            for other in (two, five):
                assert got.tobytes() == other[f"r{number}"].tobytes(), f"{label}: result {number} depends on threads"
            error = np.abs(got.astype(np.float64) - want.astype(np.float64))
            assert (error <= bound).all(), \
                f"{label}: result {number} of shape {want.shape} is wrong by {np.max(error - bound)}"


def contraction(p, maps, inits=False, **extents):
    """A product over all loops that the result does not have, with random extents but for those in `extents`."""
    left, right = maps.split("->")
    extent = {**dict(zip(sorted(set(left) - {","}), p.extents(8))), **extents}
    arrays, tensors = zip(*[p.normal(*[extent[l] for l in letters]) for letters in left.split(",")])
    start, init = p.normal(*[extent[l] for l in right]) if inits else (0.0, p.fill([extent[l] for l in right]))
    wide = [a.astype(np.float64) for a in arrays]
    terms = np.prod([extent[l] for l in set(left) - set(right + ",")]) + 1
    magnitudes = np.einsum(maps, *map(np.abs, wide), optimize=True) + np.abs(start)
    result = p.generic(maps, tensors, MULTIPLY_ADD, [init])
    p.check(result, np.einsum(maps, *wide, optimize=True) + start, (terms + 1) * ROUNDOFF * magnitudes)


def contractions(p):
    # Attention: scores and what they weigh.
    contraction(p, "bqhd,bkhd->bhqk")
    contraction(p, "bhqk,bkhd->bqhd")
    contraction(p, "bhdq,bhdk->bhkq")
    for maps in ("mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm"):
        contraction(p, maps, inits=True)
    for maps in ("k,k->", "mk,k->m", "km,k->m", "m,n->mn", "mkl,lkn->mn", "bmk,bkn->bmn"):
        contraction(p, maps)
    # Longer than what is taken in one go: in chunks, in rounds, in blocks of rows.
    contraction(p, "bpv,vd->bpd", inits=True, v=1038)
    contraction(p, "bpd,vd->bpv", inits=True, d=1027)
    contraction(p, "bft,bgt->fg", inits=True, b=9, t=200)
    contraction(p, "kv,kd->vd", k=64, v=1030)
    # Packed vectors, of whole panels and less; transposed columns.
    contraction(p, "mk,kn->mn", inits=True, m=240, k=600, n=37)
    contraction(p, "mk,nk->mn", inits=True, m=50, k=1040, n=45)
    contraction(p, "bmk,nbk->mn", m=77, k=48, n=33)
    # Packed rows: along rows, along summands, one by one; swept; with transposed columns.
    contraction(p, "kv,kd->vd", inits=True, k=520, v=7001, d=130)
    contraction(p, "vk,kd->vd", k=520, v=6500, d=150)
    contraction(p, "bvk,kd->bvd", b=3, v=2400, k=521, d=130)
    contraction(p, "vk,dk->vd", inits=True, v=6200, k=1040, d=140)
    # Vectors that stream from the second-level cache: of several panels and a part, in chunks of summands, transposed;
    # rows that all are packed before, of one reduced loop and of two, alike and of two sizes.
    contraction(p, "mk,kn->mn", inits=True, m=100, k=1100, n=330)
    contraction(p, "mk,nk->mn", m=100, k=1104, n=336)
    contraction(p, "mk,nk->mn", inits=True, m=130, k=1101, n=336)
    contraction(p, "mbk,bnk->mn", m=130, b=3, k=77, n=100)
    contraction(p, "mk,kn->mn", inits=True, m=60, k=70, n=4618)
    contraction(p, "km,kn->mn", m=60, k=70, n=4618)
    contraction(p, "km,kn->mn", inits=True, m=100, k=1100, n=330)
    contraction(p, "bkm,bkn->mn", b=3, k=40, m=96, n=272)
    contraction(p, "bkm,ckn->bcmn", b=2, c=3, k=40, m=29, n=300)


REDUCTIONS = [
    ("addf", "0.0", np.sum), ("maximumf", "0xFF800000", np.max), ("minimumf", "0x7F800000", np.min),
    ("mulf", "1.0", np.prod), ("maxnumf", "0xFF800000", np.max),
]


def reductions(p):
    for name, neutral, reference in REDUCTIONS:
        for rank, maps in [(3, "ijk->ij"), (3, "ijk->jk"), (3, "ijk->ik"), (2, "ij->"), (3, "ijk->kj"), (1, "i->")]:
            # Close to 1, so that no product underflows.
            x = np.exp(0.01 * p.random.standard_normal(p.extents(rank))).astype(np.float32)
            tensor = p.add(x)
            left, right = maps.split("->")
            axes = tuple(i for i, l in enumerate(left) if l not in right)
            shape = dict(zip(left, x.shape))
            init = p.fill([shape[l] for l in right], neutral)
            body = f"%s = arith.{name} %a, %o : f32\n linalg.yield %s : f32"
            want = reference(x.astype(np.float64), axis=axes)
            size = np.abs(want) if name == "mulf" else np.sum(np.abs(x.astype(np.float64)), axis=axes)
            bound = np.prod([x.shape[a] for a in axes]) * ROUNDOFF * size if name in ("addf", "mulf") else 0.0
            if maps == "ijk->kj":
                want, bound = want.T, np.transpose(bound) if np.ndim(bound) else bound
            p.check(p.generic(maps, [tensor], body, [init]), want, bound)
    # Not associative: one step after the other.
    x, tensor = p.normal(*p.extents(2))
    left = np.float32(0) * x[:, 0]
    for column in x.T:
        left = np.float32(0.5) * left - column
    body = ("%h = arith.constant 0.5 : f32\n %t = arith.mulf %h, %o : f32\n %s = arith.subf %t, %a : f32\n"
            "linalg.yield %s : f32")
    p.check(p.generic("ij->i", [tensor], body, [p.fill(x.shape[:1])]), left, 8 * ROUNDOFF * np.abs(x).sum(1))
    # Over one element, which joins the init wherever the result is used.
    n, m = p.extents(2)
    x, tensor = p.normal(n, 1, m)
    start, init = p.normal(n, m)
    sums = p.generic("iuj->ij", [tensor], ADD, [init])
    want = x[:, 0] + start
    p.check(p.generic("ij->ji", [sums], NEGATE), -want.T)
    p.check(p.generic("ij->i", [sums], ADD, [p.fill([n])]), want.astype(np.float64).sum(1),
            m * ROUNDOFF * np.abs(want).sum(1))
    p.check(p.generic("ij->j", [sums], ADD, [p.fill([m])]), want.astype(np.float64).sum(0),
            n * ROUNDOFF * np.abs(want).sum(0))
    largest = "%s = arith.maximumf %a, %o : f32\n linalg.yield %s : f32"
    p.check(p.generic("iuj->ij", [tensor], largest, [init]), np.maximum(x[:, 0], start))
    one, scalar = p.normal(1, 1)
    p.check(p.generic("ij->", [scalar], ADD, [p.fill([], "2.0")]), one[0, 0] + np.float32(2))
    # Integers and bits.
    n, m = p.extents(2)
    numbers = p.random.integers(-100, 100, (n, m)).astype(np.int32)
    bits = numbers > 30
    for array, name, kind, neutral, reference in [
            (numbers, "addi", "i32", "0", np.sum), (numbers, "maxsi", "i32", "-2147483648", np.max),
            (bits, "ori", "i1", "false", np.any), (bits, "andi", "i1", "true", np.all)]:
        for maps, axis in [("ij->i", 1), ("ij->j", 0)]:
            init = p.fill([array.shape[1 - axis]], neutral, kind)
            body = f"%s = arith.{name} %a, %o : {kind}\n linalg.yield %s : {kind}"
            p.check(p.generic(maps, [p.add(array)], body, [init]), reference(array, axis=axis))


def several_results(p):
    # Sums and sums of squares in one go.
    for maps, axis in [("ij->i,i", 1), ("ij->j,j", 0)]:
        x, tensor = p.normal(*p.extents(2))
        wide = x.astype(np.float64)
        n, shape = x.shape[axis], [x.shape[1 - axis]]
        body = ("%s = arith.addf %a, %o : f32\n %q = arith.mulf %a, %a : f32\n %t = arith.addf %q, %p : f32\n"
                "linalg.yield %s, %t : f32, f32")
        sums, squares = p.generic(maps, [tensor], body, [p.fill(shape), p.fill(shape)])
        p.check(sums, wide.sum(axis), n * ROUNDOFF * np.abs(wide).sum(axis))
        p.check(squares, (wide**2).sum(axis), (n + 1) * ROUNDOFF * (wide**2).sum(axis))
    # The largest element and its place.
    for maps, axis in [("ij->i,i", 1), ("ij->j,j", 0)]:
        x, tensor = p.normal(*p.extents(2))
        shape = [x.shape[1 - axis]]
        body = (f"%i = linalg.index 1 : index\n %n = arith.index_cast %i : index to i32\n"
                "%g = arith.cmpf ogt, %a, %o : f32\n %s = arith.select %g, %a, %o : f32\n"
                "%t = arith.select %g, %n, %p : i32\n linalg.yield %s, %t : f32, i32")
        best, place = p.generic(maps, [tensor], body, [p.fill(shape, "0xFF800000"), p.fill(shape, "0", "i32")])
        p.check(best, x.max(axis))
        p.check(place, x.argmax(axis).astype(np.int32))
    # Element-wise, one of them transposed.
    x, tensor = p.normal(*p.extents(2))
    both = "%n = arith.negf %a : f32\n linalg.yield %a, %n : f32, f32"
    inits = [p.empty(x.shape), p.empty(x.T.shape)]
    first, second = p.generic("ij->ij,ji", [tensor], both, inits)
    p.check(first, x)
    p.check(second, -x.T)


def softmax(p, axis):
    x, tensor = p.normal(*p.extents(3))
    letters = "ijk"
    kept = letters.replace(letters[axis], "")
    shape = [n for i, n in enumerate(x.shape) if i != axis]
    largest = p.generic(f"ijk->{kept}", [tensor], "%s = arith.maximumf %a, %o : f32\n linalg.yield %s : f32",
                        [p.fill(shape, "0xFF800000")])
    powers = p.generic(f"ijk,{kept}->ijk", [tensor, largest],
                       "%d = arith.subf %a, %b : f32\n %e = math.exp %d : f32\n linalg.yield %e : f32")
    total = p.generic(f"ijk->{kept}", [powers], ADD, [p.fill(shape)])
    result = p.generic(f"ijk,{kept}->ijk", [powers, total], "%q = arith.divf %a, %b : f32\n linalg.yield %q : f32")
    want, _, _ = references.softmax(x.astype(np.float64), axis)
    # The exponential, its argument (below 10), the sum and the quotient.
    p.check(result, want, (x.shape[axis] + 2 * 8 + 10 + 4) * ROUNDOFF * want)


def softmax_gradient(p, shape, axis):
    """What reaches the exponents, from what reaches the quotients."""
    (x, tx), (g, tg) = p.normal(*shape), p.normal(*shape)
    kept = "ijk".replace("ijk"[axis], "")
    sums = [n for i, n in enumerate(shape) if i != axis]
    powers = p.generic("ijk->ijk", [tx], "%e = math.exp %a : f32\n linalg.yield %e : f32")
    total = p.generic(f"ijk->{kept}", [powers], ADD, [p.fill(sums)])
    quotient = p.generic(f"ijk,{kept}->ijk", [powers, total], "%q = arith.divf %a, %b : f32\n linalg.yield %q : f32")
    product = p.generic("ijk,ijk->ijk", [quotient, tg], "%m = arith.mulf %a, %b : f32\n linalg.yield %m : f32")
    inner = p.generic(f"ijk->{kept}", [product], ADD, [p.fill(sums)])
    result = p.generic(f"ijk,ijk,{kept}->ijk", [quotient, tg, inner],
                       "%d = arith.subf %b, %c : f32\n %m = arith.mulf %a, %d : f32\n linalg.yield %m : f32")
    want, _, _ = references.softmax(x.astype(np.float64), axis)
    size = np.abs(g) + (want * np.abs(g)).sum(axis, keepdims=True)
    p.check(result, references.softmax_gradient(want, g, axis), (3 * shape[axis] + 60) * ROUNDOFF * want * size)


def layer_norm(p, shape, axis):
    """A layer norm and its gradients, of what it reads and of gain and offset."""
    (x, tx), (g, tg) = p.normal(*shape), p.normal(*shape)
    n = shape[axis]
    (gain, tgain), (offset, toffset) = p.normal(n), p.normal(n)
    row, kept = "ijk"[axis], "ijk".replace("ijk"[axis], "")
    units = "ijk".replace(row, "0")
    sums, column = [m for i, m in enumerate(shape) if i != axis], list(shape)
    column[axis] = 1
    mean = (f"%n = arith.constant {n}.0 : f32\n %m = arith.divf %a, %n : f32\n")
    add = lambda tensor: p.generic(f"ijk->{kept}", [tensor], ADD, [p.fill(sums)])
    multiply = lambda maps, a, b: p.generic(maps, [a, b], "%m = arith.mulf %a, %b : f32\n linalg.yield %m : f32")
    centre = p.generic(f"{kept}->ijk", [add(tx)], mean + "linalg.yield %m : f32", [p.empty(column)],
                       extents={row: 1})
    centred = p.generic(f"ijk,{units}->ijk", [tx, centre], "%d = arith.subf %a, %b : f32\n linalg.yield %d : f32")
    inverse = p.generic(f"{kept}->{kept}", [add(multiply("ijk,ijk->ijk", centred, centred))],
                        mean + "%e = arith.constant 0.125 : f32\n %s = arith.addf %m, %e : f32\n"
                        "%r = math.rsqrt %s : f32\n linalg.yield %r : f32")
    normal = multiply(f"ijk,{kept}->ijk", centred, inverse)
    result = p.generic(f"ijk,{row},{row}->ijk", [normal, tgain, toffset],
                       "%m = arith.mulf %a, %b : f32\n %s = arith.addf %m, %c : f32\n linalg.yield %s : f32")
    scaled = multiply(f"ijk,{row}->ijk", tg, tgain)
    first, second = add(scaled), add(multiply("ijk,ijk->ijk", scaled, normal))
    gradient = p.generic(f"ijk,{kept},ijk,{kept},{kept}->ijk", [scaled, first, normal, second, inverse],
                         f"%n = arith.constant {n}.0 : f32\n %f = arith.divf %b, %n : f32\n"
                         "%s = arith.divf %d, %n : f32\n %m = arith.mulf %c, %s : f32\n %t = arith.addf %f, %m : f32\n"
                         "%u = arith.subf %a, %t : f32\n %v = arith.mulf %u, %e : f32\n linalg.yield %v : f32")
    others = tuple(i for i in range(3) if i != axis)
    gains = p.generic(f"ijk->{row}", [multiply("ijk,ijk->ijk", tg, normal)], ADD, [p.fill([n])])
    offsets = p.generic(f"ijk->{row}", [tg], ADD, [p.fill([n])])

    wide, dy, spread = x.astype(np.float64), g.astype(np.float64), [1, 1, 1]
    spread[axis] = n
    scale = gain.reshape(spread)
    c = wide - wide.mean(axis, keepdims=True)
    r = 1 / np.sqrt((c**2).mean(axis, keepdims=True) + 0.125)
    h, dh = c * r, dy * scale
    size = (np.abs(wide) + np.abs(wide).mean(axis, keepdims=True)) * r * (1 + np.abs(h))
    p.check(result, h * scale + offset.reshape(spread),
            (n + 20) * ROUNDOFF * (size * np.abs(scale) + np.abs(offset.reshape(spread))))
    p.check(gradient, r * (dh - dh.mean(axis, keepdims=True) - h * (dh * h).mean(axis, keepdims=True)),
            8 * (n + 20) * ROUNDOFF * r * (1 + size.max()) * np.max(np.abs(dh)) * (1 + np.max(np.abs(h))))
    count = np.prod(sums)
    p.check(gains, (dy * h).sum(others), (n + count + 20) * ROUNDOFF * (np.abs(dy) * (size + np.abs(h))).sum(others))
    p.check(offsets, dy.sum(others), count * ROUNDOFF * np.abs(dy).sum(others))


def two_powers(p, shape, axis):
    """Two values that later loops of one kernel read and nothing else does."""
    x, tensor = p.normal(*shape)
    kept, quotients, want = "ijk".replace("ijk"[axis], ""), [], 0.0
    sums = [n for i, n in enumerate(shape) if i != axis]
    for sign, change in [(1, "%n = arith.addf %a, %a : f32"), (-1, "%n = arith.negf %a : f32")]:
        power = p.generic("ijk->ijk", [tensor], change + "\n %e = math.exp %n : f32\n linalg.yield %e : f32")
        total = p.generic(f"ijk->{kept}", [power], ADD, [p.fill(sums)])
        quotients.append(p.generic(f"ijk,{kept}->ijk", [power, total],
                                   "%q = arith.divf %a, %b : f32\n linalg.yield %q : f32"))
        wide = np.exp(x.astype(np.float64) * (2 if sign > 0 else -1))
        want = want + sign * wide / wide.sum(axis, keepdims=True)
    result = p.generic("ijk,ijk->ijk", quotients, "%d = arith.subf %a, %b : f32\n linalg.yield %d : f32")
    p.check(result, want, (shape[axis] + 60) * ROUNDOFF * 2)


def chains(p):
    for axis in (1, 2):
        for shape in [(2, 7, 20), (3, 37, 5), (2, 33, 37), (1, 16, 64), (3, 1, 9), p.extents(3)]:
            softmax_gradient(p, shape, axis)
            layer_norm(p, shape, axis)
            two_powers(p, shape, axis)


def element_wise(p):
    for axis in range(3):
        softmax(p, axis)
    # Transposes, broadcasts and constants in maps.
    i, j, k = p.extents(3)
    (x, tx), (y, ty), (z, tz), (u, tu) = p.normal(i, j), p.normal(j), p.normal(i, 1), p.normal(j, k, i)
    add3 = "%s = arith.addf %a, %b : f32\n %t = arith.addf %s, %c : f32\n linalg.yield %t : f32"
    p.check(p.generic("ij,j,i0->ij", [tx, ty, tz], add3), x + y + z)
    p.check(p.generic("ij,j,i0->ji", [tx, ty, tz], add3), (x + y + z).T)
    p.check(p.generic("jki,ij->ikj", [tu, tx], "%s = arith.addf %a, %b : f32\n linalg.yield %s : f32"),
            u.transpose(2, 1, 0) + x[:, None, :])
    # Ranks 0 and 5.
    scalar, ts = p.normal()
    p.check(p.generic("->", [ts], NEGATE), -scalar)
    w, tw = p.normal(2, 3, 5, 2, 7)
    p.check(p.generic("abcde->cebda", [tw], NEGATE), -w.transpose(2, 4, 1, 3, 0))
    # Large ones are divided among threads, with a rest.
    for shape in [(5000,), (3, 4099), (2, 1, 9001)]:
        v, tv = p.normal(*shape)
        letters = "ijk"[:len(shape)]
        p.check(p.generic(f"{letters}->{letters}", [tv], NEGATE), -v)
        p.check(p.generic(f"{letters}->{letters[:-1]}", [tv], ADD, [p.fill(shape[:-1])]), v.astype(np.float64).sum(-1),
                shape[-1] * ROUNDOFF * np.abs(v).sum(-1))
    # Positions as data, along lanes and across.
    count = "%i = linalg.index {} : index\n %n = arith.index_cast %i : index to i32\n" \
            " %f = arith.sitofp %n : i32 to f32\n" \
            "%s = arith.addf %a, %f : f32\n linalg.yield %s : f32"
    p.check(p.generic("ij->ij", [tx], count.format(0)), x + np.arange(i, dtype=np.float32)[:, None])
    p.check(p.generic("ij->ij", [tx], count.format(1)), x + np.arange(j, dtype=np.float32))
    # Scalars and constants; a constant of different elements stays a tensor.
    p.lines.append("%scalar = arith.constant 3.0 : f32")
    p.lines.append(f"%splat = arith.constant dense<2.0> : {ty.type}")
    p.lines.append("%list = arith.constant dense<[1.0, 2.0, 4.0]> : tensor<3xf32>")
    captured = "%m = arith.mulf %a, %scalar : f32\n %s = arith.addf %m, %b : f32\n linalg.yield %s : f32"
    p.check(p.generic("ij,j->ij", [tx, Tensor("%splat", [j])], captured),
            (x * np.float32(3) + 2), 4 * ROUNDOFF * (3 * np.abs(x) + 2))
    three, t3 = p.normal(3, j)
    p.check(p.generic("ij,i->ij", [t3, Tensor("%list", [3])], "%m = arith.mulf %a, %b : f32\n linalg.yield %m : f32"),
            three * np.float32([[1], [2], [4]]))


def booleans(p):
    x, tensor = p.normal(*p.extents(2))
    mask = p.generic("ij->ij", [tensor], "%z = arith.constant 0.0 : f32\n %g = arith.cmpf ogt, %a, %z : f32\n"
                     "linalg.yield %g : i1", kind="i1")
    choose = ("%z = arith.constant 0.0 : f32\n %s = arith.select %a, %b, %z : f32\n linalg.yield %s : f32")
    p.check(mask, x > 0)
    p.check(p.generic("ij,ij->ij", [mask, tensor], choose), np.maximum(x, 0))
    p.check(p.generic("ij,ij->ji", [mask, tensor], choose), np.maximum(x, 0).T)
    given = p.random.random(x.shape[::-1]) < 0.5
    p.check(p.generic("ji,ij->ij", [p.add(given), tensor], choose), np.where(given.T, x, 0))
    # Used many times and dear: stored between kernels.
    dear = p.generic("ij->ij", [tensor], "%e = math.exp %a : f32\n %l = math.log %e : f32\n"
                     " %z = arith.constant 0.5 : f32\n"
                     "%g = arith.cmpf ogt, %l, %z : f32\n linalg.yield %g : i1", kind="i1")
    assert (np.abs(x - 0.5) > 1e-5).all()
    p.check(p.generic("ij->j", [dear], "%s = arith.ori %a, %o : i1\n linalg.yield %s : i1",
                      [p.fill([x.shape[1]], "false", "i1")]), (x > 0.5).any(0))
    p.check(p.generic("ij,ij->ij", [dear, tensor], choose), np.where(x > 0.5, x, 0))


def gathers(p):
    rows, columns, count = p.extents(3)
    table, tt = p.normal(rows, columns)
    ids = p.random.integers(0, rows, count).astype(np.int32)
    ti = p.add(ids)
    look_up = ("%r = arith.index_cast %a : i32 to index\n %c = linalg.index {dim} : index\n"
               f"%e = tensor.extract {tt.name}[%r, %c] : {tt.type}\n linalg.yield %e : f32")
    extents = {"j": columns, "i": count}
    # Rows by row, lanes along features; then lanes along ids.
    p.check(p.generic("i->ij", [ti], look_up.format(dim=1), [p.empty((count, columns))]), table[ids])
    p.check(p.generic("i->ji", [ti], look_up.format(dim=0), [p.empty((columns, count))]), table[ids].T)
    # Places that are known: as they are, transposed, one fixed.
    for text, shape, want in [("%r, %c", (rows, columns), table), ("%c, %r", (columns, rows), table.T)]:
        body = ("%r = linalg.index 0 : index\n %c = linalg.index 1 : index\n"
                f"%e = tensor.extract {tt.name}[{text}] : {tt.type}\n linalg.yield %e : f32")
        p.check(p.generic("->ij", [], body, [p.empty(shape)]), want)
    body = ("%r = arith.constant 0 : index\n %c = linalg.index 0 : index\n"
            f"%e = tensor.extract {tt.name}[%r, %c] : {tt.type}\n linalg.yield %e : f32")
    p.check(p.generic("->i", [], body, [p.empty((columns,))]), table[0])
    # What is looked up is computed: the producer must be in memory or computed there.
    negated = p.generic("ij->ij", [tt], NEGATE)
    body = look_up.format(dim=1).replace(tt.name, negated.name)
    p.check(p.generic("i->ij", [ti], body, [p.empty((count, columns))]), -table[ids])


def views(p):
    i, j, k = p.extents(3)
    x, tx = p.normal(i, j, k)
    negated = p.generic("ijk->ijk", [tx], NEGATE)
    # What lies side by side in memory, or is computed so, or only seems to.
    turned = p.generic("kij->ijk", [p.add(np.ascontiguousarray(-x.transpose(2, 0, 1)))], COPY)
    for source in (tx, negated, turned):
        sign = 1 if source is tx else -1
        left = p.op(f"tensor.collapse_shape {source.name} [[0, 1], [2]] : {source.type} into {{type}}", (i * j, k))
        right = p.op(f"tensor.collapse_shape {source.name} [[0], [1, 2]] : {source.type} into {{type}}", (i, j * k))
        flat = p.op(f"tensor.collapse_shape {source.name} [[0, 1, 2]] : {source.type} into {{type}}", (i * j * k,))
        a, b = -sign * x.reshape(i * j, k), -sign * x.reshape(i, j * k)
        p.check(p.generic("ij->ij", [left], NEGATE), a)
        p.check(p.generic("ij->ji", [left], NEGATE), a.T)
        p.check(p.generic("ij->ij", [right], NEGATE), b)
        p.check(p.generic("ij->ji", [right], NEGATE), b.T)
        p.check(p.generic("i->i", [flat], NEGATE), a.reshape(-1))
        total = np.abs(x).astype(np.float64)
        p.check(p.generic("ij->i", [right], ADD, [p.fill([i])]), -b.astype(np.float64).sum(1),
                j * k * ROUNDOFF * total.sum((1, 2)))
        p.check(p.generic("ij->j", [left], ADD, [p.fill([k])]), -a.astype(np.float64).sum(0),
                i * j * ROUNDOFF * total.sum((0, 1)))
    m, n = p.extents(2)
    y, ty = p.normal(m * n, k)
    wide = p.op(f"tensor.expand_shape {ty.name} [[0, 1], [2]] "
                f"output_shape [{m}, {n}, {k}] : {ty.type} into {{type}}", (m, n, k))
    p.check(p.generic("ijk->ijk", [wide], NEGATE), -y.reshape(m, n, k))
    p.check(p.generic("ijk->kij", [wide], NEGATE), -y.reshape(m, n, k).transpose(2, 0, 1))
    p.check(p.generic("ijk->kji", [wide], NEGATE), -y.reshape(m, n, k).transpose(2, 1, 0))
    # Units come and go; rank 0 too.
    one, t1 = p.normal(1, 1)
    scalar = p.op(f"tensor.collapse_shape {t1.name} [] : {t1.type} into {{type}}", ())
    p.check(p.generic("->", [scalar], NEGATE), -one[0, 0])
    units = p.op(f"tensor.expand_shape {ty.name} [[0, 1], [2, 3]] "
                 f"output_shape [1, {m * n}, {k}, 1] : {ty.type} into {{type}}", (1, m * n, k, 1))
    p.check(p.generic("aijb->jabi", [units], NEGATE), -y.T[:, None, None, :])
    # Slices.
    low, high = sorted(p.random.choice(m * n + 1, 2, replace=False))
    part = p.op(f"tensor.extract_slice {ty.name}[{low}, 0] [{high - low}, {k}] [1, 1] "
                f": {ty.type} to {{type}}", (high - low, k))
    p.check(p.generic("ij->ij", [part], NEGATE), -y[low:high])
    column = p.op(f"tensor.extract_slice {ty.name}[0, {k - 1}] [{m * n}, 1] [1, 1] : {ty.type} to {{type}}", (m * n, 1))
    p.check(p.generic("ij->ji", [column], NEGATE), -y[:, k - 1:].T)
    merged = p.op(f"tensor.collapse_shape {part.name} [[0, 1]] : {part.type} into {{type}}", ((high - low) * k,))
    p.check(p.generic("i->i", [merged], NEGATE), -y[low:high].reshape(-1))


def concatenate(p, pieces, axis, filled=None):
    """`pieces` one after the other along `axis`, as slices inserted in any order; `filled` elements in front are 0.5."""
    shape, kind = list(pieces[0].shape), pieces[0].kind
    shape[axis] = sum(piece.shape[axis] for piece in pieces) + (filled or 0)
    whole, offset, places = p.fill(shape, "0.5") if filled else p.empty(shape, kind), filled or 0, []
    for piece in pieces:
        places.append(offset)
        offset += piece.shape[axis]
    for number in p.random.permutation(len(pieces)):
        piece, offsets = pieces[number], [0] * len(shape)
        offsets[axis] = places[number]
        whole = p.op(f"tensor.insert_slice {piece.name} into {whole.name}{offsets} {list(piece.shape)} "
                     f"{[1] * len(shape)} : {piece.type} into {{type}}", shape, kind)
    return whole


def concatenations(p):
    for axis in range(3):
        # Arguments; what is cheap, dear, computed in another order or read by others as well; the same one twice.
        x = p.extents(3)
        y, z = list(x), list(x)
        y[axis], z[axis] = p.extents(2)
        (x, tx), (y, ty), (z, tz) = p.normal(*x), p.normal(*y), p.normal(*z)
        cheap = p.generic("ijk->ijk", [ty], NEGATE)
        dear = p.generic("ijk->ijk", [tz], "%e = math.exp %a : f32\n linalg.yield %e : f32")
        turned = p.generic("kij->ijk", [p.add(np.ascontiguousarray(-x.transpose(2, 0, 1)))], NEGATE)
        want = np.concatenate([x, -y, np.exp(z.astype(np.float64)), x, -y], axis)
        bound = 8 * ROUNDOFF * np.abs(want)
        whole = concatenate(p, [tx, cheap, dear, turned, cheap], axis)
        p.check(whole, want, bound)
        p.check(p.generic("ijk->kij", [dear], NEGATE), -np.exp(z.astype(np.float64)).transpose(2, 0, 1),
                8 * ROUNDOFF * np.exp(z).transpose(2, 0, 1))
        p.check(p.generic("ijk->ijk", [concatenate(p, [ty, dear], axis)], NEGATE),
                -np.concatenate([y, np.exp(z.astype(np.float64))], axis), 8 * ROUNDOFF * np.exp(z).max())
        # One of them, and nothing but what is there already, in front.
        p.check(concatenate(p, [cheap], axis, filled=3), np.pad(-y, [(3 * (i == axis), 0) for i in range(3)],
                                                                constant_values=0.5))
        # Bits and halves.
        bits = p.random.random(x.shape) < 0.5
        given = p.generic("ijk->ijk", [ty], "%z = arith.constant 0.0 : f32\n %g = arith.cmpf ogt, %a, %z : f32\n"
                          "linalg.yield %g : i1", kind="i1")
        p.check(concatenate(p, [p.add(bits), given, given], axis), np.concatenate([bits, y > 0, y > 0], axis))
        narrow = [p.generic("ijk->ijk", [t], "%h = arith.truncf %a : f32 to bf16\n linalg.yield %h : bf16", kind="bf16")
                  for t in (tx, ty, tz)]
        p.check(p.generic("ijk->ijk", [concatenate(p, narrow, axis)],
                          "%w = arith.extf %a : bf16 to f32\n linalg.yield %w : f32"),
                step.from_bf16(step.to_bf16(np.concatenate([x, y, z], axis))))
        # Products, with dimensions that are merged, beside one that something else reads.
        b, h, d, t, s = p.extents(5)
        pieces, wants, magnitude = [], [], 0.0
        for number in range(3):
            (u, tu), (v, tv) = p.normal(b, h, d, s), p.normal(b, h, t, s)
            product = p.generic("bhds,bhts->bhdt", [tu, tv], MULTIPLY_ADD, [p.fill((b, h, d, t))])
            merged = p.op(f"tensor.collapse_shape {product.name} [[0], [1, 2], [3]] : {product.type} into {{type}}",
                          (b, h * d, t))
            u, v = u.astype(np.float64), v.astype(np.float64)
            pieces.append(merged)
            wants.append(np.einsum("bhds,bhts->bhdt", u, v).reshape(b, h * d, t))
            magnitude = max(magnitude, np.einsum("bhds,bhts->bhdt", np.abs(u), np.abs(v)).max())
            if number == 1:
                p.check(p.generic("bft->tfb", [merged], NEGATE), -wants[-1].T, (s + 2) * ROUNDOFF * magnitude)
        p.check(concatenate(p, pieces, axis), np.concatenate(wants, axis), (s + 2) * ROUNDOFF * magnitude)
    # All there is along several dimensions.
    n, m = p.extents(2)
    (x, tx), (y, ty) = p.normal(n, m), p.normal(n, m)
    rows = concatenate(p, [tx, ty], 1)
    p.check(concatenate(p, [rows, p.generic("ij->ij", [rows], NEGATE)], 0), np.block([[x, y], [-x, -y]]))


def element_types(p):
    x, tensor = p.normal(*p.extents(2))
    half = p.generic("ij->ij", [tensor], "%h = arith.truncf %a : f32 to f16\n linalg.yield %h : f16", kind="f16")
    p.check(half, x.astype(np.float16))
    there_and_back = "%h = arith.truncf %a : f32 to {0}\n %w = arith.extf %h : {0} to f32\n linalg.yield %w : f32"
    both = p.generic("ij->ij", [tensor], there_and_back.format("f16"))
    p.check(both, x.astype(np.float16).astype(np.float32))
    narrow = p.generic("ij->ji", [tensor], there_and_back.format("bf16"))
    p.check(narrow, step.from_bf16(step.to_bf16(x)).T)
    wide = p.generic("ij->i", [tensor],
                     "%w = arith.extf %a : f32 to f64\n %s = arith.addf %w, %o : f64\n linalg.yield %s : f64",
                     [p.fill(x.shape[:1], "0.0", "f64")])
    p.check(wide, x.astype(np.float64).sum(1), 2 * x.shape[1] * 2.0**-53 * np.abs(x).sum(1))
    numbers = p.random.integers(-1000, 1000, x.shape).astype(np.int64)
    body = "%f = arith.sitofp %a : i64 to f32\n %s = arith.mulf %f, %b : f32\n linalg.yield %s : f32"
    p.check(p.generic("ij,ij->ij", [p.add(numbers), tensor], body), x * numbers.astype(np.float32))


def halves(p):
    """Sums of halves are taken in f32 and rounded once, however long they are."""
    for kind, digits in (("bf16", 8), ("f16", 11)):
        def narrow(array):
            half = p.generic("ij->ij", [p.add(array)],
                             f"%h = arith.truncf %a : f32 to {kind}\n linalg.yield %h : {kind}", kind=kind)
            rounded = array.astype(np.float16) if kind == "f16" else step.from_bf16(step.to_bf16(array))
            return half, rounded.astype(np.float64)

        def widen(tensor, letters):
            return p.generic(f"{letters}->{letters}", [tensor],
                             f"%w = arith.extf %a : {kind} to f32\n linalg.yield %w : f32")

        multiply_add = (f"%m = arith.mulf %a, %b : {kind}\n %s = arith.addf %m, %o : {kind}\n"
                        f"linalg.yield %s : {kind}")
        # In one go and in chunks; rows and vectors packed or not, transposed, summed across lanes.
        for maps in ("mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"):
            for m, n, k in ((5, 3, 7), (20, 40, 64), (250, 200, 48), (70, 120, 1100), (2, 2, 2000)):
                # Terms of one sign: a sum that is rounded on the way stands still.
                extent = dict(m=m, n=n, k=k)
                (a, wide_a), (b, wide_b) = (
                    narrow(p.random.uniform(0.5, 1, [extent[l] for l in letters]).astype(np.float32))
                    for letters in maps.split("->")[0].split(","))
                start, wide_start = narrow(p.random.standard_normal((m, n)).astype(np.float32))
                init = start if k != 64 else p.fill((m, n), kind=kind)
                want = np.einsum(maps, wide_a, wide_b, optimize=True) + (wide_start if k != 64 else 0)
                bound = (k + 2) * ROUNDOFF * np.abs(want) + 2.0**-digits * np.abs(want)
                got = p.generic(maps, [a, b], multiply_add, [init])
                p.check(widen(got, "mn"), want, bound)
                # The rounded sums are what follows goes on with.
                follower = p.generic("mn->mn", [got], f"%t = arith.negf %a : {kind}\n linalg.yield %t : {kind}", kind=kind)
                p.check(widen(follower, "mn"), -want, bound)
        x, wide = narrow(p.random.uniform(0.5, 1, (3, 3000)).astype(np.float32))
        for maps, axis in (("ij->i", 1), ("ij->j", 0)):
            want = wide.sum(axis)
            sums = p.generic(maps, [x], f"%s = arith.addf %a, %o : {kind}\n linalg.yield %s : {kind}",
                             [p.fill(want.shape, kind=kind)])
            p.check(widen(sums, maps[-1]), want, (3000 * ROUNDOFF + 2.0**-digits) * want)


CASES = [contractions, reductions, several_results, element_wise, chains, booleans, gathers, views,
         concatenations, element_types, halves]
# Instructions for pairs of bf16 are in products of halves alone.
if step.has_pairs():
    CASES = [halves]
for seed, build in step.share(itertools.product(range(2), CASES)):
    program = Program([seed, len(build.__name__)])
    build(program)
    program.run(f"{build.__name__}, seed {seed}")
