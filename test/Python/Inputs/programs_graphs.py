# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Models of public repositories whose steps the table of programs compares.

"""Models that others wrote, unchanged, in small sizes.

Those of transformers come from the package, the others from checkouts of the
repositories of `programs.txt`, in the folder that `BSR_PROGRAMS` names
(`scripts/programs` makes it).
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

import torch_graphs

VOCABULARY = torch_graphs.VOCABULARY
TOKENS = (2, 16)


def load(repository: str, file: str) -> ModuleType:
    """Imports one file of a checkout under a name of its own."""
    root = pathlib.Path(os.environ["BSR_PROGRAMS"]) / repository
    name = f"{repository}.{file}".replace("/", "_").replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, root / file)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    # Its own imports are of its own folder; what loads data is not needed.
    before = sys.modules.get("requests")
    sys.modules["requests"] = mock.MagicMock()
    try:
        with mock.patch.object(sys, "path", [str(root), *sys.path]):
            spec.loader.exec_module(module)
    finally:
        del sys.modules["requests"]
        if before is not None:
            sys.modules["requests"] = before
    return module


class Loss(nn.Module):
    """A model and its loss, `loss(model, **batch)`, as its repository trains it."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, **batch: Any) -> Any:
        return self.loss(self.model, **batch)


def tokens() -> Any:
    return torch.randint(0, VOCABULARY, TOKENS)


def nano_gpt() -> tuple[nn.Module, Any, str]:
    gpt = load("karpathy/nanoGPT", "model.py")
    model = gpt.GPT(
        gpt.GPTConfig(block_size=16, vocab_size=VOCABULARY, n_layer=2, n_head=2, n_embd=32)
    )
    batch = {"idx": tokens(), "targets": tokens()}
    return Loss(model, lambda m, **b: m(**b)[1]), batch, r"c_(attn|proj|fc)\.weight$"


