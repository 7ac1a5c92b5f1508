# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What cannot be exported, or run, is refused in one sentence.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

# An import is not enough to fail in another version.
# RUN: %python -c "import sparse_opt.torch, sys; assert 'sparse_opt.torch._private' not in sys.modules"

import importlib.metadata
import sys
import warnings

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


# CHECK: expected shapes that do not depend on data, but got an operation whose result depends on values at {{.*}}invalid.py:[[@LINE+2]]: {{.*}}: use torch.where on the whole tensor: torch.where(mask, x, 0).sum() for x[mask].sum(), divided by mask.sum() for a mean
def selects(model, x):
    return model(x)[x > 0].mean()


refuse_loss(selects)

outside = torch.ones(4)


# CHECK: expected a step that reads only its model, optimizer and batch, but got another tensor at {{.*}}invalid.py:[[@LINE+2]]: {{.*}}: register it as a buffer of the model (another model, as a teacher or an average of weights, as a submodule) or put it into the batch
def reads_global(model, x):
    return (model(x) * outside).mean()


refuse_loss(reads_global)


# The lines of modules and of the step are known, those between them are not.


class Eigenvalues(nn.Module):
    def forward(self, x):
        # CHECK: expected operations that lower to linalg, but got 'aten._linalg_eigh' at {{.*}}invalid.py:[[@LINE+1]]: decompose matrices outside of the step
        return torch.linalg.eigvalsh(x[:, :2])


refuse_loss(lambda model, x: Eigenvalues()(model(x)).sum() + model(x).sum())


# CHECK: expected orderings of at most 1024 elements, but got 'aten.topk' at {{.*}}invalid.py:[[@LINE+3]]: do it outside of the step
def orders(model, optimizer, x):
    optimizer.zero_grad()
    loss = torch.topk(model(x).repeat(1, 300), 65)[0].mean()
    loss.backward()
    optimizer.step()
    return loss


refuse_step(orders)


# Forms that have another.


class Table(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.table = nn.Embedding(8, 4, **options)


# CHECK: expected operations that lower to linalg, but got 'aten.embedding_renorm' at {{.*}}invalid.py:[[#]]: leave out max_norm, and scale the rows of the table
refuse(export, step_of(lambda m, x: m.table(x).mean()), table := Table(max_norm=1.0), torch.optim.SGD(table.parameters()), torch.ones(2, 3).long())

# CHECK: expected operations that lower to linalg, but got 'aten.grid_sampler_2d_backward' at {{.*}}invalid.py:[[#]]: use products with torch.relu(1 - (places - torch.arange(n)).abs()), the bilinear weights along one dimension of n
refuse_loss(lambda m, x: nn.functional.grid_sample(torch.ones(1, 1, 4, 4), m(x).view(1, 2, 2, 2), align_corners=False).mean())

# CHECK: expected shapes that do not depend on data, but got pack_padded_sequence at {{.*}}invalid.py:[[#]]: {{.*}}: run the layer on padded sequences, and drop what is behind their ends with torch.where; a direction that begins at the ends needs a layer on sequences that are turned around
refuse_loss(lambda m, x: nn.utils.rnn.pack_padded_sequence(m(x).unsqueeze(2), torch.tensor([4, 2]), batch_first=True).data.mean())

# CHECK: expected operations that lower to linalg, but got 'aten.index_reduce' at {{.*}}invalid.py:[[#]]: use scatter_reduce with an index for each element
refuse_loss(lambda m, x: m(x).index_reduce(0, torch.tensor([0, 1]), x, "amax").mean())

# CHECK: expected operations that lower to linalg, but got 'aten.searchsorted' at {{.*}}invalid.py:[[#]]: use (x.unsqueeze(-1) > boundaries).sum(-1)
refuse_loss(lambda m, x: (m(x) * torch.searchsorted(torch.arange(3.0), x)).mean())

# CHECK: expected operations that lower to linalg, but got 'aten.masked_scatter' at {{.*}}invalid.py:[[#]]: use torch.where with values in their places
refuse_loss(lambda m, x: m(x).masked_scatter(x > 0, x).mean())

# CHECK: expected shapes that do not depend on data, but got ctc_loss at {{.*}}invalid.py:[[#]]: {{.*}}: write its sums over alignments, step by step of time, with torch.logaddexp
refuse_loss(lambda m, x: nn.functional.ctc_loss(m(x).log_softmax(1)[:, None], torch.ones(1, 1).long(), (2,), (1,)))

# CHECK: expected dense tensors, but got torch.nested.as_nested_tensor at {{.*}}invalid.py:[[#]]: {{.*}}: pad sequences to one length, as torch.nn.utils.rnn.pad_sequence does, and mask what is padded
refuse_loss(lambda m, x: m(torch.nested.as_nested_tensor([x[:1], x], layout=torch.jagged)).values().mean())

# CHECK: expected dense tensors, but got torch.nested.nested_tensor at {{.*}}: pad
refuse_loss(lambda m, x: torch.nested.to_padded_tensor(m(torch.nested.nested_tensor([x[:1], x])), 0.0).mean())

# CHECK: expected dense tensors, but got torch.nested.nested_tensor_from_jagged at {{.*}}: pad
refuse_loss(lambda m, x: m(torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2]))).values().mean())

