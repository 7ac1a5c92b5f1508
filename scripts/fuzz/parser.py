# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads steps: the part of MLIR's text that training steps are written in.

It knows one function of linalg, tensor, arith, math and scf operations on static
tensors, and shares nothing with the compiler. What it does not know is an error.
"""

import math
import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<string>"[^"]*")
  | (?P<map>affine_map<\([^)]*\)\s*->\s*\([^)]*\)>)
  | (?P<tensor>tensor<[^<>]*>)
  | (?P<dense>dense<[^<>]*>)
  | (?P<arrow>->)
  | (?P<name>[%#!@^][\w$.-]*(?:\#\d+)?)
  | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))
  | (?P<word>[A-Za-z_][\w.$]*)
  | (?P<mark>[(){}\[\]<>=,:])
""", re.VERBOSE)

NAMED_CONTRACTIONS = {
    "linalg.matmul": ("mk", "kn", "mn"),
    "linalg.batch_matmul": ("bmk", "bkn", "bmn"),
    "linalg.matvec": ("mk", "k", "m"),
    "linalg.vecmat": ("k", "kn", "n"),
    "linalg.dot": ("k", "k", ""),
}
NAMED_ELEMENT_WISE = {
    "linalg.add": "arith.addf", "linalg.sub": "arith.subf", "linalg.mul": "arith.mulf",
    "linalg.div": "arith.divf", "linalg.max": "arith.maximumf", "linalg.min": "arith.minimumf",
    "linalg.exp": "math.exp", "linalg.log": "math.log", "linalg.tanh": "math.tanh",
    "linalg.sqrt": "math.sqrt", "linalg.rsqrt": "math.rsqrt", "linalg.square": "square",
    "linalg.negf": "arith.negf", "linalg.abs": "math.absf", "linalg.erf": "math.erf",
}


class ParseError(Exception):
    """Text that is no step, or that this reader does not know."""


@dataclass(frozen=True)
class Type:
    """A scalar (`shape` is None) or a tensor."""

    shape: tuple | None
    kind: str


@dataclass
class Op:
    name: str
    results: list
    operands: list = field(default_factory=list)
    attributes: dict = field(default_factory=dict)
    blocks: list = field(default_factory=list)
    types: list = field(default_factory=list)  # of the results, where they matter


@dataclass
class Block:
    arguments: list  # (name, Type)
    ops: list


@dataclass
class Function:
    arguments: list  # (name, Type, attributes)
    results: list  # (Type, attributes)
    ops: list


def parse_type(text):
    if not text.startswith("tensor<"):
        return Type(None, text)
    *extents, kind = text[7:-1].replace(" ", "").split("x")
    return Type(tuple(map(int, extents)), kind)


def parse_map(text):
    """The results of a map: an index of a loop, or ("constant", c)."""
    loops, results = re.fullmatch(r"affine_map<\(([^)]*)\)\s*->\s*\(([^)]*)\)>", text).groups()
    split = lambda part: [name.strip() for name in part.split(",") if name.strip()]
    names = split(loops)
    return len(names), [names.index(r) if r in names else ("constant", int(r)) for r in split(results)]


def decode_float(text, kind):
    """A float literal; hexadecimal ones are bits."""
    if not text.lower().startswith("0x"):
        return float(text)
    bits = int(text, 16)
    exponent, mantissa = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}[kind]
    sign = -1.0 if bits >> (exponent + mantissa) else 1.0
    power, fraction = (bits >> mantissa) & ((1 << exponent) - 1), bits & ((1 << mantissa) - 1)
    bias = (1 << (exponent - 1)) - 1
    if power == (1 << exponent) - 1:
        return sign * (math.nan if fraction else math.inf)
    if power == 0:
        return sign * math.ldexp(fraction, 1 - bias - mantissa)
    return sign * math.ldexp(fraction + (1 << mantissa), power - bias - mantissa)


