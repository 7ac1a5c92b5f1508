# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares compiled steps of models that need more than one operation's lowering.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart\ by

"""Masks of transformers, LSTMs, bytes, top-k, containers, normal numbers."""

from collections import UserDict

import torch
from torch import nn

import sparse_opt.torch
from twins import compare, mse_step, sgd

torch.manual_seed(1)
data = [torch.randn(4, 8) for _ in range(3)]
sequences = [torch.randn(2, 5, 8) for _ in range(2)]


class Causal(nn.Module):
    """A mask that is a buffer, as nn.Transformer's own."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        decoder = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(decoder, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        self.register_buffer("mask", mask)

    def forward(self, x):
        memory = self.encoder(x, mask=self.mask)
        return self.decoder(x, memory, tgt_mask=self.mask)


# CHECK: masks: equal
compare("masks", Causal, sequences)


class Recurrent(nn.Module):
    """An LSTM whose input needs no gradient."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0][-1])


# CHECK: LSTM: equal
compare("LSTM", Recurrent, sequences)


class Pixels(nn.Linear):
    def forward(self, x):
        return super().forward(x.float() / 255)


# CHECK: bytes: equal
images = [torch.randint(0, 256, (4, 8), dtype=torch.uint8) for _ in range(2)]
images[0][0, 0] = 255
compare("bytes", lambda: Pixels(8, 8), images)


class Experts(nn.Module):
    """Each line goes to two of four."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        weights, places = torch.topk(self.gate(x), 2)
        shares = torch.zeros(4, 4).scatter(1, places, weights.softmax(-1))
        routed = nn.functional.one_hot(places, 4).sum(1)
        outputs = [
            shares[:, i : i + 1] * e(x) * routed[:, i : i + 1]
            for i, e in enumerate(self.experts)
        ]
        return sum(outputs) + weights.sum()


# CHECK: experts: equal
compare("experts", Experts, data)


class Indexed(nn.Module):
    """Takes matrices out of stacks, from the end too."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(3, 8, 8) / 3)
        self.last = nn.Parameter(torch.randn(8, 8, 3) / 3)

    def forward(self, x):
        return x @ self.first[0] @ self.first[-1] @ self.last[..., 1] @ self.last[..., -3]


# CHECK: indexed: equal
compare("indexed", Indexed, data)


class Sorted(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        up, places = y.sort(-1)
        down, _ = y.sort(dim=0, descending=True, stable=True)
        least, _ = y.topk(3, 0, largest=False)
        return up * torch.arange(8) + down * places + least.sum()


# CHECK: sorted: equal
compare("sorted", lambda: Sorted(8, 8), data)


class Ordered(nn.Module):
    """Equal and special values, as integers too."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        first, places = x.sort(dim=-1, descending=True, stable=True)
        whole, _ = x.nan_to_num(0, 9, -9).long().sort(dim=-1, stable=True)
        return self.w.sum() * (places + whole + first.isnan() + first.isposinf())


# CHECK: special values: equal
special = [float("nan"), 1.0, -float("inf"), 1.0, float("inf"), 0.0]
compare("special values", Ordered, [torch.tensor([special, special[::-1]])])

# Containers: what a tokenizer returns, a list for a tuple, another order.


class Encoding(UserDict):
    def __getattr__(self, name):
        if name == "data":
            raise AttributeError
        return self.data[name]


def encoded_step(model, optimizer, batch):
    return mse_step(model, optimizer, batch.x - batch.y)


def pair_step(model, optimizer, batch):
    return mse_step(model, optimizer, batch[0] - batch[1])


# CHECK: encoding: equal
# CHECK: pair: equal
# CHECK-NEXT: True
batches = [Encoding({"x": x, "y": x * x}) for x in data]
step = compare("encoding", lambda: nn.Linear(8, 8), batches, step=encoded_step)
x, y = data[0], data[0] ** 2
again = step({"y": y, "x": x})
twin = compare("pair", lambda: nn.Linear(8, 8), [(x, x * x) for x in data], step=pair_step)
print(bool(again == twin([x, y])))

# Normal numbers: their moments, and that no two draws are alike.


class Noise(nn.Linear):
    def forward(self, x):
        draws = torch.randn_like(x), torch.randn(x.shape), x.clone().normal_(3.0, 2.0)
        self.noise = torch.stack(draws)
        return super().forward(x)


def noise_step(model, optimizer, batch):
    return mse_step(model, optimizer, batch), model.noise


model = Noise(100, 2)
batch = torch.zeros(100, 100)
exported = sparse_opt.torch.export(noise_step, model, sgd(model.parameters()), batch)
step = sparse_opt.compile(exported, options=["-O", "1"])
_, noise = step(batch)
_, other = step(batch)
noise = noise.double()
noise[2] = (noise[2] - 3) / 2

# Four standard deviations of each estimate of 10,000 numbers.

# CHECK: mean True, variance True, skewness True, kurtosis True, tails True
bounds = {"mean": (1, 0, 1), "variance": (2, 1, 2), "skewness": (3, 0, 15), "kurtosis": (4, 3, 96)}
for name, (power, moment, variance) in bounds.items():
    estimates = (noise**power).mean((1, 2))
    near = ((estimates - moment).abs() < 4 * (variance / 1e4) ** 0.5).all()
    print(f"{name} {bool(near)}", end=", ")
print("tails", bool(((noise.abs() > 2).double().mean((1, 2)) - 0.0455).abs().max() < 0.009))

# CHECK: independent True, other steps' True
flat = torch.cat([noise.flatten(1), noise[:1].flatten(1).roll(1), other[:1].double().flatten(1)])
together = torch.corrcoef(flat) - torch.eye(5)
squares = torch.corrcoef(flat**2) - torch.eye(5)
print("independent", float(max(together.abs().max(), squares.abs().max())) < 0.05, end=", ")
print("other steps'", not torch.equal(noise[0].float(), other[0]))
