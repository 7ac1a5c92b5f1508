# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Steps of each block: optax's own optimizers in float64, of blocks that have states of their
# own, beside compiled steps whose blocks have counts of their own.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache JAX_ENABLE_X64=1 %python -u %s | FileCheck %s

import dense_adam
import jax
import jax.numpy as jnp
import numpy as np
import optax
import sparse_opt
import sparse_opt.jax

ROWS, COLS, LR = 48, 32, 1e-2
rng = np.random.default_rng(0)
batches = [(rng.normal(size=(24, ROWS)), rng.normal(size=(24, COLS))) for _ in range(16)]
# The rate of a schedule has the count of the whole run.
rates = optax.warmup_cosine_decay_schedule(1e-3, LR, 5, 30)
OPTIMIZERS = {
    "adamw": lambda rate: optax.adamw(rate, weight_decay=0.1),
    "nadam": lambda rate: optax.nadam(rate),
    "radam": lambda rate: optax.radam(rate),
    "adamax": lambda rate: optax.adamax(rate),
    "adabelief": lambda rate: optax.adabelief(rate),
}


def made(optimizer, block):
    def train_step(state, batch):
        params, kept = state["params"], state["kept"]
        x, target = batch
        loss, gradients = jax.value_and_grad(
            lambda p: jnp.mean((x @ p["w"] - target) ** 2)
        )(params)
        updates, kept = optimizer.update(gradients, kept, params)
        return {"params": optax.apply_updates(params, updates), "kept": kept}, loss

    params = {"w": 0.1 * np.random.default_rng(1).normal(size=(ROWS, COLS)).astype(np.float32)}
    state = {"params": params, "kept": optimizer.init(params)}
    export = sparse_opt.jax.export(train_step, state, arrays(batches[0]))
    mark = sparse_opt.Mark("w$", block=block, density=0.5)
    return sparse_opt.compile(export, mark, pattern="random", seed=3, block_steps=True, check=1)


def arrays(batch):
    return tuple(a.astype(np.float32) for a in batch)


class Blocks:
    """The blocks of a step, each with an optimizer's state of its own."""

    def __init__(self, step, name, make, rates):
        self.name, self.make, self.rates, self.count = name, make, rates, 0
        self.pattern, self.blocks = step.patterns[name], {}
        self.update = jax.jit(lambda g, kept, w, rate: make(rate).update(g, kept, w))
        self.follow(step)

    def follow(self, step):
        """Drops what an update has pruned, and begins what it has brought."""
        places = dense_adam.slots_of(step, self.name)
        w, old = dense_adam.dense(step, self.name, self.name), self.blocks
        self.blocks = {place: old[place] for place in places if place in old}
        for place in places:
            if place not in old:
                block = w[dense_adam.part(self.pattern, place)].copy()
                self.blocks[place] = block, self.make(0.0).init(block)
        return len(places) - sum(place in old for place in places)

    def weight(self):
        w = np.zeros((ROWS, COLS))
        for place, (block, _) in self.blocks.items():
            w[dense_adam.part(self.pattern, place)] = block
        return w

    def step(self, x, target):
        gradient = 2 / target.size * x.T @ (x @ self.weight() - target)
        rate = float(self.rates(self.count)) if callable(self.rates) else self.rates
        self.count += 1
        for place, (block, kept) in self.blocks.items():
            part = gradient[dense_adam.part(self.pattern, place)]
            update, kept = self.update(part, kept, block, rate)
            self.blocks[place] = block + np.asarray(update), kept


for name, make in OPTIMIZERS.items():
    for rate in (LR, rates) if name in ("adamw", "radam") else (LR,):
        step = made(make(rate), (8, 8))
        (weight,) = step.patterns
        own, apart, new = Blocks(step, weight, make, rate), 0.0, 0
        for i, batch in enumerate(batches):
            step(arrays(batch))
            own.step(*batch)
            apart = max(apart, np.abs(dense_adam.dense(step, weight, weight) - own.weight()).max())
            if i % 4 == 3:
                step.update_patterns(0.4, method=dense_adam.Chance())
                new += own.follow(step)
        print(f"{name} {'scheduled' if callable(rate) else rate}: {new > 0} {apart < LR / 20}")
# CHECK: adamw 0.01: True True
# CHECK-NEXT: adamw scheduled: True True
# CHECK-NEXT: nadam 0.01: True True
# CHECK-NEXT: radam 0.01: True True
# CHECK-NEXT: radam scheduled: True True
# CHECK-NEXT: adamax 0.01: True True
# CHECK-NEXT: adabelief 0.01: True True
