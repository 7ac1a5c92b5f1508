# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A step may have several optimizers, each with its state and its schedule.

# RUN: %python %s %t | FileCheck %s --implicit-check-not=accepted

import copy
import sys

import torch
from torch import nn, optim
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, OneCycleLR

import sparse_opt.torch
from refusals import refuse
from twins import mse_step, sgd

torch.manual_seed(0)
data = [torch.randn(8, 16) for _ in range(6)]

class Adversaries(nn.Module):
    """Two models, as of a GAN."""

    def __init__(self):
        super().__init__()
        self.make = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self.judge = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 8))


def optimizers_of(model):
    maker = optim.AdamW(model.make.parameters(), 0.02, betas=(0.5, 0.999))
    groups = [list(layer.parameters()) for layer in (model.judge[0], model.judge[2])]
    rates = [{"params": groups[0], "lr": 0.1}, {"params": groups[1], "lr": 0.05}]
    return {"make": maker, "judge": optim.SGD(rates, momentum=0.9)}


def schedulers_of(optimizers):
    cycle = OneCycleLR(optimizers["judge"], [0.2, 0.1], total_steps=20)
    return [ExponentialLR(optimizers["make"], 0.7), cycle]


def loss_of(y, label):
    return binary_cross_entropy_with_logits(y, torch.full_like(y, label))


def train(model, optimizers, batch):
    """The judge has gradients of the other's loss until its own zero_grad()."""
    model.judge.zero_grad()
    made = model.make(batch.flip(0))
    judged = loss_of(model.judge(batch), 1.0) + loss_of(model.judge(made.detach()), 0.0)
    judged.backward()
    optimizers["judge"].step()
    optimizers["make"].zero_grad()
    loss = loss_of(model.judge(made), 1.0)
    loss.backward()
    optimizers["make"].step()
    return judged.detach(), loss.detach()


def difference(state, other):
    """Returns how far the tensors and numbers of two states are from one another."""
    (one, tree), (two, other_tree) = map(torch.utils._pytree.tree_flatten, (state, other))
    numbers = [x for x in zip(one, two) if isinstance(x[0], (torch.Tensor, float))]
    return max(float((torch.as_tensor(a) - torch.as_tensor(b)).abs().max()) for a, b in numbers)


def make():
    torch.manual_seed(1)
    model = Adversaries()
    optimizers = optimizers_of(model)
    return model, optimizers, schedulers_of(optimizers)


def compiled(model, optimizers, marks, step=train, **options):
    export = sparse_opt.torch.export(step, model, optimizers, data[0], marks=marks, **options)
    return sparse_opt.compile(export, pattern="largest", options=["-O", "1"], check=6)


# Two schedules, of rates and of a momentum; what is stored goes on in PyTorch.

# CHECK: arguments ['lr', 'optimizer.groups.1.lr', 'optimizer.groups.1.momentum', 'optimizer.groups.2.lr', 'optimizer.groups.2.momentum']
# CHECK: weights True, states True, rates False, checkpoint True
model, optimizers, schedulers = make()
eager, eager_optimizers, eager_schedulers = make()
step = compiled(model, optimizers, ["match=(make|judge).0.weight$ block=4x4 density=1"])
print("arguments", sorted(n for n in step.buffers if n == "lr" or ".groups." in n))
for i, batch in enumerate(data):
    step(batch), train(eager, eager_optimizers, batch)
    if i == 2:
        step.save(sys.argv[1])
        at_save = step.native_state()
    for scheduler in (*schedulers, *eager_schedulers):
        scheduler.step()
step.store()
states = [{k: o.state_dict() for k, o in held.items()} for held in (optimizers, eager_optimizers)]
weights = difference(model.state_dict(), eager.state_dict()) < 1e-5
moments = difference(*states) < 1e-4
rates = [o.param_groups[0]["lr"] for o in optimizers.values()]
step.load(sys.argv[1])
same = all((v == at_save[k]).all() for k, v in step.native_state().items())
print(f"weights {weights}, states {moments}, rates {rates[0] == rates[1]}, checkpoint {same}")

# Sparse: the check compares six runs with the program, behind an update of patterns, too.
# CHECK: sparse 0.5
model, optimizers, schedulers = make()
step = compiled(model, optimizers, ["match=(make|judge).0.weight$ block=4x4 density=0.5"])
for i, batch in enumerate(data):
    step(batch)
    for scheduler in schedulers:
        scheduler.step()
step.update_patterns(0.3)
step(data[0])
print("sparse", float((step.state_dict()["judge.0.weight"] != 0).float().mean()))

# One that the step closes over, of other parameters of one model; gradients of the user's stay.


def pair():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 8))
    return model, sgd(model[0].parameters()), optim.Adam(model[2].parameters(), torch.tensor(0.01))


def closing(second):
    def step(model, optimizer, batch):
        second.zero_grad()
        loss = mse_step(model, optimizer, batch)
        second.step()
        return loss

    return step


