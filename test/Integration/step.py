# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles and runs steps, for tests that compare them with numpy.

    outputs = step.run("step.mlir", ["--mark=match=w block=4x4 density=0.5"],
                       {"w": values, "batch.x": x}, {"w": mask})

Arrays are named by `bsr.name`. bf16 is held in uint16 (see to_bf16, from_bf16).
"""

import ctypes
import json
import os
import subprocess
import tempfile

import numpy as np

TYPES = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
    "i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64,
}
VIEWS = ["row_ptr", "col_idx", "slot", "col_ptr", "row_idx", "slot_t"]


def to_bf16(array):
    """Rounds to bf16, ties to even."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).reshape(np.shape(array))


def from_bf16(array):
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)


def aligned(shape, dtype):
    """An array that starts on a cache line, filled with bytes that show."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.full(size + 64, 0x5A, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + size].view(dtype).reshape(shape)


def views(mask, slots=None, order=None):
    """The index arrays of the blocks where `mask` (block rows x block columns) is
    true. `order[k]` is the slot of the k-th block in row order (default: k). Entries
    past the last block are -1: no kernel may use them."""
    rows, cols = np.nonzero(mask)
    count = len(rows)
    slots = count if slots is None else slots
    order = np.arange(count) if order is None else np.asarray(order)

    def fill(entries):
        array = np.full(slots, -1, np.int32)
        array[:count] = entries
        return array

    def pointers(lines, extent):
        return np.concatenate([[0], np.cumsum(np.bincount(lines, minlength=extent))]).astype(np.int32)

    by_column = np.lexsort((rows, cols))
    return {
        "row_ptr": pointers(rows, mask.shape[0]), "col_idx": fill(cols), "slot": fill(order),
        "col_ptr": pointers(cols, mask.shape[1]), "row_idx": fill(rows[by_column]),
        "slot_t": fill(order[by_column]),
    }


def to_dense(values, mask, order=None):
    """The dense matrix of stored blocks."""
    rows, cols = np.nonzero(mask)
    order = np.arange(len(rows)) if order is None else order
    br, bc = values.shape[1:]
    dense = np.zeros((mask.shape[0] * br, mask.shape[1] * bc), values.dtype)
    for row, col, slot in zip(rows, cols, order):
        dense[row * br:(row + 1) * br, col * bc:(col + 1) * bc] = values[slot]
    return dense


def to_values(dense, mask, block, slots=None, order=None):
    """The stored blocks of a dense matrix; slots without a block hold NaN."""
    rows, cols = np.nonzero(mask)
    order = np.arange(len(rows)) if order is None else order
    br, bc = block
    values = np.full((len(rows) if slots is None else slots, br, bc), np.nan, dense.dtype)
    for row, col, slot in zip(rows, cols, order):
        values[slot] = dense[row * br:(row + 1) * br, col * bc:(col + 1) * bc]
    return values


class Context(ctypes.Structure):
    """bsr_context of bsr/step.h, for a run on the host."""
    _fields_ = [("version", ctypes.c_int32), ("device", ctypes.c_int32), ("communicator", ctypes.c_void_p),
                ("error", ctypes.c_int32)]

    def __init__(self, version=1, device=0):
        super().__init__(version, device)


class Step:
    """A compiled step: a shared library with its manifest."""

    def __init__(self, path):
        self.library = ctypes.CDLL(os.path.abspath(path))
        self.manifest = json.loads(ctypes.string_at(
            ctypes.addressof(ctypes.c_char.in_dll(self.library, "bsr_step_manifest"))))
        assert ctypes.c_uint32.in_dll(self.library, "bsr_step_abi_version").value == 1

    def make_buffers(self, arrays, patterns={}, orders={}):
        """Copies `arrays` into buffers. `patterns` maps the names of patterns to block
        masks or to index arrays (see views), `orders` to slots. Returns the buffers in
        the manifest's order, and the arena, in which scores lie."""
        buffers = []
        arena = aligned([self.manifest["arena_bytes"]], np.uint8)
        for buffer in self.manifest["buffers"]:
            if buffer["kind"] == "scores":
                start, size = buffer["arena_offset"], 4 * int(np.prod(buffer["shape"]))
                buffers.append(arena[start:start + size].view(np.float32).reshape(buffer["shape"]))
                continue
            array = aligned(buffer["shape"], TYPES[buffer["type"]])
            name, kind = buffer["name"], buffer["kind"]
            if kind in VIEWS:
                pattern = patterns[name]
                if not isinstance(pattern, dict):
                    slots = self.manifest["patterns"][buffer["pattern"]]["slots"]
                    pattern = views(pattern, slots, orders.get(name))
                array[...] = pattern[kind]
            elif kind != "output":
                given = np.asarray(arrays[name])
                assert given.shape == array.shape, (name, given.shape, array.shape)
                array[...] = given
            buffers.append(array)
        return buffers, arena

    def bind(self, arrays, patterns={}, orders={}, entry="bsr_step_run"):
        """Makes buffers (see make_buffers). Returns them, and a function that runs the
        step's `entry` on them once."""
        buffers, arena = self.make_buffers(arrays, patterns, orders)
        pointers = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
        function = getattr(self.library, entry)
        return buffers, lambda context=Context(): function(
            ctypes.byref(context), pointers, ctypes.c_void_p(arena.ctypes.data))

    def run(self, arrays, patterns={}, orders={}, threads=None, steps=1, entry="bsr_step_run"):
        """Runs `steps` times on copies of `arrays` (see bind). Returns the carried
        arrays, the outputs and the scores ("scores.<weight>") by name."""
        buffers, run_once = self.bind(arrays, patterns, orders, entry)
        # A step without parallel loops has no OpenMP.
        if threads is not None and hasattr(self.library, "omp_set_num_threads"):
            self.library.omp_set_num_threads(threads)
        for _ in range(steps):
            assert run_once() == 0
        return {
            ("scores." if described["kind"] == "scores" else "") + described["name"]: buffer
            for described, buffer in zip(self.manifest["buffers"], buffers)
            if described["carried"] or described["kind"] in ("output", "scores")
        }


