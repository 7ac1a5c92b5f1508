# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# communicator.py LIBRARY: one process of several that an MPI started. Takes means of
# numbers of all types and compares them with NumPy's, added in the order of the ranks.

import ctypes
import sys

import numpy as np

runtime = ctypes.CDLL(sys.argv[1])
runtime.bsr_last_error.restype = ctypes.c_char_p
ALL_REDUCE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
F16, F32, F64 = 0, 2, 3
TYPES = {F16: np.float16, F32: np.float32, F64: np.float64}


def check(status):
    if status:
        sys.exit("error: " + runtime.bsr_last_error().decode())


def numbers(rank, count, kind):
    return np.random.default_rng([rank, count]).standard_normal(count).astype(TYPES[kind])


communicator = ctypes.c_void_p()
check(runtime.bsr_communicator_open(b"mpi", ctypes.byref(communicator)))
rank, size = runtime.bsr_communicator_rank(communicator), runtime.bsr_communicator_size(communicator)
all_reduce = ALL_REDUCE(ctypes.cast(communicator, ctypes.POINTER(ctypes.c_void_p))[0])
for kind in TYPES:
    # The last is two segments of 2^24 bytes and a part of one.
    for count in (0, 1, 3, 1000, 2 * 2**24 // TYPES[kind]().itemsize + 5):
        data = numbers(rank, count, kind)
        all_reduce(communicator, data.ctypes.data, count, kind)
        wide = np.float64 if kind == F64 else np.float32
        total = numbers(0, count, kind).astype(wide)
        for other in range(1, size):
            total += numbers(other, count, kind).astype(wide)
        mean = (total / wide(size)).astype(TYPES[kind])
        assert data.tobytes() == mean.tobytes(), (rank, kind, count)
text = ctypes.create_string_buffer(b"of rank %d" % rank)
check(runtime.bsr_communicator_broadcast(communicator, text, ctypes.c_int64(9), size - 1))
assert text.value == b"of rank %d" % (size - 1), text.value
check(runtime.bsr_communicator_close(communicator))
if rank == 0:
    print(f"{size} processes agree")