# CHECK: expected dense tensors, but got torch.nested.narrow at {{.*}}: pad
refuse_loss(lambda m, x: torch.nested.narrow(m(x), 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged).values().mean())

# CHECK: expected shapes that do not depend on data, but got one_hot without a number of classes at {{.*}}invalid.py:[[#]]: {{.*}}: write F.one_hot(x, num_classes=n)
refuse_loss(lambda m, x: (m(x) * nn.functional.one_hot(x[:, 0].long())).mean())


# CHECK: expected factors of one type, but got torch.float32 and torch.float64 in 'aten.mm' at {{.*}}invalid.py:[[@LINE+3]]: convert one with .to()
def mixes(model, optimizer, x):
    optimizer.zero_grad()
    loss = (model(x) @ x.double().t()).mean()
    loss.backward()
    optimizer.step()
    return loss


refuse_step(mixes)


# CHECK: expected a step that PyTorch can trace, but got 'RuntimeError: a and b must have same reduction dim{{.*}}' at {{.*}}invalid.py:[[@LINE+2]]:
def misfits(model, x):
    return (model(x) @ x).mean()


refuse_loss(misfits)


# CHECK: expected a step whose control flow does not depend on data, but got a tensor read as a number at {{.*}}invalid.py:[[@LINE+3]]:
def prints(model, x):
    loss = model(x).mean()
    print(f"{loss:.3f}")
    return loss


refuse_loss(prints)


# A single element is no constant either.


# CHECK: expected a step whose control flow does not depend on data, but got a tensor read as a number at {{.*}}invalid.py:[[@LINE+2]]:
def repeats(model, batch):
    return sum(model(batch["x"]).mean() for _ in range(batch["n"]))


one = {"x": torch.ones(2, 4), "n": torch.tensor(3)}
refuse_step(step_of(repeats), batch=one)


# CHECK: expected a loss that depends on trained parameters, but got one without a gradient at {{.*}}invalid.py:[[#]]: loss.backward(): take no_grad() and detach() away from it
@torch.no_grad()
def untracked(model, x):
    return model(x).mean()


refuse_loss(untracked)


# CHECK: expected a step that changes a parameter, but got one that changes none: call loss.backward() and optimizer.step() in it
def only_looks(model, optimizer, x):
    optimizer.zero_grad()
    optimizer.step()
    return model(x).mean()


refuse_step(only_looks)


