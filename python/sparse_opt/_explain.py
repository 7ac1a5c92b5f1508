# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What marks would make of a step, before it is compiled.

"""What the compiler says of a step that it makes no machine code of."""

from __future__ import annotations

import json
import math
import re
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparse_opt import _compiler, _given, _marks
from sparse_opt._errors import StepError
from sparse_opt._library import DTYPES, TYPES
from sparse_opt._marks import Argument, Mark, Marks
from sparse_opt._program import Export

_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_MOST_ROWS = 12


@dataclass(frozen=True)
class ExportedWeight:
    """A weight of an export.

    Attributes:
      name: that by which marks match it.
      shape: its dimensions.
      dtype: the type of an entry, as `f32`.
      blocks: the sizes of square blocks, of 1, 2, 4, 8, 16, 32 and 64, that divide it; none
        of what is no matrix.
      parameters: how many numbers it holds.
      flops: floating-point operations, in a run of the dense step, of the products that are
        computed of blocks if it is marked, forward and backward; None of what is no
        matrix, or where the compiler says none.
      share: that, of the operations of all products of the step, from 0 to 1.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    blocks: tuple[int, ...]
    parameters: int
    flops: int | None
    share: float | None


class Weights(tuple[ExportedWeight, ...]):
    """The weights of an export; `repr` is a table."""

    def __repr__(self) -> str:
        rows = [("weight", "shape", "blocks", "parameters", "share of FLOPs")]
        for w in self:
            share = "-" if w.share is None else f"{w.share:.1%}"
            blocks = ", ".join(map(str, w.blocks)) or "-"
            rows.append((w.name, str(list(w.shape)), blocks, f"{w.parameters:,}", share))
        return _table(rows)


@dataclass(frozen=True)
class ExplainedWeight:
    """What becomes of a weight.

    Attributes:
      name, shape: as in the export.
      mark: the first of the marks that matches it, if one does.
      block: rows and columns of its blocks; None if it stays dense.
      stored, blocks: how many blocks it has slots for, and how many it has; of several
        matrices all together; 0 if it stays dense.
      products: how many products with its blocks the step computes: `spmm`,
        `spmm_transposed` and `sddmm` (its gradient), `gathered` and `scattered` rows.
      left_dense: what computes with all of it nevertheless, and why.
      reason: why it stays dense, if it does.
      flops: floating-point operations of its products in a run, dense and as they will be.
    """

    name: str
    shape: tuple[int, ...]
    mark: Mark | None
    block: tuple[int, int] | None
    stored: int
    blocks: int
    products: Mapping[str, int]
    left_dense: tuple[str, ...]
    reason: str
    flops: tuple[int, int]

    @property
    def is_sparse(self) -> bool:
        """Whether it has blocks."""
        return self.block is not None


@dataclass(frozen=True, repr=False)
class Explanation:
    """What marks make of a step. Pairs are of the dense step, and of the sparse one.

    Attributes:
      weights: all weights, in the order of the export.
      weight_bytes, state_bytes: bytes of weights, and of what is kept beside them, such as
        moments of the optimizer.
      pattern_bytes: bytes that say where blocks lie.
      flops: floating-point operations of the products of a run, with all slots in use; in
        both, those of attention are those of the blocks that it is computed on.
      notes: what the compiler says of gradients that it does not mask, and of attention.
      report: what `step.report` will be.
    """

    weights: tuple[ExplainedWeight, ...]
    weight_bytes: tuple[int, int]
    state_bytes: tuple[int, int]
    pattern_bytes: int
    flops: tuple[int, int]
    notes: tuple[str, ...]
    report: str

    def __repr__(self) -> str:
        sparse = [w for w in self.weights if w.is_sparse]
        lines = [f"{len(sparse)} of {len(self.weights)} weights are sparse"]
        rows: list[Sequence[str]] = [
            (
                w.name, str(list(w.shape)), "x".join(map(str, w.block or ())),
                f"{w.stored:,} of {w.blocks:,} blocks",
                ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in w.products.items()),
            )
            for w in sparse[:_MOST_ROWS]
        ]  # fmt: skip
        if rows:
            lines.append(_table(rows))
        if len(sparse) > _MOST_ROWS:
            lines.append(f"  and {len(sparse) - _MOST_ROWS} more (weights)")
        shapes = {w.name: w.shape for w in self.weights}
        reasons = defaultdict(list)
        for w in self.weights:
            if not w.is_sparse:
                reasons[w.reason].append(w.name)
        for reason, names in reasons.items():
            lines.append(f"dense, {reason}: {_marks.named(names, shapes)}")
        said = [f"left dense of '{w.name}': {why}" for w in sparse for why in w.left_dense]
        said.extend(f"note: {note}" for note in self.notes)
        lines.extend(said[:_MOST_ROWS])
        if len(said) > _MOST_ROWS:
            lines.append(f"and {len(said) - _MOST_ROWS} more (left_dense of weights, and notes)")
        rows = [("", "dense", "sparse")]
        for what, (before, after) in (
            ("bytes of weights", self.weight_bytes),
            ("bytes of state", self.state_bytes),
            ("bytes of patterns", (0, self.pattern_bytes)),
            ("FLOPs of products", self.flops),
        ):
            rows.append((what, f"{before:,}", f"{after:,}"))
        return "\n".join([*lines, _table(rows)])


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows as text, in which columns of numbers end at the right."""
    columns = []
    for column in zip(*rows):
        width = max(map(len, column))
        is_numbers = all(re.fullmatch(r"[\d,.]+%?|-", cell) for cell in column[1:])
        columns.append([c.rjust(width) if is_numbers else c.ljust(width) for c in column])
    return "\n".join(f"  {'  '.join(row)}".rstrip() for row in zip(*columns))


