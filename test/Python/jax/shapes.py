# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One step of JAX on batches of several shapes: the same weights, patterns and state.

# RUN: env SPARSE_OPT_CACHE=%t %python %s | FileCheck %s --implicit-check-not=apart --implicit-check-not=accepted

import logging
import re
import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparse_opt
import sparse_opt.cache
import sparse_opt.jax
from refusals import refuse


class Lines(logging.Handler):
    """Prints what is said, without its numbers of seconds."""

    def emit(self, record):
        print(re.sub(r"[0-9.e+-]+(%| s\b)", r"N\1", record.getMessage()))


logging.getLogger("sparse_opt").addHandler(Lines())
logging.getLogger("sparse_opt").propagate = False

rng = np.random.default_rng(0)


def loss_of(params, ids, labels):
    """A mean over the tokens that have a label, of positions and a mask of each length."""
    length = ids.shape[1]
    h = params["tokens"][ids] + params["places"][:length]
    seen = h @ h.swapaxes(1, 2)
    seen = jnp.where(jnp.tril(jnp.ones((length, length), bool)), seen, -1e9)
    h = h + jax.nn.softmax(seen) @ h
    logits = jnp.tanh(h @ params["up"]) @ params["down"]
    at = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(labels, 0)[..., None], 2)
    has = labels >= 0
    return -jnp.sum(jnp.where(has, at[..., 0], 0)) / has.sum()


optimizer = optax.scale_by_adam()


def step_of(masked, masks):
    def step(state, ids, labels, lr):
        loss, gradients = jax.value_and_grad(loss_of)(state["params"], ids, labels)
        updates, opt = optimizer.update(masked(gradients, masks), state["opt"])
        params = jax.tree.map(lambda p, u: p - lr * u, state["params"], updates)
        return {"params": params, "opt": opt}, loss

    return step


def masked(tree, masks):
    return {name: value * masks.get(name, 1) for name, value in tree.items()}


def start(dtype=np.float32):
    random = np.random.default_rng(1)
    shapes = {"tokens": (16, 8), "places": (32, 8), "up": (8, 16), "down": (16, 16)}
    params = {n: jnp.asarray(random.normal(0, 0.3, s), dtype) for n, s in shapes.items()}
    return {"params": params, "opt": optimizer.init(params)}


