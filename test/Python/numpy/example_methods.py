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
        seen = {"a": a, "norms": np.zeros(a.size), "scores": scores, "slots": weight.slots, "share": share}
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

# CHECK: SRigL: salient blocks counted one by one, {{[1-9][0-9]*}} rows taken away, none comes back
gone = 0
for block, density, least in ((1, 0.2, 0.5), (2, 0.3, 0.8), (4, 0.3, 0.9), (2, 0.2, 0.0), (4, 0.3, 9.0)):
    dead = {}
    for seen, dropped, grown, weight in run(recorded(methods.SRigL, least), block, density, (0.4, 0.3, 0.3, 0)):
        a, norms, scores = seen["a"], seen["norms"], seen["scores"].ravel()
        rows, cols = a.shape
        old, absent = (np.flatnonzero(a.ravel() == n) for n in (1, 0))
        count = min(int(seen["share"] * len(old) + 0.5), len(absent))
        kept = set(old) - set(sorted(old, key=norms.__getitem__)[:count])
        wanted = sorted(absent, key=lambda n: -scores[n])[:count]
        active = [r for r in range(rows) if a[r].any()]
        fan_in = len(old) / len(active)
        salient = {r: sum(n // cols == r for n in (*kept, *wanted)) for r in active}
        left = {r for r in active if not salient[r] < least * fan_in} or {max(active, key=salient.__getitem__)}
        kept = {n for n in kept if n // cols in left}
        room = [n for n in absent if n // cols in left]
        new = sorted(room, key=lambda n: -scores[n])[:len(old) - len(kept)]
        assert set(dropped) == set(old) - kept and set(grown) == set(new)
        gone += len(active) - len(left)
        assert least or len(left) == len(active)
        dead[weight.name] = dead.get(weight.name, set()) | set(range(rows)) - left
        assert not any(n // cols in dead[weight.name] for n in (*kept, *grown))
print(f"SRigL: salient blocks counted one by one, {gone} rows taken away, none comes back")


class RecordedTogether(methods.DSR):
    def update_all(self, weights, shares):
        self.calls = getattr(self, "calls", [])
        norms = [np.abs(w.values[w.slot].astype(np.float64)).mean((1, 2)) for w in weights]
        answers = super().update_all(weights, shares)
        sizes = [int(np.prod(w.grid)) for w in weights]
        self.calls.append((norms, [np.array(w.stored) for w in weights], sizes, [w.slots for w in weights], shares, answers, weights))
        return answers


# CHECK: DSR: one threshold over both weights, quotients one by one, {{[1-9][0-9]*}} blocks moved from one to the other
moved = 0
for blocks, density, slots in (((1, 1), 0.2, 0.4), ((2, 4), 0.3, 0.5), ((4, 2), 0.5, 0.6), ((8, 8), 0.5, 0.5)):
    library = f"{sys.argv[1]}/dsr-{blocks[0]}-{blocks[1]}.so"
    marks = [f"match=^{n}$ block={b}x{b} density={slots}" for n, b in zip("ab", blocks)]
    sparse_opt.compile(TEXT, marks, seed=3, options=["-O", "1"], library=library)
    step, method = sparse_opt.Step(library, seed=2), RecordedTogether()
    sparsity = sparse_opt.Sparsity(step, {"density": density, "method": method, "every": 1, "drop": 0.5, "until": 1}, steps=9)
    for _ in range(6):
        step(x=x, lr=0.02)
        # So that thresholds differ: weights of one are smaller.
        step.write("b", np.array(step.read("b")) * np.float32(0.5))
        before = {n: len(step.blocks(n).slot) for n in "ab"}
        sparsity.update()
        norms, stored, sizes, room, shares, answers, weights = method.calls[-1]
        count = sum(int(s * len(n) + 0.5) for s, n in zip(shares, norms))
        # One after the other, the smallest of all that its weight can do without goes.
        left = [dict(zip(s, n)) for s, n in zip(stored, norms)]
        protected = [max(own, key=lambda k: (own[k], k)) for own in left]
        for _ in range(count):
            able = [(own[k], i, k) for i, own in enumerate(left) for k in own if k != protected[i]]
            if not able:
                break
            _, i, k = min(able)
            del left[i][k]
        kept = [len(own) for own in left]
        given, places = [0, 0], [min(size - len(s), r - k) for size, s, r, k in zip(sizes, stored, room, kept)]
        for _ in range(sum(len(s) - k for s, k in zip(stored, kept))):
            open_ = [i for i in range(2) if given[i] < places[i]]
            if not open_:
                break
            given[min(open_, key=lambda i: (given[i] + 1) / kept[i])] += 1
        for i, (dropped, grown) in enumerate(answers):
            assert set(dropped) == set(stored[i]) - set(left[i]), (blocks, i)
            assert len(grown) == given[i] and not set(grown) & set(stored[i])
            moved += abs(given[i] - len(dropped))
        after = {n: len(step.blocks(n).slot) for n in "ab"}
        assert after == {w.name: k + g for w, k, g in zip(weights, kept, given)}
        assert sum(after.values()) <= sum(before.values())
print(f"DSR: one threshold over both weights, quotients one by one, {moved} blocks moved from one to the other")

# CHECK: AccumulatedRigL: sums of 3 steps and of 1, resumed within a window
library = f"{sys.argv[1]}/summed.so"
sparse_opt.compile(TEXT, ["match=^[ab]$ block=2x2 density=0.4"], seed=3, options=["-O", "1", "--score-norm=l1"], library=library)


def batch(number):
    return np.random.default_rng(number).normal(size=(16, 16)).astype(np.float32) / 8


def go(sparsity, step, steps, save=None):
    """Trains, and returns what grew at each update, and what the sums of scores say."""
    window, grew = [], []
    for s in steps:
        scored = sparsity.needs_scores
        step(x=batch(s), lr=0.02, scores=scored)
        window = [*window, {n: step._session.scores(step.patterns[n]).astype(np.float64) for n in "ab"}] if scored else []
        before = {n: step.blocks(n) for n in "ab"}
        if sparsity.update():
            for n in "ab":
                cols = step.patterns[n].cols // 2
                old, new = (set((b.rows * cols + b.col_idx).tolist()) for b in (before[n], step.blocks(n)))
                grew.append((s, n, sorted(new - old), sorted(old), sum(w[n] for w in window), len(window)))
            window = []
        if s == save:
            sparsity.save(f"{sys.argv[1]}/summed.bsr")
    return grew


for steps, span in ((3, 3), (1, 1)):
    group = {"method": methods.AccumulatedRigL(steps), "every": 5, "drop": 0.4, "until": 1}
    step = sparse_opt.Step(library, seed=1)
    grew = go(sparse_opt.Sparsity(step, group, steps=20), step, range(1, 17), save=9)
    assert [(s, n) for s, n, *_ in grew] == [(s, n) for s in (5, 10, 15) for n in "ab"]
    for _, name, new, old, sums, length in grew:
        absent = [n for n in range(len(sums)) if n not in old]
        assert length == span and new == sorted(sorted(absent, key=lambda n: -sums[n])[: len(new)]) and new
    other = sparse_opt.Step(library, seed=1)
    resumed = sparse_opt.Sparsity(other, {**group, "method": methods.AccumulatedRigL(steps)}, steps=20)
    resumed.load(f"{sys.argv[1]}/summed.bsr")
    assert [g[2] for g in go(resumed, other, range(10, 17))] == [g[2] for g in grew[2:]]
    assert all(np.array_equal(step.arrays[n], other.arrays[n]) for n in step.arrays)
print("AccumulatedRigL: sums of 3 steps and of 1, resumed within a window")
