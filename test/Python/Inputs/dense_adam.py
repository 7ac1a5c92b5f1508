# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Adam with decoupled decay on a dense matrix times a mask, in float64.

import numpy as np
import sparse_opt

# What new blocks begin with, in each way of both.
STARTS = [(values, state) for values in ("zero", "random") for state in ("first", "mean", "kept")]


class Chance(sparse_opt.Method):
    """Prunes any blocks, so that new ones grow old: those of zeros would go first."""

    def score(self, weight):
        return weight.rng.random(len(weight.stored))


def slots_of(step, name):
    """Returns the slots of a step's blocks by their places."""
    blocks = step.blocks(name)
    rows = np.repeat(np.arange(len(blocks.row_ptr) - 1), np.diff(blocks.row_ptr))
    return {(int(r), int(c)): int(s) for r, c, s in zip(rows, blocks.col_idx, blocks.slot)}


def dense(step, name, buffer):
    """Returns a buffer of blocks as a matrix, with zeros where none is stored."""
    pattern, values = step.patterns[name], np.asarray(step.arrays[buffer], np.float64)
    matrix = np.zeros((pattern.rows, pattern.cols))
    for place, slot in slots_of(step, name).items():
        matrix[part(pattern, place)] = values[slot]
    return matrix


def part(pattern, place):
    rows, cols = pattern.block_rows, pattern.block_cols
    (r, c) = place
    return slice(r * rows, (r + 1) * rows), slice(c * cols, (c + 1) * cols)


class Adam:
    """A weight of a compiled step and its moments beside that step.

    Attributes:
      random: the values that blocks got which began with random ones.
    """

    def __init__(self, step, name, lr, decay, gradient_of, b1=0.9, b2=0.999, eps=1e-8):
        self.name, self.pattern = name, step.patterns[name]
        self.lr, self.decay, self.gradient_of = lr, decay, gradient_of
        self.b1, self.b2, self.eps = b1, b2, eps
        self.w, self.count, self.random = dense(step, name, name), 0, []
        self.m, self.v = np.zeros_like(self.w), np.zeros_like(self.w)
        self.slots = slots_of(step, name)

    def step(self, *batch):
        mask = np.zeros_like(self.w)
        for place in self.slots:
            mask[part(self.pattern, place)] = 1
        g = self.gradient_of(self.w, *batch) * mask
        self.count += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g * g
        m = self.m / (1 - self.b1**self.count)
        v = self.v / (1 - self.b2**self.count)
        self.w -= self.lr * (m / (np.sqrt(v) + self.eps) + self.decay * self.w)
        self.w *= mask

    def regrow(self, step, values, state):
        """Follows an update of the step's pattern; returns how many blocks are new."""
        old, self.slots = self.slots, slots_of(step, self.name)
        kept = [place for place in self.slots if place in old]
        was_in = {slot: place for place, slot in old.items()}
        now = dense(step, self.name, self.name)
        for tensor in (self.w, self.m, self.v):
            before, tensor[:] = tensor.copy(), 0
            for place in kept:
                tensor[part(self.pattern, place)] = before[part(self.pattern, place)]
            mean = np.mean([before[part(self.pattern, place)] for place in kept])
            for place, slot in self.slots.items():
                here = part(self.pattern, place)
                if place in old:
                    continue
                if tensor is self.w and values == "random":
                    tensor[here] = now[here]
                    self.random.append(now[here])
                elif tensor is not self.w and state == "mean":
                    tensor[here] = mean
                elif tensor is not self.w and state == "kept":
                    tensor[here] = before[part(self.pattern, was_in[slot])]
        return len(self.slots) - len(kept)
