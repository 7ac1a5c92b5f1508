# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Bags of embeddings, gradients by frequency, and BatchNorm that averages all batches.

# RUN: %python %s | FileCheck %s --implicit-check-not=apart

import torch
from torch import nn

from twins import compare

torch.manual_seed(0)
ids = [torch.randint(0, 8, (4, 6)) for _ in range(3)]


class Bags(nn.Module):
    """Bags of tokens; a table of zeros has equal rows."""

    def __init__(self, takes=lambda bag, x: bag(x), zero=False, **options):
        super().__init__()
        self.bag, self.out, self.takes = nn.EmbeddingBag(8, 5, **options), nn.Linear(5, 3), takes
        if zero:
            nn.init.zeros_(self.bag.weight)

    def forward(self, x):
        return self.out(self.takes(self.bag, x)) + 1.0


def of_offsets(bag, x):
    return bag(x.flatten(), torch.tensor([0, 2, 2, 9]))


def of_last(bag, x):
    return bag(x.flatten(), torch.tensor([0, 2, 2, 9, 24]))


def weighted(bag, x):
    return bag(x, per_sample_weights=x.float() / 8)


# CHECK-COUNT-10: : equal
for mode in ("sum", "mean", "max"):
    compare(f"{mode}", lambda: Bags(mode=mode), ids)
    compare(f"{mode}, offsets", lambda: Bags(of_offsets, mode=mode, padding_idx=3), ids)
compare("max, equal", lambda: Bags(mode="max", zero=True), ids)
compare("padding", lambda: Bags(mode="mean", padding_idx=-1), ids)
compare("last offset", lambda: Bags(of_last, include_last_offset=True, scale_grad_by_freq=True), ids)
compare("weighted", lambda: Bags(weighted, mode="sum"), ids)


class Frequent(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 5, padding_idx=2, scale_grad_by_freq=True)

    def forward(self, x):
        return self.table(x) + 1.0


# CHECK: frequency: equal
compare("frequency", Frequent, ids)


# CHECK: averages 1d: equal
# CHECK: averages 2d: equal
images = [torch.randn(3, 2, 4, 4) + i for i in range(4)]
compare("averages 1d", lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=None)), [x.float() for x in ids])
# Both are 2e-7 from float64; near 0, where a mean is, that is more of it.
compare("averages 2d", lambda: nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3, momentum=None)), images, tolerance=1e-4)
