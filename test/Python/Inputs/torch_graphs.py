# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# PyTorch models and optimizers whose steps the table of graphs compares.

"""Small models of every common kind, and the same steps with masks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn, optim
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import sparse_opt.torch
from twins import twin

VOCABULARY = 64


class Lion(optim.Optimizer):
    """Lion (Chen et al. 2023), as its authors give it."""

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.01):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m, rate = state["m"], group["lr"]
                p.mul_(1 - rate * group["weight_decay"])
                p.add_((0.9 * m + 0.1 * p.grad).sign(), alpha=-rate)
                m.mul_(0.99).add_(p.grad, alpha=0.01)


class LAMB(optim.Optimizer):
    """LAMB (You et al. 2020), with the norms of whole weights."""

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.01):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                update = state["m"] / (state["v"].sqrt() + 1e-6)
                update = update + group["weight_decay"] * p
                size, change = p.norm(), update.norm()
                ratio = torch.where((size > 0) & (change > 0), size / change, 1.0)
                p.sub_(group["lr"] * ratio * update)


OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "AdamW": lambda p: optim.AdamW(p, lr=1e-3),
    "SGD": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
    "LAMB": lambda p: LAMB(p, lr=1e-3),
    "Adafactor": lambda p: optim.Adafactor(p, lr=1e-2),
    "Lion": lambda p: Lion(p, lr=1e-4),
}


def bert() -> tuple[nn.Module, Any, str]:
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    ids = torch.randint(0, VOCABULARY, (2, 16))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    return model, batch, r"layer\..*(query|key|value|dense).weight$"


def gpt2() -> tuple[nn.Module, Any, str]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=16,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    ids = torch.randint(0, VOCABULARY, (2, 16))
    return model, {"input_ids": ids, "labels": ids}, r"h\..*c_(attn|proj|fc).weight$"


def t5() -> tuple[nn.Module, Any, str]:
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=1,
            num_heads=2,
            dropout_rate=0.0,
            use_cache=False,
            pad_token_id=0,
            decoder_start_token_id=0,
        )
    )
    ids = torch.randint(1, VOCABULARY, (2, 16))
    return model, {"input_ids": ids, "labels": ids}, r"block\..*\.(q|k|v|o|wi|wo).weight$"


class ViT(nn.Module):
    """Patches by a convolution, a transformer of PyTorch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.positions = nn.Parameter(torch.randn(16, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(
            32, 2, 64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, pixels: Any, labels: Any) -> Any:
        x = self.patches(pixels).flatten(2).transpose(1, 2) + self.positions
        return nn.functional.cross_entropy(self.head(self.encoder(x).mean(1)), labels)


def vit() -> tuple[nn.Module, Any, str]:
    batch = {"pixels": torch.randn(2, 3, 16, 16), "labels": torch.randint(0, 10, (2,))}
    return ViT(), batch, r"(linear[12]|in_proj|out_proj)[._]weight$"


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.rnn = cell(32, 32, batch_first=True)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, ids: Any, labels: Any) -> Any:
        hidden, _ = self.rnn(self.embedding(ids))
        scores = self.head(hidden)
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def recurrent(cell: type[nn.Module]) -> tuple[nn.Module, Any, str]:
    ids = torch.randint(0, VOCABULARY, (4, 8))
    return Recurrent(cell), {"ids": ids, "labels": ids}, r"rnn\.weight_"


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32)
        )

    def forward(self, x: Any, y: Any) -> Any:
        return ((self.layers(x) - y) ** 2).mean()


def mlp() -> tuple[nn.Module, Any, str]:
    batch = {"x": torch.randn(16, 32), "y": torch.randn(16, 32)}
    return MLP(), batch, r"layers\.(0|3)\.weight$"


class Checkpointed(MLP):
    """An MLP whose layers are computed again in the backward pass."""

    def forward(self, x: Any, y: Any) -> Any:
        z = checkpoint(self.layers, x, use_reentrant=False)
        return ((z - y) ** 2).mean()


def checkpointed() -> tuple[nn.Module, Any, str]:
    _, batch, match = mlp()
    return Checkpointed(), batch, match


