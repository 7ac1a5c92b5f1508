# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step changes outside of tensors is put back, and refused where it counts.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart\ by --implicit-check-not=accepted --implicit-check-not=damaged

import gc
import random

import numpy as np
import torch
from torch import nn, optim

import sparse_opt.torch
from refusals import refuse
from twins import compare, mse_step, sgd

torch.manual_seed(1)
data = [torch.randn(4, 8) for _ in range(3)]


class Model(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.run = forward
        self.count, self.first = 0, True
        self.kept, self.log = None, []
        self.generator = np.random.default_rng(0)

    def forward(self, x):
        return self.run(self, self.linear(x))


def check(name, forward, make_optimizer=sgd):
    """Compares a model, or prints why not; its attributes stay what they were."""

    def make():
        return Model(forward)

    model = make()
    optimizer = make_optimizer(model.parameters())
    before = [dict(m.__dict__) for m in (model, optimizer)]
    drawn, own = random.getstate(), model.generator.bit_generator.state
    collects = gc.isenabled()
    try:
        sparse_opt.torch.export(mse_step, model, optimizer, data[0])
        compare(name, make, data, make_optimizer)
    except sparse_opt.ExportError as error:
        print(error)
    same = [dict(m.__dict__) for m in (model, optimizer)] == before
    same &= random.getstate() == drawn and model.generator.bit_generator.state == own
    same &= gc.isenabled() == collects
    if not same or model.log:
        print("damaged", name)
    mse_step(model, optimizer, data[0])  # in PyTorch itself


# What is written and not read, or the same each time, is nobody's business.


def keeps_last(self, y):
    self.kept, self.shape = y, y.shape
    return self.kept


def caches(self, y):
    if self.kept is None:
        self.kept = torch.ones(8, 8).tril()
    return y @ self.kept


# CHECK: keeps last: equal
check("keeps last", keeps_last)
# CHECK: caches: equal
check("caches", caches)

# Both runs of such a step drop the same out.


class Dropped(Model):
    def __init__(self):
        super().__init__(keeps_last)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return super().forward(self.drop(self.drop(x)))


# CHECK: kept share True
model = Dropped()
exported = sparse_opt.torch.export(mse_step, model, sgd(model.parameters()), data[0])
print("kept share", exported.count("arith.shrsi") > 0)


# What goes from one step to the next in anything but tensors of the state.


def recurs(self, y):
    y = y if self.kept is None else y + self.kept
    self.kept = y.detach()
    return y


# CHECK: expected a step that does the same each time, but got one that depends on 'kept' of the model, which it sets: register it as a buffer of the module, or run the step once before the export if that sets it once and for all
check("recurs", recurs)


def begins(self, y):
    y, self.first = (2 * y if self.first else y), False
    return y


# CHECK: expected a step that does the same each time, but got one that depends on 'first' of the model, which it sets
check("begins", begins)


def counts(self, y):
    self.count += 1
    return y / self.count


# CHECK: expected a step that counts in tensors, but got one that changes 'count' of the model from 0 to 1: register it as a buffer of the module
check("counts", counts)


def logs(self, y):
    self.log.append(y.detach())
    return y


# CHECK: expected a step that counts in tensors, but got one that changes 'log' of the model from a list of 0 to a list of 1: register it as a buffer of the module
check("logs", logs)

# CHECK: expected a step that counts in tensors, but got one that changes 'generator' of the model: register it as a buffer of the module
check("own generator", lambda self, y: y * self.generator.random())


class Counts(optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.count = 0

    def step(self):
        self.count += 1
        super().step()


class CountsInGroups(optim.SGD):
    def step(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        super().step()


# CHECK: expected a step that counts in tensors, but got one that changes 'count' of the optimizer from 0 to 1: keep it in a tensor of the optimizer's state
check("Counts", lambda self, y: y, Counts)

# CHECK: expected a step that counts in tensors, but got one that changes 'step' of group 0 from none to 1: run the step once before the export
check("CountsInGroups", lambda self, y: y, CountsInGroups)

# CHECK: expected random numbers from torch, but got a step that draws from random: draw them outside of the step and put them into the batch, or use torch.rand
check("random", lambda self, y: y * random.random())

# CHECK: expected random numbers from torch, but got a step that draws from numpy.random: draw them outside of the step
check("numpy", lambda self, y: y * np.random.rand())


def seeds(self, y):
    torch.manual_seed(0)
    return y


# CHECK: expected a step that leaves PyTorch's generator alone, but got one that seeds it: give the compiled step a seed, step(batch, seed=...)
check("seeds", seeds)

gc.disable()
# CHECK: uncollected: equal
check("uncollected", lambda self, y: y)

# Tensors of the trace that objects of the user's keep, which the compiled step never changes.


class Keeps:
    """A helper of a loop: a meter, an average, a memory of batches."""

    def __init__(self):
        self.total, self.values, self.last, self.count = 0.0, [], None, 0


def refuse_helper(use):
    helper, model = Keeps(), nn.Linear(8, 8)

    def step(model, optimizer, batch):
        loss = mse_step(model, optimizer, batch)
        use(helper, model, batch, loss)
        return loss

    refuse(sparse_opt.torch.export, step, model, sgd(model.parameters()), data[0])


# CHECK: expected a step that keeps tensors in its model and optimizer alone, but got one that leaves one that was made at {{.*}}effects.py:[[@LINE+1]] in an object of its own, which the compiled step does not change: return it, or make it a buffer of the model
refuse_helper(lambda helper, model, batch, loss: helper.values.append(2 * loss))
# CHECK: but got one that leaves one that was made at {{.*}}effects.py:[[@LINE+1]] in an object of its own
refuse_helper(lambda helper, model, batch, loss: setattr(helper, "total", helper.total + loss))
# CHECK: but got one that leaves one that was made at {{.*}}effects.py:[[@LINE+1]] in an object of its own
refuse_helper(lambda helper, model, batch, loss: setattr(helper, "last", model.weight.detach().clone()))
# CHECK: but got one that leaves a part of the batch in an object of its own
refuse_helper(lambda helper, model, batch, loss: helper.values.append(batch))

# An optimizer of another model, and one in an optimizer.


def refuse_optimizer(make, train=mse_step):
    model = nn.Linear(8, 8)
    optimizer = make(model)
    refuse(sparse_opt.torch.export, train, model, optimizer, data[0])
    return optimizer


other = nn.Linear(8, 8)
second = torch.optim.Adam(other.parameters(), 0.1)


def both(model, optimizer, batch):
    loss = mse_step(model, optimizer, batch)
    second.step()
    return loss


# CHECK: expected optimizers of the model's parameters, but got a tensor of shape (8, 8) in group 0 of another one (Adam) that the model does not have
refuse_optimizer(lambda model: sgd(model.parameters()), both)


class Around(optim.Optimizer):
    """Steps an optimizer of its own groups, as SAM and others do."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, {"lr": 0.1})
        self.base = optim.SGD(self.param_groups, lr=0.1, **options)
        self.param_groups = self.base.param_groups

    def step(self):
        self.base.step()


# CHECK: expected an optimizer that leaves those it steps without a state, but got Around around SGD: let both have one state, as self.state = base.state does
around = refuse_optimizer(lambda model: Around(model.parameters(), momentum=0.5))
if around.base.state:
    print("damaged", around.base.state)
# CHECK: around: equal
compare("around", lambda: nn.Linear(8, 8), data, Around)
