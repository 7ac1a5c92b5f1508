# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interpreter's table of arith and math, operation by operation, against Python's integers and NumPy.

Floats are doubles, whatever their type: results are within 4 units of float64 of what NumPy has, for all pairs
of special values. Integers are exact, and wrapped to their width. An operation that the table has and no case is an error.
"""

import itertools
import os
import re
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "test", folder) for folder in ("Tools", "Integration")]
from run import run, step, tensor_file  # noqa: E402
import math_functions as floats  # noqa: E402

WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def signed(x, width):
    """The integer of the lowest `width` bits of `x`, by its sign."""
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def natural(x, width):
    return x & ((1 << width) - 1)


def toward_zero(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def power(x, n):
    """Of integers; what is below 1 is 0, and a division by 0 is one of nothing."""
    return x**n if n >= 0 else {1: 1, -1: -1 if n % 2 else 1}.get(x, 0)


def by_zero(divide):
    """A division by 0 has no meaning: the interpreter says 0."""
    return lambda a, b, *rest: divide(a, b, *rest) if b else 0


# By operation: a function of integers with their signs, or of their bits, and the width.
SIGNED = {
    "arith.divsi": by_zero(lambda a, b, w: toward_zero(a, b)), "arith.floordivsi": by_zero(lambda a, b, w: a // b),
    "arith.ceildivsi": by_zero(lambda a, b, w: -(-a // b)), "arith.remsi": by_zero(lambda a, b, w: a - b * toward_zero(a, b)),
    "arith.maxsi": lambda a, b, w: max(a, b), "arith.minsi": lambda a, b, w: min(a, b),
}
UNSIGNED = {
    "arith.addi": lambda a, b, w: a + b, "arith.subi": lambda a, b, w: a - b, "arith.muli": lambda a, b, w: a * b,
    "arith.andi": lambda a, b, w: a & b, "arith.ori": lambda a, b, w: a | b, "arith.xori": lambda a, b, w: a ^ b,
    "arith.shli": lambda a, b, w: a << b if b < w else 0, "arith.shrui": lambda a, b, w: a >> b if b < w else 0,
    "arith.divui": by_zero(lambda a, b, w: a // b), "arith.ceildivui": by_zero(lambda a, b, w: -(-a // b)),
    "arith.remui": by_zero(lambda a, b, w: a % b), "arith.maxui": lambda a, b, w: max(a, b), "arith.minui": lambda a, b, w: min(a, b),
}
EXTENDED = {
    "arith.mulsi_extended": lambda a, b, w: signed(a, w) * signed(b, w), "arith.mului_extended": lambda a, b, w: natural(a, w) * natural(b, w),
}
ONE = {
    "math.absi": lambda a, w: abs(signed(a, w)), "math.ctlz": lambda a, w: w - natural(a, w).bit_length(),
    "math.cttz": lambda a, w: (natural(a, w) & -natural(a, w)).bit_length() - 1 if a else w,
    "math.ctpop": lambda a, w: bin(natural(a, w)).count("1"),
}
ORDERS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def compare(order, convert):
    return lambda a, b, w: eval(f"x {ORDERS[order]} y", {"x": convert(a, w), "y": convert(b, w)})


def integer_cases(type):
    """The body of each operation on `type`, of %a and %b; what it makes; the type of that."""
    width = WIDTHS[type]
    cases = {}
    for op, function in SIGNED.items():
        cases[op] = f"%r = {op} %a, %b : {type}", lambda a, b, f=function: f(signed(a, width), signed(b, width), width), type
    for op, function in UNSIGNED.items():
        cases[op] = f"%r = {op} %a, %b : {type}", lambda a, b, f=function: f(natural(a, width), natural(b, width), width), type
    # Farther than the width, the sign is left.
    cases["arith.shrsi"] = (f"%r = arith.shrsi %a, %b : {type}",
                            lambda a, b: signed(a, width) >> min(natural(b, width), width - 1), type)
    orders = {"eq": compare("eq", natural), "ne": compare("ne", natural)}
    orders |= {s + o: compare(o, c) for s, c in (("s", signed), ("u", natural)) for o in ("lt", "le", "gt", "ge")}
    for order, function in orders.items():
        cases[f"arith.cmpi {order}"] = (f"%r = arith.cmpi {order}, %a, %b : {type}", lambda a, b, f=function: f(a, b, width), "i1")
    cases["arith.select"] = (f"%q = arith.cmpi slt, %a, %b : {type} %r = arith.select %q, %a, %b : {type}",
                             lambda a, b: min(signed(a, width), signed(b, width)), type)
    if type == "index":
        for op in ("index_cast", "index_castui"):
            convert = natural if op.endswith("ui") else signed
            cases |= {f"arith.{op} to {t}": (f"%r = arith.{op} %a : index to {t}", lambda a, b: a, t) for t in ("i8", "i64")}
            cases |= {f"arith.{op} of {t}": (f"%q = arith.index_cast %a : index to {t} %r = arith.{op} %q : {t} to index",
                                             lambda a, b, c=convert, w=w: c(a, w), "index") for t, w in (("i1", 1), ("i8", 8))}
        return cases
    for op, function in ONE.items():
        cases[op] = f"%r = {op} %a : {type}", lambda a, b, f=function: f(a, width), type
    # Powers of a bit that is a sign, and of large ones, are nothing that anybody asks for.
    if width > 1:
        cases["math.ipowi"] = (f"%c = arith.constant 7 : {type} %n = arith.remsi %b, %c : {type} %r = math.ipowi %a, %n : {type}",
                               lambda a, b: power(signed(a, width), signed(b, width) - 7 * toward_zero(signed(b, width), 7)), type)
    cases["arith.addui_extended"] = (f"%r, %q = arith.addui_extended %a, %b : {type}, i1", lambda a, b: a + b, type)
    cases["arith.addui_extended over"] = (f"%q, %r = arith.addui_extended %a, %b : {type}, i1",
                                          lambda a, b: (natural(a, width) + natural(b, width)) >> width, "i1")
    for op, function in EXTENDED.items():
        cases[op] = f"%r, %q = {op} %a, %b : {type}", lambda a, b, f=function: f(a, b, width), type
        cases[f"{op} high"] = f"%q, %r = {op} %a, %b : {type}", lambda a, b, f=function: f(a, b, width) >> width, type
    for other, wide in (("i1", 1), ("i8", 8), ("i64", 64)):
        if wide > width:
            cases[f"arith.extsi {other}"] = f"%r = arith.extsi %a : {type} to {other}", lambda a, b: signed(a, width), other
            cases[f"arith.extui {other}"] = f"%r = arith.extui %a : {type} to {other}", lambda a, b: natural(a, width), other
        if wide < width:
            cases[f"arith.trunci {other}"] = f"%r = arith.trunci %a : {type} to {other}", lambda a, b: a, other
    cases["arith.sitofp"] = f"%r = arith.sitofp %a : {type} to f64", lambda a, b: float(signed(a, width)), "f64"
    cases["arith.uitofp"] = f"%r = arith.uitofp %a : {type} to f64", lambda a, b: float(natural(a, width)), "f64"
    return cases


def integers(type):
    """All pairs of numbers at the ends and around 0; of an index all the same, as of its 64 bits."""
    width = WIDTHS[type]
    ends = [0, 1, 2, 3, 7, width - 1, width, width + 1, 1 << (width - 1), (1 << (width - 1)) - 1, (1 << (width - 1)) + 1]
    numbers = sorted({signed(sign * x, width) for x in ends for sign in (1, -1)})
    return zip(*itertools.product(numbers, numbers))


def held(type, x):
    """What the interpreter holds of an integer of `type`: one of a bit is 0 or 1."""
    return x & 1 if type == "i1" else signed(x, WIDTHS[type])


def interpret(text, arrays, folder):
    values = os.path.join(folder, "values")
    tensor_file.write_arrays(values, arrays)
    return run(text, values, folder)


def keep(type, body, result):
    """The body with numbers that a step takes and returns, for a type of which it has none."""
    if type not in ("i16", "index"):
        return body
    to, back = ("arith.trunci", "arith.extsi") if type == "i16" else ("arith.index_cast",) * 2
    body = "".join(f"%{n} = {to} %{m} : i64 to {type} " for n, m in ("au", "bv")) + body
    return re.sub(r"%r\b", "%s", body) + f" %r = {back} %s : {type} to i64" if result == type else body


def check_integers(type, folder):
    a, b = integers(type)
    cases = integer_cases(type)
    kept = type if type in ("i1", "i8", "i32", "i64") else "i64"
    bodies = {name: keep(type, body, result) for name, (body, _, result) in cases.items()}
    results = {name: kept if result == type else result for name, (_, _, result) in cases.items()}
    source = floats.source(bodies, dict.fromkeys("uv" if kept != type else "ab", kept), results, f"{len(a)}x")
    arrays = {n: np.array([held(type, x) for x in v], bool if type == "i1" else np.int64) for n, v in zip("uv" if kept != type else "ab", (a, b))}
    got = interpret(source, arrays, folder)
    for name, (_, function, result) in cases.items():
        for x, y, number in zip(a, b, got[name].tolist()):
            want = function(x, y)
            want = want if result == "f64" else held(result, int(want))
            assert number == want, (type, name, x, y, "got", number, "for", want)
    return cases


def float_cases(type):
    """What `math_functions` has of compiled steps, and what else there is, as (body, function of doubles, type)."""
    cases = {name: (body.replace("T", type), function, type) for name, (body, function, _) in floats.BODIES.items()}
    for order in ("oge", "olt", "one", "ugt", "uge", "ule", "false", "true"):
        cases[f"arith.cmpf {order}"] = (f"%r = arith.cmpf {order}, %a, %b : {type}", ORDERS_OF_FLOATS[order], "i1")
    least = LEAST.get(type) or float(np.finfo(floats.TYPES[type]).tiny)
    cases["isnormal"] = f"%r = math.isnormal %a : {type}", lambda a, b, c, k: np.isfinite(a) & (np.abs(a) >= least), "i1"
    for number, function in enumerate((np.sin, np.cos)):
        names = "%r, %q" if number == 0 else "%q, %r"
        cases[f"sincos {number}"] = f"{names} = math.sincos %a : {type}", lambda a, b, c, k, f=function: f(a), type
    cases["truncf"] = (f"%q = arith.extf %a : {type} to f64 %r = arith.truncf %q : f64 to {type}" if type != "f64" else
                       "%q = arith.truncf %a : f64 to f32 %r = arith.extf %q : f32 to f64", lambda a, b, c, k: a, type)
    for op, kind in (("fptosi", "int"), ("fptoui", "uint")):
        for width in (8, 32, 64):
            convert = floats.saturate(f"{kind}{width}")
            cases[f"{op} {width}"] = (f"%r = arith.{op} %a : {type} to i{width}",
                                      lambda a, b, c, k, f=convert, w=width: f(np.trunc(a)).view(f"int{w}"), f"i{width}")
    # The bits of what the type holds, and back.
    cases["bitcast"] = (f"%q = arith.bitcast %a : {type} to i{BITS[type]} %r = arith.extsi %q : i{BITS[type]} to i64"
                        if type != "f64" else "%r = arith.bitcast %a : f64 to i64", lambda a, b, c, k: bits_of(a, type), "i64")
    cases["bitcast back"] = (f"%q = arith.bitcast %a : {type} to i{BITS[type]} %r = arith.bitcast %q : i{BITS[type]} to {type}",
                             lambda a, b, c, k: a, type)
    return cases


ORDERS_OF_FLOATS = {
    "oge": lambda a, b, c, k: a >= b, "olt": lambda a, b, c, k: a < b, "one": lambda a, b, c, k: (a < b) | (a > b),
    "ugt": lambda a, b, c, k: ~(a <= b), "uge": lambda a, b, c, k: ~(a < b), "ule": lambda a, b, c, k: ~(a > b),
    "false": lambda a, b, c, k: np.zeros(a.shape, bool), "true": lambda a, b, c, k: np.ones(a.shape, bool),
}


def bits_of(a, type):
    if type == "bf16":
        return step.to_bf16(a.astype(np.float32)).view(np.int16)
    return a.astype(floats.TYPES[type]).view(f"int{BITS[type]}")


def check_floats(type, folder):
    values = floats.specials(type).astype(np.float64)
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    c = np.roll(b, 7)
    k = np.resize(np.array([0, 1, -1, 2, 3, -3, 8, 100, 2**24 + 1, 2**31 - 1, -2**31]), a.shape).astype(np.int64)
    cases = float_cases(type)
    bodies = {name: body for name, (body, _, _) in cases.items()}
    inputs = {"a": type, "b": type, "c": type, "k": "i32"}
    source = floats.source(bodies, inputs, {n: r for n, (_, _, r) in cases.items()}, f"{a.size}x")
    got = interpret(source, {"a": a, "b": b, "c": c, "k": k}, folder)
    for name, (_, function, result) in cases.items():
        want = function(a, b, c, k.astype(np.int32))
        if result not in BITS:
            nan = np.isnan(a) if "bitcast" in name else np.zeros(a.shape, bool)
            np.testing.assert_array_equal(got[name][~nan], np.asarray(want)[~nan], f"{type} {name}")
            continue
        floats.check(name, got[name], np.asarray(want), "f64", lambda n: (x[n] for x in (a, b, c, k)), LIMITS.get(name, 4))
    return cases


# Square and multiply rounds as often as it multiplies.
LIMITS = {name: 64 for name in floats.BODIES if name.startswith("fpowi")}
# The smallest number that is no subnormal one, of a type that NumPy lacks.
LEAST = {"bf16": 2.0**-126}
# What the table calls otherwise than the text.
NAMES = {"countleadingzeros": "ctlz", "counttrailingzeros": "cttz"}


def main():
    used = ""
    with tempfile.TemporaryDirectory() as folder:
        for check, types in ((check_floats, BITS), (check_integers, WIDTHS)):
            for type in types:
                cases = check(type, folder)
                used += " ".join(body for body, _, _ in cases.values())
                print(f"{type}: {len(cases)} operations agree", flush=True)
    with open(os.path.join(ROOT, "lib", "Interpreter", "Scalars.cpp")) as file:
        known = set(re.findall(r"\b(?:arith|math)::(\w+)Op\b", file.read()))
    tested = {op.replace("_", "") for op in re.findall(r"\b(?:arith|math)\.(\w+)", used)}
    missing = {name for name in known if NAMES.get(name.lower(), name.lower()) not in tested}
    assert not missing, f"expected a case for each operation of the table, but got none for {sorted(missing)}"


main()
