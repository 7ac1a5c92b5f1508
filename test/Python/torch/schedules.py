# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Options of optimizers that schedules change are read before each step, as the rate is.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart --implicit-check-not=accepted

import warnings

import torch
from torch import nn, optim
from torch.optim.lr_scheduler import CyclicLR, OneCycleLR

import sparse_opt.torch
from refusals import refuse
from twins import compare, mse_step

torch.manual_seed(0)
data = [torch.randn(4, 8) for _ in range(6)]


def model():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def check(name, make_optimizer, make_scheduler):
    compare(name, model, data, make_optimizer, make_scheduler=make_scheduler)


# What schedulers of PyTorch move.


def cycle(optimizer):
    return OneCycleLR(optimizer, 0.05, total_steps=20)


# CHECK: one cycle, AdamW: equal
check("one cycle, AdamW", lambda p: optim.AdamW(p, 0.01, weight_decay=0.1), cycle)
# CHECK: one cycle, Adam: equal
check("one cycle, Adam", lambda p: optim.Adam(p, 0.01, amsgrad=True), cycle)
# CHECK: one cycle, RMSprop: equal
check("one cycle, RMSprop", lambda p: optim.RMSprop(p, 0.01, momentum=0.5, centered=True), cycle)
# CHECK: cycles, SGD: equal
check(
    "cycles, SGD",
    lambda p: optim.SGD(p, 0.01, momentum=0.5, nesterov=True, weight_decay=0.1),
    lambda o: CyclicLR(o, 0.01, 0.1, step_size_up=2),
)

# What a loop moves, of one group of two: the decay of weights is 0 in the other, and at last.


class Decay:
    """As in distillation without labels (DINO): the first group alone has a decay."""

    def __init__(self, optimizer):
        self.optimizer, self.left = optimizer, 5

    def step(self):
        self.left -= 1
        self.optimizer.param_groups[0]["weight_decay"] = 0.1 * max(self.left, 0)
        self.optimizer.param_groups[1]["betas"] = (0.7 + 0.01 * self.left, 0.95)


def grouped(model, make):
    layers = list(model.children())
    groups = [layers[0].parameters(), layers[2].parameters()]
    return make([{"params": list(group), "weight_decay": 0.1 * (1 - i)} for i, group in enumerate(groups)])


def moved(make, keys):
    """Returns how far a compiled step is from PyTorch's where a loop moves options."""
    programs = []
    for _ in range(2):
        torch.manual_seed(0)
        net = model()
        programs.append((net, grouped(net, make)))
    step = sparse_opt.compile(
        sparse_opt.torch.export(mse_step, *programs[0], data[0], scheduled=keys),
        ["match=weight$ block=4x4 density=1"], pattern="largest",
    )  # fmt: skip
    decays = [Decay(optimizer) for _, optimizer in programs]
    for batch in data:
        step(batch), mse_step(*programs[1], batch)
        for decay in decays:
            decay.step()
    expected = programs[1][0].state_dict()
    return max(float((v - expected[k]).abs().max()) for k, v in step.state_dict().items())


KEYS = ["weight_decay", "betas"]
# CHECK: moved True True
print("moved", moved(lambda g: optim.AdamW(g, 0.01), KEYS) < 1e-5, end=" ")
print(moved(lambda g: optim.NAdam(g, 0.01), KEYS) < 1e-5)

# An evaluation reads none of them.

# CHECK: evaluated True
net = model()
optimizer = optim.SGD(net.parameters(), 0.1, momentum=0.9)
cycle(optimizer)
step = sparse_opt.compile(sparse_opt.torch.export(mse_step, net, optimizer, data[0]))
evaluated = step.evaluate(data[0])
print("evaluated", abs(float(evaluated - step(data[0]))) < 1e-6)

# Momentum of 0 is another program.

# CHECK: expected 'momentum' of group 0 to be a number other than 0, as it was exported, but got 0.0: export the step again
optimizer.param_groups[0]["momentum"] = 0.0
refuse(step, data[0])

# CHECK: expected options of SGD that are numbers in scheduled, of dampening, momentum, weight_decay, but got 'nesterov'
refuse(sparse_opt.torch.export, mse_step, net, optimizer, data[0], scheduled=["nesterov"])

# CHECK: expected optimizer options as they were exported, but got weight_decay 0.5 instead of 0: export the step again, with scheduled=[...] for what a schedule changes
optimizer.param_groups[0].update(momentum=0.9, weight_decay=0.5)
refuse(step, data[0])


# CHECK: expected a step that leaves 'momentum' of group 0 alone, which a schedule changes, but got one that changes it, too: leave it to one of them
def changes(model, optimizer, batch):
    optimizer.param_groups[0]["momentum"] = 0.5
    return mse_step(model, optimizer, batch)


refuse(sparse_opt.torch.export, changes, net, optimizer, data[0])

# A scheduler knows that the optimizer steps, though its `step()` is not called.


def warned(check):
    layer = nn.Linear(8, 8)
    optimizer = optim.SGD(layer.parameters(), 0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    export = sparse_opt.torch.export(mse_step, layer, optimizer, data[0])
    step = sparse_opt.compile(export, check=check, options=["-O", "1"])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for batch in data[:3]:
            step(batch)
            scheduler.step()
    return [str(warning.message) for warning in found]


# CHECK: warnings: [] []
print("warnings:", warned(check=0), warned(check=1))
