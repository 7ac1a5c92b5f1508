# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several evaluations at once, which tell what an error may be.

Every float array of the reference has a first axis of runs:

  0      float64, nothing rounded (infinities where the element type has them)
  1      every result rounded to its element type
  2...   every result changed at random by up to a roundoff of its element type, sums by
         a roundoff of the sum of magnitudes; the last run by four times that

Results of the compiled step must be as near to run 0 as the other runs are, times a
constant (`tolerance`): an ill-conditioned program is allowed what its own roundings do to it,
and a well-conditioned one a few units in the last place.
"""

import numpy as np

# Roundoff, largest finite number plus half a unit, smallest subnormal number.
KINDS = {
    "f64": (2.0**-51, np.inf, 2.0**-1074),  # four: the interpreter rounds too, and a change of one is rounded away
    "f32": (2.0**-24, 2.0**128 - 2.0**103, 2.0**-149),
    "f16": (2.0**-11, 65520.0, 2.0**-24),
    "bf16": (2.0**-8, 2.0**128 - 2.0**119, 2.0**-133),
}
NUM_RUNS = 6


def is_float(kind):
    return kind in KINDS


def round_to(array, kind):
    """Nearest numbers of `kind`, ties to even, in float64."""
    with np.errstate(all="ignore"):
        return _round_to(array, kind)


def _round_to(array, kind):
    if kind == "f64":
        return array
    if kind == "f32":
        return array.astype(np.float32).astype(np.float64)
    if kind == "f16":
        return array.astype(np.float16).astype(np.float64)
    # Through f32, to odd, so that what follows rounds once.
    shape, array = np.shape(array), np.atleast_1d(array)
    narrow = array.astype(np.float32)
    bits = narrow.view(np.uint32)
    inexact = (narrow.astype(np.float64) != array) & np.isfinite(narrow)
    above = inexact & (np.abs(narrow.astype(np.float64)) > np.abs(array))
    bits = (bits - above.astype(np.uint32)) | inexact.astype(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    result = rounded.view(np.float32).astype(np.float64)
    return np.where(np.isnan(array), np.nan, np.where(np.isinf(array), array, result)).reshape(shape)


class Rounding:
    """What happens to each result of an operation."""

    def __init__(self, seed, scale=1.0):
        random = np.random.default_rng(seed)
        self.scale = scale
        self.noise = random.uniform(-1, 1, 1 << 18)
        self.noise[np.abs(self.noise) < 0.25] *= 4
        self.start = 0

    def sample(self, shape):
        size = int(np.prod(shape))
        if size > len(self.noise):
            return np.random.default_rng(self.start).uniform(-1, 1, shape)
        self.start = (self.start * 7 + 12345) % (len(self.noise) - size + 1)
        return self.noise[self.start:self.start + size].reshape(shape)

    def finish(self, array, kind, magnitude=None, factor=1.0, inner=None):
        """`array` as an operation of `kind` may compute it: exact, rounded, changed.

        `magnitude` is that of the terms of a sum, summed in the kind `inner`."""
        array = np.broadcast_to(array, (NUM_RUNS,) + array.shape[1:]).copy()
        unit, largest, tiny = KINDS[kind]
        array[1] = round_to(array[1], kind)
        noisy = array[2:]
        size = unit * factor * np.abs(noisy) + (noisy != 0) * tiny
        if magnitude is not None:
            size = size + KINDS[inner or kind][0] * magnitude
        size *= self.scale
        size[-1] *= 4
        noisy += self.sample(noisy.shape) * size
        if largest < np.inf:
            over = np.abs(array) >= largest
            if over.any():
                array[over] = np.copysign(np.inf, array[over])
        return array


def tolerance(runs, kind):
    """How far a result may be from run 0, element by element; NaN where nothing is known.

    32 times what the roundings of this element did in any run, 8 times what those of an element
    in the middle did (an element's own may cancel by chance), two roundoffs."""
    unit, _, tiny = KINDS[kind]
    with np.errstate(all="ignore"):
        deviation = np.abs(runs[1:] - runs[:1]).max(0)
        finite = np.isfinite(runs).all(0)
        middle = np.median(deviation[finite]) if finite.any() else 0.0
        bound = 32 * deviation + 8 * middle + 2 * unit * np.abs(runs[0]) + 2 * tiny
    return np.where(finite, bound, np.nan)
