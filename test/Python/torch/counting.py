# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Optimizers that keep numbers in their state count on in a compiled step.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart --implicit-check-not=accepted

import copy
import math

import torch
from torch import nn, optim

import sparse_opt.torch
from twins import compare, mse_step


class Counting(optim.Optimizer):
    """Adam whose step count, largest rate and last norm are numbers."""

    def __init__(self, parameters, lr=0.01):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"], state["largest"], state["norm"] = 0, -1.0, 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                state["norm"] = max(1e-3, p.norm())
                warm = min(1.0, math.sqrt(state["step"]) / 3)
                state["largest"] = max(state["largest"], group["lr"] * warm)
                state["m"].lerp_(p.grad, 0.1)
                state["v"].lerp_(p.grad.square(), 0.001)
                decay = math.pow(state["step"], -0.8)
                m = state["m"] / (1 - 0.9 ** state["step"])
                v = state["v"] / (1 - 0.999 ** state["step"])
                p.mul_(1 - 0.1 * decay * group["lr"])
                p.add_(m / (v.sqrt() + 1e-8) * state["norm"], alpha=-state["largest"])


torch.manual_seed(1)
data = [torch.randn(4, 8) for _ in range(6)]

# CHECK: numbers: equal
compare("numbers", lambda: nn.Linear(8, 8), data, Counting)


class OwnRate(Counting):
    """Takes no rate, and makes its own."""

    def __init__(self, parameters):
        super().__init__(parameters, None)

    def step(self, closure=None):
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                state["step"] += 1
                p.sub_(p.grad / state["step"])


# CHECK: own rate: equal
compare("own rate", lambda: nn.Linear(8, 8), data, OwnRate)

# PyTorch goes on with the numbers, and a compiled step with PyTorch's.


