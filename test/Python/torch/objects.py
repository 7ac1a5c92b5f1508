# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What PyTorch's objects have behind compiled steps: the step's values, whoever looks, and what is
# written into them the step's next run has. Beside an eager twin.

# RUN: %python %s %t.pt | FileCheck %s --implicit-check-not=accepted --implicit-check-not=False

import copy
import gc
import io
import logging
import os
import pickle
import subprocess
import sys
import threading
import warnings
import weakref

import numpy as np
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.optim.swa_utils import AveragedModel

import sparse_opt
import sparse_opt.torch
from refusals import refuse
from sparse_opt.torch._objects import Waiting
from twins import mse_step, twin

torch.manual_seed(0)
warnings.simplefilter("error")
warnings.filterwarnings("ignore", module="torch")
x = torch.randn(4, 8)


def compiled(model, optimizer=None, density=1, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    export = sparse_opt.torch.export(mse_step, model, optimizer, x)
    marks = [sparse_opt.Mark("0.weight$", block=4, density=density)]
    return sparse_opt.compile(export, marks, pattern="largest", options=["-O", "1"], check=0, **options)


def network():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def near(a, b):
    return torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=0, atol=1e-5)


def waits(model):
    return all(isinstance(p, Waiting) for p in model.parameters())


class Twins:
    """A model that a compiled step trains, and one that trains eagerly."""

    def __init__(self, make=network, make_optimizer=lambda params: torch.optim.AdamW(params, 0.01)):
        self.model = make()
        self.optimizer = make_optimizer(self.model.parameters())
        self.eager, self.own = twin(self.model, self.optimizer)
        self.step = compiled(self.model, self.optimizer)

    def train(self, count=1):
        for _ in range(count):
            self.step(x)
            mse_step(self.eager, self.own, x)

    def both(self, action):
        return action(self.model, self.optimizer), action(self.eager, self.own)

    def same(self):
        with torch.no_grad():
            return all(near(p, q) for p, q in zip(self.model.parameters(), self.eager.parameters()))


# Whoever looks sees what the step has, and tensors are plain then.

compiled_forward = torch.compile(network(), backend="eager")


@torch.compile(backend="eager")
def compiled_function(model):
    return model(x).sum()


def saved(model, optimizer):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)[0].weight


def averaged(model, optimizer):
    average = AveragedModel(model)
    average.update_parameters(model)
    return average.module[0].weight


LOOKS = {
    "call": lambda m, o: m(x),
    "part": lambda m, o: m[0](x),
    "state_dict": lambda m, o: m.state_dict()["0.weight"],
    "copy": lambda m, o: copy.deepcopy(m)[0].weight,
    "pickle": lambda m, o: pickle.loads(pickle.dumps(m))[2].bias,
    "save": saved,
    "average": averaged,
    "vector": lambda m, o: nn.utils.parameters_to_vector(m.parameters()),
    "list": lambda m, o: torch._foreach_norm(list(m.parameters()))[3],
    "data": lambda m, o: m[0].weight.data,
    "numpy": lambda m, o: m[2].bias.detach().numpy(),
    "array": lambda m, o: np.asarray(m[2].bias.detach()),
    "number": lambda m, o: torch.tensor(m[0].bias[3].item()),
    "functional": lambda m, o: torch.func.functional_call(m, {"0.bias": torch.zeros(8)}, (x,)),
    "compiled": lambda m, o: torch.compile(m, backend="eager")(x),
    "compiled function": lambda m, o: compiled_function(m),
    "optimizer.state_dict": lambda m, o: o.state_dict()["state"][0]["exp_avg"],
    "optimizer's copy": lambda m, o: next(iter(copy.deepcopy(o).state.values()))["exp_avg_sq"],
    "optimizer's state": lambda m, o: o.state[m[0].weight]["exp_avg"].clone(),
}
twins = Twins()
twins.train()
twins.optimizer.state_dict()  # an optimizer has no state before that
for name, look in LOOKS.items():
    twins.train(2)
    waited = waits(twins.model)
    print(f"{name}: {waited}", near(*(t.detach() if isinstance(t, torch.Tensor) else t for t in twins.both(look))), not waits(twins.model))
# CHECK: call: True True True
# CHECK-NEXT: part: True True True
# CHECK-NEXT: state_dict: True True True
# CHECK-NEXT: copy: True True True
# CHECK-NEXT: pickle: True True True
# CHECK-NEXT: save: True True True
# CHECK-NEXT: average: True True True
# CHECK-NEXT: vector: True True True
# CHECK-NEXT: list: True True True
# CHECK-NEXT: data: True True True
# CHECK-NEXT: numpy: True True True
# CHECK-NEXT: array: True True True
# CHECK-NEXT: number: True True True
# CHECK-NEXT: functional: True True True
# CHECK-NEXT: compiled: True True True
# CHECK-NEXT: compiled function: True True True
# CHECK-NEXT: optimizer.state_dict: True True True
# CHECK-NEXT: optimizer's copy: True True True
# CHECK-NEXT: optimizer's state: True True True

