# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes operations of a step as MLIR text, in the ways in which front ends write them.

Element-wise operations are expressions (Expr) over the loops of a space. An expression
becomes one linalg.generic or several: the style of a program says how likely.
"""

import math
from dataclasses import dataclass

from fuzz.rounding import is_float


class Value:
    """A tensor that the step computes."""

    def __init__(self, name, shape, kind):
        self.name, self.shape, self.kind = name, tuple(shape), kind

    @property
    def type(self):
        return f"tensor<{''.join(f'{extent}x' for extent in self.shape)}{self.kind}>"


class Expr:
    """A scalar function of the elements of tensors. `saved` is the tensor that holds it, if one does."""

    def __init__(self, op, args, kind, data=None):
        self.op, self.args, self.kind, self.data, self.saved = op, args, kind, data, None

    def of(self, other):
        return other if isinstance(other, Expr) else Expr("constant", [], self.kind, float(other))

    def binary(self, op, other, swap=False):
        other = self.of(other)
        assert self.kind == other.kind, (op, self.kind, other.kind)
        return Expr(op, [other, self] if swap else [self, other], self.kind)

    __add__ = lambda a, b: a.binary("arith.addf", b)
    __radd__ = lambda a, b: a.binary("arith.addf", b, True)
    __sub__ = lambda a, b: a.binary("arith.subf", b)
    __rsub__ = lambda a, b: a.binary("arith.subf", b, True)
    __mul__ = lambda a, b: a.binary("arith.mulf", b)
    __rmul__ = lambda a, b: a.binary("arith.mulf", b, True)
    __truediv__ = lambda a, b: a.binary("arith.divf", b)
    __rtruediv__ = lambda a, b: a.binary("arith.divf", b, True)
    __neg__ = lambda a: Expr("arith.negf", [a], a.kind)

    def max(self, other):
        return self.binary("arith.maximumf", other)

    def min(self, other):
        return self.binary("arith.minimumf", other)

    def math(self, name):
        return Expr("math." + name, [self], self.kind)

    def compare(self, predicate, other):
        other = self.of(other)
        return Expr("arith.cmpf", [self, other], "i1", predicate)

    def cast(self, kind):
        if kind == self.kind:
            return self
        wide = ["bf16", "f16", "f32", "f64"]
        name = "arith.extf" if wide.index(kind) > wide.index(self.kind) else "arith.truncf"
        return Expr(name, [self], kind)


CASTS = {"arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.extsi", "arith.extui",
         "arith.trunci"}


def select(condition, a, b):
    a, b = (a, a.of(b)) if isinstance(a, Expr) else (b.of(a), b)
    return Expr("arith.select", [condition, a, b], a.kind)


def leaves(root):
    """The expressions that `root` is made of, operands first; what is saved is a leaf."""
    order, seen = [], set()

    def visit(node):
        if id(node) in seen:
            return
        seen.add(id(node))
        if not node.saved:
            for arg in node.args:
                visit(arg)
        order.append(node)
    visit(root)
    return order


def nodes_of(root):
    """All expressions that `root` is made of, operands first."""
    order, seen = [], set()

    def visit(node):
        if id(node) not in seen:
            seen.add(id(node))
            for arg in node.args:
                visit(arg)
            order.append(node)
    visit(root)
    return order


def sources(root):
    """The tensors that `root` reads, with the loops that their dimensions are."""
    return [node.data for node in nodes_of(root) if node.op == "leaf"]


def derivatives(root, seed):
    """The adjoint of each leaf of `root`, whose own adjoint is `seed`, by reverse mode."""
    adjoints, found = {id(root): seed}, []
    for node in reversed(nodes_of(root)):
        g = adjoints.get(id(node))
        if g is None:
            continue
        if node.op == "leaf":
            found.append((node, g))
            continue
        for arg, change in zip(node.args, rules(node, g)):
            if change is not None and arg.op != "constant":
                adjoints[id(arg)] = adjoints[id(arg)] + change if id(arg) in adjoints else change
    return found


def rules(y, g):
    """The adjoints of the arguments of `y`."""
    a, *rest = y.args
    b = rest[0] if rest else None
    op = y.op.split(".")[-1]
    if op == "addf":
        return g, g
    if op == "subf":
        return g, -g
    if op == "mulf":
        return g * b, g * a
    if op == "divf":
        return g / b, -(g * y / b)
    if op == "negf":
        return (-g,)
    if op == "maximumf":
        return select(a.compare("ogt", b), g, 0.0), select(a.compare("ogt", b), 0.0, g)
    if op == "minimumf":
        return select(a.compare("olt", b), g, 0.0), select(a.compare("olt", b), 0.0, g)
    if op in ("sitofp", "uitofp", "cmpf", "fptosi", "andi", "ori"):
        return [None] * len(y.args)
    if op == "select":
        return None, select(a, g, 0.0), select(a, 0.0, g)
    if op in ("extf", "truncf"):
        return (g.cast(a.kind),)
    return ({
        "exp": lambda: g * y, "log": lambda: g / a, "tanh": lambda: g * (1.0 - y * y),
        "sqrt": lambda: g * 0.5 / y, "rsqrt": lambda: g * -0.5 * (y / a), "sin": lambda: g * a.math("cos"),
        "cos": lambda: -(g * a.math("sin")), "absf": lambda: select(a.compare("ogt", 0.0), g, -g),
        "log1p": lambda: g / (a + 1.0), "expm1": lambda: g * (y + 1.0),
        "erf": lambda: g * (-(a * a)).math("exp") * (2 / math.sqrt(math.pi)),
    }[op](),)


@dataclass
class Style:
    """How a program is written."""

    split: float = 0.5  # how likely an operation of an expression is a linalg operation of its own
    named: float = 0.3  # ... a product is a named operation
    transpose: float = 0.3  # ... an operand of a product is transposed before
    full: float = 0.3  # ... a part of an expression is broadcast to all loops
    constants: str = "body"  # where constants are: in the body, outside of it, a tensor
    dense: float = 0.3  # ... a start is a constant instead of filled
    flip: float = 0.3  # ... operands are swapped


class Builder:
    """The operations of a step, and the values that they make."""

    def __init__(self, random, style):
        self.random, self.style = random, style
        self.lines, self.number, self.features = [], 0, {}
        self.indent = ""

    def count(self, feature):
        self.features[feature] = self.features.get(feature, 0) + 1

    def chance(self, probability):
        return self.random.random() < probability

    def choose(self, items):
        return items[int(self.random.integers(len(items)))]

    def name(self):
        self.number += 1
        return f"%v{self.number}"

    def op(self, text, shape, kind):
        """The result of the operation `text`, in which TYPE is its type."""
        value = Value(self.name(), shape, kind)
        self.lines.append(f"{self.indent}{value.name} = {text.replace('TYPE', value.type)}")
        return value

    # Starts.

    def literal(self, number, kind):
        if kind == "i1":
            return "true" if number else "false"
        if not is_float(kind):
            return str(int(number))
        if math.isnan(number):
            return {"f32": "0x7FC00000", "f16": "0x7E00", "bf16": "0x7FC0", "f64": "0x7FF8000000000000"}[kind]
        if math.isinf(number):
            bits = {"f32": "F800000", "f16": "C00", "bf16": "F80", "f64": "FF0000000000000"}[kind]
            return f"0x{'F' if number < 0 else '7'}{bits}"
        return f"{number:.9e}" if kind != "f64" else f"{number:.17e}"

    def scalar(self, number, kind):
        name = self.name()
        suffix = "" if kind == "i1" else f" : {kind}"
        self.lines.append(f"{self.indent}{name} = arith.constant {self.literal(number, kind)}{suffix}")
        return name

    def empty(self, shape, kind):
        return self.op("tensor.empty() : TYPE", shape, kind)

    def fill(self, shape, number=0.0, kind="f32"):
        if self.chance(self.style.dense):
            return self.op(f"arith.constant dense<{self.literal(number, kind)}> : TYPE", shape, kind)
        scalar, empty = self.scalar(number, kind), self.empty(shape, kind)
        return self.op(f"linalg.fill ins({scalar} : {kind}) outs({empty.name} : {empty.type}) -> TYPE", shape, kind)

    # Generic operations.

    def generic(self, extents, inputs, results, reduced, body, inits=None, order=None):
        """A linalg.generic over loops of `extents`. `inputs` are (value, dims), `results` are (kind, dims);
        `body(names of inputs, names of inits)` writes lines and returns what is yielded."""
        rank = len(extents)
        order = list(range(rank)) if order is None else order
        position = {loop: i for i, loop in enumerate(order)}
        loops = ", ".join(f"d{i}" for i in range(rank))

        def to_map(dims):
            return f"affine_map<({loops}) -> ({', '.join('0' if d is None else f'd{position[d]}' for d in dims)})>"
        shapes = [tuple(1 if d is None else extents[d] for d in dims) for _, dims in results]
        if inits is None:
            inits = [self.empty(shape, kind) for shape, (kind, _) in zip(shapes, results)]
        kinds = ", ".join('"reduction"' if loop in reduced else '"parallel"' for loop in order)
        maps = ", ".join(to_map(dims) for _, dims in [*inputs, *results])
        names = [self.name() for _ in [*inputs, *results]]
        types = [v.kind for v, _ in inputs] + [kind for kind, _ in results]
        list_of = lambda values: f"{', '.join(v.name for v in values)} : {', '.join(v.type for v in values)}"
        ins = f"ins({list_of([v for v, _ in inputs])}) " if inputs else ""
        outer, self.lines = self.lines, []
        indent, self.indent = self.indent, self.indent + "  "
        yielded = body(names[:len(inputs)], names[len(inputs):])
        inner, self.lines, self.indent = self.lines, outer, indent
        made = [Value(self.name(), shape, kind) for shape, (kind, _) in zip(shapes, results)]
        label = made[0].name
        if len(made) > 1:
            for i, value in enumerate(made):
                value.name = f"{label}#{i}"
        result_types = ", ".join(v.type for v in made)
        arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types))
        self.lines.append("\n".join([
            f"{indent}{label}{f':{len(made)}' if len(made) > 1 else ''} = linalg.generic {{indexing_maps = [{maps}], "
            f"iterator_types = [{kinds}]}} {ins}outs({list_of(inits)}) {{", f"{indent}^bb0({arguments}):", *inner,
            f"{indent}  linalg.yield {', '.join(yielded)} : {', '.join(kind for kind, _ in results)}",
            f"{indent}}} -> {result_types if len(made) == 1 else f'({result_types})'}"]))
        return made[0] if len(made) == 1 else made

    def line(self, text):
        """An operation of a body; returns the name of its result."""
        name = self.name()
        self.lines.append(f"{self.indent}{name} = {text}")
        return name

    # Expressions.

    def read(self, value, dims):
        """The elements of `value`, whose dimensions are the loops `dims` of a space."""
        return Expr("leaf", [], value.kind, (value, tuple(dims)))

    def loops_of(self, node):
        if node.saved or node.op == "leaf":
            return {d for d in (node.saved or node.data)[1] if d is not None}
        if node.op == "index":
            return {node.data}
        return set().union(*[self.loops_of(arg) for arg in node.args]) if node.args else set()

    def emit(self, extents, root, dims=None):
        """The tensor of an expression: its dimensions are the loops `dims`, all by default."""
        everything = tuple(range(len(extents)))
        for node in leaves(root):
            if node is not root and not node.saved and node.op not in ("leaf", "constant", "index") \
                    and self.chance(self.style.split):
                loops = everything if self.chance(self.style.full) else tuple(sorted(self.loops_of(node)))
                node.saved = (self.emit_one(extents, node, loops), loops)
        dims = everything if dims is None else tuple(dims)
        if root.saved and root.saved[1] == dims:
            return root.saved[0]
        value = self.emit_one(extents, root, dims)
        root.saved = (value, dims)
        return value

    def emit_one(self, extents, root, dims):
        if root.op == "leaf" and root.data[1] == dims and \
                all(root.data[0].shape[i] == extents[d] for i, d in enumerate(dims)) and self.chance(0.5):
            return root.data[0]
        inputs, places = [], {}
        nodes = leaves(root)
        for node in nodes:
            source = node.saved if node.saved and node is not root else node.data if node.op == "leaf" else None
            if source:
                key = (source[0].name, source[1])
                if key not in [(v.name, d) for v, d in inputs]:
                    inputs.append(source)
                places[id(node)] = [(v.name, d) for v, d in inputs].index(key)
        constants = {}
        for node in nodes:
            if node.op == "constant" and self.style.constants != "body" and (node.data, node.kind) not in constants:
                if self.style.constants == "tensor":
                    value = self.op(f"arith.constant dense<{self.literal(node.data, node.kind)}> : TYPE", (), node.kind)
                    inputs.append((value, ()))
                    constants[node.data, node.kind] = len(inputs) - 1
                else:
                    constants[node.data, node.kind] = self.scalar(node.data, node.kind)
        # Loops in an order of their own.
        loops = sorted({*dims, *[d for _, ds in inputs for d in ds if d is not None]})
        assert set(loops) == set(dims), (loops, dims)
        renumber = {loop: i for i, loop in enumerate(loops)}
        inner = [(v, tuple(None if d is None or v.shape[i] != extents[d] else renumber[d] for i, d in enumerate(ds)))
                 for v, ds in inputs]

        def body(names, _):
            made = {}
            for node in nodes:
                if id(node) in places:
                    made[id(node)] = names[places[id(node)]]
                elif node.op == "constant":
                    known = constants.get((node.data, node.kind))
                    made[id(node)] = names[known] if isinstance(known, int) else known or \
                        self.line(f"arith.constant {self.literal(node.data, node.kind)} : {node.kind}")
                else:
                    made[id(node)] = self.line(self.spell(node, [made[id(a)] for a in node.args], renumber))
            return [made[id(root)]]
        return self.generic([extents[d] for d in loops], inner, [(root.kind, tuple(renumber[d] for d in dims))], [], body)

    def spell(self, node, names, renumber):
        """An operation of an expression."""
        if node.op == "index":
            index = self.line(f"linalg.index {renumber[node.data]} : index")
            return f"arith.index_cast {index} : index to {node.kind}"
        if node.op in ("arith.cmpf", "arith.cmpi"):
            return f"{node.op} {node.data}, {', '.join(names)} : {node.args[0].kind}"
        if node.op == "arith.select":
            return f"arith.select {', '.join(names)} : {node.kind}"
        if node.op in CASTS:
            return f"{node.op} {names[0]} : {node.args[0].kind} to {node.kind}"
        if node.op in ("arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf") and self.chance(self.style.flip):
            names = names[::-1]
        return f"{node.op} {', '.join(names)} : {node.kind}"

    # Sums.

    def reduce(self, value, axes, op="add", square=False, keep=False, init=None):
        """The sum or the maximum over `axes`."""
        kind, rank = value.kind, len(value.shape)
        dims = tuple((None if d in axes else d) for d in range(rank)) if keep else \
            tuple(d for d in range(rank) if d not in axes)
        shape = tuple(1 if d is None else value.shape[d] for d in dims)
        if init is None:
            init = self.fill(shape, 0.0 if op == "add" else -math.inf, kind)
        name = {"add": "arith.addf", "max": "arith.maximumf"}[op]

        def body(names, inits):
            term = self.line(f"arith.mulf {names[0]}, {names[0]} : {kind}") if square else names[0]
            pair = [inits[0], term] if self.chance(0.5) else [term, inits[0]]
            return [self.line(f"{name} {', '.join(pair)} : {kind}")]
        self.count("reduce." + op)
        return self.generic(value.shape, [(value, tuple(range(rank)))], [(kind, dims)], axes, body, [init])

    # Products.

    def product(self, maps, a, b, kind=None, init=None):
        """An einsum "ij,jk->ik"; `kind` is that of the sums."""
        left, out = maps.split("->")
        of_a, of_b = left.split(",")
        kind = kind or a.kind
        extent = dict(zip(of_a, a.shape)) | dict(zip(of_b, b.shape))
        shape = [extent[l] for l in out]
        init = init or self.fill(shape, 0.0, kind)
        shared = [l for l in of_a if l in of_b and l in out]
        if a.kind == kind and len(of_a) == len(of_b) == len(out) and len(shared) in (0, 1) \
                and len(set(of_a + of_b)) == len(out) + 1 and self.chance(self.style.named):
            named = self.named_product(of_a, of_b, out, a, b, init)
            if named:
                return named
        if self.chance(self.style.transpose) and len(of_a) > 1:
            order = [int(i) for i in self.random.permutation(len(of_a))]
            a, of_a = self.transpose(a, order), "".join(of_a[i] for i in order)
        if self.chance(self.style.flip):
            a, b, of_a, of_b = b, a, of_b, of_a
        letters = sorted(set(of_a + of_b))
        summed = [i for i, l in enumerate(letters) if l not in out]
        order = [int(i) for i in self.random.permutation(len(letters))]
        if self.chance(0.6):
            order = [letters.index(l) for l in out] + summed
        dims = lambda part: tuple(letters.index(l) for l in part)

        def body(names, inits):
            pair = [n if v.kind == kind else self.line(f"arith.extf {n} : {v.kind} to {kind}")
                    for n, v in zip(names, (a, b))]
            term = self.line(f"arith.mulf {', '.join(pair)} : {kind}")
            pair = [inits[0], term] if self.chance(0.7) else [term, inits[0]]
            return [self.line(f"arith.addf {', '.join(pair)} : {kind}")]
        self.count("product.generic")
        return self.generic([extent[l] for l in letters], [(a, dims(of_a)), (b, dims(of_b))], [(kind, dims(out))],
                            summed, body, [init], order)

    def named_product(self, of_a, of_b, out, a, b, init):
        """linalg.matmul or linalg.batch_matmul, with transposed maps or operands; None if it is neither."""
        batch = [l for l in out if l in of_a and l in of_b]
        rows = [l for l in of_a if l in out and l not in batch]
        columns = [l for l in of_b if l in out and l not in batch]
        inner = [l for l in of_a if l not in out]
        if len(rows) != 1 or len(columns) != 1 or len(inner) != 1:
            return None
        if out != "".join(batch + rows + columns):
            if out != "".join(batch + columns + rows):
                return None
            a, b, of_a, of_b, rows, columns = b, a, of_b, of_a, columns, rows
        want_a, want_b = "".join(batch + rows + inner), "".join(batch + inner + columns)
        name = "linalg.batch_matmul" if batch else "linalg.matmul"
        maps = ""
        if not batch and self.chance(0.5):
            if (of_a, of_b) != (want_a, want_b):
                loops = rows + columns + inner
                to_map = lambda part: f"affine_map<(d0, d1, d2) -> ({', '.join(f'd{loops.index(l)}' for l in part)})>"
                maps = f"indexing_maps = [{', '.join(map(to_map, (of_a, of_b, out)))}] "
        else:
            if of_a != want_a:
                a = self.transpose(a, [of_a.index(l) for l in want_a])
            if of_b != want_b:
                b = self.transpose(b, [of_b.index(l) for l in want_b])
        self.count("product.named")
        return self.op(f"{name} {maps}ins({a.name}, {b.name} : {a.type}, {b.type}) outs({init.name} : {init.type}) "
                       "-> TYPE", init.shape, init.kind)

    # Shapes.

    def transpose(self, value, order):
        shape = [value.shape[i] for i in order]
        if self.chance(0.5):
            init = self.empty(shape, value.kind)
            result = Value(self.name(), shape, value.kind)
            self.lines.append(f"{self.indent}{result.name} = linalg.transpose ins({value.name} : {value.type}) "
                              f"outs({init.name} : {init.type}) permutation = [{', '.join(map(str, order))}]")
            return result
        place = [order.index(d) for d in range(len(order))]
        self.count("transpose")
        return self.generic(shape, [(value, tuple(place))], [(value.kind, tuple(range(len(shape))))], [],
                            lambda names, _: names)

    def reshape(self, value, groups, shape):
        """Collapses or expands; `groups` are dimensions of the larger shape."""
        text = ", ".join(f"[{', '.join(map(str, g))}]" for g in groups)
        if len(shape) < len(value.shape):
            return self.op(f"tensor.collapse_shape {value.name} [{text}] : {value.type} into TYPE", shape, value.kind)
        return self.op(f"tensor.expand_shape {value.name} [{text}] output_shape [{', '.join(map(str, shape))}] : "
                       f"{value.type} into TYPE", shape, value.kind)

    @staticmethod
    def place(offsets, sizes, strides=None):
        return " ".join(f"[{', '.join(map(str, entries))}]" for entries in (offsets, sizes, strides or [1] * len(sizes)))

    def slice(self, value, offsets, sizes, shape=None, strides=None):
        self.count("slice")
        return self.op(f"tensor.extract_slice {value.name}{self.place(offsets, sizes, strides)} : {value.type} to TYPE",
                       sizes if shape is None else shape, value.kind)

    def insert(self, part, whole, offsets, sizes, strides=None):
        return self.op(f"tensor.insert_slice {part.name} into {whole.name}{self.place(offsets, sizes, strides)} : "
                       f"{part.type} into TYPE", whole.shape, whole.kind)

    def pad(self, value, low, high, number=0.0):
        """`value` with `low` and `high` entries before and behind each dimension; fewer than 0 cut it."""
        shape = [extent + l + h for extent, l, h in zip(value.shape, low, high)]
        places = ", ".join(f"{self.name()}: index" for _ in shape)
        scalar = self.scalar(number, value.kind)
        return self.op(f"tensor.pad {value.name} low{list(low)} high{list(high)} {{\n  ^bb0({places}):\n"
                       f"    tensor.yield {scalar} : {value.kind}\n  }} : {value.type} to TYPE", shape, value.kind)

    def concatenate(self, parts, axis):
        self.count("concatenate")
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        whole, at = self.empty(shape, parts[0].kind), 0
        for part in parts:
            offsets = [0] * len(shape)
            offsets[axis] = at
            whole = self.insert(part, whole, offsets, part.shape)
            at += part.shape[axis]
        return whole
