# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that a step uses for more than its update: penalties on their norms, losses weighted by them, those of
examples, steps in the step, numbers that are returned.

The gradient of `w * mask` is masked wherever it is, and so is that of a value with a weight's mask (`net.like`).
"""

import numpy as np

from fuzz import optimizers

SMOOTH = [lambda x: x.math("tanh"), lambda x: x.math("sin"), lambda x: x / ((-x).math("exp") + 1.0)]


def masked(net, gradient, weight):
    """A value of its own for the gradient of a weight, where it is masked."""
    own = net.own(gradient, weight)
    net.inner[own.name] = net.like[own.name] = net.name_of(weight)
    return own


def squares(net, gradients):
    """The sum of all squares, with a gradient."""
    total = None
    for g in gradients:
        part = net.sum(net.apply(lambda a: a * a, g), list(range(len(g.shape))))
        total = part if total is None else net.apply(lambda a, b: a + b, total, part, extents=())
    return total


def chosen(net):
    """One of the weights that are trained, or two."""
    weights = [w for w in net.weights if w.name in net.needed]
    count = min(len(weights), int(net.choose([1, 2])))
    return [weights[int(i)] for i in net.random.permutation(len(weights))[:count]]


def penalty(net, x, loss):
    """The loss and the norm of its gradient, or the square of it: gradients of second order."""
    found, weights = net.backward(loss), chosen(net)
    gradients = [masked(net, found[w.name], w) for w in weights if w.name in found]
    if not gradients:
        return loss
    net.count("inner.penalty")
    total = squares(net, gradients)
    if net.chance(0.5):
        total = net.apply(lambda a: (a + 1e-3).math("sqrt"), total)
    net.output("penalty", total)
    return net.apply(lambda a, b: a + b.cast(a.kind) * 0.1, loss, total, extents=())


def balanced(net, x, loss):
    """Two losses, each weighted by the norm of the gradient that the other has for a weight."""
    other = mean_square(net, net.apply(lambda a: a.math("sin") - 0.3, x))
    if other.kind != loss.kind:
        return loss
    weights, norms = chosen(net)[:1], []
    for part in (loss, other):
        found = net.backward(part)
        if not weights or weights[0].name not in found:
            return loss
        g = masked(net, found[weights[0].name], weights[0])
        norms.append(net.plain(lambda s: s.math("sqrt"), optimizers.norm_of(net, [g]), extents=()))
    net.count("inner.balanced")
    for i, norm in enumerate(norms):
        net.output(f"norm_of_loss{i}", norm)
    share = net.plain(lambda a, b: (a + 1e-3) / (a + b + 2e-3), *norms, extents=())
    return net.apply(lambda a, b, s: a * (1.0 - s.cast(a.kind)) + b * s.cast(a.kind), loss, other, share, extents=())


def mean_square(net, x):
    count = float(np.prod(x.shape))
    total = net.sum(net.apply(lambda a: a * a, x), list(range(len(x.shape))))
    return net.apply(lambda a: a / count, total, extents=())


def model(net, weights, x, function):
    """The error of a small network, with its products."""
    products = []
    for w in weights:
        products.append((x, net.einsum("td,de->te", x, w)))
        x = net.apply(function, products[-1][1])
    return x, products


def small(net):
    """Inputs, weights and an activation of a network of one or two layers."""
    tokens = int(net.choose([t for t in (1, 2, 3, 4, 6, 8, 12) if t <= net.limits["tokens"]]))
    widths = [int(net.choose([f for f in (1, 2, 4, 6, 8, 12, 16, 24, 32) if f <= net.limits["features"]]))
              for _ in range(int(net.choose([2, 3])))]
    x = net.batch(net.random.standard_normal((tokens, widths[0])), net.compute)
    return x, [net.weight(pair) for pair in zip(widths, widths[1:])], net.choose(SMOOTH)


def step_in_step(net):
    """The loss after a step on another loss (MAML): gradients of second order."""
    x, weights, function = small(net)
    net.count("inner.step")
    y, _ = model(net, weights, x, function)
    found = net.backward(mean_square(net, net.apply(lambda a: a - 0.5, y)))
    nexts = []
    for w in weights:
        if w.name not in found:
            nexts.append(w)
            continue
        g = masked(net, found[w.name], w)
        nexts.append(net.apply(lambda a, b: a - b * 0.5, w, g))
        net.like[nexts[-1].name] = net.name_of(w)
    other = net.batch(net.random.standard_normal(x.shape), net.compute)
    y, _ = model(net, nexts, other, function)
    return mean_square(net, net.apply(lambda a: a + 0.3, y)), y


def per_example(net):
    """Each example's gradients, clipped by their common norm (DP-SGD). Returns the loss, activations and gradients."""
    x, weights, function = small(net)
    net.count("inner.per_example")
    y, products = model(net, weights, x, function)
    terms = net.apply(lambda a: (a - 0.5) * (a - 0.5), y)
    loss = net.sum(terms, [0, 1])
    found, examples, sizes = net.backward(loss), [], None
    for w, (inputs, product) in zip(weights, products):
        if w.name not in found:
            continue
        cotangent = found[product.name]
        g = net.einsum("td,te->tde", inputs, cotangent) if net.chance(0.5) else \
            net.apply(lambda a, b: a * b, inputs, cotangent, dims=[(0, 1), (0, 2)],
                      extents=(*inputs.shape, cotangent.shape[1]))
        g = masked(net, g, w)
        examples.append((w, g))
        size = net.reduce(net.plain(lambda a: a * a, g), [1, 2])
        sizes = size if sizes is None else net.plain(lambda a, b: a + b, sizes, size)
    pairs = []
    if examples:
        norms = net.plain(lambda s: (s + 1e-6).math("sqrt"), sizes)
        net.output("norms", norms)
        factors = net.plain(lambda n: (0.5 / n).min(1.0), norms)
    for w, g in examples:
        if net.chance(0.5):
            pairs.append((w, net.product("t,tde->de", factors, g)))
        else:
            scaled = net.apply(lambda a, f: a * f, g, factors, dims=[(0, 1, 2), (0,)], extents=g.shape)
            pairs.append((w, net.reduce(scaled, [0])))
    return loss, y, pairs


def report(net, pairs):
    """Norms, means and parts of gradients that the step returns."""
    for i, (w, g) in enumerate(pairs):
        if not net.chance(0.4):
            continue
        net.count("inner.returned")
        way = net.choose(["norm", "sum", "rows", "largest"])
        axes = list(range(len(g.shape)))
        if way == "norm":
            value = net.plain(lambda s: s.math("sqrt"), optimizers.norm_of(net, [g]), extents=())
        elif way == "sum":
            value = net.reduce(net.plain(lambda a: a.math("absf"), g), axes)
        elif way == "rows" and len(axes) == 2:
            value = net.reduce(net.plain(lambda a: a * a, g), [int(net.random.integers(2))])
        else:
            value = net.reduce(net.plain(lambda a: a.math("absf"), g), axes, "max")
        net.output(f"gradient{i}", value)
