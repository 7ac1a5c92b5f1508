# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random training steps: a model, its loss, the gradients, an optimizer; which weights are marked; data."""

import math
import re
from dataclasses import dataclass

import numpy as np

from fuzz import layers, optimizers
from fuzz.builder import Expr, Style, Value
from fuzz.rounding import is_float, round_to
from fuzz.tape import Tape

# Programs whose results are known to be wrong or undefined, by a name that --without takes.
CLASSES = {
    "unmasked": "gradients that are no products: of joined, sliced, reshaped or repeated weights, positions, conditions",
    "reparameterized": "weights that go through functions or norms in front of their products",
    "while": "loops that end when a number allows it",
    "special": "zeros, infinities, NaN, subnormal and large numbers in the data",
}


@dataclass
class Argument:
    value: Value
    name: str
    role: str
    data: np.ndarray
    carries: Value | None = None
    follows: str = ""  # the weight whose pattern it has


@dataclass
class Mark:
    block: tuple
    density: float
    dims: str = "row,col"
    static: bool = False


@dataclass
class Program:
    seed: int
    text: str
    arguments: list
    marks: dict  # by weight
    gradients: dict  # weight -> name of its gradient
    features: dict
    classes: set
    special: bool = False


class Net(Tape):
    """A step under construction."""

    def __init__(self, seed, limits, without):
        super().__init__(np.random.default_rng([seed, 7]), None)
        random = self.random
        self.limits, self.without, self.classes = limits, without, set()
        self.style = Style(
            split=float(random.choice([0.0, 0.5, 1.0])), named=float(random.choice([0.0, 0.5, 1.0])),
            transpose=float(random.choice([0.0, 0.3])), full=float(random.choice([0.0, 0.5])),
            constants=str(random.choice(["body", "body", "outside", "tensor"])),
            dense=float(random.choice([0.0, 0.5, 1.0])), flip=float(random.choice([0.0, 0.3])))
        self.kind, self.compute = [("f32", "f32")] * 12, None
        pairs = [("f32", "f32")] * 12 + [("f64", "f64")] * 2 + [("f32", "bf16")] * 3 + [("f32", "f16")] * 2 + [("bf16", "bf16")]
        self.kind, self.compute = pairs[int(random.integers(len(pairs)))]
        self.count(f"type.{self.kind}" + (f"_{self.compute}" if self.compute != self.kind else ""))
        self.arguments, self.outputs, self.marks, self.weights, self.vectors = [], [], {}, [], []
        self.wide_sums = self.chance(0.5)

    def allowed(self, name):
        if name not in self.without:
            self.classes.add(name)
            return True
        return False

    def sums(self):
        """The kind in which products are summed."""
        return "f32" if self.compute in ("f16", "bf16") and self.wide_sums else self.compute

    # Arguments.

    def argument(self, name, shape, kind, role, data, follows=""):
        value = Value("%" + name.replace(".", "_"), shape, kind)
        data = np.asarray(data)
        data = round_to(data.astype(np.float64), kind) if is_float(kind) else data.astype(np.int64)
        self.arguments.append(Argument(value, name, role, data.reshape(tuple(shape)), follows=follows))
        return value

    def batch(self, data, kind):
        return self.argument(f"x{len(self.arguments)}", np.shape(data), kind, "batch", data)

    def weight(self, shape, dims="row,col"):
        name = f"w{len(self.weights)}"
        fan = shape[-2] if len(shape) == 2 else math.prod(shape[:-1]) if dims.startswith("row") else shape[1]
        data = self.random.standard_normal(shape) / math.sqrt(max(fan, 1))
        weight = self.argument(name, shape, self.kind, "param", data)
        self.weights.append(weight)
        if not self.chance(0.1):
            self.needed.add(weight.name)
        else:
            self.count("weight.frozen")
        entries = math.prod(e for e, d in zip(shape, dims.split(",")) if d != "stack")
        if self.chance(0.8) and entries > 1:
            self.marks[name] = self.mark(shape, dims)
        else:
            self.count("weight.dense")
        return weight

    def mark(self, shape, dims):
        parts = dims.split(",")
        rows, columns = (math.prod(e for e, d in zip(shape, parts) if d == kind) for kind in ("row", "col"))
        divisors = lambda n: [b for b in range(1, 65) if n % b == 0]
        block = int(self.choose(divisors(rows))), int(self.choose(divisors(columns)))
        both = [b for b in (1, 2, 4, 8, 16, 32, 64) if rows % b == columns % b == 0]
        if self.chance(0.6):
            block = (self.choose(both),) * 2
        if rows * columns // (block[0] * block[1]) > 1024:
            block = (self.choose(divisors(rows)[-1:]), block[1])
        total = rows // block[0] * (columns // block[1])
        slots = total if self.chance(0.15) else int(self.random.integers(1, total + 1))
        self.count(f"block.{block[0]}x{block[1]}")
        if dims != "row,col":
            self.count("dims." + dims)
        return Mark(block, slots / total, dims, static=dims == "row,col" and self.chance(0.08))

    def vector(self, shape, mean=0.0):
        """A bias or a scale, of any shape; never marked."""
        name = f"b{len(self.vectors)}"
        shape = (shape,) if isinstance(shape, int) else shape
        value = self.argument(name, shape, self.kind, "param", mean + 0.3 * self.random.standard_normal(shape))
        self.vectors.append(value)
        self.needed.add(value.name)
        return value

    def state(self, name, shape, kind, follows=None, start="normal"):
        data = 0.1 * self.random.standard_normal(shape)
        if start == "square":
            data = data**2
        follower = self.name_of(follows) if follows is not None else ""
        return self.argument(name, shape, kind, "state", data, follower)

    def step_count(self):
        """The number of this step, from 1, in f32 or f64."""
        kind = "f64" if self.kind == "f64" else "f32"
        name = f"count{len(self.arguments)}"
        count = self.argument(name, (), "i32", "state", np.array(2))
        one = Expr("constant", [], "i32", 1)
        new = self.emit((), Expr("arith.addi", [self.read(count, ()), one], "i32"))
        self.carry(count, new)
        result = self.emit((), Expr("arith.sitofp", [self.read(new, ())], kind))
        return result if kind == self.kind else self.plain(lambda t: t.cast(self.kind), result, extents=())

    def rate(self):
        """The learning rate, an argument or a constant."""
        kind = "f64" if self.kind == "f64" else "f32"
        rate = float(self.choose([0.5, 0.05, 0.01]))
        if self.chance(0.5):
            return self.argument(f"lr{len(self.arguments)}", (), kind, "lr", np.array(rate))
        return self.op(f"arith.constant dense<{self.literal(rate, kind)}> : TYPE", (), kind)

    def name_of(self, value):
        return next(a.name for a in self.arguments if a.value is value)

    def carry(self, value, new):
        argument = next(a for a in self.arguments if a.value is value)
        assert argument.carries is None and new.shape == value.shape and new.kind == value.kind, (argument.name, new.type)
        argument.carries = new

    def output(self, name, value):
        self.outputs.append((name, value))


