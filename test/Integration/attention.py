# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bsr.attention and bsr.attention_grad, compiled, against softmax in float64: shapes, layouts, biases,
masks, factors, heads that share keys, patterns and types at random, rows that see nothing among them.

    attention.py [CASES [SEED]]

What an element may be wrong by follows from the sizes of what is added up to make it (Case.reference), so that large scores
and gradients that cancel have the limits they need, and all others narrow ones. The last line says how much of that was
used. A gradient of one small case is compared with differences of the function itself, too.
"""

import os
import sys

import numpy as np
import references
import step

# What rounding to a type is wrong by: of a number, at most this times the number, or half of the smallest.
ROUNDOFF = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST = {"f64": 2.0**-1074, "f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}
BATCHES = [(), (3,), (2, 2), (1, 3)]


def growth(count):
    """How many roundoffs, of the sum of magnitudes, a sum of so many terms is wrong by at most: a few, and as many as
    errors of random sign make (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019)."""
    return 4 + count**0.5


class Case:
    """An attention and its gradient in a step, and what they are in float64."""

    # Whether probabilities and gradients of scores are rounded to the type of the operands before products.
    rounds_scores = False

    def __init__(self, random, number):
        choose = lambda *options: options[random.integers(len(options))]
        self.random, self.number = random, number
        small = step.is_scalar()
        self.kind = choose("f32", "f32", "f32", "f64", "bf16", "f16")
        self.batch = BATCHES[random.integers(len(BATCHES))]
        self.features = choose(1, 8, 16, 20) if small else choose(1, 8, 40, 64, 80, 128, 256)
        self.value_features = choose(self.features, 5, 32)
        self.block = None
        if random.random() < 0.4:
            self.block = choose((4, 8), (8, 4)) if small else choose((16, 16), (64, 64), (128, 32), (8, 64), (3, 20))
            grid = random.integers(1, 5, 2)
            self.queries, self.keys = (int(n) for n in grid * self.block)
            # Some rows and columns of blocks store nothing, some all.
            self.stored = random.random(grid) < random.random((grid[0], 1)) * 1.6 - 0.2
        else:
            sizes = [1, 5, 16, 33] if small else [1, 7, 16, 64, 100, 128, 197]
            self.queries, self.keys = int(choose(*sizes)), int(choose(*sizes))
        self.scale = choose(1.0, 0.125, self.features**-0.5)
        self.zero_empty = bool(random.random() < 0.5)
        self.bias_dims = choose(None, None, "j", "ij", "bij", "bi")
        self.mask_dims = choose(None, "j", "ij", "bij", "iota")
        self.fill = choose(None, None, -1e9, -1e30)
        # Batch dimensions that keys and values lack, that their gradients are summed up over, and that the gradient
        # of the bias is summed up over, which is there if this is not None.
        some = lambda: frozenset(i for i in range(len(self.batch)) if random.random() < 0.4)
        self.shared = some()
        self.summed = choose(self.shared, some())
        self.bias_summed = choose(None, some())
        self.factor_dims = choose(None, None, "ij", "bij")
        # What the step spreads over all scores before.
        self.spread = {name for name in ("bias", "mask", "factor") if random.random() < 0.4}
        # What is added to all scores instead of a random bias.
        self.padding = None
        self.names = {}

    def tensor(self, shape, kind=None):
        return f"tensor<{''.join(f'{extent}x' for extent in shape)}{kind or self.kind}>"

    def permute(self, dims):
        """The order in which an operand has these dimensions, batch dimensions first."""
        return self.random.permutation(dims)

    def text(self):
        """Arguments, operations and results, as MLIR."""
        n, rank = self.number, len(self.batch)
        extents = [*self.batch, self.queries, self.keys, self.features, self.value_features]
        dims = [f"d{i}" for i in range(len(extents))]
        arguments, body, maps = [], [], {}

        def lay(name, row, feature, kind=None):
            order = self.permute(self.canonical(name))
            maps[name] = f"affine_map<({', '.join(dims)}) -> ({', '.join(dims[i] for i in order)})>"
            self.names[name] = [int(i) for i in order]
            return self.tensor([extents[i] for i in order], kind)

        def broadcast(name, which, kind):
            """A tensor of some dimensions of the scores; others are left out, or have extent 1."""
            kept = {"j": [rank + 1], "ij": [rank, rank + 1], "bij": [*range(rank + 2)],
                    "bi": [*range(rank + 1)]}[which]
            order = [i if i in kept else -1 for i in range(rank + 2) if i in kept or self.random.random() < 0.3]
            order = [int(order[i]) for i in self.random.permutation(len(order))]
            maps[name] = (f"affine_map<({', '.join(dims)}) -> "
                          f"({', '.join(dims[i] if i >= 0 else '0' for i in order)})>")
            self.names[name] = order
            return self.tensor([extents[i] if i >= 0 else 1 for i in order], kind)

        def given(name):
            """The type of what attention reads: an argument, or what spreads one over all scores."""
            if name not in self.spread:
                return types[name]
            kind, loops = types[name].rpartition("x")[2][:-1], ", ".join(dims[:rank + 2])
            shape = self.tensor([*self.batch, self.queries, self.keys], kind)
            source = ", ".join(dims[i] if i >= 0 else "0" for i in self.names[name])
            body.append(f"""%{name}e{n} = tensor.empty() : {shape}
  %{name}{n} = linalg.generic {{indexing_maps = [affine_map<({loops}) -> ({source})>, affine_map<({loops}) -> ({loops})>],
      iterator_types = [{", ".join(['"parallel"'] * (rank + 2))}]}} ins(%{name}a{n} : {types[name]}) outs(%{name}e{n} : {shape}) {{
  ^bb0(%i: {kind}, %o: {kind}):
    linalg.yield %i : {kind}
  }} -> {shape}""")
            maps[name] = f"affine_map<({', '.join(dims)}) -> ({loops})>"
            return shape

        types = {"q": lay("q", 0, 2), "k": lay("k", 1, 2), "v": lay("v", 1, 3), "y": lay("y", 0, 3),
                 "dy": lay("dy", 0, 3), "dq": lay("dq", 0, 2), "dk": lay("dk", 1, 2), "dv": lay("dv", 1, 3)}
        wide = "f64" if self.kind == "f64" else "f32"
        if self.bias_summed is not None:
            types["dbias"] = lay("dbias", 0, 1, wide)
        clauses, optional_types = "", []
        if self.bias_dims:
            types["bias"] = broadcast("bias", self.bias_dims, self.kind)
            clauses += f" bias %bias{n}"
        if self.mask_dims == "iota":
            # What is at most one behind is seen.
            shape = self.tensor([self.queries, self.keys], "i1")
            maps["mask"] = f"affine_map<({', '.join(dims)}) -> (d{rank}, d{rank + 1})>"
            body.append(f"""%me{n} = tensor.empty() : {shape}
  %mask{n} = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      outs(%me{n} : {shape}) {{
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %one = arith.constant 1 : index
    %jj = arith.addi %j, %one : index
    %c = arith.cmpi sge, %i, %jj : index
    linalg.yield %c : i1
  }} -> {shape}""")
            optional_types.append(shape)
        elif self.mask_dims:
            types["mask"] = broadcast("mask", self.mask_dims, "i1")
        if self.mask_dims:
            clauses += f" mask %mask{n}"
        if self.bias_dims:
            optional_types.insert(0, given("bias"))
        if self.mask_dims and self.mask_dims != "iota":
            optional_types.append(given("mask"))
        if self.factor_dims:
            types["factor"] = broadcast("factor", self.factor_dims, self.kind)
            clauses += f" factor %factor{n}"
            optional_types.append(given("factor"))
        if self.block:
            pattern = (f"!bsr.pattern<{self.queries}x{self.keys}, block = {self.block[0]}x{self.block[1]}, "
                       f"slots = {self.stored.size}>")
            # A pattern is that of some values: the argument before it.
            values = self.tensor([self.stored.size, *self.block], "f32")
            arguments.append(f'%w{n}: {values} {{bsr.name = "w{n}", bsr.role = "param", bsr.pattern = NEXT : i64}}')
            arguments.append(f'%p{n}: {pattern} {{bsr.name = "w{n}", bsr.role = "pattern", bsr.density = 1.0}}')
            clauses += f" pattern %p{n}"
            optional_types.append(pattern)
        clauses += f" scale = {self.scale:.17e}"
        if self.mask_dims and self.fill is not None:
            clauses += f" fill = {self.fill:.17e}"
        if self.zero_empty:
            clauses += " zero_empty"
        for name in ("q", "k", "v", "dy", "bias", "mask", "factor"):
            if name in types:
                source = f"{name}a" if name in self.spread else name
                arguments.append(f'%{source}{n}: {types[name]} {{bsr.name = "{name}{n}"}}')
        lse = self.tensor([2, *self.batch, self.queries], wide)
        extra = [maps[name] for name in ("bias", "mask", "factor") if name in maps]
        gradients = [name for name in ("dq", "dk", "dv", "dbias") if name in types]

        def use(names):
            return ", ".join([maps[name] for name in names] + extra)

        body.append(f"%y{n}, %lse{n} = bsr.attention(%q{n}, %k{n}, %v{n}){clauses} "
                    f"maps = [{use(['q', 'k', 'v', 'y'])}] : "
                    f"({', '.join([types['q'], types['k'], types['v'], *optional_types])}) -> ({types['y']}, {lse})")
        body.append(f"{', '.join(f'%{name}{n}' for name in gradients)} = bsr.attention_grad(%q{n}, %k{n}, %v{n}, %y{n}, %lse{n}, %dy{n}){clauses} "
                    f"maps = [{use(['q', 'k', 'v', 'y', 'dy', *gradients])}] : "
                    f"({', '.join([types['q'], types['k'], types['v'], types['y'], lse, types['dy'], *optional_types])})"
                    f" -> ({', '.join(types[name] for name in gradients)})")
        self.outputs = ["y", "lse", *gradients]
        results = [(f"%{name}{n}", types.get(name, lse)) for name in self.outputs]
        return arguments, body, results

    def round(self, array):
        return (step.from_bf16(step.to_bf16(array)) if self.kind == "bf16"
                else array.astype(step.TYPES[self.kind])).astype(np.float64)

    def canonical(self, name):
        """The dimensions that `name` has, batch dimensions first."""
        rank = len(self.batch)
        lacks = {"k": self.shared, "v": self.shared, "dk": self.summed, "dv": self.summed,
                 "dbias": self.bias_summed}.get(name, ())
        row = 1 if name in ("k", "v", "dk", "dv") else 0
        feature = {"q": 2, "k": 2, "v": 3, "y": 3, "dy": 3, "dq": 2, "dk": 2, "dv": 3, "dbias": 1}[name]
        return [*(i for i in range(rank) if i not in lacks), rank + row, rank + feature]

    def store(self, name, array):
        """`array`, of the canonical dimensions, as the buffer of `name`."""
        order, canonical = self.names[name], self.canonical(name)
        array = np.transpose(array, [canonical.index(i) for i in order])
        return step.to_bf16(array) if self.kind == "bf16" else array.astype(step.TYPES[self.kind])

    def load(self, name, array):
        if name == "lse":
            return array.astype(np.float64)
        array = step.from_bf16(array) if self.kind == "bf16" and name != "dbias" else array
        order, canonical = self.names[name], self.canonical(name)
        return np.transpose(array.astype(np.float64), [order.index(i) for i in canonical])

    def fill_buffers(self, arrays, masks):
        random, n = self.random, self.number
        make = lambda lacks, *shape: self.round(random.standard_normal(
            (*(1 if i in lacks else size for i, size in enumerate(self.batch)), *shape)))
        self.q, self.k = make((), self.queries, self.features), make(self.shared, self.keys, self.features)
        self.v, self.dy = make(self.shared, self.keys, self.value_features), make((), self.queries, self.value_features)
        for name in ("q", "k", "v", "dy"):
            lacks = tuple(self.shared) if name in ("k", "v") else ()
            arrays[f"{name}{n}"] = self.store(name, getattr(self, name).squeeze(lacks))
        extents = [*self.batch, self.queries, self.keys]

        def spread(order, array):
            """`array` with the dimensions `order` says, with all of the scores'."""
            kept = [(i, axis) for axis, i in enumerate(order) if i >= 0]
            array = np.transpose(array, [axis for _, axis in sorted(kept)] +
                                 [axis for axis, i in enumerate(order) if i < 0])
            there = {i for i, _ in kept}
            return array.reshape([extents[i] if i in there else 1 for i in range(len(extents))])

        self.bias, self.mask = np.zeros(1), np.ones(1, bool)
        if self.bias_dims:
            order = self.names["bias"]
            bias = self.round(random.standard_normal([extents[i] if i >= 0 else 1 for i in order]))
            if self.padding:
                bias = np.full(bias.shape, np.float64(np.float32(self.padding)))
            arrays[f"bias{n}"] = step.to_bf16(bias) if self.kind == "bf16" else bias.astype(step.TYPES[self.kind])
            self.bias = spread(order, bias)
        if self.mask_dims == "iota":
            self.mask = np.arange(self.queries)[:, None] >= np.arange(self.keys) + 1
        elif self.mask_dims:
            order = self.names["mask"]
            mask = random.random([extents[i] if i >= 0 else 1 for i in order]) < 0.6
            arrays[f"mask{n}"] = mask
            self.mask = spread(order, mask)
        self.factor = np.ones(1)
        if self.factor_dims:
            order = self.names["factor"]
            shape = [extents[i] if i >= 0 else 1 for i in order]
            factor = self.round(np.where(random.random(shape) < 0.7, random.random(shape) + 1, 0))
            arrays[f"factor{n}"] = step.to_bf16(factor) if self.kind == "bf16" else factor.astype(step.TYPES[self.kind])
            self.factor = spread(order, factor)
        self.live = np.ones((self.queries, self.keys), bool)
        if self.block:
            masks[f"w{n}"] = self.stored
            arrays[f"w{n}"] = np.zeros((self.stored.size, *self.block), np.float32)
            self.live = np.kron(self.stored, np.ones(self.block, bool)).astype(bool)

    def reference(self, written=None):
        """The outputs, and what each element of them may be wrong by: to first order in the roundoff, what the errors of
        all that an element is made of add up to. Gradients are those of an output `written`, which they read."""
        wide = "f64" if self.kind == "f64" else "f32"
        u, narrow = ROUNDOFF[wide], ROUNDOFF[self.kind] if self.rounds_scores else 0
        of = references.attention(
            self.q, self.k, self.v, self.dy, self.scale, self.bias, self.mask, -np.inf if self.fill is None else self.fill, self.live,
            self.factor, 0 if self.zero_empty else np.nan, written)
        live = np.broadcast_to(self.live, of.x.shape)

        def product(subscripts, a, a_wrong, b, count, over=()):
            """What a product is wrong by: `a` by `a_wrong`, each sum, of `count` terms, by roundoffs."""
            size = np.abs(b)
            wrong = np.einsum(subscripts, a_wrong, size) + growth(count) * u * np.einsum(subscripts, np.abs(a), size)
            return wrong.sum(tuple(over))

        def stored(value, wrong, over=(), kind=self.kind):
            """A value, summed up, and what it is wrong by where it is stored."""
            value = value.sum(tuple(over))
            return value, wrong + ROUNDOFF[kind] * np.abs(value) + SMALLEST[kind]

        # What is exponentiated.
        s_wrong = product("...id,...jd->...ij", self.scale * self.q, 0 * self.q, self.k, self.features)
        # Of scores that a bias swallows nothing is left to be wrong.
        s_wrong = np.where(np.abs(self.bias) > 1e30, 0, s_wrong + 2 * u * (np.abs(of.s) + np.abs(self.bias)))
        x_wrong = np.where(self.mask, s_wrong, 0)
        with np.errstate(divide="ignore"):
            lse = np.stack([of.largest[..., 0], np.log(of.total)[..., 0]])
        largest, log_sum = np.where(np.isinf(lse), 0, lse)

        # What a power is wrong by, relative to it: as what is exponentiated, which is a difference, is.
        present = np.nan_to_num(of.seen)
        power_wrong = np.where(present > 0, x_wrong + u * (4 + 2 * np.abs(np.where(present > 0, of.x, 0) - largest[..., None])), 0)
        sum_wrong = (present * power_wrong).sum(-1) + u * growth(self.keys)
        p_wrong = present * (power_wrong + (sum_wrong + 2 * u * np.abs(log_sum))[..., None] + narrow) + 2.0**-126
        x_most = np.where(live & (present > 0), x_wrong, 0).max(-1, initial=0)
        lse_wrong = np.stack([x_most + u * np.abs(largest), x_most + sum_wrong + u * np.abs(log_sum)])

        dropped_wrong = p_wrong * self.factor
        y_wrong = product("...ij,...je->...ie", of.dropped, dropped_wrong, self.v, self.keys)
        dp_wrong = product("...ie,...je->...ij", self.dy, 0 * self.dy, self.v, self.value_features)
        mean_wrong = product("...ie,...ie->...i", self.dy, 0 * self.dy, of.y if written is None else written, self.value_features)
        g = of.dbias
        g_wrong = np.where(live & self.mask, p_wrong * np.abs(of.difference) + of.seen * (
            dp_wrong * self.factor + mean_wrong[..., None]) + (2 * u + narrow) * np.abs(g), 0)
        queries = lambda over: self.queries * int(np.prod([self.batch[i] for i in over]))
        summed, bias_summed = self.summed, self.bias_summed or ()
        wanted = {
            "y": stored(of.y, y_wrong), "lse": (lse, lse_wrong),
            "dq": stored(of.dq, product("...ij,...jd->...id", g, g_wrong, self.scale * self.k, self.keys)),
            "dk": stored(of.dk, product("...ij,...id->...jd", g, g_wrong, self.scale * self.q, queries(summed), summed), summed),
            "dv": stored(of.dv, product("...ij,...ie->...je", of.dropped, dropped_wrong, self.dy, queries(summed), summed), summed),
            "dbias": stored(g, product("...ij,...->...ij", g, g_wrong, np.ones(()), queries(bias_summed), bias_summed), bias_summed, wide)}
        # What is wanted is as wrong as what is compared with it, if both are of one type.
        return {name: (want, wrong * (2 if self.kind == "f64" else 1)) for name, (want, wrong) in wanted.items()}

    def check(self, outputs, first):
        """Compares; self.used is how much of what it may be wrong by an element is at most."""
        got = {name: self.load(name, outputs[first + i]) for i, name in enumerate(self.outputs)}
        self.used = 0
        for name, (want, limit) in self.reference(got["y"]).items():
            if name not in got:
                continue
            np.testing.assert_array_equal(np.isnan(got[name]), np.isnan(want), err_msg=f"{name} of {self}")
            infinite = np.isinf(want)
            np.testing.assert_array_equal(got[name][infinite], want[infinite], err_msg=f"{name} of {self}")
            rest = np.isfinite(want)
            error, limit = np.abs(got[name][rest] - want[rest]), limit[rest]
            assert np.isfinite(limit).all(), f"expected a limit for {name}, but got none of {self}"
            if not error.size:
                continue
            worst = np.argmax(error / limit)
            self.used = max(self.used, error[worst] / limit[worst])
            assert error[worst] <= limit[worst], (
                f"{name} differs by {error[worst]:.2e}, but by {limit[worst]:.2e} at most was expected, of {self}")

    def __str__(self):
        shown = {k: v for k, v in vars(self).items()
                 if k in ("number", "kind", "batch", "queries", "keys", "features", "value_features", "block",
                          "scale", "zero_empty", "bias_dims", "mask_dims", "fill", "shared", "summed",
                          "bias_summed", "factor_dims", "names")}
        return str(shown)


