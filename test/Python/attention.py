# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Attention as JAX programs write it, found and run: heads that share keys,
# dropout, trained biases, checkpoints.

# RUN: %python %s | FileCheck %s

"""Compares steps whose attention was found with JAX, a line for each form."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sparse_opt
import sparse_opt.jax

SEQUENCES, TOKENS, HEADS, GROUPS, SIZE = 2, 16, 4, 2, 8
FEATURES = HEADS * SIZE


def project(p: Any, x: Any) -> Any:
    return tuple(jnp.einsum("bte,ehd->bthd", x, p[n]) for n in "qkv")


def repeated(p: Any, x: Any) -> Any:
    q, k, v = project(p, x)
    return q, *(jnp.repeat(t, HEADS // GROUPS, axis=2) for t in (k, v))


def masked(scores: Any) -> Any:
    return jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), scores, -jnp.inf)


def product(q: Any, k: Any) -> Any:
    return jnp.einsum("bqhd,bkhd->bhqk", q, k) / SIZE**0.5


def mix(probabilities: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bkhd->bqhd", probabilities, v)


def attend(q: Any, k: Any, v: Any) -> Any:
    return mix(jax.nn.softmax(masked(product(q, k))), v)


def grouped(p: Any, x: Any, key: Any) -> Any:
    """Queries have a dimension that keys lack."""
    q, k, v = project(p, x)
    q = q.reshape(SEQUENCES, TOKENS, GROUPS, HEADS // GROUPS, SIZE)
    scores = masked(jnp.einsum("bqgrd,bkgd->bgrqk", q, k) / SIZE**0.5)
    mixed = jnp.einsum("bgrqk,bkgd->bqgrd", jax.nn.softmax(scores), v)
    return mixed.reshape(SEQUENCES, TOKENS, HEADS, SIZE)


def dropped(p: Any, x: Any, key: Any) -> Any:
    q, k, v = repeated(p, x)
    probabilities = jax.nn.softmax(masked(product(q, k)))
    kept = jax.random.bernoulli(key, 0.75, probabilities.shape)
    return mix(jnp.where(kept, probabilities / 0.75, 0), v)


def relative(p: Any, x: Any, key: Any) -> Any:
    """A trained bias for each distance, as T5 has it."""
    q, k, v = repeated(p, x)
    distances = jnp.arange(TOKENS)[:, None] - jnp.arange(TOKENS)
    bias = p["table"][jnp.clip(distances, -7, 7) + 7].transpose(2, 0, 1)
    return mix(jax.nn.softmax(masked(product(q, k) + bias)), v)


def over_queries(p: Any, x: Any, key: Any) -> Any:
    """Almost attention: probabilities of queries."""
    q, k, v = repeated(p, x)
    return mix(jax.nn.softmax(product(q, k), axis=2), v)


def by_value(p: Any, x: Any, key: Any) -> Any:
    """Almost attention: the mask is of scores."""
    q, k, v = repeated(p, x)
    scores = product(q, k)
    return mix(jax.nn.softmax(jnp.where(scores > 0, scores, -1e9)), v)


FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "repeated": lambda p, x, key: attend(*repeated(p, x)),
    "grouped": grouped,
    "library": lambda p, x, key: jax.nn.dot_product_attention(*project(p, x), is_causal=True),
    "dropped": dropped,
    "relative": relative,
    "checkpoint": lambda p, x, key: jax.checkpoint(attend)(*repeated(p, x)),
    "over queries": over_queries,
    "by value": by_value,
}


def random(rng: np.random.Generator, *shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape) / FEATURES**0.5, jnp.float32)


def compare(name: str) -> str:
    rng = np.random.default_rng(0)
    params = {
        "q": random(rng, FEATURES, HEADS, SIZE), "k": random(rng, FEATURES, GROUPS, SIZE),
        "v": random(rng, FEATURES, GROUPS, SIZE), "o": random(rng, HEADS, SIZE, FEATURES),
    }  # fmt: skip
    if name == "relative":
        params["table"] = random(rng, 15, HEADS)
    batch = {n: random(rng, SEQUENCES, TOKENS, FEATURES) for n in "xy"}
    state = {"params": params}
    if name == "dropped":
        state["key"] = jax.random.key(3)

    def loss(params: Any, batch: Any, key: Any) -> Any:
        mixed = FORMS[name](params, batch["x"], key)
        return jnp.sum((jnp.einsum("bqhd,hde->bqe", mixed, params["o"]) - batch["y"]) ** 2)

    def train(state: Any, batch: Any) -> Any:
        new, key = {}, None
        if "key" in state:
            new["key"], key = jax.random.split(state["key"])
        value, gradient = jax.value_and_grad(loss)(state["params"], batch, key)
        return {"params": jax.tree.map(lambda w, g: w - 0.1 * g, state["params"], gradient), **new}, value

    text = sparse_opt.jax.export(train, state, batch)
    step = sparse_opt.compile(text, options=["--attention-keys=1", "--target=scalar"])
    reference = jax.jit(train)
    for _ in range(3):
        got = float(step(batch))
        state, want = reference(state, batch)
        assert abs(got - float(want)) < 1e-5 * abs(float(want)), (name, got, float(want))
    for weight, want in state["params"].items():
        got = step.read(f"state.params.{weight}")
        np.testing.assert_allclose(got, want, atol=1e-5, err_msg=f"{name} {weight}")
    found = [len(re.findall(rf"bsr\.{op}\(", passed(text))) for op in ("attention", "attention_grad")]
    return f"{name}: {found[0]} forward, {found[1]} backward"


def passed(text: str) -> str:
    """The step behind the pass that finds attention."""
    command = [
        "sparse-opt", "--bsr-to-cpu=attention-keys=1 target=#bsr.scalar",
        "--mlir-print-ir-after=bsr-find-attention", "-o", "/dev/null",
    ]  # fmt: skip
    return subprocess.run(command, input=text, text=True, capture_output=True, check=True).stderr


# CHECK: repeated: 1 forward, 1 backward
# CHECK-NEXT: grouped: 1 forward, 1 backward
# CHECK-NEXT: library: 1 forward, 1 backward
# CHECK-NEXT: dropped: 1 forward, 1 backward
# CHECK-NEXT: relative: 1 forward, 1 backward
# The forward pass, computed again for the gradient.
# CHECK-NEXT: checkpoint: 2 forward, 1 backward
# CHECK-NEXT: over queries: 0 forward, 0 backward
# CHECK-NEXT: by value: 0 forward, 0 backward
if __name__ == "__main__":
    for name in FORMS:
        print(compare(name), flush=True)
