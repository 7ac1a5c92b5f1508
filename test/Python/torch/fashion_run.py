# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The program that trains the runs of docs/science.md's MLPs, and the command that trains all of them, on a few images that are made.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %S/fashion_mnist.py %t
# RUN: %python %s %t
# The commands of docs/science.md: the search of rates, so small that all rates are one, and what the grid itself has.

# RUN: cd %src_root && scripts/decide.sh --rates --packages %t --output %t/out --cores 1 --set width=32 --set steps=80 --set sparsity.every=20 --set rate.peak=2e-3 | FileCheck %s
# CHECK:      3 runs, 0 done before; 1 at once
# CHECK:      | model | method | block | density | runs | held-out loss (nats) | accuracy of images held out (%) | training FLOPs (1e12) |{{$}}
# CHECK-NEXT: |----
# CHECK-NEXT: | mlp   | dense  |       | 1       |    1 |
# CHECK-NEXT: | mlp   | set    | 1     | 0.1     |    1 |
# CHECK-NEXT: | mlp   | set    | 16    | 0.1     |    1 |
# RUN: cd %src_root && scripts/decide.sh --list | FileCheck %s --check-prefix=LIST
# LIST-COUNT-21: {{^mlp-.*-seed1-}}
# LIST-NEXT: {{^mlp-.*-seed2-}}
# RUN: cd %src_root && scripts/decide.sh --tables --output %t/none | FileCheck %s --check-prefix=NONE
# NONE: no seed is done
# RUN: %src_root/scripts/decide.sh --help | FileCheck %s --check-prefix=HELP
# HELP: --packages DIR

"""What a run of examples/fashion_run.py computes, beside float64, and how it sums losses up."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import sparse_opt

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import fashion_images  # noqa: E402
import fashion_run  # noqa: E402

# Jumps: updates after steps 20, 50 and 65 of 100; the last two are closer than 20 steps to each other.
random = np.random.default_rng(0)
losses = list(random.normal(size=100))
jump = sum(losses[20 + i] for i in range(20)) / 20 - sum(losses[i] for i in range(20)) / 20
assert math.isclose(fashion_run.jump_of(losses, [20, 50, 65]), jump)
assert math.isnan(fashion_run.jump_of(losses, [10, 90])) and math.isnan(fashion_run.jump_of(losses, []))

# A static run, against float64 with masks and Adam's formula.
STEPS, BATCH, DENSITY = 12, 64, 0.25
folder = Path(sys.argv[1])
config = {"steps": STEPS, "seed": 3, "width": 32, "batch": BATCH, "packages": str(folder), "held_out": "train",
          "beta2": 0.95, "block": "4", "density": DENSITY, "match": r"^[024]\.weight$", "run": str(folder / "run"),
          "rate": {"peak": 4e-3, "warmup": 5}, "compile": {"cache": str(folder / "cache")},
          "sparsity": {"method": "static", "fan_in": "rows"}}
(folder / "config.json").write_text(json.dumps(config))
sys.argv[1:] = ["--config", str(folder / "config.json"), "--overwrite"]
fashion_run.main()
found = [json.loads(line)["loss"] for line in (folder / "run/metrics.jsonl").read_text().splitlines()[1:]]
summary = json.loads((folder / "run/summary.json").read_text())

# Which blocks are stored says a step of the same seed.
step, _ = fashion_run.load(config, [sparse_opt.Group(method="static", fan_in="rows")])
values = {name: array.astype(np.float64) for name, array in fashion_run.first_values(32, 3).items()}
masks = {}
for name in ("0.weight", "2.weight", "4.weight"):
    step.write(name, np.ones(values[name].shape, np.float32))
    masks[name] = step.state_dict()[name].astype(np.float64)
    stored = masks[name].sum(1, keepdims=True)
    assert stored.min() > 0 and abs(masks[name].mean() - DENSITY) < 0.02
    values[name] *= masks[name] * np.sqrt(masks[name].shape[1] / stored)
images, labels = fashion_images.read(folder, "train")
images = fashion_images.scale(images)
held_out, classes = images[-500:].astype(np.float64), labels[-500:]
images, labels = images[:-500].astype(np.float64), labels[:-500]


def forward(x, labels):
    """Returns the inputs of each layer, probabilities less the hits, the loss and the share of hits."""
    layers = [x]
    for name in ("0", "2", "4"):
        layers.append(np.maximum(layers[-1] @ values[f"{name}.weight"].T + values[f"{name}.bias"], 0))
    logits = layers[-1] @ values["6.weight"].T + values["6.bias"]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss, hits = -np.log(p[rows, labels]).mean(), (p.argmax(1) == labels).mean()
    p[rows, labels] -= 1
    return layers, p / len(labels), loss, hits


m, v = ({name: np.zeros_like(array) for name, array in values.items()} for _ in range(2))
order = np.random.default_rng([3, 1]).permutation(len(labels))
for t in range(1, STEPS + 1):
    chosen = order[(t - 1) * BATCH:t * BATCH]
    layers, d, loss, _ = forward(images[chosen], labels[chosen])
    assert abs(found[t - 1] - loss) < 2e-3 * loss, (t, found[t - 1], loss)
    gradients = {}
    for name, x in zip("6420", reversed(layers)):
        gradients[f"{name}.weight"], gradients[f"{name}.bias"] = d.T @ x, d.sum(0)
        d = d @ values[f"{name}.weight"] * (x > 0)
    rate = 4e-3 * (t / 5 if t <= 5 else (1 + math.cos(math.pi * (t - 5) / (STEPS + 1 - 5))) / 2)
    for name, g in gradients.items():
        g = g * masks.get(name, 1)
        m[name] = 0.9 * m[name] + 0.1 * g
        v[name] = 0.95 * v[name] + 0.05 * g**2
        values[name] -= rate * m[name] / (1 - 0.9**t) / (np.sqrt(v[name] / (1 - 0.95**t)) + 1e-8)
assert found[-1] < found[0] / 1.2, found
_, _, loss, hits = forward(held_out, classes)
assert abs(summary["held_out_end"] - loss) < 5e-3 * loss, (summary, loss)
assert abs(summary["accuracy"] - 100 * hits) < 1.01, (summary, hits)
assert "jump" not in summary or summary["jump"] is None, summary
# Two operations for each stored weight and image, in three passes; images have no gradient.
weights = sum(mask.sum() for mask in masks.values()) + values["6.weight"].size
assert summary["training_flops"] == (6 * weights - 2 * masks["0.weight"].sum()) * BATCH * STEPS, (summary, weights)

# Methods in Python, and of gradients: their patterns change, and they learn.
for method, block in (("chts", "1"), ("rigl", "4")):
    more = {"steps": 70, "block": block, "run": str(folder / method), "held_out": "test",
            "sparsity": {"method": method, "every": "20", "drop": "0.3", "fan_in": "rows", "new_state": "mean"}}
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    fashion_run.main()
    lines = [json.loads(line) for line in (folder / method / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines[1:]]
    updates = [line["step"] for line in lines[1:] if "pruned" in line]
    assert updates == [20, 40], updates
    summary = json.loads((folder / method / "summary.json").read_text())
    assert math.isclose(summary["jump"], fashion_run.jump_of(losses, updates), rel_tol=1e-6), summary
    assert summary["pattern_updates"] == 2 and losses[-1] < losses[0] / 2, (summary, losses)
