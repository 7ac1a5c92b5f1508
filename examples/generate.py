# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Generates the exported training steps of this folder.

"""Exports the training steps of BERT, GPT-2 and LLaMA of this folder with JAX.

    python3 examples/generate.py [--output-dir DIR] [--accumulate] [--batch B] [--tokens T]
        [--clip NORM] [--layers N] [SIZE]...

writes `bert_<SIZE>.mlir.gz`, or `<SIZE>.mlir.gz` of GPT-2 and LLaMA, for each size, by default all
but `large` and `4.9b`, the same bytes every time. Needs `jax` and `optax`, and `python/` on the module path.

The model is BERT with learned positions and a masked-language-model head that
sees the masked positions only. Its step has the form

    step(state, batch, lr) -> (state, loss)

    state = {params, opt}                  parameters; AdamW's count and moments
    batch = {ids       [B, T] int32,       tokens, some of them masked
             positions [B, P] int32,       which positions to predict
             labels    [B, P] int32,       the tokens that belong there
             weights   [B, P] float32}     1, or 0 for a prediction that pads
    lr    = float32                        the learning rate of this step

The loss is the weighted mean cross-entropy before the update, in nats.

`base-all` predicts at every position: its batch has no positions, and labels and
weights for all tokens. `base-encoder` is the encoder alone, between
activations and a mean squared error: batch = {x, target [B, T, H] float32}.
`base-bf16` and `tiny-bf16` multiply matrices in bfloat16, as mixed precision does;
parameters, moments, normalisation and the loss are float32. `gpt2`, `gpt2-bf16` and
`gpt2-tiny-bf16` are GPT-2, with 124 million parameters and small: each layer normalises
what it reads, attention is causal, the token behind each position is predicted, and
there is no head but the embedding. Their batch is that of `base-all`. With --tokens, sequences
are as long, and predictions as many more or fewer. With --clip, gradients are clipped to
a global norm of NORM in front of AdamW, in `bert_<SIZE>_clipped.mlir.gz`. With --layers,
there are N layers.

`llama_9m`, `llama_20m` and `llama_60m` are LLaMA (Touvron et al. 2023) in the sizes that GaLore
(Zhao et al. 2024) and papers of sparse training compare with: RMSNorm, rotary positions, SwiGLU,
no biases, a head of its own, 32,000 tokens, sequences of 256, and Adam with an epsilon of 1e-8.
`llama_tiny` is small. Their batch is {ids, labels [B, T] int32}: a label is the token behind, and
the loss the mean over all of them.

With --accumulate the step is that of a micro-batch, of B sequences:

    step(state, batch, lr, apply) -> (state, loss)

    state = {params, opt, sum, count}      and the sum of `count` gradients
    apply = bool                           false: add this gradient to the sum;
                                           true: and update by the mean, and
                                           begin the sum again

and `bert_<SIZE>_accumulate.mlir.gz` is what `sparse-train --set accumulate=N` runs N
times for a step.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt.jax

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Config:
    """The shape of a model and of its batches."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    batch: int
    tokens: int
    predictions: int
    head: str = "masked"
    # The type that matrices are multiplied in, if it is another.
    matmul: Any = None
    # The norm that all gradients together are clipped to.
    clip: float | None = None
    # Of LLaMA, and of no other model: the width of the gated feed-forward layers.
    gated: int | None = None


BASE = Config(12, 768, 12, 30522, 8, 128, 20)
CONFIGS = {
    "tiny": Config(2, 128, 2, 1024, 4, 64, 12),
    "tiny-bf16": Config(2, 128, 2, 1024, 4, 64, 12, matmul=jnp.bfloat16),
    "mini": Config(4, 256, 4, 1024, 8, 128, 20),
    "base": BASE,
    # Those that benchmarks/steps.py compares as well.
    "base-all": dataclasses.replace(BASE, predictions=128, head="all"),
    "base-encoder": dataclasses.replace(BASE, head="none"),
    "base-bf16": dataclasses.replace(BASE, matmul=jnp.bfloat16),
    "gpt2-bf16": Config(12, 768, 12, 50304, 8, 128, 128, "next", jnp.bfloat16),
    "gpt2-tiny-bf16": Config(1, 64, 2, 500, 2, 32, 32, "next", jnp.bfloat16),
    "llama_tiny": Config(2, 64, 2, 400, 4, 32, 32, "next", gated=96),
    "llama_9m": Config(4, 128, 4, 32000, 8, 256, 256, "next", gated=352),
    "llama_20m": Config(4, 256, 4, 32000, 8, 256, 256, "next", gated=688),
    "llama_60m": Config(8, 512, 8, 32000, 8, 256, 256, "next", gated=1376),
    # The sizes of docs/science.md: many runs in little time.
    "w32": Config(2, 32, 1, 512, 16, 32, 5),
    "w64": Config(2, 64, 2, 512, 16, 32, 5),
    "w128": Config(2, 128, 4, 512, 16, 32, 5),
}
# Written when they are named: those of benchmarks/steps.py, and those of docs/partition.md, too large for one machine.
SCALED = {
    "gpt2": Config(12, 768, 12, 50304, 8, 128, 128, "next"),
    "gpt2-tiny": Config(1, 64, 2, 500, 2, 32, 32, "next"),
    "large": Config(24, 1024, 16, 30522, 8, 128, 20),
    # BERT-Large four times as deep and twice as wide: 4.9 billion parameters.
    "4.9b": Config(96, 2048, 32, 30522, 8, 128, 20),
}

