# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A step on a GPU, which is the PTX interpreter behind a driver: what it learns is what the
# processor does, with the same calls.

# REQUIRES: ptx-run
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

# Memory is shared by DLPack: an array of one step is an argument of another, without the host.
# CHECK-NEXT: shared: patterns the same True, weights near True
# CHECK-NEXT: shared (2, 0) (16, 16) f32 True True 0
from sparse_opt import _dlpack, _runtime  # noqa: E402

source = sparse_opt.compile(TEXT, MARKS, device="cuda", seed=4)
source.write("x", 2 * x)
steps[0](x=2 * x, lr=1e-3)
steps[1](x=source.arrays["x"], lr=1e-3)
compare("shared")
taken = _dlpack.take(source.arrays["x"], stream=_dlpack.LEGACY_STREAM)
again = _dlpack.take(source.arrays["x"], stream=-1)
print("shared", taken.device, taken.shape, taken.type, taken.is_contiguous, taken.address == again.address, end=" ")
del taken, again
print(len(_dlpack._given))


class Strided:
    """Every second column of an array."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **more):
        address, gpu = source._session.device_data(source.buffers["x"])
        capsule = _dlpack.give(address, (2, gpu), (16, 16), "f32", self)
        managed = next(reversed(_dlpack._given.values()))
        self.strides = (_dlpack.ctypes.c_int64 * 2)(32, 2)
        managed[0].tensor.strides = self.strides
        return capsule


# CHECK-NEXT: expected an array in the host's memory, but got one on cuda:0
refuse(steps[0], x=source.arrays["x"], lr=1e-3)
# CHECK-NEXT: expected a contiguous array on cuda:0 for 'x', but got a strided one on cuda:0
refuse(steps[1], x=Strided(source.arrays["x"]), lr=1e-3)
# CHECK-NEXT: expected 'x' of shape [16, 16], but got [8, 4, 4]: a compiled step has one shape, export the step again for another
refuse(steps[1], x=source.arrays["w"], lr=1e-3)
# CHECK-NEXT: expected a session on a GPU, but got one on cpu
refuse(steps[0]._session.device_data, steps[0].buffers["x"])
# CHECK-NEXT: expected no copy of the array and none on another device
try:
    source.arrays["x"].__dlpack__(copy=True)
except BufferError as error:
    print(error)
