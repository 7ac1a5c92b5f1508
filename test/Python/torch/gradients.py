# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Whatever a PyTorch step uses gradients and next values for, it sees those of w * mask,
# as PyTorch computes them in f64; and new blocks begin with what state began with.

# RUN: %python %s | FileCheck %s

import copy
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

import sparse_opt
import sparse_opt.torch

NAME = "net.2.weight"
generator = torch.Generator().manual_seed(0)
batch = torch.randn(8, 16, generator=generator), torch.randn(8, 8, generator=generator)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 8))
        self.average = copy.deepcopy(self.net).requires_grad_(False)
        self.mask = None

    def masked(self, parameters):
        """The parameters of a call; those of the reference are multiplied by the mask."""
        return {k: v * self.mask if k == NAME and self.mask is not None else v for k, v in parameters.items()}

    def forward(self, x):
        return self.net(x)


def loss_of(model, parameters, x, y):
    return F.mse_loss(functional_call(model, model.masked(parameters), (x,)), y)


def trained(model):
    return {k: v for k, v in model.named_parameters() if v.requires_grad}


def averaged(model, optimizer, batch):
    optimizer.zero_grad()
    loss = loss_of(model, trained(model), *batch)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(model.average.parameters(), model.net.parameters()):
            a.lerp_(p, 0.1)
    return loss.detach()


def private(model, optimizer, batch):
    parameters = {k: v.detach() for k, v in trained(model).items()}
    each = vmap(grad(lambda p, x, y: loss_of(model, p, x[None], y[None])), (None, 0, 0))(parameters, *batch)
    norms = torch.sqrt(sum(g.flatten(1).square().sum(1) for g in each.values()))
    factors = (0.3 / norms).clamp(max=1.0)
    for name, p in trained(model).items():
        p.grad = torch.einsum("b,b...->...", factors, each[name])
    optimizer.step()
    optimizer.zero_grad()
    return norms.mean()


def balanced(model, optimizer, batch):
    optimizer.zero_grad()
    parameters = trained(model)
    y = functional_call(model, model.masked(parameters), (batch[0],))
    losses = F.mse_loss(y, batch[1]), y.square().mean()
    norms = [torch.autograd.grad(l, parameters[NAME], retain_graph=True)[0].norm() for l in losses]
    share = (norms[1] / (norms[0] + norms[1])).detach()
    loss = share * losses[0] + (1 - share) * losses[1]
    loss.backward()
    optimizer.step()
    return loss.detach()


def check(step, make):
    torch.manual_seed(0)
    model = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export = sparse_opt.torch.export(step, model, make(model.net.parameters()), batch)
        compiled = sparse_opt.compile(
            export, ["match=^net.2.weight$ block=4x4 density=0.5"], pattern="random", options=["-O", "1"]
        )
    grid = np.zeros((2, 4))
    blocks = compiled.blocks(NAME)
    grid[blocks.rows, blocks.col_idx] = 1
    model.load_state_dict(compiled.state_dict())
    right = copy.deepcopy(model).double()
    right.mask = torch.from_numpy(np.kron(grid, np.ones((4, 4))))
    optimizer = make(right.net.parameters())
    for _ in range(3):
        got = float(compiled(batch))
        want = float(step(right, optimizer, [b.double() for b in batch]))
        assert abs(got - want) < 1e-5 * abs(want), (got, want)
    after = compiled.state_dict()
    for name, expected in right.state_dict().items():
        torch.testing.assert_close(after[name].double(), expected, rtol=1e-4, atol=1e-5)
    print(step.__name__, "as PyTorch, kept of the average", round(float((after["average.2.weight"] != 0).float().mean()), 2))


# CHECK: averaged as PyTorch, kept of the average 0.5
# CHECK-NEXT: private as PyTorch, kept of the average 1.0
# CHECK-NEXT: balanced as PyTorch, kept of the average 1.0
check(averaged, lambda p: torch.optim.AdamW(p, 1e-2))
check(private, lambda p: torch.optim.SGD(p, 0.1))
check(balanced, lambda p: torch.optim.SGD(p, 0.1))


# Rprop multiplies its step sizes, which begin with the rate.
def plain(model, optimizer, batch):
    optimizer.zero_grad()
    loss = F.mse_loss(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.detach()


# CHECK-NEXT: step sizes of new blocks [0.01]
model = nn.Linear(16, 8)
optimizer = torch.optim.Rprop(model.parameters(), lr=0.01)
export = sparse_opt.torch.export(plain, model, optimizer, batch)
compiled = sparse_opt.compile(export, ["match=weight$ block=4x4 density=0.5"], pattern="random", options=["-O", "1"])
for _ in range(3):
    compiled(batch)


def stored():
    grid = np.zeros((2, 4), bool)
    blocks = compiled.blocks("weight")
    grid[blocks.rows, blocks.col_idx] = True
    return np.kron(grid, np.ones((4, 4), bool))


before = stored()
compiled.update_patterns(0.5)
new = stored() & ~before
sizes = np.unique(compiled.read("optimizer.weight.step_size")[new])
print("step sizes of new blocks", [round(float(s), 6) for s in sizes])
