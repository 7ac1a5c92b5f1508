# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A compiled step compares its first runs with the program that it was exported of.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

import contextlib
import logging
import random
import re
import warnings

import numpy as np
import torch
from torch import nn, optim

import sparse_opt
import sparse_opt.torch
from refusals import refuse, store_all
from sparse_opt._check import Call, Check, Expected, Rerun
from sparse_opt.torch import _optimizer, _random
from twins import mse_step, sgd


class Lines(logging.Handler):
    """Prints what the check says, without its numbers."""

    def emit(self, record):
        Lines.last = record.getMessage()
        print(re.sub(r"[0-9.e+-]+(%| s\b| times)", r"N\1", Lines.last))


logging.getLogger("sparse_opt").addHandler(Lines())
logging.getLogger("sparse_opt").propagate = False

torch.manual_seed(1)
data = [torch.randn(8, 16) for _ in range(4)]


def network(*middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), *middle, nn.Tanh(), nn.Linear(16, 8))


def compiled(step=mse_step, model=None, make=sgd, marks=r"0.weight$", check=2, **options):
    model = model or network()
    export = sparse_opt.torch.export(step, model, make(model.parameters()), data[0], **options)
    mark = f"match={marks} block=4x4 density=0.5"
    return sparse_opt.compile(export, [mark], pattern="random", options=["-O", "1"], check=check)


def train(*arguments, runs=2, **options):
    step = compiled(*arguments, **options)
    for i in range(runs):
        step(data[i])
    return step


# Honest programs of each kind: one line, and no warning.


def clipped(model, optimizer, batch):
    optimizer.zero_grad()
    y = model(batch)
    loss = (y**2).mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return {"loss": loss.detach(), "norm": norm, "hits": (y > 0).sum()}


def cast(model, optimizer, batch):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(batch) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Tied(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self[2].weight = self[0].weight


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 8, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.rnn(x.view(8, 4, 4))[0]


def groups(parameters):
    weight, bias, *rest = parameters
    return optim.AdamW([{"params": [weight, *rest], "lr": 0.01}, {"params": [bias], "lr": 0.02, "weight_decay": 0.0}])


class Keeps(nn.Module):
    """Has a tensor of the step before in an attribute."""

    def __init__(self):
        super().__init__()
        self.net, self.last = network(), torch.zeros(8, 8)

    def forward(self, x):
        y = self.net(x) + self.last
        self.last = (y * 0.5).detach()
        return y


def twice(model, optimizer, batch):
    """Two updates in a step, the second of the first one's weights and moments."""
    loss = mse_step(model, optimizer, batch)
    return loss + mse_step(model, optimizer, -batch)


def of_type(dtype):
    """A step that computes in a type, on batches of f32."""

    def step(model, optimizer, batch):
        return mse_step(model, optimizer, batch.to(dtype))

    return {"step": step, "model": network().to(dtype), "make": optim.AdamW}


HONEST = {
    "SGD": {},
    "results": {"step": clipped},
    "autocast": {"step": cast},
    "groups": {"make": groups},
    "momentum": {"make": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)},
    "Rprop": {"make": lambda p: optim.Rprop(p, lr=0.01)},
    "tensor rate": {"make": lambda p: optim.Adam(p, lr=torch.tensor(0.01), amsgrad=True)},
    "fused": {"make": lambda p: optim.AdamW(p, lr=0.01, fused=True)},
    "dropout": {"model": network(nn.Dropout(0.3))},
    "statistics": {"model": network(nn.BatchNorm1d(16))},
    "tied": {"model": Tied()},
    "attribute": {"model": Keeps(), "marks": "net.0.weight$"},
    "bf16": of_type(torch.bfloat16),
    "f64": of_type(torch.float64),
    "two updates": {"step": twice, "make": optim.AdamW},
    "recurrent": {"model": Recurrent(), "marks": "weight_hh_l1$"},
}
# CHECK-COUNT-17: the first 2 runs did what the program does, at most N% of what is allowed away from it; the check took N s
with warnings.catch_warnings():
    warnings.simplefilter("error")
    for options in HONEST.values():
        train(**options)
    step = compiled()
    with torch.inference_mode():
        step(data[0].clone()), step(data[1])

# Gradients of micro-batches, with an update of patterns between updates; rates and seeds that a call gives; a list for an array.
# CHECK-NEXT: the first 5 runs did what the program does, at most N% of what is allowed away from it; the check took N s
# CHECK-NEXT: the run behind an update of patterns did what the program does, at most N% of what is allowed away from it; the check took N s


