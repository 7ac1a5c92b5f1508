# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An export is saved, and sparse-train trains it as a loop in Python does.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

"""`Export.save`: the losses of a run of sparse-train and of Python, and what is refused."""

from __future__ import annotations

import itertools
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
from sparse_opt import Group, _marks, _start

warnings.simplefilter("ignore")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.both = nn.Parameter(torch.randn(32, 16) / 4)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 4)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids).mean(1)
        # Of slices the compiler makes a matrix each.
        x = F.linear(x, self.both[:16]) * torch.sigmoid(F.linear(x, self.both[16:]))
        return self.head(self.norm(x))


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch["ids"]), batch["labels"])
    loss.backward()
    optimizer.step()
    return loss.detach()


def export(batch: Any, step: Any = train_step, module: Any = Model, **options: Any) -> Any:
    torch.manual_seed(1)
    model = module()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    return sparse_opt.torch.export(step, model, optimizer, batch, **options)


torch.manual_seed(0)
data = {"ids": torch.randint(0, 11, (20, 3)), "labels": torch.randint(0, 4, (20,))}
held_out = {f"held_out.{name}": array[:4] for name, array in data.items()}
first = {name: array[:8] for name, array in data.items()}
marks = ["match=both block=4x4 density=0.5", "match=head.weight$ block=4x4 density=0.5"]
folder = Path(tempfile.mkdtemp())
exported = export(first, marks=marks)
exported.save(folder / "a", data={**data, **held_out})

# Patterns, weights, examples and updates are those of the loop.
# CHECK: 40 losses, 40 equal, trains True
theirs = train_folder.train(
    folder / "a", "steps=40", "sparsity.method=set", "sparsity.every=5", "sparsity.drop=0.5"
)
step = sparse_opt.compile(exported, check=0, pattern="random")
sparsity = sparse_opt.Sparsity(step, Group(method="set", every=5, drop=0.5), steps=40)
examples = train_folder.order(20)
losses = []
for _ in range(40):
    own = list(itertools.islice(examples, 8))
    losses.append(float(step({name: array[own] for name, array in data.items()})))
    sparsity.update()
equal = sum(a == b for a, b in zip(losses, theirs))
print(f"{len(losses)} losses, {equal} equal, trains {losses[-1] < 0.5 * losses[0]}")

# The configuration says what the arrays are; the folder may lie elsewhere.
# CHECK: step: ./step.mlir
# CHECK: #   ids: [N, 3] i64, from 0 to below 11
# CHECK: #   labels: [N] i64, from 0 to below 4, or -100
# CHECK: limits: {"ids": 11, "labels": 4}
# CHECK-NEXT: ignored: {"labels": -100}
# CHECK: rate: {peak: 0.02, decay: constant}
# CHECK: compile: {cache: ./cache, options: ["--mark=match=both block=4x4 density=0.5", "--mark=match=head.weight$ block=4x4 density=0.5"]}
print((folder / "a" / "train.yaml").read_text())
(folder / "a").rename(folder / "moved")
# CHECK: the same True
subprocess.run(["rm", "-r", folder / "moved" / "run"], check=True)
again = train_folder.train(
    folder / "moved", "steps=40", "sparsity.method=set", "sparsity.every=5", "sparsity.drop=0.5"
)
print("the same", again == theirs)

# Without data the batch is the data; without marks all is dense; the largest blocks are
# those of the values, of which a loop takes them as well.
export(first).save(folder / "dense")
# CHECK: dense, trains True
dense = train_folder.train(folder / "dense")
print("dense, trains", dense[-1] < 0.5 * dense[0])
head = marks[1]
export(first).save(folder / "largest", marks=head)
largest = train_folder.train(folder / "largest", "steps=1", "sparsity.init=largest")
# CHECK: largest True
step = sparse_opt.compile(export(first), head, check=0, pattern="largest")
order = list(itertools.islice(train_folder.order(8), 8))
print("largest", largest == [float(step({n: a[order] for n, a in first.items()}))])

# rigl brings scores along.
# CHECK: rigl True
subprocess.run(["rm", "-r", folder / "moved" / "run"], check=True)
rigl = train_folder.train(folder / "moved", "sparsity.method=rigl", "sparsity.every=5")
print("rigl", rigl[-1] < 0.5 * rigl[0])

# Values that lack a weight are no reason for zeros.
# CHECK: error: expected the step to say what parameter 'head.weight' begins with, but got no rule
# CHECK: error: expected the file of configuration key 'values' to have weight 'head.weight' for init largest, but got none
lacking = folder / "lacking"
arguments = _marks.arguments_of(exported)
values = {n: (v, arguments[n].type) for n, v in exported.program.values()}
_start.write_tensors(lacking, {n: v for n, v in values.items() if n != "head.weight"})
print(train_folder.refused(folder / "dense", f"values={lacking}", "run=none"))
print(train_folder.refused(folder / "largest", f"values={lacking}", "run=none", "sparsity.init=largest"))

# What cannot be saved is one sentence.
# CHECK: expected a folder without a train.yaml, but got '{{.*}}dense/train.yaml': remove it, or save to another folder
refuse(export(first).save, folder / "dense")
# CHECK: expected data to have arrays 'ids', 'labels', and maybe held_out.<name>, but got 'ids'
refuse(exported.save, folder / "x", data={"ids": data["ids"]})
# CHECK: expected data to have arrays 'ids', 'labels', and maybe held_out.<name>, but got 'ids', 'labels', 'more'
refuse(exported.save, folder / "x", data={**data, "more": data["ids"]})
# CHECK: expected examples [3] i64 in 'ids', but got int64 of shape [20, 2]
refuse(exported.save, folder / "x", data={**data, "ids": data["ids"][:, :2]})
# CHECK: expected examples [] i64 in 'labels', but got float32 of shape [20]
refuse(exported.save, folder / "x", data={**data, "labels": data["labels"].float()})
# CHECK: expected integers from 0 to below 4 in 'labels', by which the program looks up, but got -1
refuse(exported.save, folder / "x", data={**data, "labels": torch.full((20,), -1)})
# CHECK: expected integers from 0 to below 11 in 'ids', by which the program looks up, but got 11
refuse(exported.save, folder / "x", data={**data, "ids": data["ids"] + 1})
# CHECK: expected 'both' to match the bsr.name of an argument that is multiplied with a weight entry by entry, but got none
refuse(export(first).save, folder / "x", marks="match=head.weight$ block=4x4 density=0.5 mask=both")
# CHECK: expected 'heat' to match the bsr.name of a weight, but got no match
refuse(export(first).save, folder / "x", marks="match=heat block=4x4")


def twice(model: Any, optimizer: Any, batch: Any) -> Any:
    return train_step(model, optimizer, {"ids": batch["a"]["x"], "labels": batch["b"]["x"]})


# CHECK: expected arrays of a batch whose names end in different words, as sparse-train calls them, but got 'x' twice
pair = {"a": {"x": first["ids"]}, "b": {"x": first["labels"]}}
refuse(export(pair, twice).save, folder / "x")


def scaled(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch["ids"]), batch["labels"]) * batch["scale"]
    loss.backward()
    optimizer.step()
    return loss.detach()


# CHECK: expected 'batch.scale' to have a dimension of examples, but got one number
refuse(export({**first, "scale": torch.tensor(2.0)}, scaled).save, folder / "x")
# CHECK: expected an export of PyTorch or JAX, whose program has the values to save, but got a text
refuse(sparse_opt.Export("module {}").save, folder / "x")
# CHECK: nothing written True
print("nothing written", not (folder / "x").exists())
