# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A loop in Python records what sparse-train does, and methods bring what they need.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

"""`Sparsity.update`, `Recorder` and `compile(sparsity=)` beside a run of sparse-train."""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import sparse_opt
import sparse_opt.torch
import train_folder
from refusals import refuse
from twins import twin
from sparse_opt import Group, Recorder

warnings.simplefilter("ignore")


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = F.mse_loss(model(batch["x"]), batch["y"])
    loss.backward()
    optimizer.step()
    return loss.detach()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = {"x": torch.randn(8, 16), "y": torch.randn(8, 8)}
export = sparse_opt.torch.export(
    train_step, model, optimizer, batch, marks="match=weight$ block=4x4 density=0.25"
)
folder = Path(tempfile.mkdtemp())
export.save(folder / "step")

# Two groups: one is updated more often, and by gradients.
groups = [Group(match="^0", method="rigl", every=3, drop=0.5), Group(method="set", every=5, drop=0.5)]
settings = [{"match": g.match, "method": g.method, "every": g.every, "drop": g.drop} for g in groups]
text = (folder / "step" / "train.yaml").read_text()
(folder / "step" / "train.yaml").write_text(
    text.replace("sparsity: {method: static}", f"sparsity: {json.dumps(settings)}")
)
theirs = train_folder.train(folder / "step", "steps=20")

# What rigl needs, compile adds; without it the step is refused.
step = sparse_opt.compile(export, check=0, pattern="random", sparsity=groups)
sparsity = sparse_opt.Sparsity(step, groups, steps=20)
order = list(itertools.islice(train_folder.order(8), 8 * 20))


def stored() -> dict[str, set[tuple[int, int]]]:
    """Returns the places of the blocks that each weight stores."""
    found = {}
    for name in step.patterns:
        blocks = step.blocks(name)
        found[name] = set(zip(blocks.rows.tolist(), blocks.col_idx.tolist()))
    return found


# By the blocks alone: of those that came with a weight's update before, the share that went.
newest: dict[str, set[tuple[int, int]]] = {name: set() for name in step.patterns}
lost: dict[int, tuple[float | None, dict[str, float]]] = {}
with Recorder(folder / "mine", {"seed": 0, "method": "rigl and set"}, steps=20) as recorder:
    recorder.add(0, **sparsity.describe())
    for i in range(20):
        own = order[8 * i : 8 * i + 8]
        loss = step({n: a[own] for n, a in batch.items()}, scores=sparsity.needs_scores)
        before = stored()
        recorder.add(i + 1, loss=loss, lr=0.1, **sparsity.update())
        after = stored()
        # Patterns stay in the last quarter.
        due = [n for n in before if i + 1 < 15 and (i + 1) % (3 if n.startswith("0") else 5) == 0]
        came = sum(len(newest[name]) for name in due)
        went = {name: len(newest[name] - after[name]) for name in due if newest[name]}
        shares = {name: n / len(newest[name]) for name, n in went.items()}
        if due:
            lost[i + 1] = sum(went.values()) / came if came else None, shares
            newest |= {name: after[name] - before[name] for name in due}
    refuse(recorder.add, 21, odd=[1, 2])

# CHECK: expected a number, a text or a dictionary of them as 'odd', but got a list
# CHECK: lines 21 21, updates 6 6, losses True


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


ours, driver = lines(folder / "mine"), lines(folder / "step" / "run")
updates = [sum("turnover" in line for line in run) for run in (ours, driver)]
losses = [line["loss"] for line in ours[1:]] == theirs
print(f"lines {len(ours)} {len(driver)}, updates {updates[0]} {updates[1]}, losses {losses}")
# The same numbers under the same names, of all weights and of each.
# CHECK: both density drop imbalance loss lost lr pruned regrown step turnover used weight_density weight_imbalance weight_lost
of_time = {"step_time", "tokens_per_s", "batch_time", "update_time", "flops", "held_out",
           "peak_memory", "recompilations"}  # fmt: skip
names = [{key for line in run for key in line} - of_time for run in (ours, driver)]
print("both", *sorted(names[0] & names[1]))
# CHECK: other names none
print("other names", *(sorted(names[0] ^ names[1]) or ["none"]))
# CHECK: same True
same = [{k: v for k, v in line.items() if k not in of_time} for line in driver]
print("same", ours == same)

