# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""sparse-run on random steps, after every pass up to kernels, against numpy in float64.

Random steps are those of scripts/fuzz-steps, with patterns of all kinds and slots without a
block. What a step computes after each pass must agree with the interpreter of scripts/fuzz, which
knows masks and neither the dialect nor a pass, within what the roundings of f32 may do: constants are
rounded. The compiled step is compared with the latter elsewhere.
"""

import os
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "test", "Integration")]
os.environ |= {"OPENBLAS_NUM_THREADS": "1"}
import step  # noqa: E402
import tensor_file  # noqa: E402
from fuzz import check, programs  # noqa: E402


def stages(text, marks, options):
    """The module after each pass of bsr-to-cpu while it is on tensors: (pass, text), each text once."""
    dump = subprocess.run(["sparse-opt", *marks, f"--bsr-to-cpu={options}", "--dump-pass-pipeline"],
                          input="module {}", capture_output=True, text=True).stderr
    passes = dump[dump.index("builtin.module("):dump.index("bsr-panel")].strip().rstrip(",") + ")"
    done = subprocess.run(
        ["sparse-opt", f"--pass-pipeline={passes}", "--mlir-print-ir-after-all", "--mlir-print-ir-module-scope",
         "--mlir-disable-threading", "-o", os.devnull, "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    seen = {}
    for name, module in re.findall(r"^// -----// IR Dump After [^\n]*? \(([-\w]+)\)[^\n]* //----- //\n(.*?^}\n)",
                                   done.stderr, re.M | re.S):
        seen.setdefault(module, name)
    return [(name, module) for module, name in seen.items()]


def run(text, values, folder):
    result = os.path.join(folder, "results.safetensors")
    done = subprocess.run(["sparse-run", "--values", values, "-o", result], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tensor_file.read_arrays(result)


def as_doubles(arrays):
    return {name: np.asarray(array, np.float64 if np.asarray(array).dtype.kind == "f" else None)
            for name, array in arrays.items()}


def check_case(case, folder):
    """Runs the stages of a case; how many there were, or None for one whose weights the compiler takes apart."""
    case.steps = 1
    if any(mark["static"] or mark["dims"] != "row,col" or case.arrays[name].ndim != 2 for name, mark in case.marks.items()):
        return None
    patterns = check.draw_patterns(case)
    masks = check.element_masks(case, patterns)
    wanted, kinds, _, _ = check.reference(case, masks)
    slots = {pattern["name"]: pattern["slots"] for pattern, _ in check.whole_patterns(case)}
    dense, stored = {}, {}
    for name, data in case.arrays.items():
        weight = check.weight_of(name, case)
        dense[name] = stored[name] = np.where(masks[weight], data, 0) if weight else data
        if weight:
            pattern = patterns[weight]
            stored[name] = step.to_values(data.astype(np.float64), pattern.mask, pattern.block, slots[weight], pattern.order)
    for name, pattern in patterns.items():
        views = step.views(pattern.mask, slots[name], pattern.order)
        stored |= {f"{name}.bsr.{part}": views[part] for part in ("row_ptr", "col_idx", "slot")}
    paths = {kind: os.path.join(folder, kind) for kind in ("dense", "stored")}
    tensor_file.write_arrays(paths["dense"], as_doubles(dense))
    tensor_file.write_arrays(paths["stored"], as_doubles(stored))
    marks = [f"--bsr-mark=match=^{name}$ block={'x'.join(map(str, mark['block']))} density={mark['density']:.9f}"
             for name, mark in case.marks.items()]
    count = 0
    for stage, module in stages(case.text, marks, f"score-norm={case.scores}" if case.scores else ""):
        is_bound = "!bsr.pattern" in module
        if case.marks and not is_bound:
            continue  # the gradient is not masked yet
        if "bsr.origin" in module:
            return None
        results = run(module, paths["stored" if is_bound else "dense"], folder)
        for name, got in results.items():
            if name.startswith("scores."):
                continue
            weight = check.weight_of(name, case)
            if weight:
                got = step.to_dense(got, patterns[weight].mask, patterns[weight].order)
            ratio = check.compare(got, wanted[name], kinds[name], masks.get(weight))
            assert ratio < 1, (case.seed, stage, name, ratio)
        count += 1
    return count


def main(seeds):
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            program = programs.generate(seed, {"features": 16, "tokens": 7, "layers": 1})
            count = check_case(check.make_case(program), folder)
            print(f"seed {seed}: " + (f"{count} stages agree" if count else "left out"))


if __name__ == "__main__":
    main(range(*map(int, sys.argv[1:])))
