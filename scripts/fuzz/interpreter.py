# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluates steps (see parser) in float64 with numpy, in several runs at once (see rounding).

A value is an array with a first axis of runs, of length 1 where the runs agree. Inside of
the body of a linalg operation it has an axis for each loop, of length 1 where it does not vary.
"""

import itertools
import math

import numpy as np

from fuzz import parser
from fuzz.rounding import NUM_RUNS, Rounding, is_float

BINARY = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.maximumf": np.maximum, "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin,
    "arith.remf": np.fmod, "math.powf": np.power, "math.atan2": np.arctan2, "math.copysign": np.copysign,
}
EXACT = {"arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "math.copysign", "arith.negf", "math.absf",
         "math.floor", "math.ceil", "math.round", "math.roundeven", "math.trunc"}
UNARY = {
    "math.exp": np.exp, "math.exp2": np.exp2, "math.expm1": np.expm1, "math.log": np.log, "math.log1p": np.log1p,
    "math.log2": np.log2, "math.tanh": np.tanh, "math.sqrt": np.sqrt, "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.sin": np.sin, "math.cos": np.cos, "math.absf": np.abs, "arith.negf": np.negative, "math.floor": np.floor,
    "math.ceil": np.ceil, "math.trunc": np.trunc, "math.roundeven": np.rint, "math.atan": np.arctan,
    "math.sinh": np.sinh, "math.cosh": np.cosh, "math.cbrt": np.cbrt, "square": np.square,
    "math.round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "math.erf": lambda x: np.frompyfunc(math.erf, 1, 1)(x).astype(np.float64),
}
CORRECT = {"math.sqrt", "square"}  # functions that are rounded once
COMPARE = {"eq": np.equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "ne": np.not_equal}
REDUCE = {"arith.addf": np.add, "arith.mulf": np.multiply, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
          "arith.addi": np.add, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
          "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


class Unstable(Exception):
    """Roundings decide which way the program goes: there is no result to compare with."""


def dtype(kind):
    return np.float64 if is_float(kind) else np.bool_ if kind == "i1" else np.int64


def wrap(array, kind):
    """Integers of `kind`; those of 64 bits wrap by themselves."""
    if kind == "i1":
        return (array & 1).astype(bool)
    if BITS[kind] == 64:
        return array
    half = 1 << (BITS[kind] - 1)
    return (array + half) % (2 * half) - half


def widened(array):
    """Integers in 64 bits: the one of a bit is its sign."""
    return -array.astype(np.int64) if array.dtype == np.bool_ else array


def unsigned(array, kind):
    """The numbers that the bits of integers of `kind` are without a sign."""
    bits = array.astype(np.int64).view(np.uint64)
    return bits if BITS[kind] == 64 else bits & np.uint64((1 << BITS[kind]) - 1)


def signed(array):
    return array.view(np.int64)


def divide(a, b):
    """The quotient rounded to 0; 0 where C has none."""
    safe = np.where(b == 0, 1, b)
    # Of the lowest integer there is no magnitude.
    return np.where(b == 0, 0, (a - np.fmod(a, safe)) // safe)


# Of integers and their kind, before they are wrapped.
INTEGER = {
    "arith.addi": lambda a, b, kind: a + b, "arith.subi": lambda a, b, kind: a - b,
    "arith.muli": lambda a, b, kind: a * b, "arith.maxsi": lambda a, b, kind: np.maximum(a, b),
    "arith.minsi": lambda a, b, kind: np.minimum(a, b), "arith.andi": lambda a, b, kind: a & b,
    "arith.ori": lambda a, b, kind: a | b, "arith.xori": lambda a, b, kind: a ^ b,
    "arith.maxui": lambda a, b, kind: np.where(unsigned(a, kind) >= unsigned(b, kind), a, b),
    "arith.minui": lambda a, b, kind: np.where(unsigned(a, kind) <= unsigned(b, kind), a, b),
    "arith.divsi": lambda a, b, kind: divide(a, b), "arith.remsi": lambda a, b, kind: a - divide(a, b) * b,
    "arith.divui": lambda a, b, kind: signed(unsigned(a, kind) // unsigned(b, kind)),
    "arith.remui": lambda a, b, kind: signed(unsigned(a, kind) % unsigned(b, kind)),
    "arith.shli": lambda a, b, kind: a << b, "arith.shrsi": lambda a, b, kind: a >> b,
    "arith.shrui": lambda a, b, kind: signed(unsigned(a, kind) >> unsigned(b, kind)),
}


def masked(array, mask):
    """`array` with zeros where `mask` has none. A NaN that is stored may come from where it is everywhere: one run
    takes that the product with the mask, which differentiation has there, keeps what is not."""
    result = np.where(mask, array, 0.0)
    if np.isnan(result).any() or np.isnan(array).all():
        result = np.broadcast_to(result, (NUM_RUNS,) + result.shape[1:]).copy()
        result[-1] += array[-1] * 0.0
    return result


class Interpreter:
    """One step. `masks` maps names of values to arrays of 0 and 1 that they are multiplied by where
    they are made, as the gradient of w * mask is; what was there before is in `unmasked`. Results are
    changed by up to `scale` roundoffs."""

    def __init__(self, function, masks=None, seed=0, scale=1.0):
        self.function, self.masks, self.rounding = function, masks or {}, Rounding(seed, scale)
        self.unmasked = {}

    def run(self, arguments):
        """The results for `arguments`, arrays with an axis of runs, by position."""
        env = {name: array for (name, _, _), array in zip(self.function.arguments, arguments)}
        self.values = env
        with np.errstate(all="ignore"):
            return self.block(self.function.ops, env)

    # Blocks.

    def block(self, ops, env):
        for op in ops:
            if op.name in ("return", "func.return", "scf.yield", "scf.condition", "linalg.yield", "tensor.yield"):
                return [env[name] for name in op.operands]
            results = self.evaluate(op, env)
            for name, result in zip(op.results, results):
                if name in self.masks:
                    self.unmasked[name] = result
                    result = masked(result, self.masks[name])
                env[name] = result
        return []

    def number(self, value):
        """A scalar that all runs agree on."""
        value = np.asarray(value).reshape(-1)
        if not (value == value[0]).all():
            raise Unstable
        return value[0]

    def evaluate(self, op, env):
        method = getattr(self, op.name.replace(".", "_"), None)
        if method:
            return method(op, env)
        if op.name in parser.NAMED_CONTRACTIONS:
            return [self.named_contraction(op, env)]
        if op.name in parser.NAMED_ELEMENT_WISE:
            name = parser.NAMED_ELEMENT_WISE[op.name]
            operands = [env[o] for o in op.operands[:op.attributes["ins"]]]
            return [self.scalar(name, operands, op.types[0], op)]
        return [self.scalar(op.name, [env[o] for o in op.operands], op.types[0], op)]

    # Scalar operations, on arrays.

    def scalar(self, name, operands, type, op):
        kind = type.kind
        finish = lambda array, factor=1.0: self.rounding.finish(array, kind, factor=factor)
        if name in INTEGER:
            return wrap(INTEGER[name](*[widened(o) for o in operands], kind), kind)
        if name == "math.absi":
            return wrap(np.abs(operands[0]), kind)
        if name in BINARY:
            result = BINARY[name](*operands)
            return result if name in EXACT else finish(result, 4.0 if name.startswith("math") else 1.0)
        if name in UNARY:
            result = UNARY[name](*operands)
            return result if name in EXACT else finish(result, 1.0 if name in CORRECT else 4.0)
        if name == "math.fma":
            return finish(operands[0] * operands[1] + operands[2])
        if name == "math.fpowi":
            return finish(np.power(operands[0], operands[1].astype(np.float64)), 4.0)
        if name == "arith.select":
            return np.where(*operands)
        if name == "arith.cmpi":
            predicate = op.attributes["predicate"]
            read = (lambda o: unsigned(o, op.attributes["from"].kind)) if predicate.startswith("u") else widened
            operands = [read(o) for o in operands]
            return COMPARE[predicate[-2:]](*operands)
        if name == "arith.cmpf":
            predicate = op.attributes["predicate"]
            unordered = np.isnan(operands[0]) | np.isnan(operands[1])
            if predicate in ("ord", "uno"):
                result = unordered if predicate == "uno" else ~unordered
            else:
                result = COMPARE[predicate[1:]](*operands)
                result = result | unordered if predicate[0] == "u" else result & ~unordered
            # Where masks multiply a NaN by 0, what is stored may make a number: one run takes that it does.
            result = np.broadcast_to(result, (NUM_RUNS,) + result.shape[1:]).copy()
            result[-1] ^= np.broadcast_to(unordered, result.shape)[-1]
            return result
        source = op.attributes.get("from")
        if name == "arith.extf":
            return operands[0]
        if name == "arith.truncf":
            return finish(operands[0])
        if name in ("arith.sitofp", "arith.uitofp"):
            value = unsigned(operands[0], source.kind) if name == "arith.uitofp" else widened(operands[0])
            return finish(value.astype(np.float64))
        if name in ("arith.fptosi", "arith.fptoui"):
            return wrap(np.trunc(np.nan_to_num(operands[0])).astype(np.int64), kind)
        if name in ("arith.index_cast", "arith.extsi", "arith.trunci"):
            return wrap(widened(operands[0]), kind)
        if name in ("arith.extui", "arith.index_castui"):
            return wrap(signed(unsigned(operands[0], source.kind)), kind)
        raise parser.ParseError(f"expected an operation of a step, but got {name}")

    def arith_constant(self, op, env):
        type, value = op.types[0], op.attributes["value"]
        array = np.asarray(value, dtype(type.kind))
        if not is_float(type.kind):
            array = wrap(array, type.kind)
        return [np.broadcast_to(array, type.shape or ())[None]]

    # Tensors.

    def bsr_gradient(self, op, env):
        return [env[op.operands[0]]]

    def tensor_empty(self, op, env):
        # Poison: no result may depend on it.
        type = op.types[0]
        return [np.full((1,) + type.shape, np.nan if is_float(type.kind) else 0, dtype(type.kind))]

    def linalg_fill(self, op, env):
        value = env[op.operands[0]]
        shape = op.types[0].shape
        value = value.reshape(len(value), *[1] * len(shape))
        return [np.broadcast_to(value, (len(value),) + shape)]

    def reshape(self, op, env):
        value = env[op.operands[0]]
        return [value.reshape((len(value),) + op.types[0].shape)]

    tensor_collapse_shape = tensor_expand_shape = reshape

    def tensor_from_elements(self, op, env):
        values = np.broadcast_arrays(*[env[o] for o in op.operands])
        return [np.stack(values, 1).reshape((len(values[0]),) + op.types[0].shape)]

    def region(self, op, env, shape):
        """The slices of `[offsets] [sizes] [strides]`, behind the axis of runs."""
        places = []
        keys = ("offsets", "sizes", "strides")
        for offset, size, stride, extent in zip(*[op.attributes[k] for k in keys], shape):
            offset = int(self.number(env[offset])) if isinstance(offset, str) else offset
            if offset < 0 or offset + (size - 1) * stride >= extent:
                raise parser.ParseError(f"expected a slice within {extent}, but got {offset}, {size}, {stride}")
            places.append(slice(offset, offset + (size - 1) * stride + 1, stride))
        return (slice(None), *places)

    def tensor_extract_slice(self, op, env):
        value = env[op.operands[0]]
        return [value[self.region(op, env, value.shape[1:])].reshape((len(value),) + op.types[0].shape)]

    def tensor_insert_slice(self, op, env):
        part, whole = (env[o] for o in op.operands[:2])
        runs = max(len(part), len(whole))
        result = np.broadcast_to(whole, (runs,) + whole.shape[1:]).copy()
        place = self.region(op, env, whole.shape[1:])
        result[place] = part.reshape((len(part),) + result[place].shape[1:])
        return [result]

    def tensor_pad(self, op, env):
        """Cut where a padding is below 0, filled where it is above."""
        value, number = env[op.operands[0]], self.block(op.blocks[0].ops, dict(env))[0]
        cut, place = [slice(None)], [slice(None)]
        for low, high, extent in zip(op.attributes["low"], op.attributes["high"], value.shape[1:]):
            cut.append(slice(max(0, -low), extent - max(0, -high)))
            start = max(0, low)
            place.append(slice(start, start + len(range(*cut[-1].indices(extent)))))
        runs = max(len(value), len(number))
        result = np.broadcast_to(number.reshape(len(number), *[1] * (value.ndim - 1)),
                                 (runs,) + op.types[0].shape).copy()
        result[tuple(place)] = value[tuple(cut)]
        return [result]

    def tensor_concat(self, op, env):
        parts = [env[o] for o in op.operands]
        runs = max(map(len, parts))
        return [np.concatenate([np.broadcast_to(p, (runs,) + p.shape[1:]) for p in parts], op.attributes["dim"] + 1)]

    def tensor_extract(self, op, env):
        value, indices = env[op.operands[0]], [env[o] for o in op.operands[1:]]
        for index, extent in zip(indices, value.shape[1:]):
            if (index < 0).any() or (index >= extent).any():
                raise parser.ParseError(f"expected an index below {extent}, but got {index.min()} to {index.max()}")
        runs = max([len(value), *map(len, indices)])
        shape = np.broadcast_shapes(*[i.shape for i in indices], (runs,) + (1,) * (indices[0].ndim - 1 if indices else 0))
        run = np.arange(runs).reshape(runs, *[1] * (len(shape) - 1))
        value = np.broadcast_to(value, (runs,) + value.shape[1:])
        return [value[(run, *indices)]]

    # Control flow.

    def scf_if(self, op, env):
        chosen = 0 if self.number(env[op.operands[0]]) else 1
        return self.block(op.blocks[chosen].ops, dict(env)) if chosen < len(op.blocks) else []

    def scf_for(self, op, env):
        first, last, stride = (int(self.number(env[o])) for o in op.operands[:3])
        carried = [env[o] for o in op.operands[3:]]
        names = [name for name, _ in op.blocks[0].arguments]
        for i in range(first, last, stride):
            inner = dict(env) | dict(zip(names, [np.array([i]), *carried]))
            carried = self.block(op.blocks[0].ops, inner)
        return carried

    def scf_while(self, op, env):
        carried = [env[o] for o in op.operands]
        while True:
            inner = dict(env) | dict(zip([n for n, _ in op.blocks[0].arguments], carried))
            going, *carried = self.block(op.blocks[0].ops, inner)
            if not self.number(going):
                return carried
            inner = dict(env) | dict(zip([n for n, _ in op.blocks[1].arguments], carried))
            carried = self.block(op.blocks[1].ops, inner)

    # Linalg.

    def linalg_transpose(self, op, env):
        return [env[op.operands[0]].transpose(0, *[p + 1 for p in op.attributes["permutation"]])]

    def linalg_broadcast(self, op, env):
        value = env[op.operands[0]]
        for dim in sorted(op.attributes["dimensions"]):
            value = np.expand_dims(value, dim + 1)
        return [np.broadcast_to(value, (len(value),) + op.types[0].shape)]

    def named_contraction(self, op, env):
        maps = op.attributes.get("indexing_maps")
        letters = [[ord(c) for c in part] for part in parser.NAMED_CONTRACTIONS[op.name]]
        if maps:
            letters = [dims for _, dims in maps]
        a, b, init = (env[o] for o in op.operands)
        return self.contract(a, b, init, *letters, op.types[0].kind)

    def contract(self, a, b, init, dims_a, dims_b, dims_c, kind):
        """The sum of products over the dimensions that `dims_c` lacks, plus `init`."""
        value, magnitude = self.products(a, b, dims_a, dims_b, dims_c), None
        magnitude = self.products(np.abs(a[:1]), np.abs(b[:1]), dims_a, dims_b, dims_c) + np.abs(init[:1])
        return self.rounding.finish(value + init, kind, magnitude, inner="f32" if kind in ("f16", "bf16") else kind)

    def products(self, a, b, dims_a, dims_b, dims_c):
        """An einsum, as a matrix product."""
        shared = [d for d in dims_a if d in dims_b and d in dims_c]
        summed = [d for d in dims_a if d in dims_b and d not in dims_c]
        left = [d for d in dims_a if d not in dims_b]
        right = [d for d in dims_b if d not in dims_a]
        extent = dict(zip(dims_a, a.shape[1:])) | dict(zip(dims_b, b.shape[1:]))

        def arrange(array, dims, *groups):
            array = array.transpose(0, *[dims.index(d) + 1 for g in groups for d in g])
            return array.reshape(len(array), *[math.prod(extent[d] for d in g) for g in groups])

        # Summed where one operand alone has them.
        product = np.matmul(arrange(a, dims_a, shared, left, summed), arrange(b, dims_b, shared, summed, right))
        whole = shared + left + right
        product = product.reshape(len(product), *[extent[d] for d in whole])
        lost = [d for d in whole if d not in dims_c]
        product = product.sum(tuple(whole.index(d) + 1 for d in lost)) if lost else product
        kept = [d for d in whole if d in dims_c]
        return product.transpose(0, *[kept.index(d) + 1 for d in dims_c])

    def linalg_generic(self, op, env):
        maps, kinds = op.attributes["indexing_maps"], op.attributes["iterator_types"]
        count, body = op.attributes["ins"], op.blocks[0]
        extents = [1] * len(kinds)
        for name, type, (_, dims) in zip(op.operands, self.types(op), maps):
            for dim, extent in zip(dims, type.shape or ()):
                if not isinstance(dim, tuple):
                    extents[dim] = extent
        reduced = [d for d, kind in enumerate(kinds) if kind == "reduction"]
        if reduced and self.is_product(op):
            a, b = (env[o] for o in op.operands[:2])  # wider kinds hold the same numbers
            dims = [list(dims) for _, dims in maps]
            if all(len(set(d)) == len(d) and not any(isinstance(x, tuple) for x in d) for d in dims):
                return [self.contract(a, b, env[op.operands[2]], *dims, op.types[0].kind)]
        values = [self.spread(env[o], dims, len(kinds)) for o, (_, dims) in zip(op.operands, maps)]
        inner = self.enter(body, op, env, values, extents)
        if not reduced:
            results = self.block(body.ops, inner)
        else:
            results = self.reduce(op, body, inner, values[count:], extents, reduced)
        return [self.collect(result, dims, extents, reduced, type.shape)
                for result, (_, dims), type in zip(results, maps[count:], op.types)]

    def types(self, op):
        return op.attributes.get("ins_types", []) + op.attributes.get("outs_types", [])

    def spread(self, value, dims, rank):
        """An operand with an axis for each loop."""
        if value.ndim == 1 or not dims:
            return value.reshape(len(value), *[1] * rank)
        for axis in reversed(range(len(dims))):
            if isinstance(dims[axis], tuple):
                value = np.take(value, dims[axis][1], axis + 1)
        loops = [d for d in dims if not isinstance(d, tuple)]
        if len(set(loops)) != len(loops):
            raise parser.ParseError(f"expected each loop once in a map, but got {loops}")
        value = value.transpose(0, *[loops.index(d) + 1 for d in sorted(loops)])
        shape = [1] * rank
        for axis, loop in enumerate(sorted(loops)):
            shape[loop] = value.shape[axis + 1]
        return value.reshape(len(value), *shape)

    def enter(self, body, op, env, values, extents):
        """What the body sees: its arguments, and scalars of outside."""
        rank = len(extents)
        inner = {}
        for name in {operand for inner_op in body.ops for operand in inner_op.operands} & env.keys():
            value = env[name]
            inner[name] = value.reshape(len(value), *[1] * rank) if value.ndim == 1 else value
        self.loops = extents
        inner.update((name, value) for (name, _), value in zip(body.arguments, values))
        return inner

    def linalg_index(self, op, env):
        dim, rank = op.attributes["dim"], len(self.loops)
        shape = [1] * (rank + 1)
        shape[dim + 1] = self.loops[dim]
        return [np.arange(self.loops[dim]).reshape(shape)]

    def collect(self, result, dims, extents, reduced, shape):
        """A result of the body as a tensor."""
        kept = [1 if d in reduced else e for d, e in enumerate(extents)]
        result = np.broadcast_to(result, (len(result), *kept))
        loops = [d for d in dims if not isinstance(d, tuple)]
        result = result.transpose(0, *[d + 1 for d in loops], *[d + 1 for d in range(len(extents)) if d not in loops])
        return result.reshape((len(result),) + tuple(shape))

    def is_product(self, op):
        """Whether the body is `o + a * b` of two operands, maybe widened."""
        body = op.blocks[0]
        if op.attributes["ins"] != 2 or len(op.types) != 1:
            return False
        a, b, out = (name for name, _ in body.arguments)
        origin, product, total = {a: a, b: b}, None, None
        for inner in body.ops:
            if inner.name == "arith.extf" and inner.operands[0] in origin:
                origin[inner.results[0]] = origin[inner.operands[0]]
            elif inner.name == "arith.mulf" and not product:
                if sorted(origin.get(o, "") for o in inner.operands) != sorted([a, b]):
                    return False
                product = inner.results[0]
            elif inner.name == "arith.addf" and product and sorted(inner.operands) == sorted([out, product]):
                total = inner.results[0]
            elif inner.name == "linalg.yield" and total:
                return inner.operands == [total]
            else:
                return False
        return False

    def reduce(self, op, body, inner, inits, extents, reduced):
        """The results of a body that reduces: by whole axes where its last operations combine
        the results with what does not depend on them, point by point where not."""
        outs = [name for name, _ in body.arguments[op.attributes["ins"]:]]
        makers = {r: o for o in body.ops for r in o.results}
        yielded = body.ops[-1].operands
        uses = [operand for o in body.ops for operand in o.operands]
        combiners = []
        for out, name in zip(outs, yielded):
            maker = makers.get(name)
            if not maker or maker.name not in REDUCE or maker.operands.count(out) != 1 or uses.count(out) != 1 \
                    or uses.count(name) != 1:
                return self.reduce_in_order(op, body, inner, inits, extents, reduced)
            combiners.append((maker, [o for o in maker.operands if o != out][0]))
        last = {id(maker) for maker, _ in combiners}
        self.block([o for o in body.ops[:-1] if id(o) not in last], inner)
        axes = tuple(d + 1 for d in reduced)
        results = []
        for (maker, term), init in zip(combiners, inits):
            kind = maker.types[0].kind
            terms = inner[term]
            terms = np.broadcast_to(terms, (len(terms), *extents))
            combine = REDUCE[maker.name]
            value = combine(combine.reduce(terms, axes, keepdims=True), init)
            if is_float(kind) and maker.name in ("arith.addf", "arith.mulf"):
                magnitude = np.abs(terms[:1]).sum(axes, keepdims=True) + np.abs(init[:1])
                if maker.name == "arith.mulf":
                    magnitude = np.abs(value[:1]) * terms[0].size / max(1, value[0].size)
                value = self.rounding.finish(value, kind, magnitude, inner="f32" if kind in ("f16", "bf16") else kind)
            else:
                value = value if is_float(kind) else wrap(value, kind)
            results.append(value)
        return results

    def reduce_in_order(self, op, body, inner, inits, extents, reduced):
        outs = [name for name, _ in body.arguments[op.attributes["ins"]:]]
        names = [name for name, _ in body.arguments[:op.attributes["ins"]]]
        whole = {name: inner[name] for name in names}
        state, loops = inits, self.loops
        for point in itertools.product(*[range(extents[d]) for d in reduced]):
            here = dict(inner) | dict(zip(outs, state))
            for name, value in whole.items():
                for dim, at in zip(reduced, point):
                    if value.shape[dim + 1] != 1:
                        value = np.take(value, [at], dim + 1)
                here[name] = value
            self.point = dict(zip(reduced, point))
            state = self.block_at(body.ops, here)
        self.loops = loops
        return state

    def block_at(self, ops, env):
        """A body at one point of the loops that reduce."""
        for op in ops:
            if op.name == "linalg.yield":
                return [env[name] for name in op.operands]
            if op.name == "linalg.index" and op.attributes["dim"] in self.point:
                rank = len(self.loops)
                env[op.results[0]] = np.full([1] * (rank + 1), self.point[op.attributes["dim"]])
            else:
                env.update(zip(op.results, self.evaluate(op, env)))
        return []


def evaluate(text, arguments, masks=None, seed=0):
    """The results of the step `text` for `arguments`, by position, with an axis of runs."""
    results = Interpreter(parser.parse(text), masks, seed).run([np.asarray(a)[None] for a in arguments])
    return [np.broadcast_to(r, (NUM_RUNS,) + r.shape[1:]) for r in results]