class Heads(nn.Module):
    """Attention by einsum, with a dimension for heads in its weights."""

    def __init__(self) -> None:
        super().__init__()
        for name in "qkv":
            setattr(self, name, nn.Parameter(torch.randn(32, 2, 16) * 0.1))
        self.o = nn.Parameter(torch.randn(2, 16, 32) * 0.1)

    def forward(self, x: Any, y: Any) -> Any:
        q, k, v = (torch.einsum("bte,ehd->bthd", x, getattr(self, n)) for n in "qkv")
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores, v)
        # Summed dimensions in the order of the alphabet stay in place.
        return ((torch.einsum("bths,hse->bte", mixed, self.o) - y) ** 2).mean()


def heads() -> tuple[nn.Module, Any, str]:
    batch = {"x": torch.randn(2, 8, 32), "y": torch.randn(2, 8, 32)}
    return Heads(), batch, r"^[qkv]$ dims=row,col,col"


class Translation(nn.Module):
    """Two layers that read another sequence: of `in_proj_weight` there they take slices."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        layer = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        read = self.decoder(self.embed(target[:, :-1]), self.embed(source))
        return nn.functional.cross_entropy(
            self.head(read).flatten(0, 1), target[:, 1:].flatten()
        )


def decoder() -> tuple[nn.Module, Any, str]:
    tokens = torch.randint(0, VOCABULARY, (4, 25))
    batch = {"source": tokens[:, :16], "target": tokens[:, 16:]}
    return Translation(), batch, r"(_proj\.|_proj_|linear.\.)weight$"


def with_words(
    make: Callable[[], tuple[nn.Module, Any, str]], table: str
) -> tuple[nn.Module, Any, str]:
    """The model, of which the table of words is marked as well."""
    model, batch, match = make()
    return model, batch, rf"({match}|{table}\.weight$)"


MODELS: dict[str, Callable[[], tuple[nn.Module, Any, str]]] = {
    "BERT": bert,
    "BERT, words": lambda: with_words(bert, "word_embeddings"),
    "GPT-2": gpt2,
    "T5": t5,
    "T5, words": lambda: with_words(t5, "shared"),
    "ViT": vit,
    "LSTM": lambda: recurrent(nn.LSTM),
    "GRU": lambda: recurrent(nn.GRU),
    "decoder": decoder,
    "decoder, words": lambda: with_words(decoder, "embed"),
    "MLP": mlp,
    "heads": heads,
    "checkpoint": checkpointed,
}


def train_step(model: nn.Module, optimizer: optim.Optimizer, batch: Any) -> Any:
    optimizer.zero_grad()
    output = model(**batch)
    loss = output if isinstance(output, torch.Tensor) else output.loss
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def bf16_step(model: nn.Module, optimizer: optim.Optimizer, batch: Any) -> Any:
    """The same with the products in bf16; weights and moments stay f32."""
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(**batch)
        loss = output if isinstance(output, torch.Tensor) else output.loss
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


STEPS = {"f32": train_step, "bf16": bf16_step}


class Masked:
    """PyTorch's own training of `w * mask`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        step: Any,
        masks: Mapping[str, np.ndarray[Any, Any]],
    ) -> None:
        self.model, self.optimizer, self._step = model, optimizer, step
        self.masks = {n: torch.from_numpy(m) for n, m in masks.items()}
        self._params = dict(model.named_parameters())
        for name in self.masks:
            self._params[name].register_hook(
                lambda g, name=name: g * self.masks[name].to(g.dtype)
            )
        self._mask()

    def __call__(self, batch: Any) -> Any:
        loss = self._step(self.model, self.optimizer, batch)
        self._mask()
        return loss

    def update(self, masks: Mapping[str, np.ndarray[Any, Any]], kept: Any) -> None:
        """Takes new masks; what did not stay starts at zero."""
        self.masks = {n: torch.from_numpy(m) for n, m in masks.items()}
        with torch.no_grad():
            for name, mask in kept.items():
                p, stayed = self._params[name], torch.from_numpy(mask)
                p.mul_(stayed)
                for value in self.optimizer.state[p].values():
                    if isinstance(value, torch.Tensor) and value.shape == p.shape:
                        value.mul_(stayed)

    def _mask(self) -> None:
        with torch.no_grad():
            for name, mask in self.masks.items():
                self._params[name].mul_(mask)


