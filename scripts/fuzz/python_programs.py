# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random training programs in Python, as text that imports a framework (framework_jax, framework_torch).

A program has weights, a batch, `forward(p, b) -> (loss, metrics)`, and a step, in words that both frameworks have
and in those of one. Activations are `[tokens, features]`; shapes come from short lists, so that what a framework compiles
for a shape it compiles once.
"""

from dataclasses import dataclass, field

import numpy as np

from fuzz import python_steps

TOKENS = [1, 2, 3, 4, 6, 8, 8, 12, 16]
FEATURES = [1, 4, 8, 8, 12, 16, 16, 24, 32]
BLOCKS = [1, 2, 4, 8]

# Programs that are known to be refused with somebody else's words, or whose results are undefined.
CLASSES = {
    "inner": "gradients that a step uses for more than its update",
    "penalty": "penalties on weights whose derivative at 0 is not 0",
    "special": "infinities and NaN in the batch, of programs that store every block",
    "control": "loops and branches with values from outside",
    "scatter": "scatters and strided writes",
    "pad": "paddings of both signs",
    "bytes": "arithmetic of unsigned bytes",
    "constants": "comparisons of constants",
    "zero_rate": "a learning rate of 0 (PyTorch)",
}


@dataclass
class Value:
    """An activation: its name in the program, and its shape."""

    name: str
    shape: tuple


@dataclass
class Draft:
    """A program under construction."""

    seed: int
    framework: str
    without: set
    random: np.random.Generator = None
    lines: list = field(default_factory=list)
    weights: dict = field(default_factory=dict)
    batch: dict = field(default_factory=dict)
    metrics: list = field(default_factory=list)
    values: list = field(default_factory=list)
    features: dict = field(default_factory=dict)
    classes: set = field(default_factory=set)
    unmarked: set = field(default_factory=set)
    example: bool = False  # the forward pass is that of one example

    def __post_init__(self):
        self.random = np.random.default_rng([self.seed, 17])

    def choose(self, items):
        return items[int(self.random.integers(len(items)))]

    def chance(self, probability):
        return self.random.random() < probability

    def count(self, feature):
        self.features[feature] = self.features.get(feature, 0) + 1

    def allowed(self, name):
        if name in self.without:
            return False
        self.classes.add(name)
        return True

    def number(self, low=-1.0, high=1.0):
        return f"{self.random.uniform(low, high):.3f}"

    def line(self, text):
        self.lines.append(text)

    def value(self, text, shape):
        name = f"v{len(self.lines)}"
        self.line(f"{name} = {text}")
        return Value(name, tuple(shape))

    def weight(self, *shape):
        fits = [n for n, s in self.weights.items() if s == shape]
        if fits and self.chance(0.25):
            self.count("weight.tied")
            return f'p["{self.choose(fits)}"]'
        name = f"w{len(self.weights)}"
        self.weights[name] = shape
        return f'p["{name}"]'

    def input(self, shape, kind="normal", *rest):
        name = f"x{len(self.batch)}"
        self.batch[name] = (tuple(shape), kind, *rest)
        return Value(f'b["{name}"]', tuple(shape))

    def width(self):
        """Of a layer; often one that a weight has, so that weights of one shape are marked differently."""
        known = [n for shape in self.weights.values() for n in shape]
        return self.choose(known) if known and self.chance(0.35) else self.choose(FEATURES)


# Layers: each takes a draft and an activation, and returns an activation.


def linear(d, x):
    (tokens, width), out = x.shape, d.width()
    way = d.choose(["plain", "plain", "transposed", "left", "einsum", "bias", "flat"])
    d.count("linear." + way)
    text = {
        "plain": lambda: f"{x.name} @ {d.weight(width, out)}",
        "transposed": lambda: f"{x.name} @ {d.weight(out, width)}.T",
        "left": lambda: f"({d.weight(out, width)} @ {x.name}.T).T",
        "einsum": lambda: f'einsum("td,de->te", {x.name}, {d.weight(width, out)})',
        "bias": lambda: f"{x.name} @ {d.weight(width, out)} + {d.weight(out)}",
        "flat": lambda: f"({x.name}.reshape(1, {tokens}, {width}) @ {d.weight(width, out)}).reshape({tokens}, {out})",
    }[way]()
    return d.value(text, (tokens, out))


def activation(d, x):
    name = d.choose(["tanh", "relu", "gelu", "silu", "sigmoid", "softplus", "sin", "absolute"])
    d.count("activation." + name)
    return d.value(f"{name}({x.name})", x.shape)


def mlp(d, x):
    return linear(d, activation(d, linear(d, x)))


def residual(d, x):
    (_, width), out = x.shape, d.width()
    return d.value(f"{x.name} + tanh({x.name} @ {d.weight(width, out)}) @ {d.weight(out, width)}", x.shape)


def norms(d, x):
    if x.shape[1] == 1:
        return x
    way = d.choose(["layer", "rms", "softmax", "batch", "log_softmax"])
    d.count("norm." + way)
    a = x.name
    text = {
        "layer": f"({a} - mean({a}, 1)[:, None]) / sqrt(mean(({a} - mean({a}, 1)[:, None]) ** 2, 1)[:, None] + 0.1)",
        "rms": f"{a} / sqrt(mean({a} ** 2, 1)[:, None] + 0.1)",
        "softmax": f"softmax({a}, -1) * {x.shape[1]}",
        "batch": f"({a} - mean({a}, 0)) / sqrt(mean(({a} - mean({a}, 0)) ** 2, 0) + 0.1)",
        "log_softmax": f"log_softmax({a}, -1)",
    }[way]
    return d.value(text, x.shape)


def pieces(d, x):
    """A weight in parts, in multiples, or joined with others."""
    tokens, width = x.shape
    out = d.choose([8, 16, 32])
    way = d.choose(["chunks", "stack", "joined", "sliced", "difference", "heads", "tokens"])
    d.count("weight." + way)
    w = d.weight(width, out)
    half = out // 2
    if way == "chunks":
        quarter = out // 4
        parts = [f"{x.name} @ {w}[:, {i * quarter}:{(i + 1) * quarter}]" for i in range(4)]
        return d.value(" + ".join(parts), (tokens, quarter))
    if way == "stack":
        return d.value(f'tanh(einsum("td,nde->tne", {x.name}, stack([{w}, 2 * {w}])).sum(1))', (tokens, out))
    if way == "joined":
        return d.value(f"{x.name} @ concat([{w}, {d.weight(width, 8)}], 1)", (tokens, out + 8))
    if way == "sliced":
        return d.value(f"{x.name} @ {w}[:, {half}:]", (tokens, out - half))
    if way == "difference":
        return d.value(f"tanh({x.name} @ {w}[:, :{half}]) - {x.name} @ {w}[:, {half}:]", (tokens, half))
    if way == "heads":
        return d.value(f'tanh(einsum("td,dhe->the", {x.name}, {w}.reshape({width}, 2, {half}))).reshape({tokens}, {out})',
                       (tokens, out))
    return d.value(f"{x.name} + tanh({d.weight(tokens, tokens)} @ {x.name})", x.shape)


def pooled(d, x):
    """A product of a vector with a weight, often of one row or column."""
    tokens, width = x.shape
    out = d.choose([1, 1, width])
    d.count("layer.pooled")
    h = d.value(f"total({x.name}, 0)", (width,))
    if d.chance(0.5):
        d.metrics.append(h)
    w = f"{h.name} @ {d.weight(width, out)}" if d.chance(0.5) else f"{d.weight(out, width)} @ {h.name}"
    return d.value(f"{x.name} + tanh({w})", x.shape)


def narrow(d, x):
    """Weights of one column and of one row."""
    tokens, width = x.shape
    out = d.width()
    d.count("layer.narrow")
    return d.value(f"tanh({x.name} @ {d.weight(width, 1)}) @ {d.weight(1, out)}", (tokens, out))


def lookup(d, x):
    """Rows of a table, at places of the batch or computed from the activation."""
    tokens, width = x.shape
    count = d.choose([8, 16, 24])
    way = d.choose(["batch", "buckets", "buckets", "argmax", "codes", "one"])
    d.count("lookup." + way)
    if way == "one" and tokens != 1:
        way = "buckets"
    table = d.weight(count, width)
    if way in ("batch", "one"):
        shape = d.choose([(tokens,), (tokens, 2)])
        ids = d.input(shape, "int32", 0, count).name
        rows = f"take({table}, {ids})" + ("" if len(shape) == 1 else ".sum(1)")
        return d.value(f"{x.name} + {rows}", x.shape)
    if way == "buckets":
        columns = min(width, d.choose([1, 2, 4]))
        ids = d.value(f"to_int(clip(absolute({x.name}[:, :{columns}]) * 3.7, 0.0, {count - 1}.0))", (tokens, columns))
        return d.value(f"{x.name} + mean(take({table}, {ids.name}), 1)", x.shape)
    if way == "argmax":
        wide = d.value(f"{x.name} @ {d.weight(width, count)}", (tokens, count))
        ids = d.value(f"argmax({wide.name}, 1)", (tokens,))
        return d.value(f"{x.name} + take({table}, {ids.name})", x.shape)
    parts = max(n for n in (1, 2, 4) if width % n == 0)
    codes = d.weight(count, width // parts)
    split = d.value(f"{x.name}.reshape({tokens}, {parts}, {width // parts})", (tokens, parts, width // parts))
    ids = d.value(f"argmin(total((stop({split.name})[:, :, None, :] - stop({codes})[None, None]) ** 2, -1), -1)", (tokens, parts))
    return d.value(f"{x.name} + mean(take({table}, {ids.name}), 1)", x.shape)


def padding(d, x):
    if not d.allowed("pad"):
        return x
    axis = int(d.random.integers(2))
    low, high = [0, 0], [0, 0]
    low[axis], high[axis] = (int(d.random.integers(-2, 3)) for _ in range(2))
    shape = [n + a + b for n, a, b in zip(x.shape, low, high)]
    if min(shape) < 1 or -min(low[axis], 0) - min(high[axis], 0) > x.shape[axis] - 1:
        return x
    d.count("pad.below_zero" if min(low + high) < 0 else "pad")
    return d.value(f"pad({x.name}, {tuple(low)}, {tuple(high)}, {d.choose([0.0, 0.0, 0.3])})", shape)


def shapes(d, x):
    """What moves entries."""
    tokens, width = x.shape
    ways = ["flip", "roll", "transpose", "split", "outer", "cumsum", "tril", "triu", "concat", "repeat", "stride"]
    way = d.choose(ways)
    d.count("shape." + way)
    a = x.name
    if way == "flip":
        return d.value(f"flip({a}, ({int(d.random.integers(2))},))", x.shape)
    if way == "roll":
        return d.value(f"roll({a}, {d.choose([1, -1, 2])}, {int(d.random.integers(2))})", x.shape)
    if way == "transpose":
        return d.value(f"tanh({a}).T", (width, tokens)) if max(x.shape) <= 32 else x
    if way == "split":
        at = width // 2
        return d.value(f"concat([{a}[:, {at}:], tanh({a}[:, :{at}])], 1)", x.shape) if at else x
    if way == "outer":
        return d.value(f"tanh({a} + outer({a}[:, 0], {a}[0]))", x.shape)
    if way == "cumsum":
        return d.value(f"cumsum({a}, {int(d.random.integers(2))}) * 0.3", x.shape)
    if way in ("tril", "triu"):
        return d.value(f"{way}({a}, {int(d.random.integers(-2, 3))}) + {a} * 0.1", x.shape)
    if way == "concat":
        return d.value(f"concat([{a}, {a} * 0.5], 0)", (2 * tokens, width)) if tokens <= 8 else x
    if way == "repeat":
        return d.value(f"{a} + mean({a}, 0)[None]", x.shape)
    return d.value(f"{a}[::2]" if tokens > 1 else a, (-(-tokens // 2), width)) if d.framework == "torch" else x


def selected(d, x):
    """Comparisons, of activations, of constants, of integers."""
    tokens, width = x.shape
    a, way = x.name, d.choose(["sign", "constants", "integers", "bytes", "positions", "counts"])
    if way in CLASSES and not d.allowed(way):
        return x
    d.count("select." + way)
    if way == "sign":
        return d.value(f"where({a} > {d.number()}, {a}, {a} * 0.2)", x.shape)
    if way == "constants":
        numbers = [float(n) for n in np.round(d.random.standard_normal(width) * 2) / 2]
        test = d.choose(["> 0.0", "< 0.5", ">= -1.0", "== 0.5", "!= 0.0"])
        return d.value(f"where(constant({numbers}, {a}) {test}, {a}, {a} * 0.3)", x.shape)
    if way == "integers":
        kind = d.choose(["int8", "int16", "int32"] if d.framework == "jax" else ["int8", "int32", "int64"])
        if kind == "int16":
            values = d.value(f'cast({d.input(x.shape, "int32", -200, 200).name}, "int16")', x.shape).name
        else:
            low, high = (-128, 128) if kind == "int8" else (-1000, 1000)
            values = d.input(x.shape, kind, low, high).name
        made = d.choose([f"({values} * 3 + 1)", f"({values} // 3)", f"({values} % 7)", f"({values} & 15)", f"({values} ^ 5)",
                         f"(({values} << 1) >> 2)", f"(-{values})", f"maximum({values}, {values} * {values})"])
        if d.chance(0.5):
            return d.value(f"where({made} > {d.choose([0, 3, -5])}, {a}, {a} * 0.5)", x.shape)
        return d.value(f"{a} + real({made}, {a}) * 0.01", x.shape)
    if way == "bytes":
        values = d.input(x.shape, "uint8", 0, 256).name
        made = d.choose([values, f"({values} + {values})", f"({values} >> 1)", f"({values} // 3)"])
        if d.chance(0.5):
            return d.value(f"where({made} > {d.choose([100, 128, 200])}, {a}, {a} * 0.5)", x.shape)
        return d.value(f"{a} + real({made}, {a}) * 0.01", x.shape)
    if way == "positions":
        test = d.choose([f"(arange({tokens})[:, None] >= arange({width})[None])", f"(arange({width})[None] % 3 == 0)",
                         f"(arange({tokens})[:, None] * 2 < {tokens})"])
        return d.value(f"where({test}, {a}, {a} * 0.1)", x.shape)
    return d.value(f"{a} * (1.0 + total(real({a} > 0.0, {a}), 0) / {tokens})", x.shape)


def attention(d, x):
    tokens, width = x.shape
    size = d.choose([4, 8])
    d.count("layer.attention")
    q, k, v = (d.value(f"{x.name} @ {d.weight(width, size)}", (tokens, size)) for _ in range(3))
    scores = f"{q.name} @ {k.name}.T * {size ** -0.5:.4f}"
    if d.chance(0.5):
        scores = f"where(arange({tokens})[:, None] >= arange({tokens})[None], {scores}, -1e9)"
    return d.value(f"softmax({scores}, -1) @ {v.name}", (tokens, size))


def gated(d, x):
    (tokens, width), out = x.shape, d.choose([4, 8, 16])
    both = d.value(f"{x.name} @ {d.weight(width, 2 * out)}", (tokens, 2 * out))
    return d.value(f"silu({both.name}[:, :{out}]) * {both.name}[:, {out}:]", (tokens, out))


def through(d, x):
    """A weight that goes through a function in front of its product."""
    (tokens, width), out = x.shape, d.width()
    d.count("layer.through")
    w = d.weight(width, out)
    text = d.choose([f"{w} / sqrt(total({w} ** 2, 0) + 0.1)", f"tanh({w})", f"0.1 * exp({w})", f"{w} - mean({w}, 0)"])
    return d.value(f"{x.name} @ ({text})", (tokens, out))


def reduced(d, x):
    """Sums, maxima and their like, which are spread over the tokens or features again."""
    axis = int(d.random.integers(2))
    back = "[None]" if axis == 0 else "[:, None]"
    name = d.choose(["largest", "smallest", "logsumexp", "total", "mean"])
    d.count("reduce." + name)
    return d.value(f"{x.name} + 0.3 * {name}({x.name}, {axis}){back}", x.shape)


def scattered(d, x):
    """Sums of entries at places of the batch, along either dimension."""
    if d.framework != "jax" or not d.allowed("scatter"):
        return x
    (tokens, width), count = x.shape, d.choose([4, 8])
    axis = int(d.random.integers(2))
    d.count(f"scatter.{axis}")
    ids = d.input((x.shape[axis],), "int32", 0, count).name
    shape = (count, width) if axis == 0 else (tokens, count)
    place = ids if axis == 0 else f":, {ids}"
    part = d.choose([x, d.input(x.shape)])
    made = d.value(f"zeros({shape}, {x.name}).at[{place}].add({part.name})", shape)
    if d.chance(0.8):
        d.metrics.append(made)
    return made


def outside(d, x):
    """A loop or a branch that reads activations, weights and numbers from outside."""
    if d.framework != "jax" or not d.allowed("control"):
        return x
    way = d.choose(["while", "fori", "scan", "cond", "switch", "checkpoint", "nested"])
    d.count("control." + way)
    a = x.name
    other = d.choose([f"stop({a})", f"{d.input(x.shape).name}", f"stop(tanh({a} * 2.0))"])
    step = d.choose(["tanh(t * 0.5 + c)", "t * 0.5 + c * 0.3", "where(t > c, t * 0.5, c)", "sin(t + c)"])
    if way == "while":
        return d.value(f"{a} + (lambda c: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, (lambda t: {step})(s[1])), "
                       f"(0, c * 0.0))[1])({other})", x.shape)
    if way == "fori":
        return d.value(f"{a} + (lambda c: lax.fori_loop(0, 3, lambda i, t: {step}, c * 0.0))({other})", x.shape)
    if way == "scan":
        return d.value(f"(lambda c: lax.scan(lambda t, u: ({step}, total(t)), {a}, None, length=3)[0])({other})", x.shape)
    if way in ("cond", "switch"):
        flag = d.input((), "int32", 0, 2).name
        both = f"lambda t: tanh(t + c), lambda t: t * 0.5 - c"
        call = f"lax.cond({flag} > 0, {both}, {a})" if way == "cond" else f"lax.switch({flag}, [{both}], {a})"
        return d.value(f"(lambda c: {call})({other})", x.shape)
    w = d.weight(x.shape[1], x.shape[1])
    once = f"jax.checkpoint(lambda t, w: tanh(t @ w) + t)({a}, {w})"
    if way == "nested":
        once = f"jax.checkpoint(lambda t, w: jax.checkpoint(lambda t, w: tanh(t @ w))(t, w) + t)({a}, {w})"
    return d.value(once, x.shape)


LAYERS = {
    linear: 3, activation: 1.5, mlp: 2, residual: 1, norms: 1.5, pieces: 1.5, pooled: 1, narrow: 0.7, lookup: 2, padding: 1,
    shapes: 1.5, selected: 1.5, attention: 0.8, gated: 0.7, through: 0.5, reduced: 1, scattered: 0.8, outside: 1.2,
}
# What does not work on one token alone, or reads all tokens of a batch.
OF_TOKENS = {pieces, shapes, selected, scattered, outside}


def loss_of(d, x):
    way = d.choose(["square", "square", "labels", "labels", "logistic"])
    d.count("loss." + way)
    tokens, width = x.shape
    if way == "labels" and width > 1:
        labels = d.input((tokens,), "int32", 0, width).name
        return f"-mean(total(log_softmax({x.name}, -1) * one_hot({labels}, {width}, {x.name}), -1))"
    target = d.input(x.shape).name
    if way == "logistic":
        return f"mean(softplus(-{x.name} * {target}))"
    return f"mean(({x.name} - {target}) ** 2)"


FLAT_PENALTIES = ["w ** 2", "sqrt(total(w ** 2, 0) + 1e-3)", "sqrt(w ** 2 + 0.01)"]
PENALTIES = ["absolute(w)", "absolute(w)", "exp(-w)", "softplus(w)", "(w - 0.1) ** 2"]


def metric_of(d, x):
    a = x.name
    if len(x.shape) != 2:
        return a
    ways = [a, f"norm({a})", f"mean({a}, 0)", f"largest({a}, 1)", f"{a}.T", f"clip({a} / (largest(absolute({a}), 1)[:, None] + 0.1), -0.5, 0.5)",
            f"tril({a}, -1)", f"triu({a}, 1)", f"outer({a}[:, 0], {a}[0])", f"argmax({a}, 1)", f"real({a} > 0.1, {a})"]
    if d.framework == "jax":
        ways += [f"jax.grad(lambda t: total(sin({way.replace(a, 't')}) ** 2))(stop({a}))" for way in ways[1:6] if way != a]
    if d.framework == "jax" and min(x.shape) > 2:
        noise = f"({a} + 0.01 * {d.input(x.shape).name})"
        ways += [f"jnp.corrcoef({noise}, rowvar=False)",
                 f"jax.grad(lambda t: total(jnp.corrcoef(t.T) ** 2))({noise})"] * 2
    return d.choose(ways)


def forward(d, layers):
    """The lines of `forward`."""
    tokens = 1 if d.example else d.choose(TOKENS)
    x = d.input((tokens, d.width()))
    if d.chance(0.25):
        count = d.choose([8, 16])
        ids = d.input((tokens,), "int32", 0, count).name
        x = d.value(f"take({d.weight(count, d.width())}, {ids})", (tokens, 0))
        x.shape = (tokens, list(d.weights.values())[-1][1])
    known = [(layer, weight) for layer, weight in LAYERS.items() if not (d.example and layer in OF_TOKENS)]
    chances = np.array([weight for _, weight in known])
    for _ in range(layers):
        layer = known[int(d.random.choice(len(known), p=chances / chances.sum()))][0]
        d.count("layer." + layer.__name__)
        x = layer(d, x)
        d.values.append(x)
    if not d.weights:
        x = linear(d, x)
    loss = d.value(loss_of(d, x), ())
    if d.chance(0.3):
        penalty = d.choose(PENALTIES if d.chance(0.5) and d.allowed("penalty") else FLAT_PENALTIES)
        name = d.choose(list(d.weights))
        d.count("penalty." + penalty)
        loss = d.value(f'{loss.name} + 0.03 * total((lambda w: {penalty})(p["{name}"]))', ())
    metrics = {}
    for i, value in enumerate(d.metrics):
        metrics[f"kept{i}"] = value.name
    for i in range(int(d.choose([0, 0, 1, 2, 4]))):
        metrics[f"m{i}"] = metric_of(d, d.choose([*d.values, x]))
    # Both of what is clipped and of its gradient, with what else reads the activation: of one column it is 1, and 0, and of
    # a column without variance it is 0 / 0.
    wide = [v for v in [*d.values, x] if v.shape[1] > 1]
    if d.framework == "jax" and d.chance(0.2) and wide:
        pair = d.choose(wide)
        a = f"({pair.name} + 0.01 * {d.input(pair.shape).name})"
        metrics["pair"] = f"jnp.corrcoef({a}.T)"
        metrics["of_pair"] = f"jax.grad(lambda t: total(sin(jnp.corrcoef(t.T))))(stop({a}))"
        metrics["beside_pair"] = d.choose([f"tril({a}, -1)", f"triu({a}, 2)", f"outer({a}[:, 0], {a}[0])"])
    second = f"mean(sin({d.choose(d.values or [x]).name}) ** 2)"
    entries = ", ".join(f'"{name}": stop({text})' for name, text in metrics.items())
    body = "\n".join(f"    {line}" for line in d.lines)
    return f"def forward(p, b):\n{body}\n    return {loss.name}, {{{entries}}}, {second}\n"


def marks(d, full):
    """A mark for each matrix, but for some."""
    found = []
    for name, shape in d.weights.items():
        if len(shape) != 2 or shape == (1, 1) or d.chance(0.12):
            continue
        rows, columns = ([b for b in BLOCKS if extent % b == 0] for extent in shape)
        block = d.choose(rows), d.choose(columns)
        if shape[0] * shape[1] // (block[0] * block[1]) > 256:
            block = rows[-1], columns[-1]
        density = 1.0 if full else d.choose([0.25, 0.5, 0.5, 0.75, 1.0])
        found.append((name, f"block={block[0]}x{block[1]} density={density}"))
        d.count(f"block.{block[0]}x{block[1]}")
    return found


def make_special(d):
    """Whether the batch has infinities or NaN; every block is stored then."""
    if not d.chance(0.08) or not d.allowed("special"):
        return False
    names = [n for n, spec in d.batch.items() if spec[1] == "normal"]
    added = [n for n in names if f'.add(b["{n}"])' in "".join(d.lines)]
    name = d.choose(added if added and d.chance(0.7) else names)
    d.batch[name] = (d.batch[name][0], "special", d.choose(["inf", "-inf", "nan"]))
    d.count("special." + d.batch[name][2])
    return True


@dataclass
class Program:
    text: str
    features: dict
    classes: set


HEAD = '''"""Program {seed} of scripts/fuzz-programs --framework {framework}: python3 scripts/fuzz-programs --replay DIR runs it again."""
from fuzz.framework_{framework} import *

SEED = {seed}
WEIGHTS = {weights}
BATCH = {batch}
MARKS = {marks}
OPTIONS = {options}
STEPS = {steps}  # before the first update of patterns, and behind it


'''


def generate(seed, framework, without=()):
    """The program of `seed`."""
    d = Draft(seed, framework, set(without))
    steps = python_steps.STEPS_OF[framework]
    form = d.choose(list(steps)) if d.chance(0.55) else "plain"
    if form not in ("plain", "clipped", "returned", "copies") and not d.allowed("inner"):
        form = "plain"
    d.example = form == "per_example"
    d.count("step." + form)
    text = forward(d, int(d.random.integers(1, 4)))
    special = make_special(d)
    prefix = "params." if framework == "jax" else ""
    found = [f"match={prefix}{name}$ {rest}" for name, rest in marks(d, special)]
    if d.example:
        examples = d.choose([1, 3, 4, 8])
        d.batch = {n: ((examples, *spec[0]), *spec[1:]) for n, spec in d.batch.items()}
    specs = {n: (s, "normal", round(float(np.prod(s[:1])) ** -0.5, 4)) for n, s in d.weights.items()}
    options = [f"-O{d.choose([0, 1, 1, 1, 2, 3])}"]
    if d.chance(0.15):
        options.append("--target=scalar")
    text = HEAD.format(seed=seed, framework=framework, weights=specs, batch=d.batch, marks=found, options=options,
                       # Blocks of NaN are ranked by nothing.
                       steps=(2,) if special else (2, 2)) + text + "\n\n" + \
        steps[form](d)
    return Program(text, d.features, d.classes)
