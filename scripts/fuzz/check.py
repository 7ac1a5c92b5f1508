# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles a step, runs it on patterns of all kinds, and compares it with the reference."""

import dataclasses
import json
import math
import os
import resource
import signal
import subprocess
import tempfile

import numpy as np
import step  # of test/Integration: loads and runs compiled steps

from fuzz import parser
from fuzz.interpreter import Interpreter, Unstable
from fuzz.rounding import NUM_RUNS, is_float, tolerance

COMPILE_SECONDS = 60  # of a processor


@dataclasses.dataclass
class Case:
    """A step with all that decides what it computes."""

    seed: int
    text: str
    arrays: dict  # by name of argument, dense, in float64 or integers
    marks: dict  # weight -> programs.Mark as a dictionary
    gradients: dict  # weight -> name of the value that is its gradient
    follows: dict  # argument -> weight whose pattern it has
    options: list  # of sparse-compile
    threads: list
    steps: int = 2
    full: bool = False  # every block is stored
    scores: str = ""
    special: bool = False
    inner: dict = dataclasses.field(default_factory=dict)  # name of a gradient that is no update -> its weight


class Refused(Exception):
    """The compiler said no, crashed or hung: `kind`, and what it said."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def draw_options(random):
    """Options of sparse-compile: levels, vectors, registers, attention."""
    # Mostly without LLVM's optimizer, which takes most of the time: it is not what is tested.
    options = [f"-O{int(random.choice([0, 0, 0, 0, 0, 0, 0, 1, 2, 3]))}", "--verify-each"]
    if random.random() < 0.5:
        options.append(f"--vector-bits={int(random.choice([128, 256, 512]))}")
        options.append(f"--num-registers={int(random.choice([8, 16, 32]))}")
    if random.random() < 0.6:
        # Sequences are short here, and attention to few keys stays as it is.
        options.append("--attention-keys=1")
    return options


def make_case(program, variant=0):
    """The program with random options; variants 1 and 2 store every block, and mark nothing."""
    random = np.random.default_rng([program.seed, variant, 11])
    # Scores are those of a product: only where it is all of the gradient.
    product = not {"unmasked", "reparameterized", "inner"} & program.classes and "loss.decay" not in program.features
    marks = {} if variant == 2 else {name: dataclasses.asdict(m) for name, m in program.marks.items()}
    for mark in marks.values():
        mark["density"] = 1.0 if variant == 1 else mark["density"]
    case = Case(
        seed=program.seed, text=program.text, arrays={a.name: a.data for a in program.arguments}, marks=marks,
        gradients=program.gradients, follows={a.name: a.follows for a in program.arguments if a.follows},
        options=draw_options(random), threads=[1, int(random.integers(2, 9))], steps=int(random.choice([1, 2, 3])),
        full=variant == 1, special=program.special, inner=program.inner,
        scores=str(random.choice(["l1", "l2", "linf"])) if random.random() < 0.2 and product and variant == 0 else "")
    if case.special and case.scores == "l2":
        case.scores = "l1"  # squares have another range
    if not any("bits" in option for option in case.options) and random.random() < 0.2:
        case.options.append("--target=scalar")
    return case


# Patterns.

@dataclasses.dataclass
class Stored:
    """Which blocks of a matrix are stored, and in which slots; `place` is where in its weight it lies."""

    weight: str
    place: tuple
    block: tuple
    mask: np.ndarray
    order: np.ndarray


def place_of(buffer):
    """The argument of the program that a buffer is of, and where in it."""
    origin = buffer.get("origin") or {"name": buffer["name"], "offsets": [], "sizes": []}
    return origin["name"], tuple(slice(at, at + size) for at, size in zip(origin["offsets"], origin["sizes"]))


def whole_patterns(case):
    """The patterns of a step that takes no slices of its weights, as its manifest would have them."""
    for name, mark in case.marks.items():
        dims, shape = mark["dims"].split(","), case.arrays[name].shape
        extents = lambda kind: [e for e, d in zip(shape, dims) if d == kind]
        rows, columns = math.prod(extents("row")), math.prod(extents("col"))
        total = rows * columns // math.prod(mark["block"])
        for i, at in enumerate(np.ndindex(*extents("stack"))):
            yield {"name": f"{name}.{i}" if at else name, "shape": [rows, columns],
                   "slots": min(total, max(1, round(mark["density"] * total)))}, (name, tuple(slice(j, j + 1) for j in at))


def known_patterns(manifest):
    """The patterns of a compiled step, with the places of their weights."""
    for i, pattern in enumerate(manifest["patterns"]):
        yield pattern, place_of(next(b for b in manifest["buffers"] if b["kind"] == "values" and b["pattern"] == i))


def draw_pattern(random, grid, slots, full):
    """Which blocks are stored, and in which slots."""
    total, rows = grid[0] * grid[1], grid[0]
    mask = np.zeros(grid, bool)
    kind = random.choice(["random", "random", "random", "slots", "one", "empty", "rows"])
    if full:
        mask[...] = True
    elif kind == "rows":
        # Full rows and empty ones.
        for row in random.permutation(rows)[:slots // grid[1]]:
            mask[row] = True
    elif kind != "empty":
        count = {"random": int(random.integers(0, slots + 1)), "slots": slots, "one": 1}[kind]
        mask.reshape(-1)[random.permutation(total)[:count]] = True
    return mask, random.permutation(slots)[:int(mask.sum())]


def draw_patterns(case, manifest=None):
    """The stored blocks of each pattern of the compiled step, by its name; without one, of each marked matrix."""
    patterns = {}
    for pattern, (weight, place) in known_patterns(manifest) if manifest else whole_patterns(case):
        mark = case.marks[weight]
        random = np.random.default_rng([case.seed, 13, *pattern["name"].encode()])
        grid = tuple(extent // size for extent, size in zip(pattern["shape"], mark["block"]))
        # A static pattern is compiled in: its slots are the blocks that are drawn here.
        slots = max(1, round(mark["density"] * math.prod(grid))) if mark["static"] else pattern["slots"]
        mask, order = draw_pattern(random, grid, slots, case.full)
        if mark["static"]:
            mask[0, 0] |= not mask.any()
            order = np.arange(mask.sum())
        patterns[pattern["name"]] = Stored(weight, place, tuple(mark["block"]), mask, order)
    return patterns


def element_masks(case, patterns):
    """For each marked weight the mask of its entries."""
    masks = {name: np.zeros(case.arrays[name].shape, bool) for name in case.marks}
    for stored in patterns.values():
        part = masks[stored.weight][stored.place]
        part[...] = (np.kron(stored.mask, np.ones(stored.block)) > 0).reshape(part.shape)
    return masks


# The compiled step.

def compile_step(case, folder):
    """The library of a case, and whether the compiler warns that it did not find a gradient for sure."""
    arguments, library = list(case.options), os.path.join(folder, "step.so")
    patterns = draw_patterns(case)
    for name, mark in case.marks.items():
        block = "x".join(map(str, mark["block"]))
        if mark["static"]:
            path = os.path.join(folder, f"{name}.json")
            arrays = step.views(patterns[name].mask)
            with open(path, "w") as file:
                json.dump({"format": "bsr-pattern", "version": 1, "shape": list(case.arrays[name].shape),
                           "block": list(mark["block"]), "row_ptr": arrays["row_ptr"].tolist(),
                           "col_idx": arrays["col_idx"].tolist()}, file)
            arguments.append(f"--mark=match=^{name}$ pattern={path}")
        else:
            dims = "" if mark["dims"] == "row,col" else f" dims={mark['dims']}"
            arguments.append(f"--mark=match=^{name}$ block={block} density={mark['density']:.9f}{dims}")
    if case.scores:
        arguments.append(f"--score-norm={case.scores}")
    return library, is_unsure(run_compiler(arguments, case.text, library))


def run_compiler(arguments, text, library):
    """What sparse-compile says of `text`, of which it makes `library`."""
    # A limit from outside: a process with threads, as frameworks have, had better not fork Python itself.
    process = subprocess.Popen(["sparse-compile", *arguments, "-o", library, "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (COMPILE_SECONDS, 2 * COMPILE_SECONDS))
    _, said = process.communicate(text)
    if process.returncode == -signal.SIGXCPU:
        raise Refused("hang", f"expected to compile within {COMPILE_SECONDS} s of a processor")
    if process.returncode:
        errors = [line for line in said.splitlines() if "error:" in line] or said.splitlines()[:3]
        crashed = process.returncode < 0 or process.returncode >= 128 or "Stack dump" in said
        raise Refused("crash" if crashed else "refused", errors[0] if errors else f"exit code {process.returncode}")
    return said


def is_unsure(errors):
    """Whether the compiler warns that it did not find a gradient for sure."""
    return "warning: expected to find the gradient of" in errors


def weight_of(name, case):
    """The marked weight that an argument is, or follows."""
    return name if name in case.marks else case.follows.get(name, "") if case.follows.get(name) in case.marks else ""


def store(array, kind):
    if kind == "bf16":
        return step.to_bf16(array)
    return array.astype(step.TYPES[kind])


def load(array, kind):
    return step.from_bf16(array).astype(np.float64) if kind == "bf16" else array


class Compiled:
    """The library of a case, and its inputs."""

    def __init__(self, case, folder):
        library, self.is_unsure = compile_step(case, folder)
        self.step, self.steps = step.Step(library), case.steps
        self.manifest = self.step.manifest
        self.patterns = draw_patterns(case, self.manifest)
        self.element_masks = element_masks(case, self.patterns)
        self.masks, self.orders, self.arrays = {}, {}, {}
        for buffer in self.manifest["buffers"]:
            if buffer["kind"] in step.VIEWS:
                stored = self.patterns[buffer["name"]]
                self.masks[buffer["name"]], self.orders[buffer["name"]] = stored.mask, stored.order
            elif buffer["kind"] in ("output", "scores"):
                continue
            elif buffer["kind"] == "values":
                self.arrays[buffer["name"]] = self.to_values(buffer, case)
            else:
                name, weight = buffer["name"], weight_of(buffer["name"], case)
                data = case.arrays[name]
                if weight:
                    data = np.where(self.element_masks[weight], data, 0.0)
                self.arrays[name] = store(data, buffer["type"]).reshape(buffer["shape"])

    def pattern_of(self, buffer):
        return self.patterns[self.manifest["patterns"][buffer["pattern"]]["name"]]

    def to_values(self, buffer, case):
        name, place = place_of(buffer)
        stored = self.pattern_of(buffer)
        rows, columns = self.manifest["patterns"][buffer["pattern"]]["shape"]
        values = step.to_values(case.arrays[name][place].reshape(rows, columns), stored.mask, stored.block,
                                buffer["shape"][0], stored.order)
        return store(values, buffer["type"])

    def run(self, threads, entry="bsr_step_run"):
        return self.step.run(self.arrays, self.masks, self.orders, threads=threads, steps=self.steps, entry=entry)


# The reference.

def reference(case, masks, seed=0, scale=1.0):
    """The arguments that the steps leave and the results of the last one, by name, with an axis of runs;
    their element types; the gradients before they are masked; all values of the last step."""
    function = parser.parse(case.text)
    of_value = {value: masks[w] for value, w in case.inner.items() if w in case.marks}
    of_value |= {case.gradients[w]: masks[w] for w in case.marks if w in case.gradients}
    interpreter = Interpreter(function, of_value, case.seed + seed, scale)
    state, carried, outputs = {}, {}, {}
    for name, _, attributes in function.arguments:
        state[attributes["bsr.name"]] = case.arrays[attributes["bsr.name"]][None]
        if "bsr.result" in attributes:
            carried[attributes["bsr.result"]] = attributes["bsr.name"]

    def mask():
        for name, value in state.items():
            weight = weight_of(name, case)
            if weight:
                state[name] = np.where(masks[weight], value, 0.0)

    mask()
    for _ in range(case.steps):
        results = interpreter.run([state[a["bsr.name"]] for _, _, a in function.arguments])
        for i, (result, (_, attributes)) in enumerate(zip(results, function.results)):
            result = np.broadcast_to(result, (NUM_RUNS,) + result.shape[1:])
            if i in carried:
                state[carried[i]] = result
            else:
                outputs[attributes["bsr.name"]] = result
        mask()
    kinds = {a["bsr.name"]: t.kind for _, t, a in function.arguments}
    kinds |= {a["bsr.name"]: t.kind for t, a in function.results if "bsr.name" in a}
    wanted = outputs | {name: state[name] for name in carried.values()}
    unmasked = {w: interpreter.unmasked.get(g) for w, g in case.gradients.items()}
    return wanted, kinds, unmasked, interpreter.values


def compare(got, runs, kind, where=None):
    """How much larger the largest error is than what is allowed; 0 if there is nothing to compare."""
    if not is_float(kind):
        stable = (runs == runs[:1]).all(0)
        return float("inf") if (stable & (got != runs[0])).any() else 0.0
    bound = tolerance(runs, kind)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - runs[0]) / np.maximum(bound, 1e-320)
    error = np.where(np.isnan(error) & np.isfinite(bound), np.inf, error)
    error = np.where(np.isfinite(bound), error, 0.0)
    if where is not None:
        error = error[where]
    return float(error.max()) if error.size else 0.0


def find_errors(case, compiled, run, wanted, kinds):
    """How much larger the largest error of each result is than what is allowed, by the buffer's name."""
    errors = {}
    for buffer in compiled.manifest["buffers"]:
        kind = buffer["kind"]
        if not (buffer["carried"] or kind == "output"):
            continue
        name, place = place_of(buffer)
        array = load(run[buffer["name"]], buffer["type"])
        expected, weight = wanted[name], weight_of(name, case)
        if kind == "values":
            stored = compiled.pattern_of(buffer)
            dense = step.to_dense(np.asarray(array, np.float64), stored.mask, stored.order)
            expected = expected[(slice(None), *place)].reshape(NUM_RUNS, *dense.shape)
            ratio = compare(dense, expected, kinds[name], np.kron(stored.mask, np.ones(stored.block)) > 0)
        else:
            where = compiled.element_masks[weight] if weight else None
            ratio = compare(array.reshape(expected.shape[1:]), expected, kinds[name], where)
        errors[buffer["name"]] = ratio
    return errors