class Graph:
    """One case: its exported step, and the framework's own beside it."""

    models = MODELS

    def __init__(self, model: str, optimizer: str, kind: str) -> None:
        torch.manual_seed(0)
        self._model, self._batch, match = self.models[model]()
        # Options of bsr-mark.
        self.marks = (f"match={match}",)
        if model == "heads":
            self.marks += ("match=^o$ dims=row,row,col",)
        self._optimizer = OPTIMIZERS[optimizer](self._model.parameters())
        self._step = STEPS[kind]
        self.text = sparse_opt.torch.export(
            self._step, self._model, self._optimizer, self._batch
        )
        self._model, self._optimizer = twin(self._model, self._optimizer)

    def call(self, step: sparse_opt.Step) -> Any:
        return step(self._batch)

    def begin(self, masks: Any) -> None:
        self._masked = Masked(self._model, self._optimizer, self._step, masks)

    def reference(self) -> Any:
        return self._masked(self._batch)

    def update(self, masks: Any, kept: Any) -> None:
        self._masked.update(masks, kept)

    def params(self) -> Any:
        for name, p in self._model.named_parameters():
            yield name, p.detach().numpy()


class Pruned(Graph):
    """A model under `torch.nn.utils.prune`: its masks are buffers."""

    marks = (r"match=weight_orig$ mask=weight_mask$",)

    def __init__(self, model: str, optimizer: str, kind: str) -> None:
        # PyTorch copies no module that it has pruned.
        self._step = STEPS[kind]
        self._make(model.removeprefix("pruned "), optimizer)
        self.text = sparse_opt.torch.export(
            self._step, self._model, self._optimizer, self._batch
        )
        self._make(model.removeprefix("pruned "), optimizer)

    def _make(self, model: str, optimizer: str) -> None:
        torch.manual_seed(0)
        self._model, self._batch, match = MODELS[model]()
        self._layers = {
            f"{name}.weight_orig": module
            for name, module in self._model.named_modules()
            if re.search(match, f"{name}.weight")
        }
        for module in self._layers.values():
            prune.identity(module, "weight")
        self._optimizer = OPTIMIZERS[optimizer](self._model.parameters())

    def begin(self, masks: Any) -> None:
        with torch.no_grad():
            for name, mask in masks.items():
                self._layers[name].weight_mask.copy_(torch.from_numpy(mask))

    def reference(self) -> Any:
        return self._step(self._model, self._optimizer, self._batch)

    def update(self, masks: Any, kept: Any) -> None:
        """Takes new masks; what did not stay starts at zero."""
        self.begin(masks)
        with torch.no_grad():
            for name, mask in kept.items():
                p, stayed = self._layers[name].weight_orig, torch.from_numpy(mask)
                p.mul_(stayed)
                for value in self._optimizer.state[p].values():
                    if isinstance(value, torch.Tensor) and value.shape == p.shape:
                        value.mul_(stayed)

    def params(self) -> Any:
        """The weights that the model sees."""
        for name, p in super().params():
            mask = self._layers[name].weight_mask.numpy() if name in self._layers else 1
            yield name, p * mask


def graph(model: str, optimizer: str, kind: str) -> Any:
    return (Pruned if model.startswith("pruned ") else Graph)(model, optimizer, kind)


CASES = [
    ("pruned MLP", "AdamW", "f32"),
    ("pruned BERT", "AdamW", "f32"),
    *((m, o, "f32") for m in MODELS for o in ("AdamW", "SGD")),
    *(("BERT", o, "f32") for o in ("LAMB", "Adafactor", "Lion")),
    *(("MLP", o, "f32") for o in ("LAMB", "Adafactor", "Lion")),
    *((m, "AdamW", "bf16") for m in ("BERT", "GPT-2", "MLP", "heads")),
]
