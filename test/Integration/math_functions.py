# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element-wise operations in compiled steps against IEEE arithmetic and the C library's functions
in float64: all special values, in all types, levels and vectors, and in scalars; then the
largest error of each function over all f32 (printed, in units in the last place)."""

import math

import numpy as np
import step

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.float32}
# Of an operation. f64 calls the C library, halves are rounded f32.
ULPS = {"f32": 5, "f64": 4, "f16": 0.51, "bf16": 0.51}


def away(x):
    """Rounds halves away from zero."""
    return np.where(np.abs(x) < 2.0**52, np.copysign(np.floor(np.abs(x) + 0.5), x), x)


def power(x, n):
    """x**n for integers beyond those that f64 has."""
    y = np.power(np.abs(x), n.astype(np.float64))
    return np.where(n % 2 != 0, np.copysign(y, x), y)


def saturate(type):
    limits = np.iinfo(type)

    def convert(x):
        inside = (x >= limits.min) & (x < limits.max + 1.0)
        y = np.where(inside, x, 0).astype(type)
        y[x >= limits.max + 1.0] = limits.max
        y[x < limits.min] = limits.min
        return y

    return convert


# Operations of mathematical functions of one operand, with NumPy's.
UNARY = {
    "absf": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc), "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor, "log": np.log, "log10": np.log10,
    "log1p": np.log1p, "log2": np.log2, "round": away, "roundeven": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt,
    "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
}
COMPARISONS = {
    "oeq": lambda x, y: x == y, "ogt": lambda x, y: x > y, "ole": lambda x, y: x <= y,
    "ueq": lambda x, y: ~((x < y) | (x > y)), "une": lambda x, y: x != y, "ult": lambda x, y: ~(x >= y),
    "ord": lambda x, y: (x == x) & (y == y), "uno": lambda x, y: (x != x) | (y != y),
}
# What else: a body that makes %r of floats %a, %b, %c and the i32 %k; what it is; the
# roundings on the way.
BODIES = {
    **{op: (f"%r = math.{op} %a : T", lambda a, b, c, k, f=f: f(a), 1) for op, f in UNARY.items()},
    **{op: (f"%r = {op} %a, %b : T", lambda a, b, c, k, f=f: f(a, b), 1) for op, f in {
        "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply,
        "arith.divf": np.divide, "arith.remf": np.fmod, "arith.maximumf": np.maximum,
        "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin,
        "math.atan2": np.arctan2, "math.powf": np.power, "math.copysign": np.copysign}.items()},
    **{op: (f"%z = arith.constant 0.0 : T %o = arith.constant 1.0 : T %q = arith.cmpf {op}, %a, %b : T "
            "%r = arith.select %q, %o, %z : T", lambda a, b, c, k, f=f: f(a, b) * 1.0, 1)
       for op, f in COMPARISONS.items()},
    **{op: (f"%z = arith.constant 0.0 : T %o = arith.constant 1.0 : T %q = math.{op} %a : T "
            "%r = arith.select %q, %o, %z : T", lambda a, b, c, k, f=f: f(a) * 1.0, 1)
       for op, f in {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}.items()},
    "negf": ("%r = arith.negf %a : T", lambda a, b, c, k: -a, 1),
    "fma": ("%r = math.fma %a, %b, %c : T", lambda a, b, c, k: fma(a, b, c), 1),
    # The smaller number is named first, and applied last.
    "clampf": ("%r = math.clampf %a to [%b, %c] : T", lambda a, b, c, k: np.maximum(np.minimum(a, c), b), 1),
    "fpowi": ("%r = math.fpowi %a, %k : T, i32", lambda a, b, c, k: power(a, k), 1),
    **{f"fpowi({n})": (f"%n = arith.constant {n} : i32 %r = math.fpowi %a, %n : T, i32",
                        lambda a, b, c, k, n=n: power(a, np.full(k.shape, n)), 1)
       for n in (-5, 0, 3, 8, 100)},
    "sitofp": ("%r = arith.sitofp %k : i32 to T", lambda a, b, c, k: k.astype(float), 1),
    "uitofp": ("%r = arith.uitofp %k : i32 to T", lambda a, b, c, k: k.astype(np.uint32).astype(float), 1),
    # Divided by roots: NaN and wrong infinities come of estimates.
    "1/sqrt": ("%o = arith.constant 1.0 : T %q = math.sqrt %b : T %r = arith.divf %o, %q : T",
               lambda a, b, c, k: 1 / np.sqrt(b), 2),
    "a/sqrt": ("%q = math.sqrt %b : T %r = arith.divf %a, %q : T", lambda a, b, c, k: a / np.sqrt(b), 2),
    "sqrt/sqrt": ("%p = math.sqrt %a : T %q = math.sqrt %b : T %r = arith.divf %p, %q : T",
                  lambda a, b, c, k: np.sqrt(a) / np.sqrt(b), 3),
    "a/cbrt": ("%q = math.cbrt %b : T %r = arith.divf %a, %q : T", lambda a, b, c, k: a / np.cbrt(b), 2),
    "a*rsqrt": ("%q = math.rsqrt %b : T %r = arith.mulf %a, %q : T",
                lambda a, b, c, k: a * (1 / np.sqrt(b)), 2),
    "a/rsqrt": ("%q = math.rsqrt %b : T %r = arith.divf %a, %q : T",
                lambda a, b, c, k: a / (1 / np.sqrt(b)), 2),
    "twice/sqrt": ("%q = math.sqrt %b : T %p = arith.divf %a, %q : T %s = arith.divf %c, %q : T "
                   "%r = arith.maximumf %p, %s : T",
                   lambda a, b, c, k: np.maximum(a / np.sqrt(b), c / np.sqrt(b)), 2),
}
# Either zero is the maximum of both.
ANY_ZERO = ["clampf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "twice/sqrt"]


def fma(a, b, c):
    """In long double, which has the product of two f32; of f64 it is within its units."""
    return np.longdouble(a) * np.longdouble(b) + np.longdouble(c)


def source(bodies, inputs, results, shape):
    """A step that computes `bodies` (by name) of `inputs` (name: type) on every element."""
    def tensor(type):
        return f"tensor<{shape}{type}>"

    dims = "d" if shape else ""
    arguments = ", ".join(f'%{n}0: {tensor(t)} {{bsr.name = "{n}"}}' for n, t in inputs.items())
    operands = ", ".join(f"%{n}0" for n in inputs) + " : " + ", ".join(tensor(t) for t in inputs.values())
    values = ", ".join(f"%{n}: {t}" for n, t in inputs.items())
    text = f"#map = affine_map<({dims}) -> ({dims})>\nfunc.func @step({arguments}) -> ("
    text += ", ".join(f'{tensor(results[n])} {{bsr.name = "{n}"}}' for n in bodies) + ") {\n"
    for number, (name, body) in enumerate(bodies.items()):
        text += f"""%init{number} = tensor.empty() : {tensor(results[name])}
