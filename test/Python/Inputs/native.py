# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs an exported step with upstream passes only, as a reference for tests.

"""Compiles an exported step by upstream's plain loops, and runs it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_PASSES = [
    "--one-shot-bufferize=bufferize-function-boundaries"
    " function-boundary-type-conversion=identity-layout-map"
    " allow-return-allocs-from-loops",
    "--canonicalize",
    "--cse",
    "--convert-bufferization-to-memref",
    "--convert-linalg-to-loops",
    "--expand-strided-metadata",
    "--lower-affine",
    "--convert-scf-to-cf",
    "--llvm-request-c-wrappers",
    "--math-expand-ops=ops=rsqrt",
    # Intrinsics first: libm refuses `copysign`.
    "--convert-math-to-llvm",
    "--convert-math-to-libm",
    "--convert-arith-to-llvm",
    "--convert-func-to-llvm",
    "--finalize-memref-to-llvm",
    "--convert-cf-to-llvm",
    "--convert-index-to-llvm",
    "--reconcile-unrealized-casts",
]

_TYPES = {"f32": np.float32, "i32": np.int32, "i1": np.bool_, "f64": np.float64}


def _descriptor(rank: int) -> type[ctypes.Structure]:
    fields = [
        ("base", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
    ]
    if rank:
        fields += [("shape", ctypes.c_int64 * rank), ("strides", ctypes.c_int64 * rank)]
    return type("Descriptor", (ctypes.Structure,), {"_fields_": fields})


def _pass(text: str, *command: str) -> str:
    """Returns what a tool makes of `text`."""
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def run(text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the results of the exported step `text`."""
    signature = re.search(
        r"func\.func public @step\((.*?)\) -> \((.*)\) \{$", text, re.MULTILINE
    )
    results = re.findall(r"tensor<([^>]*)>", signature[2])
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "step.so"
        lowered = _pass(_pass(text, "sparse-opt", "--bsr-bind", "--bsr-drop-barriers"), "mlir-opt", *_PASSES)
        llvm = _pass(lowered, "mlir-translate", "--mlir-to-llvmir")
        subprocess.run(
            ["clang", "-O1", "-x", "ir", "-", "-shared", "-fPIC", "-Wno-override-module",
             "-Wl,-Bsymbolic", "-lm", "-L/usr/lib/llvm-22/lib", "-Wl,-rpath,/usr/lib/llvm-22/lib",
             "-lmlir_c_runner_utils", "-o", str(library)],
            input=llvm, text=True, check=True,
        )  # fmt: skip
        step = ctypes.CDLL(str(library))._mlir_ciface_step

    kept, pointers = [], []
    for argument in arguments:
        array = np.ascontiguousarray(argument)
        descriptor = _descriptor(array.ndim)()
        descriptor.base = descriptor.data = array.ctypes.data
        for i in range(array.ndim):
            descriptor.shape[i] = array.shape[i]
            descriptor.strides[i] = array.strides[i] // array.itemsize
        kept.append((array, descriptor))
        pointers.append(ctypes.byref(descriptor))

    shapes, elements = [], []
    for result in results:
        *dims, element = result.split("x")
        shapes.append(tuple(map(int, dims)))
        elements.append(np.dtype(_TYPES[element]))
    fields = [(f"r{i}", _descriptor(len(shape))) for i, shape in enumerate(shapes)]
    returned = type("Results", (ctypes.Structure,), {"_fields_": fields})()
    step(ctypes.byref(returned), *pointers)

    values = []
    for i, (shape, dtype) in enumerate(zip(shapes, elements)):
        descriptor = getattr(returned, f"r{i}")
        size = int(np.prod(shape)) * dtype.itemsize
        address = descriptor.data + descriptor.offset * dtype.itemsize
        values.append(
            np.frombuffer(ctypes.string_at(address, size), dtype).reshape(shape)
        )
    return values
