# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of integers: arithmetic in all widths, comparisons of constants, look-ups at places that the step computes."""

import numpy as np

from fuzz.builder import Expr, select

WIDTHS = ["i8", "i16", "i32", "i64"]
PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
OPERATIONS = ["addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui"]
WITH_CONSTANT = ["divsi", "remsi", "divui", "remui", "shli", "shrsi", "shrui"]


def literal(net, number, kind):
    """A dense constant with numbers of its own."""
    spell = lambda entry: f"[{', '.join(map(spell, entry))}]" if np.ndim(entry) else net.literal(entry, kind)
    return net.op(f"arith.constant dense<{spell(number)}> : TYPE", np.shape(number), kind)


def draw_integers(net, shape, kind):
    """Small ones, and those at both ends of what `kind` holds."""
    half = 1 << (int(kind[1:]) - 1)
    small = net.random.integers(-20, 21, shape)
    ends = net.random.choice([half - 1, -half, half // 2, -1], shape)
    return np.where(net.random.random(shape) < 0.7, small, ends)


def integer(net, a, b, kind):
    """A function of two integers of `kind`."""
    for _ in range(int(net.random.integers(1, 4))):
        if net.chance(0.6):
            a, b = Expr("arith." + net.choose(OPERATIONS), [a, b], kind), a
            continue
        name = net.choose(WITH_CONSTANT)
        by = int(net.choose([1, 2, 3])) if name.startswith("sh") else int(net.choose([1, 3, 7, 100]))
        a = Expr("arith." + name, [a, Expr("constant", [], kind, by)], kind)
    return a


def resize(net, a, kind):
    """An integer in another width."""
    if kind == a.kind:
        return a
    wider = int(kind[1:]) > int(a.kind[1:])
    return Expr("arith." + (net.choose(["extsi", "extui"]) if wider else "trunci"), [a], kind)


def bounded(net, a, to):
    """A float between -1 and 1 of the last bits of an integer."""
    last = Expr("arith.andi", [a, Expr("constant", [], a.kind, 63)], a.kind)
    last = resize(net, last, net.choose([a.kind, "i32"]))
    return Expr(net.choose(["arith.sitofp", "arith.uitofp"]), [last], to) * (1 / 32) - 1.0


def integers(net, x):
    """An activation with numbers that integers of the batch or of a constant make."""
    kind = net.choose(WIDTHS)
    net.count("layer.integers." + kind)
    shape = net.choose([x.shape, x.shape[-1:], x.shape[:-1] + (1,)])
    values = [literal(net, draw_integers(net, shape, kind), kind) if net.chance(0.4) or kind == "i16" else
              net.batch(draw_integers(net, shape, kind), kind) for _ in range(2)]

    def function(a, p, q):
        made, to = integer(net, p, q, kind), "f32" if a.kind in ("f16", "bf16") else a.kind
        made = resize(net, made, net.choose(WIDTHS))
        if net.chance(0.4):
            predicate, limit = net.choose(PREDICATES), int(draw_integers(net, (), made.kind))
            hit = Expr("arith.cmpi", [made, Expr("constant", [], made.kind, limit)], "i1", predicate)
            return select(hit, a, a * 0.5)
        return a + bounded(net, made, to).cast(a.kind)
    return net.apply(function, x, *values)


def constants(net, x):
    """An activation chosen by comparisons of constants alone, as front ends leave them."""
    net.count("layer.constants")
    shape = net.choose([x.shape[-1:], x.shape])
    kind = "f64" if x.kind == "f64" else "f32"
    numbers = np.round(net.random.standard_normal(shape) * 2) / 2
    if net.chance(0.2):
        numbers.reshape(-1)[0] = net.choose([np.nan, np.inf, -np.inf, -0.0])
    table = literal(net, numbers, kind)
    predicate = net.choose(["ogt", "oge", "olt", "ole", "oeq", "one", "ult", "uge", "une", "ord", "uno"])
    limit = float(net.choose([0.0, 0.5, -1.0]))
    return net.apply(lambda a, c: select(c.compare(predicate, limit), a, a * 0.25), x, table)


def places(net, x, count):
    """Indices below `count` that are computed from activations: buckets of columns, or the largest of features."""
    rank, width = len(x.shape), x.shape[-1]
    if net.chance(0.5) or width < 2:
        net.count("places.buckets")
        columns = int(net.random.integers(1, min(width, 4) + 1))
        part = net.slice(x, [0] * rank, [*x.shape[:-1], columns])
        kind = net.choose(["i32", "i64"])
        function = lambda a: Expr("arith.fptosi", [(a.math("absf") * 3.7).min(count - 0.5)], kind)
        return net.plain(function, part)
    net.count("places.largest")
    lead, kind = x.shape[:-1], net.choose(["i32", "i64"])
    dims = tuple(range(rank - 1))
    start, none = net.fill(lead, -np.inf, x.kind), net.fill(lead, 0, kind)

    def body(names, inits):
        at = net.line(f"linalg.index {rank - 1} : index")
        at = net.line(f"arith.index_cast {at} : index to {kind}")
        hit = net.line(f"arith.cmpf ogt, {names[0]}, {inits[0]} : {x.kind}")
        return [net.line(f"arith.select {hit}, {names[0]}, {inits[0]} : {x.kind}"),
                net.line(f"arith.select {hit}, {at}, {inits[1]} : {kind}")]
    _, found = net.generic(x.shape, [(x, tuple(range(rank)))], [(x.kind, dims), (kind, dims)], [rank - 1], body, [start, none])
    if count >= width:
        return found
    return net.plain(lambda a: Expr("arith.remsi", [a, Expr("constant", [], kind, count)], kind), found)


def computed(net, x):
    """Rows of a table at places that an activation decides, added to it or to a product of it."""
    net.count("layer.computed")
    count = int(net.choose([2, 4, 8, 16, 24]))
    ids = places(net, x, count)
    table = net.cast(net.weight((count, x.shape[-1])), net.compute)
    rows = net.lookup(table, ids)
    if len(ids.shape) == len(x.shape):
        rows = net.sum(rows, [len(ids.shape) - 1])
    return net.apply(lambda a, b: a + b, x, rows)
