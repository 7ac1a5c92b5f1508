# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A trace computes the form of a result once: not where more than forms decides.

# RUN: %python %s | FileCheck %s

import torch
from torch import nn

import sparse_opt.torch
from twins import sgd


def export(scale):
    def step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = model(batch["x"]).mean() * scale(batch["n"])
        loss.backward()
        optimizer.step()
        return loss.detach()

    model = nn.Linear(4, 4)
    batch = {"x": torch.ones(2, 4), "n": torch.ones(3, dtype=torch.int64)}
    return sparse_opt.torch.export(step, model, sgd(model.parameters()), batch)


def written(n):
    """A tensor without values is written as one with a known value, then that one."""
    (n[:1] * 1.0).add_(2.25)
    known = torch.tensor([1.0])
    known.add_(2.25)
    return float(known)


# CHECK: known: True
print("known:", "3.250000e+00" in export(written))
