# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax and attention in NumPy, which what is compiled is compared with; in the types of what they are given."""

import types

import numpy as np


def softmax(x, axis=-1, live=True, empty=np.nan):
    """Probabilities along an axis over the entries that are live, `empty` where no entry is or all are -inf; the largest
    entries, and the sums of the powers of what entries are less than these, both of extent 1 along the axis."""
    x = np.where(live, x, -np.inf)
    largest = x.max(axis, keepdims=True)
    with np.errstate(all="ignore"):
        power = np.exp(x - np.where(np.isinf(largest), 0, largest))
        total = power.sum(axis, keepdims=True)
        p = power / total
    return np.where(np.isneginf(largest), empty, p), largest, total


def softmax_gradient(p, dp, axis=-1):
    """What reaches the entries, from what reaches their probabilities."""
    return p * (dp - (p * dp).sum(axis, keepdims=True))


def attention(q, k, v, dy, scale=1.0, bias=0.0, mask=True, fill=-np.inf, live=True, factor=1.0, empty=np.nan, written=None):
    """Attention of queries [..., i, d] to keys [..., j, d] with values [..., j, e], and its gradients: y, dq, dk, dv,
    dbias, and what they are made of.

    Scores that the mask lacks are `fill`, those that are not live take no part, `factor` is that of probabilities, a row
    that sees nothing is `empty`. Gradients are those of an output `written`, which they read, else of y. Those of keys and
    values that several share are not summed up."""
    turned = lambda array: np.swapaxes(array, -1, -2)
    s = scale * q @ turned(k) + bias
    x = np.where(mask, s, fill)
    p, largest, total = softmax(x, live=live, empty=empty)
    # A row that sees nothing is empty, whatever lies in its columns.
    seen = np.where(live, p, 0)
    dropped = seen * factor
    y = np.where(np.isneginf(largest), empty, dropped @ v)
    dp = dy @ turned(v) * factor
    difference = dp - (dy * (y if written is None else written)).sum(-1, keepdims=True)
    dbias = np.where(np.logical_and(live, mask), seen * difference, 0)
    return types.SimpleNamespace(
        s=s, x=x, seen=seen, dropped=dropped, largest=largest, total=total, difference=difference, y=y,
        dbias=dbias, dq=scale * dbias @ k, dk=scale * turned(dbias) @ q, dv=turned(dropped) @ dy)
