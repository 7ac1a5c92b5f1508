# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The very step of examples/generate.py, compiled by JAX."""

import dataclasses
import os
import sys

import harness

# An accelerator would be another comparison.
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path += [str(harness.ROOT / "python"), str(harness.ROOT / "examples")]

import generate  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def make_step(model, batch, rate, threads, name, attention=None):
    if attention:
        raise ImportError("its program masks no attention")
    config = dataclasses.replace((generate.CONFIGS | generate.SCALED)[name], batch=model.batch, tokens=model.tokens,
                                 predictions=model.predictions)
    assert (config.layers, config.hidden, config.heads, config.vocabulary, config.batch, config.tokens,
            config.predictions, config.head, config.matmul.__name__ if config.matmul else "", config.gated or 0) == tuple(model), f"expected {config}, but got {model}"
    key = jax.random.PRNGKey(0)

    def init(path, shape):
        leaf = path[-1].key
        if leaf.endswith(("_w", "embedding")):
            # The same numbers in all matrices of a shape do no harm here.
            return 0.02 * jax.random.normal(key, shape.shape)
        return jnp.ones(shape.shape) if leaf.endswith("_gain") else jnp.zeros(shape.shape)

    params = jax.tree_util.tree_map_with_path(init, generate.parameter_shapes(config))
    state = [{"params": params, "opt": generate.optimizer(rate, config).init(params)}]
    del params
    shapes = generate.step_arguments(config)[1]
    arguments = {key: jnp.asarray(rows, shapes[key].dtype).reshape(shapes[key].shape) for key, rows in batch.items()}
    compiled = jax.jit(generate.make_step(config).__wrapped__, donate_argnums=0)

    def step():
        state[0], loss = compiled(state[0], arguments, jnp.float32(rate))
        jax.block_until_ready(state)
        return float(loss)

    return step
