# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Steps of each block, through the runtime's updates, against a dense masked reference in
# float64 in which each entry has a count of its own: AdamW, LAMB with a norm of the whole
# matrix, and a loss scale, whose overflows count for nobody but a ramp. And ramps, over
# which updates of new blocks rise, with such counts and without.

# RUN: rm -rf %t && mkdir %t
# RUN: %numpy_python -u %s %src_root/test/Integration/Inputs/optimizers %t | FileCheck %s

import gzip
import subprocess
import sys
from pathlib import Path

import dense_adam
import numpy as np
import sparse_opt

RATE, DECAY, EPS = 0.01, 0.1, 1e-6
rng = np.random.default_rng(0)
SHAPES = {"w1": (32, 48), "w2": (48, 16), "b": (16,)}
START = {name: rng.normal(size=shape) * 0.3 for name, shape in SHAPES.items()}
x, y = rng.normal(size=(16, 32)), rng.normal(size=(16, 16))


def made(optimizer, block, block_steps=True, block_ramp=0, library=None):
    text = gzip.decompress((Path(sys.argv[1]) / f"{optimizer}.mlir.gz").read_bytes()).decode()
    mark = sparse_opt.Mark("params.w", block=block, density=0.5)
    return sparse_opt.compile(
        text, mark, seed=5, block_steps=block_steps, block_ramp=block_ramp,
        options=["-O", "1"], library=library,
    )  # fmt: skip


class Reference:
    """Weights, moments and ages, dense; `run` counts runs of the step since a block came."""

    def __init__(self, step, optimizer, ramp=0):
        self.optimizer, self.ramp, self.w = optimizer, ramp, dict(START)
        self.m, self.v, self.age = ({n: np.zeros(s) for n, s in SHAPES.items()} for _ in range(3))
        self.run = {n: np.full(s, np.inf) for n, s in SHAPES.items()}
        self.slots, self.mask = {}, {"b": 1}
        self.follow(step)

    def follow(self, step):
        """Drops what an update has pruned, and begins what it has brought."""
        new = 0
        for name in ("w1", "w2"):
            weight = f"state.params.{name}"
            pattern, slots = step.patterns[weight], dense_adam.slots_of(step, weight)
            mask = np.zeros(SHAPES[name])
            for place in slots:
                here = dense_adam.part(pattern, place)
                mask[here] = 1
                if name in self.slots and place not in self.slots[name]:
                    new += 1
                    for tensor in (self.w, self.m, self.v, self.age):
                        tensor[name][here] = 0
                    self.run[name][here] = 0
            for tensor in (self.w, self.m, self.v, self.age):
                tensor[name] = tensor[name] * mask
            self.slots[name], self.mask[name] = slots, mask
        return new

    def step(self, finite=True):
        h = np.tanh(x @ self.w["w1"])
        error = h @ self.w["w2"] + self.w["b"] - y
        dy = 2 * error / error.size
        g = {"w1": x.T @ ((dy @ self.w["w2"].T) * (1 - h**2)), "w2": h.T @ dy, "b": dy.sum(0)}
        for name in SHAPES:
            self.run[name] = self.run[name] + 1
        for name in SHAPES if finite else ():
            gradient = g[name] * self.mask[name]
            self.age[name] = self.age[name] + 1
            self.m[name] = 0.9 * self.m[name] + 0.1 * gradient
            self.v[name] = 0.999 * self.v[name] + 0.001 * gradient**2
            m = self.m[name] / (1 - 0.9 ** self.age[name])
            v = self.v[name] / (1 - 0.999 ** self.age[name])
            u = m / (np.sqrt(v) + EPS) + DECAY * self.w[name]
            if self.optimizer == "lamb":
                u = u * np.linalg.norm(self.w[name]) / np.linalg.norm(u)
            share = np.minimum(self.run[name] / self.ramp, 1) if self.ramp else 1
            self.w[name] = self.w[name] - RATE * u * share


