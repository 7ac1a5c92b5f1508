# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Methods in Python update patterns as those of the runtime do.

# RUN: rm -rf %t && mkdir %t
# RUN: %numpy_python -u %s %t | FileCheck %s

import sys

import numpy as np

import methods
import sparse_opt
import two_weights
from refusals import refuse

rng = np.random.default_rng(0)
x = rng.normal(size=(16, 16)).astype(np.float32) / 8
TEXT = two_weights.text()


def made(block, density=0.5, options=(), library=None):
    marks = [f"match=^[ab]$ block={block}x{block} density={density}"]
    return sparse_opt.compile(TEXT, marks, seed=3, options=["-O", "1", *options], library=library)


def states_equal(one, other):
    """Bit for bit, with the slots."""
    blocks = all(
        np.array_equal(getattr(one.blocks(name), part), getattr(other.blocks(name), part))
        for name in one.patterns
        for part in ("row_ptr", "col_idx", "slot")
    )
    arrays = all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)
    return blocks and arrays and one.counters == other.counters


# SET and RigL of the example are those of the runtime.

# CHECK-COUNT-6: set equal True, rigl equal True
for block, density, seed in ((1, 0.3, 1), (2, 0.5, 2), (4, 0.5, 3), (8, 0.4, 4), (4, 1, 5), (8, 0.01, 6)):
    library = f"{sys.argv[1]}/{block}-{density}.so"
    made(block, density, options=["--score-norm=l1"], library=library)
    equal = {}
    for name, method in (("set", methods.SET()), ("rigl", methods.RigL())):
        one, other = (sparse_opt.Step(library, seed=seed) for _ in range(2))
        equal[name] = True
        for share in (0.3, 0.5, 1, 0):
            assert one(x=x, lr=0.02, scores=True) == other(x=x, lr=0.02, scores=True)
            pruned = one.update_patterns(share, method=name)
            assert pruned == other.update_patterns(share, method=method)
            equal[name] &= states_equal(one, other)
    print(f"set equal {equal['set']}, rigl equal {equal['rigl']}")

# A method sees the memory of the step.

step = made(4)
step(x=x, lr=0.02)
# CHECK: a (16, 24) (4, 4) (4, 6) 12, update 1, values True, moments ['a.m'], numbers True, norms True, absent True
class Look(sparse_opt.Method):
    def update(self, weight, share):
        if weight.name == "a":
            blocks = step.blocks("a")
            numbers = np.array_equal(weight.stored, blocks.rows * 6 + blocks.col_idx)
            sums = np.abs(weight.values[weight.slot].astype(np.float64)).sum((1, 2))
            print(
                weight.name, weight.shape, weight.block, weight.grid, f"{weight.slots},",
                f"update {weight.update}, values {np.shares_memory(weight.values, step.arrays['a'])},"
                f" moments {list(weight.moments)}, numbers {numbers},"
                f" norms {np.allclose(weight.norms(), sums)},"
                f" absent {sorted({*weight.stored, *weight.absent}) == list(range(24))}",
            )
            assert not weight.row_ptr.flags.writeable
        return [], []
step.update_patterns(0.3, method=Look())

# The largest scores are those of a sort, and may be asked for again.

# CHECK: largest scores True True
scored = made(4, options=["--score-norm=l1"])
scored(x=x, lr=0.02, scores=True)
class Largest(sparse_opt.Method):
    needs_scores = True

    def update(self, weight, share):
        if weight.name != "a":
            return [], []
        equal = []
        for barred in (weight.stored, np.array([0, 5])):
            left = np.setdiff1d(np.arange(weight.grid[0] * weight.grid[1]), barred)
            want = np.sort(left[np.argsort(-weight.scores[left], kind="stable")[:6]])
            equal.append(np.array_equal(weight.largest_scores(6, barred), want))
        same = np.array_equal(weight.largest_scores(6), weight.largest_scores(6, weight.stored))
        print("largest scores", all(equal), same)
        return [], []
scored.update_patterns(method=Largest())

# More blocks may come than go, as many as there are slots; new ones are zeros.

class Grow(sparse_opt.Method):
    def __init__(self, drop, grow):
        self.numbers = drop, grow

    def update(self, weight, share):
        return tuple(n if weight.name == "a" else [] for n in self.numbers)