# What a module compiled before sees, and what is printed; what needs no values copies none.

forward = torch.compile(twins.model, backend="eager")
forward(x)
twins.train()
print("compiled before", near(forward(x), twins.eager(x)))
twins.train()
print("printed", repr(twins.model[2].bias) == repr(nn.Parameter(twins.step.state_dict()["2.bias"])))
twins.train()
for p in twins.model.parameters():
    p.grad, p.requires_grad, p.shape, p.dtype, p.device, p.numel(), p.dim(), len(p), p.is_leaf, hash(p)
twins.optimizer.zero_grad()
twins.model.eval(), twins.model.train()
twins.step(x), mse_step(twins.eager, twins.own, x)
print("waits", waits(twins.model), type(twins.model[0].weight).__name__)
# CHECK: compiled before True
# CHECK-NEXT: printed True
# CHECK-NEXT: waits True Parameter

# What is written the step has: by an operation, by .data, by a state_dict, by an eager step, by what
# the optimizer loads; and what the step makes of it is there again.


@torch.no_grad()
def cleared(model, optimizer):
    model[2].weight.zero_()


def reinitialized(model, optimizer):
    torch.manual_seed(3)
    nn.init.normal_(model[0].weight, std=0.2)


other, moments = network().state_dict(), copy.deepcopy(twins.optimizer.state_dict())
for part in moments["state"].values():
    part["exp_avg"] *= 0
WRITES = {
    "operation": cleared,
    "init": reinitialized,
    "data": lambda m, o: m[0].weight.data.clamp_(-0.1, 0.1),
    "assigned data": lambda m, o: setattr(m[2].bias, "data", torch.full((8,), 0.25)),
    "state_dict": lambda m, o: m.load_state_dict(other),
    "eager step": lambda m, o: mse_step(m, o, x),
    "optimizer": lambda m, o: o.load_state_dict(copy.deepcopy(moments)),
    "optimizer, then a look": lambda m, o: (o.load_state_dict(copy.deepcopy(moments)), m[0].weight.sum()),
}
for name, write in WRITES.items():
    twins.train(2)
    twins.both(write)
    twins.train()
    print(f"{name}:", twins.same())
# CHECK: operation: True
# CHECK-NEXT: init: True
# CHECK-NEXT: data: True
# CHECK-NEXT: assigned data: True
# CHECK-NEXT: state_dict: True
# CHECK-NEXT: eager step: True
# CHECK-NEXT: optimizer: True
# CHECK-NEXT: optimizer, then a look: True

# It is there without a run, too: in evaluations, checkpoints and what the step returns.

twins.train()
twins.both(cleared)
print("evaluated", near(twins.step.evaluate(x), (twins.eager(x) ** 2).mean().detach()))
twins.both(reinitialized)
print("returned", near(twins.step.state_dict()["0.weight"], twins.eager[0].weight.detach()))
twins.both(cleared)
twins.step.save(sys.argv[1] + ".checkpoint")
twins.train(2)
twins.step.load(sys.argv[1] + ".checkpoint")
print("loaded", waits(twins.model), not twins.model[2].weight.any().item())
twins.step.write("2.weight", np.ones((8, 8), np.float32))
print("written", waits(twins.model), twins.model[2].weight.eq(1).all().item())
# CHECK: evaluated True
# CHECK-NEXT: returned True
# CHECK-NEXT: loaded True True
# CHECK-NEXT: written True True

# Of a weight in blocks a pattern is kept, and updates of patterns are seen.

model = network()
step = compiled(model, density=0.5)
step(x)
before = step.blocks("0.weight")
nn.init.ones_(model[0].weight)
step.evaluate(x)
mask = torch.from_numpy(step.read("0.weight"))
print("blocks", mask.unique().tolist(), np.array_equal(step.blocks("0.weight").col_idx, before.col_idx))
step.update_patterns(0.5)
print("pruned", near(model[0].weight.detach(), step.read("0.weight")), not near(model[0].weight.detach(), mask))
# CHECK: blocks [0.0, 1.0] True
# CHECK-NEXT: pruned True True

# What is read of a step has what was written into the model and the optimizer in front of it,
# whether or not their tensors wait; other arrays are as they were.

