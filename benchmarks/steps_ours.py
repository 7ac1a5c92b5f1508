# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The step of examples/, compiled by this project and run by its runtime."""

import array
import ctypes
import gzip
import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys
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


def find_source(model, name):
    """The text of the step: of examples/, or exported by JAX if the model has another batch or is not there."""
    import steps

    generate = harness.ROOT / "examples" / "generate.py"
    file = f"{name if name.startswith(('gpt2', 'llama')) else f'bert_{name}'}.mlir.gz"
    path = generate.with_name(file)
    if model != steps.MODELS[name] or not path.exists():
        if not importlib.util.find_spec("jax"):
            raise ImportError("expected JAX, which exports the step")

        def export(path):
            environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "python")}
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run([sys.executable, generate, name, "--batch", str(model.batch), "--tokens", str(model.tokens),
                                "--output-dir", folder], check=True, stdout=subprocess.DEVNULL, env=environment)
                path.write_bytes((pathlib.Path(folder) / file).read_bytes())

        path = harness.cached(file, f"{model}{generate.read_text()}", export)
    return gzip.decompress(path.read_bytes())


def make_step(model, batch, rate, threads, name, density, block="16x16", match=r"layers\..*_w$", attention=None):
    """`density` of the matrices that `match` names is stored: the encoder's."""
    marks = [f"--mark=match={match} block={block} density={density}"]
    if attention:
        marks += [f"--mark=attention=. {attention}", "--attention-keys=1"]
    runtime = load_runtime()
    source = find_source(model, name)

    def check(status):
        if status:
            raise RuntimeError(runtime.bsr_last_error().decode())

    step, session = ctypes.c_void_p(), ctypes.c_void_p()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([harness.find_tool("sparse-compile"), "-", "-o", f"{folder}/step.so", *marks], input=source, check=True)
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
