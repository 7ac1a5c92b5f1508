# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The processes that train together, as an MPI started them.

"""Means over the processes of a run, and what all of them must have alike."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparse_opt import _library
from sparse_opt._errors import StepError
from sparse_opt._description import Array


class Ranks:
    """This process among those of a run: rank 0 to `size` - 1.

    All of them call the methods together, in the same order.
    """

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self._library = _library.library()
        self.rank = int(self._library.bsr_communicator_rank(handle))
        self.size = int(self._library.bsr_communicator_size(handle))

    def broadcast(self, array: Array) -> None:
        """Gives all processes the elements that `array`, which is contiguous, has at rank 0."""
        if not array.nbytes:
            return
        _library.check(
            self._library.bsr_communicator_broadcast(
                self.handle, ctypes.c_void_p(array.ctypes.data),
                ctypes.c_int64(array.nbytes), ctypes.c_int32(0),
            )
        )  # fmt: skip

    def broadcast_bytes(self, data: bytes) -> bytes:
        """Returns what rank 0 calls it with."""
        size = np.array([len(data)], np.int64)
        self.broadcast(size)
        array = np.zeros(int(size[0]), np.uint8)
        if self.rank == 0:
            array[...] = np.frombuffer(data, np.uint8)
        self.broadcast(array)
        return array.tobytes()

    def require_same(self, hashes: Mapping[str, int]) -> None:
        """Raises `StepError`, with the first name, where a process has another hash."""
        # One at least: gathering is also waiting.
        own = np.array([*hashes.values(), 0], np.uint64)
        every = np.empty((self.size, len(own)), np.uint64)
        _library.check(
            self._library.bsr_communicator_gather(
                self.handle, ctypes.c_void_p(own.ctypes.data),
                ctypes.c_int64(own.nbytes), ctypes.c_void_p(every.ctypes.data),
            )
        )  # fmt: skip
        for index, name in enumerate(hashes):
            for rank in range(1, self.size):
                if every[rank, index] != every[0, index]:
                    raise StepError(
                        f"expected rank {rank} to have the {name} of rank 0, but got"
                        " another"
                    )


def hash_of(*arrays: Any) -> int:
    """Returns a number that tells what is in arrays, which are contiguous, or bytes."""
    hash = hashlib.blake2b(digest_size=8)
    for array in arrays:
        hash.update(array)
    return int.from_bytes(hash.digest(), "little")


@functools.cache
def _open() -> Ranks:
    """Joins the other processes, once: MPI runs already, or starts."""
    library, handle = _library.library(), ctypes.c_void_p()
    _library.check(library.bsr_communicator_open(b"mpi", ctypes.byref(handle)))
    # Before the end of MPI, which mpi4py registers when it is imported.
    atexit.register(library.bsr_communicator_close, handle)
    return Ranks(handle)


def ranks_of(comm: Any) -> Ranks | None:
    """Returns the processes of an mpi4py communicator or of "mpi", or None for none.

    Raises:
      StepError: it is no communicator, or not one of all processes in their order.
    """
    if comm is None:
        return None
    if comm == "mpi":
        return _open()
    if not hasattr(comm, "Get_rank") or not hasattr(comm, "Get_size"):
        raise StepError(
            "expected 'mpi' or a communicator of mpi4py such as MPI.COMM_WORLD, but got"
            f" {comm!r}"
        )
    ranks = _open()
    if (ranks.rank, ranks.size) != (comm.Get_rank(), comm.Get_size()):
        raise StepError(
            "expected a communicator of all processes in their order, as MPI.COMM_WORLD"
            f" is: rank {ranks.rank} of {ranks.size}, but got rank {comm.Get_rank()} of"
            f" {comm.Get_size()}"
        )
    return ranks
