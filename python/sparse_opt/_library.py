# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The C interface of the runtime, through ctypes.

"""`bsr/runtime.h` for Python: its numbers and structures, and what takes no step."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sparse_opt._errors import StepError
from sparse_opt._tools import RUNTIME, find_library

if TYPE_CHECKING:
    from sparse_opt._description import Array

VERSION = 1

KINDS = (
    "dense", "values", "row_ptr", "col_idx", "slot", "col_ptr", "row_idx", "slot_t",
    "output", "scores",
)  # fmt: skip
NORMS = ("l1", "l2", "linf", "mean")
FAN_INS = ("dense", "rows", "columns")
NEW_VALUES = ("zero", "random")
NEW_STATE = ("first", "mean", "kept")
METHODS = ("static", "set", "rigl", "gmp")
TYPES = ("f16", "bf16", "f32", "f64", "i1", "i8", "i32", "i64", "ui8", "ui32", "ui64")
# NumPy has no bf16 of its own: its bits are held in uint16.
DTYPES = (
    np.float16, np.uint16, np.float32, np.float64, np.bool_, np.int8, np.int32,
    np.int64, np.uint8, np.uint32, np.uint64,
)  # fmt: skip


class BufferInfo(ctypes.Structure):
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


class PatternInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("extents", ctypes.c_int64),
        ("block_rows", ctypes.c_int64),
        ("block_cols", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("density", ctypes.c_double),
        ("is_static", ctypes.c_int32),
        ("weight", ctypes.c_int32),
    ]


class PatternView(ctypes.Structure):
    _fields_ = [("blocks", ctypes.c_int64)] + [
        (name, ctypes.POINTER(ctypes.c_int32))
        for name in ("row_ptr", "col_idx", "slot", "col_ptr", "row_idx", "slot_t")
    ]


class PatternUpdate(ctypes.Structure):
    _fields_ = [
        ("method", ctypes.c_int),
        ("norm", ctypes.c_int),
        ("drop", ctypes.c_double),
        ("blocks", ctypes.c_int64),
        ("allow_return", ctypes.c_int32),
        ("together", ctypes.c_int32),
    ]


class PatternStatistics(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "blocks", "all_blocks", "ever_stored", "most_in_row", "most_in_column",
            "pruned", "regrown", "newest", "newest_pruned",
        )
    ]  # fmt: skip


class RecordedPattern(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("rows", ctypes.c_int64),
        ("block_rows", ctypes.c_int64),
        ("block_cols", ctypes.c_int64),
        ("statistics", PatternStatistics),
        ("is_updated", ctypes.c_int32),
        ("update", PatternUpdate),
    ]


class SparseWeight(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p)] + [
        (name, ctypes.c_int64)
        for name in ("rows", "cols", "block_rows", "block_cols", "slots")
    ] + [(name, ctypes.c_int32) for name in ("is_static", "is_frozen", "has_scores")
    ] + [("extents", ctypes.c_int64)]  # fmt: skip


class NewBlocks(ctypes.Structure):
    _fields_ = [
        ("values", ctypes.c_int),
        ("state", ctypes.c_int),
        ("std", ctypes.c_double),
        ("own_steps", ctypes.c_int32),
        ("ramp", ctypes.c_int64),
    ]


class WeightRule(ctypes.Structure):
    _fields_ = [
        ("group", ctypes.c_int64),
        ("density", ctypes.c_double),
        ("blocks", ctypes.c_int64),
        ("first", ctypes.c_int),
        ("file", ctypes.c_char_p),
        ("method", ctypes.c_int),
        ("score", ctypes.c_int),
        ("has_updates", ctypes.c_int32),
        ("start", NewBlocks),
        ("fan_in", ctypes.c_int),
    ]


class ReplacementStruct(ctypes.Structure):
    _fields_ = [
        ("pattern", ctypes.c_int64),
        ("num_pruned", ctypes.c_int64),
        ("num_regrown", ctypes.c_int64),
        ("pruned", ctypes.c_void_p),
        ("regrown", ctypes.c_void_p),
    ]


class CountersStruct(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64)] + [
        (name, ctypes.c_int64)
        for name in (
            "steps", "pattern_updates", "blocks_pruned", "blocks_regrown",
            "allocations", "reallocations", "recompilations", "bytes",
        )
    ]  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the runtime that lies beside the tools, or that the system finds."""
    try:
        loaded = ctypes.CDLL(find_library(RUNTIME))
    except OSError as error:
        raise StepError(
            f"expected {RUNTIME} beside sparse-compile or on the library path, but got"
            f" '{error}': put the folder of a build's tools, as build/dev/bin, on PATH"
        ) from error
    loaded.bsr_runtime_version.restype = ctypes.c_uint32
    version = loaded.bsr_runtime_version()
    if version < VERSION:
        raise StepError(
            f"expected a runtime of version {VERSION} or later, but got {version}:"
            " build it again"
        )
    i64, text = ctypes.c_int64, ctypes.c_char_p
    for name, result in (
        ("last_error", text), ("step_manifest_text", text), ("step_name", text),
        ("step_num_buffers", i64), ("step_num_patterns", i64), ("step_num_products", i64),
        ("step_num_left_dense", i64), ("session_flops", i64), ("step_sharded", i64),
        ("density_blocks", i64), ("sparsity_text", text), ("sparsity_options", text), ("sparsity_keys", text), ("session_metadata", text), ("session_step_difference", text),
        ("step_unload", None), ("session_destroy", None), ("sparsity_destroy", None), ("updates_destroy", None),
    ):  # fmt: skip
        getattr(loaded, f"bsr_{name}").restype = result
    return loaded


