# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Functions of a model run on what a compiled step trains.

# RUN: %python -u %s | FileCheck %s

import copy
import warnings

import torch
from torch import nn

import sparse_opt
import sparse_opt.torch
from refusals import refuse

warnings.simplefilter("error")  # also the one that a model is not trained
torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.norm = nn.BatchNorm1d(16)
        self.up = nn.Linear(16, 32)
        self.drop = nn.Dropout(0.5)
        self.down = nn.Linear(32, 16)
        self.head = nn.Linear(16, 11, bias=False)

    def forward(self, ids):
        x = self.norm(self.embed(ids).mean(1))
        return self.head(x + self.down(self.drop(torch.tanh(self.up(x)))))


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["ids"]), batch["labels"])
    loss.backward()
    optimizer.step()
    return loss.detach()


def validate(model, batch):
    logits = model(batch["ids"])
    loss = nn.functional.cross_entropy(logits, batch["labels"])
    return {"loss": loss, "hits": (logits.argmax(-1) == batch["labels"]).sum()}


def next_token(model, ids):
    return model(ids).argmax(-1)


def batch(size, length=5):
    ids = torch.randint(0, 11, (size, length))
    return {"ids": ids, "labels": ids[:, 0]}


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
marks = ["match=(up|down).weight$ block=8x8 density=0.5"]
export = sparse_opt.torch.export(train_step, model, optimizer, batch(8))
functions = {
    "validate": sparse_opt.torch.export_function(validate, model, batch(6)),
    "next": sparse_opt.torch.export_function(next_token, model, batch(1)["ids"]),
}
assert model.training and model.drop.training
step = sparse_opt.compile(export, marks, options=["-O", "1"], pattern="random")
validated, generated = (step.bind(text) for text in functions.values())

# The numbers are those of the dense model with zeros for absent blocks, in the mode of
# evaluation, whatever the step has done meanwhile.

# CHECK-COUNT-4: loss True, hits True, tokens True, training as the step False
dense = copy.deepcopy(model).eval()
for _ in range(4):
    given = batch(6)
    got = validated(given)
    dense.load_state_dict(step.state_dict())
    with torch.no_grad():
        want, tokens = validate(dense, given), next_token(dense, given["ids"][:1])
    train = batch(8)
    training = step.evaluate(train, seed=3), step.evaluate(train, seed=3)
    assert training[0] == training[1]
    print(
        f"loss {torch.allclose(got['loss'], want['loss'], atol=1e-5)},"
        f" hits {bool(got['hits'] == want['hits'])},"
        f" tokens {torch.equal(generated(given['ids'][:1]), tokens)},"
        f" training as the step {bool(training[0] == step.evaluate(train, seed=4))}"
    )
    for _ in range(3):
        step(batch(8))
    step.update_patterns(0.5)

# Dropout of one seed is that of the step.

# CHECK: the step's loss True
train = batch(8)
print("the step's loss", bool(step.evaluate(train, seed=9) == step(train, seed=9)))

# Without a step, a function has the values of the model.

# CHECK: alone True
model.load_state_dict(step.state_dict())
alone = sparse_opt.compile(functions["next"], options=["-O", "1"])
with torch.no_grad():
    want = next_token(model.eval(), train["ids"][:1])
print("alone", torch.equal(alone(train["ids"][:1]), want))

# CHECK: expected a function that changes nothing of its model, but got one that changes 'norm.running_mean': leave out training=True
refuse(lambda: sparse_opt.torch.export_function(validate, model, batch(6), training=True))
# CHECK: expected a function that returns tensors, but got float: return tensors
refuse(lambda: sparse_opt.torch.export_function(lambda m, b: 1.0, model, batch(6)))
# CHECK: expected a module as the model, but got a dict: export_function(function, model, batch)
refuse(lambda: sparse_opt.torch.export_function(validate, {}, batch(6)))
# CHECK: expected a function, but got a int: export_function(function, model, batch)
refuse(lambda: sparse_opt.torch.export_function(3, model, batch(6)))
# CHECK: expected a model with parameters, but got one without any
refuse(lambda: sparse_opt.torch.export_function(validate, nn.Tanh(), batch(6)))
# CHECK: expected a batch with tensors, but got one without any
refuse(lambda: sparse_opt.torch.export_function(validate, model, {"n": 3}))
# CHECK: expected 'batch.ids' of shape [6, 5], but got [5, 5]: a compiled step has one shape, export the step again for another
refuse(lambda: validated(batch(5)))
# CHECK: expected indices from 0 to 10 in 'batch', but got 11
refuse(lambda: generated(torch.full((1, 5), 11)))
# CHECK: expected 'head.weight' of 11x16 f32, as the source has it, but got 'head.weight' of 12x16 f32
other = Classifier()
other.head = nn.Linear(16, 12, bias=False)
refuse(lambda: step.bind(sparse_opt.torch.export_function(next_token, other, batch(1)["ids"])))
