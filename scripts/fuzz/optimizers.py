# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers as steps write them: next weights and moments from gradients.

A rule gets the step, and the weights of its group with their gradients; it returns the changes
that the rate is multiplied with. Moments are states of the step (`net.state`), which follow
their weight's pattern.
"""

import numpy as np

from fuzz.builder import select


def moment(net, weight, name, function, *values, start="normal"):
    """A carried array of the weight's shape: its next value is `function(old, *values)`."""
    old = net.state(f"{net.name_of(weight)}.{name}", weight.shape, weight.kind, follows=weight, start=start)
    new = net.plain(function, old, *values)
    net.carry(old, new)
    return new


def square(x):
    return x * x


def sgd(net, group):
    return [g for _, g in group]


def momentum(net, group):
    new = [moment(net, w, "mu", lambda m, a: m * 0.9 + a, g) for w, g in group]
    if net.chance(0.5):
        return new
    net.count("optimizer.nesterov")
    return [net.plain(lambda a, m: a + m * 0.9, g, m) for (_, g), m in zip(group, new)]


def adam(net, group):
    """With the correction of bias from a count of steps, or without."""
    count = None
    if net.chance(0.6):
        count = net.step_count()
    changes = []
    for w, g in group:
        m = moment(net, w, "mu", lambda m, a: m * 0.9 + a * 0.1, g)
        v = moment(net, w, "nu", lambda v, a: v * 0.99 + a * a * 0.01, g, start="square")
        eps = net.choose([1e-8, 1e-3])
        if count is None:
            way = net.choose(["div", "rsqrt"])
            changes.append(net.plain(
                lambda a, b: a / (b.math("sqrt") + eps) if way == "div" else a * (b + eps).math("rsqrt"), m, v))
            continue
        correct = [net.plain(lambda t: 1.0 - (t * float(np.log(beta))).math("exp"), count, extents=())
                   for beta in (0.9, 0.99)]
        changes.append(net.plain(lambda a, b, p, q: (a / p) / ((b / q).math("sqrt") + eps), m, v, *correct))
    return changes


def rmsprop(net, group):
    changes = []
    for w, g in group:
        v = moment(net, w, "nu", lambda v, a: v * 0.9 + a * a * 0.1, g, start="square")
        changes.append(net.plain(lambda a, b: a / (b + 1e-4).math("sqrt"), g, v))
    return changes


def adagrad(net, group):
    changes = []
    for w, g in group:
        v = moment(net, w, "sum", lambda v, a: v + a * a, g, start="square")
        changes.append(net.plain(lambda a, b: a * (b + 1e-3).math("rsqrt"), g, v))
    return changes


def adamax(net, group):
    changes = []
    for w, g in group:
        m = moment(net, w, "mu", lambda m, a: m * 0.9 + a * 0.1, g)
        v = moment(net, w, "inf", lambda v, a: (v * 0.99).max(a.math("absf")), g, start="square")
        changes.append(net.plain(lambda a, b: a / (b + 1e-3), m, v))
    return changes


def lion(net, group):
    changes = []
    for w, g in group:
        # A smooth sign: a rounding of a sum near 0 must not decide.
        old = net.state(f"{net.name_of(w)}.mu", w.shape, w.kind, follows=w)
        changes.append(net.plain(lambda m, a: ((m * 0.9 + a * 0.1) * 8.0).math("tanh"), old, g))
        net.carry(old, net.plain(lambda m, a: m * 0.99 + a * 0.01, old, g))
    return changes


def norm_of(net, values):
    """The square of the norm of several tensors, of kind f32 or f64."""
    total = None
    for value in values:
        axes = list(range(len(value.shape)))
        kind = "f64" if value.kind == "f64" else "f32"
        if value.kind != kind:
            value = net.plain(lambda a: a.cast(kind), value)
        if net.chance(0.5):
            part = net.reduce(value, axes, square=True)
        else:
            part = net.reduce(net.plain(square, value), axes)
        total = part if total is None else net.plain(lambda a, b: a + b, total, part, extents=())
    return total


def lamb(net, group):
    """Adam's directions by trust ratios: norms of the weight and of its change."""
    return trust(net, group, adam(net, group))


