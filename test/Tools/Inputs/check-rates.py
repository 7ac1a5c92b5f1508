# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# check-rates.py RUN STEPS PEAK DECAY WARMUP SPARSITY RULE: compares the rates of a run with
# their formula.

import json
import math
import sys

run, steps, peak, decay, warmup, sparsity, rule = sys.argv[1:]
steps, peak, warmup, sparsity = int(steps), float(peak), int(warmup), float(sparsity)
RULES = {"none": 1, "dietrich": math.exp(1.969 * sparsity**2 + 0.2905 * sparsity), "inverse": 1 / (1 - sparsity)}
factor = RULES[rule]
DECAYS = {"linear": lambda t: 1 - t, "constant": lambda t: 1,
          "cosine": lambda t: math.cos(math.pi * t / 2) ** 2}

with open(f"{run}/metrics.jsonl") as file:
    rates = [line["lr"] for line in map(json.loads, file) if "lr" in line]
assert len(rates) == steps
for step, rate in enumerate(rates):
    share = ((step + 1) / warmup if step < warmup
             else DECAYS[decay]((step - warmup) / (steps - warmup)))
    assert math.isclose(rate, peak * share * factor, rel_tol=1e-5, abs_tol=1e-12), (step, rate)
