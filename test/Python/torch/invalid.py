# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What cannot be exported, or run, is refused in one sentence.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

import importlib.metadata

import torch
from torch import nn

import sparse_opt
from refusals import refuse
from sparse_opt.torch import export

def step_of(loss_of):
    def step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


class Model(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)


def refuse_step(step, optimizer=torch.optim.SGD, batch=torch.ones(2, 4), **options):
    model = Model()
    refuse(export, step, model, optimizer(model.parameters()), batch, **options)


def refuse_loss(loss_of):
    refuse_step(step_of(loss_of))


# CHECK: expected a step whose control flow does not depend on data, but got a tensor read as a number at {{.*}}invalid.py:[[@LINE+2]]: if (loss := model(x).mean()) > 1:: keep it a tensor (torch.where instead of if, loss.detach() instead of loss.item())
def branch(model, x):
    if (loss := model(x).mean()) > 1:
        return loss
    return 2 * loss


refuse_loss(branch)


# CHECK: expected a step whose control flow does not depend on data, but got a tensor read as a number at {{.*}}invalid.py:[[@LINE+4]]: return loss.item(): keep it a tensor
def returns_number(model, optimizer, x):
    loss = model(x).mean()
    optimizer.zero_grad()
    return loss.item()


refuse_step(returns_number)


# CHECK: expected shapes that do not depend on data, but got an operation whose result depends on values at {{.*}}invalid.py:[[@LINE+2]]: {{.*}}: use torch.where on the whole tensor
def selects(model, x):
    return model(x)[x > 0].mean()


refuse_loss(selects)

outside = torch.ones(4)


# CHECK: expected a step that reads only its model, optimizer and batch, but got another tensor at {{.*}}invalid.py:[[@LINE+2]]: {{.*}}: register it as a buffer of the model or put it into the batch
def reads_global(model, x):
    return (model(x) * outside).mean()


refuse_loss(reads_global)


# The lines of modules and of the step are known, those between them are not.


class Eigenvalues(nn.Module):
    def forward(self, x):
        # CHECK: expected operations that lower to linalg, but got 'aten._linalg_eigh' at {{.*}}invalid.py:[[@LINE+1]]: write it in terms of others
        return torch.linalg.eigvalsh(x[:, :2])


refuse_loss(lambda model, x: Eigenvalues()(model(x)).sum() + model(x).sum())


# CHECK: expected random numbers from dropout, bernoulli, rand or rand_like, but got 'aten.multinomial.default' at {{.*}}invalid.py:[[@LINE+3]]: make them outside of the step and put them into the batch
def draws(model, optimizer, x):
    optimizer.zero_grad()
    loss = (model(x) * torch.multinomial(x, 4)).mean()
    loss.backward()
    optimizer.step()
    return loss


refuse_step(draws)


# CHECK: expected a step that clears the gradients, but got those of 'weight' left over: call optimizer.zero_grad() in it
def keeps_gradients(model, optimizer, x):
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    return loss


refuse_step(keeps_gradients)

# CHECK: expected a step that returns its loss as a tensor, but got NoneType: return loss.detach()
refuse_step(lambda model, optimizer, x: None)

# CHECK: expected a loss of shape (), but got (2, 4): return its mean
refuse_step(lambda model, optimizer, x: model(x))

# CHECK: expected a step that PyTorch can trace, but got 'TypeError: {{.*}}missing 1 required positional argument{{.*}}'
refuse_step(lambda model, optimizer, x, y: model(x).mean())

# CHECK: expected an optimizer that steps without a closure, but got LBFGS: '{{.*}}closure{{.*}}'
refuse_loss_step = step_of(lambda model, x: model(x).mean())
refuse_step(refuse_loss_step, torch.optim.LBFGS)

# CHECK: expected an optimizer of the model's parameters, but got a tensor of shape (4,) in group 0 that the model does not have: make the optimizer of model.parameters()
refuse_step(refuse_loss_step, lambda p: torch.optim.SGD([nn.Parameter(outside)]))