def forward(net):
    """The activations of a random model."""
    tokens = int(net.choose([t for t in (1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 24, 33, 40, 64) if t <= net.limits["tokens"]]))
    batch = int(net.choose([0, 0, 1, 2, 3, 4]))
    lead = (batch, tokens) if batch else (tokens,)
    if net.chance(0.25):
        count, width = int(net.choose([3, 5, 11, 16, 24])), layers.features(net)
        ids = net.argument("ids", lead, net.choose(["i32", "i64"]), "batch", net.random.integers(0, count, lead))
        x = net.cast(net.lookup(net.weight((count, width)), ids), net.compute)
        if net.chance(0.4) and net.allowed("unmasked"):
            net.count("layer.position")
            position = net.cast(net.weight((tokens, width)), net.compute)
            x = net.apply(lambda a, b: a + b, x, position)
    else:
        x = net.batch(net.random.standard_normal(lead + (layers.features(net),)), net.compute)
    known = [(layer, weight) for layer, weight in layers.LAYERS.items() if layers.CLASS_OF.get(layer) not in net.without
             and layer.__name__ in net.limits.get("only", [layer.__name__])]
    weights = np.array([weight for _, weight in known])
    for _ in range(int(net.random.integers(1, net.limits["layers"] + 1))):
        layer = known[int(net.random.choice(len(known), p=weights / weights.sum()))][0]
        if layer in layers.CLASS_OF:
            net.classes.add(layers.CLASS_OF[layer])
        net.count("layer." + layer.__name__)
        x = layer(net, x)
    return x


def wide(net, x):
    """Losses are in f32."""
    return net.cast(x, "f32") if net.compute in ("f16", "bf16") else x


def mean_of(net, x):
    """The mean of all entries, by one sum or several."""
    count = float(math.prod(x.shape))
    if len(x.shape) > 1 and net.chance(0.3):
        x = net.sum(x, [-1])
    total = net.sum(x, list(range(len(x.shape)))) if x.shape else x
    return net.apply(lambda a: a / count if net.chance(0.5) else a * (1.0 / count), total, extents=())


