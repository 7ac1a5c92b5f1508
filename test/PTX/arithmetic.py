# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs every instruction of Inputs/arithmetic.txt, and rounds random operations exactly.

    arithmetic.py table FILE    compares each line with what ptx-run computes
    arithmetic.py random SEED   the same for random operands, against fractions
"""

import random
import re
import struct
import subprocess
import sys
from fractions import Fraction

FORMATS = {"f": ("<f", "<I", 32), "d": ("<d", "<Q", 64), "h": ("<e", "<H", 16)}


def value(text):
    """The bits and the width of an operand; a predicate has width 1."""
    if text in ("p0", "p1", "!p0", "!p1"):
        return int(text[-1]), 1
    if text.startswith("0x"):
        return int(text, 16), 4 * (len(text) - 2)
    if text.startswith("b:"):
        bits, = struct.unpack("<I", struct.pack("<f", float(text[2:])))
        return bits >> 16, 16
    real, whole, width = FORMATS[text[0]]
    return struct.unpack(whole, struct.pack(real, float(text[2:])))[0], width


def module(rows):
    """PTX that computes each row and stores its result in 8 bytes."""
    lines = [".version 8.3", ".target sm_90a", ".address_size 64", ".visible .entry rows(.param .u64 out)", "{",
             ".reg .b64 %out;", "ld.param.u64 %out, [out];"]
    for number, (opcode, operands, result) in enumerate(rows):
        names, body = [], []
        for i, text in enumerate([*operands, result]):
            if text.startswith("#"):
                names.append(text[1:])
                continue
            bits, width = value(text)
            kind = ".pred" if width == 1 else f".b{width}"
            body.append(f".reg {kind} a{i};")
            target = i == len(operands)
            if width == 1 and not target:
                body.append(f"setp.ne.b32 a{i}, {bits}, 0;")
            elif not target:
                body.append(f"mov{kind} a{i}, {bits:#x};")
            names.append(("!" if text.startswith("!") else "") + f"a{i}")
        body.append(f"{opcode} {', '.join([names[-1], *names[:-1]])};")
        bits, width = value(result)
        if width == 1:
            body.append(f".reg .b32 w; selp.b32 w, 1, 0, {names[-1]}; .reg .b64 r; cvt.u64.u32 r, w;")
        elif width == 64:
            body.append(f".reg .b64 r; mov.b64 r, {names[-1]};")
        else:
            body.append(f".reg .b64 r; cvt.u64.u{width} r, {names[-1]};")
        lines.append("{ " + " ".join(body) + f" st.global.b64 [%out+{8 * number}], r; }}")
    return "\n".join([*lines, "ret;", "}"])


def run(rows):
    with open("rows.ptx", "w") as file:
        file.write(module(rows))
    done = subprocess.run(["ptx-run", "rows.ptx", "--grid", "1", "--block", "1", "--arg", f"out:b64:{len(rows)}"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [int(word, 16) for word in done.stdout.split()[2:]]


def check(rows):
    wrong = 0
    for (opcode, operands, result), found in zip(rows, run(rows)):
        bits, width = value(result)
        if found != bits:
            print(f"{opcode} {' '.join(operands)}: expected {bits:#x}, but got {found:#x}")
            wrong += 1
    print(f"{len(rows)} operations, {wrong} wrong")
    return wrong


def table(path):
    rows = []
    for line in open(path):
        if line.strip() and not line.startswith("# "):
            left, right = line.split(" = ")
            opcode, *operands = left.split()
            rows.append((opcode, operands, right.strip()))
    return rows


# Binary formats by name: bits, exponent bits, fraction bits.
BINARY = {"f32": (32, 8, 23), "f16": (16, 5, 10), "bf16": (16, 8, 7)}


def exact(name, bits):
    width, exponents, fractions = BINARY[name]
    exponent = bits >> fractions & (1 << exponents) - 1
    fraction = bits & (1 << fractions) - 1
    bias = (1 << exponents - 1) - 1
    if exponent:
        fraction |= 1 << fractions
    magnitude = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - bias - fractions)
    return -magnitude if bits >> width - 1 else magnitude


def rounded(name, number, mode):
    """The bits of `number`, which is not 0, by search among neighbours."""
    width, exponents, fractions = BINARY[name]
    magnitude, sign = abs(number), (number < 0) << width - 1
    low, high = 0, ((1 << exponents) - 1) << fractions  # the bits of 0 and infinity
    while high - low > 1:
        middle = (low + high) // 2
        if exact(name, middle) <= magnitude:
            low = middle
        else:
            high = middle
    if exact(name, low) == magnitude:
        return sign | low
    # Infinity stands for the number behind the largest.
    twice = exact(name, low) + exact(name, high)
    nearest = high if 2 * magnitude > twice or (2 * magnitude == twice and low & 1) else low
    away = {"rn": nearest, "rz": low, "rp": low if sign else high, "rm": high if sign else low}[mode]
    return sign | away


def whole(number, width, signed):
    """The nearest bound of an integer type, or the number itself, in its bits."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return min(max(number, low), high) % (1 << width)


