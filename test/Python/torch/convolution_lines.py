# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Convolutions whose windows are in no memory, by one thread and by two.

# RUN: env OMP_NUM_THREADS=1 %python %s > %t.one
# RUN: env OMP_NUM_THREADS=2 %python %s > %t.two
# RUN: diff %t.one %t.two
# RUN: FileCheck %s < %t.one

"""Steps of a layer whose windows would be nine times its input, which is trained, too: all bits of
what is trained, and the memory of a step."""

from __future__ import annotations

import hashlib
import json
import warnings
from typing import Any

import torch
from torch import nn

import sparse_opt.torch

warnings.simplefilter("ignore")


def train(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = (model.convolution(model.x) * batch).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


def check(block: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Module()
    model.convolution = nn.Conv2d(32, 32, 3, padding=1, bias=False)
    model.x = nn.Parameter(torch.randn(2, 32, 30, 30))
    model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0625)
    batch = torch.randn_like(model.x)
    export = sparse_opt.torch.export(train, model, optimizer, batch)
    marks = [sparse_opt.Mark("weight", block=block, density=0.3, dims="row,col,col,col")]
    step = sparse_opt.compile(export, marks if block else [], check=0, options=["-O", "1"])
    bits = hashlib.sha256()
    for _ in range(3):
        bits.update(repr(float(step(batch))).encode())
    for value in step.state_dict().values():
        bits.update(value.detach().numpy().tobytes())
    arena = json.loads(step._step.manifest)["arena_bytes"]
    print(f"{block} {str(dtype)[6:]}: {arena / batch.nbytes:.1f} times the input, {bits.hexdigest()}")


for block in (16, 1, (8, 1)):
    check(block, torch.float32)
check(16, torch.float64)
check(None, torch.float32)
# CHECK: 16 float32: {{[1-4]}}.{{[0-9]}} times the input
# CHECK-NEXT: 1 float32: {{[1-4]}}.{{[0-9]}} times the input
# CHECK-NEXT: (8, 1) float32: {{[1-4]}}.{{[0-9]}} times the input
# CHECK-NEXT: 16 float64: {{[1-4]}}.{{[0-9]}} times the input
# Dense ones copy windows, and have those of the gradient as well.
# CHECK-NEXT: None float32: {{[12][0-9]}}.{{[0-9]}} times the input
