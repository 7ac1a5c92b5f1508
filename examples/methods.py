# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Methods of sparse training in Python: the two that the runtime has, and others.

What papers define for single weights is defined for blocks here: the magnitude of a
block is its L1 norm, and a layer is the bipartite graph of its block rows and columns.
"""

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


class AccumulatedRigL(RigL):
    """Grows by the gradients of the last `steps` steps in front of an update, as options of
    others do (`grad_accumulation_n`, `gradient_acc`). They add up gradients; a step has the
    norms of blocks alone, which are added up here, as the runtime does for rigl with
    `score_steps`. Needs `sparse_opt.Sparsity`."""

    def __init__(self, steps=8):
        self.score_steps, self.sums = steps, {}

    def see(self, weight):
        self.sums[weight.name] = self.sums.get(weight.name, np.float32(0)) + weight.scores

    def grow(self, weight, count):
        scores = self.sums.pop(weight.name, weight.scores)
        return weight.absent[sparse_opt.highest(scores[weight.absent], count)]

    def state_dict(self):
        return {"sums": self.sums}

    def load_state_dict(self, state):
        self.sums = state["sums"]


class SoftMagnitude(SET):
    """Samples what is kept, without replacement, in proportion to magnitude^temperature.

    The rule of removal of CHTs (Zhang et al. 2025), and `magnitude_soft` of others: at 0
    every block is as likely, and the higher the temperature the more it is SET.
    """

    def __init__(self, temperature=3.0):
        self.temperature = temperature

    def drop(self, weight, count):
        # Exponential times of these rates: the first to come are such a sample.
        with np.errstate(divide="ignore"):
            times = weight.rng.exponential(size=len(weight.stored)) / weight.norms("l1") ** self.temperature
        return weight.stored[sparse_opt.highest(times, count)]


class CHT(SET):
    """Grows where the graph of a layer has communities, without gradients: by CH2-L3n
    (Muscoloni et al. 2020; Zhang et al. 2024 and 2025), of equal ones random ones.

    The community of an absent link (u, v) is the nodes on paths of length three from u
    to v; each adds (1 + its links within) / (1 + its links to others but u and v).
    """

    def links(self, weight):
        """The score of every link that is absent, `[block rows, block columns]`."""
        a = np.zeros(weight.grid)
        a.flat[weight.stored] = 1

        def sum_up(a):
            # Of row u and a row z that has v: those columns of z that u has, too, are within, and v is no other.
            within, degree = a @ a.T, a.sum(1)
            np.fill_diagonal(within, 0)
            others = np.maximum(degree - within, 1)
            return np.where(within > 0, (1 + within) / others, 0) @ a

        return sum_up(a) + sum_up(a.T).T

    def grow(self, weight, count):
        scores = self.links(weight).ravel()[weight.absent]
        order = np.lexsort((weight.rng.random(len(scores)), -scores))
        return weight.absent[order[:count]]


class CHTs(CHT, SoftMagnitude):
    """Samples what is kept, and grows by communities (Zhang et al. 2025)."""


class MEST(SET):
    """Drops the blocks of the smallest magnitude plus `by` times their gradient's, grows
    random ones (Yuan et al. 2021). Wants scores of norm l1."""

    needs_scores = True

    def __init__(self, by=1.0):
        self.by = by

    def score(self, weight):
        return weight.norms("l1") + self.by * weight.scores[weight.stored]


class GraNet(RigL):
    """Prunes to `density` over so many updates, by the cube of what is left of them, and
    replaces a share of what stays as RigL does (Liu et al. 2021). It begins with the
    blocks that the step has slots for; the memory stays."""

    def __init__(self, density, updates):
        self.density, self.updates = density, updates

    def update(self, weight, share):
        left = max(0.0, 1 - weight.update / self.updates) ** 3
        end = self.density * weight.grid[0] * weight.grid[1]
        kept = min(len(weight.stored), int(end + (weight.slots - end) * left + 0.5))
        new = min(int(share * kept + 0.5), len(weight.absent))
        return self.drop(weight, len(weight.stored) - kept + new), self.grow(weight, new)


class SRigL(RigL):
    """RigL that takes away neurons, here block rows (Lasby et al. 2024).

    A block is salient that stays by its magnitude, or is one of as many absent ones as go
    that have the largest gradients. A row with fewer than `least` times the mean fan-in of
    the rows that have blocks loses all of them for good, and rows that are left regrow as
    many. Its bias stays. The constant fan-in of the paper is not asked for.
    """

    def __init__(self, least=0.3):
        self.least = least

    def update(self, weight, share):
        rows, cols = weight.grid
        count = self.count(weight, share)
        kept = np.setdiff1d(weight.stored, self.drop(weight, count))
        salient = np.bincount(np.append(kept, self.grow(weight, count)) // cols, minlength=rows)
        is_active = np.bincount(weight.stored // cols, minlength=rows) > 0
        is_left = is_active & (salient >= self.least * len(weight.stored) / max(1, is_active.sum()))
        if not is_left.any():
            is_left[np.argmax(np.where(is_active, salient, -1))] = is_active.any()
        kept = kept[is_left[kept // cols]]
        absent = weight.absent[is_left[weight.absent // cols]]
        new = min(len(weight.stored) - len(kept), len(absent))
        grown = absent[sparse_opt.highest(weight.scores[absent], new)]
        return np.setdiff1d(weight.stored, kept), grown


class DSR(sparse_opt.Method):
    """Drops the smallest blocks of all weights together, and shares what comes among the
    weights in proportion to what they keep (Mostafa and Wang 2019), within their slots.

    Magnitudes are means over a block, so that blocks may be of several sizes. Each weight
    keeps its largest block. Blocks that come are random ones; those of a weight are as many
    of its quotients 1/kept, 2/kept, ... as are among the lowest of all.
    """

    def update_all(self, weights, shares):
        norms = [weight.norms("l1") / np.prod(weight.block) for weight in weights]
        ranked = [np.where(np.arange(len(n)) == np.flatnonzero(n == n.max())[-1:], np.inf, n) if len(n) else n for n in norms]
        count = sum(int(share * len(n) + 0.5) for share, n in zip(shares, norms))
        count = min(count, sum(max(0, len(n) - 1) for n in norms))
        owner = np.repeat(np.arange(len(weights)), [len(n) for n in norms])
        goes = np.zeros(len(owner), bool)
        goes[sparse_opt.lowest(np.concatenate(ranked), count)] = True
        dropped = [weight.stored[goes[owner == i]] for i, weight in enumerate(weights)]
        kept = [len(n) - len(d) for n, d in zip(norms, dropped)]
        room = [min(len(w.absent), w.slots - k) if k else 0 for w, k in zip(weights, kept)]
        quotients = np.concatenate([np.arange(1, r + 1) / max(1, k) for r, k in zip(room, kept)])
        taken = np.repeat(np.arange(len(weights)), room)[sparse_opt.lowest(quotients, min(count, len(quotients)))]
        shared = np.bincount(taken, minlength=len(weights))
        return [(d, weight.random(int(n))) for d, weight, n in zip(dropped, weights, shared)]


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
