# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Arrays in the memory of GPUs.

"""Arrays that are not NumPy's: those of a step on a GPU, and of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_opt import _dlpack
from sparse_opt._description import Array, Buffer
from sparse_opt._errors import StepError
from sparse_opt._library import DTYPES, TYPES

if TYPE_CHECKING:
    from sparse_opt._runtime import Session


def as_array(value: Any) -> Any:
    """Returns an array in the host's memory, or a `ForeignArray` on a GPU."""
    where = getattr(value, "__dlpack_device__", None)
    if where is not None and not isinstance(value, np.ndarray):
        if where()[0] == _dlpack.CUDA:
            return ForeignArray(value)
    return np.asarray(value)


class ForeignArray:
    """An array of another library in a GPU's memory, taken by DLPack."""

    def __init__(self, value: Any) -> None:
        self._value = value
        # Nothing is read yet.
        tensor = _dlpack.take(value, stream=-1)
        self.shape, self.gpu = tensor.shape, tensor.device[1]
        self.dtype = np.dtype(DTYPES[TYPES.index(tensor.type)])
        self.is_contiguous = tensor.is_contiguous

    def take(self, stream: int) -> _dlpack.Tensor:
        """Returns the memory, ready for what is given to `stream` next."""
        return _dlpack.take(self._value, stream=stream)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise StepError(
            f"expected an array in the host's memory, but got one on cuda:{self.gpu}"
        )


class DeviceArray:
    """A buffer on a device, read and written like a NumPy array: by copies.

    What is written to a part of it is written to a copy, which then goes back. By
    DLPack, as with `torch.from_dlpack`, others share its memory.
    """

    def __init__(self, session: Session, buffer: Buffer) -> None:
        self._session, self._buffer = session, buffer
        self.shape, self.dtype = buffer.shape, np.dtype(buffer.dtype)
        self.size = int(np.prod(buffer.shape, dtype=np.int64))

    def copy(self) -> Array:
        """Returns the buffer's elements."""
        array: Array = np.empty(self.shape, self.dtype)
        self._session.read(self._buffer, array)
        return array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.CUDA, self._session.device_data(self._buffer)[1]

    def __dlpack__(self, *, stream: int | None = None, **more: Any) -> Any:
        """Returns the buffer's memory: what is written there, the next run reads.

        The consumer's stream waits for the runs before. Before the next run, the
        caller has to wait for what it has given to its own stream.
        """
        address, gpu = self._session.device_data(self._buffer)
        if more.get("copy") or more.get("dl_device") not in (None, (_dlpack.CUDA, gpu)):
            raise BufferError("expected no copy of the array and none on another device")
        if stream != -1:
            self._session.let_wait(stream or _dlpack.LEGACY_STREAM)
        device = (_dlpack.CUDA, gpu)
        # The memory lives as long as the session.
        return _dlpack.give(address, device, self.shape, self._buffer.type, self._session)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.copy() if dtype is None else self.copy().astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        return self.copy()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is ... and isinstance(value, ForeignArray):
            self._session.copy_from(self._buffer, value)
            return
        array = np.empty(self.shape, self.dtype) if key is ... else self.copy()
        array[key] = value
        self._session.write(self._buffer, array)