def batch(rows, length, lr=np.float32(0.01)):
    ids = rng.integers(0, 16, (rows, length)).astype(np.int32)
    labels = np.roll(ids, -1, 1)
    labels[0, length // 2 :] = -1
    return ids, labels, lr


MARKS = [r"match=params.(up|down)$ block=4x4 density=0.5"]
plain = step_of(lambda tree, _: tree, {})


def compiled(shape=(4, 16), **options):
    export = sparse_opt.jax.export(plain, start(), *batch(*shape))
    return sparse_opt.compile(
        export, MARKS, pattern="random", options=["-O", "1", "--score-norm=l1"], **options
    )


def masks_of(step):
    """Returns which entries of the weights are stored."""
    masks = {}
    for name, pattern in step.patterns.items():
        blocks = step.blocks(name)
        grid = np.zeros((pattern.rows // 4, pattern.cols // 4))
        grid[blocks.rows, blocks.col_idx] = 1
        masks[name.rpartition(".")[2]] = np.kron(grid, np.ones((4, 4)))
    return masks


# The reference is in float64, with masks on weights, gradients and moments.

# CHECK:      compiled the step for 'ids' [4, 24], 'labels' [4, 24] in N s, shape 2 of at most 16
# CHECK-NEXT: the first run did what the program does
# CHECK-NEXT: the first 2 runs did what the program does
# CHECK-NEXT: compiled the step for 'ids' [3, 24], 'labels' [3, 24] in N s, shape 3 of at most 16
# CHECK-NEXT: the first run did what the program does
# CHECK-NEXT: losses and weights equal, updates 5, runs 7
step = compiled()
wide = jax.tree.map(lambda a: np.asarray(a, np.float64 if a.dtype == np.float32 else None), step.state_dict())
worst = 0.0
for i, shape in enumerate([(4, 16), (4, 24), (4, 16), (3, 24), (4, 24), (4, 16), (3, 24)]):
    ids, labels, lr = batch(*shape, lr=np.float32(0.01 / (i + 1)))
    got = float(step(ids, labels, lr, scores=True))
    masks = masks_of(step)
    with jax.enable_x64(True):
        scores = jax.grad(loss_of)(wide["params"], ids, labels)
        wide, want = step_of(masked, masks)(wide, ids, labels, np.float64(lr))
    worst = max(worst, abs(got - float(want)) / float(want))
    for name, pattern in step.patterns.items():
        dense = np.abs(np.asarray(scores[name.rpartition(".")[2]]))
        own = dense.reshape(pattern.rows // 4, 4, -1, 4).sum((1, 3)).reshape(-1)
        worst = max(worst, np.abs(step._session.scores(pattern) - own).max() / own.max())
    if i not in (4, 6):
        step.update_patterns(0.3, method="rigl" if i % 2 else "set")
        masks = masks_of(step)
        opt = wide["opt"]._replace(**{k: masked(getattr(wide["opt"], k), masks) for k in ("mu", "nu")})
        wide = {"params": masked(wide["params"], masks), "opt": opt}
for name, value in step.state_dict()["params"].items():
    other = np.asarray(wide["params"][name])
    worst = max(worst, np.abs(value - other).max() / np.abs(other).max())
counters = step.counters
print("losses and weights", "equal," if worst < 1e-5 else f"apart by {worst},", end=" ")
print(f"updates {counters.pattern_updates}, runs {counters.steps}")

# All shapes train the same memory. An evaluation takes any shape.

# CHECK: same memory True
kept = [n for n, b in step.buffers.items() if b.carried]
places = {n: step.arrays[n].ctypes.data for n in kept}
shapes = step._shapes.known.values()
print("same memory", all(s.arrays[n].ctypes.data == places[n] for s in shapes for n in kept))

# CHECK: evaluated, equal
ids, labels, lr = batch(5, 12)
got = float(step.evaluate(ids, labels, lr))
with jax.enable_x64(True):
    want = float(loss_of(wide["params"], ids, labels))
print("evaluated, equal" if abs(got - want) < 1e-5 * want else f"evaluated, apart: {got} {want}")

# A checkpoint is one for all shapes, and their libraries are kept on disk. Shapes alone are enough
# to compile for them ahead.


def go_on(step):
    global rng
    rng = np.random.default_rng(3)
    losses = []
    for shape in ((3, 24), (4, 16), (4, 24)):
        losses.append(float(step(*batch(*shape))))
        step.update_patterns(0.3)
    return losses, {n: a.tobytes() for n, a in step.native_state().items()}


def described(rows, length):
    ids = jax.ShapeDtypeStruct((rows, length), np.int32)
    return ids, ids, np.float32(0)


# CHECK-COUNT-2: compiled the step for
# CHECK: compiled ahead 3, new libraries 0, resumed exactly True
libraries = len(sparse_opt.cache._files())
again = compiled(check=0, shapes=[described(4, 24), batch(3, 24), described(4, 16)], max_shapes=3)
ahead = len(again.shapes)
with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
    warnings.simplefilter("error")
    step.save(f"{folder}/step.bsr")
    again.load(f"{folder}/step.bsr")
more = len(sparse_opt.cache._files()) - libraries
print(f"compiled ahead {ahead}, new libraries {more}, resumed exactly", go_on(step) == go_on(again))

# What is no shape is refused as ever.

ids, labels, lr = batch(2, 12)
# CHECK: expected at most 3 shapes of batches, but got another one, 'ids' [2, 12], 'labels' [2, 12]: pad batches to a few lengths (buckets), or say compile(max_shapes=)
refuse(again, ids, labels, lr)
# CHECK: expected what the exported step takes behind its state (ids, labels, lr), but got 2 values instead of 3
refuse(step, ids, labels)
# CHECK: expected what the exported step takes behind its state (ids, labels, lr), but got none for 'ids'
refuse(step, {"ids": ids}, labels, lr)
# CHECK: expected 'ids' of type int32, but got int64
refuse(step, ids.astype(np.int64), labels, lr)
# CHECK: expected 'ids' of 2 dimensions, as it was exported, but got shape [12]
refuse(step, ids[0], labels, lr)
# CHECK: expected arrays with elements, but got shape (2, 0) for 'ids': leave it out
refuse(step, ids[:, :0], labels, lr)

# CHECK: expected a tuple of ids, labels, lr in shapes=, but got 3
refuse(compiled, shapes=[3])

# A state that was donated since has its shapes.

# CHECK: compiled the step for 'x' [2, 8]
# CHECK: donated True
state = {"params": {"w": jnp.ones((8, 8))}}


def square(state, x):
    loss, gradient = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"]) ** 2))(state["params"])
    return {"params": {"w": state["params"]["w"] - gradient["w"]}}, loss


x = np.ones((4, 8), np.float32)
step = sparse_opt.compile(sparse_opt.jax.export(square, state, x), options=["-O", "1"], check=0)
jax.jit(square, donate_argnums=0)(state, x)
print("donated", state["params"]["w"].is_deleted() and float(step(x[:2])) == 64)
