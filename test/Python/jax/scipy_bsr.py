# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step stores in blocks to SciPy's arrays and back.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse
import sparse_opt
import sparse_opt.jax
from refusals import refuse

optimizer = optax.adam(0.01)


def step(state, x):
    loss, gradient = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(x @ p["w"]) - p["b"]) ** 2))(state["params"])
    change, kept = optimizer.update(gradient, state["opt"])
    return {"params": optax.apply_updates(state["params"], change), "opt": kept}, loss


rng = np.random.default_rng(0)
params = {"w": jnp.asarray(rng.normal(size=(32, 48)), jnp.float32), "b": jnp.zeros(48)}
x = jnp.asarray(rng.normal(size=(16, 32)), jnp.float32)
export = sparse_opt.jax.export(step, {"params": params, "opt": optimizer.init(params)}, x)
run = sparse_opt.compile(export, [sparse_opt.Mark("params.w$", block=(8, 16), density=0.5)], seed=3)
name, moment = "state.params.w", next(n for n in run.buffers if "mu" in n and n.endswith("w"))

# The step's own memory, until an update moves blocks.
own = run.to_scipy_bsr(name, copy=False)
print(type(own).__name__, own.blocksize, own.shape)
# CHECK: bsr_array (8, 16) (32, 48)
before = run.to_scipy_bsr(name)
run(x)
assert (own.toarray() == run.read(name)).all() and (before.toarray() != own.toarray()).any()
for _ in range(3):
    run.update_patterns(0.5)
moved = run.to_scipy_bsr(name)
assert (moved.toarray() == run.read(name)).all() and len(moved.data) == 6
run(x)
assert (run.to_scipy_bsr(moment).toarray() == run.read(moment)).all() and run.read(moment).any()

# Back: with all blocks, with fewer, in another order; the moments of those that stay, stay.
kept = run.read(moment)
matrix = scipy.sparse.bsr_array((moved.data[::-1], moved.indices, moved.indptr), moved.shape)
run.take_scipy_bsr(name, matrix)
assert (run.read(name) == matrix.toarray()).all() and (run.read(moment) == kept).all()
fewer = np.zeros((32, 48), np.float32)
fewer[8:16, 16:32] = rng.normal(size=(8, 16))
run.take_scipy_bsr(name, scipy.sparse.bsr_array(fewer, blocksize=(8, 16)))
assert (run.read(name) == fewer).all() and (run.read(moment) == kept * (fewer != 0)).all()
data = rng.normal(size=(3, 8, 16)).astype(np.float32)
turned = scipy.sparse.bsr_array((data, [2, 0, 1], [0, 2, 2, 3, 3]), (32, 48))
run.take_scipy_bsr(name, turned)
assert (run.read(name) == turned.toarray()).all() and turned.toarray()[:8, 32:].any()
loss = run(x)
want = np.mean((np.tanh(np.asarray(x, np.float64) @ turned.toarray().astype(np.float64)) - run.read("state.params.b")) ** 2)
print("loss as of the matrix", abs(want - loss) < 0.05)
# CHECK: loss as of the matrix True

refuse(run.to_scipy_bsr, "state.params.b")
# CHECK: expected the name of an array of f32 or f64 that is stored in blocks, but got 'state.params.b'
refuse(run.take_scipy_bsr, "state.params.b", turned)
# CHECK: expected the name of a weight in blocks, but got 'state.params.b'; the step has state.params.w
refuse(run.take_scipy_bsr, name, scipy.sparse.bsr_array(fewer, blocksize=(8, 8)))
# CHECK: expected a scipy.sparse.bsr_array of 32x48 in blocks of 8x16, but got blocks of 8x8 in (32, 48)
refuse(run.take_scipy_bsr, name, fewer)
# CHECK: expected a scipy.sparse.bsr_array of 32x48 in blocks of 8x16, but got ndarray
refuse(run.take_scipy_bsr, name, scipy.sparse.bsr_array(np.ones((32, 48), np.float32), blocksize=(8, 16)))
# CHECK: expected the blocks of pattern 'state.params.w' to be in [0, 6], but got 12
refuse(run.take_scipy_bsr, name, scipy.sparse.bsr_array((data, [2, 0, 0], [0, 1, 3, 3, 3]), (32, 48)))
# CHECK: expected col_idx[2] of pattern 'state.params.w', in block row 1, to be in [1, 2], but got 0
assert (run.read(name) != 0).sum() == 3 * 8 * 16