def decode_dense(text, kind):
    """The entries of `dense<...>`: a number, or nested lists of numbers."""
    def number(item):
        if item in ("true", "false"):
            return item == "true"
        return decode_float(item, kind) if "f" in kind else int(item, 0)

    inner = text[6:-1].strip()
    if not inner.startswith("["):
        return number(inner) if inner else []
    return eval(re.sub(r"[^\[\],\s]+", lambda m: f"number({m[0]!r})", inner), {"number": number})


class Parser:
    def __init__(self, text):
        self.tokens, position = [], 0
        while position < len(text):
            match = TOKEN.match(text, position)
            if not match:
                raise ParseError(f"expected a token, but got {text[position:position + 40]!r}")
            if match.lastgroup != "space":
                self.tokens.append((match.lastgroup, match[0]))
            position = match.end()
        self.tokens.append(("end", ""))
        self.at, self.aliases = 0, {}

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead][1]

    def group(self, ahead=0):
        return self.tokens[self.at + ahead][0]

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1][1]

    def take(self, text):
        if self.peek() == text and self.group() != "string":
            self.at += 1
            return True
        return False

    def expect(self, text):
        if not self.take(text):
            around = " ".join(t for _, t in self.tokens[max(0, self.at - 8):self.at + 4])
            raise ParseError(f"expected {text!r}, but got {self.peek()!r} in: {around}")

    def list_of(self, item, close):
        """Items separated by commas up to `close`, which is taken."""
        items = []
        while not self.take(close):
            items.append(item())
            self.take(",")
        return items

    def type(self):
        text = self.next()
        return parse_type(self.aliases.get(text, text))

    def types(self):
        """One type, or several in brackets."""
        return self.list_of(self.type, ")") if self.take("(") else [self.type()]

    def integers(self):
        self.expect("[")
        return self.list_of(lambda: int(self.next()), "]")

    def groups(self):
        self.expect("[")
        return self.list_of(self.integers, "]")

    def attribute(self):
        if self.take("["):
            return self.list_of(self.attribute, "]")
        group, text = self.group(), self.next()
        text = self.aliases.get(text, text)
        if text.startswith("affine_map"):
            return parse_map(text)
        if group == "number":
            value = int(text, 0) if re.fullmatch(r"-?\d+", text) else float(text)
            if self.take(":"):
                self.next()
            return value
        return text.strip('"')

    def attributes(self):
        """A dictionary, its brace taken before."""
        found = {}
        while not self.take("}"):
            key = self.next()
            found[key] = self.attribute() if self.take("=") else True
            self.take(",")
        return found

    # Functions and blocks.

    def module(self):
        while self.group() != "end":
            if self.group() == "name" and self.peek(1) == "=":
                name = self.next()
                self.next()
                self.aliases[name] = self.next()
            elif self.peek() == "module":
                while not self.take("{"):
                    self.next()
            elif self.take("func.func"):
                return self.function()
            else:
                raise ParseError(f"expected a function, but got {self.peek()!r}")
        raise ParseError("expected a function, but got none")

    def function(self):
        while not self.take("("):
            self.next()

        def argument():
            name = self.next()
            self.expect(":")
            type = self.type()
            return name, type, self.attributes() if self.take("{") else {}

        def result():
            type = self.type()
            return type, self.attributes() if self.take("{") else {}

        arguments = self.list_of(argument, ")")
        results = []
        if self.take("->"):
            results = self.list_of(result, ")") if self.take("(") else [result()]
        if self.take("attributes"):
            self.expect("{")
            self.attributes()
        self.expect("{")
        return Function(arguments, results, self.ops())

    def block(self):
        arguments = []
        if self.group() == "name" and self.peek().startswith("^"):
            self.next()
            if self.take("("):
                arguments = self.typed_names(")")
            self.expect(":")
        return Block(arguments, self.ops())

    def typed_names(self, close):
        def item():
            name = self.next()
            self.expect(":")
            return name, self.type()
        return self.list_of(item, close)

    def ops(self):
        ops = []
        while not self.take("}"):
            ops.append(self.op())
        return ops

    def op(self):
        results = []
        while self.peek().startswith("%"):
            name = self.next()
            if self.take(":"):
                count = int(self.next())
                results += [f"{name}#{i}" for i in range(count)] if count > 1 else [name]
            else:
                results.append(name)
            self.take(",")
        if results:
            self.expect("=")
        op = Op(self.next(), results)
        prefix = op.name.partition(".")[0]
        method = getattr(self, "parse_" + op.name.replace(".", "_"), None) or getattr(self, "parse_any_" + prefix, None)
        if not method:
            raise ParseError(f"expected an operation of a step, but got {op.name}")
        method(op)
        return op

    def names(self, close=None):
        found = []
        while self.group() == "name" and self.peek().startswith("%"):
            found.append(self.next())
            if not self.take(","):
                break
        if close:
            self.expect(close)
        return found

    # Operations.

    def parse_return(self, op):
        op.operands = self.names()
        if op.operands:
            self.expect(":")
            while True:
                self.type()
                if not self.take(","):
                    break

    parse_func_return = parse_linalg_yield = parse_scf_yield = parse_tensor_yield = parse_return

    def operands_of(self, op):
        """`ins(... : ...) outs(... : ...)`, in this order."""
        op.attributes["ins"] = op.attributes["outs"] = 0
        for part in ("ins", "outs"):
            if self.take(part):
                self.expect("(")
                names = self.names(":")
                types = self.list_of(self.type, ")")
                op.operands += names
                op.attributes[part] = len(names)
                op.attributes[part + "_types"] = types

    def parse_any_linalg(self, op):
        if op.name == "linalg.index":
            op.attributes["dim"] = int(self.next())
            self.expect(":")
            self.type()
            return
        if op.name == "linalg.generic":
            self.expect("{")
            op.attributes |= self.attributes()
        elif self.take("indexing_maps"):
            self.expect("=")
            op.attributes["indexing_maps"] = self.attribute()
        elif self.take("{"):
            op.attributes |= self.attributes()
        self.operands_of(op)
        for key in ("permutation", "dimensions"):
            if self.take(key):
                self.expect("=")
                op.attributes[key] = self.integers()
        if op.name == "linalg.generic":
            self.expect("{")
            op.blocks = [self.block()]
        if self.take("->"):
            self.types()
        op.types = op.attributes.get("outs_types", [])

    def parse_tensor_empty(self, op):
        self.expect("(")
        self.expect(")")
        self.expect(":")
        op.types = [self.type()]

    def parse_reshape(self, op):
        op.operands = [self.next()]
        op.attributes["reassociation"] = self.groups()
        if self.take("output_shape"):
            self.integers()
        self.expect(":")
        self.type()
        self.expect("into")
        op.types = [self.type()]

    parse_tensor_collapse_shape = parse_tensor_expand_shape = parse_reshape

    def place(self, op):
        """`[offsets] [sizes] [strides]`; an offset may be a value."""
        def entry():
            return self.next() if self.group() == "name" else int(self.next())
        for key in ("offsets", "sizes", "strides"):
            self.expect("[")
            op.attributes[key] = self.list_of(entry, "]")

    def parse_tensor_extract_slice(self, op):
        op.operands = [self.next()]
        self.place(op)
        self.expect(":")
        self.type()
        self.expect("to")
        op.types = [self.type()]

    def parse_tensor_insert_slice(self, op):
        op.operands = [self.next()]
        self.expect("into")
        op.operands.append(self.next())
        self.place(op)
        self.expect(":")
        self.type()
        self.expect("into")
        op.types = [self.type()]

    def parse_tensor_pad(self, op):
        op.operands = [self.next()]
        self.take("nofold")
        for key in ("low", "high"):
            self.expect(key)
            op.attributes[key] = self.integers()
        self.expect("{")
        op.blocks = [self.block()]
        self.expect(":")
        self.type()
        self.expect("to")
        op.types = [self.type()]

    def parse_tensor_concat(self, op):
        self.expect("dim")
        self.expect("(")
        op.attributes["dim"] = int(self.next())
        self.expect(")")
        op.operands = self.names(":")
        self.types()
        self.expect("->")
        op.types = [self.type()]

    def parse_tensor_extract(self, op):
        op.operands = [self.next()]
        self.expect("[")
        op.operands += self.list_of(self.next, "]")
        self.expect(":")
        self.type()

    def parse_tensor_from_elements(self, op):
        op.operands = self.names(":")
        op.types = [self.type()]

    def parse_arith_constant(self, op):
        group, text = self.group(), self.next()
        if text in ("true", "false"):
            op.types, op.attributes["value"] = [Type(None, "i1")], text == "true"
            return
        self.expect(":")
        type = self.type()
        op.types = [type]
        if group == "dense":
            op.attributes["value"] = decode_dense(text, type.kind)
        else:
            op.attributes["value"] = decode_float(text, type.kind) if "f" in type.kind else int(text, 0)

    def parse_any_arith(self, op):
        if op.name in ("arith.cmpf", "arith.cmpi"):
            op.attributes["predicate"] = self.next()
            self.expect(",")
        op.operands = self.names()
        if self.take("fastmath"):
            while not self.take(">"):
                self.next()
        self.expect(":")
        types = [self.type()]
        while self.take(","):
            types.append(self.type())
        op.attributes["from"] = types[0]
        if self.take("to"):
            types = [self.type()]
        if op.name in ("arith.cmpf", "arith.cmpi"):
            types = [Type(types[0].shape, "i1")]
        op.types = [types[-1] if op.name == "arith.select" else types[0]]

    parse_any_math = parse_any_arith

    def parse_bsr_gradient(self, op):
        op.operands = [self.next()]
        self.expect("at")
        op.operands.append(self.next())
        self.expect(":")
        op.types = [self.type()]
        self.expect(",")
        self.type()

    def parse_scf_if(self, op):
        op.operands = [self.next()]
        if self.take("->"):
            op.types = self.types()
        self.expect("{")
        op.blocks = [self.block()]
        if self.take("else"):
            self.expect("{")
            op.blocks.append(self.block())

    def parse_scf_for(self, op):
        index = self.next()
        self.expect("=")
        bounds = [self.next()]
        self.expect("to")
        bounds.append(self.next())
        self.expect("step")
        bounds.append(self.next())
        carried = []
        if self.take("iter_args"):
            carried = self.assignments()
        if self.take("->"):
            op.types = self.types()
        self.expect("{")
        body = self.block()
        op.operands = bounds + [value for _, value in carried]
        op.blocks = [Block([(index, None)] + [(name, None) for name, _ in carried], body.ops)]

    def assignments(self):
        self.expect("(")

        def item():
            name = self.next()
            self.expect("=")
            return name, self.next()
        return self.list_of(item, ")")

    def parse_scf_while(self, op):
        carried = self.assignments()
        self.expect(":")
        self.types()
        self.expect("->")
        op.types = self.types()
        op.operands = [value for _, value in carried]
        self.expect("{")
        before = Block([(name, None) for name, _ in carried], self.block().ops)
        self.expect("do")
        self.expect("{")
        op.blocks = [before, self.block()]

    def parse_scf_condition(self, op):
        self.expect("(")
        op.operands = [self.next()]
        self.expect(")")
        op.operands += self.names()
        if self.take(":"):
            while True:
                self.type()
                if not self.take(","):
                    break


def parse(text):
    """The function of a step."""
    text = re.sub(r"^#loc.*$", "", text, flags=re.MULTILINE)
    return Parser(re.sub(r"\bloc\([^()]*(?:\([^()]*\)[^()]*)*\)", "", text)).module()
