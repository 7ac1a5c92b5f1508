# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory, a stream and graphs of the first GPU, by the driver's own functions."""

import contextlib
import ctypes

import numpy as np


class GPU:
    """The first GPU, whose context becomes that of the thread, and a stream."""

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.check("cuCtxSetCurrent", context)
        self.check("cuStreamCreate", ctypes.byref(stream), 1)
        self.stream = stream.value

    def check(self, name, *arguments):
        status = getattr(self._driver, name)(*arguments)
        assert not status, f"expected {name} to succeed, but got {status}"

    def allocate(self, bytes):
        address = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(bytes, 1)))
        return address.value

    def take(self, bytes):
        """As frameworks give memory to kernels: its address, and what holds it, which is here nothing."""
        return self.allocate(bytes), None

    def free(self, address):
        self.check("cuStreamSynchronize", ctypes.c_void_p(self.stream))
        self.check("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address, array):
        self.check("cuStreamSynchronize", ctypes.c_void_p(self.stream))
        array = np.ascontiguousarray(array)
        self.check("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))

    def put(self, array):
        address = self.allocate(array.nbytes)
        self.write(address, array)
        return address

    def read(self, address, like):
        """What lies there, as an array of the shape and type of `like`."""
        self.check("cuStreamSynchronize", ctypes.c_void_p(self.stream))
        array = np.empty_like(like, order="C")
        self.check("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes))
        return array

    @contextlib.contextmanager
    def capture(self):
        """Yields a graph, which has what the stream is given meanwhile."""
        graph = Graph(self)
        stream = ctypes.c_void_p(self.stream)
        self.check("cuStreamBeginCapture_v2", stream, 0)
        try:
            yield graph
        finally:
            self.check("cuStreamEndCapture", stream, ctypes.byref(graph.graph))


class Graph:
    def __init__(self, gpu):
        self.gpu, self.graph = gpu, ctypes.c_void_p()

    def launch(self):
        made = ctypes.c_void_p()
        self.gpu.check("cuGraphInstantiateWithFlags", ctypes.byref(made), self.graph, ctypes.c_uint64(0))
        self.gpu.check("cuGraphLaunch", made, ctypes.c_void_p(self.gpu.stream))


def store(kind, array):
    """Numbers as bits of a type, rounded to nearest even: float32, float16, float64, or uint16 of bf16."""
    if kind != "bf16":
        return np.asarray(array, {"f64": np.float64, "f32": np.float32, "f16": np.float16}[kind])
    bits = np.asarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def load(kind, bits):
    """The numbers in float64."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.float64)