def run(cases):
    arguments, body, results = [], [], []
    for case in cases:
        more = case.text()
        for whole, part in zip((arguments, body, results), more):
            whole.extend(part)
    arguments = [text.replace("NEXT", str(number + 1)) for number, text in enumerate(arguments)]
    newline = "\n  "
    types = ", ".join(f'{type} {{bsr.name = "{value[1:]}"}}' for value, type in results)
    source = f"""func.func @step({(',' + newline).join(arguments)}) -> ({types}) {{
  {newline.join(body)}
  return {', '.join(v for v, _ in results)} : {', '.join(t for _, t in results)}
}}
"""
    if os.environ.get("SHOW"):
        print(source)
    compiled = step.compile(source)
    arrays, masks = {}, {}
    for case in cases:
        case.fill_buffers(arrays, masks)

    def outputs(**options):
        # Patterns may have slots that no block uses.
        orders = {name: np.random.default_rng(1).permutation(mask.size)[:int(mask.sum())] for name, mask in masks.items()}
        ran = compiled.run(arrays, masks, orders, **options)
        return [ran[value[1:]] for value, _ in results]

    several, one = outputs(), outputs(threads=1)
    for a, b in zip(several, one):
        assert a.tobytes() == b.tobytes(), "other bits with one thread"
    first = 0
    for case in cases:
        case.check(several, first)
        first += len(case.outputs)
    return several


