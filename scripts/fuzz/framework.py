# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs of both frameworks need: their data, masks, and the comparison of a compiled step with its framework.

A framework's own part (framework_jax, framework_torch) is a module that programs import everything from, with

  export(program)            the exported step
  begin, call, state         of the compiled step
  reference                  the framework's own run of all steps
"""

import os
import tempfile
import traceback
import warnings

import numpy as np
import sparse_opt
from sparse_opt import ExportError, StepError

from fuzz import check
from fuzz.rounding import NUM_RUNS

# How many times what is allowed an error may be: runs of a framework do not change each result by a roundoff.
LIMIT = 4.0
RUNS = NUM_RUNS - 1  # of the framework in float64, of which the first is exact
ROUNDED_RUNS = 3  # in float32, where rounding decides


def draw(seed, shapes):
    """Arrays by name, of specifications `(shape, kind, ...)`."""
    arrays = {}
    for name, (shape, kind, *rest) in shapes.items():
        random = np.random.default_rng([seed, *name.encode()])
        if kind == "normal":
            arrays[name] = (random.standard_normal(shape) * (rest[0] if rest else 1.0)).astype(np.float32)
        elif kind == "special":
            data = random.standard_normal(shape).astype(np.float32)
            data.reshape(-1)[random.integers(data.size, size=max(1, data.size // 20))] = float(rest[0])
            arrays[name] = data
        else:
            arrays[name] = random.integers(rest[0], rest[1], shape).astype(kind)
    return arrays


def disturb(array, run, key, scale=1.0):
    """An array of one of the reference's runs: by a roundoff away, but for the first run."""
    array = np.asarray(array)
    if array.dtype.kind != "f" or run == 0:
        return array
    noise = np.random.default_rng([run, *key.encode()]).uniform(-1, 1, array.shape)
    return array * (1 + 2.0**-24 * scale * (4 if run == RUNS - 1 else 1) * noise)


def compile_step(export, program, folder):
    """The compiled step, and whether the compiler warned of a gradient. Exceptions of check.Refused say how it ended."""
    library = os.path.join(folder, "step.so")
    arguments = [*program.OPTIONS, *(f"--mark={mark}" for mark in program.MARKS)]
    errors = check.run_compiler(arguments, str(export), library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unsure = check.is_unsure(errors)
        # The step compares itself with the program, too.
        runs = 0 if unsure else 2
        step = sparse_opt.Step(library, export.program, seed=program.SEED, pattern="random", check=runs)
    return step, unsure


def masks_of(step, names):
    """Which entries of each weight are stored, by writing ones; `names` are those that the step has for them. What the
    step does not read is whole."""
    masks = {}
    for weight, name in names.items():
        if name not in step.buffers and name not in step.origins:
            masks[weight] = np.ones((), bool)
            continue
        kept = step.read(name)
        step.write(name, np.ones_like(kept))
        masks[weight] = step.read(name) != 0
        step.write(name, kept)
    return masks


def compare(got, runs):
    """How much larger the largest error is than what is allowed, by name of result."""
    ratios = {}
    for name, array in got.items():
        array, wanted = np.asarray(array), runs[name]
        if array.shape != wanted.shape[1:]:
            return {name: float("inf")}
        kind = "f32" if array.dtype.kind == "f" else "i32"
        ratio = check.compare(array, wanted, kind)
        if kind == "f32":
            # What all runs agree on that it is no number is none.
            same = (np.isnan(wanted).all(0) & ~np.isnan(array)) | (np.isinf(wanted).all(0) & (array != wanted[0]))
            ratio = float("inf") if same.any() else ratio
        ratios[name] = ratio
    return ratios


def worst_of(ratios):
    return max(ratios.values(), default=0.0)


def run(program, framework):
    """What is wrong with a program, as (kind, message) or None, and notes."""
    notes = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            export = framework.export(program)
        except ExportError as error:
            return ("refused", str(error)), notes
        except Exception:
            return ("raised", traceback.format_exc(limit=-2)), notes
    with tempfile.TemporaryDirectory() as folder:
        try:
            step, notes["unsure"] = compile_step(export, program, folder)
        except check.Refused as refused:
            return (refused.kind, str(refused)), notes
        except StepError as error:
            # The compiler is content: a library that does not load is no refusal.
            return ("library", str(error)), notes
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            wrong = follow(program, framework, step, notes)
        notes["unchecked"] = any("runs unchecked" in str(m.message) for m in messages)
        return wrong, notes


def is_unstable(runs):
    """Whether the last states of runs that differ by roundings are a hundredth of a weight apart."""
    with np.errstate(all="ignore"):
        return any(np.ptp(a, axis=0).max() > 0.01 * np.abs(a).max() for a in map(np.asarray, runs.values())
                   if a.dtype.kind == "f" and a.size)


def follow(program, framework, step, notes):
    """Runs the compiled step beside the framework's."""
    notes["left_dense"] = step.products["left_dense"]
    names = framework.weight_names(program)
    masks = masks_of(step, names)
    framework.begin(program, step, masks)
    got, kept, seen = [], [], [masks]
    for phase, steps in enumerate(program.STEPS):
        if phase:
            step.update_patterns(0.3)
            masks = masks_of(step, names)
            seen.append(masks)
        for _ in range(steps):
            got.append(framework.call(program, step))
    got.append(framework.state(program, step))
    if notes["unsure"]:
        return None
    for scale in (1.0, 8.0, 64.0):
        # Where a maximum hides what roundings do, runs that change more show it.
        wanted = framework.reference(program, seen, scale)
        worst = [compare(a, b) for a, b in zip(got, wanted)]
        if max(map(worst_of, worst)) <= LIMIT:
            break
    largest = max(map(worst_of, worst))
    notes["unstable"] = largest > LIMIT and is_unstable(wanted[-1])
    if notes["unstable"]:
        return None  # Nothing can be asked of it.
    notes["worst"] = largest
    for i, ratios in enumerate(worst):
        wrong = sorted(((ratio, name) for name, ratio in ratios.items() if ratio > LIMIT), reverse=True)
        if wrong:
            where = f"step {i + 1}" if i < sum(program.STEPS) else "the last state"
            return "wrong", f"errors beyond what is allowed in {where}: " + ", ".join(
                f"{name} by {ratio:.3g}" for ratio, name in wrong[:4])
    return None