# CHECK: expected a step that leaves the learning rate alone, but got one that changes it: call scheduler.step() behind the step
def schedules(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    schedulers[0].step()
    return loss


schedulers = []


def scheduled(parameters):
    optimizer = torch.optim.SGD(parameters)
    schedulers.append(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    return optimizer


refuse_step(schedules, scheduled)


# CHECK: expected all tensors on one device, but got two at {{.*}}invalid.py:[[@LINE+2]]: {{.*}}: move the model and the example of a batch there before the export, and nothing in the step
def moves(model, x):
    return (model(x) * x.to("cuda")).mean()


refuse_loss(moves)


# CHECK: expected random numbers that are functions of uniform ones (dropout, rand, randn, randint, randperm of at most 1024, exponential, multinomial), but got 'aten.poisson.default' at {{.*}}invalid.py:[[@LINE+3]]: make them outside of the step and put them into the batch
def draws(model, optimizer, x):
    optimizer.zero_grad()
    loss = (model(x) * torch.poisson(x)).mean()
    loss.backward()
    optimizer.step()
    return loss


refuse_step(draws)


own = torch.Generator().manual_seed(0)


# CHECK: expected random numbers that are functions of uniform ones {{.*}}, but got 'aten.randn.generator' at {{.*}}invalid.py:[[@LINE+3]]: make them outside of the step and put them into the batch
def draws_of_its_own(model, optimizer, x):
    optimizer.zero_grad()
    loss = (model(x) * torch.randn(x.shape, generator=own)).mean()
    loss.backward()
    optimizer.step()
    return loss


refuse_step(draws_of_its_own)


# CHECK: expected a step that clears the gradients, but got those of 'weight' left over: call optimizer.zero_grad() in it
def keeps_gradients(model, optimizer, x):
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    return loss


refuse_step(keeps_gradients)

# CHECK: expected a step that returns its loss as a tensor, but got NoneType: return loss.detach()
refuse_step(lambda model, optimizer, x: None)

# CHECK: expected a step that returns tensors behind its loss, but got NoneType: return tensors alone
refuse_step(lambda model, optimizer, x: (model(x).mean(), None))



class SparseInput(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4, 3))

    def forward(self, x):
        return torch.sparse.mm(x.to_sparse(), self.weight)


# CHECK: expected dense tensors, but got one of layout torch.sparse_coo by {{.*}}: leave sparse=True out, or call to_dense()
model = SparseInput()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
refuse(export, step_of(lambda model, x: model(x).mean()), model, optimizer, torch.ones(2, 4))

# CHECK: expected a loss of shape (), but got (2, 4): return its mean
refuse_step(lambda model, optimizer, x: model(x))

# CHECK: expected a step that PyTorch can trace, but got 'TypeError: {{.*}}missing 1 required positional argument{{.*}}'
refuse_step(lambda model, optimizer, x, y: model(x).mean())

# CHECK: expected an optimizer that steps without a closure, but got LBFGS: use one that takes gradients alone, as torch.optim.AdamW
refuse_loss_step = step_of(lambda model, x: model(x).mean())
refuse_step(refuse_loss_step, torch.optim.LBFGS)

# CHECK: expected an optimizer that takes dense gradients, but got SparseAdam: use torch.optim.Adam, and leave sparse=True out
table = Table(sparse=True)
sparse_rule = torch.optim.SparseAdam(table.parameters())
refuse(export, sums := step_of(lambda m, x: m.table(x).mean()), table, sparse_rule, torch.ones(2, 3).long())

# Having stepped changes nothing.
# CHECK: expected an optimizer that takes dense gradients, but got SparseAdam
sums(table, sparse_rule, torch.ones(2, 3).long())
refuse(export, sums, table, sparse_rule, torch.ones(2, 3).long())

# CHECK: expected an optimizer of the model's parameters, but got a tensor of shape (4,) in group 0 that the model does not have: make the optimizer of model.parameters()
refuse_step(refuse_loss_step, lambda p: torch.optim.SGD([nn.Parameter(outside)]))


class Clash(nn.Module):
    """Has a parameter called as the batch."""

    def __init__(self):
        super().__init__()
        self.batch = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.batch


# What is no model, no optimizer, no batch.

right = Model()
given = step_of(lambda model, x: model(x).mean())
rule = torch.optim.SGD(right.parameters())
x = torch.ones(2, 4)

# CHECK: expected a module as the model, but got a SGD: export(train_step, model, optimizer, batch)
refuse(export, given, rule, right, x)

# CHECK: expected a module as the model, but got the class Model
refuse(export, given, Model, rule, x)

# CHECK: expected an optimizer of torch.optim, but got a Tensor
refuse(export, given, right, x, rule)

# CHECK: expected a function as train_step, but got a Tensor
refuse(export, x, right, rule, x)

# CHECK: expected an example of a batch, but got a DataLoader: give next(iter(loader))
refuse(export, given, right, rule, torch.utils.data.DataLoader([x]))

# CHECK: expected 'batch' to be a tensor, but got a ndarray: give an example of a batch, with torch.from_numpy for NumPy's arrays
refuse(export, given, right, rule, x.numpy())

# CHECK: expected dense tensors, but got 'batch' of layout torch.sparse_coo: call its to_dense()
refuse(export, given, right, rule, x.to_sparse())

# CHECK-COUNT-2: expected dense tensors, but got 'batch', a nested one: give torch.nested.to_padded_tensor(x, 0.0), and a mask of what is padded
refuse(export, given, right, rule, torch.nested.as_nested_tensor([x[:1], x]))
refuse(export, given, right, rule, torch.nested.as_nested_tensor([x[:1], x], layout=torch.jagged))

# CHECK: expected 'batch' of a type that compiled steps hold, but got torch.complex64: they hold torch.float32, {{.*}}
refuse(export, given, right, rule, x.to(torch.complex64))

# CHECK: expected tensors with values, but got 'batch' on the meta device: materialize it, as with model.to_empty(device='cpu')
refuse(export, given, right, rule, x.to("meta"))

# CHECK: expected tensors with elements, but got shape (0, 4) for 'batch': leave it out
refuse(export, given, right, rule, x[:0])

# CHECK: expected parameters with shapes, but got 'weight' of a lazy module: run the model on a batch once
refuse(export, given, nn.LazyLinear(4), rule, x)

# CHECK: expected distinct names, but got 'batch' twice: rename a parameter, a buffer or another tensor of a module, or a part of the batch
clash = Clash()
refuse(export, refuse_loss_step, clash, torch.optim.SGD(clash.parameters()), outside)

# CHECK: expected an init of the form zeros, ones, constant(c) or normal(sd), but got 'uniform'
refuse_step(refuse_loss_step, inits={"": "uniform"})

# CHECK: expected torch at least 2.14 and below 2.16, but got 2.9.1+cpu, which was not tested: it has the names that are needed, so it goes on; else install 'sparse-opt[torch]'
# CHECK: went on
version = importlib.metadata.version
importlib.metadata.version = lambda package: "2.9.1+cpu" if package == "torch" else version(package)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = Model()
    export(step_of(lambda model, x: model(x).mean()), model, torch.optim.SGD(model.parameters()), torch.ones(2, 4))
print(*(warning.message for warning in caught), "went on", sep="\n")

# CHECK: expected torch at least 2.14 and below 2.16, but got 2.9.1+cpu, which lacks what is needed (module 'torch.compiler' has no attribute 'set_stance'): install 'sparse-opt[torch]'
kept = {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith("sparse_opt.torch._")}
for name in kept:
    vars(sparse_opt.torch).pop(name.rpartition(".")[2], None)
stance = torch.compiler.set_stance
del torch.compiler.set_stance
refuse_step(refuse_loss_step)
torch.compiler.set_stance = stance

# CHECK: expected torch-mlir at least 20261001 and below 20261002, but got none: install 'sparse-opt[torch]'
def no_mlir(package):
    if package == "torch-mlir":
        raise importlib.metadata.PackageNotFoundError
    return version(package)


importlib.metadata.version = no_mlir
refuse_step(refuse_loss_step)
