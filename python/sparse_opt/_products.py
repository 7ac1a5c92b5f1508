# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Products with one block-sparse matrix, called on the caller's memory.

"""The products of a linear layer, for any number of tokens.

Each is compiled for a few numbers of tokens; a call takes as many of the largest as fit,
then smaller ones, the last of which sees zeros where tokens are missing. A matrix of
the shape `[rows, cols]` makes `y = x w^T + b` of activations `x`, `[tokens, cols]`. Its
stored blocks lie in `values`, `[slots, block rows, block columns]`, and where they are,
six arrays of indices say (docs/manifest.md), which lie behind each other in `pattern`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from sparse_opt import _compiler, _given, _library, _product_text, _progress, _tools, cache
from sparse_opt._errors import StepError
from sparse_opt._product_text import Operands

# Tokens of a call, the most first.
_SIZES = (256, 64, 8)
_LINE = 64  # bytes of a cache line, to which memory is aligned

ITEMSIZES = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2}
VIEWS = ("row_ptr", "col_idx", "slot", "col_ptr", "row_idx", "slot_t")


@dataclass(frozen=True)
class Matrix:
    """The type of a block-sparse matrix."""

    rows: int
    cols: int
    block_rows: int
    block_cols: int
    slots: int
    type: str  # of its values and of activations: f32, bf16, ...

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __hash__(self) -> int:
        # It is looked up at each call of a layer.
        return self._hash

    @property
    def grid(self) -> tuple[int, int]:
        return self.rows // self.block_rows, self.cols // self.block_cols

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many indices each of `VIEWS` has."""
        rows, cols = self.grid
        return rows + 1, self.slots, self.slots, cols + 1, self.slots, self.slots

    def fan_in_factors(self, pattern: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns for each slot by what values that were drawn for all inputs are multiplied,
        to be those for the stored ones of their block row (docs/sparsity.md); 1 of slots
        without a block."""
        rows, _ = self.blocks_of(pattern)
        is_stored = rows >= 0
        counts = np.bincount(rows[is_stored], minlength=self.grid[0])
        factors = np.ones(self.slots)
        factors[is_stored] = np.sqrt(self.grid[1] / counts[rows[is_stored]])
        return factors

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of tokens that kernels are compiled for."""
        return _SIZES

    def operands(self, tokens: int) -> Operands:
        """Returns how a program of so many tokens has activations."""
        return Operands(self, tokens)

    def row_bytes(self, name: str) -> int:
        """How many bytes a token has in x, y and the like; 0 of what has none for each."""
        features = {"x": self.cols, "dx": self.cols, "y": self.rows, "z": self.rows}
        return (features | {"dy": self.rows}).get(name, 0) * ITEMSIZES[self.type]

    @functools.cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where they begin in a pattern, and where that ends; each at a line of memory."""
        at, found = 0, []
        for length in self.lengths:
            found.append(at)
            at += -(-length // (_LINE // 4)) * (_LINE // 4)
        return *found, at

    def pattern_of(self, mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns the pattern of the blocks where `mask`, `[block rows, block columns]`, is
        true: slots in the order of rows. There are as many as slots."""
        rows, cols = np.nonzero(mask)
        if mask.shape != self.grid or len(rows) != self.slots:
            raise StepError(
                f"expected {self.slots} of {self.grid[0]}x{self.grid[1]} blocks, but got"
                f" {len(rows)} of {'x'.join(map(str, mask.shape))}"
            )
        counts = np.bincount(rows, minlength=self.grid[0])
        row_ptr = np.concatenate([[0], np.cumsum(counts)])
        return self.pattern_from(row_ptr, cols, np.arange(self.slots))

    def pattern_at(self, places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns the pattern of blocks at distinct places, counted by rows of blocks."""
        mask = np.zeros(self.grid[0] * self.grid[1], np.bool_)
        mask[places] = True
        return self.pattern_of(mask.reshape(self.grid))

    def pattern_from(
        self,
        row_ptr: np.ndarray[Any, Any],
        cols: np.ndarray[Any, Any],
        slots: np.ndarray[Any, Any],
    ) -> np.ndarray[Any, Any]:
        """Returns the pattern of blocks that are given by rows: at most one for each slot."""
        rows = np.repeat(np.arange(self.grid[0]), np.diff(row_ptr))
        order = np.lexsort((rows, cols))
        counts = np.bincount(cols, minlength=self.grid[1])
        col_ptr = np.concatenate([[0], np.cumsum(counts)])
        pattern = np.zeros(self.offsets[-1], np.int32)
        views = (row_ptr, cols, slots, col_ptr, rows[order], slots[order])
        for start, view in zip(self.offsets, views):
            pattern[start : start + len(view)] = view
        return pattern

    def rows_of(self, pattern: Any) -> tuple[Any, Any, Any]:
        """Returns `row_ptr`, and of each stored block, by rows, its column and its slot, of an
        array or a tensor of any device."""
        starts = self.offsets
        row_ptr = pattern[starts[0] : starts[0] + self.grid[0] + 1]
        count = int(row_ptr[-1])
        cols, slots = (pattern[start : start + count] for start in starts[1:3])
        return row_ptr, cols, slots

    def obstacle(self, pattern: np.ndarray[Any, Any]) -> str:
        """Returns why an array is no pattern of this matrix, or ''."""
        if pattern.dtype != np.int32 or pattern.shape != (self.offsets[-1],):
            return f"{pattern.dtype} of shape {list(pattern.shape)}"
        views = [pattern[a : a + n] for a, n in zip(self.offsets, self.lengths)]
        row_ptr, col_idx, slot, col_ptr, row_idx, slot_t = views
        count = int(row_ptr[-1])
        for ptr in (row_ptr, col_ptr):
            if ptr[0] or ptr[-1] != count or (np.diff(ptr) < 0).any():
                return "another number of blocks in each line"
        if not 0 <= count <= self.slots:
            return f"{count} blocks in {self.slots} slots"
        for where, most in ((col_idx, self.grid[1]), (row_idx, self.grid[0])):
            if count and not 0 <= where[:count].min() <= where[:count].max() < most:
                return "a block outside of the matrix"
        rows, cols = (np.repeat(np.arange(p.size - 1), np.diff(p)) for p in (row_ptr, col_ptr))
        for slots in (slot[:count], slot_t[:count]):
            if count and (slots.min() < 0 or slots.max() >= self.slots):
                return "a slot that is none"
            if np.unique(slots).size != count:
                return "two blocks in one slot"
        one, two = np.full((2, self.slots), -1), np.full((2, self.slots), -1)
        one[:, slot[:count]] = rows, col_idx[:count]
        two[:, slot_t[:count]] = row_idx[:count], cols
        return "" if np.array_equal(one, two) else "rows and columns that do not agree"

    def blocks_of(self, pattern: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        """Returns the block row and the block column of each slot; of one without a block
        -1."""
        row_ptr, col_idx, slot = self.rows_of(pattern)
        rows = np.full(self.slots, -1)
        cols = np.full(self.slots, -1)
        rows[slot] = np.repeat(np.arange(self.grid[0]), np.diff(row_ptr))
        cols[slot] = col_idx
        return rows, cols


def matrix_of(shape: Any, block: Any, density: Any) -> Matrix:
    """Returns the type, of float32, of a matrix of which a share of the blocks is stored."""
    if not isinstance(shape, (list, tuple)) or len(shape) != 2:
        raise _given.refusal("the shape of a weight, (outputs, inputs)", shape)
    outputs = _given.size("outputs", shape[0])
    inputs = _given.size("inputs", shape[1])
    rows, cols = block_of((outputs, inputs), block)
    blocks = (outputs // rows) * (inputs // cols)
    slots = _library.density_blocks(_given.density(density), blocks)
    return Matrix(outputs, inputs, rows, cols, slots, "f32")


def is_stored_fan_in(fan_in: Any) -> bool:
    """Returns whether first values of a layer are for the inputs that are stored."""
    if fan_in not in ("dense", "rows"):
        raise _given.refusal(
            "fan_in 'dense' or 'rows' of a layer, whose weight is [outputs, inputs]", fan_in
        )
    return bool(fan_in == "rows")


def block_of(shape: tuple[int, int], block: Any) -> tuple[int, int]:
    """Returns the rows and columns of blocks that divide a matrix."""
    rows, cols = _given.block(block)
    if shape[0] % rows or shape[1] % cols:
        raise StepError(
            f"expected blocks that divide the weight, {shape[0]}x{shape[1]} (outputs by"
            f" inputs), but got {rows}x{cols}"
        )
    return rows, cols


@dataclass(frozen=True)
class Wanted:
    """What a kernel computes: the result, with a bias or without; gradients; or scores."""

    y: bool = False
    bias: bool = False  # that is added to y, or the gradient of which is
    dx: bool = False
    dw: bool = False
    scores: str = ""  # the norm of each block of the gradient of the dense weight
    # Of y, or of what gradients are those of: one of `_activations.NAMES`.
    activation: str = ""
    z: bool = False  # what the activation is applied to, which its gradient needs
    of_x: str = ""  # the activation of x that is multiplied, of the same names

    def describe(self) -> str:
        """Returns in words what tells kernels of a matrix apart."""
        parts = [name for name in ("y", "z", "dx", "dw", "bias") if getattr(self, name)]
        of_x = f"of {self.of_x}" if self.of_x else ""
        return " ".join([*parts, *filter(None, (self.scores, self.activation, of_x))])


@dataclass(frozen=True)
class Threads:
    """On how many threads kernels run, and whose: of LLVM's OpenMP runtime, or, with the
    library that `callers_threads` returns, those that the caller's library computes on."""

    count: int
    library: str = ""


@functools.cache
def callers_threads(path: str) -> str:
    """Returns the library to link kernels with, to run them on the threads of the OpenMP
    runtime that the library `path` is linked with; '' if it has none."""
    threads = _tools.find_library(_tools.THREADS)
    try:
        handle = ctypes.CDLL(threads)
        caller = ctypes.CDLL(path)
    except OSError:
        return ""
    return threads if handle.bsr_threads_use(ctypes.c_void_p(caller._handle)) else ""


class _RowFunction(ctypes.Structure):
    """bsr_row_function of bsr/rows.h."""

    _fields_ = [
        ("rows", ctypes.c_int64),
        ("run", ctypes.c_void_p),
        ("arena_bytes", ctypes.c_int64),
    ]


class RowBuffer(ctypes.Structure):
    """bsr_row_buffer."""

    _fields_ = [
        ("row_bytes", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("address", ctypes.c_int32),
        ("is_result", ctypes.c_int32),
    ]


class _RowKernel(ctypes.Structure):
    """bsr_row_kernel."""

    _fields_ = [
        ("functions", ctypes.POINTER(_RowFunction)),
        ("num_functions", ctypes.c_int64),
        ("buffers", ctypes.POINTER(RowBuffer)),
        ("num_buffers", ctypes.c_int64),
        ("num_addresses", ctypes.c_int64),
    ]


class _Scratch(threading.local):
    """Memory of a thread: one call uses it at a time."""

    def __init__(self) -> None:
        self.threads: Threads | None = None  # that OpenMP was last set to
        self.memory: dict[str, tuple[Any, int]] = {}

    def take(self, name: str, bytes: int) -> int:
        """Returns the address of at least so many bytes, aligned to a line."""
        array, address = self.memory.get(name, (None, 0))
        if array is None or array.nbytes < bytes + _LINE:
            array = np.empty(bytes + _LINE, np.uint8)
            address = -(-array.ctypes.data // _LINE) * _LINE
            self.memory[name] = array, address
        return address


_scratch = _Scratch()

move = ctypes.memmove


def copied(address: int, bytes: int, name: str) -> int:
    """Returns the address of a copy, at a line of memory, that the thread's next copy of
    this name takes the place of."""
    place = _scratch.take(name, bytes)
    ctypes.memmove(place, address, bytes)
    return place


def integers_at(address: int, count: int) -> np.ndarray[Any, Any]:
    """Returns integers of 32 bits where they lie."""
    return np.ctypeslib.as_array((ctypes.c_int32 * count).from_address(address))


_WAITING = ("KMP_BLOCKTIME", "KMP_USE_YIELD", "KMP_LIBRARY", "OMP_WAIT_POLICY")


def _limit_spinning(loaded: ctypes.CDLL) -> None:
    """Lets threads sleep soon when they wait, unless the environment says how, as the
    runtime does for steps (runtime/step/OpenMPRuntime.cpp): those of a framework run in between.
    The first call counts."""
    set_defaults = getattr(loaded, "kmp_set_defaults", None)
    if set_defaults is not None and not any(name in os.environ for name in _WAITING):
        set_defaults(b"KMP_BLOCKTIME=50us|KMP_USE_YIELD=0")


@functools.cache
def _run_rows() -> Any:
    function = _library.library().bsr_run_rows
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, pointer, ctypes.c_int64, pointer]
    return function


class _Kernel:
    """What is wanted, as it is compiled for a few numbers of tokens, when these are first
    needed."""

    def __init__(
        self, matrix: Matrix, wanted: Wanted, library: str, sizes: tuple[int, ...]
    ) -> None:
        self._matrix, self._wanted, self._library = matrix, wanted, library
        self._functions = (_RowFunction * len(sizes))(*map(_RowFunction, sizes))
        self._loaded: list[ctypes.CDLL] = []
        self._lock = threading.Lock()
        # What a call passes: the kernel, whose addresses, and their type. One that has no
        # function yet says which size is needed.
        none = (_RowFunction * len(sizes))(*map(_RowFunction, sizes))
        self._call = self._make_call(none, [], ())
        # What has no parallel loop has no OpenMP.
        self._set_threads: Any = None
        self._run = _run_rows()

    def __call__(self, addresses: dict[str, int], tokens: int, threads: Threads) -> None:
        """Computes it of the memory at addresses, by name; that of `pattern` holds all
        indices."""
        missing = ctypes.c_int64(-1)
        while True:
            kernel, names, array = self._call
            if self._set_threads is not None and _scratch.threads is not threads:
                self._set_threads(threads.count)
                _scratch.threads = threads
            status = self._run(
                kernel,
                array(*[addresses[name] for name in names]),
                tokens,
                ctypes.byref(missing),
            )
            if status:
                _library.check(status)
            if missing.value < 0:
                return
            with self._lock:
                self._load(missing.value)

    def prepare(self, index: int) -> bool:
        """Loads the library for a number of tokens; returns whether it was compiled."""
        with self._lock:
            return self._load(index)

    def _load(self, index: int) -> bool:
        """Loads the library for a number of tokens, and compiles it before that; returns
        whether it did."""
        function = self._functions[index]
        if function.run:
            return False
        compiled = []

        def make(path: Path) -> None:
            compiled.append(path)
            _compiler.run(text, path, [], options)

        text = _product_text.text_of(self._matrix, function.rows, self._wanted)
        options = ["-O3", *([f"--openmp={self._library}"] if self._library else [])]
        path = cache.library(text, options, make)
        loaded = ctypes.CDLL(str(path))
        self._loaded.append(loaded)
        if not self._library:
            _limit_spinning(loaded)
        manifest = json.loads(
            ctypes.string_at(
                ctypes.addressof(ctypes.c_char.in_dll(loaded, "bsr_step_manifest"))
            )
        )
        if not self._call[1]:
            described = describe(
                self._matrix, [(b["kind"], b["name"]) for b in manifest["buffers"]]
            )
            self._call = self._make_call(self._functions, *described)
        set_threads = getattr(loaded, "omp_set_num_threads", None)
        if set_threads is not None:
            self._set_threads = set_threads
        function.arena_bytes = manifest["arena_bytes"]
        function.run = ctypes.cast(loaded.bsr_step_run, ctypes.c_void_p)
        return bool(compiled)

    @staticmethod
    def _make_call(
        functions: Any, buffers: list[RowBuffer], names: tuple[str, ...]
    ) -> tuple[Any, tuple[str, ...], Any]:
        array = (RowBuffer * len(buffers))(*buffers)
        kernel = _RowKernel(functions, len(functions), array, len(buffers), len(names))
        return ctypes.pointer(kernel), names, ctypes.c_void_p * len(names)


def describe(
    matrix: Matrix, buffers: Iterable[tuple[str, str]]
) -> tuple[list[RowBuffer], tuple[str, ...]]:
    """Returns what a call passes of buffers, by the kinds and names that a manifest has, and
    the names of the addresses: each size has these."""
    offsets = dict(zip(VIEWS, matrix.offsets))
    names: list[str] = []
    described = []
    for kind, name in buffers:
        offset = row_bytes = 0
        if kind in VIEWS:
            name, offset = "pattern", 4 * offsets[kind]
        else:
            row_bytes = matrix.row_bytes(name)
        if name not in names:
            names.append(name)
        is_result = bool(row_bytes) and kind == "output"
        described.append(RowBuffer(row_bytes, offset, names.index(name), is_result))
    return described, tuple(names)


@functools.cache
def _kernel(
    matrix: Matrix, wanted: Wanted, library: str, sizes: tuple[int, ...] = ()
) -> _Kernel:
    return _Kernel(matrix, wanted, library, sizes or matrix.sizes)


def scores(
    matrix: Matrix, norm: str, tokens: int, x: int, dy: int, threads: Threads
) -> np.ndarray[Any, Any]:
    """Returns the norms of all blocks of the gradient of the dense weight, `[block rows,
    block columns]`, which is made nowhere.

    Args:
      norm: l1, l2 or linf.
      tokens: how many rows x and dy have, which lie behind each other.
      x, dy: their addresses.
      threads: on which.
    """
    # A norm is one of the sum over all tokens: a call has them all, and zeros.
    size = max(_SIZES[-1], 1 << (tokens - 1).bit_length()) if tokens else _SIZES[-1]
    blocks = matrix.grid[0] * matrix.grid[1]
    held = _scratch.take("scores", 4 * blocks)
    found = (ctypes.c_float * blocks).from_address(held)
    ctypes.memset(held, 0, 4 * blocks)
    kernel = _kernel(matrix, Wanted(scores=norm), threads.library, (size,))
    kernel({"scores": held, "x": x, "dy": dy}, tokens, threads)
    return np.array(found, np.float32).reshape(matrix.grid)


def prepare(
    kernels: Iterable[tuple[Matrix, Wanted]], tokens: int | None, threads: Threads
) -> int:
    """Loads kernels, and compiles those that are not kept on disk, as many at once as there
    are processors for this process.

    Args:
      kernels: what is to be computed, of which matrices.
      tokens: how many rows calls have at most; None: any number.
      threads: on which they will run.

    Returns:
      How many were compiled.
    """
    sizes = [s for s in _SIZES if tokens is None or s <= max(tokens, _SIZES[-1])]
    jobs = {
        f"{m.rows}x{m.cols} {w.describe()} of {size} tokens": (_kernel(m, w, threads.library), size)
        for m, w in dict.fromkeys(kernels)
        for size in sizes
    }
    if not jobs:
        return 0

    def make(job: tuple[_Kernel, int]) -> bool:
        with _progress.quiet():
            return job[0].prepare(_SIZES.index(job[1]))

    count = len(os.sched_getaffinity(0))
    with _progress.of("kernels", list(jobs)), ThreadPoolExecutor(count) as pool:
        made = 0
        for name, was_compiled in zip(jobs, pool.map(make, jobs.values())):
            made += was_compiled
            _progress.stage(name)
    return made


def run(
    matrix: Matrix,
    wanted: Wanted,
    tokens: int,
    addresses: dict[str, int],
    threads: Threads,
) -> None:
    """Computes what is wanted.

    Args:
      tokens: how many rows activations have.
      addresses: of the pattern; of what has a row for each token, x, y, z, dx and dy, whose
        rows lie behind each other; and of w, b, dw and db, at lines of memory, of which dw
        and db are added to.
      threads: on which.
    """
    _kernel(matrix, wanted, threads.library)(addresses, tokens, threads)
