# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The C interface of the runtime, through ctypes.

"""`bsr/runtime.h` for Python: steps, sessions, and their memory as arrays."""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sparse_opt import _dlpack
from sparse_opt._errors import StepError
from sparse_opt._tools import RUNTIME, find_runtime

Array = np.ndarray[Any, Any]
Scalar: TypeAlias = "type[np.generic[Any]]"

_VERSION = 11

KINDS = (
    "dense", "values", "row_ptr", "col_idx", "slot", "col_ptr", "row_idx", "slot_t",
    "output", "scores",
)  # fmt: skip
NORMS = ("l1", "l2", "linf", "mean")
METHODS = ("static", "set", "rigl", "gmp")
SCHEDULES = ("constant", "linear", "cosine")
TYPES = ("f16", "bf16", "f32", "f64", "i1", "i8", "i32", "i64", "ui8", "ui32", "ui64")
# NumPy has no bf16 of its own: its bits are held in uint16.
_DTYPES = (
    np.float16, np.uint16, np.float32, np.float64, np.bool_, np.int8, np.int32,
    np.int64, np.uint8, np.uint32, np.uint64,
)  # fmt: skip


class _BufferInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("role", ctypes.c_char_p),
        ("init", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int64),
        ("elements", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("kind", ctypes.c_int),
        ("type", ctypes.c_int),
        ("carried", ctypes.c_int32),
        ("pattern", ctypes.c_int32),
    ]


class _PatternInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("block_rows", ctypes.c_int64),
        ("block_cols", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("density", ctypes.c_double),
        ("is_static", ctypes.c_int32),
        ("weight", ctypes.c_int32),
    ]


class _PatternView(ctypes.Structure):
    _fields_ = [("blocks", ctypes.c_int64)] + [
        (name, ctypes.POINTER(ctypes.c_int32))
        for name in ("row_ptr", "col_idx", "slot", "col_ptr", "row_idx", "slot_t")
    ]


class _PatternUpdate(ctypes.Structure):
    _fields_ = [
        ("method", ctypes.c_int),
        ("norm", ctypes.c_int),
        ("drop", ctypes.c_double),
        ("blocks", ctypes.c_int64),
        ("allow_return", ctypes.c_int32),
    ]


class _Replacement(ctypes.Structure):
    _fields_ = [
        ("pattern", ctypes.c_int64),
        ("num_pruned", ctypes.c_int64),
        ("num_regrown", ctypes.c_int64),
        ("pruned", ctypes.c_void_p),
        ("regrown", ctypes.c_void_p),
    ]


class _Counters(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64)] + [
        (name, ctypes.c_int64)
        for name in (
            "steps", "pattern_updates", "blocks_pruned", "blocks_regrown",
            "allocations", "reallocations", "recompilations", "bytes",
        )
    ]  # fmt: skip


@dataclass(frozen=True)
class Buffer:
    """A buffer of a step."""

    index: int
    name: str
    role: str
    init: str
    shape: tuple[int, ...]
    kind: str
    type: str
    dtype: Scalar
    carried: bool
    pattern: int
    whole: tuple[int, ...]

    @property
    def is_shard(self) -> bool:
        """Whether it is the share of one process, of an array of shape `whole`."""
        return self.shape != self.whole

    def shard_of(self, whole: Array, rank: int) -> Array:
        """Returns the share of a process in an array of shape `whole`."""
        dim = next((d for d, size in enumerate(self.whole) if size > 1), 0)
        rows = self.shape[dim]
        first = min(rank * rows, self.whole[dim] - rows)
        return whole[(slice(None),) * dim + (slice(first, first + rows),)]


@dataclass(frozen=True)
class Mask:
    """An argument of the exported step that a pattern has taken the place of."""

    name: str
    shape: tuple[int, ...]
    dtype: type
    one: float
    transpose: bool

    @classmethod
    def of(cls, entry: Any) -> Mask:
        type = entry["type"]
        return cls(
            entry["name"],
            tuple(entry["shape"]),
            _DTYPES[TYPES.index(type)],
            0x3F80 if type == "bf16" else 1,
            entry["transpose"],
        )


