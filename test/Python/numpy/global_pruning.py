# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Gradual pruning by one threshold over several weights, in steps and in sparse-train, beside its definition in NumPy.

# RUN: rm -rf %t && mkdir %t
# RUN: %numpy_python -u %s %t | FileCheck %s

import json
import pathlib
import subprocess
import sys

import numpy as np

import sparse_opt
import two_weights
from refusals import refuse
from sparse_opt import Sparsity

folder = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 16)).astype(np.float32) / 8
TEXT = two_weights.text()


def norms_of(step, score):
    """The norm of each stored block, by the weight and the number of the block."""
    found = {}
    for i, name in enumerate(step.patterns):
        held, values = step.blocks(name), np.abs(np.array(step.arrays[name], np.float64))
        for r, c, s in zip(held.rows, held.col_idx, held.slot):
            block = values[s]
            norm = {"l1": block.sum(), "mean": block.mean(), "l2": np.sqrt((block**2).sum()), "linf": block.max()}[score]
            found[i, int(r) * (step.patterns[name].cols // step.patterns[name].block_cols) + int(c)] = norm
    return found


def prune(norms, left):
    """Which blocks stay: the lowest of all go, of equal ones the first, but none that is the last of its weight."""
    order = sorted(norms, key=lambda key: (norms[key], key))
    last = {max((k for k in norms if k[0] == i), key=lambda key: (norms[key], key)) for i in {i for i, _ in norms}}
    goes = [key for key in order if key not in last][: max(0, len(norms) - left)]
    return set(norms) - set(goes)


# CHECK: as defined in 24 updates, densities of both weights {{0\.[0-9]+}} to {{0\.[0-9]+}} apart
count, apart = 0, []
for block, score in ((1, "l1"), (2, "l2"), (4, "linf"), (8, "mean")):
    library = f"{folder}/{block}.so"
    sparse_opt.compile(TEXT, [f"match=^[ab]$ block={block}x{block} density=0.75"], options=["-O", "1"], library=library)
    step, group = sparse_opt.Step(library, seed=block), {
        "method": "gmp", "distribution": "global", "density": 0.2, "every": 2, "begin": 2, "end": 12, "score": score}
    sparsity = Sparsity(step, group, steps=20)
    all_blocks = sum(p.blocks for p in step.patterns.values())
    start = sum(len(step.blocks(n).slot) for n in step.patterns) / all_blocks
    for s in range(1, 15):
        step(x=x[:16], lr=0.02)
        if s == 1:
            step.write("b", np.array(step.read("b")) * np.float32(0.6))
        norms = norms_of(step, score)
        changed = sparsity.update()
        if s % 2 or s > 12:
            assert not changed
            continue
        density = 0.2 + (start - 0.2) * (1 - (s - 2) / 10) ** 3
        left = int(density * all_blocks + 0.5)
        assert norms_of(step, score).keys() == prune(norms, left), (block, s)
        assert all(np.isclose(d, left / all_blocks) for d in sparsity.due(s).values())
        assert changed["pruned"] == len(norms) - left
        count += 1
        # A run that goes on from a checkpoint takes the same blocks.
        if s == 6:
            sparsity.save(f"{folder}/{block}.bsr")
    other = sparse_opt.Step(library, seed=block)
    resumed = Sparsity(other, group, steps=20)
    resumed.load(f"{folder}/{block}.bsr")
    for s in range(7, 15):
        other(x=x[:16], lr=0.02)
        resumed.update()
    for name in step.patterns:
        one, two = step.blocks(name), other.blocks(name)
        assert np.array_equal(one.col_idx, two.col_idx) and np.array_equal(one.slot, two.slot)
        for array in (name, f"{name}.m"):
            assert np.array_equal(step.arrays[array][one.slot], other.arrays[array][one.slot])
    densities = [len(step.blocks(n).slot) / p.blocks for n, p in step.patterns.items()]
    apart.append(abs(densities[0] - densities[1]))
print(f"as defined in {count} updates, densities of both weights {min(apart):.2f} to {max(apart):.2f} apart")

# CHECK-NEXT: sparse-train: 128 of 512 blocks, as a whole run and as one that is resumed
(folder / "two.mlir").write_text(TEXT)
(folder / "data").mkdir()
np.save(folder / "data/x.npy", x)


def train(run, *more):
    settings = [f"step={folder}/two.mlir", "task=arrays", f"data={folder}/data", f"run={folder}/{run}", "rate.peak=0.02",
                'compile.options=["--mark=match=^[ab]$ block=1x1 density=0.75"]', "held_out.every=0", "checkpoint.every=10",
                "sparsity.method=gmp", "sparsity.distribution=global", "sparsity.density=0.25", "sparsity.every=4", "sparsity.end=18", "steps=20", *more]
    command = ["sparse-train", *(word for s in settings for word in ("--set", s))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in open(f"{folder}/{run}/metrics.jsonl")]


lines = train("whole")
last = [line for line in lines if "weight_density" in line][-1]["weight_density"]
stored = last["a"] * 384 + last["b"] * 128
assert abs(last["a"] - last["b"]) > 0.01, last
whole = (folder / "whole/checkpoint-000000020.safetensors").read_bytes()
(folder / "whole/checkpoint-000000020.safetensors").unlink()
subprocess.run(["sparse-train", "--resume", f"{folder}/whole"], check=True, capture_output=True)
assert whole == (folder / "whole/checkpoint-000000020.safetensors").read_bytes()
print(f"sparse-train: {stored:.0f} of 512 blocks, as a whole run and as one that is resumed")

# CHECK-NEXT: expected configuration key 'sparsity.distribution' to be uniform, erk or er for another method than gmp, which ranks the blocks of several weights, but got global
# CHECK-NEXT: expected blocks of one size in the group 'sparsity' with distribution global, but got 2x2 of 'a' and 4x4 of 'b'
refuse(Sparsity, step, {"distribution": "global", "density": 0.5}, steps=3)
step = sparse_opt.compile(TEXT, ["match=^a$ block=2x2 density=1", "match=^b$ block=4x4 density=1"], options=["-O", "1"])
refuse(Sparsity, step, {"method": "gmp", "distribution": "global", "density": 0.5, "every": 1}, steps=3)