def go_on(make_optimizer):
    """A model and its optimizer after steps compiled and eager in turns, and the same after eager ones only."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    eager = copy.deepcopy(model)
    optimizer, eager_optimizer = make_optimizer(model.parameters()), make_optimizer(eager.parameters())
    for _ in range(2):
        exported = sparse_opt.torch.export(mse_step, model, optimizer, data[0])
        step = sparse_opt.compile(exported, options=["-O", "1"])
        for x in data[:3]:
            step(x), mse_step(eager, eager_optimizer, x)
        step.store()
        mse_step(model, optimizer, data[3]), mse_step(eager, eager_optimizer, data[3])
    return model, optimizer, eager, eager_optimizer


model, optimizer, eager, eager_optimizer = go_on(Counting)

# CHECK: 8 int True True
state, want = optimizer.state[model.weight], eager_optimizer.state[eager.weight]
print(state["step"], type(state["step"]).__name__, abs(state["largest"] - want["largest"]) < 1e-6, end=" ")
print(torch.allclose(model.weight, eager.weight, atol=1e-5))


# Numbers in groups, too.


class CountingInGroups(optim.Optimizer):
    def __init__(self, parameters, lr=0.01):
        counters = {"step": 0, "largest": -1.0, "warm": 3, "sum": 0.0}
        super().__init__(parameters, {"lr": lr, **counters})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] += 1
            rate = group["lr"] * min(1.0, group["step"] / group["warm"])
            group["largest"] = max(group["largest"], rate)
            weight = group["step"] ** 2 * group["largest"] ** 2
            group["sum"] += weight
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                state["m"].lerp_(p.grad, 0.1)
                p.add_(state["m"] * (1 + weight / group["sum"]), alpha=-group["largest"])


def two_groups(parameters):
    return CountingInGroups([{"params": [p], "lr": 0.1 * (i + 1)} for i, p in enumerate(parameters)])


# CHECK: groups: equal
compare("groups", lambda: nn.Linear(8, 8), data, two_groups)

model, optimizer, eager, eager_optimizer = go_on(two_groups)

# CHECK: [8, 8] [3, 3] [True, True] True
got, want = optimizer.param_groups, eager_optimizer.param_groups
print([g["step"] for g in got], [g["warm"] for g in got], end=" ")
print([abs(g["sum"] - w["sum"]) < 1e-6 for g, w in zip(got, want)], end=" ")
print(torch.allclose(model.weight, eager.weight, atol=1e-5))


# Its step may branch on what it counts, on its rate and on gradients.


class FirstSteps(CountingInGroups):
    """Counts twice at first."""

    def step(self, closure=None):
        for group in self.param_groups:
            if group["step"] < 5:
                group["step"] += 1
        super().step()


# CHECK: first steps: equal
compare("first steps", lambda: nn.Linear(8, 8), data, FirstSteps)


class Switching(optim.Optimizer):
    """Steps by the sign of a moment once it has seen some, and by shares of a sum that is
    0 at first."""

    def __init__(self, parameters, lr=0.01):
        super().__init__(parameters, {"lr": lr, "step": 0, "sum": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            step = group["step"]
            group["step"] += 1
            earlier = 1.0 + step
            group["sum"] += group["lr"]
            try:
                share = self.ratio(group["lr"], group["sum"])
            except ZeroDivisionError:
                share = 7
            warm = self.ratio(group["step"], group["sum"] + 1)
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                state["m"].lerp_(p.grad, 0.5)
                if step >= 3 and group["lr"] > 0:
                    update = state["m"].sign().mul_(group["lr"])
                else:
                    update = state["m"] * 0.05
                p.grad = p.grad / earlier
                p.sub_(update * share + (p + p.grad) * 1e-4 * warm)

    def ratio(self, x, y):
        return x / y


def from_zero(optimizer):
    return optim.lr_scheduler.LambdaLR(optimizer, lambda i: max(0, i - 1))


# CHECK: switching: equal
compare("switching", lambda: nn.Linear(8, 8), data, Switching, make_scheduler=from_zero)

model, optimizer, eager, eager_optimizer = go_on(Switching)

# CHECK: 8 8 True
got, want = optimizer.param_groups[0], eager_optimizer.param_groups[0]
print(got["step"], want["step"], torch.allclose(model.weight, eager.weight, atol=1e-5))


class Either(CountingInGroups):
    """Counts in a tensor in place, where it has one."""

    def step(self, closure=None):
        for group in self.param_groups:
            if torch.is_tensor(group["step"]):
                group["step"].add_(1)
            else:
                group["step"] += 1
        super().step()


# CHECK: either: equal
compare("either", lambda: nn.Linear(8, 8), data, Either)


class Clipping(optim.SGD):
    """Looks at each gradient."""

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad.norm() > 0.3:
                p.grad.mul_(0.3 / p.grad.norm())
        super().step()


norms = set()


def clipped(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model(batch) ** 2).mean()
    loss.backward()
    if type(model.bias) is nn.Parameter:  # not traced
        norms.add(tuple(bool(p.grad.norm() > 0.3) for p in model.parameters()))
    optimizer.step()
    return loss.detach()


# CHECK: clipping: equal
# CHECK-NEXT: 2
scaled = [x * s for x, s in zip(data, (3, 0.1, 0.5, 2, 0.01, 1))]
compare("clipping", lambda: nn.Linear(8, 8), scaled, lambda p: Clipping(p, lr=0.1), clipped)
print(len({first for first, _ in norms}))

# What is no number, or no one step, is refused.


def refused(make_optimizer, make_model=lambda: nn.Linear(8, 8)):
    model = make_model()
    try:
        sparse_opt.torch.export(mse_step, model, make_optimizer(model.parameters()), data[0])
        print("accepted")
    except sparse_opt.ExportError as error:
        print(error)


class OfEach(Counting):
    """Looks at a number of each parameter."""

    def step(self, closure=None):
        super().step()
        for p in self.param_groups[0]["params"]:
            if self.state[p]["step"] > 4 and p.grad.sum() > 0:
                self.state[p]["largest"] = 0.0


# CHECK: expected at most 16 ways through OfEach.step(), but got more: choose values with torch.where instead of if, or count once in a group instead of once for each parameter
refused(OfEach, lambda: nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))))


class Noting(FirstSteps):
    """Counts in an attribute."""

    seen = 0

    def step(self, closure=None):
        if self.param_groups[0]["step"] > 3:
            self.seen = self.seen + 1
        super().step()


# CHECK: expected a step that counts in tensors, but got one that changes 'seen' of the optimizer from none to 1: keep it in a tensor of the optimizer's state
refused(Noting)


class Forgetting(FirstSteps):
    """Has a moment at times."""

    def step(self, closure=None):
        super().step()
        for p in self.param_groups[0]["params"]:
            if self.param_groups[0]["step"] > 3:
                self.state[p]["m"] = None


# CHECK: expected Forgetting.step() to leave a number, or a tensor of one shape and type, on each way through it, but got None and a tensor of shape (8, 8) and type torch.float32 for its 'm': run the step once before the export, or use torch.where instead of if
refused(Forgetting)


class Rating(FirstSteps):
    """Changes its rate."""

    def step(self, closure=None):
        super().step()
        self.param_groups[0]["lr"] *= 0.9


# CHECK: expected a step that leaves the learning rate alone, but got one that changes it: call scheduler.step() behind the step
refused(Rating)


class Reading(FirstSteps):
    """Reads a number as another kind of one."""

    def step(self, closure=None):
        super().step()
        range(int(self.param_groups[0]["step"]))


# CHECK: expected a step whose control flow does not depend on data, but got a tensor read as a number at {{.*}}counting.py:[[@LINE-3]]
refused(Reading)
