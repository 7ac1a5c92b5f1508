# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches and loops of a step, whose regions read values from outside."""

import numpy as np

from fuzz.builder import Value, derivatives, select


def region(net, write):
    """The lines that `write` writes, and what it returns."""
    outer, net.lines = net.lines, []
    result = write()
    lines, net.lines = net.lines, outer
    return "".join(f"  {line}\n" for line in lines), result


def results_of(net, text, shapes, kind):
    """The results of an operation with regions; TYPES are their types."""
    values = [Value(net.name(), shape, kind) for shape in shapes]
    label, types = values[0].name, ", ".join(v.type for v in values)
    if len(values) > 1:
        for i, value in enumerate(values):
            value.name = f"{label}#{i}"
    net.lines.append(f"{label}{f':{len(values)}' if len(values) > 1 else ''} = {text.replace('TYPES', types)}")
    return values


def yielded(values):
    return f"    scf.yield {', '.join(v.name for v in values)} : TYPES\n"


def branch(net, taken, ways, shapes, kind):
    """scf.if on the scalar `taken`; `ways` write the two regions and return their values."""
    first, second = (lines + yielded(values) for lines, values in (region(net, way) for way in ways))
    return results_of(net, f"scf.if {taken} -> (TYPES) {{\n{first}  }} else {{\n{second}  }}", shapes, kind)


def repeat(net, count, starts, body):
    """scf.for of `count` rounds; `body(*carried)` returns the next values."""
    carried = [Value(net.name(), v.shape, v.kind) for v in starts]
    first, last, one = (net.line(f"arith.constant {n} : index") for n in (0, count, 1))
    index = net.name()
    lines, values = region(net, lambda: body(*carried))
    arguments = ", ".join(f"{c.name} = {s.name}" for c, s in zip(carried, starts))
    return results_of(net, f"scf.for {index} = {first} to {last} step {one} iter_args({arguments}) -> (TYPES) {{\n"
                      f"{lines}{yielded(values)}  }}", [s.shape for s in starts], starts[0].kind)


def loop(net, starts, going, body):
    """scf.while; `going(*carried)` returns the name of a scalar, `body(*carried)` the next values."""
    outer, inner = ([Value(net.name(), v.shape, v.kind) for v in starts] for _ in range(2))
    before, condition = region(net, lambda: going(*outer))
    after, values = region(net, lambda: body(*inner))
    names = lambda values: ", ".join(v.name for v in values)
    arguments = ", ".join(f"{c.name} = {s.name}" for c, s in zip(outer, starts))
    entry = ", ".join(f"{v.name}: {v.type}" for v in inner)
    return results_of(
        net, f"scf.while ({arguments}) : (TYPES) -> (TYPES) {{\n{before}    scf.condition({condition}) {names(outer)} : "
        f"TYPES\n  }} do {{\n  ^bb0({entry}):\n{after}{yielded(values)}  }}", [s.shape for s in starts], starts[0].kind)


def compare(net, value, predicate, limit):
    """Whether a number is below or above `limit`, as a scalar."""
    number, limit = net.line(f"tensor.extract {value.name}[] : {value.type}"), net.scalar(limit, value.kind)
    return net.line(f"arith.cmpf {predicate}, {number}, {limit} : {value.kind}")


def number(net, x):
    """A number that control flow computes: a loop of a known count, one that ends when a number allows it, a branch."""
    kind, way = x.kind, net.choose(["for", "while", "if"] if net.chance(0.5) and net.allowed("while") else ["for", "if"])
    net.count("control." + way)
    scalar = lambda function, *values: net.plain(function, *values, extents=())
    if way == "for":
        start = net.fill((), 1.0, kind)
        return repeat(net, 4, [start], lambda c: [scalar(lambda a, b: a * 0.5 + b, c, x)])[0]
    if way == "while":
        start = scalar(lambda a: a.math("absf") + 0.013, x)
        return loop(net, [start], lambda c: compare(net, c, "olt", 10.0), lambda c: [scalar(lambda a: a * 2.0, c)])[0]
    ways = [lambda f=f: [scalar(lambda a: a * f, x)] for f in (2.0, 0.25)]
    return branch(net, compare(net, x, "olt", 0.37), ways, [()], kind)[0]