def lars(net, group):
    return trust(net, group, momentum(net, group))


def trust(net, group, changes):
    net.count("optimizer.trust")
    result = []
    for (w, _), u in zip(group, changes):
        decay = 0.01
        u = net.plain(lambda a, b: a + b * decay, u, w)
        size_w, size_u = norm_of(net, [w]), norm_of(net, [u])
        way = int(net.random.integers(3))
        if way == 0:
            # As published: 1 where either is 0.
            ratio = net.plain(lambda p, q: select(p.compare("ogt", 0.0), select(
                q.compare("ogt", 0.0), p.math("sqrt") / q.math("sqrt"), 1.0), 1.0), size_w, size_u, extents=())
        elif way == 1:
            ratio = net.plain(lambda p, q: p.math("sqrt") / (q.math("sqrt") + 1e-3), size_w, size_u, extents=())
        else:
            ratio = net.plain(lambda p, q: (p / (q + 1e-3)).math("sqrt"), size_w, size_u, extents=())
        result.append(net.plain(lambda a, r: a * r.cast(a.kind), u, ratio))
    return result


def adafactor(net, group):
    """Means of the squares of rows and columns instead of a moment."""
    changes = []
    for w, g in group:
        if len(w.shape) != 2 or min(w.shape) < 2:
            v = moment(net, w, "nu", lambda v, a: v * 0.9 + a * a * 0.1, g, start="square")
            changes.append(net.plain(lambda a, b: a * (b + 1e-4).math("rsqrt"), g, v))
            continue
        squares = net.plain(lambda a: a * a + 1e-3, g)
        means = []
        for axis in (0, 1):
            new = net.reduce(squares, [axis])
            old = net.state(f"{net.name_of(w)}.v{axis}", new.shape, w.kind, start="square")
            count = float(w.shape[axis])
            mean = net.plain(lambda o, s: o * 0.8 + s / count * 0.2, old, new)
            net.carry(old, mean)
            means.append(mean)
        columns, rows = means
        extents = w.shape
        whole = net.plain(lambda s: s / float(rows.shape[0]), net.reduce(rows, [0]), extents=())
        a, r, c, m = (net.read(v, d) for v, d in ((g, (0, 1)), (rows, (0,)), (columns, (1,)), (whole, ())))
        u = net.emit(extents, a * (r / m).math("rsqrt") * c.math("rsqrt"))
        if net.chance(0.6):
            # Its RMS is at most 1.
            count = float(np.prod(extents))
            size = norm_of(net, [u])
            u = net.plain(lambda p, s: p / (s / count).math("sqrt").max(1.0).cast(p.kind), u, size)
        changes.append(u)
    return changes


RULES = {rule.__name__: rule for rule in (sgd, momentum, adam, rmsprop, adagrad, adamax, lion, lamb, lars, adafactor)}


def clip_by_norm(net, pairs):
    """All gradients by one factor."""
    net.count("clip.global")
    size, limit = norm_of(net, [g for _, g in pairs]), float(net.choose([0.1, 1.0]))
    way = int(net.random.integers(6))
    if way > 3:
        # Divided entry by entry, as optax does, by a number that all weights share.
        norm = net.plain(lambda s: s.math("sqrt"), size, extents=())
        net.output("gradient_norm", norm)

        def clip(a, n):
            n = n.cast(a.kind)
            return select(n.compare("olt", limit), a, a / n * limit) if way == 4 else a / (n * (1 / limit)).max(1.0)
        return [(w, net.plain(clip, g, norm)) for w, g in pairs]
    factor = net.plain({
        0: lambda s: (limit / s.math("sqrt")).min(1.0),
        1: lambda s: (limit / (s.math("sqrt") + 1e-6)).min(1.0),
        2: lambda s: limit / s.math("sqrt").max(limit),
        3: lambda s: select(s.math("sqrt").compare("olt", limit), s.of(1.0), limit / s.math("sqrt")),
    }[way], size, extents=())
    net.output("gradient_norm", net.plain(lambda s: s.math("sqrt"), size, extents=()))
    return [(w, net.plain(lambda a, f: a * f.cast(a.kind), g, factor)) for w, g in pairs]