def adds(model, optimizer, batch):
    loss = (model(batch) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


step = compiled(adds, network(nn.Dropout(0.3)), optim.AdamW, check=5, accumulate=True)
for i, apply in enumerate((False, False, True, False, True)):
    step(data[i % 4].numpy(), apply=apply, lr=0.01 * i, seed=7 * i)
step.update_patterns(0.5)
step(data[0])

# How fast the step was, if its runs and the program's operations take long enough to tell: of all runs but those that score blocks.
# CHECK-NEXT: the first 3 runs did what the program does, at most N% of what is allowed away from it; the check took N s; the fastest of 2 runs took N s, the program's own with dense weights N s: N times as fast
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024))
batch = torch.randn(512, 1024)
export = sparse_opt.torch.export(mse_step, model, sgd(model.parameters()), batch)
step = sparse_opt.compile(export, "match=weight$ block=16x16 density=0.5", pattern="random", options=["--score-norm=l1"], check=3)
for i in range(3):
    step(batch, scores=i == 2)
# CHECK-NEXT: away from it; the check took N s; the fastest of 2 runs took N s, the program's own with dense weights N s: N times as fast
# CHECK-NEXT: times: 0.2 s, 1.5 s, 7.5
# CHECK-NEXT: away from it; the check took N s{{$}}
# CHECK-NEXT: away from it; the check took N s{{$}}


class Timed:
    """A program whose runs took so long."""

    def __init__(self, *seconds):
        self.seconds = iter(seconds)

    def rerun(self, call):
        loss = np.ones(1)
        expected = Expected("loss", "result", loss, None, None, None, 1e-7, None, False, lambda array: array, place=0)
        return Rerun(expected=[expected], seconds=next(self.seconds))


def timed(own, others):
    check = Check(len(own), Timed(*others))
    for seconds in own:
        check.end(check.begin(lambda: Call((), None, 0, False, False, None, 0)), [np.ones(1)], seconds)


timed((0.7, 0.2), (1.5, 1.6))
print("times:", ", ".join(re.findall(r"[\d.]+ s(?=[,:])|[\d.]+(?= times)", Lines.last)))
timed((0.7, 0.0015), (1.5, 1.6))
timed((0.7, 0.2), (None, 1.6))

# Then nothing is left of the check; and the user's objects are what they were, with what the step has. The gradient of a bias in front of BatchNorm is
# rounding alone, which Adam makes steps of: the program runs a fourth time, for what rounding explains.
# CHECK-NEXT: the first 2 runs did
# CHECK-NEXT: the run behind an update of patterns did
# CHECK-NEXT: bits True, same objects True, generators True, hooks 0, calls 4, check None


calls = 0


def called(model, optimizer, batch):
    global calls
    calls += 1
    return mse_step(model, optimizer, batch)


model = network(nn.BatchNorm1d(16))
optimizer = optim.AdamW(model.parameters(), lr=0.1)
mse_step(model, optimizer, data[0])
gradients = [p.grad for p in model.parameters()]
step = compiled(called, model, lambda _: optimizer)
calls, state, generator = 0, optimizer.state, torch.get_rng_state()
parameters, groups = list(model.parameters()), list(optimizer.param_groups)
memory = [p.data_ptr() for p in parameters]
for i in range(4):
    step(data[i])
step.update_patterns(0.5)
for i in range(2):
    step(data[i])
held = step.state_dict()
same = all(torch.equal(held[name], value) for name, value in model.state_dict().items())
for name, p in model.named_parameters():
    for key, value in optimizer.state[p].items():
        same &= bool((value.numpy() == step.read(f"optimizer.{name}.{key}")).all())
objects = [p.data_ptr() for p in model.parameters()] == memory and optimizer.state is state
objects &= all(p.grad is g for p, g in zip(model.parameters(), gradients))
objects &= all(g is h for g, h in zip(optimizer.param_groups, groups))
hooks = sum(len(p._backward_hooks or ()) for p in parameters)
hooks += len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
kept = torch.equal(generator, torch.get_rng_state())
print(f"bits {same}, same objects {objects}, generators {kept}, hooks {hooks}, calls {calls}, check {step._check}")

# CHECK-NEXT: without: calls 0, check None
calls = 0
step = train(called, runs=3, check=0)
calls = 0
step(data[0])
print(f"without: calls {calls}, check {step._check}")

# What it is for. State outside of model and optimizer that both traces of an export have not changed yet:

count = 0


def counts(model, optimizer, batch):
    global count
    count += 1
    optimizer.zero_grad()
    loss = (model(batch) ** 2).mean() / max(count - 1, 1)
    loss.backward()
    optimizer.step()
    return loss.detach()


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'loss' 0.{{[0-9]+}} away, of which rounding explains {{[^ ]*}}: the program keeps state outside of its model and optimizer (a counter, an average, random numbers of Python), which the step has as it was at the export: make it a buffer of the model or a part of the batch, or report the program if it has none; check=0 trains without this comparison
refuse(train, counts)


