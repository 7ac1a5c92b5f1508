# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The run folder of a loop in Python.

"""`Recorder`: what a loop measures, as sparse-train writes it."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from sparse_opt import _given, _tools
from sparse_opt._errors import StepError


class Recorder:
    """Writes a run folder that `sparse-report`, `sparse-wandb` and TensorBoard read.

        with sparse_opt.Recorder("runs/first", {"seed": 0}, steps=1000) as recorder:
            for i, batch in enumerate(batches, 1):
                loss = step(batch)
                recorder.add(i, loss=loss, **sparsity.update())

    The files are those of docs/runs.md but checkpoints and pictures; `sparse-train record`
    writes them while the loop runs, so TensorBoard shows it live.

    Args:
      folder: is made; it holds no run, or, with `done`, the one that goes on.
      config: what tells the run from others: texts, numbers, booleans, by name.
      steps: how many steps the loop has.
      done: how many of them are done, of a loop that was resumed: later lines are dropped.

    Raises:
      StepError: the folder holds a run, or cannot be written.
    """

    @_given.options()
    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: Mapping[str, Any] | None = None,
        *,
        steps: int,
        done: int = 0,
    ) -> None:
        done, steps = _given.integer("done", done), _given.integer("steps", steps, 1)
        self._summary: dict[str, Any] = {"steps": done}
        self._tool = subprocess.Popen(
            [_tools.find_tool("sparse-train"), "record", "--done", str(done), os.fspath(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the loop, which then closes this.
        )
        own = {str(key): _plain(str(key), value) for key, value in (config or {}).items()}
        self._write({"config": {"steps": steps, **own}})
        assert self._tool.stdout is not None
        if not self._tool.stdout.readline():
            self._fail()

    def add(self, step: int, **measured: Any) -> None:
        """Adds the line of a step.

        Args:
          step: how many steps are done, more than in the line before; 0 before the first.
          **measured: numbers, and dictionaries of them by the names of weights; `loss`,
            `lr`, `held_out` and the others of docs/runs.md are shown as those of
            `sparse-train`. Tensors and arrays of one number are numbers.
        """
        step = _given.integer("step", step)
        entry = {key: _plain(key, value) for key, value in measured.items()}
        self._write({"step": step, **entry})
        self._summary["steps"] = step
        for key in ("loss", "held_out"):
            if key in entry:
                self._summary.setdefault(f"{key}_start", entry[key])
                self._summary[f"{key}_end"] = entry[key]
        if "pruned" in entry:
            for key, more in (
                ("pattern_updates", 1),
                ("blocks_pruned", entry["pruned"]),
                ("blocks_regrown", entry.get("regrown", 0)),
            ):
                self._summary[key] = self._summary.get(key, 0) + more

    def close(self, **summary: Any) -> None:
        """Writes the summary, with what is given beside losses and updates, and ends."""
        if self._tool.poll() is None:
            own = {key: _plain(key, value) for key, value in summary.items()}
            self._write({"summary": {**self._summary, **own}})
        self._end()

    def _end(self) -> None:
        _, error = self._tool.communicate()
        if self._tool.returncode:
            raise StepError(error.strip().removeprefix("error: "))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends; a loop that failed has no summary, as a run that did not finish."""
        if kind is None:
            self.close()
        else:
            self._tool.communicate()

    def _write(self, line: dict[str, Any]) -> None:
        assert self._tool.stdin is not None
        try:
            self._tool.stdin.write(json.dumps(line) + "\n")
            self._tool.stdin.flush()
        except (BrokenPipeError, ValueError):
            self._fail()

    def _fail(self) -> None:
        assert self._tool.stderr is not None
        self._tool.wait()
        error = "" if self._tool.stderr.closed else self._tool.stderr.read()
        raise StepError(
            error.strip().removeprefix("error: ")
            or "expected a recorder that is open, but got one that was closed"
        )


def _plain(name: str, value: Any) -> Any:
    """Returns a value as JSON holds it; numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(f"{name}.{key}", inner) for key, inner in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise StepError(
            f"expected a number, a text or a dictionary of them as '{name}', but got a"
            f" {type(value).__name__}"
        ) from None
    return number if math.isfinite(number) else None