def squared_error(net, x):
    x = wide(net, x)
    target = net.batch(net.random.standard_normal(x.shape), x.kind)
    d = net.apply(lambda a, b: a - b, x, target)
    return mean_of(net, net.apply(lambda a: a * a, d))


def smooth_error(net, x):
    x = wide(net, x)
    target = net.batch(net.random.standard_normal(x.shape), x.kind)
    return mean_of(net, net.apply(lambda a, b: ((a - b) * (a - b) + 0.1).math("sqrt"), x, target))


def cross_entropy(net, x):
    """Of labels `[tokens]`, `[batch, tokens]`, or flattened ones."""
    if net.chance(0.6):
        x = layers.linear(net, x)
    x = wide(net, x)
    shape = x.shape[:-1]
    labels = net.argument("labels", shape, net.choose(["i32", "i64"]), "batch", net.random.integers(0, x.shape[-1], shape))
    if len(shape) == 2 and net.chance(0.5):
        net.count("loss.flat_labels")
        x = net.collapse(x, 0)
        labels = net.reshape(labels, [[0, 1]], (math.prod(shape),))
        shape = labels.shape
    logs = net.log_softmax(x)
    if net.chance(0.35):
        net.count("loss.one_hot")
        hot = net.one_hot(labels, x.shape[-1], x.kind)
        picked = net.sum(net.apply(lambda a, b: a * b, logs, hot), [-1])
    else:
        picked = net.pick(logs, labels)
    if net.chance(0.3):
        net.count("loss.weighted_labels")
        weights = net.batch((net.random.random(shape) < 0.7).astype(float), x.kind)
        picked = net.apply(lambda a, b: a * b, picked, weights)
    return net.apply(lambda a: -a, mean_of(net, picked), extents=())


def logistic(net, x):
    x = wide(net, x)
    target = net.batch((net.random.random(x.shape) < 0.5).astype(float), x.kind)
    return mean_of(net, net.apply(lambda a, b: ((-(a.math("absf"))).math("exp").math("log1p")) + a.max(0.0) - a * b, x, target))


def pooled(net, x):
    """A loss of the mean or of the first of the tokens."""
    axis = len(x.shape) - 2
    if net.chance(0.5):
        count = float(x.shape[axis])
        x = net.apply(lambda a: a / count, net.sum(x, [axis]))
    else:
        x = net.part(x, axis, 0, 1, drop=True)
    if len(x.shape) == 1:
        x = net.expand(x, 0, (1, x.shape[0]))
    return net.choose([squared_error, cross_entropy])(net, x)


LOSSES = [squared_error, smooth_error, cross_entropy, cross_entropy, cross_entropy, logistic, pooled]


def region(net, write):
    """The lines that `write` writes, and what it returns."""
    outer, net.lines = net.lines, []
    result = write()
    lines, net.lines = net.lines, outer
    return "".join(f"  {line}\n" for line in lines), result


def loops(net, x):
    """A number that control flow computes: a loop of a known count, one that ends when a number allows it, a branch."""
    kind, way = x.kind, net.choose(["for", "while", "if"] if net.chance(0.5) and net.allowed("while") else ["for", "if"])
    net.count("control." + way)
    carried = Value(net.name(), (), kind)

    def test(value, limit):
        number, limit = net.line(f"tensor.extract {value.name}[] : {value.type}"), net.scalar(limit, kind)
        return net.line(f"arith.cmpf olt, {number}, {limit} : {kind}")

    if way == "for":
        first, last, one = (net.line(f"arith.constant {n} : index") for n in (0, 4, 1))
        start, index = net.fill((), 1.0, kind), net.name()
        lines, new = region(net, lambda: net.plain(lambda a, b: a * 0.5 + b, carried, x, extents=()))
        return net.op(f"scf.for {index} = {first} to {last} step {one} iter_args({carried.name} = {start.name}) -> (TYPE) "
                      f"{{\n{lines}    scf.yield {new.name} : TYPE\n  }}", (), kind)
    if way == "while":
        start, inner = net.plain(lambda a: a.math("absf") + 0.013, x, extents=()), Value(net.name(), (), kind)
        before, going = region(net, lambda: test(carried, 10.0))
        after, new = region(net, lambda: net.plain(lambda a: a * 2.0, inner, extents=()))
        return net.op(f"scf.while ({carried.name} = {start.name}) : (TYPE) -> TYPE {{\n{before}    scf.condition({going}) "
                      f"{carried.name} : TYPE\n  }} do {{\n  ^bb0({inner.name}: TYPE):\n{after}    scf.yield {new.name} : "
                      "TYPE\n  }", (), kind)
    taken = test(x, 0.37)
    parts = [region(net, lambda: net.plain(lambda a: a * factor, x, extents=())) for factor in (2.0, 0.25)]
    first, second = (f"{lines}    scf.yield {value.name} : TYPE\n" for lines, value in parts)
    return net.op(f"scf.if {taken} -> (TYPE) {{\n{first}  }} else {{\n{second}  }}", (), kind)


