# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# JAX models and optimizers whose steps the table of graphs compares.

"""Small models of every common kind, and the same steps with masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt.jax

VOCABULARY, HIDDEN, WIDE, HEADS, TOKENS = 64, 32, 64, 2, 16

OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "AdamW": lambda: optax.adamw(1e-3),
    "SGD": lambda: optax.sgd(0.05, momentum=0.9),
    "LAMB": lambda: optax.lamb(1e-3),
    "Adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=16),
    "Lion": lambda: optax.lion(1e-4),
    "NovoGrad": lambda: optax.novograd(1e-3),
    "AdamW if finite": lambda: optax.apply_if_finite(optax.adamw(1e-3), 5),
}


def _weights(key: int, *shapes: tuple[str, int, int]) -> dict[str, Any]:
    rng = np.random.default_rng(key)
    return {
        name: rng.normal(0, 0.1, (rows, cols)).astype(np.float32)
        for name, rows, cols in shapes
    }


_ATTENTION = [(f"{n}_w", HIDDEN, HIDDEN) for n in "qkvo"]
_BLOCK = [*_ATTENTION, ("up_w", HIDDEN, WIDE), ("down_w", WIDE, HIDDEN)]


def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Of `[batch, tokens, heads, features]`."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(allowed, scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def _attend(x: Any, y: Any, p: Any, causal: bool) -> Any:
    """Queries of `x` on keys and values of `y`."""

    def split(z: Any) -> Any:
        return z.reshape(*z.shape[:2], HEADS, -1)

    q, k, v = split(x @ p["q_w"]), split(y @ p["k_w"]), split(y @ p["v_w"])
    return attention(q, k, v, causal).reshape(x.shape) @ p["o_w"]


def _block(x: Any, p: Any, causal: bool) -> Any:
    z = jax.nn.standardize(x)
    x = x + _attend(z, z, p, causal)
    return x + jax.nn.gelu(jax.nn.standardize(x) @ p["up_w"]) @ p["down_w"]


def _attend_heads(x: Any, p: Any) -> Any:
    """Self-attention with a dimension for heads in its weights, as flax has it."""
    q, k, v = (jnp.einsum("bte,ehd->bthd", x, p[f"{n}_h"]) for n in "qkv")
    return jnp.einsum("bthd,hde->bte", attention(q, k, v), p["o_h"])


def _heads() -> Any:
    shapes = {n: (HIDDEN, HEADS, HIDDEN // HEADS) for n in "qkv"}
    shapes["o"] = (HEADS, HIDDEN // HEADS, HIDDEN)

    def make(rng: np.random.Generator) -> Any:
        params, batch = _transformer(False)[0](rng)
        for p in params["blocks"]:
            for n, shape in shapes.items():
                p[f"{n}_h"] = p.pop(f"{n}_w").reshape(shape)
        return params, batch

    def loss(params: Any, batch: Any) -> Any:
        x = _embedded(params, batch["ids"])
        for p in params["blocks"]:
            x = x + _attend_heads(jax.nn.standardize(x), p)
            x = x + jax.nn.gelu(jax.nn.standardize(x) @ p["up_w"]) @ p["down_w"]
        return _cross_entropy(x @ params["tokens"].T, batch["labels"])

    return make, loss


def _cross_entropy(scores: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def _embedded(params: Any, ids: Any) -> Any:
    return params["tokens"][ids] + params["positions"]


_EMBEDDING = [("tokens", VOCABULARY, HIDDEN), ("positions", TOKENS, HIDDEN)]


def _transformer(causal: bool) -> Any:
    def make(rng: np.random.Generator) -> Any:
        params = _weights(0, *_EMBEDDING)
        params["blocks"] = [_weights(i + 1, *_BLOCK) for i in range(2)]
        return params, _ids(rng)

    def loss(params: Any, batch: Any) -> Any:
        x = _embedded(params, batch["ids"])
        for p in params["blocks"]:
            x = _block(x, p, causal)
        return _cross_entropy(x @ params["tokens"].T, batch["labels"])

    return make, loss


def _ids(rng: np.random.Generator, tokens: int = TOKENS) -> Any:
    shape = (2, tokens)
    return {
        name: rng.integers(0, VOCABULARY, shape).astype(np.int32)
        for name in ("ids", "labels")
    }


def _t5() -> Any:
    def make(rng: np.random.Generator) -> Any:
        params = _weights(0, *_EMBEDDING)
        params["encoder"] = _weights(1, *_BLOCK)
        params["decoder"] = _weights(2, *_BLOCK)
        params["cross"] = _weights(3, *_ATTENTION)
        return params, _ids(rng)

    def loss(params: Any, batch: Any) -> Any:
        source = _block(_embedded(params, batch["ids"]), params["encoder"], False)
        x = _block(_embedded(params, batch["labels"]), params["decoder"], True)
        x = x + _attend(jax.nn.standardize(x), source, params["cross"], False)
        return _cross_entropy(x @ params["tokens"].T, batch["labels"])

    return make, loss


def _mixer() -> Any:
    shapes = [
        ("token1_w", TOKENS, WIDE), ("token2_w", WIDE, TOKENS),
        ("up_w", HIDDEN, WIDE), ("down_w", WIDE, HIDDEN),
    ]  # fmt: skip

    def make(rng: np.random.Generator) -> Any:
        params = {"stem": _weights(0, ("w", 48, HIDDEN))["w"]}
        params["blocks"] = [_weights(i + 1, *shapes) for i in range(2)]
        x = rng.normal(size=(2, TOKENS, 48)).astype(np.float32)
        return params, {"x": x, "labels": rng.integers(0, HIDDEN, 2).astype(np.int32)}

    def loss(params: Any, batch: Any) -> Any:
        x = batch["x"] @ params["stem"]
        for p in params["blocks"]:
            z = jax.nn.standardize(x).swapaxes(1, 2)
            x = x + (jax.nn.gelu(z @ p["token1_w"]) @ p["token2_w"]).swapaxes(1, 2)
            z = jax.nn.standardize(x)
            x = x + jax.nn.gelu(z @ p["up_w"]) @ p["down_w"]
        return _cross_entropy(x.mean(1), batch["labels"])

    return make, loss


def _recurrent(gates: int, cell: Any, steps: int = TOKENS) -> Any:
    """A loop over time by `lax.scan`."""

    def make(rng: np.random.Generator) -> Any:
        params = _weights(0, ("tokens", VOCABULARY, HIDDEN))
        params |= _weights(
            1, ("x_w", HIDDEN, gates * HIDDEN), ("h_w", HIDDEN, gates * HIDDEN)
        )
        return params, _ids(rng, steps)

    def loss(params: Any, batch: Any) -> Any:
        x = params["tokens"][batch["ids"]] @ params["x_w"]
        start = (jnp.zeros((2, HIDDEN)), jnp.zeros((2, HIDDEN)))

        def step(state: Any, x: Any) -> Any:
            state = cell(state, x, params["h_w"])
            return state, state[0]

        _, hidden = jax.lax.scan(step, start, x.swapaxes(0, 1))
        scores = hidden.swapaxes(0, 1) @ params["tokens"].T
        return _cross_entropy(scores, batch["labels"])

    return make, loss


def _lstm_cell(state: Any, x: Any, w: Any) -> Any:
    h, c = state
    i, f, g, o = jnp.split(x + h @ w, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru_cell(state: Any, x: Any, w: Any) -> Any:
    h, c = state
    z, r, n = jnp.split(h @ w, 3, -1)
    xz, xr, xn = jnp.split(x, 3, -1)
    z, r = jax.nn.sigmoid(z + xz), jax.nn.sigmoid(r + xr)
    return (1 - z) * jnp.tanh(xn + r * n) + z * h, c


def _mlp() -> Any:
    def make(rng: np.random.Generator) -> Any:
        params = _weights(0, ("up_w", HIDDEN, WIDE), ("down_w", WIDE, HIDDEN))
        return params, {"x": rng.normal(size=(16, HIDDEN)).astype(np.float32)}

    def loss(params: Any, batch: Any) -> Any:
        y = jax.nn.gelu(batch["x"] @ params["up_w"]) @ params["down_w"]
        return ((y - batch["x"]) ** 2).mean()

    return make, loss


def _scanned(remat: bool = False, unroll: int = 1) -> Any:
    """Layers under `lax.scan`, their weights stacked, perhaps recomputed."""

    def make(rng: np.random.Generator) -> Any:
        layers = [_weights(i, *_BLOCK) for i in range(3)]
        params = {"blocks": jax.tree.map(lambda *w: np.stack(w), *layers)}
        return params | _weights(9, *_EMBEDDING), _ids(rng)

    def loss(params: Any, batch: Any) -> Any:
        def layer(x: Any, p: Any) -> Any:
            return _block(x, p, True), None

        body = jax.checkpoint(layer) if remat else layer
        x = _embedded(params, batch["ids"])
        x, _ = jax.lax.scan(body, x, params["blocks"], unroll=unroll)
        return _cross_entropy(x @ params["tokens"].T, batch["labels"])

    return make, loss


def _remat() -> Any:
    make, _ = _transformer(False)

    def loss(params: Any, batch: Any) -> Any:
        x = _embedded(params, batch["ids"])
        for p in params["blocks"]:
            x = jax.checkpoint(lambda x, p: _block(x, p, False))(x, p)
        return _cross_entropy(x @ params["tokens"].T, batch["labels"])

    return make, loss


def _dropout() -> Any:
    make_mlp, _ = _mlp()

    def make(rng: np.random.Generator) -> Any:
        params, batch = make_mlp(rng)
        return params, {**batch, "key": np.array([0, 7], np.uint32)}

    def loss(params: Any, batch: Any) -> Any:
        y = jax.nn.relu(batch["x"] @ params["up_w"])
        kept = jax.random.bernoulli(batch["key"], 0.9, y.shape)
        y = jnp.where(kept, y / 0.9, 0.0) @ params["down_w"]
        return ((y - batch["x"]) ** 2).mean()

    return make, loss


def _experts() -> Any:
    """A mixture of four experts, of which each token has two."""
    names = [f"expert{i}_{place}" for i in range(4) for place in ("up_w", "down_w")]

    def make(rng: np.random.Generator) -> Any:
        shapes = [
            (n, HIDDEN, WIDE) if n.endswith("up_w") else (n, WIDE, HIDDEN) for n in names
        ]
        params = _weights(0, ("router", HIDDEN, 4), *shapes)
        return params, {"x": rng.normal(size=(16, HIDDEN)).astype(np.float32)}

    def loss(params: Any, batch: Any) -> Any:
        x = batch["x"]
        scores, chosen = jax.lax.top_k(x @ params["router"], 2)
        shares = jax.nn.softmax(scores)[..., None] * jax.nn.one_hot(chosen, 4)
        y = sum(
            shares.sum(1)[:, i : i + 1]
            * (jax.nn.gelu(x @ params[f"expert{i}_up_w"]) @ params[f"expert{i}_down_w"])
            for i in range(4)
        )
        return ((y - x) ** 2).mean()

    return make, loss


MODELS: dict[str, Any] = {
    "BERT": lambda: _transformer(False),
    "GPT-2": lambda: _transformer(True),
    "T5": _t5,
    "BERT, words": lambda: _transformer(False),
    "T5, words": _t5,
    "Mixer": _mixer,
    "LSTM": lambda: _recurrent(4, _lstm_cell),
    "LSTM, 512 steps": lambda: _recurrent(4, _lstm_cell, 512),
    "GRU": lambda: _recurrent(3, _gru_cell),
    "MLP": _mlp,
    "heads": _heads,
    "checkpoint": _remat,
    "scan over layers": _scanned,
    "scan, checkpoint": lambda: _scanned(remat=True),
    "scan, unroll=2": lambda: _scanned(unroll=2),
    "accumulation": _mlp,
    "dropout": _dropout,
    "experts": _experts,
}


class Graph:
    """One case: its exported step, and the framework's own beside it."""

    # Options of bsr-mark.
    marks: tuple[str, ...] = ("match=params.*_w$",)

    def __init__(self, model: str, optimizer: str, kind: str) -> None:
        make, loss = MODELS[model]()
        if model.startswith("scan"):
            self.marks = ("match=params.*_w$ dims=stack,row,col",)
        if model.endswith("words"):
            self.marks = ("match=params.*(_w|tokens)$",)
        if model == "heads":
            self.marks += (
                "match=params.*[qkv]_h$ dims=row,col,col",
                "match=params.*o_h$ dims=row,row,col",
            )
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(1.0), OPTIMIZERS[optimizer]()
        )
        params, self._batch = make(np.random.default_rng(0))
        self._names = sparse_opt.jax.leaf_names("state.params", params)
        self._state = {"params": params, "opt": self._optimizer.init(params)}
        is_bf16, accumulate = kind == "bf16", model == "accumulation"

        def cast_loss(params: Any, batch: Any) -> Any:
            if not is_bf16:
                return loss(params, batch)
            params, batch = jax.tree.map(
                lambda x: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x,
                (params, batch),
            )
            return loss(params, batch).astype(jnp.float32)

        def gradient_of(params: Any, batch: Any) -> Any:
            if not accumulate:
                return jax.value_and_grad(cast_loss)(params, batch)
            parts = jax.tree.map(lambda x: x.reshape(4, -1, *x.shape[1:]), batch)

            def add(total: Any, part: Any) -> Any:
                new = jax.value_and_grad(cast_loss)(params, part)
                return jax.tree.map(jnp.add, total, new), None

            zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
            total, _ = jax.lax.scan(add, zero, parts)
            return jax.tree.map(lambda x: x / 4, total)

        def train(state: Any, batch: Any, masks: Any) -> Any:
            params = state["params"]
            value, gradient = gradient_of(params, batch)
            if masks is not None:
                gradient = jax.tree.map(jnp.multiply, gradient, masks)
            updates, opt = self._optimizer.update(gradient, state["opt"], params)
            params = optax.apply_updates(params, updates)
            if masks is not None:
                params = jax.tree.map(jnp.multiply, params, masks)
            return {"params": params, "opt": opt}, value

        self._train = jax.jit(train)
        self.text = sparse_opt.jax.export(
            lambda state, batch: train(state, batch, None), self._state, self._batch
        )

    def call(self, step: sparse_opt.Step) -> Any:
        return step(self._batch)

    def begin(self, masks: Any) -> None:
        self._take(masks)
        params = jax.tree.map(jnp.multiply, self._state["params"], self._masks)
        self._state["params"] = params

    def reference(self) -> Any:
        self._state, loss = self._train(self._state, self._batch, self._masks)
        return loss

    def update(self, masks: Any, kept: Any) -> None:
        self._take(masks)
        stayed = self._tree(kept)
        # Weights and the moments that have their structure.
        same = jax.tree.structure(stayed)
        self._state = jax.tree.map(
            lambda tree: (
                jax.tree.map(lambda x, k: x * k if x.shape == k.shape else x, tree, stayed)
                if jax.tree.structure(tree) == same
                else tree
            ),
            self._state,
            is_leaf=lambda x: jax.tree.structure(x) == same,
        )

    def params(self) -> Any:
        yield from zip(self._names, map(np.asarray, jax.tree.leaves(self._state["params"])))

    def _take(self, masks: Any) -> None:
        self._masks = self._tree(masks)

    def _tree(self, masks: Any) -> Any:
        """Returns masks in the structure of the parameters, of ones by default."""
        leaves = [
            masks.get(name, np.ones(x.shape, np.float32)).reshape(x.shape)
            for name, x in zip(self._names, jax.tree.leaves(self._state["params"]))
        ]
        return jax.tree.unflatten(jax.tree.structure(self._state["params"]), leaves)


