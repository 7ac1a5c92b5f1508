# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What Lightning Fabric has set up is exported as it is.

# RUN: %python %s | FileCheck %s

import copy

import lightning
import torch
from torch import nn

import sparse_opt
import sparse_opt.torch

x = torch.randn(16, 32, generator=torch.Generator().manual_seed(0))


def step_of(fabric):
    def train_step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean()
        fabric.backward(loss)
        optimizer.step()
        return loss.detach()

    return train_step


def check(form):
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    torch.manual_seed(0)
    own = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 8))
    eager = copy.deepcopy(own)
    optimizer = torch.optim.AdamW(own.parameters(), 1e-2)
    eager_optimizer = torch.optim.AdamW(eager.parameters(), 1e-2)
    model, wrapped = fabric.setup(own, optimizer)
    pair = (model if "model" in form else own, wrapped if "optimizer" in form else optimizer)
    step = sparse_opt.compile(
        sparse_opt.torch.export(step_of(fabric), *pair, x),
        ["match=0.weight$ block=8x8 density=1"], pattern="largest", options=["-O", "1"],
    )  # fmt: skip
    exported = not optimizer.state  # nothing is left in it
    reference = step_of(fabric)
    for _ in range(4):
        step(x), reference(eager, eager_optimizer, x)
    expected = eager.state_dict()

    def near(state):
        return state.keys() == expected.keys() and all(
            torch.allclose(v, expected[k], atol=1e-5) for k, v in state.items()
        )

    said = [exported, near(step.state_dict())]
    step.store()
    said.append(near(own.state_dict()))
    said.append(all(p in optimizer.state for p in own.parameters()))
    print(form, *said)


# CHECK: model and optimizer True True True True
check("model and optimizer")
# CHECK: model True True True True
check("model")
# CHECK: optimizer True True True True
check("optimizer")