def sprinkle(net):
    """Puts special numbers into the data of a batch or of weights."""
    chosen = net.choose(["zero", "all_zero", "infinity", "nan", "subnormal", "large", "small", "zero_weight"])
    net.count("special." + chosen)
    random, role = net.random, "param" if chosen == "zero_weight" else "batch"
    tensors = [a for a in net.arguments if a.role == role and is_float(a.value.kind) and a.data.size > 1]
    if not tensors:
        return
    argument = net.choose(tensors)
    data, kind = argument.data.copy(), argument.value.kind
    largest = {"f16": 6e4, "f64": 1e300}.get(kind, 3e38)
    smallest = {"f16": 1e-7, "f64": 1e-310}.get(kind, 1e-40)
    some = random.random(data.shape) < 0.1
    if chosen in ("all_zero", "zero_weight"):
        data[...] = 0.0
    elif chosen == "small":
        data *= math.sqrt(smallest)
    elif chosen == "large":
        data[some] *= largest / 4
    else:
        data[some] = {"zero": -0.0, "infinity": math.inf, "nan": math.nan, "subnormal": smallest}[chosen]
    argument.data = round_to(data, kind)


def own_gradient(net, found, weight):
    """The gradient of a weight as a value of its own: only there is it masked, and what is added to a weight has
    the same gradient."""
    gradient = found[weight.name]
    shared = any(gradient.name in re.findall(r"%\w+", line.partition("=")[2]) for line in net.lines)
    own = gradient
    while shared and own.name == gradient.name:  # a copy may be left out
        own = net.plain(lambda g: g, gradient)
    return own


def generate(seed, limits=None, without=()):
    """The program of `seed`. Smaller `limits` give other, smaller programs."""
    net = Net(seed, {"features": 128, "tokens": 64, "layers": 4} | (limits or {}), set(without))
    x = forward(net)
    if not net.weights:
        x = layers.linear(net, x)
    loss_of = net.choose(LOSSES)
    net.count("loss." + loss_of.__name__)
    loss = loss_of(net, x)
    if net.chance(0.15):
        # Decay in the loss.
        net.count("loss.decay")
        weight = net.choose(net.weights)
        total = wide(net, net.sum(net.apply(lambda a: a * a, weight), list(range(len(weight.shape)))))
        loss = net.apply(lambda a, b: a + b.cast(a.kind) * 0.01, loss, total, extents=())
    found = net.backward(loss)
    pairs = [(v, own_gradient(net, found, v)) for v in net.weights + net.vectors if v.name in found]
    gradients = {v.name[1:]: g.name for v, g in pairs}
    optimizers.update(net, pairs)
    net.output("loss", loss)
    if net.chance(0.3):
        net.output("activations", x)
    if net.chance(0.15):
        net.output("number", loops(net, loss))
    special = "special" not in net.without and net.chance(0.15)
    if special:
        net.classes.add("special")
        sprinkle(net)
    return finish(net, seed, gradients, special)


def finish(net, seed, gradients, special):
    """The text of the step, without arguments that nothing uses."""
    results, lines = [], []
    for argument in net.arguments:
        if argument.carries is not None:
            results.append((None, argument.carries, argument))
    results += [(name, value, None) for name, value in net.outputs]
    signature = []
    for argument in net.arguments:
        attributes = f'bsr.name = "{argument.name}"'
        if argument.role == "lr":
            attributes += ', bsr.role = "lr"'
        for i, (_, _, carrier) in enumerate(results):
            if carrier is argument:
                attributes += f", bsr.result = {i} : i64"
        signature.append(f"{argument.value.name}: {argument.value.type} {{{attributes}}}")
    types = ", ".join(v.type + (f' {{bsr.name = "{name}"}}' if name else "") for name, v, _ in results)
    text = "func.func @step(" + ",\n    ".join(signature) + f")\n    -> ({types}) {{\n" + "\n".join(
        "  " + line for line in net.lines) + f"\n  return {', '.join(v.name for _, v, _ in results)} : " + \
        ", ".join(v.type for _, v, _ in results) + "\n}\n"
    return Program(seed, text, net.arguments, net.marks, gradients, net.features, net.classes, special)
