# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# BERT steps as programs of JAX and PyTorch, for measuring what leads from them.

"""Programs that are exported: their exports, and a batch for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Width, layers, heads, vocabulary, rows and tokens, as in examples/generate.py.
SIZES = {"mini": (256, 4, 4, 1024, 8, 128), "base": (768, 12, 12, 30522, 8, 128)}


def jax_program(size: str) -> tuple[Callable[[], str], Any]:
    import generate
    import jax
    import numpy as np

    config = generate.CONFIGS[size]
    _, batch, _ = generate.step_arguments(config)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), batch)
    return lambda: generate.export(config), zeros


def torch_program(size: str) -> tuple[Callable[[], str], Any]:
    import torch
    import transformers

    import sparse_opt.torch

    def train_step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    width, layers, heads, vocabulary, rows, tokens = SIZES[size]
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=vocabulary,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.ones(rows, tokens, dtype=torch.int64)
    batch = {"input_ids": ids, "attention_mask": ids, "labels": ids}
    return lambda: sparse_opt.torch.export(train_step, model, optimizer, batch), batch


PROGRAMS = {"jax": jax_program, "torch": torch_program}