nn.init.constant_(model[0].weight, 3.0)
bias = step.read("2.bias")
print("read", np.unique(step.read("0.weight")).tolist(), np.array_equal(step.read("2.bias"), bias))
nn.init.constant_(model[2].bias, 4.0)
print("read again", np.unique(step.read("2.bias")).tolist(), np.unique(step.read("0.weight")).tolist())
own = network()
sgd = torch.optim.SGD(own.parameters(), 0.1, momentum=0.9)
other = compiled(own, sgd)
other(x)
sgd.state_dict()  # which has state from its first step on
other(x)
sgd.state[own[2].bias]["momentum_buffer"] = torch.full((8,), 6.0)
print("another", waits(own), np.unique(other.read("optimizer.2.bias.momentum_buffer")).tolist())
# CHECK-NEXT: read [0.0, 3.0] True
# CHECK-NEXT: read again [4.0] [0.0, 3.0]
# CHECK-NEXT: another True [6.0]

# A step that nobody has any more has left its values; a model that nobody has any more goes.

step(x)
expected = step.read("0.weight")
del step
gc.collect()
print("left", near(model[0].weight.detach(), expected))
model = network()
step = compiled(model)
step(x)
gone = [weakref.ref(model[0].weight), weakref.ref(step)]
print("waited", waits(model))
del model, step
gc.collect()
print("gone", all(r() is None for r in gone))
# CHECK: left True
# CHECK-NEXT: waited True
# CHECK-NEXT: gone True

# Of two steps of one model the last one that ran is seen, and neither takes the other's for a write.

model = network()
first, second = compiled(model), compiled(model)
first(x), first(x)
one = first.read("2.weight")
second(x)
print("second", near(model[2].weight.detach(), second.read("2.weight")), not near(one, second.read("2.weight")))
first.evaluate(x)
print("first", near(first.read("2.weight"), one))
# CHECK: second True True
# CHECK-NEXT: first True

# Tensors of a type of somebody's own, which cannot wait, are up to date at once.


class Own(nn.Parameter):
    pass


model = network()
model[2].weight = Own(model[2].weight.detach())
step = compiled(model)
step(x)
print("own", type(model[2].weight) is Own, near(model[2].weight.detach(), step.read("2.weight")), near(model[0].bias.detach(), step.read("0.bias")))
# CHECK: own True True True

# A file that was saved needs nothing of this package, and hooks are gone with the step.

step = compiled(model)
step(x)
torch.save(model, sys.argv[1])
code = f"import sys; sys.modules['sparse_opt'] = None; import torch; torch.load({sys.argv[1]!r}, weights_only=False)"
print("read elsewhere", subprocess.run([sys.executable, "-c", code]).returncode)
hooks = sum(len(m._forward_pre_hooks) + len(m._state_dict_pre_hooks) for m in model.modules())
print("hooks", hooks)
# CHECK: read elsewhere 0
# CHECK-NEXT: hooks 0

# A program that has changed is not written over; another thread does not look in between.

model = network()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
step = compiled(model, optimizer)
step(x)
optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
with warnings.catch_warnings(record=True) as messages:
    warnings.simplefilter("always")
    model(x)
print(*(m.message for m in messages), [m.filename == __file__ for m in messages])
# CHECK: the model has the weights of before the compiled step: expected optimizer options as they were exported, but got 2 of them instead of 1: export the step again, with scheduled=[...] for what a schedule changes [True]
model = network()
step = compiled(model)
step(x)
thread = threading.Thread(target=lambda: model(x))
with step._use:
    thread.start(), thread.join(0.2)
    print("another thread waits", thread.is_alive(), waits(model))
thread.join()
print("behind it", near(model[2].weight.detach(), step.read("2.weight")))
# CHECK: another thread waits True True
# CHECK-NEXT: behind it True

# Looks of another thread and runs of the step take turns.

done, looked = threading.Event(), []


def look_on():
    while not done.is_set():
        looked.append(model[0].weight.detach().isfinite().all().item())


thread = threading.Thread(target=look_on)
thread.start()
for _ in range(200):
    step(x)
done.set(), thread.join()
print("take turns", len(looked) > 1 and all(looked), near(model[2].weight.detach(), step.read("2.weight")))
# CHECK: take turns True True

# A process that is forked has what the step had.

step(x)
expected = step.read("2.weight")
print("before the fork", waits(model))
if not (child := os.fork()):
    os._exit(not near(model[2].weight.detach(), expected))
print("forked", os.waitpid(child, 0)[1] == 0)
# CHECK: before the fork True
# CHECK-NEXT: forked True

# What is written past tensors that wait is not what they have: an error, once.

held = model[2].weight.detach()
step(x)
held.mul_(2)
refuse(step, x)
before = step.read("2.weight")
step(x)
print("goes on", not near(before, step.read("2.weight")), waits(model))
# CHECK: expected '2.weight' to be written by the model's own tensor, but got another tensor or array of its memory, which had the values of before the step's last run: take it from the model again behind each run
# CHECK-NEXT: goes on True True

