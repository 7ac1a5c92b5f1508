# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An export is saved for batches of several lengths, and sparse-train trains them as a loop
# in Python does.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

"""`Export.save(shapes=)`: the losses of a run of sparse-train and of Python's step."""

from __future__ import annotations

import itertools
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
from sparse_opt import Group

warnings.simplefilter("ignore")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.places = nn.Embedding(12, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 11)
        # Of the program, and of no checkpoint.
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 11), persistent=False)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids) + self.places.weight[: ids.shape[1]]
        return self.head(self.layer(x)) * self.scale


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["labels"].flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


def export(batch: Any, **options: Any) -> Any:
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return sparse_opt.torch.export(train_step, model, optimizer, batch, **options)


torch.manual_seed(0)


def examples(count: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 11, (count, 1)) + torch.arange(length)
    return {"ids": ids % 11, "labels": (ids + 1) % 11}


SIZES = {6: 8, 12: 4}  # sequences of a batch, by their length
data = {length: examples(20 + length, length) for length in SIZES}
first = {
    length: {name: array[:size] for name, array in data[length].items()}
    for length, size in SIZES.items()
}
held_out = {n: {f"held_out.{k}": a[:8] for k, a in data[n].items()} for n in SIZES}
every = {length: {**data[length], **held_out[length]} for length in SIZES}
marks = "match=(linear1|linear2|in_proj_weight)(.weight)?$ block=4x4 density=0.5"
folder = Path(tempfile.mkdtemp())
exported = export(first[6], marks=marks)
exported.save(folder / "a", data=every, shapes=[first[12]])

# CHECK: step: {6: "./step-6.mlir", 12: "./step-12.mlir"}
# CHECK: lengths: {0: 6, 50: 12}
# CHECK: # An array of N examples for each of a batch of 8 of length 6, by its name:
# CHECK: #   ids: [N, 6] i64, from 0 to below 11
# CHECK: # An array of N examples for each of a batch of 4 of length 12, by its name:
# CHECK: #   labels: [N, 12] i64, from 0 to below 11, or -100
# CHECK: # The files have 26, 32; a folder of .npy files does as well.
# CHECK: data: {6: "./data-6.safetensors", 12: "./data-12.safetensors"}
print((folder / "a" / "train.yaml").read_text())

# Weights, patterns, moments and the places in the data are those of one run.
# CHECK: 40 losses, 40 equal, trains True
SETTINGS = "steps=40", "sparsity.method=set", "sparsity.every=5", "sparsity.drop=0.5"
TURNS = [(0, 6), (10, 12), (18, 6), (31, 12)]
turns = "lengths={" + ", ".join(f"{step}: {length}" for step, length in TURNS) + "}"
kept = "checkpoint.every=1", "checkpoint.keep=99"
theirs = train_folder.train(folder / "a", *SETTINGS, *kept, turns)
step = sparse_opt.compile(exported, check=0, pattern="random")
sparsity = sparse_opt.Sparsity(step, Group(method="set", every=5, drop=0.5), steps=40)
orders = {length: train_folder.order(len(data[length]["ids"])) for length in SIZES}
losses = []
for i in range(40):
    length = [n for begin, n in TURNS if begin <= i][-1]
    own = list(itertools.islice(orders[length], SIZES[length]))
    losses.append(float(step({name: array[own] for name, array in data[length].items()})))
    sparsity.update()
equal = sum(a == b for a, b in zip(losses, theirs))
print(f"{len(losses)} losses, {equal} equal, trains {losses[-1] < 0.5 * losses[0]}")

# From a checkpoint of either length the run goes on with the same bits.
# CHECK: resumed True True
RUN = folder / "a" / "run"
last = (RUN / "checkpoint-000000040.safetensors").read_bytes()
for begin in (9, 25):
    for path in RUN.glob("checkpoint-*"):
        if int(path.stem.partition("-")[2]) > begin:
            path.unlink()
    train_folder.resume(RUN)
    same = (RUN / "checkpoint-000000040.safetensors").read_bytes() == last
    print("resumed" if begin == 9 else "", same, end=" ")
print()

# Micro-batches of a step are of one length, and one of all its examples.
# CHECK: accumulated True
accumulating = export(first[6], marks=marks, accumulate=True)
accumulating.save(folder / "sum", data=every, shapes=[first[12]])
summed = train_folder.train(folder / "sum", "steps=20", "accumulate=2", "lengths={0: 6, 9: 12}")
whole = {n: {k: a[: 2 * SIZES[n]] for k, a in data[n].items()} for n in SIZES}
export(whole[6], marks=marks).save(folder / "whole", data=every, shapes=[whole[12]])
whole_losses = train_folder.train(folder / "whole", "steps=20", "lengths={0: 6, 9: 12}")
print("accumulated", all(abs(a - b) < 1e-5 * abs(b) for a, b in zip(summed, whole_losses)))

# Without data the batches are the data. What tells no length is one sentence.
exported.save(folder / "batches", shapes=[first[12]])
# CHECK: trains True
own_losses = train_folder.train(folder / "batches")
print("trains", own_losses[-1] < 0.5 * own_losses[0])
# CHECK: expected 2 batches of as many lengths, but got one
refuse(exported.save, folder / "x", shapes=[{n: a[:4] for n, a in first[6].items()}])
# CHECK: expected 3 batches of as many lengths, but got 6, 12, 12
refuse(exported.save, folder / "x", shapes=[first[12], first[12]])
# CHECK: expected data to have examples for each of the lengths [6, 12], but got 'ids', 'labels'
refuse(exported.save, folder / "x", data=data[6], shapes=[first[12]])
# CHECK: nothing written True
print("nothing written", not (folder / "x").exists())