def get_bits(array):
    """The bytes of an array with one NaN: which of two operands' a processor hands on is not defined."""
    if array.dtype == np.uint16:  # bf16
        return np.where((array & 0x7FFF) > 0x7F80, np.uint16(0x7FC0), array).tobytes()
    return np.where(np.isnan(array), array.dtype.type(np.nan), array).tobytes() if array.dtype.kind == "f" \
        else array.tobytes()


def check(case):
    """What is wrong with a case, as (kind, message, details), or None; and notes."""
    notes = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            compiled = Compiled(case, folder)
        except Refused as refused:
            return (refused.kind, str(refused), {}), notes
        except OSError as error:
            return ("library", f"expected a library that loads, but got {error}", {}), notes
        try:
            wanted, kinds, unmasked, _ = reference(case, compiled.element_masks)
        except Unstable:
            wanted = None
            notes["unstable"] = 1
        runs = [compiled.run(threads) for threads in case.threads]
        has_scores = any(b["kind"] == "scores" for b in compiled.manifest["buffers"])
        scored = compiled.run(case.threads[0], "bsr_step_run_scores") if has_scores else None
    notes["left_dense"] = compiled.manifest["left_dense"]
    for name, array in runs[0].items():
        if name.startswith("scores."):
            continue  # not written
        if get_bits(array) != get_bits(runs[1][name]):
            return ("threads", f"{name} depends on the number of threads {case.threads}", {"name": name}), notes
        if scored and get_bits(array) != get_bits(scored[name]):
            return ("scores", f"{name} depends on whether scores are computed", {"name": name}), notes
    notes["unsure"] = compiled.is_unsure
    if wanted is None or compiled.is_unsure:
        return None, notes
    details = find_errors(case, compiled, runs[0], wanted, kinds)
    worst = max(details.values(), default=0.0)
    # Where a maximum hides what roundings do, runs that change more show it.
    for trial in range(3):
        if worst <= 1:
            break
        try:
            wanted, _, _, _ = reference(case, compiled.element_masks, seed=trial + 1, scale=4.0 * 2.0**trial)
        except Unstable:
            notes["unstable"] = 1
            return None, notes
        again = find_errors(case, compiled, runs[0], wanted, kinds)
        details = {name: min(ratio, again[name]) for name, ratio in details.items()}
        worst = max(details.values())
    notes["worst"] = worst
    wrong = sorted(((ratio, name) for name, ratio in details.items() if ratio > 1), reverse=True)
    if wrong:
        message = ", ".join(f"{name} by {ratio:.3g}" for ratio, name in wrong[:4])
        return ("wrong", f"errors beyond what is allowed: {message}", {"names": [name for _, name in wrong]}), notes
    if scored:
        wrong = check_scores(case, compiled, scored, unmasked, notes)
        if wrong:
            return wrong, notes
    return None, notes