# CHECK: stored 5, then 8, slots True, zeros True, kept True
step.set_blocks("a", [0, 2, 2, 4, 5], [0, 3, 1, 2, 5], [7, 2, 9, 4, 11])
dense = step.read("a")
step.arrays["a.m"][...] = 1  # also where no block lies
step.update_patterns(method=Grow([3], [20, 1, 22, 4]))
after = step.blocks("a")
print(
    f"stored 5, then {len(after.slot)}, slots {after.slot.tolist() == [7, 2, 0, 9, 4, 1, 3, 11]},"
    f" zeros {not step.arrays['a'][[2, 0, 1, 3]].any() and not step.arrays['a.m'][[2, 0, 1, 3]].any()},"
    f" kept {np.array_equal(step.read('a')[:4, :4], dense[:4, :4]) and step.read('a.m')[0, 0] == 1}"
)
# CHECK: all go 0
step.update_patterns(method=Grow(after.rows * 6 + after.col_idx, []))
print("all go", len(step.blocks("a").slot))

# What a method may not do changes nothing.

step = made(4)
before = step.native_state()
stored = (step.blocks("a").rows * 6 + step.blocks("a").col_idx).tolist()
absent = sorted(set(range(24)) - set(stored))
# CHECK: expected a stored block of 'a' to prune, but got block (0, {{[0-9]}}), which is absent (Grow)
refuse(lambda: step.update_patterns(method=Grow(absent[:1], [])))
# CHECK: expected an absent block of 'a' to regrow, but got block (0, {{[0-9]}}), which is stored (Grow)
refuse(lambda: step.update_patterns(method=Grow(stored[1:2], stored[:1])))
# CHECK: expected an update to leave 'a' at most the 12 blocks that it has slots for, but got 13 (Grow)
refuse(lambda: step.update_patterns(method=Grow([], absent[:1])))
# CHECK: expected rising numbers below 24 of the blocks of 'a' to prune, but got [[N:[0-9]+]] behind [[N]] (Grow)
refuse(lambda: step.update_patterns(method=Grow(stored[:1] * 2, [])))
# CHECK: expected rising numbers below 24 of the blocks of 'a' to regrow, but got 24 (Grow)
refuse(lambda: step.update_patterns(method=Grow(stored[:1], [24])))
# CHECK: expected rising numbers below 24 of the blocks of 'a' to regrow, but got -1 (Grow)
refuse(lambda: step.update_patterns(method=Grow(stored[:1], [-1])))
# CHECK: expected numbers of blocks of 'a' from Grow, but got float64 of shape [1]
refuse(lambda: step.update_patterns(method=Grow([0.5], [])))
# CHECK: expected numbers of blocks of 'a' from Grow, but got int64 of shape [1, 1]
refuse(lambda: step.update_patterns(method=Grow([[0]], [])))
class Nothing(sparse_opt.Method):
    def update(self, weight, share):
        return None
# CHECK: expected Nothing.update() to return blocks to drop and to grow, but got a NoneType
refuse(lambda: step.update_patterns(method=Nothing()))
class Some(sparse_opt.Method):
    def update_all(self, weights, shares):
        return [self.update(weights[0], shares[0])]
class All(sparse_opt.Method):
    def update_all(self, weights, shares):
        return None
# CHECK: expected Some.update_all() to return blocks to drop and to grow of each of 2 weights, but got 1 of them
# CHECK: expected All.update_all() to return blocks to drop and to grow of each of 2 weights, but got a NoneType
refuse(lambda: step.update_patterns(method=Some()))
refuse(lambda: step.update_patterns(method=All()))
class Short(sparse_opt.Method):
    def score(self, weight):
        return [1.0]
# CHECK: expected 12 scores, one for each stored block of 'a', but got shape [1]
refuse(lambda: step.update_patterns(method=Short()))
class NaN(sparse_opt.Method):
    def score(self, weight):
        return np.full(len(weight.slot), np.nan)
# CHECK: expected a number as the score of block (0, {{[0-9]}}) of 'a', but got NaN (NaN)
refuse(lambda: step.update_patterns(method=NaN()))
# CHECK: expected a step that was compiled with scores of blocks, but got one without for pattern 'a'
refuse(lambda: step.update_patterns(method=methods.RigL()))
class TooMany(sparse_opt.Method):
    def grow(self, weight, count):
        return weight.largest_scores(13)
