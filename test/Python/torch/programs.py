# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares compiled steps of programs that lean on more than values of tensors.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart\ by --implicit-check-not=accepted

"""Hooks, attributes, buffers that are replaced, look-ups, rates from 0, bf16."""

import torch
from torch import nn, optim

from sparse_opt.torch import _indices
from refusals import refuse
from twins import compare, mse_step, sgd

torch.manual_seed(1)
data = [torch.randn(4, 8) for _ in range(3)]


def linear(prepare=lambda layer: None):
    def make():
        layer = nn.Linear(8, 8)
        prepare(layer)
        return layer

    return make


# What a parameter carries besides its values.


def clip_weight(layer):
    layer.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))


def halve(p):
    p.grad.mul_(0.5)


def keep_bias(layer):
    layer.bias.no_decay = True


class Decay(optim.Optimizer):
    """Decays parameters that are not marked by an attribute."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                decay = 0.0 if getattr(p, "no_decay", False) else 0.5
                p.add_(p.grad + decay * p, alpha=-group["lr"])


# CHECK: hook: equal
compare("hook", linear(clip_weight), data)

# CHECK: hook behind accumulation: equal
after = linear(lambda layer: layer.weight.register_post_accumulate_grad_hook(halve))
compare("hook behind accumulation", after, data)

# CHECK: attribute: equal
compare("attribute", linear(keep_bias), data, Decay)


class Annealed(nn.Linear):
    """Puts another tensor into the place of a buffer."""

    def __init__(self):
        super().__init__(8, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count = self.count + 1
        return super().forward(x) / self.count


# CHECK: replaced buffer: equal
compare("replaced buffer", Annealed, data)

# Indices below 0 count from the end, forward and backward.


class Table(nn.Module):
    def __init__(self, look_up):
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 8))
        self.look_up = look_up
        self.register_buffer("places", torch.tensor([3, -1]))

    def forward(self, indices):
        return self.look_up(self, indices)


def table(look_up):
    return lambda: Table(look_up)


some = [torch.tensor([1, -1, 3]), torch.tensor([-10, 9, -10])]

# CHECK: negative indices: equal
step = compare("negative indices", table(lambda m, i: m.table[i]), some)

# CHECK: expected indices from -10 to 9 in 'batch', but got 12
refuse(step, torch.tensor([1, 12, 3]))

# CHECK: expected indices from -10 to 9 in 'batch', but got -11
refuse(step, torch.tensor([1, -11, 3]))

# CHECK: two negative indices: equal
pair = table(lambda m, i: m.table[i, i - 4])
step = compare("two negative indices", pair, [torch.tensor([1, -1]), torch.tensor([-4, 3])])

# The second is computed from the batch.

# CHECK: expected indices from -8 to 7 at {{.*}}programs.py:[[#]], but got -9
refuse(step, torch.tensor([1, -5]))

# Each operation that looks up is checked; that of constants once.

# CHECK: gather: equal
lines = table(lambda m, i: m.table.gather(0, i[:, None].expand(3, 8)))
step = compare("gather", lines, [torch.tensor([1, 2, 3])])

# CHECK: expected indices from 0 to 9 in 'batch', but got -1
refuse(step, torch.tensor([1, -1, 3]))

# CHECK: select: equal
step = compare("select", table(lambda m, i: m.table.index_select(1, i)), [some[0].abs()])

# CHECK: expected indices from 0 to 7 in 'batch', but got 8
refuse(step, torch.tensor([1, 8, 3]))

# CHECK: counted: equal
counted = table(lambda m, i: m.table[(i > 0).long().cumsum(0) * i])
step = compare("counted", counted, [torch.tensor([1, 2, 3])])

# CHECK: expected indices from -10 to 9 at {{.*}}programs.py:[[#]], but got 12
refuse(step, torch.tensor([1, 2, 4]))

# CHECK: constants: equal
compare("constants", table(lambda m, i: m.table[m.places] + m.table[[0, -2]] + i), [torch.ones(2, 8)])

# CHECK: expected indices from -10 to 9 at {{.*}}programs.py:[[#]], but got 10
refuse(compare, "wrong constants", table(lambda m, i: m.table[[0, 10]]), some)

# CHECK: highest: equal
highest = table(lambda m, i: m.table[m.table.argmax(0)] + m.table[(m.table[0] * 9).long().clamp(0, 9)])
compare("highest", highest, some)


def clamp_again(m, i):
    # Each link reads the one before twice.
    places = (m.table[0] * 9).long().clamp(0, 9)
    for _ in range(40):
        places = torch.where(places > 4, places, places.clamp(0, 8))
    return m.table[places]


# CHECK: clamped again: equal
compare("clamped again", table(clamp_again), some)

# CHECK: expected indices from -10 to 9 by what makes them, but got others at {{.*}}programs.py:[[#]]: add .clamp(-10, 9), or compute them from the batch alone
refuse(compare, "anywhere", table(lambda m, i: m.table[(m.table[0] * 9).long()]), some)

# What writes into a tensor through many views of it is found in the time of one.

graph = torch.fx.Graph()
first = last = graph.placeholder("x")
for _ in range(1000):
    last = graph.call_function(torch.ops.aten.add_.Tensor, (last, 1))
graph.output(last)
writes = _indices._writes(torch.fx.GraphModule({}, graph))
# CHECK: writes: 1000 of 1000, noted True
found = len(_indices._sources(first, writes)) - 1
print(f"writes: {found} of 1000, noted {sum(map(len, writes.values())) < 3000}")

# Another memory of a tensor is a write of it.


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.average = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x):
        return self.layer(x)


def averages(average):
    def train_step(model, optimizer, batch):
        loss = mse_step(model, optimizer, batch)
        for a, p in zip(model.average.parameters(), model.layer.parameters()):
            a.data = average(a.data, p.data)
        return loss

    return train_step


# CHECK: data: equal
compare("data", Averaged, data, step=averages(lambda a, p: 0.9 * a + 0.1 * p))
# CHECK: expected .data of the shape and the type that it has, (8, 8) and torch.float32, but got (64,) and torch.float32: export a step for each
refuse(compare, "other data", Averaged, data, step=averages(lambda a, p: p.flatten()))

# Groups keep their ratio through rates of 0.


def two_groups(parameters):
    weight, bias = parameters
    return optim.SGD([{"params": [weight], "lr": 0.1}, {"params": [bias], "lr": 0.2}])


def warm_up(optimizer):
    return optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min(1.0, i / 3) * max(0.0, (5 - i) / 5)
    )


# CHECK: warm-up: equal
compare("warm-up", linear(), data * 3, two_groups, make_scheduler=warm_up)

# Nor do weights without a gradient become NaN at a rate of 0.

ADAMS = {
    "Adam": optim.Adam, "AdamW": optim.AdamW, "NAdam": optim.NAdam, "RAdam": optim.RAdam,
    "Adamax": optim.Adamax, "AMSGrad": lambda p, lr: optim.AdamW(p, lr, amsgrad=True),
    "foreach": lambda p, lr: optim.Adam(p, lr, foreach=True),
}  # fmt: skip
unused = [x * (torch.arange(8) > 2) for x in data]
# CHECK-COUNT-7: at a rate of 0: equal
for name, make in ADAMS.items():
    compare(f"{name} at a rate of 0", linear(), unused * 3, lambda p: make(p, lr=0.01), make_scheduler=warm_up)


def without_rates(parameters):
    optimizer = two_groups(parameters)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    return optimizer


# CHECK: expected a first group with a learning rate above 0, of which the other groups' are multiples, but got the rates [0.0, 0.0]: export the step with those of the first step that has one
refuse(compare, "no rates", linear(), data, without_rates)

# A loss in bf16 is a tensor in bf16. It has 8 bits.

# CHECK: bf16: equal
# CHECK-NEXT: torch.bfloat16
halves = [x.bfloat16() for x in data]
step = compare("bf16", lambda: nn.Linear(8, 8).bfloat16(), halves, tolerance=3e-2)
print(step(halves[0]).dtype)

# An error in a step is no missing closure.


class Broken(optim.SGD):
    def step(self):
        return None * self.param_groups[0]["params"][0]


# CHECK: expected Broken to make its state in a step with gradients of zero, but got 'TypeError: unsupported operand type(s) for *: 'NoneType' and 'Parameter'' at {{.*}}programs.py:[[@LINE-3]]: {{.*}}: run the step once before the export
refuse(compare, "broken", linear(), data, lambda p: Broken(p, lr=0.1))

# Numbers beside bytes are bytes, which wrap.


class Bytes(nn.Module):
    """Multiplies what a function makes of bytes."""

    def __init__(self, make):
        super().__init__()
        self.layer, self.make = nn.Linear(8, 8), make

    def forward(self, x):
        return self.layer(self.make(x).float() / 100)


BYTES = {
    "less": lambda x: x - 3, "times": lambda x: x * 3, "times many": lambda x: x * 300,
    "more": lambda x: x + 3, "largest": lambda x: x.max() - x, "smallest": lambda x: x + x.min(),
    "both": lambda x: (x - x.min()) * 2, "opposite": lambda x: -x, "size": lambda x: x.abs(),
    "share": lambda x: x / 255, "sum": lambda x: x.sum(0)[None].expand(4, 8),
    "product": lambda x: x * x.flip(0), "half": lambda x: x * 0.5, "ints": lambda x: x * x.int(),
    "bits": lambda x: x.logical_not() | (x >> 1) ^ x.flip(0), "remainder": lambda x: x % 3, "quotient": lambda x: x // 3,
    "above": lambda x: x > 100, "above a half": lambda x: x > 99.5, "sums above": lambda x: (x + x) > 100,
    "more than": lambda x: x > x.int().flip(0), "most": lambda x: x.maximum(x.flip(1)), "as bytes": lambda x: x == 200,
    "a tensor": lambda x: x > torch.tensor(200), "bounds": lambda x: x.clamp(10, 200),
    "of reals": lambda x: (x.abs() * 0.9).to(x.dtype),
}  # fmt: skip
# CHECK-COUNT-52: of {{u?}}int8: equal
for dtype in ("int8", "uint8"):
    numbers = torch.randint(*((-128, 128) if dtype == "int8" else (0, 256)), (4, 8)).to(getattr(torch, dtype))
    for name, make in BYTES.items():
        compare(f"{name} of {dtype}", lambda: Bytes(make), [numbers] * 2)

