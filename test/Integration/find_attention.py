# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as programs write it, found or not: what bsr-find-attention makes of each form, what stands in
the way of what is almost attention, and that steps with and without the pass are right in float64.

    find_attention.py [FORM... | marks]
"""

import re
import subprocess
import sys

import numpy as np
import step

SIZES = {"1": 1, "b": 2, "h": 3, "i": 64, "j": 128, "d": 16, "e": 32, "n": 6, "g": 2, "r": 3}
# What dimensions are merged of.
PARTS = {"n": "bh", "h": "gr"}


class Graph:
    """Operations on tensors, as MLIR and as arrays in float64; dimensions are letters, as in einsum."""

    def __init__(self, sizes, prefix="v"):
        self.prefix = prefix
        self.sizes = {**SIZES, **sizes}
        self.sizes["n"] = self.sizes["b"] * self.sizes["h"]
        self.random = np.random.default_rng(0)
        self.lines, self.arguments, self.results = [], [], []
        self.arrays, self.values, self.dims, self.kinds = {}, {}, {}, {}

    def type(self, dims, kind="f32"):
        return f"tensor<{''.join(f'{self.sizes[d]}x' for d in dims)}{kind}>"

    def name(self, value, dims, kind="f32"):
        name = f"%{self.prefix}{len(self.values)}"
        self.values[name], self.dims[name], self.kinds[name] = value, dims, kind
        return name

    def argument(self, dims, kind="f32"):
        shape = [self.sizes[d] for d in dims]
        array = self.random.random(shape) < 0.7 if kind == "i1" else self.random.standard_normal(shape).astype(np.float32)
        name = self.name(array.astype(np.float64) if kind == "f32" else array, dims, kind)
        self.arguments.append(f'{name}: {self.type(dims, kind)} {{bsr.name = "{name[1:]}"}}')
        self.arrays[name[1:]] = array
        return name

    def map(self, loops, dims):
        return f"affine_map<({', '.join(loops)}) -> ({', '.join('0' if d == '1' else d for d in dims)})>"

    def generic(self, loops, inputs, out, body, value, kind="f32", reduced="", init=None):
        """A linalg.generic; `inputs` are names and the dimensions they are read by."""
        name = self.name(value, out, kind)
        to = self.type(out, kind)
        self.lines.append(f"{name}e = tensor.empty() : {to}")
        start = f"{name}e"
        if init is not None:
            self.lines += [f"{name}c = arith.constant {init} : {kind}",
                           f"{name}f = linalg.fill ins({name}c : {kind}) outs({name}e : {to}) -> {to}"]
            start = f"{name}f"
        maps = [self.map(loops, dims) for _, dims in inputs] + [self.map(loops, out)]
        iterators = ", ".join('"reduction"' if d in reduced else '"parallel"' for d in loops)
        ins = f"ins({', '.join(n for n, _ in inputs)} : {', '.join(self.type(self.dims[n], self.kinds[n]) for n, _ in inputs)})" if inputs else ""
        scalars = ", ".join([f"%x{k}: {self.kinds[n]}" for k, (n, _) in enumerate(inputs)] + [f"%o: {kind}"])
        self.lines.append(
            f"{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{iterators}]}}\n"
            f"      {ins} outs({start} : {to}) {{\n  ^bb0({scalars}):\n    {body}\n  }} -> {to}")
        return name

    def each(self, operation, *inputs, kind="f32"):
        """`operation` of elements; each input is broadcast to the dimensions of the first."""
        out = self.dims[inputs[0]]
        arrays = [self.spread(n, out) for n in inputs]
        functions = {
            "mulf": np.multiply, "addf": np.add, "subf": np.subtract, "divf": np.divide, "exp": np.exp,
            "select": lambda c, x, y: np.where(c, x, y), "andi": np.logical_and,
            "cmpf oeq,": np.equal, "cmpf ogt,": np.greater,
        }
        operands = ", ".join(f"%x{k}" for k in range(len(inputs)))
        dialect = "math" if operation == "exp" else "arith"
        # A comparison has the type of what it compares.
        of = self.kinds[inputs[0]]
        if operation == "select":
            of = kind
        body = f"%r = {dialect}.{operation} {operands} : {of}\n    linalg.yield %r : {kind}"
        with np.errstate(all="ignore"):
            value = functions[operation](*arrays)
        return self.generic(list(out.replace("1", "")), [(n, self.dims[n]) for n in inputs], out, body, value, kind)

    def spread(self, name, out):
        array, dims = self.values[name], self.dims[name]
        kept = [d for d in dims if d != "1"]
        array = array.reshape([self.sizes[d] for d in kept])
        order = [d for d in out if d in kept]
        array = np.transpose(array, [kept.index(d) for d in order])
        return array.reshape([self.sizes[d] if d in kept else 1 for d in out])

    def select(self, mask, x, y, out):
        """Where `mask`, x, else y; the mask is broadcast."""
        values = [self.spread(n, out) for n in (mask, x, y)]
        body = "%r = arith.select %x0, %x1, %x2 : f32\n    linalg.yield %r : f32"
        value = np.broadcast_to(np.where(*values), [self.sizes[d] for d in out])
        return self.generic(list(out), [(n, self.dims[n]) for n in (mask, x, y)], out, body, value)

    def constant(self, number, text=None):
        name = self.name(np.float64(np.float32(number)), "")
        self.lines.append(f"{name} = arith.constant dense<{text or f'{np.float32(number):.9e}'}> : tensor<f32>")
        return name

    def dot(self, x, y, out):
        loops = out + "".join(d for d in self.dims[x] if d not in out)
        reduced = [d for d in loops if d not in out]
        value = np.einsum(f"{self.dims[x]},{self.dims[y]}->{out}", self.values[x], self.values[y])
        body = "%p = arith.mulf %x0, %x1 : f32\n    %r = arith.addf %o, %p : f32\n    linalg.yield %r : f32"
        return self.generic(list(loops), [(x, self.dims[x]), (y, self.dims[y])], out, body, value,
                            reduced=reduced, init="0.0")

    def reduce(self, x, over, kind="addf"):
        dims = self.dims[x]
        out = dims.replace(over, "")
        axis = dims.index(over)
        functions = {"addf": (np.sum, "0.0"), "maximumf": (np.max, "0xFF800000"), "andi": (np.all, "1")}
        function, init = functions[kind]
        of = self.kinds[x]
        body = f"%r = arith.{kind} %o, %x0 : {of}\n    linalg.yield %r : {of}"
        return self.generic(list(dims), [(x, dims)], out, body, function(self.values[x], axis=axis), of,
                            reduced=over, init=init)

    def permute(self, x, out):
        value = np.transpose(self.values[x], [self.dims[x].index(d) for d in out])
        return self.generic(list(out), [(x, self.dims[x])], out, "linalg.yield %x0 : f32", value)

    def broadcast(self, x, out):
        """`x` with more dimensions."""
        kept = "".join(d for d in out if d in self.dims[x])
        value = np.broadcast_to(self.spread(x, kept).reshape([self.sizes[d] if d in kept else 1 for d in out]),
                                [self.sizes[d] for d in out])
        return self.generic(list(out), [(x, self.dims[x])], out, "linalg.yield %x0 : f32", value)

    def positions(self, predicate, body):
        """A mask of positions i and j."""
        i, j = np.meshgrid(np.arange(self.sizes["i"]), np.arange(self.sizes["j"]), indexing="ij")
        text = "%i = linalg.index 0 : index\n    %j = linalg.index 1 : index\n    " + body + "\n    linalg.yield %r : i1"
        return self.generic(["i", "j"], [], "ij", text, predicate(i, j), "i1")

    def reshape(self, x, out):
        """Merges b and h to n or g and r to h, or splits what was merged."""
        merge = len(out) < len(self.dims[x])
        whole = next(d for d in PARTS if d in (out if merge else self.dims[x])
                     and d not in (self.dims[x] if merge else out))
        value = self.values[x].reshape([self.sizes[d] for d in out])
        name = self.name(value, out)
        groups, k = [], 0
        for d in (out if merge else self.dims[x]):
            count = 2 if d == whole else 1
            groups.append(f"[{', '.join(str(k + c) for c in range(count))}]")
            k += count
        if merge:
            self.lines.append(f"{name} = tensor.collapse_shape {x} [{', '.join(groups)}] : {self.type(self.dims[x])} into {self.type(out)}")
        else:
            shape = ", ".join(str(self.sizes[d]) for d in out)
            self.lines.append(f"{name} = tensor.expand_shape {x} [{', '.join(groups)}] output_shape [{shape}] : {self.type(self.dims[x])} into {self.type(out)}")
        return name


def write(graphs):
    """A step that computes all of `graphs`."""
    arguments = ", ".join(argument for g in graphs for argument in g.arguments)
    lines = "\n  ".join(line for g in graphs for line in g.lines)
    results = [(r, g.type(g.dims[r], g.kinds[r])) for g in graphs for r in g.results]
    types = ", ".join(type for _, type in results)
    named = ", ".join(f'{type} {{bsr.name = "{r[1:]}"}}' for r, type in results)
    names = ", ".join(r for r, _ in results)
    return f"func.func @step({arguments}) -> ({named}) {{\n  {lines}\n  return {names} : {types}\n}}\n"


def softmax(g, x, over="j"):
    """The powers, their sums over a dimension and the quotients; maxima are over keys."""
    power = g.each("exp", g.each("subf", x, g.reduce(x, "j", "maximumf")))
    total = g.reduce(power, over)
    return power, total, g.each("divf", power, total)


def make(g, score=lambda g, s: (s, lambda ds: ds), backward="torch", form="plain"):
    """Attention and its gradient. `score` changes the product, and says how its gradient is changed back."""
    heads = "gr" if form.startswith("shared") else "h"
    scores, keys = f"b{heads}ij", "bg" if heads == "gr" else "bh"
    if form == "repeated":
        q, k, v, dy = (g.argument(dims) for dims in ("bhid", "bgjd", "bgje", "bhie"))
        repeat = lambda x: g.reshape(g.broadcast(x, g.dims[x].replace("g", "gr")), g.dims[x].replace("g", "h"))
        k, v = repeat(k), g.permute(repeat(v), "bhje")
    elif form.startswith("shared"):
        q, k, v, dy = (g.argument(dims) for dims in ("bgrid", "bgjd", "bgje", "bgrie"))
    else:
        q, k, v, dy = (g.argument(dims) for dims in ("bhid", "bhjd", "bhje", "bhie"))

    def product(x, y, out):
        if form != "merged":
            return g.dot(x, y, out)
        merged = [g.reshape(t, g.dims[t].replace("bh", "n")) for t in (x, y)]
        return g.reshape(g.dot(*merged, out.replace("bh", "n")), out)

    s = product(q, k, scores)
    x, back = score(g, s)
    power, total, p = softmax(g, x, "i" if form == "over-queries" else "j")
    if form == "safe":
        low = g.constant(-np.inf, "0xFF800000")
        none = g.reduce(g.each("cmpf oeq,", x, low, kind="i1"), "j", "andi")
        p = g.select(none, g.constant(0), p, "bhij")
    drop = lambda x: x
    if form.startswith("factor"):
        factor = g.argument("bhij")
        drop = lambda x: g.each("mulf", x, factor)
    if form.startswith("dropout"):
        kept, c = g.argument("bhij", "i1"), g.constant(1.25)
        drop = lambda x: g.select(kept, g.each("mulf", x, c), g.constant(0), "bhij")
    y = product(drop(p), v, f"b{heads}ie")
    g.results = [] if form == "again" else [y]
    if form == "returned":
        g.results.append(p)
    if not backward:
        return
    dv = product(p if form == "dropout-half" else drop(p), dy, f"{keys}je")
    dp = product(dy, v, scores)
    dp = dp if form == "factor-wrong" else drop(dp)
    if backward == "jax":
        # d(e / s): g / s - sum(g e / s^2), times e.
        square = g.each("divf", g.each("divf", total, total), g.each("mulf", total, total))
        square = g.each("mulf", square, g.each("divf", total, total))
        mean = g.reduce(g.each("mulf", g.each("mulf", dp, square), power), "j")
        ds = g.each("mulf", g.each("subf", g.each("divf", dp, total), mean), power)
    elif backward == "wrong":
        ds = g.each("mulf", p, dp)
    else:
        dpp = g.each("mulf", dp, p)
        ds = g.each("subf", dpp, g.each("mulf", p, g.reduce(dpp, "j")))
    if form == "bias":
        g.results.append(g.reduce(ds, "b"))
    if form == "bias-wrong":
        g.results.append(g.reduce(dpp, "b"))
    if form == "bias-twice":
        g.results += [g.reduce(ds, "b"), g.reduce(ds, "h")]
    ds = back(ds)
    dk = product(ds, q, f"{keys}jd")
    if form == "repeated":
        summed = lambda x: g.reduce(g.reshape(x, g.dims[x].replace("h", "gr")), "r")
        dk, dv = summed(dk), summed(dv)
    g.results += [product(ds, k, f"b{heads}id"), dk, dv]
    if form == "other":
        g.results[-2] = product(ds, dy, "bhje")


def scaled(g, s, kind="mulf", number=0.25):
    c = g.constant(number)
    return g.each(kind, s, c), lambda ds: g.each(kind, ds, c)


def padded(g, s):
    x, back = scaled(g, s, "divf", 4)
    return g.each("addf", x, g.argument("b11j")), back


def causal(g, s, low=None):
    x, back = scaled(g, s)
    mask = g.positions(lambda i, j: i >= j, "%r = arith.cmpi sge, %i, %j : index")
    fill = g.constant(-np.inf, "0xFF800000") if low is None else g.constant(low)
    return g.select(mask, x, fill, "bhij"), lambda ds: back(g.select(mask, ds, g.constant(0), "bhij"))


def window(g, s):
    x, back = scaled(g, s)
    mask = g.positions(lambda i, j: (i >= j) & (i - j < 20),
                       "%a = arith.cmpi sge, %i, %j : index\n    %w = arith.constant 20 : index\n"
                       "    %l = arith.addi %j, %w : index\n    %b = arith.cmpi slt, %i, %l : index\n"
                       "    %r = arith.andi %a, %b : i1")
    return g.select(mask, x, g.constant(-1e30), "bhij"), lambda ds: back(g.select(mask, ds, g.constant(0), "bhij"))


def masked(g, s):
    mask = g.argument("bj", "i1")
    return g.select(mask, s, g.constant(-1e30), "bhij"), lambda ds: g.select(mask, ds, g.constant(0), "bhij")


def biased(g, s):
    x, back = scaled(g, s)
    return g.each("addf", x, g.argument("hij")), back


def late_scale(g, s):
    """Added before it is scaled: another formula."""
    c = g.constant(0.5)
    return g.each("mulf", g.each("addf", s, g.argument("ij")), c), lambda ds: g.each("mulf", ds, c)


def by_value(g, s):
    live = g.each("cmpf ogt,", s, g.constant(-3), kind="i1")
    return g.select(live, s, g.constant(-np.inf, "0xFF800000"), "bhij"), lambda ds: g.select(live, ds, g.constant(0), "bhij")


def square_root(g, s):
    c = g.constant(0.05)
    x = g.each("mulf", g.each("mulf", s, s), c)
    return x, lambda ds: g.each("mulf", ds, s)


# What each form is made by, how many attentions and gradients are found, and what stands in the way.
SQUARE = {"i": 128, "j": 128}
FORMS = {
    "plain": (dict(), {}, 1, 1, None),
    "forward": (dict(backward=None), {}, 1, 0, None),
    "scaled": (dict(score=scaled, backward="jax"), {}, 1, 1, None),
    "padded": (dict(score=padded), {}, 1, 1, None),
    "masked": (dict(score=masked), {}, 1, 1, None),
    "causal": (dict(score=causal, backward="jax"), SQUARE, 1, 1, None),
    "causal-ragged": (dict(score=causal), {"i": 37, "j": 37}, 1, 1, None),
    "causal-finite": (dict(score=lambda g, s: causal(g, s, -1e9)), SQUARE, 1, 1, None),
    "window": (dict(score=window), {"i": 192, "j": 192}, 1, 1, None),
    "merged": (dict(score=scaled, form="merged"), {}, 1, 1, None),
    "safe": (dict(score=causal, form="safe"), SQUARE, 1, 1, None),
    "returned": (dict(form="returned"), {}, 0, 0, "'func.return' that uses the scores in another way"),
    "late-scale": (dict(score=late_scale), {}, 0, 0, "reads what is no softmax of scaled, biased and masked scores"),
    "by-value": (dict(score=by_value), {}, 0, 0, "compares scores"),
    "squared": (dict(score=square_root), {}, 0, 0, "reads what is no softmax of scaled, biased and masked scores"),
    "factor": (dict(score=scaled, form="factor"), {}, 1, 1, None),
    "dropout": (dict(score=scaled, form="dropout"), {}, 1, 1, None),
    "dropout-jax": (dict(score=scaled, form="dropout", backward="jax"), {}, 1, 1, None),
    "factor-wrong": (dict(form="factor-wrong"), {}, 0, 0, "reads what is neither the probabilities nor the gradient of the scores"),
    "dropout-half": (dict(form="dropout-half"), {}, 0, 0, "reads what is neither the probabilities nor the gradient of the scores"),
    "bias": (dict(score=biased, form="bias"), {}, 1, 1, None),
    "bias-wrong": (dict(score=biased, form="bias-wrong"), {}, 0, 0, "sums what are no gradients of scores over batch dimensions"),
    "bias-twice": (dict(score=biased, form="bias-twice"), {}, 0, 0, "sums scores over batch dimensions a second time"),
    "again": (dict(score=scaled, form="again"), {}, 1, 1, None),
    "repeated": (dict(score=scaled, form="repeated"), {"h": 6}, 1, 1, None),
    "shared": (dict(score=scaled, form="shared"), {}, 1, 1, None),
    "over-queries": (dict(form="over-queries"), {}, 0, 0, "reduces scores over a dimension that is not the keys'"),
    "wrong": (dict(backward="wrong"), {}, 0, 0, "reads what is neither the probabilities nor the gradient of the scores"),
    "other": (dict(form="other"), {"e": 16}, 0, 0,
              "multiplies the gradient of the scores with something else than the queries or the keys"),
}

# Forms whose kernels have vectors here.
VECTORS = ("scaled", "causal", "window")
# Blocks of queries by keys that are live, of those that there are.
BLOCKS = {"causal": "slots = 3>", "causal-finite": "slots = 3>", "window": "slots = 5>", "safe": "slots = 3>"}


def check_found(name, g):
    """What the pass makes of one form, and what it says."""
    _, _, attentions, gradients, obstacle = FORMS[name]
    found = subprocess.run(["sparse-opt", "--pass-pipeline=builtin.module(func.func(bsr-find-attention{report=true}))"],
                           input=write([g]), text=True, capture_output=True)
    assert found.returncode == 0, (name, found.stderr)
    counts = [len(re.findall(rf"bsr\.{op}\(", found.stdout)) for op in ("attention", "attention_grad")]
    assert counts == [attentions, gradients], (name, counts, found.stderr)
    if obstacle is None:
        assert "remark" not in found.stderr, (name, found.stderr)
        assert "math.exp" not in found.stdout, name
    else:
        assert "remark: expected attention, but got '" in found.stderr and obstacle in found.stderr, (name, found.stderr)
    assert (BLOCKS[name] in found.stdout) if name in BLOCKS else "bsr.pattern" not in found.stdout, (name, found.stdout)


def check_numbers(graphs, arguments):
    """A step of all forms: each result against float64, and the same bits with one thread."""
    if not graphs:
        return
    arrays = {name: array for g in graphs.values() for name, array in g.arrays.items()}
    compiled = step.compile(write(graphs.values()), arguments)
    several, one = (compiled.run(arrays, threads=threads) for threads in (2, 1))
    for name, g in graphs.items():
        for result in g.results:
            want, got = g.values[result], several[result[1:]].astype(np.float64)
            assert got.tobytes() == one[result[1:]].astype(np.float64).tobytes(), (name, result, "threads")
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=f"{name} {result}")
            there = ~np.isnan(want)
            error = np.abs(got - want)[there].max() / np.abs(want[there]).max()
            assert error < 1e-5, (name, arguments, result, error)


# A window of three blocks of 16 x 16, and the first row and column of blocks, in the place of what a program computes.
MARK = "--mark=attention=^attention window=3 global=1 block=16x16"


def is_stored(rows, cols):
    """The blocks of MARK."""
    row, col = np.indices((rows, cols))
    return (abs(col - row * cols // rows) <= 1) | (row < 1) | (col < 1)


def hide(g, x, stored):
    """Scores outside of blocks that are stored, of which the program does not know."""
    block = (g.sizes["i"] // stored.shape[0], g.sizes["j"] // stored.shape[1])
    g.values[x] = np.where(np.kron(stored, np.ones(block)) > 0, g.values[x], -np.inf)
    return x


def imposed(g, s):
    x, back = scaled(g, s)
    return hide(g, x, is_stored(g.sizes["i"] // 16, g.sizes["j"] // 16)), back


def imposed_causal(g, s):
    x, back = causal(g, s)
    return hide(g, x, is_stored(g.sizes["i"] // 16, g.sizes["j"] // 16)), back


def check_imposed():
    """Attention on blocks that a mark says, and its gradient; causal attention on those of them that it sees."""
    graphs = {}
    for number, (name, score, sizes) in enumerate([("imposed", imposed, {}), ("imposed-causal", imposed_causal, SQUARE)]):
        graphs[name] = Graph(sizes, prefix=f"m{number}v")
        make(graphs[name], score=score)
    check_numbers(graphs, [MARK])


def check_messages():
    """What a mark cannot be imposed on, and what is not attention where sparsity is required."""
    def find(form, options, target=""):
        g = Graph(FORMS[form][1])
        make(g, **FORMS[form][0])
        text = write([g])
        if target:
            text = f"module attributes {{bsr.target = {target}}} {{\n{text}}}\n"
        done = subprocess.run(["sparse-opt", f"--pass-pipeline=builtin.module(func.func(bsr-find-attention{{{options}}}))"],
                              input=text, text=True, capture_output=True)
        return done.returncode, done.stderr

    mark = "marks='attention=. block=16x16'"
    for form, options, target, message in [
            ("returned", mark, "", ": expected attention that '.' imposes a pattern on, but got 'func.return' that uses the scores in another way"),
            ("returned", mark, "", "note: this is what is in the way"),
            ("again", mark, "", ": expected attention that '.' imposes a pattern on to be computed once, but got scores that a gradient computes again"),
            ("plain", mark, "#bsr.gpu", ": expected a target with kernels for attention that '.' imposes a pattern on, but got none"),
            ("returned", "require-sparse=true", "", "expected attention, but got 'func.return' that uses the scores in another way: scores stay in memory"),
            ("by-value", "require-sparse=true", "", "compares scores"),
            ("over-queries", "require-sparse=true", "", "reduces scores over a dimension that is not the keys'")]:
        code, errors = find(form, options, target)
        assert code != 0 and "error: " in errors and message in errors, (form, options, errors)
        assert re.search(r"<stdin>:\d+:\d+: error", errors), errors
    # Few keys, and what is attention, are no error.
    for form, options in [("returned", "require-sparse=true min-keys=129"), ("plain", "require-sparse=true")]:
        code, errors = find(form, options)
        assert code == 0 and not errors, (form, options, errors)


def check_data(random):
    """A mask that is an argument, marked: its pattern is that of the attention, and changes between steps."""
    g = Graph(SQUARE, prefix="d")
    mask = g.argument("ij")
    name = mask[1:]

    def score(g, s):
        x, back = scaled(g, s)
        zero, low = g.constant(0), g.constant(-np.inf, "0xFF800000")
        live = g.each("cmpf ogt,", mask, zero, kind="i1")
        return g.select(live, x, low, "bhij"), lambda ds: back(g.select(live, ds, zero, "bhij"))

    make(g, score=score)
    marks = [f"--mark=match=^{name}$ attention-mask block=32x32 density=0.5", "--attention-keys=1"]
    text = write([g])
    found = subprocess.run(["sparse-opt", f"--bsr-mark=match=^{name}$ attention-mask block=32x32 density=0.5", "--bsr-to-sparse",
                            "--bsr-find-attention=report=true"], input=text, text=True, capture_output=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("pattern %arg") == 2 and "math.exp" not in found.stdout, found.stdout
    compiled = step.compile(text, marks)
    for _ in range(2):
        stored = random.random((4, 4)) < 0.3
        stored[np.arange(4), random.integers(4, size=4)] = True
        stored.flat[np.flatnonzero(stored)[8:]] = False
        stored[~stored.any(1), 0] = True
        # Entries of stored blocks may be masked as well; each row sees something.
        entries = (random.random((128, 128)) < 0.8) & (np.kron(stored, np.ones((32, 32))) > 0)
        entries |= np.arange(128) == entries.argmax(1)[:, None]
        stored = entries.reshape(4, 32, 4, 32).any((1, 3))
        dense = Graph(SQUARE, prefix="d")
        at = dense.argument("ij")
        dense.values[at] = entries.astype(np.float64)

        def again(g, s):
            x, back = scaled(g, s)
            g.values[x] = np.where(entries, g.values[x], -np.inf)
            return x, back

        make(dense, score=again)
        arrays = {**dense.arrays}
        # The operands of the two graphs are drawn in the same order.
        names = dict(zip(dense.arrays, g.arrays))
        arrays = {names[key]: array for key, array in dense.arrays.items()}
        slots = compiled.manifest["patterns"][0]["slots"]
        order = random.permutation(slots)[:stored.sum()]
        arrays[name] = step.to_values(entries.astype(np.float32), stored, (32, 32), slots, order)
        got = compiled.run(arrays, {name: stored}, {name: order})
        for mine, theirs in zip(g.results, dense.results):
            error = np.abs(got[mine[1:]] - dense.values[theirs]).max() / np.abs(dense.values[theirs]).max()
            assert error < 1e-5, (mine, error)


def check_data_messages():
    """Why attention that a marked mask masks is computed of all blocks; nothing is said of other matrices."""
    def fill(live, number=-np.inf, text="0xFF800000"):
        """Scores where `live` says, else a number."""
        def score(g, s):
            mask, zero = live(g), g.constant(0)
            return g.select(mask, s, g.constant(number, text), "bhij"), lambda ds: g.select(mask, ds, zero, "bhij")
        return score

    def add(dims, *operations):
        """Scores and a matrix, after operations with constants."""
        def score(g, s):
            x = g.argument(dims)
            for kind, number in operations:
                x = g.each(kind, x, g.constant(number))
            return g.each("addf", s, x), lambda ds: ds
        return score

    seen = lambda g, x: g.each("cmpf ogt,", x, g.constant(0), kind="i1")
    of = lambda dims, change=lambda g, x: x: lambda g: seen(g, change(g, g.argument(dims)))
    merge = lambda g, x: g.reshape(g.each("mulf", g.reshape(g.broadcast(x, "bhij"), "nij"), g.constant(2)), "bhij")
    padded = lambda g: g.each("andi", seen(g, g.broadcast(g.argument("ij"), "bij")), g.argument("bij", "i1"), kind="i1")
    for score, message in [
            (fill(of("ij")), None),
            (fill(of("ij"), -1e9, None), "-1e+09 filled in where it is zero"),
            (add("ij", ("subf", 1), ("mulf", 1e9)), "-1e+09 filled in where it is zero"),
            # A bias, zero where no block is stored.
            (add("ij", ("mulf", 1e9)), None),
            (fill(of("ji")), "other rows and columns of it"),
            (fill(padded), "a mask that depends on more"),
            (fill(lambda g: g.each("cmpf oeq,", g.argument("ij"), g.constant(0), kind="i1")), "scores that are seen where it is zero"),
            (fill(of("ij", merge)), "'tensor.expand_shape' that splits a dimension of it"),
            (fill(lambda g: g.reduce(seen(g, g.broadcast(g.argument("ij"), "bij")), "b", "andi")),
             "'linalg.generic' that does not take it entry by entry")]:
        g = Graph(SQUARE)
        make(g, score=score, backward=None)
        (name,) = [n for n, array in g.arrays.items() if array.shape == (128, 128)]
        done = subprocess.run(["sparse-opt", f"--bsr-mark=match=^{name}$ attention-mask block=32x32 density=0.5", "--bsr-to-sparse",
                               "--bsr-find-attention=report=true"], input=write([g]), text=True, capture_output=True)
        assert done.returncode == 0 and done.stdout.count("bsr.attention(") == 1, done.stderr
        remarks = re.findall(r"<stdin>:\d+:\d+: remark: (expected attention.*)", done.stderr)
        assert remarks == ([] if message is None else [
            f"expected attention of the blocks that a marked mask stores, but got {message}: attention is computed of all blocks"]), (
                message, done.stderr)


def main(names):
    graphs = {}
    for number, name in enumerate(names or FORMS):
        graphs[name] = Graph(FORMS[name][1], prefix=f"f{number}v")
        make(graphs[name], **FORMS[name][0])
        check_found(name, graphs[name])

    def choose(condition):
        return {name: g for name, g in graphs.items() if condition(name)}

    # Kernels with vectors take long to compile: the other forms that are found have loops.
    check_numbers(choose(lambda name: name in VECTORS or not FORMS[name][2]), ["--attention-keys=1"])
    check_numbers(choose(lambda name: name not in VECTORS and FORMS[name][2]), ["--attention-keys=1", "--target=scalar"])
    # Without the pass, what it would find.
    check_numbers(choose(lambda name: FORMS[name][2]), [])


if __name__ == "__main__":
    if sys.argv[1:] == ["marks"]:
        check_messages()
        check_imposed()
        check_data_messages()
        check_data(np.random.default_rng(0))
    else:
        main(sys.argv[1:])