def check_differences():
    """sum(y * dy), differentiated by differences, is what the gradient says."""
    case = Case(np.random.default_rng(7), 0)
    case.kind, case.batch, case.block, case.queries, case.keys = "f64", (2,), None, 6, 9
    case.features = case.value_features = 4
    case.bias_dims, case.mask_dims, case.fill, case.zero_empty = "ij", "ij", None, True
    # Two heads share keys and values, all share the bias, and probabilities are dropped out.
    case.shared = case.summed = case.bias_summed = frozenset([0])
    case.factor_dims = "bij"
    outputs = run([case])
    got = {name: case.load(name, outputs[i]) for i, name in enumerate(case.outputs)}
    case.bias = case.bias.reshape(case.queries, case.keys)
    for name in ("q", "k", "v", "bias"):
        array = getattr(case, name)
        got["d" + name] = got["d" + name].reshape(array.shape)
        for place in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                array[place] += sign * 1e-5
                values.append((case.reference()["y"][0] * case.dy).sum())
                array[place] -= sign * 1e-5
            np.testing.assert_allclose(got["d" + name][place], (values[0] - values[1]) / 2e-5, atol=1e-8)


def check_padding():
    """Rows that see nothing, where numbers are filled in or added that swallow the logarithm of a sum: each
    probability is 1 of the number of keys, in the gradient as well."""
    cases = []
    # Where negative infinity is filled in, a row that sees nothing is NaN, or 0.
    infinite = -np.inf
    for number, (fill, bias) in enumerate([(-1e9, None), (-1e30, None), (None, -3e38), (infinite, None), (infinite, None)]):
        case = Case(np.random.default_rng(3), number)
        case.kind, case.batch, case.block, case.queries, case.keys = "f32", (2,), None, 5, 19
        case.features, case.value_features, case.scale, case.zero_empty = 8, 5, 1.0, False
        case.shared = case.summed = frozenset()
        case.bias_summed = case.factor_dims = None
        case.bias_dims, case.mask_dims, case.fill, case.padding = None if fill else "ij", fill and "iota", fill, bias
        if fill == infinite:
            case.fill, case.zero_empty = None, number == 3
        cases.append(case)
    run(cases)


if __name__ == "__main__":
    count, seed = (int(given) for given in [*sys.argv[1:], *("12", "0")[len(sys.argv) - 1:]])
    random = np.random.default_rng(seed)
    used = {kind: [] for kind in ROUNDOFF}
    for first in range(0, count, 6):
        cases = [Case(random, number) for number in range(first, min(first + 6, count))]
        run(cases)
        for case in cases:
            used[case.kind].append(case.used)
    check_differences()
    check_padding()
    shares = ", ".join(f"{kind} {max(each):.2f}" for kind, each in used.items() if each)
    print(f"{count} cases of seed {seed}; of what an element may be wrong by, at most: {shares}")
