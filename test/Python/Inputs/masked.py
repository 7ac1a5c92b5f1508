# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A masked dense network in float64, in NumPy alone, and a snippet of a page: what layers of
# other frameworks are compared with, and what their section shows.

import pathlib
import re

import numpy as np

RATE, BETAS, EPSILON = 1e-2, (0.9, 0.999), 1e-30


class Masked:
    """`tanh(x W0^T + b0) W1^T + b1`, its mean squared error, and Adam.

    Weights are dense, `[outputs, inputs]`, and masked by blocks of one size.
    """

    def __init__(self, weights, biases, masks, block):
        self.block = block
        self.values = [np.array(v, np.float64) for v in (*weights, *biases)]
        self.masks = [np.array(m) for m in masks]
        self.moments = [[np.zeros_like(v) for v in self.values] for _ in BETAS]
        self.steps = 0

    def _expanded(self, masks):
        """Masks of blocks as masks of all values; those of biases keep all."""
        return [np.kron(m, np.ones((self.block, self.block))) for m in masks] + [1.0, 1.0]

    def step(self, x, target):
        x, target = np.asarray(x, np.float64), np.asarray(target, np.float64)
        wide = self._expanded(self.masks)
        w0, w1, b0, b1 = (v * m for v, m in zip(self.values, wide))
        hidden = np.tanh(x @ w0.T + b0)
        error = hidden @ w1.T + b1 - target
        dy = 2 * error / error.size
        dh = dy @ w1 * (1 - hidden**2)
        gradients = [dh.T @ x, dy.T @ hidden, dh.sum(0), dy.sum(0)]
        # The L1 norms of all blocks' gradients.
        self.scores = [
            np.abs(g).reshape(m.shape[0], self.block, m.shape[1], self.block).sum((1, 3))
            for g, m in zip(gradients, self.masks)
        ]
        self.steps += 1
        means, squares = self.moments
        for i, (gradient, mask) in enumerate(zip(gradients, wide)):
            gradient = gradient * mask
            means[i] = BETAS[0] * means[i] + (1 - BETAS[0]) * gradient
            squares[i] = BETAS[1] * squares[i] + (1 - BETAS[1]) * gradient**2
            mean, square = (m[i] / (1 - b**self.steps) for m, b in zip(self.moments, BETAS))
            self.values[i] = self.values[i] - RATE * mean / (np.sqrt(square) + EPSILON)
            self.values[i] = self.values[i] * mask
        return (error**2).mean()

    def take(self, masks, method, drop):
        """Takes masks after an update; new blocks begin anew. They are what the method chooses."""
        for i, (before, after) in enumerate(zip(self.masks, masks)):
            norms = np.abs(self.values[i]).reshape(
                before.shape[0], self.block, before.shape[1], self.block
            ).sum((1, 3))
            count = int(drop * before.sum())
            dropped, grown = before & ~after, after & ~before
            assert count == dropped.sum() == grown.sum() > 0, (count, dropped.sum(), grown.sum())
            order = np.argsort(np.where(before, norms, np.inf), axis=None)
            assert dropped.ravel()[order[:count]].all()
            if method == "rigl":
                order = np.argsort(np.where(before, -1.0, self.scores[i]), axis=None)
                assert grown.ravel()[order[-count:]].all()
        kept = self._expanded([a & b for a, b in zip(self.masks, masks)])
        for arrays in (self.values, *self.moments):
            for i, mask in enumerate(kept):
                arrays[i] = arrays[i] * mask
        self.masks = [np.array(m) for m in masks]

    def difference(self, weights, biases):
        """The largest one of all values, by the largest value."""
        wide = self._expanded(self.masks)
        return max(
            np.abs(np.asarray(got, np.float64) - v * m).max() / np.abs(v).max()
            for got, v, m in zip((*weights, *biases), self.values, wide)
        )


def snippet(root, word):
    """The first Python of docs/layers.md that has a word."""
    page = (pathlib.Path(root) / "docs" / "layers.md").read_text()
    return next(s for s in re.findall(r"```python\n(.*?)```", page, re.S) if word in s)