def check_scores(case, compiled, scored, unmasked, notes):
    """The norms of the blocks of the last step's gradients."""
    for buffer in compiled.manifest["buffers"]:
        if buffer["kind"] != "scores":
            continue
        stored = compiled.patterns[buffer["name"]]
        weight, gradient = stored.weight, unmasked.get(stored.weight)
        if gradient is None:
            continue
        gradient = np.broadcast_to(gradient, (NUM_RUNS,) + gradient.shape[1:])
        (br, bc), (grid_rows, grid_cols) = stored.block, stored.mask.shape
        gradient = gradient[(slice(None), *stored.place)]
        blocks = np.abs(gradient.reshape(NUM_RUNS, grid_rows, br, grid_cols, bc))
        norms = {"l1": lambda b: b.sum((2, 4)), "l2": lambda b: np.sqrt((b * b).sum((2, 4))),
                 "linf": lambda b: b.max((2, 4))}[case.scores](blocks)
        notes["scores"] = notes.get("scores", 0) + 1
        # Scores are in f32, of gradients in f64, too.
        norms = np.where(norms > np.finfo(np.float32).max, np.inf, norms)
        ratio = compare(scored["scores." + buffer["name"]], norms, "f32")
        if ratio > 4:
            return ("scores", f"scores of {buffer['name']} are beyond what is allowed by {ratio:.3g}", {})
    return None