@_given.options()
def explain(
    export: str, marks: Marks | None = None, *, options: Sequence[str] = ()
) -> Explanation:
    """Says what marks would make sparse, what would stay dense and why, and what that saves.

    The compiler makes no machine code: it takes some seconds for BERT-Base.

        print(sparse_opt.explain(export, sparse_opt.Mark("weight$", block=16, density=0.1)))

    Args:
      export: as in `sparse_opt.compile`.
      marks: as in `sparse_opt.compile`; by default those of the export.
      options: further options of `sparse-compile`.

    Raises:
      StepError: as `sparse_opt.compile` does.
    """
    fitted = _compiler.compilable_marks(export, marks, 0, says=False)
    if isinstance(export, Export):
        export = export.fitted(fitted)
    program = getattr(export, "program", None)
    taken = program.layers.marks.values() if program and program.layers else ()
    given = getattr(export, "marks", ()) if marks is None else _marks.listed(marks)
    options = _given.listed("a list of options of sparse-compile", options)
    return _Compiled.of(export, fitted, options).explained(export, [*taken, *given])


@dataclass(frozen=True)
class _Remark:
    """What a pass says, with what it says of it."""

    kind: str
    name: str
    place: str
    keys: Mapping[str, str]


_PLAIN = re.compile(r"  - (\w+): +(?:'((?:[^']|'')*)'|\"((?:[^\"\\]|\\.)*)\"|(.*))")
_PLACE = re.compile(r"File: +'?(.*?)'?,\s+Line: +([1-9]\d*)", re.DOTALL)


def _remarks_of(text: str) -> list[_Remark]:
    """Returns what LLVM's remarks in YAML say."""
    remarks = []
    for part in re.split(r"^--- !", text, flags=re.MULTILINE)[1:]:
        name = re.search(r"^Name: +(\S+)", part, re.MULTILINE)
        place = _PLACE.search(part)
        keys = {
            key: single.replace("''", "'") or double.replace('\\"', '"') or plain
            for key, single, double, plain in _PLAIN.findall(part)
        }
        remarks.append(
            _Remark(
                part.split()[0],
                name[1] if name else "",
                f" at {place[1]}:{place[2]}" if place else "",
                keys,
            )
        )
    return remarks


