# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A step on a GPU, which is the PTX interpreter behind a driver: what it learns is what the
# processor does, with the same calls.

# RUN: env LD_LIBRARY_PATH=%fake_driver %numpy_python -u %s %t.bsr | FileCheck %s
# RUN: env LD_LIBRARY_PATH=%fake_driver FAKE_DRIVER_DEVICES=0 %numpy_python -u %s none | FileCheck %s --check-prefix=NONE

import sys
import warnings

import numpy as np

import sparse_opt
from refusals import refuse
from text_step import TEXT

MARKS = ["match=^w$ block=4x4 density=0.5"]
x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)

if sys.argv[1] == "none":
    # NONE: device cpu, not cuda: expected an NVIDIA GPU, but got CUDA_ERROR_NO_DEVICE
    # NONE: expected an NVIDIA GPU, but got CUDA_ERROR_NO_DEVICE
    with warnings.catch_warnings(record=True) as caught:
        step = sparse_opt.compile(TEXT, MARKS, device="auto")
    print(caught[0].message)
    assert np.isfinite(step(x=x, lr=0.01))
    refuse(sparse_opt.compile, TEXT, MARKS, device="cuda")
    sys.exit()

options = ["--score-norm=l2"]
steps = [sparse_opt.compile(TEXT, MARKS, device=device, seed=3, options=options) for device in ("cpu", "auto")]


def compare(what):
    """Prints how far both are from each other."""
    same = all(np.array_equal(getattr(steps[0].blocks("w"), part), getattr(steps[1].blocks("w"), part))
               for part in ("row_ptr", "col_idx", "slot"))
    near = np.allclose(steps[0].read("w"), steps[1].read("w"), rtol=1e-4, atol=1e-5)
    print(f"{what}: patterns the same {same}, weights near {near}")


# CHECK: started: patterns the same True, weights near True
compare("started")
# CHECK: losses near True
# CHECK-NEXT: trained: patterns the same True, weights near True
losses = np.array([[step(x=x, lr=1e-3) for _ in range(3)] for step in steps])
print("losses near", np.allclose(losses[0], losses[1], rtol=1e-5))
compare("trained")
# CHECK-NEXT: set: patterns the same True, weights near True
# CHECK-NEXT: rigl: patterns the same True, weights near True
# CHECK-NEXT: gmp: patterns the same True, weights near True
for method, more in ("set", {}), ("rigl", {}), ("gmp", {"density": 0.25}):
    for step in steps:
        step(x=x, lr=1e-3, scores=method == "rigl")
        assert step.update_patterns(0.5, method=method, **more) > 0
    compare(method)
# CHECK-NEXT: written: patterns the same True, weights near True
# CHECK-NEXT: parts near True (8, 4, 4) float32 128
for step in steps:
    step.write("w", np.ones((16, 16), np.float32))
    step.arrays["w"][1:3] = 2
compare("written")
there = steps[1].arrays["w"]
print("parts near", np.array_equal(there[1], np.full((4, 4), 2)), there.shape, there.dtype, there.size)
# CHECK-NEXT: restored: patterns the same True, weights near True
steps[1].save(sys.argv[1])
for step in steps:
    step.load(sys.argv[1])
    step(x=x, lr=1e-3)
compare("restored")
