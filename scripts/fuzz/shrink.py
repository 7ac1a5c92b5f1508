# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a failing case small: fewer results, operations, weights, steps and options.

An operation goes by becoming an argument that holds what the operation computed.
"""

import copy
import re
import time
from dataclasses import dataclass

import numpy as np

from fuzz import check
from fuzz.interpreter import Unstable
from fuzz.rounding import is_float, round_to

NAME = re.compile(r"%[\w.$]+")


@dataclass
class Chunk:
    """An operation of the step with its regions."""

    text: str
    results: list
    uses: set


@dataclass
class Parts:
    """The text of a step, in parts that can go."""

    arguments: list  # (name, type, attributes without bsr.result)
    chunks: list
    results: list  # (value, type, name of an output or None, name of the argument that it carries or None)


def split(text):
    head, body = text.split(" {\n", 1) if ") {\n" not in text else text.split(") {\n", 1)
    arguments, carries = [], {}
    for name, type, attributes in re.findall(r"(%[\w.$]+): (\S+) \{([^}]*)\}", head):
        carried = re.search(r", bsr\.result = (\d+) : i64", attributes)
        if carried:
            carries[int(carried[1])] = name
        arguments.append((name, type, re.sub(r", bsr\.result = \d+ : i64", "", attributes)))
    chunks, lines, depth = [], [], 0
    for line in body.splitlines():
        if depth == 0 and line.strip().startswith("return"):
            break
        lines.append(line)
        depth += line.count("{") - line.count("}")
        if depth == 0:
            whole = "\n".join(lines)
            made = re.match(r"\s*(%[\w.$]+)", whole)
            names = set(NAME.findall(whole))
            chunks.append(Chunk(whole, [made[1]], names - {made[1]}))
            lines = []
    values, types = re.match(r"\s*return (.*) : (.*)", line).groups()
    outputs = re.findall(r"(\S+?)(?: \{bsr\.name = \"([^\"]*)\"\})?(?:, |\)$|$)", head.rsplit("-> (", 1)[1])
    results = []
    for i, (value, type) in enumerate(zip(values.split(", "), types.split(", "))):
        results.append((value, type, outputs[i][1] or None, carries.get(i)))
    return Parts(arguments, chunks, results)


def join(parts):
    signature = []
    carried = {carrier: i for i, (_, _, _, carrier) in enumerate(parts.results) if carrier}
    for name, type, attributes in parts.arguments:
        if name in carried:
            attributes += f", bsr.result = {carried[name]} : i64"
        signature.append(f"{name}: {type} {{{attributes}}}")
    types = ", ".join(t + (f' {{bsr.name = "{name}"}}' if name else "") for _, t, name, _ in parts.results)
    return "func.func @step(" + ",\n    ".join(signature) + f")\n    -> ({types}) {{\n" + "\n".join(
        c.text for c in parts.chunks) + f"\n  return {', '.join(r[0] for r in parts.results)} : " + \
        ", ".join(r[1] for r in parts.results) + "\n}\n"


def base(name):
    return name.split("#")[0]


def clean(parts):
    """Without operations and arguments that nothing uses."""
    used = {base(r[0]) for r in parts.results} | {r[3] for r in parts.results}
    kept = []
    for chunk in reversed(parts.chunks):
        if base(chunk.results[0]) in used:
            kept.append(chunk)
            used |= chunk.uses
    arguments = [a for a in parts.arguments if a[0] in used]
    return Parts(arguments, kept[::-1], parts.results)


def rebuild(case, parts, arrays=None):
    """The case with other text."""
    parts = clean(parts)
    new = copy.copy(case)
    new.text = join(parts)
    names = [re.search(r'bsr\.name = "([^"]*)"', a[2])[1] for a in parts.arguments]
    known = case.arrays | (arrays or {})
    new.arrays = {name: known[name] for name in names}
    new.marks = {w: m for w, m in case.marks.items() if w in names}
    new.follows = {a: w for a, w in case.follows.items() if a in names and w in names}
    made = {base(c.results[0]) for c in parts.chunks}
    new.gradients = {w: g for w, g in case.gradients.items() if base(g) in made}
    new.inner = {g: w for g, w in case.inner.items() if base(g) in made}
    return new


def values_of(case):
    """What each operation computes in the first step."""
    once = copy.copy(case)
    once.steps = 1
    patterns = check.draw_patterns(once)
    try:
        return check.reference(once, check.element_masks(once, patterns))[3]
    except Unstable:
        return {}


def cut(case, chunks):
    """The case with the chunks of these names as arguments."""
    values, parts, arrays = values_of(case), split(case.text), {}
    kept, arguments = [], list(parts.arguments)
    gradients = {base(g) for g in [*case.gradients.values(), *case.inner]}
    for chunk in parts.chunks:
        name = chunk.results[0]
        type = re.search(r"(tensor<[^<>]*>)\s*$", chunk.text.rstrip())
        if name not in chunks or name not in values or not type or "tensor.empty" in chunk.text or name in gradients \
                or "arith.constant" in chunk.text.splitlines()[0]:
            kept.append(chunk)
            continue
        kind = re.search(r"([a-z0-9]+)>$", type[1])[1].split("x")[-1]
        if kind == "i1":
            kept.append(chunk)
            continue
        label = "r" + name[1:]
        arguments.append((name, type[1], f'bsr.name = "{label}"'))
        value = np.asarray(values[name][0])
        arrays[label] = round_to(value.astype(np.float64), kind) if is_float(kind) else value
    return rebuild(case, Parts(arguments, kept, parts.results), arrays)


def shrink(case, fails, seconds=240):
    """The smallest case for which `fails(case)` that is found in that time."""
    end = time.monotonic() + seconds

    def attempt(make):
        nonlocal case
        if time.monotonic() > end:
            return False
        try:
            new = make()
        except (KeyError, AttributeError, IndexError, TypeError):
            return False
        if new is None or not fails(new):
            return False
        case = new
        return True

    def changed(**fields):
        new = copy.copy(case)
        for key, value in fields.items():
            setattr(new, key, value)
        return new

    attempt(lambda: changed(steps=1))
    attempt(lambda: changed(options=["-O3"]))
    attempt(lambda: changed(options=["-O1"]))
    attempt(lambda: changed(scores=""))
    # One result alone.
    parts = split(case.text)
    for result in parts.results:
        if len(parts.results) > 1 and attempt(lambda: rebuild(case, Parts(parts.arguments, parts.chunks, [result]))):
            break
    else:
        for result in parts.results:
            now = split(case.text)
            left = [r for r in now.results if r[0] != result[0]]
            if left:
                attempt(lambda: rebuild(case, Parts(now.arguments, now.chunks, left)))
    # Operations from the front: half of them, a quarter, one by one.
    names = [c.results[0] for c in split(case.text).chunks]
    size = max(1, len(names) // 2)
    while time.monotonic() < end:
        at, progress = 0, False
        while at < len(names):
            group = set(names[at:at + size])
            before = len(split(case.text).chunks)
            if attempt(lambda: cut(case, group)) and len(split(case.text).chunks) < before:
                progress = True
                names = [c.results[0] for c in split(case.text).chunks]
            else:
                at += size
        if size == 1 and not progress:
            break
        size = max(1, size // 2)
    for weight in list(case.marks):
        attempt(lambda: changed(marks={w: m for w, m in case.marks.items() if w != weight}))
    return case
