# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks that what a backward pass computes again drops out what the forward pass did.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

"""Dropout under checkpoints: a loss that is linear in a weight of 1 is its gradient."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import sparse_opt
import sparse_opt.torch
from refusals import refuse

data = torch.rand(512, generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.drop = nn.Dropout(0.25)
        self.run = forward

    def inner(self, x):
        return self.drop(self.drop(x) + x)

    def forward(self, x):
        return self.drop(self.run(self, self.drop(x * self.w))).sum()


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch)
    loss.backward()
    optimizer.step()
    return loss.detach()


def check(name, forward):
    model = Model(forward)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = torch.get_rng_state()
    export = sparse_opt.torch.export(train_step, model, optimizer, data)
    assert torch.equal(before, torch.get_rng_state()), "the user's generator moved"
    step = sparse_opt.compile(export, options=["-O", "1"])
    losses = []
    for seed in (0, 1):
        step.write("w", torch.ones(1).numpy())
        loss, gradient = float(step(data, seed=seed)), 1.0 - float(step.read("w")[0])
        losses.append(loss)
        print(f"{name}:", "equal" if abs(loss - gradient) < 1e-4 * loss else f"apart, {loss} and {gradient}")
    assert losses[0] != losses[1], "all seeds drop the same out"


def again(model, x, **options):
    return checkpoint(model.inner, x, **{"use_reentrant": False, **options})


# CHECK-COUNT-2: once: equal
check("once", Model.inner)
# CHECK-COUNT-2: again: equal
check("again", again)
# CHECK-COUNT-2: reentrant: equal
check("reentrant", lambda model, x: again(model, x, use_reentrant=True))
# CHECK-COUNT-2: one behind the other: equal
check("one behind the other", lambda model, x: again(model, again(model, x)))
# CHECK-COUNT-2: one in the other: equal
check("one in the other", lambda model, x: checkpoint(lambda y: model.inner(again(model, y)), x, use_reentrant=False))

# Between layers of recurrent networks: by another seed the loss is another one.


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = kind(4, 4, batch_first=True, **options)

    def forward(self, x):
        return self.rnn(x[:48].view(4, 3, 4))[0].square().sum()


def differ(name, kind, dropout=0.0, **options):
    model = Recurrent(kind, dropout=dropout, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = sparse_opt.compile(sparse_opt.torch.export(train_step, model, optimizer, data), options=["-O", "0"])
    print(f"{name}: drops out {float(step(data, seed=0)) != float(step(data, seed=1))}")


# CHECK: LSTM: drops out True
differ("LSTM", nn.LSTM, 0.5, num_layers=2)
# CHECK: GRU: drops out True
differ("GRU", nn.GRU, 0.5, num_layers=3, bidirectional=True)
# CHECK: expected no seed, for the step has no argument of that role
refuse(lambda: differ("one layer", nn.RNN))

# The share that is kept and its scale, by the linear layers of two that only pass on.


class Passes(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(1, 1, num_layers=2, nonlinearity="relu", dropout=0.25, bias=False)
        for name, p in self.rnn.named_parameters():
            nn.init.constant_(p, float("ih" in name))

    def forward(self, x):
        return self.rnn(x[None, :, None])[0].sum()


model = Passes()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
step = sparse_opt.compile(sparse_opt.torch.export(train_step, model, optimizer, torch.ones(512)), options=["-O", "1"])
kept = [float(step(torch.ones(512), seed=seed)) * 0.75 / 512 for seed in range(8)]
# CHECK: kept share True
print("kept share", abs(sum(kept) / 8 - 0.75) < 0.02, kept)


def seeds(model, x):
    torch.manual_seed(1)
    return model.inner(x)


# CHECK: expected a step that leaves PyTorch's generator alone, but got one that seeds it: give the compiled step a seed, step(batch, seed=...)
refuse(check, "seeds", seeds)
