# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Methods of examples/methods.py against their definitions, written as papers say them: node by node, draw by draw.

# RUN: rm -rf %t && mkdir %t
# RUN: %numpy_python -u %s %t | FileCheck %s

import sys

import numpy as np

import methods
import sparse_opt
import two_weights

rng = np.random.default_rng(0)
x = rng.normal(size=(16, 16)).astype(np.float32) / 8
TEXT = two_weights.text()


class Recorded:
    """Keeps what a method saw of each weight, and what it answered."""

    def update(self, weight, share):
        a = np.zeros(weight.grid)
        a.flat[weight.stored] = 1
        scores = np.array(weight.scores, np.float64) if self.needs_scores else None
        seen = {"a": a, "norms": np.zeros(a.size), "scores": scores, "slots": weight.slots}
        seen["norms"][weight.stored] = np.abs(weight.values[weight.slot].astype(np.float64)).sum((1, 2))
        dropped, grown = super().update(weight, share)
        self.calls = getattr(self, "calls", []) + [(seen, np.sort(dropped), np.sort(grown), weight)]
        return dropped, grown


def recorded(kind, *arguments):
    return type(kind.__name__, (Recorded, kind), {})(*arguments)


def run(method, block, density, shares, seed=1):
    """Trains, and updates by the method each time; returns what it saw and did."""
    library = f"{sys.argv[1]}/{block}-{density}.so"
    marks = [f"match=^[ab]$ block={block}x{block} density={density}"]
    sparse_opt.compile(TEXT, marks, seed=3, options=["-O", "1", "--score-norm=l1"], library=library)
    step = sparse_opt.Step(library, seed=seed)
    for share in shares:
        step(x=x, lr=0.02, scores=True)
        before = {name: step.blocks(name) for name in step.patterns}
        step.update_patterns(share, method=method)
        for name in before:
            _, dropped, grown, _ = next(call for call in reversed(method.calls) if call[3].name == name)
            grid = [n // block for n in (step.patterns[name].rows, step.patterns[name].cols)]
            numbers = [b.rows * grid[1] + b.col_idx for b in (before[name], step.blocks(name))]
            assert set(numbers[1]) == set(numbers[0]) - set(dropped) | set(grown)
    return method.calls


def community(a, u, v):
    """CH2-L3n of a link, by the sets of its definition."""
    rows, cols = range(a.shape[0]), range(a.shape[1])
    paths = [(z, w) for z in cols for w in rows if a[u, z] and a[w, z] and a[w, v] and z != v and w != u]
    inner_cols, inner_rows = {z for z, _ in paths}, {w for _, w in paths}
    score = 0.0
    for z in inner_cols:
        within = sum(a[w, z] for w in inner_rows)
        score += (1 + within) / (1 + sum(a[w, z] for w in rows if w not in inner_rows and w != u))
    for w in inner_rows:
        within = sum(a[w, z] for z in inner_cols)
        score += (1 + within) / (1 + sum(a[w, z] for z in cols if z not in inner_cols and z != v))
    return score


# CHECK: CHT: communities of every absent link
for block, density in ((1, 0.1), (2, 0.3), (4, 0.5), (8, 0.4)):
    for seen, dropped, grown, weight in run(recorded(methods.CHT), block, density, (0.3, 0.5)):
        a, absent = seen["a"], np.argwhere(seen["a"] == 0)
        if block > 1:
            scores = {u * a.shape[1] + v: community(a, u, v) for u, v in absent}
            ours = methods.CHT().links(weight).ravel()
            assert all(np.isclose(ours[number], score, rtol=1e-12) for number, score in scores.items())
            assert not len(grown) or min(scores[g] for g in grown) >= max((scores[n] for n in scores if n not in grown), default=0) - 1e-9
        count = len(dropped)
        assert len(grown) == count and set(dropped) == set(sorted(np.flatnonzero(a), key=seen["norms"].__getitem__)[:count])
print("CHT: communities of every absent link")

# By draws: one after the other is kept, in proportion to magnitude^temperature of those that are left.
# CHECK: SoftMagnitude: 4000 updates keep what as many draws keep
magnitudes = np.array([0.0, 0.3, 1.0, 1.5, 2.0, 2.5])


class Stub:
    stored, rng = np.arange(6) * 3, np.random.default_rng(5)

    def norms(self, norm):
        return magnitudes


def draws(count, temperature):
    left, rates = list(range(6)), magnitudes**temperature
    for _ in range(6 - count):
        p = rates[left] / rates[left].sum()
        left.remove(rng.choice(left, p=p))
    return left


for count, temperature in ((1, 3.0), (2, 1.0), (4, 2.0)):
    found, want = np.zeros(6), np.zeros(6)
    for _ in range(4000):
        dropped = methods.SoftMagnitude(temperature).drop(Stub(), count)
        assert len(dropped) == count
        found[dropped // 3] += 1
        want[draws(count, temperature)] += 1
    # Four standard errors of a difference of two shares.
    assert np.all(np.abs(found - want) / 4000 < 4 * np.sqrt(2 * 0.25 / 4000)), (found, want)
    assert found[0] == 4000
print("SoftMagnitude: 4000 updates keep what as many draws keep")

# CHECK: CHTs: the same for a seed, other blocks than by magnitude
soft = [[dropped.tolist() for _, dropped, _, _ in run(recorded(methods.CHTs, 1.0), 2, 0.3, (0.3, 0.3), seed)] for seed in (1, 1, 2)]
hard = [dropped.tolist() for _, dropped, _, _ in run(recorded(methods.CHT), 2, 0.3, (0.3, 0.3))]
assert soft[0] == soft[1] and soft[0] != soft[2] and soft[0] != hard
print("CHTs: the same for a seed, other blocks than by magnitude")

# CHECK: MEST: the lowest of |w| + 0.5 |g|
for block, density in ((1, 0.3), (4, 0.5)):
    for seen, dropped, grown, _ in run(recorded(methods.MEST, 0.5), block, density, (0.3, 0.5)):
        stored = np.flatnonzero(seen["a"])
        score = seen["norms"] + 0.5 * seen["scores"].ravel()
        want = stored[np.argsort(score[stored], kind="stable")[:len(dropped)]]
        assert len(dropped) == len(grown) > 0 and set(dropped) == set(want)
print("MEST: the lowest of |w| + 0.5 |g|")

# CHECK: GraNet: from half to a tenth in four updates, then as RigL
shares = (0.3, 0.3, 0.2, 0.1, 0.1, 0)
for block in (1, 2, 4):
    calls = run(recorded(methods.GraNet, 0.1, 4), block, 0.5, shares)
    for name in ("a", "b"):
        stored = None
        for t, (seen, dropped, grown, weight) in enumerate((c for c in calls if c[3].name == name), 1):
            size, old = seen["a"].size, np.flatnonzero(seen["a"])
            stored = seen["slots"] if stored is None else stored
            assert len(old) == stored
            end = 0.1 * size
            kept = min(stored, int(end + (seen["slots"] - end) * max(0, 1 - t / 4) ** 3 + 0.5))
            new = min(int(shares[t - 1] * kept + 0.5), size - stored)
            want = old[np.argsort(seen["norms"][old], kind="stable")[:stored - kept + new]]
            absent = np.flatnonzero(seen["a"].ravel() == 0)
            largest = absent[np.argsort(-seen["scores"].ravel()[absent], kind="stable")[:new]]
            assert set(dropped) == set(want) and set(grown) == set(largest)
            stored = kept
        assert stored == int(end + 0.5)
print("GraNet: from half to a tenth in four updates, then as RigL")
