# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Calls of sparse-compile.

"""What the compiler is given, and what it says."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparse_opt import _given, _library, _marks, _progress, _ranks, _source, _tools, cache
from sparse_opt._errors import ExportError, StepError
from sparse_opt._marks import Mark
from sparse_opt._program import Export
from sparse_opt._ranks import Ranks


@dataclass(frozen=True)
class Compilation:
    """How a step was made."""

    export: str
    marks: tuple[Mark, ...]
    options: tuple[str, ...]

    def marks_of(self, export: str) -> list[Mark]:
        """The marks that match a name of a program, which may lack some weights."""
        names = _marks.arguments_of(export)
        return [m for m in self.marks if m.match is None or any(map(m.matches, names))]

    def fitted(self, export: Export) -> Export:
        """A program of the same weights in the form that these marks and options take."""
        others = ("--target", "--data-parallel")
        alone = not any(option.startswith(others) for option in self.options)
        return export.fitted(self.marks_of(export), alone=alone)

    def evaluation_options(self) -> list[str]:
        """The options of a program without updates."""
        of_updates = (
            "--score-norm", "--require-sparse", "--data-parallel", "--shard-state",
            "--block-steps", "--block-ramp",
        )  # fmt: skip
        kept = [o for o in self.options if not o.startswith(of_updates)]
        return [*kept, "--drop-updates"]


def run(
    export: str, path: Path, marks: Sequence[Mark], options: Sequence[str]
) -> str:
    """Compiles to the library `path`; returns the report, and warns of its warnings."""
    command = [
        _tools.find_tool("sparse-compile"), "-", "-o", str(path),
        *(f"--mark={mark}" for mark in marks), "--print-report", *options,
    ]  # fmt: skip
    code, report = _run(command, _encoded(export))
    if code:
        raise StepError(_failure(report, code))
    for line in report.splitlines():
        if "warning: " in line:
            warnings.warn(_sentence(line, "warning: "), stacklevel=_source.user_level())
    return report


# What `--time` of sparse-compile tells of, in this order, a line when each is done.
_PHASES = ("parse", "lower", "translate", "optimize", "code", "link", "write")
_PHASE_DONE = re.compile(r" *[0-9.]+ s  ([a-z]+)\n")


def _run(command: Sequence[str], text: bytes) -> tuple[int, str]:
    """Runs sparse-compile on a text, and says how far it is; returns its status, and its
    standard error, but for the times of its phases where it was not asked for them."""
    lines, is_timed = [], "--time" in command
    command = command if is_timed else [*command, "--time"]
    with tempfile.TemporaryFile() as file, _progress.of("compile", _PHASES):
        file.write(text)
        file.seek(0)
        with subprocess.Popen(
            command, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            try:
                for written in process.stderr:
                    # It repeats what it was given, which may be no text.
                    line = written.decode(errors="replace")
                    done = _PHASE_DONE.fullmatch(line)
                    if done is None or is_timed:
                        lines.append(line)
                    if done is not None and done[1] in _PHASES[:-1]:
                        _progress.stage(_PHASES[_PHASES.index(done[1]) + 1])
            except BaseException:
                process.kill()
                raise
    return process.returncode, "".join(lines)


def _encoded(text: str) -> bytes:
    """Returns a text, or the bytes that Python holds as one, as a tool gets them."""
    return text.encode(errors="surrogateescape")


def of_shape(made: Compilation, export: str) -> Path:
    """Returns the library of a step's export for batches of another shape, which is
    kept on disk."""
    # The first shape begins; the values that a program has had since make no other library.
    export = re.sub(r'bsr\.init = "[^"]*"(, )?', "", export)
    # Nor do lines: of what JAX has traced before, they are those of the first time.
    key = re.sub(r"^#loc.*\n| loc\(#loc\d*\)", "", export, flags=re.MULTILINE)
    marks, options = made.marks_of(export), made.options
    flags = [*(f"--mark={mark}" for mark in marks), *options]
    with warnings.catch_warnings():
        # What is split here was split there.
        warnings.filterwarnings("ignore", ".*becomes matrices with patterns")
        return cache.library(key, flags, lambda path: run(export, path, marks, options))


def run_once(
    export: str,
    path: Path,
    marks: Sequence[Mark],
    options: Sequence[str],
    ranks: Ranks | None,
) -> str:
    """Compiles as `run`, of several processes in the first one."""
    if ranks is None:
        return run(export, path, marks, options)
    given = _encoded("\0".join([export, *map(str, marks), "", *options]))
    ranks.require_same({"export, marks and options": _ranks.hash_of(given)})
    if ranks.rank > 0:
        # What that one could not compile, it tells; all end.
        if error := ranks.broadcast_bytes(b"").decode():
            raise StepError(error)
        code = ranks.broadcast_bytes(b"")
        if not path.exists():
            path.write_bytes(code)
        return ranks.broadcast_bytes(b"").decode()
    try:
        report = run(export, path, marks, options)
    except StepError as error:
        ranks.broadcast_bytes(str(error).encode())
        raise
    ranks.broadcast_bytes(b"")
    ranks.broadcast_bytes(path.read_bytes())
    ranks.broadcast_bytes(report.encode())
    return report


def target_of(device: Any) -> str:
    """Returns what steps for a device are compiled for."""
    if not isinstance(device, str):
        raise StepError(f"expected a device that is a string, but got {device!r}")
    return _library.target(device)


def require_marks(
    weights: Iterable[_marks.Weight], marks: Any, taken: Collection[str] = ()
) -> list[Mark]:
    """Returns marks, as they are given in any form; raises `ExportError` for those that no
    step with these weights takes, by their names, shapes and types alone. Those that are
    `taken` have marks."""
    try:
        given, weights = _marks.listed(marks), list(weights)
        _marks.require_apart(taken, given)
        if given and not weights:
            raise StepError(_NO_WEIGHTS)
        text = _marks.step_of(weights)
        own = _marks.fitted(text, _marks.of_weights(given), says=False)
        if own:
            with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # They are those of the compilation.
                run(text, Path(directory) / "step.mlir", own, ["--emit=mlir"])
    except StepError as error:
        raise ExportError(str(error)) from error
    return given


_NO_WEIGHTS = (
    "expected weights to mark, but got a step without any: call a part of the state"
    " `params`, or export it with roles={'^state': 'param'}"
)


def compilable_marks(export: Any, marks: Any, seed: Any, says: bool = True) -> list[Mark]:
    """Returns marks that match only what they fit, those of the export for None, and in
    front of them those of its layers; logs what stays dense if it `says` so; raises
    `StepError` for what is no export, no marks or no seed."""
    require_text(export)
    if marks is None:
        marks = export.marks if isinstance(export, Export) else ()
    given = _marks.listed(marks)
    _given.seed(seed)
    if given and isinstance(export, Export) and 'bsr.role = "param"' not in export:
        raise StepError(_NO_WEIGHTS)
    program = export.program if isinstance(export, Export) else None
    taken = program.layers.marks if program and program.layers else {}
    _marks.require_apart(taken, given)
    return [*taken.values(), *_marks.fitted(export, given, says)]


def is_of_blocks(marks: Sequence[Mark]) -> bool:
    """Returns whether a step attends to less than its program does."""
    return any(mark.attention is not None for mark in marks)


def require_text(export: Any) -> None:
    if not isinstance(export, str):
        raise StepError(
            "expected what sparse_opt.torch.export or sparse_opt.jax.export returned,"
            f" but got a {type(export).__name__}"
        )


# What ends a compiler that makes no mistake.
_ENDED_BY: dict[int, str] = {
    signal.SIGKILL: "where memory is short, the system ends what takes most",
    signal.SIGTERM: "something else ended it",
    signal.SIGINT: "it was interrupted",
}

_UNKNOWN = re.compile(
    r"Unknown command line argument '(.*?)'\..*?(?:\n.*Did you mean '(.*)'\?|$)", re.DOTALL
)
_PLACE = re.compile(r'([^"\s]+\.py)"?:(\d+)')


def _sentence(output: str, kind: str = "error: ") -> str:
    """Returns the first error of a tool's output, with the user's line."""
    lines = output.strip().splitlines()
    for line in lines:
        head, found, message = line.partition(kind)
        if found:
            place = _PLACE.search(head)
            return message + (f" at {place[1]}:{place[2]}" if place else "")
    return ""


def _failure(output: str, code: int) -> str:
    """Returns why the compiler failed, with its first words where it says no error."""
    if error := _sentence(output):
        return error
    if unknown := _UNKNOWN.search(output):
        nearest = f": the nearest is '{unknown[2]}'" if unknown[2] else ""
        return f"expected an option of sparse-compile, but got '{unknown[1]}'{nearest}"
    if code < 0:
        why = _ENDED_BY.get(-code, "that is a mistake of sparse-opt, report the program")
        name = signal.strsignal(-code) or f"signal {-code}"
        return f"expected sparse-compile to end by itself, but got '{name}': {why}"
    said = [line for line in output.strip().splitlines() if "remark: " not in line]
    return said[0] if said else "expected sparse-compile to succeed, but it did not"