def check(status: int) -> None:
    if status:
        raise StepError(library().bsr_last_error().decode())


def c_text(what: str, text: str) -> bytes:
    """Returns a text as C takes it, where it would end at the first NUL."""
    if "\0" in text:
        raise StepError(f"expected {what} without NUL, but got {text!r}")
    return text.encode(errors="surrogateescape")


def c_path(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(c_text("a path", os.fsdecode(path)))


def target(device: str) -> str:
    """Returns what steps for a device are compiled for: `cpu`, or a GPU's chip."""
    found = ctypes.c_char_p()
    check(library().bsr_device_target(c_text("a device", device), ctypes.byref(found)))
    return (found.value or b"").decode()


# What numbers of any type that can be chosen from become, without a loss.
CHOSEN_FROM = ("ui64", "i64", "f32", "f64")


@functools.cache
def _chosen_from(dtype: np.dtype[Any]) -> int:
    """Returns the type that numbers of `dtype` become."""
    for type in map(TYPES.index, CHOSEN_FROM):
        if np.can_cast(dtype, DTYPES[type]):
            return type
    raise StepError(
        f"expected real numbers of at most 64 bits to choose from, but got {dtype}"
    )


def choose(which: Literal["lowest", "highest"], numbers: Array, count: int) -> Array:
    """Returns the rising places of the `lowest` or the `highest` numbers."""
    if isinstance(numbers, np.ma.MaskedArray):
        raise StepError(
            "expected numbers to choose from, but got a numpy.ma.MaskedArray: pass"
            " numbers.filled(value)"
        )
    array = np.asarray(numbers)
    type = _chosen_from(array.dtype)
    held = np.ascontiguousarray(array, DTYPES[type])
    places = np.empty(max(count, 0), np.int64)
    function = library().bsr_highest if which == "highest" else library().bsr_lowest
    check(
        function(
            ctypes.c_int(type), ctypes.c_int64(held.size),
            ctypes.c_void_p(held.ctypes.data or 1), ctypes.c_int64(count),
            ctypes.c_void_p(places.ctypes.data or 1),
        )
    )  # fmt: skip
    return places


def reads_scores(update: PatternUpdate) -> bool:
    """Returns whether an update reads the scores of all blocks."""
    return bool(library().bsr_method_reads_scores(ctypes.c_int(update.method)))


def has_drop(update: PatternUpdate) -> bool:
    """Returns whether the drop fraction says how many blocks an update prunes."""
    return bool(library().bsr_method_has_drop(ctypes.c_int(update.method)))


def density_blocks(density: float, blocks: int) -> int:
    """Returns how many of a matrix's blocks a density is."""
    function = library().bsr_density_blocks
    return int(function(ctypes.c_double(density), ctypes.c_int64(blocks)))