# What an update lost is what the blocks say, of all weights and of each.
# CHECK: lost right True, all kinds True
own = {line["step"]: (line.get("lost"), line.get("weight_lost", {})) for line in ours if line["step"]}
right = all(own[i] == lost.get(i, (None, {})) for i in own)
values = [share for _, shares in lost.values() for share in shares.values()]
print(f"lost right {right}, all kinds {any(0 < v < 1 for v in values) and len(set(values)) > 2}")
if not right:
    print(own, lost)

# Reports and TensorBoard read the folder.
# CHECK: config.yaml events metrics.jsonl patterns.jsonl sessions.jsonl summary.json
print(*sorted(p.name.split(".out")[0] for p in (folder / "mine").iterdir()))
# CHECK: pattern updates {{.*}} 6 |
# CHECK: page True True, compared True
report = subprocess.run(["sparse-report", folder / "mine"], capture_output=True, text=True, check=True)
print(report.stdout)
subprocess.run(["sparse-report", "--html", folder / "mine"], check=True, capture_output=True)
page = (folder / "mine" / "report.html").read_text()
both = folder / "both.html"
command = ["sparse-report", "--compare", both, folder / "mine", folder / "step" / "run"]
subprocess.run(command, check=True, capture_output=True)
print(f"page {'rigl and set' in page} {'blocks replaced by an update' in page}, compared {both.exists()}")
events = next((folder / "mine").glob("events.*")).read_bytes()
# CHECK: tags True True True
print("tags", *(tag in events for tag in (b"train/loss", b"patterns/turnover", b"weights/density/0.weight")))

# A loop that is resumed goes on; a folder with a run is refused, and so is what is no step.
# CHECK: expected run folder '{{.*}}mine' to hold no run, but got "metrics.jsonl" (name another, or say how many steps are done)
refuse(Recorder, folder / "mine", steps=20)
with Recorder(folder / "mine", steps=20, done=10) as recorder:
    recorder.add(11, loss=float("nan"))
# CHECK: kept 12 None
print("kept", len(lines(folder / "mine")), lines(folder / "mine")[-1]["loss"])
recorder = Recorder(folder / "other", steps=9)
recorder.add(3, loss=1)
recorder.add(3, loss=1)
# CHECK: expected a line with a step after 3, or the summary, but got '{"step": 3, "loss": 1}'
refuse(recorder.close)
# CHECK: expected done to be an integer from 0, but got -1
refuse(Recorder, folder / "x", steps=9, done=-1)
# CHECK: expected {{.*}}x{{.*}} to hold a run, but got no folder
refuse(Recorder, folder / "x", steps=9, done=1)
# CHECK: expected a step compiled with --score-norm, to have scores of the blocks of '0.weight', but got one without: compile it with sparsity=groups
refuse(sparse_opt.Sparsity, sparse_opt.compile(export, check=0, pattern="random"), groups, steps=20)
# CHECK: expected configuration key 'sparsity.method' to be one of static, set, rigl, gmp, but got 'rigel'
refuse(sparse_opt.compile, export, sparsity={"method": "rigel"})

# Layers record the same as a step that goes on from them.
from sparse_opt.torch import nn as layers  # noqa: E402

model = layers.sparsify(
    nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8)),
    "match=weight$ block=4x4 density=0.25",
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
eager = twin(model, optimizer)
step = sparse_opt.compile(
    sparse_opt.torch.export(train_step, model, optimizer, batch), check=0, sparsity=groups
)
both = layers.Sparsity(*eager, groups, steps=20), sparse_opt.Sparsity(step, groups, steps=20)
with Recorder(folder / "layers", steps=20) as recorder:
    for i in range(20):
        step(batch, scores=both[1].needs_scores)
        train_step(*eager, batch)
        recorded, wanted = (sparsity.update() for sparsity in both)
        recorder.add(i + 1, **recorded)
        assert recorded == wanted, (i, recorded, wanted)
# CHECK: layers 6 drop turnover weight_density density weight_used used weight_pruned pruned weight_regrown regrown weight_imbalance imbalance
recorded = [line for line in lines(folder / "layers") if "pruned" in line]
print("layers", len(recorded), *(key for key in recorded[0] if key != "step"))
