# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step returns beside its weights: activations, numbers of them, matrices that compare them."""

from fuzz.builder import Expr, select


def as_is(net, x):
    return x


def norm(net, x):
    total = net.reduce(net.plain(lambda a: a * a, x), list(range(len(x.shape))))
    return net.plain(lambda a: a.math("sqrt"), total, extents=())


def of_rows(net, x):
    """Sums, means or largest entries along one dimension."""
    axis = int(net.random.integers(len(x.shape)))
    if net.chance(0.4):
        return net.reduce(x, [axis], "max")
    count = float(x.shape[axis])
    total = net.reduce(x, [axis])
    return net.plain(lambda a: a / count, total, extents=total.shape)


def transposed(net, x):
    return net.transpose(x, [int(i) for i in net.random.permutation(len(x.shape))])


def element_wise(net, x):
    """A chain, of which parts are returned, too."""
    largest = net.reduce(net.plain(lambda a: a.math("absf"), x), [len(x.shape) - 1], "max")
    dims = tuple(range(len(x.shape)))
    scaled = net.emit(x.shape, net.read(x, dims) / (net.read(largest, dims[:-1]) + 1e-3))
    clipped = net.plain(lambda a: a.max(-0.5).min(0.5), scaled)
    if net.chance(0.5):
        net.output(f"metric{len(net.outputs)}", clipped)
    return net.plain(lambda a, b: (a * b).math("sin") + b, clipped, x)


def triangle(net, x):
    """What lies above or below a diagonal of rows and columns."""
    if len(x.shape) < 2:
        return x
    rank = len(x.shape)
    row, column = (Expr("index", [], "i32", d) for d in (rank - 2, rank - 1))
    by = Expr("constant", [], "i32", int(net.random.integers(-2, 3)))
    seen = Expr("arith.cmpi", [Expr("arith.addi", [column, by], "i32"), row], "i1", net.choose(["sle", "sge"]))
    return net.emit_one(x.shape, select(seen, net.read(x, tuple(range(rank))), 0.0), tuple(range(rank)))


def correlation(net, x):
    """Products of all features with all, by their norms, between -1 and 1."""
    if len(x.shape) != 2 or net.compute not in ("f32", "f64"):
        return x
    whole = (0, 1)
    total = net.reduce(x, [0])
    count = float(x.shape[0])
    centred = net.emit(x.shape, net.read(x, whole) - net.read(total, (1,)) / count)
    gram = net.product("td,te->de", centred, centred)
    sizes = net.plain(lambda a: (a + 0.1).math("sqrt"), net.reduce(net.plain(lambda a: a * a, centred), [0]))
    divided = net.emit(gram.shape, net.read(gram, whole) / net.read(sizes, (0,)) / net.read(sizes, (1,)))
    if net.chance(0.5):
        return net.plain(lambda a: a.max(-1.0).min(1.0), divided)
    # With what autodiff makes of the bounds.
    net.output(f"metric{len(net.outputs)}", net.plain(lambda a: a.max(-0.4).min(0.4), divided))
    return net.emit(gram.shape, select(net.read(divided, whole).max(-0.4).compare("oeq", -0.4),
                                       net.read(divided, whole) * 0.5, net.read(gram, whole) / net.read(sizes, (1,))))


WAYS = [as_is, as_is, norm, of_rows, transposed, element_wise, triangle, correlation]


def add(net, values):
    """Returns some of `values`, and what is computed of them."""
    for _ in range(int(net.random.integers(0, 4))):
        way, x = net.choose(WAYS), net.choose(values)
        net.count("metric." + way.__name__)
        value = way(net, x)  # which may return parts of it, too
        net.output(f"metric{len(net.outputs)}", value)
