# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A call of XLA's that Python answers.

"""Registers a target of XLA's foreign function interface that is a function of Python's.

XLA hands over the addresses of arrays, and nothing is copied. What is read here is the
layout of version 0.x of the interface in C (`xla/ffi/api/c_api.h` of jaxlib).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

_MAJOR, _MINOR = 0, 1
_METADATA, _EXECUTE, _INTERNAL = 1, 3, 13

_HEAD: list[Any] = [("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p)]


class _Extension(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.c_void_p),
    ]


class _Version(ctypes.Structure):
    _fields_ = [*_HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("version", _Version)]


class _Text(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Buffer(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Buffers(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("items", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    ]


class _Attributes(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("items", ctypes.POINTER(ctypes.POINTER(_Text))),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("args", _Buffers),
        ("rets", _Buffers),
        ("attrs", _Attributes),
    ]


class _ErrorArgs(ctypes.Structure):
    _fields_ = [*_HEAD, ("message", ctypes.c_char_p), ("code", ctypes.c_int)]


_Create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorArgs))


class _Api(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("create_error", ctypes.c_void_p),
    ]


@dataclass
class Memory:
    """An array of XLA's: its address and its shape."""

    address: int
    shape: tuple[int, ...]


# What is given and what is to be written, and a text that the call has.
Function = Callable[[list[Memory], list[Memory], str], None]


def _memories(buffers: _Buffers) -> list[Memory]:
    found = []
    for i in range(buffers.size):
        buffer = buffers.items[i].contents
        found.append(Memory(buffer.data or 0, tuple(buffer.dims[: buffer.rank])))
    return found


def _error(frame: _Frame, error: BaseException) -> Any:
    api = _Api.from_address(frame.api)
    text = f"{type(error).__name__}: {error}".encode()
    args = _ErrorArgs(ctypes.sizeof(_ErrorArgs), None, text, _INTERNAL)
    return _Create(api.create_error)(ctypes.byref(args))


@functools.cache
def register(name: str, function: Function) -> None:
    """Lets `jax.ffi.ffi_call(name, ...)(..., text=...)` call a function, on processors."""

    def answer(pointer: Any) -> Any:
        frame = pointer.contents
        if frame.extension:
            extension = _Extension.from_address(frame.extension)
            if extension.type == _METADATA:
                version = _Metadata.from_address(extension.metadata).version
                version.major, version.minor = _MAJOR, _MINOR
                return None
        if frame.stage != _EXECUTE:
            return None
        try:
            text = frame.attrs.items[0].contents
            what = ctypes.string_at(text.address, text.size).decode()
            function(_memories(frame.args), _memories(frame.rets), what)
        except BaseException as error:
            return _error(frame, error)
        return None

    handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))(answer)
    _KEPT.append(handler)
    capsule = jax.ffi.pycapsule(ctypes.cast(handler, ctypes.c_void_p))  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(name, capsule, platform="cpu")


_KEPT: list[Any] = []  # what XLA calls, as long as it may