def share(cases):
    """The cases that are run: of those that BSR_SHARE=K/N says, every N-th from the K-th on, every other one; which
    half, BSR_TURN says, an even number or an odd one. With BSR_ALL=1 all are run."""
    if os.environ.get("BSR_ALL") == "1":
        return list(cases)
    first, of = map(int, os.environ.get("BSR_SHARE", "0/1").split("/"))
    mine = list(cases)[first::of]
    return mine[int(os.environ.get("BSR_TURN", "0")) % 2 :: 2] or mine


def is_scalar():
    """True if BSR_COMPILE asks for plain loops."""
    return "--target=scalar" in os.environ.get("BSR_COMPILE", "")


def is_gpu():
    """True if BSR_COMPILE asks for kernels of a GPU, which gpu.py interprets."""
    return "--target=gpu" in os.environ.get("BSR_COMPILE", "")


def has_pairs():
    """True if kernels multiply pairs of bf16, as BSR_COMPILE asks for, or BSR_PAIRS=1 says."""
    return os.environ.get("BSR_PAIRS") == "1" or any(
        option == "--emulate-instructions" or option.startswith("--bf16-dots=")
        for option in os.environ.get("BSR_COMPILE", "").split())


def has_tiles():
    """True if kernels multiply tiles of bf16, as BSR_COMPILE asks for."""
    return any(option.startswith("--bf16-tiles=") for option in os.environ.get("BSR_COMPILE", "").split())


def is_aarch64():
    """True if BSR_COMPILE asks for kernels of AArch64, which aarch64.py has emulated."""
    return "--target-triple=aarch64" in os.environ.get("BSR_COMPILE", "")


def compile(source, arguments=()):
    """Compiles `source`, a path or MLIR text, with sparse-compile; BSR_COMPILE holds more arguments."""
    more = os.environ.get("BSR_COMPILE", "").split()
    if is_gpu():
        import gpu  # which imports this
        return gpu.compile(source, arguments)
    arguments = [*arguments, *more]
    with tempfile.TemporaryDirectory() as directory:
        library = os.path.join(directory, "step.so")
        text = None if os.path.exists(source) else source
        subprocess.run(
            ["sparse-compile", *arguments, "-o", library, "-" if text else source],
            input=text, text=True, check=True)
        if is_aarch64():
            import aarch64  # which imports this
            return aarch64.Step(library)
        return Step(library)


def run(source, arguments, arrays, patterns={}, **options):
    """Compiles `source` and runs it once; see compile and Step.run."""
    return compile(source, arguments).run(arrays, patterns, **options)
