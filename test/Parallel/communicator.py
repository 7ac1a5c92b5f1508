# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# communicator.py LIBRARY [COUNT]: one process of several that an MPI started. Takes means of numbers of all types and
# compares them with NumPy's, added in the order of the ranks; sends, shards, broadcasts and gathers bytes. With
# BSR_MPI_MESSAGE_BYTES, the most that the MPI takes at once, all of that is longer than a message. With COUNT it takes
# the mean of as many bf16 instead, and sends as many bytes; it needs about 3 * COUNT bytes a process.

import ctypes
import os
import sys

import numpy as np

runtime = ctypes.CDLL(sys.argv[1])
runtime.bsr_last_error.restype = ctypes.c_char_p
ADDRESS, LONG, INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
# The table of functions that steps call: their places in bsr/step.h, and what they take behind the communicator.
TABLE = {"all_reduce": (0, ADDRESS, LONG, INT), "send": (3, ADDRESS, LONG, INT), "receive": (4, ADDRESS, LONG, INT),
         "shard": (5, ADDRESS, LONG, ADDRESS, LONG), "unshard": (6, ADDRESS, LONG, ADDRESS, LONG)}
F16, BF16, F32, F64 = range(4)
TYPES = {F16: np.float16, BF16: np.uint16, F32: np.float32, F64: np.float64}


def check(status):
    if status:
        sys.exit("error: " + runtime.bsr_last_error().decode())


communicator = ctypes.c_void_p()
check(runtime.bsr_communicator_open(b"mpi", ctypes.byref(communicator)))
rank, size = runtime.bsr_communicator_rank(communicator), runtime.bsr_communicator_size(communicator)
addresses = ctypes.cast(communicator, ctypes.POINTER(ADDRESS))


def call(name, *arguments):
    place, *types = TABLE[name]
    values = (a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments)
    ctypes.CFUNCTYPE(None, ADDRESS, *types)(addresses[place])(communicator, *values)


def widen(data, kind):
    """Numbers of `kind` as those in which sums are taken."""
    if kind == BF16:
        return (data.astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float64 if kind == F64 else np.float32)


def narrow(numbers, kind):
    """Rounds to nearest, ties to even."""
    if kind != BF16:
        return numbers.astype(TYPES[kind])
    bits = numbers.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def numbers(rank, count, kind):
    return narrow(np.random.default_rng([rank, count]).standard_normal(count), kind)


def mean(make, kind):
    """The mean of make(rank) of all ranks."""
    total = widen(make(0), kind)
    for other in range(1, size):
        total += widen(make(other), kind)
    return narrow(total / total.dtype.type(size), kind)


def compare(count, message):
    for kind, dtype in TYPES.items():
        for length in (0, 1, 3, count, 2 * message // dtype().itemsize + 5):
            data = numbers(rank, length, kind)
            call("all_reduce", data, length, kind)
            expected = mean(lambda other: numbers(other, length, kind), kind)
            assert data.tobytes() == expected.tobytes(), (rank, kind, length)
    # To all others, and from all others: everybody sends first.
    length = 3 * message + 5
    text = lambda sender: np.resize(np.arange(251, dtype=np.uint8) + sender, length)
    others = [other for other in range(size) if other != rank]
    for other in others:
        call("send", text(rank), length, other)
    for other in others:
        received = np.empty(length, np.uint8)
        call("receive", received, length, other)
        assert np.array_equal(received, text(other)), (rank, other)
    own = -(-length // size)
    first = min(rank * own, length - own)
    part, whole = np.empty(own, np.uint8), np.zeros(length, np.uint8)
    call("shard", text(7), length, part, own)
    assert np.array_equal(part, text(7)[first:first + own]), rank
    call("unshard", part, own, whole, length)
    assert np.array_equal(whole, text(7)), rank
    data = text(rank)
    check(runtime.bsr_communicator_broadcast(communicator, ADDRESS(data.ctypes.data), LONG(length), size - 1))
    assert np.array_equal(data, text(size - 1)), rank
    gathered = np.empty((size, length), np.uint8)
    data = text(rank)
    check(runtime.bsr_communicator_gather(communicator, ADDRESS(data.ctypes.data), LONG(length), ADDRESS(gathered.ctypes.data)))
    assert all(np.array_equal(gathered[other], text(other)) for other in range(size)), rank


def compare_large(count):
    """Means of `count` bf16, and a message of as many bytes, from rank to rank."""
    pieces = range(0, count, 2**24)
    make = lambda at, other: narrow(((np.arange(at, min(at + 2**24, count)) % 65521) * (other + 1)).astype(np.float32), BF16)
    data = np.empty(count, np.uint16)
    for at in pieces:
        data[at:at + 2**24] = make(at, rank)
    call("all_reduce", data, count, BF16)
    for at in pieces:
        assert np.array_equal(data[at:at + 2**24], mean(lambda other: make(at, other), BF16)), (rank, at)
    text = data.view(np.uint8)[:count]
    if rank == 0 and size > 1:
        call("send", text, count, 1)
    if rank == 1:
        expected = text.copy()
        text[:] = 0
        call("receive", text, count, 0)
        assert np.array_equal(text, expected), rank


if len(sys.argv) > 2:
    compare_large(int(sys.argv[2]))
else:
    compare(1000, int(os.environ.get("BSR_MPI_MESSAGE_BYTES", 2**20)))
check(runtime.bsr_communicator_close(communicator))
if rank == 0:
    print(f"{size} processes agree")
