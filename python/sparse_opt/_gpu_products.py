# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Products with one block-sparse matrix, launched on the caller's memory of a GPU.

"""The products of `_products`, on a GPU: each is compiled for a few numbers of tokens, and
its kernels are launched on the caller's memory and stream (`bsr_launch_rows`)."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparse_opt import _compiler, _library, _product_text, _products, _runtime, cache
from sparse_opt._errors import StepError
from sparse_opt._products import Matrix, Wanted

# Tokens of a launch, the most first. Rows of any type begin at lines of memory there.
SIZES = (4096, 512, 64)


@dataclass(frozen=True)
class Place:
    """Where kernels run.

    Attributes:
      device: as the runtime calls it: `cuda:0`.
      target: the chip that kernels are compiled for: `sm_90a`.
      stream: the address of a CUstream; 0 for the default stream of the GPU.
      is_captured: whether a graph records what the stream is given.
    """

    device: str
    target: str
    stream: int
    is_captured: bool = False


# Takes so many bytes of the GPU's memory; returns their address, a multiple of 64, and what
# holds them.
Allocate = Callable[[int], tuple[int, Any]]


class _RowFunction(ctypes.Structure):
    """bsr_gpu_row_function of bsr/rows.h."""

    _fields_ = [
        ("rows", ctypes.c_int64),
        ("function", ctypes.c_void_p),
        ("plans", ctypes.c_void_p),
        ("has_plans", ctypes.c_int32),
    ]


class _RowKernel(ctypes.Structure):
    """bsr_gpu_row_kernel."""

    _fields_ = [
        ("functions", ctypes.POINTER(_RowFunction)),
        ("num_functions", ctypes.c_int64),
        ("buffers", ctypes.POINTER(_products.RowBuffer)),
        ("num_buffers", ctypes.c_int64),
        ("num_addresses", ctypes.c_int64),
    ]


@functools.cache
def _launch_rows() -> Any:
    runtime = _library.library()
    runtime.bsr_gpu_function_plan_bytes.restype = ctypes.c_int64
    pointer = ctypes.c_void_p
    function = runtime.bsr_launch_rows
    function.argtypes = [
        pointer, pointer, ctypes.c_int64, pointer, pointer, pointer, pointer,
    ]  # fmt: skip
    return function


class _Kernel:
    """What is wanted, as it is compiled for a few numbers of tokens, when these are first
    needed, and loaded on a GPU."""

    def __init__(
        self, matrix: Matrix, wanted: Wanted, device: str, target: str, sizes: tuple[int, ...]
    ) -> None:
        self._matrix, self._wanted = matrix, wanted
        self._device, self._target, self.sizes = device, target, sizes
        # Never unloaded: graphs of the caller may have them.
        self.functions: list[ctypes.c_void_p | None] = [None] * len(sizes)
        self.buffers: list[_products.RowBuffer] = []
        self.names: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def load(self, index: int) -> None:
        """Loads the function for a number of tokens, and compiles it before that."""
        with self._lock:
            if self.functions[index] is not None:
                return
            text = _product_text.text_of(
                self._matrix, self.sizes[index], self._wanted, always_weight=True
            )
            options = [f"--target={self._target}"]
            path = cache.library(
                text, options, lambda path: _compiler.run(text, path, [], options)
            )
            step = _runtime.Step(str(path))
            if not self.names:
                described = [(b.kind, b.name) for b in step.buffers]
                self.buffers, self.names = _products.describe(self._matrix, described)
            self.functions[index] = step.load_rows(self._device)


class Plans:
    """What a kernel makes of one pattern, in one stream, and keeps from call to call."""

    def __init__(self, kernel: _Kernel) -> None:
        self._kernel = kernel
        rows = map(_RowFunction, kernel.sizes)
        self._functions = (_RowFunction * len(kernel.sizes))(*rows)
        self._held: list[Any] = []
        self._bytes: dict[int, int] = {}  # of work memory, by numbers of tokens
        self._lock = threading.Lock()

    def forget(self) -> None:
        """The pattern has changed."""
        for function in self._functions:
            function.has_plans = 0

    def run(
        self, tokens: int, addresses: dict[str, int], place: Place, allocate: Allocate
    ) -> None:
        """Launches the kernel on memory at addresses, by name."""
        with self._lock:
            self._run(tokens, addresses, place, allocate)

    def _run(
        self, tokens: int, addresses: dict[str, int], place: Place, allocate: Allocate
    ) -> None:
        launch = _launch_rows()
        missing = ctypes.c_int64(-1)
        while True:
            names, buffers = self._kernel.names, self._kernel.buffers
            array = (_products.RowBuffer * len(buffers))(*buffers)
            kernel = _RowKernel(
                self._functions, len(self._functions), array, len(buffers), len(names)
            )
            size = ctypes.c_int64(self._bytes.get(tokens, 0))
            work, held = allocate(size.value) if size.value else (0, None)
            status = launch(
                ctypes.byref(kernel),
                (ctypes.c_void_p * len(names))(*[addresses[name] for name in names]),
                tokens,
                work,
                ctypes.byref(size),
                place.stream,
                ctypes.byref(missing),
            )
            _library.check(status)
            if missing.value >= 0:
                self._load(missing.value, place, allocate)
            elif size.value <= self._bytes.get(tokens, 0):
                return
            else:
                self._bytes[tokens] = size.value
            # What a stream was given keeps its memory by the order of the stream.
            del held

    def _load(self, index: int, place: Place, allocate: Allocate) -> None:
        if place.is_captured:
            raise StepError(
                f"expected a call with as many tokens, and its backward pass, in front of the"
                f" capture of a graph, but got the first one within it: kernels for"
                f" {self._kernel.sizes[index]} tokens are loaded then"
            )
        self._kernel.load(index)
        row = self._functions[index]
        function = self._kernel.functions[index]
        assert function is not None
        if bytes := _library.library().bsr_gpu_function_plan_bytes(function):
            row.plans, held = allocate(bytes)
            self._held.append(held)
        row.function = function


@functools.cache
def _kernel(
    matrix: Matrix, wanted: Wanted, device: str, target: str, sizes: tuple[int, ...]
) -> _Kernel:
    return _Kernel(matrix, wanted, device, target, sizes)


def plans_of(
    matrix: Matrix, wanted: Wanted, place: Place, sizes: tuple[int, ...] = SIZES
) -> Plans:
    """Returns the plans of a pattern that has none yet, of what is wanted at a place."""
    return Plans(_kernel(matrix, wanted, place.device, place.target, sizes))
