# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# How far a compiled step may be from its program, and how that is measured.

# RUN: %numpy_python %s | FileCheck %s

import numpy as np

from sparse_opt import _check
from sparse_opt._distance import distance

rng = np.random.default_rng(0)

# One pass over pieces of arrays finds what plain operations find, for entries that are unsure by tens or by half, for
# numbers whose squares are none of f32, and for numbers that are none.

# CHECK: no unsure entry: True
# CHECK-NEXT: few: True
# CHECK-NEXT: half: True
# CHECK-NEXT: tiny: True
# CHECK-NEXT: huge: True
# CHECK-NEXT: infinite: True
# CHECK-NEXT: nothing: True


def plain(got, value, before, unsure):
    with np.errstate(all="ignore"):
        apart, moved = (got - value).astype(np.float64), (value - before).astype(np.float64)
    apart[got == value] = 0
    unsure = np.zeros(value.shape, bool) if unsure is None else unsure
    root = lambda x: float(np.sqrt((x**2).mean())) if x.size else 0.0
    most = lambda x: float(np.abs(x).max()) if x.size else 0.0
    sure, rest, moved = apart[~unsure], apart[unsure], moved[np.isfinite(moved)]
    return [most(sure), root(sure), most(rest), most(moved), root(moved), most(value[np.isfinite(value)])]


def compare(name, scale=1.0, share=None, count=150_000, infinite=()):
    before, value, got = (rng.normal(size=count).astype(np.float32) for _ in range(3))
    value, got = before + 0.1 * value, before + 0.1 * value + 1e-3 * got
    before, value, got = ((a * np.float32(scale)).astype(np.float32) for a in (before, value, got))
    for place in infinite:
        value[place] = got[place] = np.inf
    unsure = None if share is None else rng.random(count) < share
    d = distance(got, value, before, unsure, None)
    found = [*d.sure, d.unsure, *d.change, d.size]
    print(f"{name}: {np.allclose(found, plain(got, value, before, unsure), rtol=1e-4, atol=0) and d.is_number}")


compare("no unsure entry")
compare("few", share=1e-3)
compare("half", share=0.5)
compare("tiny", scale=1e-30)
compare("huge", scale=1e30)
compare("infinite", infinite=(3, 70_000))
compare("nothing", count=0)

# A number that only one of both has.
# CHECK-NEXT: a number: False
ones = np.ones(100_000, np.float32)
got = ones.copy()
got[70_000] = np.nan
print("a number:", distance(got, ones, ones, None, None).is_number)

# Of what an optimizer moves all entries by alike, as Adam does, one may be as much further away as its gradient is
# smaller than the largest: where a unit is on or off by rounding, another gradient of a hundredth of the largest is allowed,
# too. All together may not.

rate, count = 1e-3, 1 << 20
gradient = rng.normal(size=count).astype(np.float32)
largest = np.abs(gradient).max()
before = rng.normal(0, 0.02, count).astype(np.float32)
value = before - np.float32(rate) * np.sign(gradient)


def check(name, change, gradient=gradient, kind="parameter"):
    got = value.copy()
    change(got)
    expected = _check.Expected(
        "w", kind, value, None, before, None, epsilon=2.0**-23, coarsest=2.0**-23, is_marked=False,
        decode=lambda array: array, gradient=gradient,
    )  # fmt: skip
    expected.compare(got)
    ((_, bounds),) = _check._bounds([expected])
    _, difference = _check._difference(expected, bounds)
    print(f"{name}: {'allowed' if difference is None else difference}")


def move(place, by):
    def change(got):
        got[place] += by * rate

    return change


small = np.argmin(np.abs(np.abs(gradient) - 0.005 * largest))
typical = np.argmin(np.abs(np.abs(gradient) - 0.2 * largest))

# CHECK-NEXT: a small gradient: allowed
# CHECK-NEXT: no gradient to know: 'w' 0.0009{{.*}} away, of which rounding explains 1{{.*}}e-05
# CHECK-NEXT: a typical one: 'w' 0.0009{{.*}} away
# CHECK-NEXT: a small one, by much: 'w' 0.006 away
# CHECK-NEXT: many small ones: 'w' 7e-06 away
# CHECK-NEXT: all by 1 %: 'w' 1e-05 away, of which rounding explains 1.1e-06
# CHECK-NEXT: none moves: 'w' 0.001 away, of which rounding explains 1.1e-06
check("a small gradient", move(small, 0.9))
check("no gradient to know", move(small, 0.9), gradient=None)
check("a typical one", move(typical, 0.9))
check("a small one, by much", move(small, 6.0))
check("many small ones", move(np.flatnonzero(np.abs(gradient) < 0.005 * largest)[:64], 0.9))
check("all by 1 %", lambda got: np.subtract(got, 0.01 * (before - value), out=got))
check("none moves", lambda got: np.copyto(got, before))
