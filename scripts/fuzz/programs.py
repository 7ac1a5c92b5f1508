# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random training steps: a model, its loss, the gradients, an optimizer; which weights are marked; data."""

import math
import re
from dataclasses import dataclass

import numpy as np

from fuzz import inner, layers, metrics, optimizers, regions
from fuzz.builder import Expr, Style, Value
from fuzz.rounding import is_float, round_to
from fuzz.tape import Tape

# Programs whose results are known to be wrong or undefined, by a name that --without takes.
CLASSES = {
    "unmasked": "gradients that are no products: of joined, sliced, reshaped or repeated weights, positions, conditions",
    "reparameterized": "weights that go through functions or norms in front of their products",
    "while": "loops that end when a number allows it",
    "inner": "gradients that a step uses for more than its update: penalties on them, steps in the step, examples' own",
    "penalty": "penalties on weights whose derivative at 0 is not 0",
    "inferred": "gradients that the program does not mark, which the compiler looks for",
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
    inner: dict  # name of another gradient -> its weight
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
        self.activations = []
        self.wide_sums = self.chance(0.5)
        # Of a generator of its own: the rest of a program is the same with and without marks.
        self.marked = np.random.default_rng([seed, 19]).random() < 0.75 or not self.allowed("inferred")

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
        rate = float(self.choose([0.5, 0.5, 0.05, 0.05, 0.01, 0.01, 0.0]))
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
        net.activations.append(x)
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


def sprinkle(net):
    """Puts special numbers into the data of a batch or of weights."""
    chosen = net.choose(["zero", "all_zero", "infinity", "both_infinities", "nan", "subnormal", "large", "small", "zero_weight"])
    net.count("special." + chosen)
    random = net.random
    role = "param" if chosen == "zero_weight" or chosen in ("infinity", "nan", "large") and net.chance(0.25) else "batch"
    tensors = [a for a in net.arguments if a.role == role and is_float(a.value.kind) and a.data.size > 1]
    if not tensors:
        return
    argument = net.choose(tensors)
    data, kind = argument.data.copy(), argument.value.kind
    largest = {"f16": 6e4, "f64": 1e300}.get(kind, 3e38)
    smallest = {"f16": 1e-7, "f64": 1e-310}.get(kind, 1e-40)
    some = random.random(data.shape) < 0.1
    if net.chance(0.3):
        some = np.arange(data.size).reshape(data.shape) == random.integers(data.size)
    if chosen in ("all_zero", "zero_weight"):
        data[...] = 0.0
    elif chosen == "small":
        data *= math.sqrt(smallest)
    elif chosen == "large":
        data[some] *= largest / 4
    elif chosen == "both_infinities":
        data[some] = math.inf * np.sign(random.standard_normal(int(some.sum())))
    else:
        data[some] = {"zero": -0.0, "infinity": math.inf, "nan": math.nan, "subnormal": smallest}[chosen]
    argument.data = round_to(data, kind)


def own_gradient(net, found, weight):
    """The gradient of a weight as a value of its own: only there is it masked, and what is added to a weight has
    the same gradient."""
    gradient = found[weight.name]
    if net.marked:
        return net.own(gradient, weight)
    shared = any(gradient.name in re.findall(r"%\w+", line.partition("=")[2]) for line in net.lines)
    return net.apart(gradient) if shared else gradient


# Penalties on the entries of a weight.
PENALTIES = {
    "l2": lambda a: a * a, "l1": lambda a: a.math("absf"), "exponential": lambda a: (-a).math("exp"),
    "softplus": lambda a: a.math("exp").math("log1p"), "huber": lambda a: (a * a + 0.01).math("sqrt"),
    "shifted": lambda a: (a - 0.1) * (a - 0.1),
}


def penalize(net, loss):
    """The loss and a penalty on a weight: of its entries, or of groups of them."""
    known = ["l2", "l2", "huber", "groups"]
    if net.allowed("penalty"):
        known += ["l1", "l1", "exponential", "softplus", "shifted"]
    name, weight = net.choose(known), net.choose(net.weights)
    net.count("loss.decay")
    net.count("penalty." + name)
    if name == "groups":
        sums = net.sum(net.apply(lambda a: a * a, weight), [int(net.random.integers(len(weight.shape)))])
        terms = net.apply(lambda a: (a + 1e-3).math("sqrt"), sums)
    else:
        terms = net.apply(PENALTIES[name], weight)
    total = wide(net, net.sum(terms, list(range(len(terms.shape)))) if terms.shape else terms)
    return net.apply(lambda a, b: a + b.cast(a.kind) * 0.01, loss, total, extents=())


def model(net):
    """The loss and the activations of a random model."""
    x = forward(net)
    if not net.weights:
        x = layers.linear(net, x)
    loss_of = net.choose(LOSSES)
    net.count("loss." + loss_of.__name__)
    loss = loss_of(net, x)
    if net.chance(0.2):
        loss = penalize(net, loss)
    # Gradients of gradients make long programs.
    if net.kind == net.compute in ("f32", "f64") and len(net.records) < 40 and net.chance(0.25) and net.allowed("inner"):
        loss = net.choose([inner.penalty, inner.balanced])(net, x, loss)
    return loss, x


def gradients_of(net):
    """The loss, the activations, and each weight with its gradient."""
    pairs = None
    if net.kind == net.compute in ("f32", "f64") and net.chance(0.12) and net.allowed("inner"):
        if net.chance(0.5):
            loss, x, pairs = inner.per_example(net)
        else:
            loss, x = inner.step_in_step(net)
    else:
        loss, x = model(net)
    if pairs is None:
        found = net.backward(loss)
        pairs = [(v, own_gradient(net, found, v)) for v in net.weights + net.vectors if v.name in found]
    return loss, x, pairs


def generate(seed, limits=None, without=()):
    """The program of `seed`. Smaller `limits` give other, smaller programs."""
    net = Net(seed, {"features": 128, "tokens": 64, "layers": 4} | (limits or {}), set(without))
    loss, x, pairs = gradients_of(net)
    gradients = {v.name[1:]: g.name for v, g in pairs}
    inner.report(net, pairs)
    optimizers.update(net, pairs)
    net.output("loss", loss)
    if net.chance(0.5):
        metrics.add(net, [x, *net.activations])
    if net.chance(0.15):
        net.output("number", regions.number(net, loss))
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
    return Program(seed, text, net.arguments, net.marks, gradients, net.inner, net.features, net.classes, special)