class Simulated(Graph):
    """A program that simulates sparsity: `w * mask`, the masks in its state."""

    marks = ("match=params.*_w$ mask=masks",)

    def __init__(self, model: str, optimizer: str, kind: str) -> None:
        model = model.removeprefix("masked ")
        make, loss = MODELS[model]()
        if model.startswith("scan"):
            self.marks = ("match=params.*_w$ dims=stack,row,col mask=masks",)
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(1.0), OPTIMIZERS[optimizer]()
        )
        params, self._batch = make(np.random.default_rng(0))
        self._names = sparse_opt.jax.leaf_names("state.params", params)
        # By number: a name in the state must not look like a parameter's.
        masks = {
            str(i): np.ones(x.shape, np.float32)
            for i, x in enumerate(jax.tree.leaves(params))
            if self._names[i].endswith("_w")
        }
        self._state = {
            "params": params, "opt": self._optimizer.init(params), "masks": masks
        }  # fmt: skip

        def masked(params: Any, masks: Any) -> Any:
            leaves = [
                x * masks[str(i)] if str(i) in masks else x
                for i, x in enumerate(jax.tree.leaves(params))
            ]
            return jax.tree.unflatten(jax.tree.structure(params), leaves)

        def train(state: Any, batch: Any) -> Any:
            value, gradient = jax.value_and_grad(
                lambda p: loss(masked(p, state["masks"]), batch)
            )(state["params"])
            updates, opt = self._optimizer.update(gradient, state["opt"], state["params"])
            params = optax.apply_updates(state["params"], updates)
            return {"params": params, "opt": opt, "masks": state["masks"]}, value

        self._train = jax.jit(train)
        self.text = sparse_opt.jax.export(train, self._state, self._batch)

    def reference(self) -> Any:
        self._state, loss = self._train(self._state, self._batch)
        return loss

    def params(self) -> Any:
        """The weights that the model sees."""
        for i, (name, x) in enumerate(super().params()):
            yield name, x * self._state["masks"].get(str(i), 1)

    def _take(self, masks: Any) -> None:
        super()._take(masks)
        self._state["masks"] = {str(self._names.index(n)): m for n, m in masks.items()}


MASKED = ("masked MLP", "masked BERT", "masked scan over layers")


def graph(model: str, optimizer: str, kind: str) -> Graph:
    return (Simulated if model in MASKED else Graph)(model, optimizer, kind)


CASES = [
    *((m, "AdamW", "f32") for m in MASKED),
    *((m, o, "f32") for m in MODELS for o in ("AdamW",)),
    *((m, "SGD", "f32") for m in ("BERT", "GPT-2", "T5", "Mixer", "LSTM", "MLP")),
    *((m, o, "f32") for m in ("BERT", "MLP") for o in ("LAMB", "Adafactor", "Lion")),
    *(("MLP", o, "f32") for o in ("NovoGrad", "AdamW if finite")),
    *((m, "AdamW", "bf16") for m in ("BERT", "GPT-2", "MLP", "heads")),
]
