# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# BERT steps as programs of JAX and PyTorch, for measuring what leads from them.

"""Programs that are exported: their exports, their batches, and their own steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

# Width, layers, heads, vocabulary, rows and tokens, as in examples/generate.py.
SIZES = {
    "tiny": (128, 2, 2, 1024, 4, 64),
    "mini": (256, 4, 4, 1024, 8, 128),
    "small": (512, 4, 8, 1024, 8, 128),
    "base": (768, 12, 12, 30522, 8, 128),
}
ACTIVATIONS = ("gelu", "relu")


class Program(NamedTuple):
    """A step of a framework.

    Attributes:
      export: makes its export.
      batch: what a compiled step is called with.
      marks: the names of the matrices of its layers.
      own: makes a function that runs the step in the framework itself.
    """

    export: Callable[[], str]
    batch: tuple[Any, ...]
    marks: str
    own: Callable[[], Callable[[], Any]]


def jax_program(size: str, activation: str = "gelu") -> Program:
    import generate
    import jax
    import jax.numpy as jnp
    import numpy as np

    if activation == "relu":
        # The program reads it from its module.
        jax.nn.gelu = lambda x, approximate: jax.nn.relu(x)
    width, layers, heads, vocabulary, rows, tokens = SIZES[size]
    config = generate.Config(layers, width, heads, vocabulary, rows, tokens, 20 * tokens // 128)
    state, shapes, _ = generate.step_arguments(config)
    random = np.random.default_rng(0)
    most = {"ids": vocabulary, "labels": vocabulary, "positions": tokens, "weights": 2}
    batch = {
        name: random.integers(0, most[name], shape.shape).astype(shape.dtype)
        for name, shape in shapes.items()
    }

    def own() -> Callable[[], Any]:
        def first(path: Any, shape: Any) -> Any:
            name = path[-1].key if hasattr(path[-1], "key") else ""
            if any(getattr(key, "key", "") == "params" for key in path):
                if name.endswith(("_w", "embedding")):
                    return jnp.asarray(random.normal(0, 0.02, shape.shape), shape.dtype)
                return jnp.full(shape.shape, name.endswith("_gain"), shape.dtype)
            return jnp.zeros(shape.shape, shape.dtype)

        held = [jax.tree_util.tree_map_with_path(first, state)]
        step = generate.make_step(config)
        compiled = jax.jit(step.__wrapped__, donate_argnums=0)

        def run() -> None:
            held[0], _ = compiled(held[0], batch, jnp.float32(1e-4))
            jax.block_until_ready(held)

        return run

    return Program(lambda: generate.export(config), (batch, 1e-4), "_w$", own)


def torch_program(size: str, activation: str = "gelu") -> Program:
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
        hidden_act=activation,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    ids, labels = torch.randint(0, vocabulary, (2, rows, tokens), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    def make() -> Any:
        torch.manual_seed(0)
        model = transformers.BertForMaskedLM(config)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-4)

    model, optimizer = make()

    def own() -> Callable[[], Any]:
        other, its_optimizer = make()
        return lambda: train_step(other, its_optimizer, batch)

    return Program(
        lambda: sparse_opt.torch.export(train_step, model, optimizer, batch),
        (batch,),
        r"layer.*(query|key|value|dense)\.weight$",
        own,
    )


PROGRAMS = {"jax": jax_program, "torch": torch_program}
