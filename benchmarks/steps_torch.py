# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The step of examples/generate.py as a user of PyTorch would write it."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, model):
        super().__init__()
        h = model.hidden
        self.heads, self.isCausal = model.heads, model.head == "next"
        self.mask = None
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.ffn1, self.ffn2 = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
        self.attention_norm, self.ffn_norm = nn.LayerNorm(h, 1e-12), nn.LayerNorm(h, 1e-12)

    def attention(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, self.mask, is_causal=self.isCausal and self.mask is None)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))

    def feed_forward(self, x):
        return self.ffn2(F.gelu(self.ffn1(x), approximate="tanh"))

    def forward(self, x):
        if self.isCausal:
            x = x + self.attention(self.attention_norm(x))
            return x + self.feed_forward(self.ffn_norm(x))
        x = self.attention_norm(x + self.attention(x))
        return self.ffn_norm(x + self.feed_forward(x))


def initialize(module):
    for name, parameter in module.named_parameters():
        if parameter.ndim == 2 and name != "positions":
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class Encoder(nn.Module):
    """The layers alone, between activations and a mean squared error."""

    def __init__(self, model):
        super().__init__()
        self.layers = nn.ModuleList(Layer(model) for _ in range(model.layers))
        initialize(self)

    def forward(self, x, target):
        for layer in self.layers:
            x = layer(x)
        return F.mse_loss(x.float(), target)


class Bert(nn.Module):
    def __init__(self, model):
        super().__init__()
        h = model.hidden
        self.embedding = nn.Embedding(model.vocabulary, h)
        self.positions = nn.Parameter(torch.zeros(model.tokens, h))
        self.embedding_norm, self.head_norm = nn.LayerNorm(h, 1e-12), nn.LayerNorm(h, 1e-12)
        self.layers = nn.ModuleList(Layer(model) for _ in range(model.layers))
        self.head = nn.Linear(h, h)
        self.output_bias = nn.Parameter(torch.zeros(model.vocabulary))
        initialize(self)

    def forward(self, ids, labels, weights, positions=None):
        x = self.embedding_norm(self.embedding(ids) + self.positions)
        for layer in self.layers:
            x = layer(x)
        if positions is not None:
            x = x[torch.arange(len(x))[:, None], positions]
        x = self.head_norm(F.gelu(self.head(x), approximate="tanh"))
        logits = F.linear(x, self.embedding.weight, self.output_bias)
        losses = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none")
        return (losses * weights.flatten()).sum() / weights.sum().clamp(min=1)


class Gpt(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embedding = nn.Embedding(model.vocabulary, model.hidden)
        self.positions = nn.Parameter(torch.zeros(model.tokens, model.hidden))
        self.layers = nn.ModuleList(Layer(model) for _ in range(model.layers))
        self.final_norm = nn.LayerNorm(model.hidden, 1e-12)
        initialize(self)

    def forward(self, ids, labels, weights):
        x = self.embedding(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.final_norm(x), self.embedding.weight)
        losses = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none")
        return (losses * weights.flatten()).sum() / weights.sum().clamp(min=1)


class MaskedLinear(nn.Linear):
    """The layer of papers on sparse training: dense, its weight times a mask in each pass."""

    def __init__(self, inputs, outputs, density):
        super().__init__(inputs, outputs, bias=False)
        self.register_buffer("mask", (torch.rand(outputs, inputs) < density).float())

    def forward(self, x):
        return F.linear(x, self.weight * self.mask)


class LlamaLayer(nn.Module):
    def __init__(self, model, linear):
        super().__init__()
        h, gated = model.hidden, model.gated
        self.heads, self.mask = model.heads, None
        self.query, self.key, self.value, self.out = (linear(h, h) for _ in range(4))
        self.gate, self.up, self.down = linear(h, gated), linear(h, gated), linear(gated, h)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(h, 1e-6), nn.RMSNorm(h, 1e-6)

    def attention(self, x, cos, sin):
        def heads(t):
            return t.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

        def rotate(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        q, k, v = rotate(heads(self.query(x))), rotate(heads(self.key(x))), heads(self.value(x))
        mixed = F.scaled_dot_product_attention(q, k, v, self.mask, is_causal=self.mask is None)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        normed = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, model, masked):
        super().__init__()

        def linear(inputs, outputs):
            return MaskedLinear(inputs, outputs, masked) if masked else nn.Linear(inputs, outputs, bias=False)

        self.embedding = nn.Embedding(model.vocabulary, model.hidden)
        self.layers = nn.ModuleList(LlamaLayer(model, linear) for _ in range(model.layers))
        self.final_norm = nn.RMSNorm(model.hidden, 1e-6)
        self.head = nn.Linear(model.hidden, model.vocabulary, bias=False)
        half = model.hidden // model.heads // 2
        angles = torch.outer(torch.arange(model.tokens), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        initialize(self)

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.final_norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def make_mask(tokens, shape, isCausal):
    """A mask of blocks as docs/attention.md describes marks; which ones are random is this function's."""
    options = {"window": "3", "global": "0", "random": "0", "seed": "0", "block": "64x64"}
    options |= dict(word.split("=") for word in shape.split())
    window, first, others, seed = (int(options[key]) for key in ("window", "global", "random", "seed"))
    size = int(options["block"].split("x")[0])
    count = tokens // size
    behind = torch.arange(count) - torch.arange(count)[:, None]
    blocks = (behind >= -(window // 2)) & (behind <= (window - 1) // 2)
    blocks[:first] = blocks[:, :first] = True
    generator = torch.Generator().manual_seed(seed)
    for row in blocks:
        absent = (~row).nonzero().flatten()
        row[absent[torch.randperm(len(absent), generator=generator)[:others]]] = True
    mask = blocks.repeat_interleave(size, 0).repeat_interleave(size, 1)
    return mask.tril() if isCausal else mask


def make_step(model, batch, rate, threads, name, compile=False, bf16=False, device="cpu", attention=None, masked=None):
    """`masked`: the density of masks, which LLaMA's layers have."""
    if masked and not model.gated:
        raise ImportError("expected a LLaMA for masked layers")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    arguments = {key: torch.tensor(rows, device=device) for key, rows in batch.items()}
    if model.head == "none":
        arguments = {key: rows.view(model.batch, model.tokens, model.hidden) for key, rows in arguments.items()}
    bert = Llama(model, masked) if model.gated else {"none": Encoder, "next": Gpt}.get(model.head, Bert)(model)
    if attention:
        mask = make_mask(model.tokens, attention, model.head == "next").to(device)
        for layer in bert.layers:
            layer.mask = mask
    bert.to(device)
    matrices = [p for p in bert.parameters() if p.ndim > 1]
    vectors = [p for p in bert.parameters() if p.ndim <= 1]
    if model.gated:
        optimizer = torch.optim.Adam(bert.parameters(), lr=rate, fused=True)
    else:
        optimizer = torch.optim.AdamW(
            [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
            lr=rate, eps=1e-6, weight_decay=0.01, fused=True)
    forward = torch.compile(bert) if compile else bert

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = forward(**arguments)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step
