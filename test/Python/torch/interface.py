# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Arguments and results carry names, links, roles, inits and the user's lines.

# RUN: %python %s | FileCheck %s
# RUN: %python %s step | sparse-opt -o /dev/null

import sys

import torch
from torch import nn

from sparse_opt.torch import export


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch["x"]).square().mean()
    loss.backward()
    optimizer.step()
    return {"loss": loss, "norm": model.up.weight.norm()}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.frozen = nn.Linear(3, 3, bias=False).requires_grad_(False)
        self.drop = nn.Dropout(0.5)
        self.down = nn.Linear(3, 3, bias=False)
        self.down.weight = self.up.weight

    def forward(self, x):
        return self.down(self.frozen(self.drop(self.norm(self.up(x)))))


# Ties are aliases; what does not change has no result; the flag and the rate of
# the second group are constants; a scalar of the batch is none.

# CHECK-LABEL: func.func @step(
# CHECK-SAME: tensor<3x3xf32> {bsr.aliases = ["down.weight"], bsr.name = "up.weight", bsr.result = 0 : i64, bsr.role = "param"}
# CHECK-SAME: tensor<3xf32> {bsr.name = "up.bias", bsr.result = 1 : i64, bsr.role = "param"}
# CHECK-SAME: tensor<3xf32> {bsr.init = "ones", bsr.name = "norm.weight", bsr.result = 2 : i64, bsr.role = "param"}
# CHECK-SAME: tensor<3xf32> {bsr.init = "zeros", bsr.name = "norm.bias", bsr.result = 3 : i64, bsr.role = "param"}
# CHECK-SAME: tensor<3x3xf32> {bsr.init = "normal(0.1)", bsr.name = "frozen.weight", bsr.role = "param"}
# CHECK-SAME: tensor<3x3xf32> {bsr.init = "zeros", bsr.name = "optimizer.up.weight.momentum_buffer", bsr.result = 4 : i64, bsr.role = "state"}
# CHECK-SAME: tensor<3xf32> {bsr.init = "zeros", bsr.name = "norm.running_mean", bsr.result = 8 : i64, bsr.role = "buffer"}
# CHECK-SAME: tensor<i64> {bsr.init = "zeros", bsr.name = "norm.num_batches_tracked", bsr.result = 10 : i64, bsr.role = "buffer"}
# CHECK-SAME: tensor<4x3xf32> {bsr.name = "batch.x", bsr.role = "batch"}
# CHECK-SAME: tensor<f32> {bsr.name = "lr", bsr.role = "lr"}
# CHECK-SAME: tensor<i32> {bsr.name = "seed", bsr.role = "seed"})
# CHECK-SAME: tensor<f32> {bsr.name = "loss", bsr.role = "loss"}, tensor<f32> {bsr.name = "metrics.1", bsr.role = "metric"})
# CHECK-NOT: func.func
# CHECK-DAG: loc("{{.*}}interface.py":19:0)
# CHECK-DAG: loc("{{.*}}interface.py":20:0)

model = Model()
optimizer = torch.optim.SGD(
    [
        {"params": [model.up.weight]},
        {"params": [model.up.bias, *model.norm.parameters()], "lr": 0.2},
    ],
    lr=0.1,
    momentum=0.9,
)
before = [p.clone() for p in model.parameters()]
text = export(
    train_step,
    model,
    optimizer,
    {"x": torch.ones(4, 3), "flag": True},
    inits={"frozen": "normal(0.1)"},
)
print(text)

# The model and the optimizer are as they were.

# CHECK: unchanged True, no state True, no gradient True
if len(sys.argv) == 1:
    unchanged = all(torch.equal(p, q) for p, q in zip(before, model.parameters()))
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    print(
        f"unchanged {unchanged}, no state {not optimizer.state},"
        f" no gradient {not gradients}"
    )
