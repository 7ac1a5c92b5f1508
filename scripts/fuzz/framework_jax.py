# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JAX: the words that programs of both frameworks use, and how a program runs."""

import os

# Quick to compile; the simplifier makes 0 of 0 * NaN.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + \
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_disable_hlo_passes=algsimp"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402,F401
from optax import contrib  # noqa: E402,F401
import sparse_opt.jax  # noqa: E402

from fuzz import framework  # noqa: E402

# The words of both frameworks.

tanh, exp, sin, sqrt, where, einsum, log1p = jnp.tanh, jnp.exp, jnp.sin, jnp.sqrt, jnp.where, jnp.einsum, jnp.log1p
absolute, argmax, argmin, cumsum, flip, roll, outer = jnp.abs, jnp.argmax, jnp.argmin, jnp.cumsum, jnp.flip, jnp.roll, jnp.outer
maximum, minimum, tril, triu = jnp.maximum, jnp.minimum, jnp.tril, jnp.triu
relu, gelu, silu, sigmoid, softplus = jax.nn.relu, jax.nn.gelu, jax.nn.silu, jax.nn.sigmoid, jax.nn.softplus
stop, softmax, log_softmax = lax.stop_gradient, jax.nn.softmax, jax.nn.log_softmax
total, mean, stack, concat, transpose = jnp.sum, jnp.mean, jnp.stack, jnp.concatenate, jnp.transpose


def largest(x, axis):
    return jnp.max(x, axis)


def smallest(x, axis):
    return jnp.min(x, axis)


def logsumexp(x, axis):
    return jax.nn.logsumexp(x, axis)


def pad(x, low, high, value=0.0):
    return lax.pad(x, jnp.asarray(value, x.dtype), [(a, b, 0) for a, b in zip(low, high)])


def take(table, ids):
    return table[ids]


def one_hot(ids, count, like):
    return jax.nn.one_hot(ids, count, dtype=like.dtype)


def to_int(x):
    return jnp.where(jnp.isnan(x), 0, x).astype(jnp.int32)


def cast(x, name):
    return x.astype(getattr(jnp, name))


def real(x, like):
    return x.astype(like.dtype)


def constant(numbers, like=None):
    return jnp.asarray(numbers, like.dtype if like is not None else None)


def arange(count):
    return jnp.arange(count, dtype=jnp.int32)


def clip(x, low, high):
    return jnp.clip(x, low, high)


def zeros(shape, like):
    return jnp.zeros(shape, like.dtype)


def norm(x):
    return jnp.sqrt(jnp.sum(x * x) + 1e-12)


def squares(tree):
    return sum(jnp.sum(g * g) for g in jax.tree.leaves(tree))


def unmasked(params):
    return params


# The program.


def weight_names(program):
    return {name: f"state.params.{name}" for name in program.WEIGHTS}


def first_state(program):
    params = {n: jnp.asarray(a) for n, a in framework.draw(program.SEED, program.WEIGHTS).items()}
    return program.begin(params)


def batches(program):
    return framework.draw(program.SEED + 1, program.BATCH)


def export(program):
    return sparse_opt.jax.export(lambda state, batch: program.step(state, batch, unmasked),
                                 first_state(program), {n: jnp.asarray(a) for n, a in batches(program).items()})


def name_of(path):
    return ".".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


def flat(tree):
    return {name_of(path) or "loss": leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def masked(tree, masks):
    """A state whose weights, moments and copies are 0 where no block is: leaves that are called as their weight."""
    def change(path, leaf):
        name = name_of(path[-1:])
        if name in masks and np.shape(leaf)[-masks[name].ndim:] == masks[name].shape:
            return leaf * masks[name].astype(leaf.dtype)
        return leaf
    return jax.tree_util.tree_map_with_path(change, tree)


def begin(program, step, masks):
    step.load_state_dict(masked(first_state(program), {n: jnp.asarray(m) for n, m in masks.items()}))


def call(program, step):
    return flat(step({n: jnp.asarray(a) for n, a in batches(program).items()}))


def state(program, step):
    return {"state." + name: leaf for name, leaf in flat(step.state_dict()).items()}


def run_once(program):
    """The program's step with masks, which become arguments: compiled once for all patterns."""
    def run(state, batch, masks):
        state, *results = program.step(state, batch, lambda p: {**p, **{n: p[n] * m.astype(p[n].dtype) for n, m in masks.items()}})
        return masked(state, masks), tuple(results) if len(results) > 1 else results[0]
    return run


def follow(program, seen, run, states, inputs, store=lambda states, _: states):
    """What each step returns, and the last state; `store` is how a state is kept from one step to the next."""
    found = []
    for masks, count in zip(seen, program.STEPS):
        masks = {n: jnp.asarray(m) for n, m in masks.items()}
        states = masked(states, masks)
        for _ in range(count):
            states, results = run(states, inputs, masks)
            found.append(flat(results))
            states = store(states, len(found))
    return [*found, {"state." + name: leaf for name, leaf in flat(states).items()}]


def disturbed(tree, run, scale):
    """The arrays of one of the reference's runs."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: framework.disturb(leaf, run, name_of(path), scale), tree)


def rounded_rows(states, step, scale):
    """The states of all runs as they are kept: an update of nearly the same size whatever the gradient hides what
    roundings did before it."""
    def change(path, leaf):
        key = f"{name_of(path)}.{step}"
        return jnp.stack([framework.disturb(np.asarray(row), i, key, scale) for i, row in enumerate(leaf)])
    return jax.tree_util.tree_map_with_path(change, states)


def reference(program, seen, scale):
    """What each step returns, and the last state, with an axis of runs."""
    whole, inputs = first_state(program), batches(program)
    if not hasattr(program, "compiled"):
        run = run_once(program)
        program.compiled = jax.jit(jax.vmap(run, (0, 0, None))), jax.jit(run)
    wide, narrow = program.compiled
    with jax.enable_x64(True):
        double = lambda a: jnp.asarray(a, jnp.float64) if np.asarray(a).dtype.kind == "f" else jnp.asarray(a)
        rows = [jax.tree.map(double, disturbed((whole, inputs), i, scale)) for i in range(framework.RUNS)]
        exact = follow(program, seen, wide, *jax.tree.map(lambda *a: jnp.stack(a), *rows),
                       store=lambda states, step: rounded_rows(states, step, scale))
        exact = [{n: np.asarray(a) for n, a in part.items()} for part in exact]
    if scale == 1.0:
        return exact
    # What is 0 but for roundings, an optimizer may divide by as much.
    rounded = [follow(program, seen, narrow, *jax.tree.map(jnp.asarray, disturbed((whole, inputs), i, scale)))
               for i in range(framework.ROUNDED_RUNS)]
    return [{n: np.concatenate([a, *(np.asarray(run[k][n])[None] for run in rounded)]) for n, a in part.items()}
            for k, part in enumerate(exact)]