class Average:
    """Makes its tensors when it is first needed."""

    def __init__(self):
        self.shadow = {}

    def update(self, model):
        for name, p in model.named_parameters():
            old = self.shadow.get(name, p.detach())
            self.shadow[name] = 0.9 * old + 0.1 * p.detach()


average = Average()


def averages(model, optimizer, batch):
    loss = mse_step(model, optimizer, batch)
    average.update(model)
    return loss


# CHECK-NEXT: expected a step that keeps tensors in its model and optimizer alone, but got one that leaves one that was made at {{.*}}check.py:[[#]] in an object of its own
refuse(train, averages)


def remembers():
    last, count = None, 0

    def step(model, optimizer, batch):
        nonlocal last, count
        loss, count = mse_step(model, optimizer, batch), count + 1
        last = loss if count < 3 else 0.9 * last + 0.1 * loss
        return loss, last

    return step


# CHECK-NEXT: expected a step that keeps its tensors in model and optimizer, but got one of the export in another object at {{.*}}check.py:[[#]]: {{.*}}: make it a buffer of the model, or compute it outside of the step
refuse(train, remembers())


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = network(), nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x))


pair = Pair()
second = optim.Adam(pair.second.parameters(), lr=0.01)


def steps_twice(model, optimizer, batch):
    loss = mse_step(model, optimizer, batch)
    if not torch.compiler.is_compiling():  # as an export is
        second.step()
    second.zero_grad()
    return loss


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'second.weight' {{.*}} away, of which rounding explains {{.*}}: another optimizer (Adam) steps in the program, which did not at the export: let it step each time, or export a step for each case; check=0 trains
refuse(train, steps_twice, pair, lambda _: sgd(pair.first.parameters()))

# Two parameters in one memory, which the step has as two.
# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'loss' {{.*}} away


def in_one_memory():
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    model[2].weight.data = model[0].weight.data
    return model


refuse(train, model=in_one_memory())

RATE = [0.1]