def random_conversion(rng):
    """A conversion of a random number that is not 0, or None."""
    mode = rng.choice(["rn", "rz", "rm", "rp"])
    if rng.random() < 0.4:  # from an integer
        width, signed = rng.choice([32, 64]), rng.random() < 0.5
        bits = rng.getrandbits(rng.randint(1, width))
        number = bits - (1 << width) if signed and bits >> width - 1 else bits
        name = "f32"
        source = f"{'s' if signed else 'u'}{width}"
        result = number and f"{rounded(name, Fraction(number), mode):#010x}"
        return number and (f"cvt.{mode}.{name}.{source}", [f"{bits:#0{width // 4 + 2}x}"], result)
    bits = rng.getrandbits(1) << 31 | rng.randint(80, 200) << 23 | rng.choice([0, rng.getrandbits(23), 0x400000, 0x1000])
    number, text = exact("f32", bits), f"{bits:#010x}"
    if rng.random() < 0.5:  # to an integer
        width, signed = rng.choice([32, 64]), rng.random() < 0.5
        to = {"rn": round, "rz": int, "rm": lambda x: x.__floor__(), "rp": lambda x: x.__ceil__()}[mode](number)
        return (f"cvt.{mode}i.{'s' if signed else 'u'}{width}.f32", [text], f"{whole(to, width, signed):#0{width // 4 + 2}x}")
    name = rng.choice(["f16", "bf16"])
    return f"cvt.{mode}.{name}.f32", [text], f"{rounded(name, number, mode):#06x}"


def random_rows(seed):
    rng, rows = random.Random(int(seed)), []
    while len(rows) < 700:
        if row := random_conversion(rng):
            rows.append(row)
    while len(rows) < 1500:
        name = rng.choice(["f32", "f32", "f32", "f16", "bf16"])
        width, exponents, fractions = BINARY[name]
        mode = rng.choice(["rn", "rz", "rm", "rp"]) if name == "f32" else "rn"
        operation = rng.choice(["add", "sub", "mul", "fma"] + ["div"] * (name == "f32"))
        bias = (1 << exponents - 1) - 1
        spread = rng.choice([2, fractions + 3, 2 * fractions + 3])
        operands = []
        for _ in range(3 if operation == "fma" else 2):
            exponent = min(max(bias + rng.randint(-spread, spread), 0), 2 * bias)
            fraction = rng.choice([0, 1, (1 << fractions) - 1, rng.getrandbits(fractions)])
            operands.append(rng.getrandbits(1) << width - 1 | exponent << fractions | fraction)
        a, b, *c = (exact(name, bits) for bits in operands)
        if operation == "div" and not b:
            continue
        number = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b,
                  "fma": lambda: a * b + c[0]}[operation]()
        if not number:
            continue
        digits = width // 4
        rows.append((f"{operation}.{mode}.{name}", [f"{bits:#0{digits + 2}x}" for bits in operands],
                     f"{rounded(name, number, mode):#0{digits + 2}x}"))
    return rows


rows = table(sys.argv[2]) if sys.argv[1] == "table" else random_rows(sys.argv[2])
if len({re.sub(r"\W.*", "", row[0]) for row in rows}) < 5:
    sys.exit("expected several instructions, but got few")
sys.exit(1 if check(rows) else 0)
