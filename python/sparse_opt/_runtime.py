# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Steps and sessions of the runtime, through ctypes.

"""Steps, sessions, and their memory as arrays."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sparse_opt import _dlpack
from sparse_opt._description import Array, Blocks, Buffer, Counters, Mask, Origin, Pattern
from sparse_opt._device_arrays import DeviceArray, ForeignArray
from sparse_opt._errors import StepError
from sparse_opt._library import (
    DTYPES, FAN_INS, KINDS, NORMS, TYPES, BufferInfo, CountersStruct, NewBlocks, PatternInfo,
    PatternStatistics, PatternUpdate, PatternView, ReplacementStruct, c_path, c_text, check, library,
)  # fmt: skip


# The file that was loaded by each path: its device, number, time and size.
_LOADED: dict[str, tuple[int, int, int, int]] = {}


@contextlib.contextmanager
def _not_loaded(path: str) -> Iterator[str]:
    """Yields a path at which no other library was loaded.

    The system knows a library by its path, and gives the one that it has loaded
    whatever the file holds now.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        yield path  # The runtime says what is wrong.
        return
    place = os.path.realpath(path)
    file = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
    if _LOADED.get(place, file) == file:
        yield path
        _LOADED[place] = file
        return
    with tempfile.TemporaryDirectory() as folder:
        yield shutil.copy(path, folder)


