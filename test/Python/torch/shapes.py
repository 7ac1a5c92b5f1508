# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One step on batches of several shapes: the same weights, patterns and optimizer state.

# RUN: env SPARSE_OPT_CACHE=%t %python %s | FileCheck %s --implicit-check-not=apart --implicit-check-not=accepted

import copy
import dataclasses
import logging
import random
import re
import tempfile
import warnings

import numpy as np
import torch
from torch import nn

import sparse_opt
import sparse_opt.cache
import sparse_opt.torch
from refusals import refuse
from sparse_opt.torch import nn as layers
from twins import mse_step


class Lines(logging.Handler):
    """Prints what is said, without its numbers of seconds."""

    def emit(self, record):
        print(re.sub(r"[0-9.e+-]+(%| s\b)", r"N\1", record.getMessage()))


logging.getLogger("sparse_opt").addHandler(Lines())
logging.getLogger("sparse_opt").propagate = False


class Model(nn.Module):
    """Has a table of positions and a mask, which each length takes a part of."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(16, 8), nn.Embedding(32, 8)
        self.register_buffer("causal", torch.ones(32, 32).tril().bool(), persistent=False)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 16)

    def forward(self, ids):
        length = ids.shape[1]
        h = self.tokens(ids) + self.places.weight[:length]
        seen = (h @ h.mT).masked_fill(~self.causal[:length, :length], -torch.inf).softmax(-1)
        return self.head(self.down((self.up(h + seen @ h)).tanh()))


def loss_of(model, batch):
    """A mean over the tokens that have a label."""
    logits = model(batch["ids"]).flatten(0, 1)
    return nn.functional.cross_entropy(logits, batch["labels"].flatten(), ignore_index=-1)


def train_step(model, optimizer, batch):
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def adamw(model):
    embeddings = [*model.tokens.parameters(), *model.places.parameters()]
    rest = [p for n, p in model.named_parameters() if not n.startswith(("tokens", "places"))]
    return torch.optim.AdamW([{"params": rest}, {"params": embeddings, "lr": 0.003}], lr=0.01)


def batch(rows, length):
    ids = torch.randint(0, 16, (rows, length))
    labels = ids.roll(-1, 1)
    labels[0, length // 2 :] = -1
    return {"ids": ids, "labels": labels}


MARK = ["match=0.weight$ block=4x4 density=0.5"]
MARKS = [r"match=(up|down).weight$ block=4x4 density=0.5"]
OPTIONS = ["-O", "1", "--score-norm=l1"]


def compiled(model, optimizer, shape=(4, 16), accumulate=False, **options):
    export = sparse_opt.torch.export(
        train_step, model, optimizer, batch(*shape), accumulate=accumulate
    )
    return sparse_opt.compile(export, MARKS, pattern="random", options=OPTIONS, **options)


def mask_of(step, name):
    """Returns which entries of a weight are stored."""
    pattern, blocks = step.patterns[name], step.blocks(name)
    grid = torch.zeros(pattern.rows // 4, pattern.cols // 4)
    grid[torch.from_numpy(blocks.rows).long(), torch.from_numpy(blocks.col_idx).long()] = 1
    return grid.repeat_interleave(4, 0).repeat_interleave(4, 1).bool()


class Reference:
    """The step in float64, with masks on weights, gradients and moments."""

    def __init__(self, step, model):
        self.model = copy.deepcopy(model).double()
        state = {k: v.double() for k, v in step.state_dict().items()}
        self.model.load_state_dict(state)
        self.optimizer = adamw(self.model)
        self.step, self.gradients = step, {}
        for name in step.patterns:
            self.model.get_parameter(name).register_hook(lambda g, n=name: self.masked(n, g))

    def masked(self, name, gradient):
        self.gradients[name] = gradient.clone()
        return gradient * mask_of(self.step, name)

    def __call__(self, batch):
        return float(train_step(self.model, self.optimizer, batch))

    def update(self):
        """Takes the patterns of the step: what is new in them is zero."""
        for name in self.step.patterns:
            p, mask = self.model.get_parameter(name), mask_of(self.step, name)
            p.data *= mask
            for value in self.optimizer.state[p].values():
                value *= mask if value.dim() else 1

    def scores(self, name):
        gradient = self.gradients[name]
        return gradient.unfold(0, 4, 4).unfold(1, 4, 4).abs().sum((2, 3)).flatten()

    def distance(self):
        state = self.step.state_dict()
        return max(
            float((state[n] - p).abs().max() / p.abs().max())
            for n, p in self.model.state_dict().items()
        )


torch.manual_seed(0)
model = Model()
optimizer = adamw(model)
step = compiled(model, optimizer, check=2)
first = step.counters.bytes
reference = Reference(step, model)

# A shape is compiled when its first batch comes, which says so and is checked, and then known. The
# user's model, optimizer and generators stay as they are, whatever the rates are then.

# CHECK:      compiled the step for 'batch.ids' [4, 24], 'batch.labels' [4, 24] in N s, shape 2 of at most 16
# CHECK-NEXT: the first run did what the program does
# CHECK-NEXT: the first 2 runs did what the program does
# CHECK-NEXT: compiled the step for 'batch.ids' [3, 24], 'batch.labels' [3, 24] in N s, shape 3 of at most 16
# CHECK-NEXT: the first run did what the program does
# CHECK-NEXT: losses and weights equal, updates 5, runs 7
worst = 0.0
for i, shape in enumerate([(4, 16), (4, 24), (4, 16), (3, 24), (4, 24), (4, 16), (3, 24)]):
    for owner in (optimizer, reference.optimizer):
        rates = (0.0, 0.0) if i == 1 else (0.01 / (i + 1), 0.003 / (i + 1))
        for group, rate in zip(owner.param_groups, rates):
            group["lr"] = rate
    data = batch(*shape)
    generators = torch.get_rng_state(), random.getstate(), np.random.get_state()
    got, want = float(step(data, scores=True)), reference(data)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()
    assert all(str(a) == str(b) for a, b in zip(generators, after)), "generators moved"
    # The program that is exported again has what the step has.
    for name, p in model.named_parameters() if i != 2 else ():
        assert torch.equal(p, torch.from_numpy(step.read(name))), f"'{name}' of the model is apart"
    assert all(p.grad is None for p in model.parameters()), "the model has gradients"
    worst = max(worst, abs(got - want) / want)
    for name, pattern in step.patterns.items():
        scores, own = torch.from_numpy(step._session.scores(pattern)), reference.scores(name)
        worst = max(worst, float((scores - own).abs().max() / own.max()))
    if i != 4 and i != 6:
        step.update_patterns(0.3, method="rigl" if i % 2 else "set")
        reference.update()
worst = max(worst, reference.distance())
counters = step.counters
print("losses and weights", "equal," if worst < 1e-5 else f"apart by {worst},", end=" ")
print(f"updates {counters.pattern_updates}, runs {counters.steps}")

# All shapes train the same memory, and one that is smaller takes none to work in.

# CHECK: same memory True, little more True
step(batch(2, 8), lr=0.0)
kept = [n for n, b in step.buffers.items() if b.carried]
same = all(
    shape.arrays[n].ctypes.data == step.arrays[n].ctypes.data
    for shape in step._shapes.known.values()
    for n in kept
)
sizes = [shape.session.counters().bytes for shape in step._shapes.known.values()]
print(f"same memory {same}, little more {sizes[-1] < sizes[0] / 4}")

# An evaluation takes any shape, too.

# CHECK: evaluated, equal
data = batch(5, 12)
want, got = loss_of(reference.model, data).item(), float(step.evaluate(data))
print("evaluated, equal" if abs(got - want) < 1e-5 * want else f"evaluated, apart: {got} {want}")

# A checkpoint is one for all shapes, and their libraries are kept on disk.


def go_on(step):
    torch.manual_seed(3)
    losses = []
    for shape in ((3, 24), (4, 16), (4, 24)):
        losses.append(float(step(batch(*shape))))
        step.update_patterns(0.3)
    return losses, {n: a.tobytes() for n, a in step.native_state().items()}


# CHECK-COUNT-2: compiled the step for
# CHECK: compiled ahead 3, new libraries 0, resumed exactly True
libraries = len(sparse_opt.cache._files())
torch.manual_seed(0)
fresh = Model()
again = compiled(
    fresh, adamw(fresh), check=0, shapes=[batch(4, 24), batch(3, 24), batch(4, 16)], max_shapes=3
)
ahead = len(again.shapes)
for group, rate in zip(optimizer.param_groups, (0.01, 0.003)):
    group["lr"] = rate
with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
    warnings.simplefilter("error")
    step.save(f"{folder}/step.bsr")
    again.load(f"{folder}/step.bsr")
more = len(sparse_opt.cache._files()) - libraries
print(f"compiled ahead {ahead}, new libraries {more}, resumed exactly", go_on(step) == go_on(again))

# What is no shape is refused as ever, and a refusal changes nothing.

data = batch(2, 12)
before = again.native_state()
# CHECK: expected at most 3 shapes of batches, but got another one, 'batch.ids' [2, 12], 'batch.labels' [2, 12]: pad batches to a few lengths (buckets), or say compile(max_shapes=)
refuse(again, data)
# CHECK: expected at most 0 shapes of batches, but got another one
again._shapes.most = 0
refuse(again.evaluate, data)
# CHECK: expected a batch of structure {'ids': *, 'labels': *}, but got {'ids': *}
refuse(step, {"ids": data["ids"]})
# CHECK: expected 'batch.ids' of type int64, but got float32: convert it with .to()
refuse(step, {**data, "ids": data["ids"].float()})
# CHECK: expected 'batch.ids' of type int64, but got int32
refuse(step, {**data, "ids": data["ids"].numpy().astype(np.int32)})
# CHECK: expected 'batch.ids' of 2 dimensions, as it was exported, but got shape [12]
refuse(step, {**data, "ids": data["ids"][0]})
# CHECK: expected tensors with elements, but got shape (2, 0) for 'batch.ids': leave it out
refuse(step, {name: value[:, :0] for name, value in data.items()})
# CHECK: expected modules in training mode as they were exported, but got
model.eval()
refuse(step, data)
model.train()
# CHECK: unchanged True
now = again.native_state()
print("unchanged", all(np.array_equal(before[n], now[n]) for n in now))

# Micro-batches of several lengths: their gradients have one mean.

# CHECK: compiled the step for 'batch.ids' [2, 24]
# CHECK: micro-batches equal
model = Model()
optimizer = adamw(model)
step = compiled(model, optimizer, (2, 16), accumulate=True, check=1)
reference, worst = Reference(step, model), 0.0
for _ in range(2):
    for i, length in enumerate((16, 24, 16)):
        data = batch(2, length)
        got, want = step(data, apply=i == 2), loss_of(reference.model, data)
        (want / 3).backward()
        worst = max(worst, abs(float(got) / want.item() - 1))
    reference.optimizer.step()
    reference.optimizer.zero_grad()
    step.update_patterns(0.3)
    reference.update()
worst = max(worst, reference.distance())
print("micro-batches", "equal" if worst < 1e-5 else f"apart by {worst}")

# Block-sparse layers: a step of several shapes goes on with them, and gives them back.

# CHECK: compiled the step for 'batch' [5, 8]
# CHECK: layers equal
model = layers.sparsify(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)), MARK)
twin = copy.deepcopy(model)
optimizer, twins = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, twin))
batches = [torch.randn(rows, 8) for rows in (8, 5, 5, 8)]
export = sparse_opt.torch.export(mse_step, model, optimizer, batches[0])
step, worst = sparse_opt.compile(export, options=["-O", "1"], check=1), 0.0
for i, x in enumerate(batches):
    worst = max(worst, abs(float(step(x)) / float(mse_step(twin, twins, x)) - 1))
    if i in (1, 2):
        step.update_patterns(0.4)
        layers.update_patterns(twin, twins, 0.4)
step.store()
with torch.no_grad():
    worst = max(worst, float((model(x) - twin(x)).abs().max()))
print("layers", "equal" if worst < 1e-5 else f"apart by {worst}")

# What a shape makes of the program has to be the same step.


def odd_step(model, optimizer, x):
    h = model[0](x)
    if len(x) == 5:
        h = nn.functional.dropout(h, 0.5)
    loss = (model[1](h) if len(x) != 3 else h).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 8)
export = sparse_opt.torch.export(odd_step, model, optimizer, x)
with tempfile.TemporaryDirectory() as folder:
    library = f"{folder}/step.so"
    step = sparse_opt.compile(
        export, MARK, pattern="random", options=["-O", "1"], check=0, library=library
    )
    # CHECK: expected a step that sparse_opt.compile made, to train on batches of another shape, but got one of a library: compile the export again
    refuse(sparse_opt.Step(library, export.program), x[:4])
warnings.simplefilter("ignore")
# CHECK: expected a step that trains '1.{{weight|bias}}', as the source does, but got one that leaves it as it is: the step for 'batch' [3, 8] has to have the weights, patterns and state of the first one, pad such a batch
refuse(step, x[:3])
# CHECK: expected a step without 'seed', as that of the first shape is, but got one with it: the step for 'batch' [5, 8] has to have
refuse(step, x[:5])
# As if the shape made the compiler leave a weight dense, or take other blocks.
made = step._shapes.compilation
for marks in ((), (dataclasses.replace(made.marks[0], block=8),)):
    # CHECK: expected '0.weight' of 4x4x4 f32, as the source has it, but got '0.weight' of 16x8 f32: the step for 'batch' [2, 8] has to have
    # CHECK: expected the pattern of '0.weight', 16x8 in blocks of 4x4 with 4 slots, as the source has it, but got that of '0.weight', 16x8 in blocks of 8x8 with 1 slots: the step for
    step._shapes.compilation = dataclasses.replace(made, marks=marks)
    refuse(step, x[:2])
step._shapes.compilation = made
# CHECK: expected 'batch' of type float32, but got float64: convert it with .to()
refuse(step, x[:2].double())
# CHECK: expected batches of one shape for several processes, but got 'batch' [2, 8]: pad them
step._shapes.ranks = step
refuse(step, x[:2])
step._shapes.ranks = None
# CHECK: compiled the step for 'batch' [2, 8] in N s, shape 2 of at most 16
# CHECK: trained {{[0-9.]+$}}
print("trained", float(step(x[:2])))
# CHECK: expected an export of PyTorch or JAX for shapes=, but got text, which has one: compile the text of each shape
refuse(sparse_opt.compile, str(export), MARK, pattern="random", shapes=[x])
# CHECK: expected max_shapes to be an integer from 1, but got 0
refuse(sparse_opt.compile, export, MARK, max_shapes=0)
# CHECK: expected a list of batches as shapes, but got 3
refuse(sparse_opt.compile, export, MARK, shapes=3)