def apart(step, reference):
    found = {n: dense_adam.dense(step, f"state.params.{n}", f"state.params.{n}") for n in ("w1", "w2")}
    return max(np.abs(found[n] - reference.w[n]).max() for n in found)


def begin(optimizer, block, block_steps=True, ramp=0):
    step = made(optimizer, block, block_steps, ramp)
    for name, value in START.items():
        step.write(f"state.params.{name}", value.astype(np.float32))
    if optimizer == "scaled":
        step.arrays["state.scale"][...] = 2.0**16
    return step, Reference(step, optimizer, ramp)


# The first update of an entry is the sign of its gradient, which rounding may change a little
# where it is as small as epsilon; counts of matrices are off by several rates.
batch = {"batch.x": x.astype(np.float32), "batch.y": y.astype(np.float32)}
for optimizer in ("adamw", "lamb", "scaled"):
    for block, ramp in ((8, 0), ((16, 2), 0), (1, 0), (8, 7), (1, 3)):
        step, reference = begin(optimizer, block, ramp=ramp)
        most, new = 0.0, 0
        for i in range(14):
            overflows = optimizer == "scaled" and i == 5
            if overflows:
                step.arrays["state.scale"][...] = np.inf
            step(**batch)
            reference.step(finite=not overflows)
            if optimizer == "scaled":
                step.arrays["state.scale"][...] = 2.0**16
            most = max(most, apart(step, reference))
            if i % 4 == 3:
                step.update_patterns(0.4, method=dense_adam.Chance())
                new += reference.follow(step)
        print(f"{optimizer} {block} {ramp}: {new > 0} {most < RATE / 20}")
# CHECK: adamw 8 0: True True
# CHECK-NEXT: adamw (16, 2) 0: True True
# CHECK-NEXT: adamw 1 0: True True
# CHECK-NEXT: adamw 8 7: True True
# CHECK-NEXT: adamw 1 3: True True
# CHECK-NEXT: lamb 8 0: True True
# CHECK-NEXT: lamb (16, 2) 0: True True
# CHECK-NEXT: lamb 1 0: True True
# CHECK-NEXT: lamb 8 7: True True
# CHECK-NEXT: lamb 1 3: True True
# CHECK-NEXT: scaled 8 0: True True
# CHECK-NEXT: scaled (16, 2) 0: True True
# CHECK-NEXT: scaled 1 0: True True
# CHECK-NEXT: scaled 8 7: True True
# CHECK-NEXT: scaled 1 3: True True

# Checkpoints are converted with the ages of their blocks, and not without.
folder = sys.argv[2]
step = made("adamw", 8, library=f"{folder}/step.so")
step(**batch)
step.update_patterns(0.4)
step.save(f"{folder}/saved")
made("adamw", 4, library=f"{folder}/other.so")
made("adamw", 8, block_steps=False).save(f"{folder}/old")


def convert(*arguments):
    command = ["sparse-checkpoint", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr.strip()


print(convert("to-dense", "--with-patterns", "saved", "dense"))
print(convert("from-dense", "--step", "step.so", "dense", "again"))
ages = np.array(step.arrays["state.opt.0.count of state.params.w1"])
step = sparse_opt.Step(f"{folder}/step.so")
step.load(f"{folder}/again")
print("ages", np.array_equal(ages, step.arrays["state.opt.0.count of state.params.w1"]), np.unique(ages))
print(convert("reblock", "--step", "other.so", "saved", "none"))
print(convert("reblock", "--step", "step.so", "old", "none"))
# CHECK: ages True [0. 1.]
# CHECK-NEXT: expected 'state.opt.0.count of state.params.w{{[12]}}' in {{.*}}saved', how old each block is, but got other blocks
# CHECK-NEXT: expected 'state.opt.0.count of state.params.w{{[12]}}' in {{.*}}old', how old each block is, but got none