def min_gpt() -> tuple[nn.Module, Any, str]:
    gpt = load("karpathy/minGPT", "mingpt/model.py").GPT
    config = gpt.get_default_config()
    config.merge_from_dict(
        {"model_type": None, "n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": VOCABULARY}
        | {"block_size": 16, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
    )
    batch = {"idx": tokens(), "targets": tokens()}
    return Loss(gpt(config), lambda m, **b: m(**b)[1]), batch, r"c_(attn|proj|fc)\.weight$"


def llama2_c(match: str) -> tuple[nn.Module, Any, str]:
    llama = load("karpathy/llama2.c", "model.py")
    model = llama.Transformer(
        llama.ModelArgs(
            dim=32, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=VOCABULARY, multiple_of=32,
            max_seq_len=16,
        )
    )  # fmt: skip

    def loss(m: Any, **batch: Any) -> Any:
        m(**batch)
        return m.last_loss

    return Loss(model, loss), {"tokens": tokens(), "targets": tokens()}, match


def mamba() -> tuple[nn.Module, Any, str]:
    module = load("johnma2006/mamba-minimal", "model.py")
    model = module.Mamba(
        module.ModelArgs(d_model=32, n_layer=2, vocab_size=VOCABULARY, d_state=4, dt_rank=8)
    )
    loss = lambda m, ids, labels: functional.cross_entropy(m(ids).flatten(0, 1), labels.flatten())
    batch = {"ids": tokens(), "labels": tokens()}
    return Loss(model, loss), batch, r"(in|x|out)_proj\.weight$"


def vit(name: str) -> tuple[nn.Module, Any, str]:
    files = {"ViT": "vit_pytorch/vit.py", "SimpleViT": "vit_pytorch/simple_vit.py"}
    model = getattr(load("lucidrains/vit-pytorch", files[name]), name)(
        image_size=16, patch_size=4, num_classes=10, dim=32, depth=2, heads=2, mlp_dim=64,
        dim_head=16,
    )  # fmt: skip
    loss = lambda m, pixels, labels: functional.cross_entropy(m(pixels), labels)
    batch = {"pixels": torch.randn(2, 3, 16, 16), "labels": torch.randint(0, 10, (2,))}
    return Loss(model, loss), batch, r"(to_qkv|to_out(\.0)?|net\.[134])\.weight$"


def word_lstm() -> tuple[nn.Module, Any, str]:
    module = load("pytorch/examples", "word_language_model/model.py")
    model = module.RNNModel("LSTM", VOCABULARY, 32, 32, 2, dropout=0.0)

    def loss(m: Any, ids: Any, labels: Any) -> Any:
        scores, _ = m(ids, m.init_hidden(ids.shape[1]))
        return functional.nll_loss(scores, labels.flatten())

    return Loss(model, loss), {"ids": tokens(), "labels": tokens()}, r"rnn\.weight_"


def word_transformer() -> tuple[nn.Module, Any, str]:
    module = load("pytorch/examples", "word_language_model/model.py")
    model = module.TransformerModel(VOCABULARY, 32, 2, 64, 2, dropout=0.0)
    # Its layers keep the default, which it has no argument for.
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0

    def loss(m: Any, ids: Any, labels: Any) -> Any:
        return functional.nll_loss(m(ids).view(-1, VOCABULARY), labels.flatten())

    batch = {"ids": tokens(), "labels": tokens()}
    return Loss(model, loss), batch, r"(linear[12]|in_proj|out_proj)[._]weight$"


def gat() -> tuple[nn.Module, Any, str]:
    module = load("pytorch/examples", "gat/main.py")
    model = module.GAT(32, 16, 4, 8, concat=True, dropout=0.0)
    loss = lambda m, x, edges, labels: functional.nll_loss(m(x, edges), labels)
    edges = ((torch.rand(24, 24) < 0.3) | torch.eye(24, dtype=torch.bool)).float()
    batch = {"x": torch.randn(24, 32), "edges": edges, "labels": torch.randint(0, 8, (24,))}
    return Loss(model, loss), batch, r"W$"


SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
GROUPED = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DECODER = r"layers\..*_proj\.weight$"
ENCODER = r"(query|key|value|dense|dense_act)\.weight$"


def transformers(
    config: str, model: str, match: str, experts: str = "", **sizes: Any
) -> tuple[nn.Module, Any, str]:
    """A model of transformers, by the names of its classes."""
    package = importlib.import_module("transformers")
    made = getattr(package, model)(getattr(package, config)(**sizes))
    made.config.use_cache = False
    if experts:
        made.set_experts_implementation(experts)
    ids = torch.randint(3, VOCABULARY, TOKENS)
    return made, {"input_ids": ids, "labels": ids}, match


MODELS: dict[str, Callable[[], tuple[nn.Module, Any, str]]] = {
    "nanoGPT": nano_gpt,
    "minGPT": min_gpt,
    "llama2.c": lambda: llama2_c(r"layers\..*\.w[qkvo123]\.weight$"),
    "llama2.c, head": lambda: llama2_c(r"(tok_embeddings|output)\.weight$"),
    "mamba-minimal": mamba,
    "vit-pytorch ViT": lambda: vit("ViT"),
    "vit-pytorch SimpleViT": lambda: vit("SimpleViT"),
    "pytorch/examples LSTM": word_lstm,
    "pytorch/examples Transformer": word_transformer,
    "pytorch/examples GAT": gat,
    "LLaMA": lambda: transformers("LlamaConfig", "LlamaForCausalLM", DECODER, **GROUPED),
    "LLaMA, head": lambda: transformers(
        "LlamaConfig", "LlamaForCausalLM", r"lm_head\.weight$", **GROUPED
    ),
    "Mistral": lambda: transformers("MistralConfig", "MistralForCausalLM", DECODER, **GROUPED),
    "Qwen2": lambda: transformers("Qwen2Config", "Qwen2ForCausalLM", DECODER, **GROUPED),
    "Gemma 2": lambda: transformers("Gemma2Config", "Gemma2ForCausalLM", DECODER, **GROUPED),
    "Mixtral": lambda: transformers(
        "MixtralConfig", "MixtralForCausalLM", r"experts\..*_proj$ dims=stack,row,col",
        num_local_experts=4, **GROUPED
    ),
    "Mixtral, experts in batches": lambda: transformers(
        "MixtralConfig", "MixtralForCausalLM", r"self_attn\..*_proj\.weight$", "batched_mm",
        num_local_experts=4, **GROUPED
    ),
    "GPT-NeoX": lambda: transformers(
        "GPTNeoXConfig", "GPTNeoXForCausalLM", r"layers\..*(dense|query)[0-9a-z_]*\.weight$", **SIZES
    ),
    "OPT": lambda: transformers(
        "OPTConfig", "OPTForCausalLM", r"layers\..*(_proj|fc[12])\.weight$", ffn_dim=64,
        word_embed_proj_dim=32, dropout=0.0, **SIZES
    ),
    "RoBERTa": lambda: transformers(
        "RobertaConfig", "RobertaForMaskedLM", rf"layer\..*{ENCODER}",
        **SIZES | STILL | {"max_position_embeddings": 32}
    ),
    "ALBERT": lambda: transformers(
        "AlbertConfig", "AlbertForMaskedLM", r"albert_layers\..*(query|key|value|dense|ffn[0-9a-z_]*)\.weight$",
        embedding_size=32, **SIZES | STILL
    ),
    "DistilBERT": lambda: transformers(
        "DistilBertConfig", "DistilBertForMaskedLM", r"layer\..*lin[0-9a-z_]*\.weight$",
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=2, hidden_dim=64,
        max_position_embeddings=16, dropout=0.0, attention_dropout=0.0, pad_token_id=0,
    ),
    "DeBERTa-v2": lambda: transformers(
        "DebertaV2Config", "DebertaV2ForMaskedLM", r"layer\..*(query_proj|key_proj|value_proj|dense)\.weight$",
        relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, type_vocab_size=0,
        **SIZES | STILL
    ),
    "ModernBERT": lambda: transformers(
        "ModernBertConfig", "ModernBertForMaskedLM", r"layers\..*W[qkvio]+\.weight$",
        cls_token_id=1, sep_token_id=2, attention_dropout=0.0, **SIZES
    ),
    "BART": lambda: transformers(
        "BartConfig", "BartForConditionalGeneration", r"layers\..*(_proj|fc[12])\.weight$",
        vocab_size=VOCABULARY, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_position_embeddings=16, dropout=0.0, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2,
    ),
}  # fmt: skip


class Graph(torch_graphs.Graph):
    models = MODELS


def graph(model: str, optimizer: str, kind: str) -> Any:
    return Graph(model, optimizer, kind)


CASES = [(model, "AdamW", "f32") for model in MODELS]
