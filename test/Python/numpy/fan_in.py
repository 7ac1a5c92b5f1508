# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# First values of steps for the fan-in that a pattern stores, by sparse_opt.Sparsity and by sparse-train, beside their
# definition in NumPy.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %S/../../Tools/Inputs/write-text.py %t/text 40
# RUN: sparse-train tokenize --vocabulary 400 --output %t/text.tok %t/text
# RUN: %build_step -o %t/step.so
# RUN: %numpy_python -u %s %t %S/../../Tools/Inputs/train.yaml | FileCheck %s

import subprocess
import sys

import numpy as np

import sparse_opt
import two_weights
from refusals import refuse
from sparse_opt import Sparsity

folder, config = sys.argv[1:]


def factors(mask, fan_in):
    """By what the blocks of a mask are multiplied: the root of the dense fan-in of an output over that which is stored."""
    found = np.ones(mask.shape)
    for r, c in np.argwhere(mask):
        line = mask[r] if fan_in == "rows" else mask[:, c]
        found[r, c] = np.sqrt(len(line) / line.sum())
    return found


def blocks_of(step, name):
    """The values of a weight by the places of their blocks."""
    held, values = step.blocks(name), np.array(step.arrays[name])
    return {(int(r), int(c)): values[s] for r, c, s in zip(held.rows, held.col_idx, held.slot)}


# Every block size, density and direction, empty rows and columns among them; moments stay.
# CHECK: 36 weights as defined, 6 empty lines
count = empty = 0
for block in ("1x1", "2x4", "8x8"):
    library = f"{folder}/{block}.so"
    sparse_opt.compile(two_weights.text(), [f"match=^[ab]$ block={block} density=1"], options=["-O", "1"], library=library)
    for density in (0.05, 0.4, 1.0):
        found = {}
        for fan_in in ("dense", "rows", "columns"):
            step = sparse_opt.Step(library, seed=4)
            Sparsity(step, {"density": density, "fan_in": fan_in}, steps=10)
            found[fan_in] = step, {name: blocks_of(step, name) for name in "ab"}
        for fan_in in ("rows", "columns"):
            step, weights = found[fan_in]
            for name, blocks in weights.items():
                before = found["dense"][1][name]
                assert before.keys() == blocks.keys()
                p = step.patterns[name]
                mask = np.zeros((p.rows // p.block_rows, p.cols // p.block_cols), bool)
                mask[tuple(zip(*blocks))] = True
                empty += (not mask.any(1).all()) + (not mask.any(0).all()) if fan_in == "rows" and block == "8x8" else 0
                by = factors(mask, fan_in)
                for place, values in blocks.items():
                    want = before[place].astype(np.float64) * by[place]
                    assert np.all(np.abs(values - want) <= np.abs(want) * np.finfo(np.float32).eps), (block, density, fan_in)
                    assert density < 1 or np.array_equal(values, before[place])
                assert not np.array(step.arrays[f"{name}.m"]).any()
                count += 1
print(f"{count} weights as defined, {empty} empty lines")

# sparse-train begins with the same.
# CHECK-NEXT: sparse-train: the same 2 weights
same = 0
for fan_in in ("rows", "columns"):
    settings = [f"step={folder}/step.so", f"tokens={folder}/text.tok", f"run={folder}/{fan_in}", "steps=1", "rate.peak=1e-30",
                "rate.warmup=0", "sparsity.every=0", "sparsity.density=0.2", f"sparsity.init.fan_in={fan_in}", "checkpoint.every=1"]
    command = ["sparse-train", "--config", config, *(word for s in settings for word in ("--set", s))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    run, here = (sparse_opt.Step(f"{folder}/step.so") for _ in range(2))
    run.load(f"{folder}/{fan_in}/checkpoint-000000001.safetensors")
    Sparsity(here, {"density": 0.2, "fan_in": fan_in}, steps=1)
    other = sparse_opt.Step(f"{folder}/step.so")
    Sparsity(other, {"density": 0.2}, steps=1)
    found, want, plain = (blocks_of(s, "state.w") for s in (run, here, other))
    assert found.keys() == want.keys() == plain.keys()
    assert all(np.array_equal(found[place], want[place]) for place in want)
    same += any(not np.array_equal(plain[place], want[place]) for place in want)
print(f"sparse-train: the same {same} weights")

# CHECK-NEXT: expected configuration key 'sparsity.fan_in' to be one of dense, rows, columns, but got 'stored'
# CHECK-NEXT: expected configuration key 'sparsity.fan_in' to be dense for init largest, whose values are those of dense weights, but got rows
step = sparse_opt.Step(f"{folder}/8x8.so")
refuse(Sparsity, step, {"fan_in": "stored"}, steps=3)
refuse(Sparsity, step, {"init": "largest", "fan_in": "rows"}, steps=3)
