# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes an export as the folder that sparse-train starts from.

"""`Export.save`: a step, its first values, its batch and a configuration, as files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparse_opt import _compiler, _description, _marks, _step
from sparse_opt._errors import ExportError, StepError
from sparse_opt._library import DTYPES, TYPES
from sparse_opt._marks import Argument, Mark, Marks
from sparse_opt._program import Limits

if TYPE_CHECKING:
    from sparse_opt._program import Array, Export, Program

STEP, VALUES, DATA, CONFIG = "step.mlir", "values.safetensors", "data.safetensors", "train.yaml"
# Of several lengths.
STEP_OF, DATA_OF = "step-{length}.mlir", "data-{length}.safetensors"
PATTERNS = "patterns/{name}.json"
_STEPS = 100
# What safetensors calls the types of the runtime, in their order.
_NAMES = ("F16", "BF16", "F32", "F64", "BOOL", "I8", "I32", "I64", "U8", "U32", "U64")


class _Text(NamedTuple):
    """The step for one length, 0 where there is one step, and its examples."""

    length: int
    export: Export
    arguments: dict[str, Argument]
    batch: list[Argument]
    arrays: dict[str, Array]
    limits: dict[str, Limits]

    def named(self, name: str, of_length: str) -> str:
        """Returns what its file is called."""
        return of_length.format(length=self.length) if self.length else name


def save(
    export: Export,
    folder: str | os.PathLike[str],
    marks: Marks | None,
    data: Mapping[Any, Any] | None,
    shapes: Sequence[Any],
) -> None:
    """Does what `Export.save` says."""
    program = export.program
    if program is None:
        raise ExportError(
            "expected an export of PyTorch or JAX, whose program has the values to save, but"
            " got a text: sparse-train takes it as it is"
        )
    try:
        export = export.fitted(_compiler.compilable_marks(export, marks, 0, says=False))
        program = export.program or program
        fitted, patterns, masks = _compiled(export, program, marks)
        exports = [export, *(program.again(program.call_of(batch)) for batch in shapes)]
    except StepError as error:
        raise ExportError(str(error)) from error
    texts = _texts(exports, masks, data)
    path = Path(folder)
    if (path / CONFIG).exists():
        raise ExportError(
            f"expected a folder without a {CONFIG}, but got '{path / CONFIG}': remove it, or"
            " save to another folder"
        )
    values: dict[str, tuple[Array, str]] = {}
    for text in reversed(texts):
        known = text.export.program or program
        values |= {
            name: (value, text.arguments[name].type)
            for name, value in known.values()
            if name in text.arguments
        }
    path.mkdir(parents=True, exist_ok=True)
    write_tensors(path / VALUES, values)
    for text in texts:
        step = path / text.named(STEP, STEP_OF)
        step.write_text(text.export, encoding="utf-8", errors="surrogateescape")
        kinds = {word_of(a.name): a.type for a in text.batch}
        held = {n: (a, kinds[n.removeprefix("held_out.")]) for n, a in text.arrays.items()}
        write_tensors(path / text.named(DATA, DATA_OF), held)
    for name, pattern in patterns.items():
        file = path / PATTERNS.format(name=name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(pattern) + "\n", encoding="utf-8")
    # Last: a folder that has one is whole.
    (path / CONFIG).write_text(
        _config(texts, fitted, bool(patterns), program.rate()),
        encoding="utf-8",
    )


def _compiled(
    export: Export, program: Program, marks: Marks | None
) -> tuple[list[Mark], dict[str, Any], Set[str]]:
    """Returns the marks to compile with; the pattern files of weights that begin with
    blocks of the program's, by name; and the arguments that are masks. A compiled step has
    the last two. Raises `ExportError` for what is no training step."""
    if 'bsr.role = "loss"' not in export:
        raise ExportError("expected a training step with a loss, but got another function")
    given = _marks.listed(export.marks if marks is None else marks)
    has_masks = any(mark.mask is not None for mark in given)
    of_program = has_masks or bool(program.layers and program.layers.marks)
    fitted = _compiler.compilable_marks(export, given, 0, says=not of_program)
    if not of_program:
        return fitted, {}, frozenset()
    step = _step.compile(export, given, pattern="mask" if has_masks else "random", check=0)
    patterns = {}
    for name, pattern in step.patterns.items():
        if not pattern.is_static:
            blocks = step.blocks(name)
            patterns[name] = {
                "format": "bsr-pattern",
                "version": 1,
                "shape": [pattern.rows, pattern.cols],
                "block": [pattern.block_rows, pattern.block_cols],
                "row_ptr": blocks.row_ptr.tolist(),
                "col_idx": blocks.col_idx.tolist(),
            }
    return fitted, patterns, step._mask_names


def _texts(
    exports: Sequence[Export], masks: Set[str], data: Mapping[Any, Any] | None
) -> list[_Text]:
    """Returns the exports of all lengths with their examples, the first export first."""
    arguments = [_marks.arguments_of(export) for export in exports]
    batches = [
        [a for a in own.values() if a.role == "batch" and a.name not in masks]
        for own in arguments
    ]
    lengths = _lengths(batches) if len(exports) > 1 else [0]
    if len(exports) > 1 and data is not None and set(data) != set(lengths):
        raise ExportError(
            f"expected data to have examples for each of the lengths {lengths}, but got"
            f" {', '.join(map(repr, data)) or 'none'}"
        )
    texts = []
    for export, own, batch, length in zip(exports, arguments, batches, lengths):
        given = data[length] if data is not None and length else data
        program = export.program
        assert program is not None
        arrays = _arrays_of(batch, program, given)
        limits = _limits(batch, program, arrays)
        texts.append(_Text(length, export, own, batch, arrays, limits))
    return texts


def _lengths(batches: Sequence[Sequence[Argument]]) -> list[int]:
    """Returns the length of each batch: that of the longest dimension in which they differ,
    that of examples left out."""
    found = set()
    for same in zip(*batches):
        for extents in zip(*(argument.shape[1:] for argument in same)):
            if len(set(extents)) > 1:
                found.add(extents)
    longest = max(found, default=())
    if len(set(longest)) < len(batches):
        raise ExportError(
            f"expected {len(batches)} batches of as many lengths, but got"
            f" {', '.join(map(str, longest)) or 'one'}"
        )
    return list(longest)


def word_of(name: str) -> str:
    """Returns what an array of a batch is called in a data set: its last word."""
    return name.rpartition(".")[2]


def _arrays_of(
    batch: list[Argument], program: Program, data: Mapping[str, Any] | None
) -> dict[str, Array]:
    """Returns the data set: that which is given, or the exported batch, which is then
    what losses are measured on, too."""
    words = [word_of(a.name) for a in batch]
    if not batch:
        raise ExportError("expected a step with arrays of a batch, but got one without")
    for argument, word in zip(batch, words):
        if not argument.shape:
            raise ExportError(
                f"expected '{argument.name}' to have a dimension of examples, but got one"
                " number"
            )
        if words.count(word) > 1:
            raise ExportError(
                "expected arrays of a batch whose names end in different words, as"
                f" sparse-train calls them, but got '{word}' twice"
            )
    if data is None:
        found = dict(program.examples())
        for argument in batch:
            if argument.name not in found:
                raise ExportError(
                    f"expected values of '{argument.name}' in the exported batch, but got its"
                    " shape alone: say data={...}"
                )
        own = {word_of(a.name): found[a.name] for a in batch}
        return own | {f"held_out.{word}": array for word, array in own.items()}
    given = {
        str(name): np.asarray(_description.plain(str(name), value))
        for name, value in data.items()
    }
    known = [*words, *(f"held_out.{word}" for word in words)]
    for name in [*words, *given]:
        if name not in given or name not in known:
            raise ExportError(
                f"expected data to have arrays {', '.join(map(repr, words))}, and maybe"
                f" held_out.<name>, but got {', '.join(map(repr, given)) or 'none'}"
            )
    for name, array in given.items():
        argument = batch[words.index(name.removeprefix("held_out."))]
        kind = np.dtype(DTYPES[TYPES.index(argument.type)])
        if array.dtype != kind and array.dtype.kind in "iu" and kind.kind in "iu":
            given[name] = array = array.astype(kind)
        if array.dtype != kind or array.shape[1:] != argument.shape[1:] or not array.ndim:
            raise ExportError(
                f"expected examples {list(argument.shape[1:])} {argument.type} in '{name}',"
                f" but got {array.dtype} of shape {list(array.shape)}"
            )
    return given


def _limits(
    batch: list[Argument], program: Program, arrays: Mapping[str, Array]
) -> dict[str, Limits]:
    """Returns where the integers of each array lie: as the program looks them up, or else
    as the arrays have them."""
    limits = {}
    for argument in batch:
        word = word_of(argument.name)
        own = [arrays[n] for n in (word, f"held_out.{word}") if n in arrays]
        if own[0].dtype.kind not in "iu" or argument.type == "bf16":
            continue
        given = program.limits_of(argument.name)
        values = [array[array != given.ignored] for array in own]
        first = min(int(array.min(initial=0)) for array in values)
        last = max(int(array.max(initial=0)) for array in values)
        least = first if given.least is None else given.least
        end = last + 1 if given.end is None else given.end
        if first < least or last >= end:
            raise ExportError(
                f"expected integers from {least} to below {end} in '{word}', by which the"
                f" program looks up, but got {first if first < least else last}"
            )
        limits[word] = Limits(least, end, given.ignored)
    return limits


def write_tensors(path: Path, tensors: Mapping[str, tuple[Array, str]]) -> None:
    """Writes a safetensors file of arrays, each with its type of the runtime."""
    header, offset = {}, 0
    for name, (array, kind) in tensors.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": _NAMES[TYPES.index(kind)],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode(errors="surrogateescape")
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array, _ in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def _merged(texts: Sequence[_Text]) -> dict[str, Limits]:
    """Returns the limits of the integers of all lengths."""
    merged: dict[str, Limits] = {}
    for text in texts:
        for word, own in text.limits.items():
            known = merged.get(word, own)
            merged[word] = Limits(
                min(known.least or 0, own.least or 0),
                max(known.end or 0, own.end or 0),
                own.ignored,
            )
    return merged


def _config(
    texts: Sequence[_Text],
    marks: list[Mark],
    has_patterns: bool,
    rate: float | None,
) -> str:
    """Returns a configuration; texts in JSON are YAML, too."""
    limits = _merged(texts)
    several = len(texts) > 1
    order = sorted(texts, key=lambda text: text.length)

    def files(name: str, of_length: str) -> str:
        if not several:
            return f"./{name}"
        each = (f'{t.length}: "./{of_length.format(length=t.length)}"' for t in order)
        return "{" + ", ".join(each) + "}"

    lines = [
        "# sparse-train --config FILE trains with this file; sparse-train --help lists the",
        '# keys. Paths that begin with "./" are in the folder of this file.',
        f"step: {files(STEP, STEP_OF)}",
    ]
    if several:
        turns = {_STEPS * i // len(order): text.length for i, text in enumerate(order)}
        lines += [
            "# From which step on training has batches of which length:",
            f"lengths: {{{', '.join(f'{k}: {v}' for k, v in turns.items())}}}",
        ]
    lines += [f"values: ./{VALUES}", "run: ./run", "task: arrays"]
    for text in order:
        of = f" of length {text.length}" if several else ""
        examples = text.batch[0].shape[0]
        lines.append(f"# An array of N examples for each of a batch of {examples}{of}, by its name:")
        for argument in text.batch:
            word = word_of(argument.name)
            shape = ", ".join(["N", *map(str, argument.shape[1:])])
            known = limits.get(word)
            below = f", from {known.least} to below {known.end}" if known else ""
            ignored = f", or {known.ignored}" if known and known.ignored is not None else ""
            lines.append(f"#   {word}: [{shape}] {argument.type}{below}{ignored}")
    counts = [str(len(text.arrays[word_of(text.batch[0].name)])) for text in order]
    has = "The files have" if several else "The file has"
    lines += [
        f"# {has} {', '.join(counts)}; a folder of .npy files does as well.",
        f"data: {files(DATA, DATA_OF)}",
    ]
    for key, numbers in (
        ("limits", {word: known.end for word, known in limits.items()}),
        ("least", {word: known.least for word, known in limits.items() if known.least}),
        (
            "ignored",
            {w: known.ignored for w, known in limits.items() if known.ignored is not None},
        ),
    ):
        if numbers:
            lines.append(f"{key}: {json.dumps(numbers)}")
    lines.append(f"steps: {_STEPS}")
    if rate is not None:
        lines.append(f"rate: {{peak: {rate!r}, decay: constant}}")
    if marks:
        options = [f"--mark={mark}" for mark in marks]
        lines.append(f"compile: {{cache: ./cache, options: {json.dumps(options)}}}")
        first = f', init: file, file: "./{PATTERNS}"' if has_patterns else ""
        lines.append(f"sparsity: {{method: static{first}}}")
    else:
        lines.append("compile: {cache: ./cache}")
    return "\n".join(lines) + "\n"