INITS = {
    r"^state\.params\..*(_w|embedding)$": "normal(0.02)",
    r"^state\.params\..*_gain$": "ones",
    "^state": "zeros",
}


def parameter_shapes(config: Config) -> Params:
    """Returns the parameters as shapes; all are float32."""
    h, v = config.hidden, config.vocabulary

    def f32(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    if config.gated:
        gated = {"gate_w": f32(h, config.gated), "up_w": f32(h, config.gated)}
        attention = {f"{name}_w": f32(h, h) for name in ("query", "key", "value", "out")}
        layer = attention | gated | {"down_w": f32(config.gated, h)}
        layer |= {"attention_gain": f32(h), "ffn_gain": f32(h)}
        return {
            "token_embedding": f32(v, h),
            "layers": [layer] * config.layers,
            "final_gain": f32(h),
            "head_w": f32(h, v),
        }
    layer = {
        "qkv_w": f32(h, 3 * h),
        "qkv_b": f32(3 * h),
        "out_w": f32(h, h),
        "out_b": f32(h),
        "attention_gain": f32(h),
        "attention_bias": f32(h),
        "ffn1_w": f32(h, 4 * h),
        "ffn1_b": f32(4 * h),
        "ffn2_w": f32(4 * h, h),
        "ffn2_b": f32(h),
        "ffn_gain": f32(h),
        "ffn_bias": f32(h),
    }
    if config.head == "none":
        return {"layers": [layer] * config.layers}
    if config.head == "next":
        return {
            "token_embedding": f32(v, h),
            "position_embedding": f32(config.tokens, h),
            "layers": [layer] * config.layers,
            "final_gain": f32(h),
            "final_bias": f32(h),
        }
    return {
        "token_embedding": f32(v, h),
        "position_embedding": f32(config.tokens, h),
        "embedding_gain": f32(h),
        "embedding_bias": f32(h),
        "layers": [layer] * config.layers,
        "head_w": f32(h, h),
        "head_b": f32(h),
        "head_gain": f32(h),
        "head_bias": f32(h),
        "output_bias": f32(v),
    }


def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-12) * gain + bias


def product(formula: str, a: jax.Array, b: jax.Array, config: Config) -> jax.Array:
    """Returns the product of two arrays, taken in the type for products."""
    if config.matmul is None:
        return jnp.einsum(formula, a, b)
    result = jnp.einsum(formula, a.astype(config.matmul), b.astype(config.matmul))
    return result.astype(a.dtype)


def linear(x: jax.Array, p: Params, name: str, config: Config) -> jax.Array:
    return product("bti,io->bto", x, p[f"{name}_w"], config) + p[f"{name}_b"]


