# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Weights from and to the files of Hugging Face's models.

"""`model.safetensors` in and out.

A step exported from a Hugging Face model names its weights as the model does.
`load` takes them from a file, `save` writes them back under the same names,
dense, with zeros where no block is stored, so that `from_pretrained` reads
them; beside that file, `sparse.safetensors` has the stored blocks alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors

from sparse_opt import _given
from sparse_opt._errors import StepError
from sparse_opt._step import Step

Array = np.ndarray[Any, Any]
Tensors = dict[str, tuple[Array, str]]  # arrays, and how the runtime calls their type

__all__ = ["Loaded", "load", "save"]

DENSE, SPARSE = "model.safetensors", "sparse.safetensors"

# The types of safetensors: how a file calls them, what holds them.
_DTYPES = {
    "F16": np.float16, "BF16": np.uint16, "F32": np.float32, "F64": np.float64,
    "I8": np.int8, "I32": np.int32, "I64": np.int64, "BOOL": np.bool_,
    "U8": np.uint8, "U32": np.uint32, "U64": np.uint64,
}  # fmt: skip
_NAMES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "i1": "bool", "i8": "int8", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """What `load` found: as transformers reports it."""

    missing: tuple[str, ...]  # weights of the step that the file does not have
    unexpected: tuple[str, ...]  # tensors of the file that the step does not have


@_given.options()
def load(
    step: Step,
    path: str | os.PathLike[str],
    *,
    pattern: Literal["largest", "keep"] = "largest",
    rename: Callable[[str], str] = lambda name: name,
) -> Loaded:
    """Takes weights from a `model.safetensors`, or the folder that has one.

    The names of old checkpoints (`gamma` and `beta`) are accepted, and so are
    those of a model without its head's prefix (`encoder` for `bert.encoder`).
    Types are converted: a value that the step's type does not hold is an error. Optimizer
    state is left as it is.

    Args:
      step: the step.
      path: the file or the folder.
      pattern: store the blocks of the `largest` norms, or `keep` the patterns.
      rename: makes a name of the file one of the step, if they differ.

    Raises:
      StepError: a tensor has another shape than the step's, or a type or a value that
        the step does not hold.
    """
    file = Path(path)
    if file.is_dir():
        file = file / DENSE
    if not file.exists():
        raise StepError(
            f"expected a {DENSE} at '{path}', but got none: save the model with"
            " safe_serialization"
        )
    weights = _weights(step)
    short = {name.partition(".")[2]: name for name in weights}
    found, unexpected = set(), []
    tensors = safetensors.deserialize(file.read_bytes())  # type: ignore[no-untyped-call]
    for key, entry in tensors:
        name = rename(_modern(key))
        name = name if name in weights else short.get(name, name)
        if name not in weights:
            unexpected.append(key)
            continue
        dtype = entry["dtype"]
        if dtype not in _DTYPES:
            raise StepError(
                f"expected '{key}' of a type that compiled steps hold, but got {dtype}:"
                " convert the file, to F32 or BF16"
            )
        array: Array = np.frombuffer(entry["data"], _DTYPES[dtype])
        array = array.reshape(entry["shape"])
        converted = _converted(key, array, dtype == "BF16", weights[name])
        step.write_weight(name, converted, pattern)
        found.add(name)
    return Loaded(tuple(sorted(set(weights) - found)), tuple(unexpected))


@_given.options()
def save(
    step: Step,
    directory: str | os.PathLike[str],
    *,
    config: str | os.PathLike[str] | None = None,
    rename: Callable[[str], str] = lambda name: name,
) -> None:
    """Writes the weights of a step, dense and as they are stored.

    Args:
      step: the step.
      directory: where to; it is made if there is none.
      config: a folder whose `config.json` goes with them.
      rename: makes a name of the step one of the file, if they differ.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    dense: Tensors = {}
    native: Tensors = {}
    blocks: dict[str, str] = {}
    state = step.native_state()
    for name, type in _weights(step).items():
        dense[rename(name)] = step.read(name), type
        if name not in step.patterns:
            native[rename(name)] = state[name], type
            continue
        p = step.patterns[name]
        blocks[rename(name)] = f"{p.rows}x{p.cols} in {p.block_rows}x{p.block_cols}"
        for part, held in (("row_ptr", "i32"), ("col_idx", "i32"), ("values", type)):
            array = state[f"{name}.bsr.{part}"]
            native[f"{rename(name)}.bsr.{part}"] = array, held
    _write(folder / DENSE, dense, {"format": "pt"})
    _write(folder / SPARSE, native, {"format": "bsr", "version": "1", **blocks})
    if config is not None:
        shutil.copyfile(Path(config) / "config.json", folder / "config.json")


def _weights(step: Step) -> Mapping[str, str]:
    """Returns the types of parameters and buffers, by name."""
    return {
        name: buffer.type
        for name, buffer in step.buffers.items()
        if buffer.role in ("param", "buffer")
    }


def _modern(name: str) -> str:
    """Returns what TensorFlow's names of layer norms are called today."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _converted(name: str, array: Array, is_bits: bool, type: str) -> Array:
    """Returns `array` as the step holds its type; bf16 is held as its bits.

    Real numbers are rounded to nearest, ties to even, once.

    Raises:
      StepError: the type does not hold a value: another integer, or infinity.
    """
    if is_bits and type == "bf16":
        return array
    values: Array = _widened(array) if is_bits else array
    held = np.dtype(_NAMES.get(type) if type != "bf16" else np.uint16)
    if type == "bf16":
        result: Array = _narrowed(values)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            result = values.astype(held)
    back = _widened(result) if type == "bf16" else result
    if back.dtype.kind == "f":
        wrong = np.isinf(back) & ~np.isinf(values)
    elif back.dtype.itemsize == values.dtype.itemsize and values.dtype.kind in "iu":
        return result  # Unsigned numbers may be held as signed ones.
    else:
        wrong = back.astype(values.dtype) != values
    if wrong.any():
        raise StepError(
            f"expected '{name}' of values that {type} holds, but got"
            f" {values[wrong].flat[0]}: export the step with another type of it"
        )
    return result


def _widened(bits: Array) -> Array:
    """Returns the numbers that bf16 holds, as f32."""
    wide: Array = np.asarray(bits.astype(np.uint32) << np.uint32(16))
    return wide.view(np.float32)


def _narrowed(values: Array) -> Array:
    """Returns the bits of numbers as bf16."""
    with np.errstate(over="ignore"):
        single = np.asarray(values.astype(np.float32))
    bits = single.view(np.uint32)
    # What rounds is noted in the last bit: it is no tie then.
    is_more = np.abs(single) > np.abs(values)
    bits = (bits - is_more) | (single != values)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    # NaN stays NaN, whatever its bits.
    held: Array = np.where(np.isnan(single), (bits >> 16) | 0x40, rounded)
    return held.astype(np.uint16)


def _write(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Writes a file that is either the old one or the new one."""
    held = {name: np.ascontiguousarray(array) for name, (array, _) in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=_NAMES[tensors[name][1]],
            shape=array.shape,
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in held.items()
    }
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(safetensors.serialize(specs, metadata))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
