# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares the updates of a run of unigram-step.c, with a rate of 0 and a
# checkpoint after every step, with their definition: updates.py RUN RULE.

import json
import math
import pathlib
import sys

import tensor_file

ROWS = COLS = 4


def load(path):
    """Returns {(row, column): (slot, weights, moments)} of a checkpoint."""
    tensors, _ = tensor_file.read(path)
    row_ptr, col_idx, slot = (tensors[f"state.w.bsr.{k}"].numbers() for k in ("row_ptr", "col_idx", "slot"))
    w, m = tensors["state.w"].numbers(), tensors["state.m.w"].numbers()
    live = set(slot)
    for s in range(len(w) // 4):
        if s not in live:
            assert not any(w[4 * s:4 * s + 4]) and not any(m[4 * s:4 * s + 4]), "zeros without a block"
    return {(r, col_idx[k]): (slot[k], w[4 * slot[k]:4 * slot[k] + 4], m[4 * slot[k]:4 * slot[k] + 4])
            for r in range(ROWS) for k in range(row_ptr[r], row_ptr[r + 1])}


def is_due(rule, step):
    begin, end = rule["begin"], rule["end"]
    if "updates" in rule:
        n = rule["updates"]
        parts = n if rule["method"] == "gmp" else n + 1
        return step - begin in {math.floor(i * (end - begin) / parts) for i in range(1, n + 1)}
    if rule["method"] == "gmp":
        return begin <= step <= end and (step % rule["every"] == 0 or step == end)
    return begin <= step < end and step % rule["every"] == 0


def count_pruned(rule, step, stored):
    t = (step - rule["begin"]) / (rule["end"] - rule["begin"])
    if rule["method"] == "gmp":
        density = rule["last"] + (rule["first"] - rule["last"]) * (1 - t) ** 3
        return max(0, stored - math.floor(density * ROWS * COLS + 0.5))
    t = (step - rule["begin"]) / rule.get("half_period", rule["end"] - rule["begin"])
    share = {"cosine": (1 + math.cos(math.pi * min(t, 1))) / 2, "linear": 1 - t, "constant": 1}
    count = math.floor(rule["drop"] * share[rule["schedule"]] * stored + 0.5)
    return count if rule.get("return") else min(count, ROWS * COLS - stored)


def norm(weights, kind):
    sizes = [abs(x) for x in weights]
    return {"l1": sum(sizes), "mean": sum(sizes), "l2": sum(x * x for x in sizes),
            "linf": max(sizes)}[kind]


def main():
    run, rule = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
    files = sorted(run.glob("checkpoint-*.safetensors"))
    updates = moved = returned = last = 0
    for step in range(2, len(files) + 1):
        old, new = load(files[step - 2]), load(files[step - 1])
        old = {b: (s, w, tuple(x + 1 for x in m)) for b, (s, w, m) in old.items()}
        count = count_pruned(rule, step, len(old)) if is_due(rule, step) else 0
        updates += is_due(rule, step)
        ranked = sorted(old, key=lambda b: (norm(old[b][1], rule["score"]), b))
        pruned = set(ranked[:count])
        allowed = [(r, c) for r in range(ROWS) for c in range(COLS)
                   if (r, c) not in old or (rule.get("return") and (r, c) in pruned)]
        if rule["method"] == "rigl":
            # Scores since the update before, of the last `score_steps` steps.
            summed = range(max(last, step - rule.get("score_steps", 1)), step)
            score = {b: sum((s * 5 + (b[0] * COLS + b[1]) * 7) % 11 for s in summed) for b in allowed}
            chosen = set(sorted(allowed, key=lambda b: (-score[b], b))[:count])
        elif rule["method"] == "set":
            chosen = {b for b in allowed if b in new}
            assert len(chosen) == count, f"step {step}: {count} blocks, but got {len(chosen)}"
        else:
            chosen = set()
        returned += len(pruned & chosen)
        gone, fresh = sorted(pruned - chosen), sorted(chosen - pruned)
        moved += len(gone)
        expected = {b: v for b, v in old.items() if b not in gone}
        for block, from_block in zip(fresh, gone):
            expected[block] = (old[from_block][0], (0,) * 4, (0,) * 4)
        assert new == expected, f"step {step}: {expected}, but got {new}"
        last = step if is_due(rule, step) else last
    print(f"{updates} updates, {moved} blocks pruned, {returned} returned, {len(new)} left")


main()
