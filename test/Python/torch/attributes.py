# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Tensors in plain attributes of modules, which are neither parameters nor buffers.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

import copy

import torch
from torch import nn

import sparse_opt.torch
from twins import compare, mse_step, sgd

torch.manual_seed(1)
data = [torch.randn(4, 8) for _ in range(4)]


class Positions(nn.Module):
    """Adds positions, and scales what comes out."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.positions = torch.randn(8)
        self.second.scale = torch.tensor(2.0)

    def forward(self, x):
        return self.second(self.first(x) + self.positions) * self.second.scale


# CHECK: read: equal
compare("read", Positions, data)


class Averages(Positions):
    """Puts another tensor into one attribute, and writes into the other."""

    def forward(self, x):
        y = self.first(x)
        self.positions = 0.9 * self.positions + 0.1 * y.detach().mean(0)
        self.second.scale.add_(0.1)
        return self.second(y + self.positions) * self.second.scale


# CHECK: changed: equal
compare("changed", Averages, data)


class Other(Positions):
    """Has a buffer a second time, a tensor that it overwrites with one of another
    shape and does not read, and one that no step could hold."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.ones(8), persistent=False)
        self.same, self.last, self.odd = self.shift, torch.zeros(1), torch.zeros(2, dtype=torch.complex64)

    def forward(self, x):
        self.last = self.first(x)
        self.shift.add_(0.5)
        return self.second(self.last + self.same)


# CHECK: other: equal
compare("other", Other, data)


# What a step changes goes back into the model.

# CHECK: positions True
# CHECK: second.scale True
# CHECK: shift True
for make in (Averages, Other):
    torch.manual_seed(0)
    model = make()
    eager = copy.deepcopy(model)
    optimizer, eager_optimizer = sgd(model.parameters()), sgd(eager.parameters())
    exported = sparse_opt.torch.export(mse_step, model, optimizer, data[0])
    step = sparse_opt.compile(exported, options=["-O", "1"])
    for x in data:
        step(x), mse_step(eager, eager_optimizer, x)
    step.store()
    names = ["positions", "second.scale"] if make is Averages else ["shift"]
    for name in names:
        path, _, key = name.rpartition(".")
        got, want = (getattr(m.get_submodule(path), key) for m in (model, eager))
        print(name, torch.allclose(got, want, atol=1e-5))
