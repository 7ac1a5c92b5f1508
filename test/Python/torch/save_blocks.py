# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An export of a program that has blocks, or masks, itself is saved, and so are negative integers.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

"""`Export.save` of block-sparse layers, of masks and of integers below 0: the losses of a
run of sparse-train and of Python."""

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
from torch.nn.utils import prune

import sparse_opt
import sparse_opt.torch
import sparse_opt.torch.nn as sparse_nn
import train_folder
from refusals import refuse

warnings.simplefilter("ignore")
folder = Path(tempfile.mkdtemp())
torch.manual_seed(0)
data = {"x": torch.randn(20, 16), "labels": torch.randint(0, 8, (20,))}


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch["x"]), batch["labels"])
    loss.backward()
    optimizer.step()
    return loss.detach()


def compare(
    name: str, exported: Any, data: Any, *settings: str, groups: Any = (), **options: Any
) -> None:
    """Prints whether a saved export and a loop have the same losses."""
    held_out = {f"held_out.{key}": array[:8] for key, array in data.items()}
    exported.save(folder / name, data={**data, **held_out})
    theirs = train_folder.train(folder / name, "steps=20", *settings)
    step = sparse_opt.compile(exported, check=0, **options)
    sparsity = sparse_opt.Sparsity(step, groups, steps=20) if groups else None
    examples, losses = train_folder.order(20), []
    for _ in range(20):
        own = list(itertools.islice(examples, 8))
        losses.append(float(step({key: array[own] for key, array in data.items()})))
        if sparsity:
            sparsity.update()
    equal = sum(a == b for a, b in zip(losses, theirs))
    print(f"{name}: {equal} of {len(theirs)} equal, trains {losses[-1] < losses[0]}")


def model_of(*layers: Any) -> Any:
    model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(32, 8))
    return model, torch.optim.AdamW(model.parameters(), lr=0.02)


# The first blocks are those of the layers, whose optimizer has trained them.
# CHECK: layers: 20 of 20 equal, trains True
model, optimizer = model_of(sparse_nn.Linear(16, 32, block=4, density=0.5))
first = {key: array[:8] for key, array in data.items()}
for _ in range(3):
    train_step(model, optimizer, first)
exported = sparse_opt.torch.export(train_step, model, optimizer, first)
compare("layers", exported, data)
# CHECK: stored 16
pattern = json.loads((folder / "layers" / "patterns" / "0.weight.json").read_text())
print("stored", len(pattern["col_idx"]))
# Others than these train otherwise.
# CHECK: other blocks, other losses True
text = (folder / "layers" / "train.yaml").read_text()
(folder / "layers" / "train.yaml").write_text(text.replace(', init: file, file: "./patterns/{name}.json"', ""))
losses = [json.loads(line)["loss"] for line in (folder / "layers/run/metrics.jsonl").open() if '"loss"' in line]
subprocess.run(["rm", "-r", folder / "layers" / "run"], check=True)
print("other blocks, other losses", train_folder.train(folder / "layers", "steps=20") != losses)

# Updates go on from there, in the loop as in sparse-train.
# CHECK: updates: 20 of 20 equal, trains True
compare(
    "updates", exported, data, "sparsity.method=set", "sparsity.every=5", "sparsity.drop=0.5",
    groups=sparse_opt.Group(method="set", every=5, drop=0.5),
)  # fmt: skip

# So are those that the program's own masks keep; a mark of another weight needs one, too.
# CHECK: masks: 20 of 20 equal, trains True
model, optimizer = model_of(nn.Linear(16, 32))
mask = (torch.rand(8, 4) > 0.5).repeat_interleave(4, 0).repeat_interleave(4, 1).float()
prune.custom_from_mask(model[0], "weight", mask)
marks = "match=weight_orig$ block=4x4 density=0.8 mask=weight_mask$"
exported = sparse_opt.torch.export(train_step, model, optimizer, first, marks=marks)
compare("masks", exported, data, pattern="mask")
# CHECK: kept True
pattern = json.loads((folder / "masks" / "patterns" / "0.weight_orig.json").read_text())
print("kept", len(pattern["col_idx"]) == int(mask[::4, ::4].sum()))
# CHECK: expected a mask of '2.weight' with values to take its pattern from, but got none: mark it with mask=<names of masks>
refuse(exported.save, folder / "x", marks=[marks, "match=2.weight block=4x4 density=0.5"])

# Labels that the loss passes over are no classes; features may be below 0.
# CHECK: ignored: 20 of 20 equal, trains True
labels = data["labels"].masked_fill(torch.arange(20) % 3 == 0, -100)
steps = torch.randint(-5, 6, (20, 16), dtype=torch.int32)


def of_steps(model: Any, optimizer: Any, batch: Any) -> Any:
    return train_step(model, optimizer, {"x": batch["x"] * 0.2, "labels": batch["labels"]})


both = {"x": steps, "labels": labels}
model, optimizer = model_of(nn.Linear(16, 32))
exported = sparse_opt.torch.export(of_steps, model, optimizer, {k: a[:8] for k, a in both.items()})
compare("ignored", exported, both)
# CHECK: #   x: [N, 16] i32, from -5 to below 6
# CHECK: #   labels: [N] i64, from 0 to below 8, or -100
# CHECK: limits: {"x": 6, "labels": 8}
# CHECK-NEXT: least: {"x": -5}
# CHECK-NEXT: ignored: {"labels": -100}
print((folder / "ignored" / "train.yaml").read_text())
# What is neither is refused, here and by sparse-train.
# CHECK: expected integers from 0 to below 8 in 'labels', by which the program looks up, but got -99
refuse(exported.save, folder / "x", data={**both, "labels": labels.masked_fill(labels == -100, -99)})
# CHECK: error: expected integers from 0 to below 8, as limits says, in array 'labels', but got -100
# CHECK: error: expected integers from -4 to below 6, as limits says, in array 'x', but got -5
print(train_folder.refused(folder / "ignored", "run=none", "ignored={}"))
print(train_folder.refused(folder / "ignored", "run=none", "least={x: -4}"))


def shifted(model: Any, optimizer: Any, batch: Any) -> Any:
    return train_step(model, optimizer, {"x": batch["x"], "labels": batch["labels"] + 1})


# What looks up by a sum of the labels does not say of them where they lie.
# CHECK: expected integers from 0 to below 7 in 'labels', by which the program looks up, but got -1
low = {"x": data["x"][:8], "labels": data["labels"][:8].clamp(0, 6) }
exported = sparse_opt.torch.export(shifted, *model_of(nn.Linear(16, 32)), low)
refuse(exported.save, folder / "x", data={"x": data["x"][:8], "labels": low["labels"].clamp(6, 6).index_fill(0, torch.tensor([0]), -1)})
# CHECK: nothing written True
print("nothing written", not (folder / "x").exists())
