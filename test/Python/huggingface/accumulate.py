# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What accelerate has prepared is exported as it is, and windows of its own are refused.

# REQUIRES: trainer
# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

import accelerate
import torch
from torch import nn

import sparse_opt.torch
from refusals import refuse

x = torch.randn(16, 32, generator=torch.Generator().manual_seed(0))


def prepared(count):
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=count)
    model = nn.Linear(32, 32)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model, optimizer = accelerator.prepare(model, optimizer)

    def train_step(model, optimizer, batch):
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = ((model(batch) - 1) ** 2).mean()
            accelerator.backward(loss)
            optimizer.step()
        return loss.detach()

    return train_step, model, optimizer


# CHECK: losses equal True
step, model, optimizer = prepared(1)
expected = [float(step(model, optimizer, x)) for _ in range(3)]
compiled = sparse_opt.compile(sparse_opt.torch.export(*prepared(1), x))
print("losses equal", all(abs(float(compiled(x)) - loss) < 1e-5 for loss in expected))

# CHECK: expected an Accelerator with gradient_accumulation_steps=1, but got 2, of which one step is exported: leave out accelerator.accumulate() and export with accumulate=True, for step(batch, apply=...)
accelerate.state.GradientState._reset_state()
refuse(sparse_opt.torch.export, *prepared(2), x)
