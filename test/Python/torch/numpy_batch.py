# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A batch may be of NumPy's arrays wherever it may be of tensors.

# RUN: %python %s | FileCheck %s

import numpy as np
import torch
from torch import nn

import sparse_opt
import sparse_opt.torch
from refusals import refuse

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 16)
        self.head = nn.Linear(16, 16, bias=False)

    def forward(self, ids, scale, bits):
        return self.head(self.table(ids) * scale.float().unsqueeze(-1)) + bits.float()


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    y = model(batch["ids"], batch["scale"], batch["bits"])
    loss = nn.functional.cross_entropy(y, batch["labels"])
    loss.backward()
    optimizer.step()
    return loss


def make():
    model = Model()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


batch = {
    "ids": torch.arange(8) % 10,
    "labels": torch.arange(8) * 2 % 16,
    "scale": torch.linspace(1, 2, 8).bfloat16(),
    "bits": (torch.arange(8 * 16) * 37 % 251).to(torch.uint8).reshape(8, 16),
    "name": "constant",
}
export = sparse_opt.torch.export(train_step, *make(), batch)
step, other = (
    sparse_opt.compile(export, ["match=head block=4x4 density=0.5"], pattern="random", options=["-O", "1"])
    for _ in range(2)
)
arrays = {k: v.numpy() if isinstance(v, torch.Tensor) and k != "scale" else v for k, v in batch.items()}

# Inputs, what indexes a table, labels, and types that the runtime holds as bits of another.

# CHECK: the same losses and weights True
losses = [(float(step(batch)), float(other(arrays))) for _ in range(3)]
same = np.array_equal(step.read("head.weight"), other.read("head.weight"))
print("the same losses and weights", all(a == b for a, b in losses) and same)

# CHECK: expected indices from 0 to 9 in 'batch.ids', but got 10
refuse(step, {**arrays, "ids": arrays["ids"] + 3})
# CHECK: expected 'batch.labels' of type int64, but got int32
refuse(step, {**arrays, "labels": arrays["labels"].astype(np.int32)})
# CHECK: expected 'batch.name' to be 'constant', but got array
refuse(step, {**arrays, "name": np.zeros(3)})
# CHECK: expected an array without a mask for 'batch.labels', but got a numpy.ma.MaskedArray
refuse(step, {**arrays, "labels": np.ma.masked_array(arrays["labels"], arrays["labels"] > 3)})

# The example of a batch, at the export, is of tensors: it says what is data.

# CHECK: expected 'batch.ids' to be a tensor, but got a ndarray: give an example of a batch, with torch.from_numpy for NumPy's arrays
refuse(sparse_opt.torch.export, train_step, *make(), arrays)
