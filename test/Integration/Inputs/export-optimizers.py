# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Exports steps that test what optimizers mean on block-sparse weights.

"""export-optimizers.py FOLDER: writes FOLDER/<name>.mlir.gz for each optimizer below. Needs
jax and optax, and python/ on the module path. The model is tanh(x w1) w2 + b with a
mean squared error; optimizers.py knows what each step means."""

import gzip
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

import sparse_opt.jax


def loss(params, batch):
    y = jnp.tanh(batch["x"] @ params["w1"]) @ params["w2"] + params["b"]
    return jnp.mean((y - batch["y"]) ** 2)


OPTIMIZERS = {
    "adamw": optax.adamw(0.01, eps=1e-6, weight_decay=0.1),
    "clipped": optax.chain(optax.clip_by_global_norm(0.05), optax.sgd(0.1, momentum=0.9)),
    "lamb": optax.lamb(0.01, eps=1e-6, weight_decay=0.1),
    "adafactor": optax.chain(
        optax.clip_by_global_norm(0.05),
        optax.adafactor(
            0.1, min_dim_size_to_factor=16, momentum=0.9, weight_decay_rate=0.01
        ),
    ),
}


def make_step(optimizer):
    @jax.jit
    def step(state, batch):
        params = state["params"]
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, opt = optimizer.update(gradient, state["opt"], params)
        return {"params": optax.apply_updates(params, updates), "opt": opt}, value

    return step


def all_finite(gradient):
    finite = jnp.array(True)
    for leaf in jax.tree.leaves(gradient):
        finite &= jnp.isfinite(leaf).all()
    return finite


def norm_finite(gradient):
    return jnp.isfinite(optax.global_norm(gradient))


def make_scaled_step(optimizer, is_finite):
    """With a loss scale that halves at an overflow, which updates nothing else, and
    doubles after two steps without one."""

    @jax.jit
    def step(state, batch):
        params, scale, good = state["params"], state["scale"], state["good"]
        value, gradient = jax.value_and_grad(lambda p: loss(p, batch) * scale)(params)
        gradient = jax.tree.map(lambda g: g / scale, gradient)
        finite = is_finite(gradient)
        updates, opt = optimizer.update(gradient, state["opt"], params)
        updated = {"params": optax.apply_updates(params, updates), "opt": opt}
        kept = {"params": params, "opt": state["opt"]}
        new = jax.tree.map(lambda a, b: jnp.where(finite, a, b), updated, kept)
        double = finite & (good == 1)
        new["scale"] = jnp.where(finite, jnp.where(double, scale * 2, scale), scale / 2)
        new["good"] = jnp.where(finite, jnp.where(double, 0, good + 1), 0)
        return new, value / scale

    return step


def main():
    def f32(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    params = {"w1": f32(32, 48), "w2": f32(48, 16), "b": f32(16)}
    batch = {"x": f32(16, 32), "y": f32(16, 16)}
    texts = {}
    for name, optimizer in OPTIMIZERS.items():
        state = {"params": params, "opt": jax.eval_shape(optimizer.init, params)}
        texts[name] = sparse_opt.jax.export(
            make_step(optimizer), state, batch, locations="scopes"
        )
    optimizer = OPTIMIZERS["adamw"]
    state = {"params": params, "opt": jax.eval_shape(optimizer.init, params),
             "scale": f32(), "good": jax.ShapeDtypeStruct((), jnp.int32)}
    for name, is_finite in {"scaled": norm_finite, "scaled-all": all_finite}.items():
        step = make_scaled_step(optimizer, is_finite)
        texts[name] = sparse_opt.jax.export(step, state, batch, locations="scopes")
    for name, text in texts.items():
        path = Path(sys.argv[1], f"{name}.mlir.gz")
        path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main()
