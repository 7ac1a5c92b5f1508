# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What regrown blocks of compiled steps begin with: values and moments.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import dense_adam
import jax
import jax.numpy as jnp
import numpy as np
import optax
import sparse_opt
import sparse_opt.jax

ROWS, COLS, LR, DECAY = 48, 32, 1e-2, 0.1
rng = np.random.default_rng(0)
batches = [(rng.normal(size=(24, ROWS)), rng.normal(size=(24, COLS))) for _ in range(12)]
optimizer = optax.adamw(LR, weight_decay=DECAY)


def train_step(state, batch):
    params, kept = state["params"], state["kept"]
    x, target = batch
    loss, gradients = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"] - target) ** 2))(params)
    updates, kept = optimizer.update(gradients, kept, params)
    return {"params": optax.apply_updates(params, updates), "kept": kept}, loss


def gradient_of(w, x, target):
    return 2 / target.size * x.T @ (x @ w - target)


def arrays(batch):
    return tuple(a.astype(np.float32) for a in batch)


params = {"w": 0.1 * rng.normal(size=(ROWS, COLS)).astype(np.float32)}
state = {"params": params, "kept": optimizer.init(params)}
export = sparse_opt.jax.export(train_step, state, arrays(batches[0]))
for block in (4, (16, 8)):
    for values, kept in dense_adam.STARTS:
        mark = sparse_opt.Mark("w$", block=block, density=0.5)
        step = sparse_opt.compile(export, mark, pattern="random", seed=3)
        (name,) = step.patterns
        own = dense_adam.Adam(step, name, LR, DECAY, gradient_of)
        sparsity = sparse_opt.Sparsity(
            step,
            sparse_opt.Group(every=3, end=100, drop=0.4, new_values=values, new_state=kept),
            steps=200,
        )
        apart, new = 0.0, 0
        for i, batch in enumerate(batches):
            step(arrays(batch))
            own.step(*batch)
            apart = max(apart, np.abs(dense_adam.dense(step, name, name) - own.w).max())
            if sparsity.update():
                new += own.regrow(step, values, kept)
        drawn = np.std(own.random) / 0.1 if own.random else 0
        print(f"{block} {values} {kept}: {new > 0} {apart < 2e-5} {0.9 < drawn < 1.1}")
# CHECK: 4 zero first: True True False
# CHECK: 4 zero mean: True True False
# CHECK: 4 zero kept: True True False
# CHECK: 4 random first: True True True
# CHECK: 4 random mean: True True True
# CHECK: 4 random kept: True True True
# CHECK: (16, 8) zero first: True True False
# CHECK: (16, 8) zero mean: True True False
# CHECK: (16, 8) zero kept: True True False
# CHECK: (16, 8) random first: True True True
# CHECK: (16, 8) random mean: True True True
# CHECK: (16, 8) random kept: True True True