class Own(optim.Optimizer):
    """Has a rate of its own."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1.0})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad * RATE[0])


def changed_rate():
    step = train(make=Own, runs=1)
    RATE[0] /= 2
    step(data[1])


# CHECK-NEXT: expected run 2 of the step to do what the program does, but got '0.weight' {{.*}} away, of which rounding explains {{.*}}: the program keeps state outside of its model and optimizer (a counter, an average, random numbers of Python), which the step has as it was at the export: make it a buffer of the model or a part of the batch; check=0
refuse(changed_rate)

# Random numbers of others: those of Python's own modules are refused at the export, but not those of objects.


def scaled(draw):
    def step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean() * (0.5 + draw())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# CHECK-COUNT-2: expected a step that does the same each time, but got one that computes something else when it is traced again at {{.*}}, by 'draw', which step closes over: make it a buffer
refuse(train, scaled(random.Random(0).random))
refuse(train, scaled(np.random.default_rng(0).random))

draws = [0]


def draws_later(model, optimizer, batch):
    loss = scaled(random.random if draws[0] > 1 else lambda: 0.5)(model, optimizer, batch)
    draws[0] += 1
    return loss


def drops_later(model, optimizer, batch):
    return mse_step(nn.Sequential(nn.Dropout(0.3), model) if draws[0] else model, optimizer, batch)


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'loss' {{.*}}: the program draws random numbers from random, which the step has as they were at the export: put them into the batch, or use the framework's; check=0
refuse(train, draws_later)

draws[0] = 0


def later():
    step = compiled(drops_later)
    draws[0] = 1
    step(data[0])


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'loss' {{.*}}: the program draws other random numbers than it did at the export: let it draw the same ones in each step; check=0
refuse(later)

# Mistakes of ours: dropout that disappears, a gradient that is not masked, a rate of 0 that makes NaN.


@contextlib.contextmanager
def instead(owner, name, value):
    own = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, own)


decompositions = _random.decompositions


def without_dropout(seed, sites):
    passes = {torch.ops.aten.native_dropout.default: lambda x, p, train: (x * 1, torch.ones_like(x, dtype=torch.bool))}
    return {**decompositions(seed, sites), **passes}


def lost_dropout():
    with instead(_random, "decompositions", without_dropout):
        step = compiled(model=network(nn.Dropout(0.3)))
    step(data[0])


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'loss' {{.*}} away, of which rounding explains {{.*}}: random numbers of the step are of another source than the program's, or it keeps state outside of its model and optimizer: report the program if it does not; check=0
refuse(lost_dropout)


def other_masks():
    step = compiled(clipped)
    store_all(step)
    step(data[0])


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'results[1]' {{.*}}: a gradient of a marked weight is not masked as docs/optimizers.md defines it: take the mark from that weight, or report the program; check=0
refuse(other_masks)


# Numbers that are wrong by little: a gradient in one tensor by 1 %, a count and a weight in one bias; and a small layer
# of two that loses its dropout.


def wrong_after(change, **options):
    """A step that leaves something wrong in its arrays."""
    step = compiled(make=optim.AdamW, **options)
    run = step._session.run

    def run_wrong():
        before = {name: array.copy() for name, array in step.arrays.items()}
        run()
        change(before, step.arrays)

    step._session.run = run_wrong
    step(data[0])
    step(data[1])


def scale(name):
    def change(before, after):
        after[name] += 0.01 * (after[name] - before[name])

    return change


def freeze(name):
    def change(before, after):
        after[name][...] = before[name]

    return change


# CHECK-NEXT: expected run 1 {{.*}} but got 'optimizer.0.weight.exp_avg' {{.*}} away
# CHECK-NEXT: expected run 1 {{.*}} but got 'optimizer.2.weight.exp_avg_sq' {{.*}} away
# CHECK-NEXT: expected run 1 {{.*}} but got 'optimizer.2.bias.step' 1 away
# CHECK-NEXT: expected run 1 {{.*}} but got '2.bias' {{.*}} away
# CHECK-NEXT: expected run 1 {{.*}} but got '0.weight' {{.*}} away
refuse(wrong_after, scale("optimizer.0.weight.exp_avg"))
refuse(wrong_after, scale("optimizer.2.weight.exp_avg_sq"))
refuse(wrong_after, freeze("optimizer.2.bias.step"))
refuse(wrong_after, freeze("2.bias"))
refuse(wrong_after, scale("0.weight"))


def with_large_dropout(seed, sites):
    table = decompositions(seed, sites)
    own = table[torch.ops.aten.native_dropout.default]

    def passes(x, p, train):
        kept = own(x, p, train)
        return (x * 1, torch.ones_like(x, dtype=torch.bool)) if x.shape[-1] == 4 else kept

    return {**table, torch.ops.aten.native_dropout.default: passes}


class Beside(nn.Module):
    """A small layer with dropout beside one."""

    def __init__(self):
        super().__init__()
        self.net, self.small, self.drop = network(nn.Dropout(0.3)), nn.Linear(16, 4), nn.Dropout(0.1)

    def forward(self, x):
        return torch.cat([self.net(x), 0.1 * self.drop(self.small(x))], -1)


def lost_small_dropout():
    with instead(_random, "decompositions", with_large_dropout):
        step = compiled(model=Beside(), marks="net.0.weight$")
    step(data[0])


# CHECK-NEXT: expected run 1 {{.*}} but got '{{.*}}' {{.*}} away
refuse(lost_small_dropout)

# A metric that is no number says nothing of the others.


def beside_nan(model, optimizer, batch):
    results = clipped(model, optimizer, batch)
    return {**results, "none": results["norm"] * float("nan")}


def other_masks_beside_nan():
    step = compiled(beside_nan)
    store_all(step)
    step(data[0])


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got 'results[1]' {{.*}}: a gradient of a marked weight is not masked as docs/optimizers.md defines it
refuse(other_masks_beside_nan)


def zero_rate():
    with instead(_optimizer, "_traced_options", lambda _: [("foreach", False), ("fused", False), ("capturable", True)]):
        step = compiled(lambda m, o, x: mse_step(m, o, x * (torch.arange(16) > 3)), make=optim.Adam)
    step(data[0], lr=0.0)


# CHECK-NEXT: expected run 1 of the step to do what the program does, but got NaN in '0.weight', where the program has numbers: that is a mistake of sparse-opt: report the program; check=0 trains without this comparison
refuse(zero_rate)

# A program that cannot run by itself is told of once, and trains on.

fails = [False]


def fails_later(model, optimizer, batch):
    if fails[0]:
        raise RuntimeError("no more")
    return mse_step(model, optimizer, batch)


# CHECK-NEXT: the step runs unchecked: the program's own step raises 'RuntimeError: no more' at {{.*}}check.py:[[@LINE-4]]: raise RuntimeError("no more")
with warnings.catch_warnings(record=True) as messages:
    warnings.simplefilter("always")
    step = compiled(fails_later)
    fails[0] = True
    for batch in data:
        step(batch)
print(*(m.message for m in messages), sep="\n")

# CHECK-NEXT: expected a number of runs to check, but got -1
refuse(compiled, check=-1)

# A checkpoint goes on where it was.
# CHECK-COUNT-2: the first 2 runs did what the program does


def resume():
    import tempfile

    first, second = (compiled(make=optim.AdamW) for _ in range(2))
    first(data[0]), first(data[1])
    with tempfile.TemporaryDirectory() as folder:
        first.save(f"{folder}/step.bsr")
        second.load(f"{folder}/step.bsr")
    second(data[2]), second(data[3])


resume()
