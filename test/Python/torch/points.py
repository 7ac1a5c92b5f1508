# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Gradients are masked where the program takes them, whatever it does with them.

# RUN: %python -u %s 2>&1 | FileCheck %s --implicit-check-not=apart\ by --implicit-check-not=expected

"""Steps that use gradients for more than an update, beside `w * mask` in PyTorch."""

import copy
import itertools

import numpy as np
import sparse_opt
import sparse_opt.torch
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

torch.manual_seed(0)


class Masked(nn.Module):
    """A layer of one row and one of several, at `w * mask` where there are masks."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 24)
        self.b = nn.Parameter(torch.randn(1, 24))
        self.rate = nn.Parameter(torch.tensor(0.1))
        self.masks = {}

    def forward(self, x):
        a, b = (w * self.masks.get(n, 1.0) for n, w in (("a.weight", self.a.weight), ("b", self.b)))
        return torch.tanh(F.linear(x, a, self.a.bias)) * b


def loss_of(model, weights, x, y):
    return F.mse_loss(functional_call(model, weights, (x,)), y)


def weights_of(model):
    return {n: p for n, p in model.named_parameters() if n != "rate"}


def rate_learned(model, optimizer, batch):
    """Two steps within the step, and the gradient of their rate."""
    optimizer.zero_grad()
    weights = weights_of(model)
    for _ in range(2):
        g = torch.autograd.grad(loss_of(model, weights, *batch), list(weights.values()), create_graph=True)
        weights = {n: w - model.rate * d for (n, w), d in zip(weights.items(), g)}
    loss = loss_of(model, weights, *batch)
    loss.backward()
    optimizer.step()
    return loss.detach(), model.rate.grad.clone()


def penalty(model, optimizer, batch):
    """The norm of the gradient in the loss, and a clipped update."""
    optimizer.zero_grad()
    loss = F.mse_loss(model(batch[0]), batch[1]) + 0 * model.rate
    g = torch.autograd.grad(loss, list(weights_of(model).values()), create_graph=True)
    (loss + 0.1 * sum((d * d).sum() for d in g)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.detach(), norm


def examples(model, optimizer, batch):
    """A gradient of each example, each divided by its norm."""
    optimizer.zero_grad()
    weights = {n: p.detach() for n, p in weights_of(model).items()}
    each = vmap(grad(lambda w, x, y: loss_of(model, w, x[None], y[None])), (None, 0, 0))(weights, *batch)
    norms = sum(d.flatten(1).square().sum(1) for d in each.values()).sqrt()
    for name, p in weights_of(model).items():
        p.grad = torch.einsum("n,n...->...", 1 / (norms + 0.1), each[name]) / len(norms)
    optimizer.step()
    return norms.sum(), norms


def compare(train_step, rule):
    model, reference = Masked(), None
    batches = [(torch.randn(4, 16), torch.randn(4, 24)) for _ in range(3)]
    optimizer = rule(model.parameters())
    step = sparse_opt.compile(
        sparse_opt.torch.export(train_step, model, optimizer, batches[0]),
        ["match=a.weight$ block=4x4 density=0.5", "match=^b$ block=1x4 density=0.5"],
        pattern="random", check=0, options=["-O", "1"],
    )  # fmt: skip
    reference = copy.deepcopy(model)
    reference.masks = {n: (step.read(n) != 0).astype(np.float32) for n in ("a.weight", "b")}
    reference.masks = {n: torch.from_numpy(m) for n, m in reference.masks.items()}
    with torch.no_grad():
        for name, mask in reference.masks.items():
            reference.get_parameter(name).mul_(mask)
    own = rule(reference.parameters())
    apart = 0.0
    for batch in batches:
        got, wanted = step(batch), train_step(reference, own, batch)
        for a, b in zip(got, wanted):
            apart = max(apart, float((a - b.detach()).abs().max() / (b.abs().max() + 1e-3)))
    used = {n: p for n, p in reference.named_parameters() if n in step.buffers or n in step.origins}
    for name, p in used.items():
        apart = max(apart, np.abs(step.read(name) - p.detach().numpy()).max() / float(p.detach().abs().max()))
    name = f"{train_step.__name__}, {rule.__name__}"
    print(f"{name}: right" if apart < 2e-5 else f"{name}: apart by {apart:.1e}")


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01, eps=1e-3)


# CHECK: rate_learned, sgd: right
# CHECK: rate_learned, adam: right
# CHECK: penalty, sgd: right
# CHECK: penalty, adam: right
# CHECK: examples, sgd: right
# CHECK: examples, adam: right
for train_step, rule in itertools.product((rate_learned, penalty, examples), (sgd, adam)):
    compare(train_step, rule)


# What torch-mlir makes of a node without a line is no mark, such as the rows of padding behind a mark.
# CHECK: 2 marks of 2
# CHECK: the first 2 runs did what the program does
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, 16, padding_idx=0)
        self.head = nn.Linear(16, 12, bias=False)

    def forward(self, ids):
        return self.head(torch.tanh(self.words(ids)))


def train_words(model, optimizer, ids):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(ids), ids)
    loss.backward()
    optimizer.step()
    return loss


model = Words()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
ids = torch.arange(8) % 5
text = sparse_opt.torch.export(train_words, model, optimizer, ids)
print(f"{text.count('bsr.gradient')} marks of {sum(1 for _ in model.parameters())}")
step = sparse_opt.compile(text, ["match=head.weight block=4x4 density=0.5"], pattern="random", options=["-O", "1"])
for _ in range(2):
    step(ids)
