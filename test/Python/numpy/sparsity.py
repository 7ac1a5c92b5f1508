# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Groups and schedules in Python are those of sparse-train.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %S/../../Tools/Inputs/write-text.py %t/text 40
# RUN: sparse-train tokenize --vocabulary 400 --output %t/text.tok %t/text
# RUN: %build_step -o %t/step.so
# RUN: %numpy_python -u %s %t %S/../../Tools/Inputs/train.yaml %S/../../Tools/Inputs/frozen.mlir | FileCheck %s

import dataclasses
import json
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np

import methods
import sparse_opt
import two_weights
from refusals import refuse
from sparse_opt import Group, Sparsity
from sparse_opt._library import library

folder, config, frozen = sys.argv[1:]

# The updates of a run, their shares and the blocks that they leave, are those that the
# driver writes to its metrics.

# CHECK-COUNT-7: due True, shares True, blocks True
for i, group in enumerate((
    {"every": 5, "drop": 0.4},
    {"every": 7, "drop": 0.4, "schedule": "linear", "begin": 10, "end": 61},
    {"updates": 9, "schedule": "constant", "drop": 1.0},
    {"updates": 5, "half_period": 30, "until": 0.9},
    {"method": "gmp", "density": 0.1, "every": 9, "begin": 3, "end": 95},
    {"method": "gmp", "density": 0.1, "initial_density": 0.2, "updates": 4},
    {"sparsity": 0.8, "update": {"freq": 11, "stop": 70}, "drop_fraction": {"type": "linear", "init": 0.9}},
)):
    flat = [f"sparsity.{k}={v}" for k, v in group.items() if not isinstance(v, dict)]
    flat += [f"sparsity.{k}.{n}={v}" for k, m in group.items() if isinstance(m, dict) for n, v in m.items()]
    settings = [f"step={folder}/step.so", f"tokens={folder}/text.tok", f"run={folder}/{i}", "steps=100",
                "sparsity.every=0", *flat]
    command = ["sparse-train", "--config", config, *(word for s in settings for word in ("--set", s))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    lines = [json.loads(line) for line in open(f"{folder}/{i}/metrics.jsonl")]
    updates = {line["step"]: line for line in lines if "turnover" in line}
    step = sparse_opt.Step(f"{folder}/step.so")
    sparsity = Sparsity(step, {**group}, steps=100)
    due = {s: list(sparsity.due(s).values()) for s in range(1, 101) if sparsity.due(s)}
    is_gmp = group.get("method") == "gmp"
    shares = is_gmp or all(updates[s]["drop"] == due[s][0] for s in due if s in updates)
    first = len(step.blocks("state.w").slot) / 16
    blocks = first == lines[0]["density"] and (
        not is_gmp or all(updates[s]["density"] == due[s][0] for s in due if s in updates)
    )
    print(f"due {list(due) == list(updates)}, shares {shares}, blocks {blocks}")

# What is recorded of patterns is the same by both, at the start and of updates that replace
# and that prune, here of weights that no step changes.

# CHECK: recorded set 13 lines of 14 entries, True, gmp 8 lines of 11 entries, True
ids, places = np.zeros((4, 16), np.int32), np.zeros((4, 3), np.int32)
batch = {"batch.ids": ids, "batch.positions": places, "batch.labels": places,
         "batch.weights": np.ones((4, 3), np.float32)}
shown = []
for group in {"method": "set", "every": 6, "drop": 0.6}, {"method": "gmp", "density": 0.1, "every": 12, "begin": 9}:
    method = group["method"]
    settings = [f"step={folder}/step.so", f"tokens={folder}/text.tok", f"run={folder}/{method}", "steps=104",
                "rate.peak=0", "rate.warmup=0", *(f"sparsity.{k}={v}" for k, v in group.items())]
    command = ["sparse-train", "--config", config, *(word for s in settings for word in ("--set", s))]
    subprocess.run(command, check=True, capture_output=True)
    lines = {line["step"]: line for line in map(json.loads, open(f"{folder}/{method}/metrics.jsonl"))}
    step = sparse_opt.Step(f"{folder}/step.so")
    sparsity = Sparsity(step, group, steps=104)
    entries = {0: sparsity.describe()}
    for number in range(1, 105):
        step(**batch, lr=0.0)
        if entry := sparsity.update():
            entries[number] = entry
    same = all(lines[number].items() >= entry.items() for number, entry in entries.items())
    same = same and list(entries) == [0, *(n for n, line in lines.items() if "turnover" in line)]
    shown.append(f"{method} {len(entries)} lines of {max(map(len, entries.values()))} entries, {same}")
print(f"recorded {', '.join(shown)}")

# Densities by erk, and of single weights.

# CHECK: erk a 38 b 23, densities a 72 b 10
library_path = f"{folder}/two.so"
made = sparse_opt.compile(two_weights.text(), ["match=^[ab]$ block=2x2 density=0.9"],
                          options=["-O", "1", "--score-norm=l1"], library=library_path, seed=3)
counts = []
for keys in ({"density": 60 / 128, "distribution": "erk"}, {"densities": {"a": 0.75, "b": 0.3125}}):
    step = sparse_opt.Step(library_path)
    Sparsity(step, keys, steps=10)
    counts.append(" ".join(f"{n} {len(step.blocks(n).slot)}" for n in step.patterns))
print(f"erk {counts[0]}, densities {counts[1]}")

# A weight that the step does not train begins as its group says, and stays.

# CHECK: frozen base 4 w 4, due w
step = sparse_opt.compile(open(frozen).read(), ["match=. block=4x4 density=0.5"], options=["-O", "1"])
sparsity = Sparsity(step, Group(density=0.25, every=2), steps=10)
counts = " ".join(f"{name} {len(step.blocks(name).slot)}" for name in step.patterns)
print(f"frozen {counts}, due {', '.join(sparsity.due(2))}")

# Methods of both kinds, in groups, go on from a checkpoint as a run that was not
# interrupted, bit for bit, with what they know themselves.

rng = np.random.default_rng(0)
batches = [rng.normal(size=(16, 16)).astype(np.float32) / 8 for _ in range(12)]


def run(begin=None, stop=12):
    own = methods.Momentum()
    step = sparse_opt.Step(library_path, seed=5)
    sparsity = Sparsity(step, [
        Group(match="^a$", method=own, density=0.5, every=2, drop=0.4, end=12),
        Group(match="^b$", method="rigl", density=0.4, every=3, drop=0.5, end=12),
    ], steps=12)
    if begin:
        assert sparsity.load(begin) == "notes"
    counts, scores = [], []
    for batch in batches[step.counters.steps:stop]:
        scores.append(sparsity.needs_scores)
        step(x=batch, lr=0.02, scores=sparsity.needs_scores)
        counts.append(sparsity.update().get("pruned", 0))
        assert sparsity.update() == {}
    if not begin:
        sparsity.save(f"{folder}/{stop}.safetensors", "notes")
    return step, own, counts, scores


# CHECK: pruned [0, 18, 6, 14, 0, 13, 0, 5, 1, 1, 0, 0], scores [False, False, True, False, False, True, False, False, True, False, False, False]
whole, own, counts, scores = run()
print(f"pruned {counts}, scores {scores}")
# CHECK-COUNT-3: resumed True, ages True
for stop in (3, 6, 11):
    run(stop=stop)
    again, other, _, _ = run(begin=f"{folder}/{stop}.safetensors")
    one, two = whole.native_state(), again.native_state()
    equal = all(np.array_equal(one[name], two[name]) for name in one)
    print(f"resumed {equal and whole.counters.pattern_updates == again.counters.pattern_updates},"
          f" ages {np.array_equal(own.ages['a'], other.ages['a'])}")

# Micro-batches: the last of a step counts.

# CHECK: updates after [4, 8], scores before [4, 8]
step = sparse_opt.Step(library_path)
sparsity = Sparsity(step, Group(method="rigl", every=2, end=100, drop=0.5, density=0.5), steps=100, accumulate=2)
after, before = [], []
for i in range(1, 9):
    if sparsity.needs_scores:
        before.append(i)
    step(x=batches[0], lr=0.02, scores=sparsity.needs_scores)
    if sparsity.update():
        after.append(i)
print(f"updates after {after}, scores before {before}")

# A group has the keys of the runtime, with its defaults, and knows which ones were given.

# CHECK: keys True, defaults True, of a configuration 0.5 rigl cosine, replaced 0.4 True
keys = json.loads(library().bsr_sparsity_keys())
names = [field.name for field in dataclasses.fields(Group)]
defaults = all(getattr(Group(), key["name"]) == key["default"] for key in keys)
of = Group.of({"density": {"final": 0.5}, "algorithm": "rigl", "update.freq": np.int64(3)})
other = dataclasses.replace(pickle.loads(pickle.dumps(of)), drop=0.4)
print(f"keys {names == [key['name'] for key in keys]}, defaults {defaults}, of a configuration {of.density}"
      f" {of.method} {of.schedule}, replaced {other.drop} {Sparsity(step, other, steps=9).groups == [other]}")

# Methods of one's own are updated when set would be, and may be given as a key; a run
# without groups has no updates; where pruning has no steps, it is at its end.

# CHECK: own True [4, 8], none {}, pruned {'a': 0.25, 'b': 0.25}
own = methods.SET()
sparsity = Sparsity(step, {"algorithm": own, "update": {"every": 4}, "end": 10}, steps=10)
print(f"own {sparsity.groups[0].method is own} {[s for s in range(20) if sparsity.due(s)]},"
      f" none {Sparsity(step, [], steps=10).due(3)},"
      f" pruned {Sparsity(step, Group(method='gmp', density=0.25, every=7, begin=3, until=0.3), steps=10).due(3)}")

# What values are is the runtime's to say, in a sentence that sparse-train has, too.

# CHECK: expected an export that has values for its weights, but got none for 'a': use init random
refuse(lambda: Sparsity(sparse_opt.Step(library_path), Group(init="largest"), steps=10))
# CHECK: expected configuration key 'sparsity.method' to be one of static, set, rigl, gmp, but got 'best'
refuse(lambda: Sparsity(step, Group(method="best"), steps=10))
# CHECK: expected configuration key 'sparsity.drop' to be a number from 0 to 1, but got '2'
refuse(lambda: Sparsity(step, Group(drop=2), steps=10))
# CHECK: expected configuration key 'sparsity.drop' to be a number from 0 to 1, but got 'nan'
refuse(lambda: Sparsity(step, Group(drop=float("nan")), steps=10))
# CHECK: expected configuration key 'sparsity[1].score' to be one of l1, l2, linf, mean, but got '4'
refuse(lambda: Sparsity(step, [Group(match="b"), Group(score=np.float32(4))], steps=10))
# CHECK: expected configuration key 'sparsity.every' or 'sparsity.updates', but got both
refuse(lambda: Sparsity(step, Group(every=2, updates=2), steps=10))
# CHECK: expected configuration key 'sparsity.every' or 'sparsity.updates' to have a value beside a method, but got none
refuse(lambda: Sparsity(step, Group(method=own), steps=10))
Sparsity(step, Group(method="rigl", every=0), steps=10)
# CHECK: expected configuration key 'sparsity.updates' to be less than the 7 steps for them, but got 7
refuse(lambda: Sparsity(step, Group(updates=7), steps=10))
# CHECK: expected configuration key 'sparsity[1].match' to be the first that matches one of a, b, but got 'a'
refuse(lambda: Sparsity(step, [Group(), Group(match="a")], steps=10))
# CHECK: expected a configuration key (the nearest is 'sparsity.sparsity'), but got 'sparsity.sparsty'
refuse(lambda: Group.of({"sparsty": 3}))
# CHECK: expected configuration key 'sparsity.every' once, but got 'sparsity.update.freq' beside it
refuse(lambda: Sparsity(step, {"every": 3, "update": {"freq": 2}}, steps=10))
# CHECK: expected 'a' to have slots for 91 blocks, but got 86: compile the step with --mark="match=^a$ block=2x2 density=0.9479166666666666" --mark="match=^b$ block=2x2 density=0.9375" in front of other marks
refuse(lambda: Sparsity(step, Group(density=0.95), steps=10))
# CHECK: expected steps to be an integer from 0, but got -1
refuse(lambda: Sparsity(step, Group(), steps=-1))

# What the runtime does not see.

# CHECK: expected configuration key 'sparsity.file' to be left out for init largest, since the program has the weights, but got 'x'
refuse(lambda: Sparsity(step, Group(init="largest", file=pathlib.Path("x")), steps=10))
# CHECK: expected texts, numbers, booleans and dictionaries in a group, but got a Pattern as 'match'
refuse(lambda: Sparsity(step, Group(match=re.compile("a")), steps=10))
# CHECK: expected text in a group to be UTF-8, but got 'a\udcff'
refuse(lambda: Sparsity(step, Group(file="a\udcff"), steps=10))
# CHECK: expected a checkpoint that Sparsity.save() wrote, but got '{{.*}}plain.safetensors' without what methods know
step.save(f"{folder}/plain.safetensors")
refuse(lambda: Sparsity(step, Group(), steps=10).load(f"{folder}/plain.safetensors"))
# CHECK: expected a checkpoint of 0 methods in Python, but got '{{.*}}3.safetensors' of 1
refuse(lambda: Sparsity(step, Group(), steps=10).load(f"{folder}/3.safetensors"))
# CHECK: expected no state of SET, which has no load_state_dict(), but got ages
refuse(lambda: Sparsity(step, Group(method=methods.SET(), every=3), steps=10).load(f"{folder}/3.safetensors"))
# A load that fails, wherever it does, leaves step, patterns and methods as they were.


class Counting(methods.SET):
    def __init__(self, fails=False):
        self.count, self.fails = 0, fails

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
        if self.fails:
            raise ValueError("no count")


def begin_two(fails):
    step = sparse_opt.Step(library_path, seed=5)
    both = Counting(), Counting(fails)
    return step, both, Sparsity(step, [
        Group(match="^a$", method=both[0], density=0.5, every=3),
        Group(match="^b$", method=both[1], density=0.5, every=3)], steps=12)


step, both, sparsity = begin_two(fails=False)
step(x=batches[0], lr=0.02)
both[0].count, both[1].count = 3, 4
sparsity.save(f"{folder}/two.safetensors", "notes")
damaged = bytearray(open(f"{folder}/two.safetensors", "rb").read())
damaged[-1] ^= 1
open(f"{folder}/damaged.safetensors", "wb").write(damaged)
# CHECK: damaged leaves 0 steps, counts [0, 0], values True
# CHECK: two leaves 0 steps, counts [0, 0], values True
for name in "damaged", "two":
    step, both, sparsity = begin_two(fails=name == "two")
    before = step.state_dict()
    try:
        sparsity.load(f"{folder}/{name}.safetensors")
    except (sparse_opt.StepError, ValueError):
        both[1].fails = False
    else:
        raise AssertionError("loaded")
    same = all(np.array_equal(before[k], v) for k, v in step.state_dict().items())
    print(f"{name} leaves {step.counters.steps} steps, counts {[m.count for m in both]}, values {same}")
# CHECK: loaded notes: 1 steps, counts [3, 4]
print(f"loaded {sparsity.load(f'{folder}/two.safetensors')}: {step.counters.steps} steps, counts {[m.count for m in both]}")
# CHECK: expected numbers, texts, arrays, lists and dictionaries in the state of a method, but got a set
class Odd(methods.SET):
    def state_dict(self):
        return {"seen": {1, 2}}
refuse(lambda: Sparsity(step, Group(method=Odd(), every=3), steps=10).save(f"{folder}/odd.safetensors"))
