# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Tensors of other libraries, by the DLPack protocol (dmlc.github.io/dlpack, version 1).

"""Gives memory to other libraries, and takes theirs, without a copy."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparse_opt._errors import StepError

CUDA = 2  # kDLCUDA
LEGACY_STREAM = 1  # CU_STREAM_LEGACY, the default stream

# Codes and bits of element types.
_TYPES = {
    "i1": (6, 8), "i8": (0, 8), "i32": (0, 32), "i64": (0, 64),
    "ui8": (1, 8), "ui32": (1, 32), "ui64": (1, 64),
    "f16": (2, 16), "f32": (2, 32), "f64": (2, 64), "bf16": (4, 16),
}  # fmt: skip


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    """DLManagedTensor."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [
    ("tensor", _Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
]
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_NAME = b"dltensor"

_given: dict[int, Any] = {}  # what others hold, by the address of its structure


def _delete(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _destroy(capsule: int) -> None:
    """A capsule that was not consumed yet."""
    if _is_valid(ctypes.c_void_p(capsule), ctypes.c_char_p(_NAME)):
        _given.pop(_pointer(ctypes.c_void_p(capsule), ctypes.c_char_p(_NAME)), None)


# C has their addresses: they live as long as the module.
_deleter, _destructor = _Deleter(_delete), _Destructor(_destroy)


def give(
    address: int, device: tuple[int, int], shape: Sequence[int], type: str, owner: Any
) -> Any:
    """Returns a capsule of contiguous memory, which keeps `owner` alive."""
    managed = _Managed()
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    tensor = managed.tensor
    tensor.data, (tensor.device_type, tensor.device) = address, device
    tensor.ndim, (tensor.code, tensor.bits) = len(shape), _TYPES[type]
    tensor.lanes, tensor.shape = 1, extents
    managed.deleter = _deleter
    _given[ctypes.addressof(managed)] = managed, extents, owner
    return _new(ctypes.addressof(managed), _NAME, _destructor)


@dataclass(frozen=True)
class Tensor:
    """What a capsule holds; `capsule` keeps it alive."""

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    type: str
    is_contiguous: bool
    capsule: Any


def take(value: Any, stream: int) -> Tensor:
    """Returns the memory of an object with `__dlpack__`, ready for `stream`."""
    capsule = value.__dlpack__(stream=stream)
    address = _pointer(ctypes.py_object(capsule), ctypes.c_char_p(_NAME))
    tensor = _Managed.from_address(address).tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    codes = {code: name for name, code in _TYPES.items()}
    name = codes.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise StepError(
            f"expected elements of {', '.join(_TYPES)}, but got DLPack's type"
            f" {tensor.code} of {tensor.bits} bits"
        )
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    is_contiguous = not tensor.strides or all(
        extent == 1 or given == stride
        for extent, given, stride in zip(
            shape, tensor.strides[: tensor.ndim], strides
        )
    )
    return Tensor(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device),
        shape,
        name,
        is_contiguous,
        capsule,
    )