def rms_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def rotate(x: jax.Array) -> jax.Array:
    """Returns queries or keys `[B, heads, T, size]` turned by their positions.

    Features i and i + size / 2 are a pair, turned by t * 10000^(-2 i / size)
    (Su et al. 2021, in the order of features that LLaMA has in transformers).
    """
    tokens, half = x.shape[2], x.shape[3] // 2
    angles = jnp.outer(jnp.arange(tokens), 10000.0 ** (-np.arange(half) / half))
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(x: jax.Array, p: Params, config: Config) -> jax.Array:
    batch, tokens, hidden = x.shape

    def split_heads(t: jax.Array) -> jax.Array:
        return t.reshape(batch, tokens, config.heads, -1).transpose(0, 2, 1, 3)

    if config.gated:
        names = ("query_w", "key_w", "value_w")
        products = [product("bti,io->bto", x, p[name], config) for name in names]
        q, k, v = map(split_heads, products)
        q, k = rotate(q), rotate(k)
    else:
        qkv = linear(x, p, "qkv", config)
        q, k, v = map(split_heads, jnp.split(qkv, 3, axis=-1))
    scores = product("bhqd,bhkd->bhqk", q, k, config)
    scores = scores * (hidden // config.heads) ** -0.5
    if config.head == "next":
        scores = jnp.where(jnp.tri(tokens, dtype=bool), scores, -jnp.inf)
    mixed = product("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v, config)
    mixed = mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, hidden)
    if config.gated:
        return product("bti,io->bto", mixed, p["out_w"], config)
    return linear(mixed, p, "out", config)


def feed_forward(x: jax.Array, p: Params, config: Config) -> jax.Array:
    x = jax.nn.gelu(linear(x, p, "ffn1", config), approximate=True)
    return linear(x, p, "ffn2", config)


def gated_feed_forward(x: jax.Array, p: Params, config: Config) -> jax.Array:
    gate = jax.nn.silu(product("bti,io->bto", x, p["gate_w"], config))
    x = gate * product("bti,io->bto", x, p["up_w"], config)
    return product("bti,io->bto", x, p["down_w"], config)


def decode_llama(x: jax.Array, params: Params, config: Config) -> jax.Array:
    for i, p in enumerate(params["layers"]):
        with jax.named_scope(f"layers.{i}"):
            with jax.named_scope("attention"):
                x = x + attention(rms_norm(x, p["attention_gain"]), p, config)
            with jax.named_scope("ffn"):
                x = x + gated_feed_forward(rms_norm(x, p["ffn_gain"]), p, config)
    return rms_norm(x, params["final_gain"])


def decode(x: jax.Array, params: Params, config: Config) -> jax.Array:
    for i, p in enumerate(params["layers"]):
        with jax.named_scope(f"layers.{i}"):
            with jax.named_scope("attention"):
                normed = layer_norm(x, p["attention_gain"], p["attention_bias"])
                x = x + attention(normed, p, config)
            with jax.named_scope("ffn"):
                normed = layer_norm(x, p["ffn_gain"], p["ffn_bias"])
                x = x + feed_forward(normed, p, config)
    return layer_norm(x, params["final_gain"], params["final_bias"])


def encode(x: jax.Array, params: Params, config: Config) -> jax.Array:
    for i, p in enumerate(params["layers"]):
        with jax.named_scope(f"layers.{i}"):
            with jax.named_scope("attention"):
                x = x + attention(x, p, config)
                x = layer_norm(x, p["attention_gain"], p["attention_bias"])
            with jax.named_scope("ffn"):
                x = x + feed_forward(x, p, config)
                x = layer_norm(x, p["ffn_gain"], p["ffn_bias"])
    return x


def loss(params: Params, batch: Params, config: Config) -> jax.Array:
    """Returns the mean cross-entropy of the predictions, in nats."""
    if config.head == "none":
        return ((encode(batch["x"], params, config) - batch["target"]) ** 2).mean()
    if config.gated:
        with jax.named_scope("embedding"):
            x = params["token_embedding"][batch["ids"]]
        x = decode_llama(x, params, config)
        with jax.named_scope("head"):
            logits = product("bth,hv->btv", x, params["head_w"], config)
        with jax.named_scope("loss"):
            log_p = jax.nn.log_softmax(logits)
            return -jnp.take_along_axis(log_p, batch["labels"][..., None], axis=-1).mean()
    with jax.named_scope("embedding"):
        x = params["token_embedding"][batch["ids"]] + params["position_embedding"]
        if config.head != "next":
            x = layer_norm(x, params["embedding_gain"], params["embedding_bias"])
    x = (decode if config.head == "next" else encode)(x, params, config)
    with jax.named_scope("head"):
        if config.head == "masked":
            rows = jnp.arange(config.batch)[:, None]
            x = x[rows, batch["positions"]]
        if config.head != "next":
            x = jax.nn.gelu(linear(x, params, "head", config), approximate=True)
            x = layer_norm(x, params["head_gain"], params["head_bias"])
        logits = product("bth,vh->btv", x, params["token_embedding"], config)
        if config.head != "next":
            logits = logits + params["output_bias"]
    with jax.named_scope("loss"):
        log_p = jax.nn.log_softmax(logits)
        picked = jnp.take_along_axis(log_p, batch["labels"][..., None], axis=-1)[..., 0]
        weights = batch["weights"]
        return -(picked * weights).sum() / jnp.maximum(weights.sum(), 1.0)


def optimizer(lr: float | jax.Array, config: Config) -> optax.GradientTransformation:
    """Returns AdamW as the model was trained with.

    BERT's and GPT-2's decays all but biases and norms, and its epsilon keeps the
    biases of the keys still: their gradient is zero but for rounding, which a
    smaller epsilon would blow up to full steps. LLaMA's is Adam, as GaLore's
    scripts have it: no decay. With `config.clip`, it reads gradients that are
    scaled to that global norm at most.
    """
    if config.gated:
        adamw = optax.adam(lr)
    else:
        adamw = optax.adamw(
            lr,
            eps=1e-6,
            weight_decay=0.01,
            mask=lambda params: jax.tree.map(lambda p: p.ndim > 1, params),
        )
    return optax.chain(optax.clip_by_global_norm(config.clip), adamw) if config.clip else adamw


def make_step(config: Config):
    """Returns the training step of a model."""

    @jax.jit
    def step(state: Params, batch: Params, lr: jax.Array) -> tuple[Params, jax.Array]:
        params = state["params"]
        value, gradient = jax.value_and_grad(loss)(params, batch, config)
        with jax.named_scope("adamw"):
            updates, opt = optimizer(lr, config).update(gradient, state["opt"], params)
            params = optax.apply_updates(params, updates)
        return {"params": params, "opt": opt}, value

    return step


def step_arguments(config: Config) -> tuple[Params, Params, jax.ShapeDtypeStruct]:
    """Returns the arguments of the step of a model, as shapes."""
    params = parameter_shapes(config)
    state = {"params": params, "opt": jax.eval_shape(optimizer(0.0, config).init, params)}

    def shape(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    b, t, p = config.batch, config.tokens, config.predictions
    if config.head == "none":
        x = shape(jnp.float32, b, t, config.hidden)
        return state, {"x": x, "target": x}, shape(jnp.float32)
    batch = {
        "ids": shape(jnp.int32, b, t),
        "positions": shape(jnp.int32, b, p),
        "labels": shape(jnp.int32, b, p),
        "weights": shape(jnp.float32, b, p),
    }
    if config.head in ("all", "next"):
        del batch["positions"]
    if config.gated:
        del batch["weights"]
    return state, batch, shape(jnp.float32)


def make_accumulating_step(config: Config):
    """Returns the step of a micro-batch of a model."""

    @jax.jit
    def step(
        state: Params, batch: Params, lr: jax.Array, apply: jax.Array
    ) -> tuple[Params, jax.Array]:
        params = state["params"]
        value, gradient = jax.value_and_grad(loss)(params, batch, config)
        with jax.named_scope("accumulate"):
            count = state["count"] + 1
            total = jax.tree.map(jnp.add, state["sum"], gradient)
            mean = jax.tree.map(lambda t: t / count, total)
        with jax.named_scope("adamw"):
            updates, opt = optimizer(lr, config).update(mean, state["opt"], params)
            updated = {
                "params": optax.apply_updates(params, updates),
                "opt": opt,
                "sum": jax.tree.map(jnp.zeros_like, total),
                "count": jnp.zeros_like(count),
            }
            waiting = {**state, "sum": total, "count": count}
            state = jax.tree.map(
                lambda new, old: jnp.where(apply, new, old), updated, waiting
            )
        return state, value

    return step


def export(config: Config, accumulate: bool = False) -> str:
    """Returns the exported step of a model."""
    state, batch, lr = step_arguments(config)
    if not accumulate:
        return sparse_opt.jax.export(
            make_step(config), state, batch, lr, inits=INITS, locations="scopes"
        )
    state |= {"sum": state["params"], "count": jax.ShapeDtypeStruct((), jnp.float32)}
    return sparse_opt.jax.export(
        make_accumulating_step(config),
        state,
        batch,
        lr,
        jax.ShapeDtypeStruct((), jnp.bool_),
        inits=INITS,
        locations="scopes",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Exports the training steps.")
    parser.add_argument("sizes", nargs="*", metavar="size", help=", ".join(CONFIGS | SCALED))
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent)
    parser.add_argument("--accumulate", action="store_true")
    parser.add_argument("--batch", type=int, metavar="B")
    parser.add_argument("--tokens", type=int, metavar="T")
    parser.add_argument("--clip", type=float, metavar="NORM")
    parser.add_argument("--layers", type=int, metavar="N")
    options = parser.parse_args()
    for size in options.sizes or CONFIGS:
        if size not in CONFIGS | SCALED:
            names = ", ".join(CONFIGS | SCALED)
            parser.error(f"expected a size of {names}, but got '{size}'")
        config = (CONFIGS | SCALED)[size]
        if options.batch:
            config = dataclasses.replace(config, batch=options.batch)
        if options.tokens:
            predictions = max(1, config.predictions * options.tokens // config.tokens)
            config = dataclasses.replace(config, tokens=options.tokens, predictions=predictions)
        if options.clip:
            config = dataclasses.replace(config, clip=options.clip)
        if options.layers:
            config = dataclasses.replace(config, layers=options.layers)
        text = export(config, options.accumulate)
        suffix = ("_accumulate" if options.accumulate else "") + ("_clipped" if options.clip else "")
        model = size if size.startswith(("gpt2", "llama")) else f"bert_{size}"
        path = options.output_dir / f"{model}{suffix}.mlir.gz"
        path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
        print(f"{path}: {len(text)} characters, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