class Counts(torch.optim.SGD):
    """Counts its steps in a Python number."""

    def step(self):
        super().step()
        for p in self.param_groups[0]["params"]:
            self.state[p]["count"] = self.state[p].get("count", 0) + 1


# CHECK: expected an optimizer whose state is tensors, but got the int 'count' in Counts: keep it in a tensor, as torch.tensor(0.0)
refuse_step(refuse_loss_step, Counts)


class Clash(nn.Module):
    """Has a parameter called as the batch."""

    def __init__(self):
        super().__init__()
        self.batch = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.batch


# CHECK: expected distinct names, but got 'batch' twice: rename a parameter, a buffer or a part of the batch
clash = Clash()
refuse(export, refuse_loss_step, clash, torch.optim.SGD(clash.parameters()), outside)

# CHECK: expected an init of the form zeros, ones, constant(c) or normal(sd), but got 'uniform'
refuse_step(refuse_loss_step, inits={"": "uniform"})

# CHECK: expected torch at least 2.15 and below 2.16, but got 2.9.1+cpu: install 'sparse-opt[torch]'
version = importlib.metadata.version
importlib.metadata.version = lambda package: "2.9.1+cpu"
refuse_step(refuse_loss_step)
importlib.metadata.version = version

# What is given to a compiled step.

model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4))
optimizer = torch.optim.AdamW(
    [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.1}]
)
ids = torch.zeros(2, 3, dtype=torch.int64)
exported = export(
    step_of(lambda model, batch: model(batch["ids"]).mean() * batch["scale"]),
    model,
    optimizer,
    {"ids": ids, "scale": 2.0},
)
step = sparse_opt.compile(exported, options=["-O", "0"])

# CHECK: expected 'batch.ids' of shape [2, 3], but got [2, 4]: a compiled step has one shape, export the step again for another
refuse(step, {"ids": torch.zeros(2, 4, dtype=torch.int64), "scale": 2.0})

# CHECK: expected 'batch.ids' of type int64, but got int32
refuse(step, {"ids": ids.int(), "scale": 2.0})

# CHECK: expected indices from 0 to 7 in 'batch.ids', but got 8
refuse(step, {"ids": ids + 8, "scale": 2.0})

# CHECK: expected indices from 0 to 7 in 'batch.ids', but got -1
refuse(step, {"ids": ids - 1, "scale": 2.0})

# CHECK: expected 'batch.scale' to be 2.0, but got 3.0: a value that is no tensor is a constant of the step, export it again
refuse(step, {"ids": ids, "scale": 3.0})

# CHECK: expected a batch of structure {'ids': *, 'scale': *}, but got [*]
refuse(step, [ids])

# CHECK: expected one batch, but got 2 arguments and 0 named ones
refuse(step, ids, ids)

# CHECK: expected learning rates in the ratios [1.0, 100.0] of the exported groups, but got [1.0, 200.0]: export the step again
optimizer.param_groups[1]["lr"] = 0.2
refuse(step, {"ids": ids, "scale": 2.0})
optimizer.param_groups[1]["lr"] = 0.1

# CHECK: expected a state_dict of the exported model, but got none: '0.weight'
refuse(step.load_state_dict, {"1.weight": outside, "1.bias": outside})

# A program that is no longer what was exported.

# CHECK: expected optimizer options as they were exported, but got weight_decay 0.5 instead of 0.01: export the step again
optimizer.param_groups[0]["weight_decay"] = 0.5
refuse(sparse_opt.compile, exported)
optimizer.param_groups[0]["weight_decay"] = 0.01

# CHECK: expected modules in training mode as they were exported, but got False instead of True: export the step again
refuse(sparse_opt.compile, exported) if model.eval() else None
model.train()

# CHECK: expected parameters and buffers as they were exported, but got ('1.weight', (5, 4), torch.float32, True) instead of ('1.weight', (4, 4), torch.float32, True): export the step again
model[1] = nn.Linear(4, 5)
refuse(sparse_opt.compile, exported)
