# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Texts of exports that are kept on disk are those that would be made.

# RUN: rm -rf %t && env -u SPARSE_OPT_CACHE_EXPORTS SPARSE_OPT_CACHE=%t %python -u %s 2>&1 | FileCheck %s --implicit-check-not=Traceback

"""One change of a program at a time: each text that the cache returns is compared with the one
that is made without it."""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sparse_opt.jax
from sparse_opt import cache
from sparse_opt.jax import _export_cache, _stablehlo

SCALE = 2.0
SCALES = np.array([1.0, 2.0, 3.0], np.float32)


class Settings:
    scale = 4.0


def loss_of(params: Any, batch: Any, scale: Any, activation: Any = jax.nn.relu) -> Any:
    hidden = activation(batch["x"] @ params["first"])
    return jnp.mean((hidden @ params["second"]) ** 2) * scale


def step_of(scale: Any, rate: float = 0.1, **options: Any) -> Any:
    """Returns a step whose loss is scaled by what a function returns."""

    def step(params: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, batch, scale(), **options)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradients), loss

    return step


def plain_step(params: Any, batch: Any, scale: float = 3.0) -> Any:
    return step_of(lambda: scale)(params, batch)


def arrays(size: int = 8, dtype: Any = jnp.float32, rows: int = 4) -> Any:
    params = {name: jnp.zeros((size, size), dtype) for name in ("first", "second")}
    return params, {"x": jnp.zeros((rows, size), dtype)}


def export(change: Any) -> Any:
    """Exports one program, with what is changed of it."""
    change = dict(change)
    step, given = change.pop("step", plain_step), change.pop("arrays", None) or arrays()
    outside = change.pop("outside", {})
    own = {name: globals()[name] for name in outside}
    globals().update(outside)
    precision = change.pop("precision", None)
    take = change.pop("take", sparse_opt.jax.export)
    try:
        with jax.default_matmul_precision(precision):
            return take(step, *given, **change)
    finally:
        globals().update(own)


def logits(params: Any, batch: Any) -> Any:
    return batch["x"] @ params["first"]


made = 0
own_lower = _stablehlo.lower


def counted(*arguments: Any) -> str:
    global made
    made += 1
    return own_lower(*arguments)


_stablehlo.lower = counted


def is_made(change: Any, keeps: str = "1") -> tuple[Any, bool]:
    before = made
    os.environ["SPARSE_OPT_CACHE_EXPORTS"] = keeps
    text = export(change)
    return text, made > before


CHANGES: dict[str, Any] = {
    "nothing": {},
    "a partial": {"step": functools.partial(plain_step, scale=5.0)},
    "a rate": {"step": step_of(lambda: 3.0, rate=0.2)},
    "a global number": {"step": step_of(lambda: SCALE)},
    "another global number": {"step": step_of(lambda: SCALE), "outside": {"SCALE": 7.0}},
    "a global array": {"step": step_of(lambda: SCALES.sum())},
    "a traced array": {"step": step_of(lambda: jnp.sum(jnp.asarray(SCALES) ** 2))},
    "another traced array": {
        "step": step_of(lambda: jnp.sum(jnp.asarray(SCALES) ** 2)), "outside": {"SCALES": SCALES * 2},
    },
    "a class": {"step": step_of(lambda: Settings.scale)},
    "an activation": {"step": step_of(lambda: 3.0, activation=jax.nn.gelu)},
    "sizes": {"arrays": arrays(16)},
    "rows": {"arrays": arrays(rows=8)},
    "the type": {"arrays": arrays(dtype=jnp.bfloat16)},
    "roles": {"roles": {"second": "state"}},
    "inits": {"inits": {"first": "normal(0.02)"}},
    "other inits": {"inits": {"first": "normal(0.03)"}},
    "no locations": {"locations": False},
    "scopes": {"locations": "scopes"},
    "a function": {"step": logits, "take": sparse_opt.jax.export_function},
}  # fmt: skip

texts: dict[str, str] = {}
for name, change in CHANGES.items():
    before = len(cache._files([cache.EXPORT]))
    # From one line: JAX notes those that call.
    (first, is_first_made), (again, is_again_made), (right, _) = (
        is_made(change, keeps) for keeps in "110"
    )
    if not is_first_made or len(cache._files([cache.EXPORT])) != before + 1:
        print(name, "has no key of its own:", is_first_made)
    if not str(first) == str(again) == str(right) or is_again_made:
        print(name, "has another text:", is_again_made)
    texts[name] = str(first)
# CHECK-NOT: has
# CHECK: programs: 19 of 19 texts
print(f"programs: {len(CHANGES)} of {len(set(texts.values()))} texts")

# What JAX is configured to is in the key, whether or not a text differs by it.
# CHECK: precision: [True, True, False]
print("precision:", [is_made({"precision": p})[1] for p in (None, "highest", "highest")])

# A damaged file is made again.
is_made({})
for path in cache._files([cache.EXPORT]):
    path.write_bytes(path.read_bytes()[:-9])
mended = [is_made({}) for _ in range(2)]
# CHECK: damaged: [True, False] True
print("damaged:", [m for _, m in mended], {str(text) for text, _ in mended} == {texts["nothing"]})

# Another version of anything that computes a text makes it again.
own_versions = _export_cache._versions
for place in range(len(own_versions())):
    parts = list(own_versions())
    parts[place] = "another"
    _export_cache._versions = lambda: tuple(parts)
    if not is_made({})[1]:
        print("taken from another version", place)
# CHECK-NOT: taken
# CHECK: versions: 5
print("versions:", len(own_versions()))