# Functions of torch.compile are compiled again a few times, not in each look; those that do not look
# have nothing copied.

model(x)  # of which nothing waits any more
twins = Twins()
counter, other_counter = CompileCounter(), CompileCounter()
looking = torch.compile(lambda model: model(x).sum(), backend=counter, fullgraph=True)
other_function = torch.compile(lambda y: y.sin() * 2, backend=other_counter)
looking(twins.model), other_function(x)
looks = []
for _ in range(12):
    twins.train()
    other_function(x)
    waited = waits(twins.model)
    looks.append(waited and near(looking(twins.model).detach(), twins.eager(x).sum().detach()))
    looks.append(not waits(twins.model))
print("looks", all(looks), "compiled", counter.frame_count, other_counter.frame_count)
# CHECK: looks True compiled 3 1

# A line says once what was taken: the first of its names and how many more.


class Lines(logging.Handler):
    def emit(self, record):
        print(record.getMessage())


logging.getLogger("sparse_opt").addHandler(Lines())
for _ in range(2):
    twins.train()
    twins.both(cleared)
    twins.both(reinitialized)
    twins.train()
print("same", twins.same())
# CHECK: the step goes on with what was written into its program: '0.weight' and 1 more; an eager loop that is to stay apart trains a copy.deepcopy() of the model, with an optimizer of its own
# CHECK-NEXT: same True

# A buffer that is another tensor is a write, and so are numbers that an optimizer keeps.


class Counting(torch.optim.Optimizer):
    """A rate that falls with a count of its own."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["count"] = 0
            state["count"] += 1
            p.sub_(p.grad * (self.param_groups[0]["lr"] / state["count"]))


class Shifted(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 8), nn.Linear(8, 8))
        self.register_buffer("shift", torch.zeros(8))

    def forward(self, x):
        return super().forward(x) + self.shift


def shifted(model, optimizer):
    model.shift = torch.full((8,), 0.5)


logging.getLogger("sparse_opt").handlers.clear()
twins = Twins(Shifted, Counting)
twins.train(2)
waited = waits(twins.model)
twins.both(shifted)
twins.train()
print("buffer", waited, twins.same())
twins.both(lambda m, o: mse_step(m, o, x))
twins.train(2)
print("numbers", twins.same(), [o.state[m[0].bias]["count"] for m, o in ((twins.model, twins.optimizer), (twins.eager, twins.own))])
# CHECK: buffer True True
# CHECK-NEXT: numbers True [6, 6]

# Models whose hooks rename what a state_dict has, or that keep more than tensors in it.


class Renamed(nn.Sequential):
    """As models of wrappers are: the names of its state_dict are those of what it wraps."""

    def __init__(self):
        super().__init__(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.register_state_dict_post_hook(self.rename)
        self.register_load_state_dict_pre_hook(self.back)

    @staticmethod
    def rename(module, state, prefix, metadata):
        for name in list(state):
            state[f"old.{name}"] = state.pop(name)

    @staticmethod
    def back(module, state, *_):
        for name in list(state):
            state[name.removeprefix("old.")] = state.pop(name)


class Extra(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 8))
        self.extra = {"scale": [1.5]}

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def carried(make):
    """Trains, stores, loads another state; says whether all of it is right."""
    torch.manual_seed(0)
    model = make()
    eager = copy.deepcopy(model)
    optimizer = torch.optim.SGD(eager.parameters(), 0.1, momentum=0.9)
    step = compiled(model)
    for _ in range(3):
        step(x), mse_step(eager, optimizer, x)

    def near(state, other):
        tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        return state.keys() == other.keys() and all(
            torch.allclose(v, other[k], atol=1e-5) for k, v in tensors.items()
        )

    said = [near(step.state_dict(), eager.state_dict())]
    step.store()
    said.append(near(model.state_dict(), eager.state_dict()))
    other = make().state_dict()
    step.load_state_dict(other)
    said.append(near(step.state_dict(), other))
    print(make.__name__, *said)
    return step


# CHECK: Renamed True True True
step = carried(Renamed)
# CHECK: expected a state_dict that the exported model takes, but got 'size mismatch for 0.bias{{.*}}'
state = step.state_dict()
refuse(step.load_state_dict, {**state, "old.0.bias": torch.zeros(3)})
# CHECK: Extra True True True
step = carried(Extra)
# CHECK: {'scale': [1.5]}
print(step.state_dict()["_extra_state"])

# Names of one tensor have one value.


class Tied(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 8), nn.Linear(8, 8))
        self[1].weight = self[0].weight


# CHECK: Tied True True True
step = carried(Tied)
# CHECK: expected one value of '0.weight' and '1.weight', which the model ties, but got two: give both the one that is to count
state = step.state_dict()
refuse(step.load_state_dict, {**state, "1.weight": state["1.weight"] + 1})
