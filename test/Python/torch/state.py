# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A compiled step and PyTorch's objects hand the state to each other.

# RUN: %python %s %t.bsr | FileCheck %s

import copy
import sys
import warnings

import torch
from torch import nn

import sparse_opt
import sparse_opt.torch
from refusals import refuse


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model(batch) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def close(model, other):
    pairs = zip(model.state_dict().values(), other.state_dict().values())
    return all(torch.allclose(x, y, atol=1e-5) for x, y in pairs)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8, bias=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
eager = copy.deepcopy(model)
eager_optimizer = torch.optim.AdamW(eager.parameters(), lr=0.01)
eager_scheduler = torch.optim.lr_scheduler.StepLR(eager_optimizer, 2, 0.1)
batch = torch.randn(4, 8)
for _ in range(2):  # an optimizer that has begun goes on
    train_step(model, optimizer, batch), train_step(eager, eager_optimizer, batch)

exported = sparse_opt.torch.export(train_step, model, optimizer, batch)
step = sparse_opt.compile(exported, options=["-O", "1"])

# The scheduler's rate is that of the next step.

# CHECK: scheduled True
for _ in range(4):
    step(batch), train_step(eager, eager_optimizer, batch)
    scheduler.step(), eager_scheduler.step()
got = step.state_dict()
print("scheduled", all(torch.allclose(got[k], v, atol=1e-5) for k, v in eager.state_dict().items()))

# The user's own objects have what the step has, and go on without it.

# CHECK: seen True, goes on True
seen = close(model, eager)
train_step(model, optimizer, batch), train_step(eager, eager_optimizer, batch)
print(f"seen {seen}, goes on {close(model, eager)}")

# An array is the step's own memory for PyTorch too.

# CHECK: view True
step.state_dict()  # takes what the eager step has written, which would come later
torch.from_numpy(step.arrays["0.bias"]).fill_(3.0)
print("view", bool((step.state_dict()["0.bias"] == 3).all()))

# CHECK: loaded True
step.load_state_dict(model.state_dict())
print("loaded", torch.equal(step.state_dict()["2.weight"], model[2].weight))

# A checkpoint repeats sparse training, its patterns included.

marks = ["match=weight$ block=4x4 density=0.5"]
first = sparse_opt.compile(exported, marks, seed=5, options=["-O", "1"])
first(batch), first.update_patterns(0.5)
first.save(sys.argv[1])
want = [float(first(batch)) for _ in range(3)]
again = sparse_opt.compile(exported, marks, options=["-O", "1"])
again.load(sys.argv[1])

# CHECK: repeated True, zeros True
zeros = float((again.state_dict()["2.weight"] == 0).float().mean())
print("repeated", want == [float(again(batch)) for _ in range(3)], end=", ")
print("zeros", zeros >= 0.5)

# What is lost warns.


def warned(action):
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        action()
    print(", ".join(str(m.message) for m in messages) or "no warning")


# CHECK: the blocks of '0.weight' that are stored are random, and what its weights hold elsewhere is dropped: say pattern='largest' for trained weights, pattern='random' for new ones
# CHECK-NEXT: no warning
# CHECK-NEXT: no warning
warned(lambda: sparse_opt.compile(exported, marks, options=["-O", "0"]))
warned(lambda: sparse_opt.compile(exported, marks, pattern="random", options=["-O", "0"]))
warned(lambda: sparse_opt.compile(exported, options=["-O", "0"]))

# Parameters that join behind the first steps of others begin with what these began with.


def late(make_optimizer):
    """Trains the second layer alone, then both; returns how far PyTorch is."""
    programs = []
    for _ in range(2):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        optimizer = make_optimizer(net[2].parameters())
        train_step(net, optimizer, batch)
        optimizer.add_param_group({"params": list(net[0].parameters())})
        programs.append((net, optimizer))
    step = sparse_opt.compile(sparse_opt.torch.export(train_step, *programs[0], batch))
    for _ in range(4):
        step(batch), train_step(*programs[1], batch)
    expected = programs[1][0].state_dict()
    return max(float((v - expected[k]).abs().max()) for k, v in step.state_dict().items())


# CHECK: late True True True
print("late", late(lambda p: torch.optim.AdamW(p, 0.01)) < 1e-5, end=" ")
print(late(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)) < 1e-5, end=" ")
print(late(lambda p: torch.optim.Adagrad(p, 0.1, initial_accumulator_value=0.5)) < 1e-5)
# CHECK-NEXT: expected a momentum that takes as much of each gradient, but got dampening 0.5 before the first step of '0.weight', which takes all of it: run the step once before the export
refuse(late, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5))

# Updates leave the patterns of frozen weights alone, which would not grow again.

# CHECK: frozen stays True True, trained changes True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
net[0].weight.requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
step = sparse_opt.compile(
    sparse_opt.torch.export(train_step, net, optimizer, batch), marks, pattern="random"
)
step(batch)
before, weight = {n: step.blocks(n).col_idx for n in step.patterns}, step.read("0.weight")
step.update_patterns(0.5), step.update_patterns(method="gmp", density=0.25)
changed = {n: list(step.blocks(n).col_idx) != list(cols) for n, cols in before.items()}
sparsity = sparse_opt.Sparsity(step, sparse_opt.Group(every=1), steps=9)
print(
    f"frozen stays {not changed['0.weight']} {bool((step.read('0.weight') == weight).all())},"
    f" trained changes {changed['1.weight'] and list(sparsity.due(2)) == ['1.weight']}"
)

# CHECK-NEXT: expected group 0 with a learning rate, as it was exported, but got None: export the step again
optimizer.param_groups[0]["lr"] = None
refuse(step, batch)
