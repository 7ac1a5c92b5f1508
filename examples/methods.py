# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Methods of sparse training in Python: the two that the runtime has, and one that
it has not."""

import numpy as np

import sparse_opt


class SET(sparse_opt.Method):
    """Drops the blocks of the smallest L1 norm, grows random ones (Mocanu et al. 2018)."""

    def score(self, weight):
        return weight.norms("l1")

    def grow(self, weight, count):
        return weight.random(count)


class RigL(SET):
    """Grows the blocks of the largest gradients instead (Evci et al. 2020)."""

    needs_scores = True

    def grow(self, weight, count):
        return weight.largest_scores(count)


class Momentum(sparse_opt.Method):
    """Grows where neighbours have the largest momentum, and remembers for how many
    updates each block was stored, the youngest being spared."""

    def __init__(self, patience=2):
        self.patience = patience
        self.ages = {}

    def score(self, weight):
        ages = self.ages.setdefault(weight.name, np.zeros(np.prod(weight.grid), np.int32))
        is_young = ages[weight.stored] < self.patience
        return np.where(is_young, np.inf, weight.norms("l2"))

    def grow(self, weight, count):
        # The first moment of each stored block, summed over its row and its column.
        moment = np.abs(next(iter(weight.moments.values()))[weight.slot]).sum((1, 2))
        rows, cols = np.divmod(weight.stored, weight.grid[1])
        by_row = np.bincount(rows, moment, weight.grid[0])
        by_col = np.bincount(cols, moment, weight.grid[1])
        rows, cols = np.divmod(weight.absent, weight.grid[1])
        return weight.absent[sparse_opt.highest(by_row[rows] + by_col[cols], count)]

    def update(self, weight, share):
        dropped, grown = super().update(weight, share)
        ages = self.ages[weight.name]
        ages[weight.stored] += 1
        ages[dropped] = ages[grown] = 0
        return dropped, grown

    def state_dict(self):
        return {"ages": self.ages}

    def load_state_dict(self, state):
        self.ages = state["ages"]