# How the passes' keys are called in Python.
_PRODUCTS = {
    "SpMM": "spmm", "SpMMTransposed": "spmm_transposed", "SDDMM": "sddmm",
    "Gathered": "gathered", "Scattered": "scattered",
}  # fmt: skip


@dataclass(frozen=True)
class _Compiled:
    """A step that was compiled, but for its machine code."""

    manifest: Mapping[str, Any]
    remarks: Sequence[_Remark]
    report: str

    @classmethod
    def of(cls, export: str, marks: Sequence[Mark], options: Sequence[str]) -> _Compiled:
        with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They are those of the compilation.
            path, remarks = Path(directory) / "step.mlir", Path(directory) / "remarks.yaml"
            of_remarks = [
                f"--remarks={remarks}", "--remarks-filter=bsr-(bind|propagate|find-attention)"
            ]  # fmt: skip
            every = [*options, "--emit=mlir", *of_remarks]
            report = _compiler.run(export, path, marks, every)
            text, said = path.read_text(), remarks.read_text()
        manifest = re.search(r'@bsr_step_manifest\("((?:[^"\\]|\\.)*)"', text)
        assert manifest is not None
        # It ends in a zero.
        found = json.loads(_marks.unescaped(manifest[1]).rstrip("\0"))
        return cls(found, _remarks_of(said), report)

    def patterns(self) -> dict[str, list[Mapping[str, Any]]]:
        """Returns the patterns that say where the blocks of an argument of the export lie, by
        its name: moments and copies have those of their weight."""
        found = defaultdict(list)
        for buffer in self.manifest["buffers"]:
            if buffer["kind"] == "values":
                found[_whole(buffer)].append(self.manifest["patterns"][buffer["pattern"]])
        return found

    def flops_of(self, name: str) -> tuple[int, int]:
        """Returns the operations of the products with all blocks of a weight, and with those
        that have a slot."""
        buffers = self.manifest["buffers"]
        own = (p for p in self.manifest["patterns"] if _whole(buffers[p["weight"]]) == name)
        return _flops(own)

    def flops(self) -> tuple[int, int]:
        """Returns the operations of the products of a run, dense and sparse."""
        blocks, stored = _flops(self.manifest["patterns"])
        dense = self.manifest["flops"]["dense"]
        return dense + blocks, dense + stored

    def explained(self, export: str, marks: Sequence[Mark]) -> Explanation:
        patterns, buffers = self.patterns(), self.manifest["buffers"]
        parts = {p["name"]: _whole(buffers[p["weight"]]) for p in self.manifest["patterns"]}
        products: dict[str, Counter[str]] = defaultdict(Counter)
        left: dict[str, list[str]] = defaultdict(list)
        notes: dict[str, None] = {}  # a set in their order
        for remark in self.remarks:
            keys = remark.keys
            name = parts.get(keys.get("Weight", ""), "")
            if remark.name == "Weight":
                counts = {kind: int(keys[key]) for key, kind in _PRODUCTS.items()}
                products[name].update({kind: n for kind, n in counts.items() if n})
            elif remark.name == "LeftDense":
                left[name].append(f"{keys['Operation']}, which {keys['Reason']}{remark.place}")
            elif "Remark" in keys and remark.name != "Total":
                notes[keys["Remark"] + remark.place] = None
        weights = [a for a in _marks.arguments_of(export).values() if a.is_weight]
        explained = []
        for weight in weights:
            own, name = patterns.get(weight.name, []), weight.name
            mark = next((m for m in marks if m.matches(name)), None)
            explained.append(
                ExplainedWeight(
                    name,
                    weight.shape,
                    mark,
                    (own[0]["block"][0], own[0]["block"][1]) if own else None,
                    sum(pattern["slots"] for pattern in own),
                    sum(map(_blocks_of, own)),
                    dict(products[name]),
                    tuple(left[name]),
                    "" if own else _reason(weight, mark),
                    self.flops_of(name),
                )
            )
        of_weights, of_state, of_patterns = self._bytes({weight.name for weight in weights})
        return Explanation(
            tuple(explained), of_weights, of_state, of_patterns, self.flops(), tuple(notes),
            self.report,
        )  # fmt: skip

    def _bytes(self, weights: set[str]) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Returns the bytes of weights, of state, dense and sparse, and of patterns."""
        of_weights, of_state, of_patterns = [0, 0], [0, 0], 0
        for buffer in self.manifest["buffers"]:
            after = _size(buffer["type"]) * math.prod(buffer["shape"])
            kind, before = buffer["kind"], after
            if kind == "values":
                pattern = self.manifest["patterns"][buffer["pattern"]]
                before = _size(buffer["type"]) * math.prod(pattern["shape"])
                if buffer.get("role") == "count":
                    before = 0
            elif kind in ("output", "scores"):
                continue
            elif kind != "dense":
                of_patterns += after
                continue
            is_weight = _whole(buffer) in weights
            if is_weight or buffer["carried"] or buffer.get("role") in ("param", "state"):
                sums = of_weights if is_weight else of_state
                sums[0] += before
                sums[1] += after
        return (of_weights[0], of_weights[1]), (of_state[0], of_state[1]), of_patterns


def _whole(buffer: Mapping[str, Any]) -> str:
    """Returns the name of the argument of the export that a buffer is, or is a part of."""
    return str(buffer.get("origin", buffer)["name"])


def _flops(patterns: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    blocks, stored = 0, 0
    for pattern in patterns:
        blocks += pattern["flops"] * _blocks_of(pattern)
        stored += pattern["flops"] * pattern["slots"]
    return blocks, stored


def _blocks_of(pattern: Mapping[str, Any]) -> int:
    (rows, cols), (height, width) = pattern["shape"], pattern["block"]
    return int(rows // height * (cols // width))


def _size(kind: str) -> int:
    return np.dtype(DTYPES[TYPES.index(kind)]).itemsize


def _reason(weight: Argument, mark: Mark | None) -> str:
    dims = (mark and mark.dims) or ("row", "col")
    if len(weight.shape) != len(dims):
        return "no matrix" if len(dims) == 2 else f"not of dims {','.join(dims)}"
    if mark is None:
        return "matched by no mark"
    if not mark.fits(weight.shape):
        return f"not divided by {_marks.blocks_of(mark)}"
    return "not a weight by itself"


def weights_of(export: str) -> Weights:
    """Returns what is known of the weights of an export."""
    weights = [a for a in _marks.arguments_of(export).values() if a.is_weight]
    blocks = {w.name: _dividing(w.shape) for w in weights}
    marks = [
        Mark.named(name, (sizes[-1], sizes[-1]), 1.0) for name, sizes in blocks.items() if sizes
    ]
    flops: dict[str, int] = {}
    total = 0
    try:
        if marks:
            compiled = _Compiled.of(export, marks, ())
            total = compiled.flops()[0]
            flops = {name: compiled.flops_of(name)[0] for name, sizes in blocks.items() if sizes}
    except StepError:
        pass  # Weights are what they are where there is no compiler.
    rows = []
    for w in weights:
        count = flops.get(w.name)
        share = count / total if count is not None and total else None
        rows.append(
            ExportedWeight(w.name, w.shape, w.type, blocks[w.name], w.size, count, share)
        )
    return Weights(rows)


def _dividing(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the sizes of blocks that divide what has a shape, rising."""
    if len(shape) != 2 or math.prod(shape) <= 1:
        return ()
    return tuple(size for size in _BLOCKS if not (shape[0] % size or shape[1] % size))
