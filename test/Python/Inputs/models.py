# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Training steps of several models and optimizers, for tests of the front end.

"""Small models in plain JAX, trained by optimizers of optax.

    python3 models.py DIR [NAME]...

exports them to `DIR/<name>.mlir`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

import generate
import sparse_opt.jax
from jax_graphs import attention

Step = tuple[Callable[..., Any], tuple[Any, ...]]


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def training_step(
    loss: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    params: Any,
    *batch: Any,
) -> Step:
    """Returns a step of `loss(params, *batch)` and its arguments."""

    @jax.jit
    def step(state: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(state["params"], *batch)
        updates, opt = optimizer.update(gradient, state["opt"], state["params"])
        return {
            "params": optax.apply_updates(state["params"], updates),
            "opt": opt,
        }, value

    state = {"params": params, "opt": jax.eval_shape(optimizer.init, params)}
    return step, (state, *batch)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def gpt() -> Step:
    """A causal transformer, pre-norm, separate q, k and v, momentum."""
    layers, heads, hidden, vocabulary, batch, tokens = 2, 4, 64, 96, 2, 32
    block = {name: f32(hidden, hidden) for name in ("q_w", "k_w", "v_w", "o_w")}
    block |= {"up_w": f32(hidden, 4 * hidden), "down_w": f32(4 * hidden, hidden)}
    block |= {"norm1": f32(hidden), "norm2": f32(hidden)}
    params = {
        "tokens": f32(vocabulary, hidden),
        "positions": f32(tokens, hidden),
        "blocks": [block] * layers,
        "norm": f32(hidden),
    }

    def norm(x: Any, gain: Any) -> Any:
        return jax.nn.standardize(x) * gain

    def attend(x: Any, p: Any) -> Any:
        q, k, v = (
            (x @ p[w]).reshape(batch, tokens, heads, -1) for w in ("q_w", "k_w", "v_w")
        )
        mixed = attention(q, k, v, causal=True)
        return mixed.reshape(batch, tokens, hidden) @ p["o_w"]

    def loss(params: Any, ids: Any, labels: Any) -> Any:
        x = params["tokens"][ids] + params["positions"]
        for i, p in enumerate(params["blocks"]):
            with jax.named_scope(f"blocks.{i}"):
                x = x + attend(norm(x, p["norm1"]), p)
                x = x + jax.nn.gelu(norm(x, p["norm2"]) @ p["up_w"]) @ p["down_w"]
        return cross_entropy(norm(x, params["norm"]) @ params["tokens"].T, labels)

    optimizer = optax.sgd(0.1, momentum=0.9)
    return training_step(
        loss, optimizer, params, i32(batch, tokens), i32(batch, tokens)
    )


def mixer() -> Step:
    """An MLP-Mixer, whose token mixing contracts the middle dimension, AdamW."""
    batch, patches, hidden, wide, classes = 4, 32, 64, 128, 10
    block = {
        "token1_w": f32(patches, wide), "token1_b": f32(wide),
        "token2_w": f32(wide, patches), "token2_b": f32(patches),
        "channel1_w": f32(hidden, wide), "channel1_b": f32(wide),
        "channel2_w": f32(wide, hidden), "channel2_b": f32(hidden),
        "gain1": f32(hidden), "gain2": f32(hidden),
    }  # fmt: skip
    params = {
        "stem_w": f32(48, hidden),
        "blocks": [block] * 2,
        "head_w": f32(hidden, classes),
    }

    def mlp(x: Any, p: Any, name: str) -> Any:
        x = jax.nn.gelu(x @ p[f"{name}1_w"] + p[f"{name}1_b"])
        return x @ p[f"{name}2_w"] + p[f"{name}2_b"]

    def loss(params: Any, pixels: Any, labels: Any) -> Any:
        x = pixels @ params["stem_w"]
        for p in params["blocks"]:
            mixed = mlp((jax.nn.standardize(x) * p["gain1"]).swapaxes(1, 2), p, "token")
            x = x + mixed.swapaxes(1, 2)
            x = x + mlp(jax.nn.standardize(x) * p["gain2"], p, "channel")
        return cross_entropy(x.mean(1) @ params["head_w"], labels)

    return training_step(
        loss, optax.adamw(1e-3), params, f32(batch, patches, 48), i32(batch)
    )


def einsum_mixer() -> Step:
    """A Mixer as einsums write it: the middle dimension is contracted as it lies."""
    batch, patches, hidden, wide = 4, 32, 64, 128
    params = {"token1_w": f32(patches, wide), "token2_w": f32(wide, patches)}

    def loss(params: Any, x: Any) -> Any:
        y = jax.nn.relu(jnp.einsum("bph,pw->bwh", x, params["token1_w"]))
        return ((jnp.einsum("bwh,wp->bph", y, params["token2_w"]) - x) ** 2).mean()

    return training_step(loss, optax.adamw(1e-3), params, f32(batch, patches, hidden))


def clipped_bert() -> Step:
    """BERT-tiny with clipping by the global norm and a mask on the decay."""
    config = generate.CONFIGS["tiny"]
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(1e-3, mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p)),
    )
    state, batch, _ = generate.step_arguments(config)
    return training_step(
        lambda params, batch: generate.loss(params, batch, config),
        optimizer,
        state["params"],
        batch,
    )


def torch_style() -> Step:
    """An MLP whose weights lie as torch keeps them, `x @ w.T`, plain SGD."""
    params = {
        "l1_w": f32(64, 32),
        "l1_b": f32(64),
        "l2_w": f32(32, 64),
        "l2_b": f32(32),
    }

    def loss(params: Any, x: Any) -> Any:
        y = jax.nn.relu(x @ params["l1_w"].T + params["l1_b"])
        return ((y @ params["l2_w"].T + params["l2_b"] - x) ** 2).mean()

    return training_step(loss, optax.sgd(0.1), params, f32(16, 32))


def scanned() -> Step:
    """Equal layers under `lax.scan`, with rematerialization, Adam."""
    params = {"w": f32(3, 32, 32), "b": f32(3, 32)}

    def loss(params: Any, x: Any) -> Any:
        @jax.checkpoint
        def layer(y: Any, p: Any) -> Any:
            return jnp.tanh(y @ p["w"] + p["b"]), None

        y, _ = jax.lax.scan(layer, x, params)
        return ((y - x) ** 2).mean()

    return training_step(loss, optax.adam(1e-3), params, f32(8, 32))


def dropout() -> Step:
    """An MLP with dropout from a key, an unsigned array, and Lion."""
    params = {"up_w": f32(32, 64), "down_w": f32(64, 32)}

    def loss(params: Any, key: Any, x: Any) -> Any:
        y = jax.nn.relu(x @ params["up_w"])
        y = jnp.where(jax.random.bernoulli(key, 0.9, y.shape), y / 0.9, 0.0)
        return ((y @ params["down_w"] - x) ** 2).mean()

    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    return training_step(loss, optax.lion(1e-3), params, key, f32(8, 32))


MODELS = {
    f.__name__: f
    for f in (gpt, mixer, einsum_mixer, clipped_bert, torch_style, scanned, dropout)
}


def export(name: str) -> str:
    step, arguments = MODELS[name]()
    return sparse_opt.jax.export(step, *arguments)


if __name__ == "__main__":
    for name in sys.argv[2:] or MODELS:
        Path(sys.argv[1], f"{name}.mlir").write_text(export(name))