class Step:
    """A compiled step in memory."""

    def __init__(self, path: str) -> None:
        self._handle = ctypes.c_void_p()
        runtime = library()
        # At the interpreter's end the module may be gone before the step is.
        self._unload = runtime.bsr_step_unload
        with _not_loaded(path) as file:
            check(runtime.bsr_step_load(c_path(file), ctypes.byref(self._handle)))
        self.buffers = tuple(
            self._buffer(i) for i in range(runtime.bsr_step_num_buffers(self._handle))
        )
        manifest = json.loads(self.manifest)
        masks = [entry.get("masks", ()) for entry in manifest["patterns"]]
        self.patterns = tuple(
            self._pattern(i, tuple(map(Mask.of, masks[i])))
            for i in range(runtime.bsr_step_num_patterns(self._handle))
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
            self._unload(self._handle)

    def load_rows(self, device: str) -> ctypes.c_void_p:
        """Loads a function of rows on a GPU, for as long as the process lives; returns its
        bsr_gpu_function."""
        function = ctypes.c_void_p()
        load = library().bsr_gpu_function_load
        check(load(c_text("a device", device), self._handle, ctypes.byref(function)))
        return function

    @property
    def manifest(self) -> str:
        return str(library().bsr_step_manifest_text(self._handle).decode())

    @property
    def name(self) -> str:
        return str(library().bsr_step_name(self._handle).decode())

    @property
    def sharded(self) -> int:
        """Among how many processes the optimizer state is sharded, or 0."""
        return int(library().bsr_step_sharded(self._handle))

    @property
    def products(self) -> dict[str, int]:
        """How many products of each kind a step computes, and what stayed dense."""
        runtime = library()
        kinds = ("spmm", "spmm_transposed", "sddmm", "dense")
        counts = {
            kind: int(runtime.bsr_step_num_products(self._handle, kind.encode()))
            for kind in kinds
        }
        left_dense = int(runtime.bsr_step_num_left_dense(self._handle))
        return {**counts, "left_dense": left_dense}

    def _buffer(self, index: int) -> Buffer:
        info = BufferInfo()
        check(
            library().bsr_step_buffer(
                self._handle, ctypes.c_int64(index), ctypes.byref(info)
            )
        )
        whole = ctypes.POINTER(ctypes.c_int64)()
        check(
            library().bsr_step_whole_shape(
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
            DTYPES[info.type],
            bool(info.carried),
            info.pattern,
            tuple(whole[: info.rank]),
        )

    def _pattern(self, index: int, masks: tuple[Mask, ...]) -> Pattern:
        info = PatternInfo()
        check(
            library().bsr_step_pattern(
                self._handle, ctypes.c_int64(index), ctypes.byref(info)
            )
        )
        return Pattern(
            index,
            info.name.decode(),
            info.rows,
            info.cols,
            info.extents,
            info.block_rows,
            info.block_cols,
            info.slots,
            info.density,
            bool(info.is_static),
            info.weight,
            masks,
        )


def _indices(what: str, indices: Any, count: int) -> Array:
    """Returns `count` numbers as the runtime takes them, none of them changed."""
    array = np.asarray(indices)
    if array.shape != (count,):
        raise StepError(
            f"expected {what} of shape [{count}], but got {list(array.shape)}"
        )
    is_whole = array.dtype.kind in "iu" or not array.size
    held = np.ascontiguousarray(array, np.int32) if is_whole else None
    if held is None or not np.array_equal(held, array):
        odd = array.dtype if held is None else array[held != array][0]
        raise StepError(f"expected integers of 32 bits in {what}, but got {odd}")
    return held


class Session:
    """The memory of one training run of a step."""

    def __init__(
        self,
        step: Step,
        device: str,
        seed: int,
        source: Session | None = None,
        trains: bool = False,
    ) -> None:
        """With a `source`, whose device it is on, it shares the state of that one, and
        changes it if it `trains`."""
        self.step = step
        self.is_host: bool = source.is_host if source else device == "cpu"
        self._handle = ctypes.c_void_p()
        self._run = library().bsr_session_run
        # At the interpreter's end the module may be gone before the session is.
        self._destroy = library().bsr_session_destroy
        self._source = source  # which outlives it
        self._after_update: Callable[[], None] = lambda: None
        if source:
            runtime = library()
            share = runtime.bsr_session_continue if trains else runtime.bsr_session_share
            check(share(step._handle, source._handle, ctypes.byref(self._handle)))
            return
        check(
            library().bsr_session_create(
                step._handle,
                c_text("a device", device),
                ctypes.c_uint64(seed),
                ctypes.byref(self._handle),
            )
        )

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._destroy(self._handle)

    def run(self) -> None:
        check(self._run(self._handle))

    def communicate(
        self, communicator: ctypes.c_void_p, after_update: Callable[[], None]
    ) -> None:
        """Lets runs take means over processes, and calls a function after each update
        of patterns."""
        check(library().bsr_session_communicate(self._handle, communicator))
        self._after_update = after_update

    def after_update(self, function: Callable[[], None]) -> None:
        """Calls a function after each update of patterns."""
        self._after_update = function

    def initialize(self) -> None:
        check(library().bsr_session_initialize(self._handle))

    def array(self, buffer: Buffer) -> Any:
        """Returns the memory of a buffer, which lives as long as the array; of one on
        a device a `DeviceArray`."""
        if not self.is_host:
            return DeviceArray(self, buffer)
        address = ctypes.c_void_p()
        check(
            library().bsr_session_host_data(
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
        self._transfer(library().bsr_session_read, buffer, into)

    def write(self, buffer: Buffer, array: Array) -> None:
        """Copies an array of a buffer's size into the buffer."""
        self._transfer(library().bsr_session_write, buffer, array)

    def device_data(self, buffer: Buffer) -> tuple[int, int]:
        """Returns a buffer's address on its GPU, and that GPU's number."""
        address, gpu = ctypes.c_void_p(), ctypes.c_int32()
        index = ctypes.c_int64(buffer.index)
        check(
            library().bsr_session_device_data(
                self._handle, index, ctypes.byref(address), ctypes.byref(gpu)
            )
        )
        return address.value or 0, gpu.value

    def let_wait(self, stream: int) -> None:
        """What is given to a stream of CUDA's next waits for the session's runs."""
        check(library().bsr_session_let_wait(self._handle, ctypes.c_void_p(stream)))

    def copy_from(self, buffer: Buffer, array: ForeignArray) -> None:
        """Copies an array of a buffer's size from the same GPU."""
        gpu = self.device_data(buffer)[1]
        if array.gpu != gpu or not array.is_contiguous:
            raise StepError(
                f"expected a contiguous array on cuda:{gpu} for '{buffer.name}', but got"
                f" {'one' if array.is_contiguous else 'a strided one'} on cuda:{array.gpu}"
            )
        runtime, legacy = library(), ctypes.c_void_p(_dlpack.LEGACY_STREAM)
        # The producer's work comes before that of the stream that both know; ours after it.
        tensor = array.take(_dlpack.LEGACY_STREAM)
        check(runtime.bsr_session_wait_for(self._handle, legacy))
        index = ctypes.c_int64(buffer.index)
        address = ctypes.c_void_p(tensor.address)
        check(runtime.bsr_session_copy_from(self._handle, index, address))
        # It is free, for the producer to write to, when the copy is done.
        check(runtime.bsr_session_let_wait(self._handle, legacy))

    def _transfer(self, function: Any, buffer: Buffer, array: Array) -> None:
        check(
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
        view = self.view(pattern)
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
        function = library().bsr_session_set_pattern
        self._give_blocks(function, pattern, row_ptr, col_idx, slot)

    def check_blocks(self, pattern: Pattern, row_ptr: Array, col_idx: Array) -> None:
        """Raises `StepError` where `set_blocks` would."""
        function = library().bsr_session_check_pattern
        self._give_blocks(function, pattern, row_ptr, col_idx, None)

    def _give_blocks(
        self,
        function: Any,
        pattern: Pattern,
        row_ptr: Array,
        col_idx: Array,
        slot: Array | None,
    ) -> None:
        lines, blocks = pattern.rows // pattern.block_rows + 1, len(col_idx)
        held = [
            None if a is None else _indices(f"{what} of '{pattern.name}'", a, count)
            for what, a, count in (
                ("row_ptr", row_ptr, lines),
                ("col_idx", col_idx, blocks),
                ("slot", slot, blocks),
            )
        ]
        as_pointer = ctypes.POINTER(ctypes.c_int32)
        pointers = [None if a is None else a.ctypes.data_as(as_pointer) for a in held]
        view = PatternView(len(col_idx), *pointers)
        check(
            function(self._handle, ctypes.c_int64(pattern.index), ctypes.byref(view))
        )

    def make_pattern(self, pattern: Pattern, blocks: int) -> None:
        """Makes random blocks the first pattern."""
        check(
            library().bsr_session_make_pattern(
                self._handle, ctypes.c_int64(pattern.index), ctypes.c_int64(blocks)
            )
        )

    def read_pattern(self, pattern: Pattern, path: str) -> None:
        """Makes the pattern of a file the first one."""
        check(
            library().bsr_session_read_pattern(
                self._handle, ctypes.c_int64(pattern.index), c_path(path)
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
        check(
            library().bsr_session_take_largest(
                self._handle,
                ctypes.c_int64(pattern.index),
                ctypes.c_int64(pattern.slots if blocks is None else blocks),
                ctypes.c_int(NORMS.index(norm)),
                ctypes.c_int(TYPES.index(type)),
                ctypes.c_void_p(held.ctypes.data),
            )
        )

    def scale_fan_in(self, pattern: Pattern, fan_in: str) -> None:
        """Scales the first values of a weight for the fan-in that is stored."""
        check(
            library().bsr_session_scale_fan_in(
                self._handle,
                ctypes.c_int64(pattern.index),
                ctypes.c_int(FAN_INS.index(fan_in)),
            )
        )

    def views(self, pattern: Pattern) -> Blocks:
        """Returns the pattern's own memory, for reading, as it is until it changes."""
        view = self.view(pattern)
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

    def statistics(self, pattern: Pattern) -> PatternStatistics:
        """Returns what is counted of the pattern, in blocks."""
        statistics = PatternStatistics()
        check(
            library().bsr_session_statistics(
                self._handle, ctypes.c_int64(pattern.index), ctypes.byref(statistics)
            )
        )
        return statistics

    def view(self, pattern: Pattern) -> PatternView:
        """Returns where the pattern lies."""
        view = PatternView()
        check(
            library().bsr_session_get_pattern(
                self._handle, ctypes.c_int64(pattern.index), ctypes.byref(view)
            )
        )
        return view

    def stored(self, pattern: Pattern, count: int) -> Array:
        """Returns the numbers of the `count` stored blocks, rising."""
        stored = np.empty(count, np.int64)
        check(
            library().bsr_session_stored(
                self._handle, ctypes.c_int64(pattern.index), ctypes.c_int64(count),
                ctypes.c_void_p(stored.ctypes.data or 1),
            )
        )  # fmt: skip
        return stored

    def norms(self, pattern: Pattern, norm: str, count: int) -> Array:
        """Returns what each of the `count` stored blocks is ranked by."""
        norms = np.empty(count)
        check(
            library().bsr_session_norms(
                self._handle, ctypes.c_int64(pattern.index),
                ctypes.c_int(NORMS.index(norm)), ctypes.c_int64(count),
                ctypes.c_void_p(norms.ctypes.data),
            )
        )  # fmt: skip
        return norms

    def scores(self, pattern: Pattern) -> Array:
        """Returns the score of every block, after a run with scores."""
        scores = np.empty(pattern.blocks, np.float32)
        check(
            library().bsr_session_scores(
                self._handle, ctypes.c_int64(pattern.index),
                ctypes.c_int64(pattern.blocks), ctypes.c_void_p(scores.ctypes.data),
            )
        )  # fmt: skip
        return scores

    def sum_scores(self, steps: Sequence[int]) -> None:
        """Adds scores to those of runs before, of each pattern of which they are to be of
        more than one step."""
        check(
            library().bsr_session_sum_scores(
                self._handle, (ctypes.c_int32 * len(steps))(*steps), ctypes.c_int64(len(steps))
            )
        )

    def choose_absent(self, pattern: Pattern, barred: Array, count: int) -> Array:
        """Returns random blocks that are none of `barred`, whose numbers rise."""
        return self._choose(library().bsr_session_choose_absent, pattern, barred, count)

    def choose_scored(self, pattern: Pattern, barred: Array, count: int) -> Array:
        """Returns those of the largest scores that are none of `barred`."""
        return self._choose(library().bsr_session_choose_scored, pattern, barred, count)

    def _choose(
        self, function: Any, pattern: Pattern, barred: Array, count: int
    ) -> Array:
        held = np.ascontiguousarray(barred, np.int64)
        chosen = np.empty(max(count, 0), np.int64)
        check(
            function(
                self._handle, ctypes.c_int64(pattern.index), ctypes.c_int64(len(held)),
                ctypes.c_void_p(held.ctypes.data or 1), ctypes.c_int64(count),
                ctypes.c_void_p(chosen.ctypes.data or 1),
            )
        )  # fmt: skip
        return chosen

    def replace(self, replacements: Sequence[tuple[int, Array, Array]]) -> None:
        """Updates patterns: the index of each, the blocks that go, and that come."""
        entries = (ReplacementStruct * max(1, len(replacements)))(
            *(
                ReplacementStruct(
                    index, len(pruned), len(regrown), pruned.ctypes.data,
                    regrown.ctypes.data,
                )
                for index, pruned, regrown in replacements
            )
        )  # fmt: skip
        check(
            library().bsr_session_replace(
                self._handle, entries, ctypes.c_int64(len(replacements))
            )
        )
        self._after_update()

    def set_new_blocks(self, pattern: Pattern, start: NewBlocks) -> None:
        """Says what blocks begin with that later updates of a pattern regrow."""
        check(
            library().bsr_session_set_new_blocks(
                self._handle, ctypes.c_int64(pattern.index), ctypes.byref(start)
            )
        )

    def count_updates(self, count: int) -> None:
        """Counts so many updates that change nothing."""
        replace, none = library().bsr_session_replace, ctypes.c_int64(0)
        nothing = ctypes.byref(ReplacementStruct())
        for _ in range(count):
            check(replace(self._handle, nothing, none))

    def run_scores(self) -> None:
        check(library().bsr_session_run_scores(self._handle))

    def update(self, updates: Sequence[PatternUpdate]) -> None:
        """Updates each pattern as its entry says."""
        entries = (PatternUpdate * max(1, len(updates)))(*updates)
        check(
            library().bsr_session_update(
                self._handle, entries, ctypes.c_int64(len(updates))
            )
        )
        self._after_update()

    def flops(self) -> int:
        """The floating-point operations of a run, or -1 if nothing tells."""
        return int(library().bsr_session_flops(self._handle, ctypes.c_int32(0)))

    def counters(self) -> Counters:
        counters = CountersStruct()
        check(
            library().bsr_session_counters(self._handle, ctypes.byref(counters))
        )
        return Counters(*(getattr(counters, f[0]) for f in CountersStruct._fields_))

    def save(self, path: str, metadata: str) -> None:
        check(
            library().bsr_session_save(
                self._handle, c_path(path), c_text("metadata", metadata)
            )
        )

    def check(self, path: str) -> str:
        """Reads a checkpoint without taking it; returns its metadata."""
        runtime = library()
        check(runtime.bsr_session_check(self._handle, c_path(path)))
        return str(runtime.bsr_session_metadata(self._handle).decode())

    def load(self, path: str) -> tuple[str, str]:
        """Reads a checkpoint; returns its metadata, and how its step is another."""
        runtime = library()
        check(runtime.bsr_session_load(self._handle, c_path(path)))
        return (
            runtime.bsr_session_metadata(self._handle).decode(),
            runtime.bsr_session_step_difference(self._handle).decode(),
        )
