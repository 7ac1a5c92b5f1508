# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One export sums gradients over any number of micro-batches, as PyTorch does.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart --implicit-check-not=accepted

import copy
import tempfile

import torch
from torch import nn

import sparse_opt.torch
from refusals import refuse
from twins import sgd


class Model(nn.Sequential):
    """Has a weight that no loss depends on, and one that is frozen."""

    def __init__(self):
        super().__init__(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8, bias=False))
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        return super().forward(x) * self.frozen


def train_step(model, optimizer, batch):
    loss = ((model(batch) - batch) ** 2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
batches = [torch.randn(4, 8) for _ in range(12)]
exported = sparse_opt.torch.export(
    train_step, model, optimizer, batches[0], accumulate=True
)
marks = [r"match=^[02].weight$ block=4x4 density=0.5"]
step = sparse_opt.compile(exported, marks, pattern="largest")

# The reference in f64, with masks on weights and on their gradients.
eager = copy.deepcopy(model).double()
eager.load_state_dict({k: v.double() for k, v in step.state_dict().items()})
eager_optimizer = torch.optim.AdamW(eager.parameters(), lr=0.01)
masks = {n: p != 0 for n, p in eager.named_parameters() if n in step.patterns}
for name, mask in masks.items():
    eager.get_parameter(name).register_hook(lambda g, mask=mask: g * mask)

# CHECK: sparse 5, left dense 0
products = step.products
sparse = products["spmm"] + products["spmm_transposed"] + products["sddmm"]
print(f"sparse {sparse}, left dense {products['left_dense']}")

# Updates of 1, 4, 2 and 5 micro-batches.
worst, batch = 0.0, iter(batches)
for count in (1, 4, 2, 5):
    for i in range(count):
        x = next(batch)
        before = step.read("0.weight")
        got = step(x, apply=i == count - 1)
        want = ((eager(x.double()) - x.double()) ** 2).mean()
        (want / count).backward()
        worst = max(worst, float(abs(got - want.detach()) / want.detach()))
        assert (before == step.read("0.weight")).all() == (i < count - 1)
    nn.utils.clip_grad_norm_(eager.parameters(), 0.05)
    eager_optimizer.step()
    eager_optimizer.zero_grad()
for name, p in eager.state_dict().items():
    worst = max(worst, float((step.state_dict()[name] - p).abs().max()))

# CHECK: equal
print("equal" if worst < 1e-5 else f"apart by {worst}")

# The sum of a marked weight has its pattern, and no micro-batch is left in it.
# CHECK: (4, 4, 4) True
total = step.arrays["gradient.0.weight"]
print(total.shape, not total.any())

# Without saying so each call is a step.
# CHECK: changed True
before = step.read("0.bias")
step(batches[0])
print("changed", not (before == step.read("0.bias")).all())

# CHECK: expected no apply, for the step has no argument of that role, but got True
plain = sparse_opt.torch.export(train_step, model, optimizer, batches[0])
refuse(sparse_opt.compile(plain, options=["-O", "0"]), batches[0], apply=True)

# Patterns are updated behind the last micro-batch of a window, however long it is.

GROUP = sparse_opt.Group(every=2, drop=0.5, until=1.0)


def places(step, sparsity, windows):
    """Returns behind which calls, counted in each window, patterns were updated."""
    found = []
    for count in windows:
        for i in range(count):
            step(batches[0], apply=i == count - 1, scores=sparsity.needs_scores)
            if sparsity.update():
                found.append(f"{i + 1} of {count}")
    return found


# CHECK: updated behind ['3 of 3', '3 of 3', '1 of 1'], loaded ['3 of 3', '1 of 1']
step = sparse_opt.compile(exported, marks, pattern="random", check=0)
sparsity = sparse_opt.Sparsity(step, GROUP, steps=100, accumulate=3)
found = places(step, sparsity, (3, 3, 1, 3, 3, 1))
with tempfile.TemporaryDirectory() as folder:
    places(step, sparsity, (1,))
    sparsity.save(f"{folder}/kept.bsr")
    again = sparse_opt.compile(exported, marks, pattern="random", check=0)
    resumed = sparse_opt.Sparsity(again, GROUP, steps=100, accumulate=3)
    resumed.load(f"{folder}/kept.bsr")
print(f"updated behind {found}, loaded {places(again, resumed, (3, 2, 1))}")


def refuse_sums(model, step):
    options = {"accumulate": True}
    refuse(sparse_opt.torch.export, step, model, sgd(model.parameters()), batches[0], **options)


# CHECK: expected one backward() in the step of a micro-batch, but got another that reaches '{{.*}}': add the losses
refuse_sums(nn.Linear(8, 8), lambda m, o, x: (m(x).mean().backward(), train_step(m, o, x))[1])

# CHECK: expected gradients that nothing changes before they are summed, but got a hook behind the accumulation of 'weight': remove it, or export without accumulate
hooked = nn.Linear(8, 8)
hooked.weight.register_post_accumulate_grad_hook(lambda p: None)
refuse_sums(hooked, train_step)