%y{number} = linalg.generic {{indexing_maps = [{", ".join(["#map"] * (len(inputs) + 1))}],
    iterator_types = [{'"parallel"' if shape else ""}]}}
    ins({operands}) outs(%init{number} : {tensor(results[name])}) {{
^bb0({values}, %out: {results[name]}):
  {body}
  linalg.yield %r : {results[name]}
}} -> {tensor(results[name])}
"""
    return text + "return " + ", ".join(f"%y{n}" for n in range(len(bodies))) + " : " + ", ".join(
        tensor(results[n]) for n in bodies) + "\n}"


def ulps(got, exact, type):
    """The errors of `got` in units in the last place of `type`; infinite where one of the two
    is NaN or infinite and the other is not."""
    if type == "bf16":
        rounded = step.from_bf16(step.to_bf16(exact.astype(np.float32)))
        spacing = 2.0**16 * np.spacing(np.abs(np.where(np.isinf(rounded), 0, rounded)).astype(np.float32))
    else:
        rounded = exact.astype(TYPES[type])
        spacing = np.spacing(np.abs(np.where(np.isinf(rounded), 0, rounded)).astype(TYPES[type]))
    error = np.abs(got.astype(np.longdouble) - exact) / spacing.astype(np.longdouble)
    same = (got == rounded) | (np.isnan(got) & np.isnan(exact))
    # What is next to the largest number may be infinite.
    near = np.isinf(got) & (np.abs(exact) > 0.99999 * np.longdouble(LARGEST[type])) & (got * exact > 0)
    error = np.where(same | near, 0, error)
    return np.where(np.isnan(error), np.inf, error).astype(np.float64)


LARGEST = {t: float(np.finfo(d).max) for t, d in TYPES.items()} | {"bf16": 3.3895314e38}


def specials(type):
    info = np.finfo(TYPES[type])
    least = float(np.spacing(info.dtype.type(0))) * (2.0**16 if type == "bf16" else 1)
    tiny = float(info.tiny)
    numbers = [0, np.inf, least, tiny - least, tiny, LARGEST[type], 1, 2, 3, 0.5, 1.5, 2.5, 100, 0.1, 8192, 60000]
    numbers = np.array(numbers + [-x for x in numbers] + [np.nan])
    if type == "bf16":
        return step.from_bf16(step.to_bf16(numbers))
    return numbers.astype(TYPES[type])


def check(name, got, exact, type, where, limit):
    error = ulps(got, exact, type)
    worst = np.argmax(error)
    assert error[worst] <= limit, (name, type, where(worst), "got", got[worst], "for", exact[worst])
    zero = (exact == 0) & (got == 0)
    wrong = zero & (np.signbit(got) != np.signbit(exact))
    assert name in ANY_ZERO or not wrong.any(), (name, type, where(np.argmax(wrong)), "sign of zero")


def test_floats(type, runs):
    """All pairs of special values through all operations, for each of `runs` (arguments of the
    compiler): in vectors with a ragged end, or in scalars."""
    values = specials(type)
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    c = np.roll(b, 7)
    integers = np.array([0, 1, -1, 2, 3, -3, 8, 100, 2**24 + 1, 2**31 - 1, -2**31])
    k = np.resize(integers, a.shape).astype(np.int32)
    wide = [x.astype(np.float64) for x in (a, b, c)]
    expected = {name: f(*wide, k) for name, (_, f, _) in BODIES.items()}
    arrays = {"a": a, "b": b, "c": c, "k": k}
    if type == "bf16":
        arrays |= {name: step.to_bf16(arrays[name]) for name in "abc"}
    bodies = {name: body.replace("T", type) for name, (body, _, _) in BODIES.items()}
    inputs = {"a": type, "b": type, "c": type, "k": "i32"}
    for is_vector, *arguments in runs:
        text = source(bodies, inputs, dict.fromkeys(bodies, type), f"{a.size}x" if is_vector else "")
        compiled = step.compile(text, arguments)
        # As many scalars as there are operations to see one of a vector's lanes differ.
        chosen = slice(None) if is_vector else range(0, a.size, 7)
        if is_vector:
            results = compiled.run(arrays)
        else:
            runs = [compiled.run({name: x[n] for name, x in arrays.items()}) for n in chosen]
            results = {name: np.array([run[name] for run in runs]) for name in bodies}
        for name, got in results.items():
            check(name, step.from_bf16(got) if type == "bf16" else got, expected[name][chosen], type,
                  lambda n: (arguments, [x[chosen][n] for x in (a, b, c, k)]),
                  ULPS[type] * (2 * BODIES[name][2] - 1))


def test_integers():
    """What LLVM leaves open for integers, against XLA's definitions."""
    limits = np.iinfo(np.int32)
    numbers = np.array([0, 1, -1, 2, 7, -7, 31, 32, 33, -33, limits.max, limits.min], np.int32)
    x, y = (v.ravel() for v in np.meshgrid(numbers, numbers))
    wide, zero, unsigned = x.astype(np.int64), y == 0, x.astype(np.uint32)
    divisor = np.where(zero, 1, y).astype(np.int64)
    natural = np.where(zero, 1, y).astype(np.uint32)
    quotient = np.where(wide * divisor < 0, -(abs(wide) // abs(divisor)), abs(wide) // abs(divisor))
    far, distance = y.astype(np.uint32) > 31, np.clip(y.astype(np.uint32), 0, 31)
    expected = {
        "divsi": np.where(zero, -1, quotient), "remsi": np.where(zero, x, wide - quotient * divisor),
        "divui": np.where(zero, -1, unsigned // natural), "remui": np.where(zero, unsigned, unsigned % natural),
        "floordivsi": np.where(zero, -1, wide // divisor), "ceildivsi": np.where(zero, -1, -(-wide // divisor)),
        "ceildivui": np.where(zero, -1, -(-unsigned.astype(np.int64) // natural)),
        "shli": np.where(far, 0, wide << distance), "shrsi": wide >> distance,
        "shrui": np.where(far, 0, unsigned >> distance),
    }
    bodies = {op: f"%r = arith.{op} %a, %b : i32" for op in expected}
    for level in ["-O0", "-O3"]:
        text = source(bodies, {"a": "i32", "b": "i32"}, dict.fromkeys(bodies, "i32"), f"{x.size}x")
        for op, got in step.run(text, [level], {"a": x, "b": y}).items():
            np.testing.assert_array_equal(got, expected[op].astype(np.int32), op)


def test_conversions():
    """Between types of floats, each rounded once, and to integers."""
    random = np.random.default_rng(0)
    x = random.standard_normal(501) * np.exp2(random.uniform(-20, 20, 501))
    x[:40] = np.resize([np.nan, np.inf, -np.inf, 0, -0.0, 1e300, -1e300, 2.0**31, -2.0**31, 2.0**63, 127.5,
                        -128.5, 255.5, 1e-310, 3.4e38, 65519.9, -1.5, 0.5, 2147483647, 1e-42], 40)
    # Next to the middle of two bf16: rounded to f32 first, in the middle.
    x[40:80] = np.resize([1, -1], 40) * (1 + 2.0**-8) * (1 + np.resize([1, -1], 80)[::2] * 2.0**-40)
    x[60:80] = np.resize([1, -1], 20) * (1 + 2.0**-8 - 2.0**-40)
    narrow = x.astype(np.float32)
    half = x.astype(np.float16)
    # Rounded to odd, then to nearest.
    bits = narrow.view(np.int32).copy()
    other = (narrow.astype(np.float64) != x) & ~np.isnan(x) & (bits % 2 == 0)
    bits += np.where(other, np.where(np.abs(narrow.astype(np.float64)) > np.abs(x), -1, 1), 0).astype(np.int32)
    brain = step.to_bf16(bits.view(np.float32))
    expected = {
        "bf16": brain, "f16": half, "f32": narrow, "of16": half.astype(np.float64),
        "obf16": step.from_bf16(brain).astype(np.float64), "of32": narrow.astype(np.float64),
        "hb": step.to_bf16(half.astype(np.float32)), "bh": step.from_bf16(brain).astype(np.float16),
        **{f"si{w}": saturate(f"int{w}")(x) for w in (8, 32, 64)},
        **{f"ui{w}": saturate(f"uint{w}")(x).view(f"int{w}") for w in (8, 32, 64)},
        "hsi32": saturate("int32")(half.astype(np.float64)),
        "bsi64": saturate("int64")(step.from_bf16(brain).astype(np.float64)),
    }
    inputs = {"x": "f64", "h": "f16", "b": "bf16", "s": "f32"}
    bodies = {
        "bf16": "%r = arith.truncf %x : f64 to bf16", "f16": "%r = arith.truncf %x : f64 to f16",
        "f32": "%r = arith.truncf %x : f64 to f32", "of16": "%r = arith.extf %h : f16 to f64",
        "obf16": "%r = arith.extf %b : bf16 to f64", "of32": "%r = arith.extf %s : f32 to f64",
        "hb": "%q = arith.extf %h : f16 to f32 %r = arith.truncf %q : f32 to bf16",
        "bh": "%q = arith.extf %b : bf16 to f32 %r = arith.truncf %q : f32 to f16",
        **{f"{s}i{w}": f"%r = arith.fpto{s}i %x : f64 to i{w}" for s in "su" for w in (8, 32, 64)},
        "hsi32": "%r = arith.fptosi %h : f16 to i32", "bsi64": "%r = arith.fptosi %b : bf16 to i64",
    }
    results = {name: name if name in TYPES else "f64" if name[0] == "o" else
               {"hb": "bf16", "bh": "f16"}.get(name, "i" + name.split("i")[-1]) for name in bodies}
    text = source(bodies, inputs, results, f"{x.size}x")
    for level in ["-O0", "-O3"]:
        got = step.run(text, [level], {"x": x, "h": half, "b": brain, "s": narrow})
        for name, array in got.items():
            if results[name] == "bf16":
                array, wanted = step.from_bf16(array), step.from_bf16(expected[name])
            else:
                wanted = expected[name]
            np.testing.assert_array_equal(array, wanted, f"{name} {level}")


def test_accuracy(count=2**17):
    """Prints the largest error of each function over all f32 and where it is."""
    bits = (np.arange(count, dtype=np.uint64) * (2**32 // count) + 12345 % (2**32 // count)).astype(np.uint32)
    random = np.random.default_rng(0)
    x = bits.view(np.float32).copy()
    for start, limit in enumerate([1, 10, 100, 1e4, 1e6], 1):
        x[start::8] = random.uniform(-limit, limit, x[start::8].size)
    # Where the results are subnormal; next to multiples of pi / 2.
    x[6::16] = random.uniform(-104, 89, x[6::16].size)
    x[14::16] = np.arange(x[14::16].size) * (np.pi / 2)
    y = random.permutation(x)
    binary = {"atan2": np.arctan2, "powf": np.power}
    bodies = {op: f"%r = math.{op} %a : f32" for op in UNARY} | {
        op: f"%r = math.{op} %a, %b : f32" for op in binary}
    text = source(bodies, {"a": "f32", "b": "f32"}, dict.fromkeys(bodies, "f32"), f"{count}x")
    for op, got in sorted(step.run(text, [], {"a": x, "b": y}).items()):
        wide = x.astype(np.float64)
        exact = UNARY[op](wide) if op in UNARY else binary[op](wide, y.astype(np.float64))
        error = ulps(got, exact, "f32")
        worst = np.argmax(error)
        print(f"{op:10} {error[worst]:.2f} at {x[worst]:.9g}")
        assert error[worst] <= 5, (op, x[worst], y[worst], got[worst], exact[worst])


VECTOR, SCALAR = True, False
# NaN and infinities are what this is about.
np.seterr(all="ignore")
if __name__ == "__main__":
    test_integers()
    test_conversions()
    test_floats("f32", [(VECTOR, "-O0"), (VECTOR, "-O1", "--vector-bits=128", "--num-registers=16"),
                        (VECTOR, "-O2", "--vector-bits=512", "--num-registers=32"),
                        (VECTOR, "-O3", "--vector-bits=256", "--num-registers=16"), (SCALAR, "-O3")])
    test_floats("f64", [(VECTOR, "-O3"), (SCALAR, "-O1")])
    test_floats("f16", [(VECTOR, "-O3"), (SCALAR, "-O0")])
    test_floats("bf16", [(VECTOR, "-O3"), (VECTOR, "-O0"), (SCALAR, "-O2")])
    test_accuracy()
