# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The step of examples/, compiled by this project and run by its runtime."""

import array
import ctypes
import gzip
import itertools
import pathlib
import subprocess
import tempfile

import harness

DENSE_BUFFER = 0  # BSR_DENSE of bsr/runtime.h


def load_runtime():
    """The runtime of the compiler's build: another one may be instrumented."""
    build = pathlib.Path(harness.find_tool("sparse-compile")).resolve().parent.parent
    library = ctypes.CDLL(str(build / "lib" / "libbsr_runtime.so"))
    library.bsr_last_error.restype = ctypes.c_char_p
    for name in ("bsr_step_find_role", "bsr_step_find_buffer"):
        getattr(library, name).restype = ctypes.c_int64
    return library


def make_step(model, batch, rate, threads, name, density, block="16x16"):
    """`density` of the encoder's matrices is stored."""
    runtime = load_runtime()
    source = gzip.decompress((harness.ROOT / "examples" / f"bert_{name}.mlir.gz").read_bytes())

    def check(status):
        if status:
            raise RuntimeError(runtime.bsr_last_error().decode())

    step, session = ctypes.c_void_p(), ctypes.c_void_p()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([harness.find_tool("sparse-compile"), "-", "-o", f"{folder}/step.so",
                        rf"--mark=match=layers\..*_w$ block={block} density={density}"], input=source, check=True)
        check(runtime.bsr_step_load(f"{folder}/step.so".encode(), ctypes.byref(step)))
    check(runtime.bsr_session_create(step, b"cpu", ctypes.c_uint64(1), ctypes.byref(session)))
    check(runtime.bsr_session_initialize(session))

    def copy(function, index, values, size):
        check(function(session, ctypes.c_int64(index), ctypes.c_int64(0), ctypes.c_int64(size), values))

    for key, rows in batch.items():
        values = array.array("f" if isinstance(rows[0][0], float) else "i", itertools.chain(*rows))
        index = runtime.bsr_step_find_buffer(step, DENSE_BUFFER, f"batch.{key}".encode())
        copy(runtime.bsr_session_write, index, ctypes.c_void_p(values.buffer_info()[0]),
             len(values) * values.itemsize)
    copy(runtime.bsr_session_write, runtime.bsr_step_find_role(step, b"lr"), ctypes.byref(ctypes.c_float(rate)), 4)
    loss, loss_index = ctypes.c_float(), runtime.bsr_step_find_role(step, b"loss")

    def run():
        check(runtime.bsr_session_run(session))
        copy(runtime.bsr_session_read, loss_index, ctypes.byref(loss), 4)
        return loss.value

    return run