def clip_each(net, pairs):
    """Each gradient by its norm, by the norms of its rows, or its entries."""
    net.count("clip.each")
    way, clipped = int(net.random.integers(3)), []
    for w, g in pairs:
        if way == 0:
            factor = net.plain(lambda s: (1.0 / (s.math("sqrt") + 1e-6)).min(1.0), norm_of(net, [g]), extents=())
            clipped.append((w, net.plain(lambda a, f: a * f.cast(a.kind), g, factor)))
        elif way == 1 and len(g.shape) == 2:
            size = net.reduce(g, [1], square=True) if net.chance(0.5) else net.reduce(net.plain(square, g), [1])
            a, s = net.read(g, (0, 1)), net.read(size, (0,))
            clipped.append((w, net.emit(g.shape, a * (s + 1.0).math("rsqrt"))))
        else:
            clipped.append((w, net.plain(lambda a: a.max(-0.05).min(0.05), g)))
    return clipped


def centralize(net, pairs):
    """Gradients without the mean of their columns."""
    net.count("gradient.centralized")
    result = []
    for w, g in pairs:
        if len(g.shape) == 2 and g.shape[0] > 1:
            count = float(g.shape[0])
            total = net.reduce(g, [0])
            g = net.emit(g.shape, net.read(g, (0, 1)) - net.read(total, (1,)) / count)
        result.append((w, g))
    return result


def accumulate(net, pairs):
    """Gradients summed over steps."""
    net.count("gradient.accumulated")
    return [(w, moment(net, w, "sum_of_gradients", lambda s, a: s * 0.5 + a, g)) for w, g in pairs]


def update(net, pairs):
    """Next values of weights, by a random optimizer or two groups of them."""
    if not pairs:
        return  # all are frozen
    for change, probability in ((accumulate, 0.1), (clip_by_norm, 0.35), (clip_each, 0.15), (centralize, 0.08)):
        if net.chance(probability):
            pairs = change(net, pairs)
    groups = [pairs]
    if len(pairs) > 1 and net.chance(0.25):
        at = int(net.random.integers(1, len(pairs)))
        groups = [pairs[:at], pairs[at:]]
        net.count("optimizer.groups")
    nexts = []
    for group in groups:
        rule = net.choose(list(RULES))
        net.count("optimizer." + rule)
        changes = RULES[rule](net, group)
        decay = net.choose([0.0, 0.0, 0.1])
        rate = net.rate()
        for (w, _), u in zip(group, changes):
            if decay and net.chance(0.7):
                net.count("optimizer.decay")
                function = lambda p, c, r: p - r.cast(p.kind) * (c + p * decay)
            else:
                function = lambda p, c, r: p - r.cast(p.kind) * c
            nexts.append((w, net.plain(function, w, u, rate)))
    nexts = finish(net, pairs, nexts)
    for w, new in nexts:
        net.carry(w, new)
        if net.chance(0.1):
            net.count("optimizer.average")
            old = net.state(f"{net.name_of(w)}.average", w.shape, w.kind, follows=w)
            net.carry(old, net.plain(lambda a, b: a * 0.9 + b * 0.1, old, new))


def finish(net, pairs, nexts):
    """Takes updates only where a number allows it."""
    if not net.chance(0.12) or not net.allowed("unmasked"):
        return nexts
    way = net.choose(["if", "select"])
    net.count("update." + way)
    number = net.batch(np.array(float(net.chance(0.6))), "f32")
    if way == "if":
        scalar = net.line(f"tensor.extract {number.name}[] : {number.type}")
        zero = net.scalar(0.5, "f32")
        taken = net.line(f"arith.cmpf ogt, {scalar}, {zero} : f32")
        return [(w, net.op(f"scf.if {taken} -> (TYPE) {{\n    scf.yield {new.name} : {new.type}\n  }} else {{\n"
                           f"    scf.yield {w.name} : {w.type}\n  }}", new.shape, new.kind)) for w, new in nexts]
    return [(w, net.plain(lambda n, p, s: select(s.compare("ogt", 0.5), n, p), new, w, number)) for w, new in nexts]