# CHECK: closed over True, gradients True
programs = [pair(), pair()]
model, first, second = programs[0]
mse_step(programs[0][0], first, data[0]), mse_step(programs[1][0], programs[1][1], data[0])
gradients = [p.grad.clone() for p in model.parameters()]
step = compiled(model, first, ["match=2.weight$ block=4x4 density=1"], closing(second))
kept = all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients))
schedulers = [CosineAnnealingLR(s, 10) for _, _, s in programs]
for batch in data:
    step(batch), closing(programs[1][2])(*programs[1][:2], batch)
    for scheduler in schedulers:
        scheduler.step()
print(f"closed over {difference(step.state_dict(), programs[1][0].state_dict()) < 1e-5}, gradients {kept}")

# Micro-batches; an option of one of them.
# CHECK: micro-batches True
model, first, second = pair()
adding = compiled(model, [first, second], [], lambda m, o, x: closing(o[1])(m, o[0], x), accumulate=True, scheduled=["eps"])
second.param_groups[0]["eps"] = 1e-3
for i, batch in enumerate(data):
    adding(batch, apply=i % 2 == 1)
print("micro-batches", "optimizer.groups.1.eps" in adding.buffers)

# One that has taken steps beside a new one. The check finds what is wrong of either: the state in front of the first
# step is each one's own.


def beside(change=None):
    model, _, second = pair()
    first = optim.AdamW(model[0].parameters(), 0.01)
    mse_step(model, first, data[0])
    marks = ["match=(0|2).weight$ block=4x4 density=0.5"]
    step = compiled(model, {"a": first, "b": second}, marks, lambda m, o, x: closing(o["b"])(m, o["a"], x))
    run = step._session.run

    def run_wrong():
        before = {name: array.copy() for name, array in step.arrays.items()}
        run()
        change(before, step.arrays)

    if change:
        step._session.run = run_wrong
    step(data[0]), step(data[1])
    print("beside", int(step.read("optimizer.0.bias.step")), int(step.read("optimizer.2.bias.step")))


def scale(name):
    def change(before, after):
        after[name] += 0.01 * (after[name] - before[name])

    return change


def freeze(name):
    def change(before, after):
        after[name][...] = before[name]

    return change


# CHECK-NEXT: beside 3 2
# CHECK-NEXT: expected run 1 {{.*}} but got 'optimizer.0.weight.exp_avg' {{.*}} away
# CHECK-NEXT: expected run 1 {{.*}} but got 'optimizer.0.bias.step' 1 away
# CHECK-NEXT: expected run 1 {{.*}} but got 'optimizer.2.weight.exp_avg' {{.*}} away
# CHECK-NEXT: expected run 1 {{.*}} but got 'optimizer.2.bias.step' 1 away
beside()
refuse(beside, scale("optimizer.0.weight.exp_avg"))
refuse(beside, freeze("optimizer.0.bias.step"))
refuse(beside, scale("optimizer.2.weight.exp_avg"))
refuse(beside, freeze("optimizer.2.bias.step"))

# What is not carried.


def refuse_export(step, model, optimizers):
    refuse(sparse_opt.torch.export, step, model, optimizers, data[0])


# CHECK: expected each parameter in one optimizer, but got '0.weight' in two, SGD and Adam: give it to one of them; an optimizer that steps another one takes its groups and leaves it no state
model, first, _ = pair()
both = optim.Adam(model.parameters())
refuse_export(lambda m, o, x: closing(both)(m, o, x), model, first)
# CHECK: expected optimizers of the model's parameters, but got a tensor of shape (16, 16) in group 0 of another one (Adam) that the model does not have: export both models as one, as torch.nn.ModuleList([model, other])
other = optim.Adam(nn.Linear(16, 16).parameters())
refuse_export(lambda m, o, x: closing(other)(m, o, x), model, first)
# CHECK: expected an optimizer of torch.optim, but got a list: export(train_step, model, optimizer, batch)
# CHECK: expected an optimizer of torch.optim, but got a int
refuse_export(train, model, [])
refuse_export(train, model, {"a": first, "b": 1})

# Gradients that the next step would read, which a trace has not.


def clears_late(model, optimizers, batch):
    """The judge steps by gradients of the other's loss of the step before, too."""
    made = model.make(batch)
    loss_of(model.judge(batch), 1.0).backward()
    optimizers["judge"].step()
    optimizers["judge"].zero_grad()
    optimizers["make"].zero_grad()
    loss = loss_of(model.judge(made), 1.0)
    loss.backward()
    optimizers["make"].step()
    return loss.detach()


def clears_all_late(model, optimizers, batch):
    loss = clears_late(model, optimizers, batch)
    model.zero_grad(set_to_none=False)
    return loss


# CHECK: expected a step that clears the gradients, but got those of 'judge.0.weight' left over: call optimizer.zero_grad() in it
# CHECK: zeros stay
refuse_export(clears_late, *make()[:2])
model, optimizers, _ = make()
sparse_opt.torch.export(clears_all_late, model, optimizers, data[0])
print("zeros stay")