# Functions of an activation and of what lies beside it.
PAIRS = [
    lambda a, b: a * 0.5 + b, lambda a, b: (a + b * 0.3).math("tanh"), lambda a, b: a - b * b * 0.1,
    lambda a, b: select(a.compare("ogt", b), a, b * 0.5), lambda a, b: a, lambda a, b: b * 1.5, lambda a, b: a * b,
]
SMOOTH_PAIRS = [f for i, f in enumerate(PAIRS) if i != 3]


def choose_pair(net):
    return net.choose(PAIRS if net.compute in ("f32", "f64") else SMOOTH_PAIRS)


def beside(net, x):
    """Something of the shape of `x`, or that aligns with it, which a region reads."""
    way = net.choose(["batch", "activation", "vector", "number"])
    net.count("region." + way)
    if way == "batch":
        return net.batch(net.random.standard_normal(x.shape), x.kind)
    if way == "activation":
        return net.apply(lambda a: a.math("sin") * 0.7, x)
    if way == "vector":
        return net.cast(net.vector(x.shape[-1]), net.compute)
    return net.batch(np.array(0.3 * net.random.standard_normal()), x.kind)


def condition(net, x):
    """A scalar that decides: one of the batch, or one that the step computes of an activation."""
    if net.chance(0.6):
        return compare(net, net.batch(np.array(float(net.chance(0.5))), "f32"), "ogt", 0.5)
    total = net.reduce(net.plain(lambda a: a * a, x), list(range(len(x.shape))))
    return compare(net, total, net.choose(["ogt", "olt"]), 0.5 * max(1, int(np.prod(x.shape))))


def branched(net, x):
    """An activation of a branch: both ways read the activation and what lies beside it."""
    net.count("layer.branched")
    other, ways = beside(net, x), [choose_pair(net) for _ in range(2)]
    taken, dims = condition(net, x), tuple(range(len(x.shape)))
    values = [x, other]
    reads = lambda: [net.read(v, net.align(v, x.shape)) for v in values]

    def forward(function):
        return lambda: [net.emit(x.shape, function(*reads()))]
    result = branch(net, taken, [forward(f) for f in ways], [x.shape], x.kind)[0]

    def backward(cotangent):
        wanted = [v for v in values if v.name in net.needed]

        def gradients(function):
            def write():
                leaves = reads()
                found = {id(leaf): g for leaf, g in derivatives(function(*leaves), net.read(cotangent, dims))}
                parts = []
                for leaf, value in zip(leaves, values):
                    if value not in wanted:
                        continue
                    g = found.get(id(leaf))
                    parts.append(net.emit(x.shape, g) if g is not None else net.fill(x.shape, 0.0, x.kind))
                return parts
            return write
        parts = branch(net, taken, [gradients(f) for f in ways], [x.shape] * len(wanted), x.kind)
        return [(v, net.gather(x.shape, (v, net.align(v, x.shape)), net.read(part, dims))) for v, part in zip(wanted, parts)]
    return net.record(values, result, backward)


def looped(net, x):
    """An activation with what a loop makes of it and of what lies beside it; the loop has no gradient."""
    other, pair = beside(net, x), choose_pair(net)
    way = net.choose(["for", "while"] if net.allowed("while") else ["for"])
    net.count("layer.looped." + way)
    step = lambda c: net.plain(lambda a, b, d: (pair(b, d) + a * 0.5).math("tanh"), c, x, other, extents=x.shape)
    start = net.fill(x.shape, 0.0, x.kind) if net.chance(0.5) else net.plain(lambda a: a * 0.5, x)
    if way == "for":
        made = repeat(net, int(net.choose([1, 2, 3])), [start], lambda c: [step(c)])[0]
    else:
        kind = "f64" if x.kind == "f64" else "f32"
        made = counted(net, start, step, kind)
    return net.apply(lambda a, b: a + b * 0.5, x, made)


def counted(net, start, step, kind):
    """A loop that ends at a count it carries."""
    if start.kind != kind:
        # All that a loop carries has one type here.
        wide = net.plain(lambda a: a.cast(kind), start)
        inner = lambda c: net.plain(lambda a: a.cast(kind), step(net.plain(lambda a: a.cast(start.kind), c)))
        return net.plain(lambda a: a.cast(start.kind), counted(net, wide, inner, kind))
    rounds, zero = float(net.choose([1, 2, 3])), net.fill((), 0.0, kind)
    return loop(net, [start, zero], lambda c, n: compare(net, n, "olt", rounds - 0.5),
                lambda c, n: [step(c), net.plain(lambda a: a + 1.0, n, extents=())])[0]
