# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RigL by the scores of several steps: a loop against its definition in float64, the method of
# examples/methods.py bit for bit, and runs that go on from a checkpoint.

# RUN: rm -rf %t && mkdir %t
# RUN: %numpy_python -u %s %t | FileCheck %s

import sys

import numpy as np

import methods
import sparse_opt
import two_weights
from sparse_opt import Group, Sparsity

folder = sys.argv[1]
BLOCK, STEPS = 2, 26
# What compile is told by the groups of any of the runs below.
GROUP = Group(method="rigl", every=5, drop=0.4, until=1, schedule="constant")
library = f"{folder}/step.so"
sparse_opt.compile(two_weights.text(), [f"match=^[ab]$ block={BLOCK}x{BLOCK} density=0.4"], sparsity=GROUP, seed=3,
                   options=["-O", "1"], library=library)


def batch(number):
    return np.random.default_rng(number).normal(size=(16, 16)).astype(np.float32) / 8


def stored(step, name):
    blocks = step.blocks(name)
    return set((blocks.rows * (step.patterns[name].cols // BLOCK) + blocks.col_idx).tolist())


def norms(step, name, x):
    """The L1 norms of all blocks of the gradient of a weight, which is dense and masked, in float64."""
    pattern, blocks = step.patterns[name], step.blocks(name)
    w = np.zeros((pattern.rows, pattern.cols))
    for r, c, s in zip(blocks.rows, blocks.col_idx, blocks.slot):
        w[r * BLOCK:(r + 1) * BLOCK, c * BLOCK:(c + 1) * BLOCK] = step.arrays[name][s]
    x = x.astype(np.float64)
    gradient = np.abs(x.T @ (x @ w))
    return gradient.reshape(w.shape[0] // BLOCK, BLOCK, w.shape[1] // BLOCK, BLOCK).sum((1, 3)).ravel()


def train(sparsity, step, first=1, save=None, check=False):
    """Trains to the end; returns after which steps there were scores, and how many steps each
    update has summed."""
    scored, lengths, window = [], [], []
    for s in range(first, STEPS + 1):
        if sparsity.needs_scores:
            scored.append(s)
            window.append({n: norms(step, n, batch(s)) for n in "ab"})
        step(x=batch(s), lr=0.02, scores=sparsity.needs_scores)
        before = {n: stored(step, n) for n in "ab"}
        if sparsity.update():
            lengths.append(len(window))
            for n in "ab" if check else "":
                sums = sum(w[n] for w in window)
                grown, absent = stored(step, n) - before[n], set(range(len(sums))) - before[n]
                # A sum that is left out is none of the largest, as far as f32 tells.
                assert grown and min(sums[b] for b in grown) > (1 - 1e-5) * max(sums[b] for b in absent - grown)
                one = window[-1][n]
                different = sorted(absent, key=lambda b: -one[b])[: len(grown)]
                train.different += set(different) != grown
            window = []
        if s == save:
            sparsity.save(f"{folder}/saved.safetensors")
    return scored, lengths


def state(step):
    """Returns all that a step carries and its patterns."""
    patterns = {n: sorted(stored(step, n)) for n in step.patterns}
    return {**{n: np.array(a) for n, a in step.arrays.items() if n not in ("x", "lr")}, **{f"blocks of {n}": b for n, b in patterns.items()}}


train.different = 0
# CHECK: 1: after [5, 10, 15, 20, 25], of [1, 1, 1, 1, 1] steps
# CHECK: 3: after [3, 4, 5, 8, 9, 10, 13, 14, 15, 18, 19, 20, 23, 24, 25], of [3, 3, 3, 3, 3] steps
# CHECK: 8: after [1, 2, 3, {{.*}} 24, 25], of [5, 5, 5, 5, 5] steps
for steps in (1, 3, 8):
    group = Group(method="rigl", every=5, drop=0.4, until=1, schedule="constant", score_steps=steps)
    step = sparse_opt.Step(library, seed=1)
    scored, lengths = train(Sparsity(step, group, steps=STEPS), step, check=True)
    print(f"{steps}: after {scored}, of {lengths} steps")
    own = sparse_opt.Step(library, seed=1)
    method = Group(method=methods.AccumulatedRigL(steps), every=5, drop=0.4, until=1, schedule="constant")
    assert train(Sparsity(own, method, steps=STEPS), own) == (scored, lengths)
    one, two = state(step), state(own)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    # Within a window, at its begin and at its end.
    for save in (2, 8, 9, 10, 11):
        train(Sparsity(first := sparse_opt.Step(library, seed=1), group, steps=STEPS), first, save=save)
        rest = sparse_opt.Step(library, seed=9)
        resumed = Sparsity(rest, group, steps=STEPS)
        resumed.load(f"{folder}/saved.safetensors")
        train(resumed, rest, first=save + 1)
        two = state(rest)
        assert all(np.array_equal(one[name], two[name]) for name in one)
# CHECK: other blocks than by the last step in {{[1-9][0-9]*}} of 20 updates
print(f"other blocks than by the last step in {train.different} of 20 updates")

# Two groups, of which one has a method in Python that reads the scores of one step, and a
# weight that is not summed: each has its own.
# CHECK: both True
both = {}
for name, groups in {
    "a": [Group(match="a", method="rigl", every=5, drop=0.4, until=1, schedule="constant", score_steps=3), Group(method="static")],
    "b": [Group(match="a", method="static"), Group(method=methods.RigL(), every=4, drop=0.4, until=1)],
    "both": [Group(match="a", method="rigl", every=5, drop=0.4, until=1, schedule="constant", score_steps=3),
             Group(method=methods.RigL(), every=4, drop=0.4, until=1)],
}.items():
    step = sparse_opt.Step(library, seed=1)
    train(Sparsity(step, groups, steps=STEPS), step)
    both[name] = state(step)
print("both", all(np.array_equal(both["both"][n], both[n[0]][n]) for n in ("a", "b", "a.m", "b.m")))
assert any(not np.array_equal(both["a"][n], both["b"][n]) for n in "ab")


def refuse(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except sparse_opt.StepError as error:
        print(error)


# CHECK-NEXT: expected configuration key 'sparsity.score_steps' to be 1 for another method than rigl, which alone reads scores, but got 3
step = sparse_opt.Step(library)
refuse(Sparsity, step, Group(method="set", every=2, score_steps=3), steps=9)
# CHECK-NEXT: expected configuration key 'sparsity.score_steps', over which the norms of gradients are summed, but got 'sparsity.grad_accumulation_n', which sums the gradients: these are dense, and no step stores them
refuse(Sparsity, step, {"method": "rigl", "every": 2, "grad_accumulation_n": 3}, steps=9)
# CHECK-NEXT: expected score_steps of a group to be that of its method AccumulatedRigL, 4, but got 3
refuse(Sparsity, step, Group(method=methods.AccumulatedRigL(4), every=5, score_steps=3), steps=9)
# CHECK-NEXT: expected configuration key 'sparsity.score_steps' to be an integer from 1 to 65536, but got '0'
refuse(Sparsity, step, Group(method=methods.AccumulatedRigL(0), every=5), steps=9)
# CHECK-NEXT: expected an update by scores right after a run with scores, but got a plain run, a restore, a load or another update since for pattern 'a'
sparsity = Sparsity(step, Group(method="rigl", every=5, score_steps=5), steps=9)
step(x=batch(1), lr=0.02)
refuse(sparsity.update)
# CHECK-NEXT: expected a step compiled with --score-norm, to have scores of the blocks of 'a', but got one without: compile it with sparsity=groups
plain = sparse_opt.compile(two_weights.text(), ["match=^[ab]$ block=2x2 density=0.4"], options=["-O", "1"])
refuse(Sparsity, plain, Group(method=methods.AccumulatedRigL(4), every=5), steps=9)