# CHECK: expected at most the 12 blocks that may be chosen, but got 13 for pattern 'a'
refuse(lambda: step.update_patterns(method=TooMany()))
# CHECK: expected no norm, density or allow_return, which are the method's own, with a SET
refuse(lambda: step.update_patterns(method=methods.SET(), norm="l2"))
class Many(sparse_opt.Method):
    def grow(self, weight, count):
        return weight.random(13)
# CHECK: expected at most the 12 blocks that may be chosen, but got 13 for pattern 'a'
refuse(lambda: step.update_patterns(method=Many()))
class Odd(sparse_opt.Method):
    def score(self, weight):
        return weight.norms("l3")
# CHECK: expected one of l1, l2, linf, mean, but got 'l3'
refuse(lambda: step.update_patterns(method=Odd()))
# CHECK: unchanged True, updates 0
after = step.native_state()
print("unchanged", all(np.array_equal(before[k], after[k]) for k in before), end=", ")
print("updates", step.counters.pattern_updates)

# The lowest of some numbers are those of a stable sort.

# CHECK: lowest True
same = True
for size in (1, 2, 7, 100):
    for _ in range(20):
        numbers = rng.integers(0, 5, size).astype(float)
        numbers[rng.random(size) < 0.1] = np.inf
        for count in {0, 1, size // 2, size}:
            want = np.sort(np.argsort(numbers, kind="stable")[:count])
            same &= np.array_equal(sparse_opt.lowest(numbers, count), want)
            want = np.sort(np.argsort(-numbers, kind="stable")[:count])
            same &= np.array_equal(sparse_opt.highest(numbers, count), want)
print("lowest", same)

# Of every type, its least and its greatest number among them.

# CHECK: bool True int8 True uint8 True int16 True uint16 True int32 True uint32 True int64 True uint64 True
# CHECK-SAME: float16 True float32 True float64 True
for name in "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split():
    type = np.dtype(name)
    if type.kind == "f":
        ends = [-np.inf, np.finfo(type).min, -0.0, 0.0, np.finfo(type).max, np.inf]
    else:
        ends = [0, 1] if type.kind == "b" else [np.iinfo(type).min, 0, 1, np.iinfo(type).max]
    same = True
    for size in (1, 2, 6, 50):
        for _ in range(20):
            numbers = np.array(ends, type)[rng.integers(0, len(ends), size)]
            ranks = np.unique(numbers, return_inverse=True)[1]
            for count in {0, 1, size // 2, size}:
                want = np.sort(np.argsort(ranks, kind="stable")[:count])
                same &= np.array_equal(sparse_opt.lowest(numbers, count), want)
                want = np.sort(np.argsort(-ranks, kind="stable")[:count])
                same &= np.array_equal(sparse_opt.highest(numbers, count), want)
    print(name, same, end=" ")
print()
# CHECK: expected numbers to choose from, but got NaN at 1
# CHECK: expected numbers to choose from, but got NaN at 1
refuse(lambda: sparse_opt.lowest([1, np.nan, np.nan], 1))
refuse(lambda: sparse_opt.highest(np.array([1, np.nan], np.float16), 1))
# CHECK: expected real numbers of at most 64 bits to choose from, but got complex128
refuse(lambda: sparse_opt.lowest([1j], 1))
# CHECK: expected real numbers of at most 64 bits to choose from, but got <U1
refuse(lambda: sparse_opt.lowest(["1"], 1))
# Strided numbers, lists, none at all.
# CHECK: [1, 2] [0] []
print(
    sparse_opt.lowest(np.array([3, 0, 1, 0, 2, 0])[::2], 2).tolist(),
    sparse_opt.highest([2, 1], 1).tolist(),
    sparse_opt.highest([], 0).tolist(),
)
# CHECK: expected a count of at most the 2 numbers to choose from, but got -1
refuse(lambda: sparse_opt.lowest(np.zeros(2), -1))
# CHECK: expected a count of at most the 2 numbers to choose from, but got 3
refuse(lambda: sparse_opt.lowest(np.zeros(2), 3))