@dataclass(frozen=True)
class Pattern:
    """A pattern of a step: which blocks of a matrix are stored."""

    index: int
    name: str
    rows: int
    cols: int
    block_rows: int
    block_cols: int
    slots: int
    density: float
    is_static: bool
    weight: int
    masks: tuple[Mask, ...] = ()

    @property
    def blocks(self) -> int:
        """How many blocks the matrix has."""
        return (self.rows // self.block_rows) * (self.cols // self.block_cols)


@dataclass(frozen=True)
class Origin:
    """An argument of the exported step that the compiler gave another form.

    Attributes:
      shape: what the program knows.
      parts: the buffers that it is in, each with the slice of it that the entries
        of the buffer's matrix are, row by row.
    """

    shape: tuple[int, ...]
    parts: Mapping[str, tuple[slice, ...]]

    def join(self, arrays: Mapping[str, Array]) -> Array:
        """Returns the argument; `arrays` are its parts as matrices."""
        first = arrays[next(iter(self.parts))]
        whole = np.zeros(self.shape, first.dtype)
        for name, place in self.parts.items():
            part = whole[place]
            part[...] = arrays[name].reshape(part.shape)
        return whole

    def split(self, whole: Array) -> Iterator[tuple[str, Array]]:
        """Yields the parts of the argument, in its dimensions."""
        for name, place in self.parts.items():
            yield name, whole[place]


@dataclass(frozen=True)
class Blocks:
    """The stored blocks of a matrix, row by row: where they are, in which slot."""

    row_ptr: Array
    col_idx: Array
    slot: Array

    @property
    def rows(self) -> Array:
        counts = np.diff(self.row_ptr)
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


@dataclass(frozen=True)
class Counters:
    """What a session has done."""

    seed: int
    steps: int
    pattern_updates: int
    blocks_pruned: int
    blocks_regrown: int
    allocations: int
    reallocations: int
    recompilations: int
    bytes: int


@functools.cache
def _library() -> ctypes.CDLL:
    """Loads the runtime that lies beside the tools, or that the system finds."""
    try:
        library = ctypes.CDLL(find_runtime())
    except OSError as error:
        raise StepError(
            f"expected {RUNTIME} beside sparse-compile or on the library path, but got"
            f" '{error}'"
        ) from error
    library.bsr_runtime_version.restype = ctypes.c_uint32
    version = library.bsr_runtime_version()
    if version < _VERSION:
        raise StepError(
            f"expected a runtime of version {_VERSION} or later, but got {version}:"
            " build it again"
        )
    i64, text = ctypes.c_int64, ctypes.c_char_p
    for name, result in (
        ("last_error", text), ("step_manifest_text", text), ("step_name", text),
        ("step_num_buffers", i64), ("step_num_patterns", i64), ("step_num_products", i64),
        ("step_num_left_dense", i64), ("step_sharded", i64), ("drop_fraction", ctypes.c_double),
        ("gmp_density", ctypes.c_double), ("session_metadata", text), ("session_step_difference", text),
        ("step_unload", None), ("session_destroy", None),
    ):  # fmt: skip
        getattr(library, f"bsr_{name}").restype = result
    return library


def _check(status: int) -> None:
    if status:
        raise StepError(_library().bsr_last_error().decode())


class Step:
    """A compiled step in memory."""

    def __init__(self, path: str) -> None:
        self._handle = ctypes.c_void_p()
        library = _library()
        _check(library.bsr_step_load(os.fsencode(path), ctypes.byref(self._handle)))
        self.buffers = tuple(
            self._buffer(i) for i in range(library.bsr_step_num_buffers(self._handle))
        )
        manifest = json.loads(self.manifest)
        masks = [entry.get("masks", ()) for entry in manifest["patterns"]]
        self.patterns = tuple(
            self._pattern(i, tuple(map(Mask.of, masks[i])))
            for i in range(library.bsr_step_num_patterns(self._handle))
        )
        self.origins: dict[str, Origin] = {}
        for part in itertools.chain(manifest["buffers"], *masks):
            if origin := part.get("origin"):
                known = self.origins.get(origin["name"])
                places = zip(origin["offsets"], origin["sizes"])
                place = tuple(slice(at, at + size) for at, size in places)
                self.origins[origin["name"]] = Origin(
                    tuple(origin["shape"]),
                    {**(known.parts if known else {}), part["name"]: place},
                )

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library().bsr_step_unload(self._handle)

    @property
    def manifest(self) -> str:
        return str(_library().bsr_step_manifest_text(self._handle).decode())

    @property
    def name(self) -> str:
        return str(_library().bsr_step_name(self._handle).decode())

    @property
    def sharded(self) -> int:
        """Among how many processes the optimizer state is sharded, or 0."""
        return int(_library().bsr_step_sharded(self._handle))

    @property
    def products(self) -> dict[str, int]:
        """How many products of each kind a step computes, and what stayed dense."""
        library = _library()
        kinds = ("spmm", "spmm_transposed", "sddmm", "dense")
        counts = {
            kind: int(library.bsr_step_num_products(self._handle, kind.encode()))
            for kind in kinds
        }
        left_dense = int(library.bsr_step_num_left_dense(self._handle))
        return {**counts, "left_dense": left_dense}

    def _buffer(self, index: int) -> Buffer:
        info = _BufferInfo()
        _check(
            _library().bsr_step_buffer(
                self._handle, ctypes.c_int64(index), ctypes.byref(info)
            )
        )
        whole = ctypes.POINTER(ctypes.c_int64)()
        _check(
            _library().bsr_step_whole_shape(
                self._handle, ctypes.c_int64(index), ctypes.byref(whole)
            )
        )
        return Buffer(
            index,
            info.name.decode(),
            info.role.decode(),
            info.init.decode(),
            tuple(info.shape[: info.rank]),
            KINDS[info.kind],
            TYPES[info.type],
            _DTYPES[info.type],
            bool(info.carried),
            info.pattern,
            tuple(whole[: info.rank]),
        )

    def _pattern(self, index: int, masks: tuple[Mask, ...]) -> Pattern:
        info = _PatternInfo()
        _check(
            _library().bsr_step_pattern(
                self._handle, ctypes.c_int64(index), ctypes.byref(info)
            )
        )
        return Pattern(
            index,
            info.name.decode(),
            info.rows,
            info.cols,
            info.block_rows,
            info.block_cols,
            info.slots,
            info.density,
            bool(info.is_static),
            info.weight,
            masks,
        )


def target(device: str) -> str:
    """Returns what steps for a device are compiled for: `cpu`, or a GPU's chip."""
    found = ctypes.c_char_p()
    _check(_library().bsr_device_target(device.encode(), ctypes.byref(found)))
    return (found.value or b"").decode()


def drop_fraction(schedule: str, drop: float, t: float) -> float:
    """Returns the share of blocks to replace at the elapsed share `t` of a schedule."""
    function = _library().bsr_drop_fraction
    number = ctypes.c_int(SCHEDULES.index(schedule))
    return float(function(number, ctypes.c_double(drop), ctypes.c_double(t)))


def gmp_density(start: float, end: float, t: float) -> float:
    """Returns the density at the elapsed share `t` of gradual pruning."""
    numbers = map(ctypes.c_double, (start, end, t))
    return float(_library().bsr_gmp_density(*numbers))


def erk_densities(shapes: Sequence[tuple[int, int]], density: float) -> list[float]:
    """Distributes a density over matrices of these shapes."""
    count = len(shapes)
    rows, cols = ((ctypes.c_int64 * count)(*sizes) for sizes in zip(*shapes))
    densities = (ctypes.c_double * count)()
    _check(
        _library().bsr_erk_densities(
            ctypes.c_int64(count), rows, cols, ctypes.c_double(density), densities
        )
    )
    return list(densities)


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
        # Nobody reads anything yet.
        tensor = _dlpack.take(value, stream=-1)
        self.shape, self.gpu = tensor.shape, tensor.device[1]
        self.dtype = np.dtype(_DTYPES[TYPES.index(tensor.type)])
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


class Session:
    """The memory of one training run of a step."""

    def __init__(
        self, step: Step, device: str, seed: int, source: Session | None = None
    ) -> None:
        """With a `source`, whose device it is on, it shares the state of that one."""
        self.step = step
        self._is_host: bool = source._is_host if source else device == "cpu"
        self._handle = ctypes.c_void_p()
        self._run = _library().bsr_session_run
        self._source = source  # which outlives it
        self._after_update: Callable[[], None] = lambda: None
        if source:
            _check(
                _library().bsr_session_share(
                    step._handle, source._handle, ctypes.byref(self._handle)
                )
            )
            return
        _check(
            _library().bsr_session_create(
                step._handle,
                device.encode(),
                ctypes.c_uint64(seed),
                ctypes.byref(self._handle),
            )
        )

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library().bsr_session_destroy(self._handle)

    def run(self) -> None:
        _check(self._run(self._handle))

    def communicate(
        self, communicator: ctypes.c_void_p, after_update: Callable[[], None]
    ) -> None:
        """Lets runs take means over processes, and calls a function after each update
        of patterns."""
        _check(_library().bsr_session_communicate(self._handle, communicator))
        self._after_update = after_update

    def initialize(self) -> None:
        _check(_library().bsr_session_initialize(self._handle))

    def array(self, buffer: Buffer) -> Any:
        """Returns the memory of a buffer, which lives as long as the array; of one on
        a device a `DeviceArray`."""
        if not self._is_host:
            return DeviceArray(self, buffer)
        address = ctypes.c_void_p()
        _check(
            _library().bsr_session_host_data(
                self._handle, ctypes.c_int64(buffer.index), ctypes.byref(address)
            )
        )
        count = int(np.prod(buffer.shape, dtype=np.int64))
        size = count * np.dtype(buffer.dtype).itemsize
        # A buffer of no elements may be nowhere.
        memory = (ctypes.c_uint8 * size).from_address(address.value or 0)
        memory.session = self  # type: ignore[attr-defined]
        array: Array = np.frombuffer(memoryview(memory), buffer.dtype)
        return array.reshape(buffer.shape)

    def read(self, buffer: Buffer, into: Array) -> None:
        """Copies a buffer, on whatever device it lies, into an array of its size."""
        self._transfer(_library().bsr_session_read, buffer, into)

    def write(self, buffer: Buffer, array: Array) -> None:
        """Copies an array of a buffer's size into the buffer."""
        self._transfer(_library().bsr_session_write, buffer, array)

    def device_data(self, buffer: Buffer) -> tuple[int, int]:
        """Returns a buffer's address on its GPU, and that GPU's number."""
        address, gpu = ctypes.c_void_p(), ctypes.c_int32()
        index = ctypes.c_int64(buffer.index)
        _check(
            _library().bsr_session_device_data(
                self._handle, index, ctypes.byref(address), ctypes.byref(gpu)
            )
        )
        return address.value or 0, gpu.value

    def let_wait(self, stream: int) -> None:
        """What is given to a stream of CUDA's next waits for the session's runs."""
        _check(_library().bsr_session_let_wait(self._handle, ctypes.c_void_p(stream)))

    def copy_from(self, buffer: Buffer, array: ForeignArray) -> None:
        """Copies an array of a buffer's size from the same GPU."""
        gpu = self.device_data(buffer)[1]
        if array.gpu != gpu or not array.is_contiguous:
            raise StepError(
                f"expected a contiguous array on cuda:{gpu} for '{buffer.name}', but got"
                f" {'one' if array.is_contiguous else 'a strided one'} on cuda:{array.gpu}"
            )
        library, legacy = _library(), ctypes.c_void_p(_dlpack.LEGACY_STREAM)
        # The producer's work comes before that of the stream that both know; ours after it.
        tensor = array.take(_dlpack.LEGACY_STREAM)
        _check(library.bsr_session_wait_for(self._handle, legacy))
        index = ctypes.c_int64(buffer.index)
        address = ctypes.c_void_p(tensor.address)
        _check(library.bsr_session_copy_from(self._handle, index, address))
        # It is free, for the producer to write to, when the copy is done.
        _check(library.bsr_session_let_wait(self._handle, legacy))

    def _transfer(self, function: Any, buffer: Buffer, array: Array) -> None:
        _check(
            function(
                self._handle,
                ctypes.c_int64(buffer.index),
                ctypes.c_int64(0),
                ctypes.c_int64(array.nbytes),
                ctypes.c_void_p(array.ctypes.data),
            )
        )

    def blocks(self, pattern: Pattern) -> Blocks:
        """Returns a copy of the pattern as it stands."""
        view = _PatternView()
        _check(
            _library().bsr_session_get_pattern(
                self._handle, ctypes.c_int64(pattern.index), ctypes.byref(view)
            )
        )
        lines = pattern.rows // pattern.block_rows + 1

        def copied(pointer: Any, count: int) -> Array:
            if not count:
                return np.zeros(0, np.int32)
            return np.ctypeslib.as_array(pointer, (count,)).copy()

        return Blocks(
            copied(view.row_ptr, lines),
            copied(view.col_idx, view.blocks),
            copied(view.slot, view.blocks),
        )

    def set_blocks(
        self, pattern: Pattern, row_ptr: Array, col_idx: Array, slot: Array | None
    ) -> None:
        """Makes these blocks the pattern; without slots they are 0, 1, ..."""
        held = [
            None if a is None else np.ascontiguousarray(a, np.int32)
            for a in (row_ptr, col_idx, slot)
        ]
        as_pointer = ctypes.POINTER(ctypes.c_int32)
        pointers = [None if a is None else a.ctypes.data_as(as_pointer) for a in held]
        view = _PatternView(len(col_idx), *pointers)
        _check(
            _library().bsr_session_set_pattern(
                self._handle, ctypes.c_int64(pattern.index), ctypes.byref(view)
            )
        )

    def make_pattern(self, pattern: Pattern, blocks: int) -> None:
        """Makes random blocks the first pattern."""
        _check(
            _library().bsr_session_make_pattern(
                self._handle, ctypes.c_int64(pattern.index), ctypes.c_int64(blocks)
            )
        )

    def read_pattern(self, pattern: Pattern, path: str) -> None:
        """Makes the pattern of a file the first one."""
        _check(
            _library().bsr_session_read_pattern(
                self._handle, ctypes.c_int64(pattern.index), os.fsencode(path)
            )
        )

    def take_largest(
        self,
        pattern: Pattern,
        dense: Array,
        type: str,
        blocks: int | None = None,
        norm: str = "l1",
    ) -> None:
        """Makes the largest blocks of a matrix, by default as many as there are slots,
        the pattern and its values."""
        held = np.ascontiguousarray(dense)
        _check(
            _library().bsr_session_take_largest(
                self._handle,
                ctypes.c_int64(pattern.index),
                ctypes.c_int64(pattern.slots if blocks is None else blocks),
                ctypes.c_int(NORMS.index(norm)),
                ctypes.c_int(TYPES.index(type)),
                ctypes.c_void_p(held.ctypes.data),
            )
        )

    def views(self, pattern: Pattern) -> Blocks:
        """Returns the pattern's own memory, for reading, as it is until it changes."""
        view = _PatternView()
        _check(
            _library().bsr_session_get_pattern(
                self._handle, ctypes.c_int64(pattern.index), ctypes.byref(view)
            )
        )
        count = view.blocks

        def seen(pointer: Any, count: int) -> Array:
            if not count:
                return np.zeros(0, np.int32)
            address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
            memory = (ctypes.c_int32 * count).from_address(address)
            memory.session = self  # type: ignore[attr-defined]
            array: Array = np.frombuffer(memoryview(memory).toreadonly(), np.int32)
            return array

        lines = pattern.rows // pattern.block_rows + 1
        return Blocks(
            seen(view.row_ptr, lines), seen(view.col_idx, count), seen(view.slot, count)
        )

    def norms(self, pattern: Pattern, norm: str, count: int) -> Array:
        """Returns what each of the `count` stored blocks is ranked by."""
        norms = np.empty(count)
        _check(
            _library().bsr_session_norms(
                self._handle, ctypes.c_int64(pattern.index),
                ctypes.c_int(NORMS.index(norm)), ctypes.c_int64(count),
                ctypes.c_void_p(norms.ctypes.data),
            )
        )  # fmt: skip
        return norms

    def scores(self, pattern: Pattern) -> Array:
        """Returns the score of every block, after a run with scores."""
        scores = np.empty(pattern.blocks, np.float32)
        _check(
            _library().bsr_session_scores(
                self._handle, ctypes.c_int64(pattern.index),
                ctypes.c_int64(pattern.blocks), ctypes.c_void_p(scores.ctypes.data),
            )
        )  # fmt: skip
        return scores

    def choose_absent(self, pattern: Pattern, barred: Array, count: int) -> Array:
        """Returns random blocks that are none of `barred`, whose numbers rise."""
        held = np.ascontiguousarray(barred, np.int64)
        chosen = np.empty(max(count, 0), np.int64)
        _check(
            _library().bsr_session_choose_absent(
                self._handle, ctypes.c_int64(pattern.index), ctypes.c_int64(len(held)),
                ctypes.c_void_p(held.ctypes.data or 1), ctypes.c_int64(count),
                ctypes.c_void_p(chosen.ctypes.data or 1),
            )
        )  # fmt: skip
        return chosen

    def replace(self, replacements: Sequence[tuple[int, Array, Array]]) -> None:
        """Updates patterns: the index of each, the blocks that go, and that come."""
        entries = (_Replacement * max(1, len(replacements)))(
            *(
                _Replacement(
                    index, len(pruned), len(regrown), pruned.ctypes.data,
                    regrown.ctypes.data,
                )
                for index, pruned, regrown in replacements
            )
        )  # fmt: skip
        _check(
            _library().bsr_session_replace(
                self._handle, entries, ctypes.c_int64(len(replacements))
            )
        )
        self._after_update()

    def run_scores(self) -> None:
        _check(_library().bsr_session_run_scores(self._handle))

    def update(self, updates: Sequence[tuple[str, str, float, int, bool]]) -> None:
        """Updates each pattern: method, norm, drop, blocks, whether they return."""
        entries = (_PatternUpdate * max(1, len(updates)))(
            *(
                _PatternUpdate(METHODS.index(m), NORMS.index(n), drop, blocks, back)
                for m, n, drop, blocks, back in updates
            )
        )
        _check(
            _library().bsr_session_update(
                self._handle, entries, ctypes.c_int64(len(updates))
            )
        )
        self._after_update()

    def counters(self) -> Counters:
        counters = _Counters()
        _check(
            _library().bsr_session_counters(self._handle, ctypes.byref(counters))
        )
        return Counters(*(getattr(counters, f[0]) for f in _Counters._fields_))

    def save(self, path: str, metadata: str) -> None:
        _check(
            _library().bsr_session_save(
                self._handle, os.fsencode(path), metadata.encode()
            )
        )

    def load(self, path: str) -> tuple[str, str]:
        """Reads a checkpoint; returns its metadata, and how its step is another."""
        library = _library()
        _check(library.bsr_session_load(self._handle, os.fsencode(path)))
        return (
            library.bsr_session_metadata(self._handle).decode(),
            library.bsr_session_step_difference(self._handle).decode(),
        )


def require(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], value: Array
) -> None:
    """Raises `StepError` if `value` is not of this shape and type."""
    if value.shape != shape:
        raise StepError(
            f"expected '{name}' of shape {list(shape)}, but got {list(value.shape)}:"
            " a compiled step has one shape, export the step again for another"
        )
    if value.dtype != dtype:
        kind = type(value)
        if kind.__module__ == "torch":
            raise StepError(
                f"expected a NumPy array for '{name}', but got a torch.{kind.__name__}:"
                " pass tensor.detach().numpy()"
            )
        raise StepError(f"expected '{name}' of type {dtype}, but got {value.dtype}")
