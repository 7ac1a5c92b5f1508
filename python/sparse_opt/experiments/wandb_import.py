# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The command sparse-wandb.

"""Logs the run folders of sparse-train as runs of W&B: configuration, every line
of metrics.jsonl at its step, summary.

    sparse-wandb RUN... [--project NAME] [--online]

writes them offline, into RUN/wandb, without a network or an account; `wandb sync
RUN/wandb/offline-run-*` sends them later, and `--online` at once. `--follow` logs one
run while it goes on, until it is done. Numbers have the names that they have in
TensorBoard; pictures of patterns are images. Needs the package `wandb` of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sparse_opt.experiments.runs import Line, parse, read_lines

OF_PATTERNS = {"density", "used", "imbalance", "pruned", "regrown", "lost", "turnover", "drop"}
OF_TIME = {"step_time", "batch_time", "forward_backward_time", "optimizer_time", "update_time", "tokens_per_s"}
OF_SYSTEM = {"peak_memory", "flops", "recompilations"}


def tag_of(name: str) -> str:
    """Returns what TensorBoard calls a number of the metrics (tools/sparse-train/Tracker.cpp)."""
    if name == "held_out":
        return "held_out/loss"
    for start, group in (("held_out_", "held_out/"), ("weight_", "weights/")):
        if name.startswith(start):
            return group + name.removeprefix(start)
    for names, group in ((OF_PATTERNS, "patterns/"), (OF_TIME, "time/"), (OF_SYSTEM, "system/")):
        if name in names:
            return group + name
    return "train/" + name


def numbers_of(line: Line) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a line of the metrics by their tags."""
    for name, value in line.items():
        if isinstance(value, dict):
            for inner, number in value.items():
                yield f"{tag_of(name)}/{inner}", number
        elif name != "step" and value is not None:
            yield tag_of(name), value


class Lines:
    """The lines of a file that another program adds to, each once its end is there."""

    def __init__(self, path: Path) -> None:
        self.path, self.place, self.rest = path, 0, b""

    def read(self) -> Iterator[Line]:
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            if file.seek(0, 2) < self.place:  # a resumed run drops lines
                self.place, self.rest = 0, b""
            file.seek(self.place)
            data = file.read()
            self.place += len(data)
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    yield parse(line.decode())


def image_of(wandb: Any, picture: Line) -> Any:
    """Returns the picture of a pattern, dark where blocks are stored."""
    rows = [[255 - 17 * int(cell, 16) for cell in line] for line in picture["cells"]]
    grey = np.array(rows, np.uint8)
    scale = max(1, 256 // grey.shape[1])
    return wandb.Image(grey.repeat(scale, 0).repeat(scale, 1))


def follow(wandb: Any, run: Any, path: Path, interval: float) -> None:
    """Logs what a run writes until it is done."""
    metrics, pictures = Lines(path / "metrics.jsonl"), Lines(path / "patterns.jsonl")
    last, shown = -1, -1
    images: dict[int, dict[str, Any]] = {}
    while True:
        # Read before the lines: what is done has written all of them.
        summary = path / "summary.json"
        done = parse(summary.read_text()) if summary.exists() else None
        # A step's pictures are there before its line is.
        lines = list(metrics.read())
        for picture in pictures.read():
            if picture["step"] > shown:
                images.setdefault(picture["step"], {})[f"patterns/{picture['name']}"] = image_of(wandb, picture)
        shown = max([shown, *images])
        for line in lines:
            if line["step"] > last:
                last = line["step"]
                run.log({**dict(numbers_of(line)), **images.pop(last, {})}, step=last)
        if done and last >= done["steps"]:
            run.summary.update(done)
            return
        time.sleep(interval)


def read(path: Path, follow: bool = False) -> tuple[Any, list[Line], dict[str, Any]]:
    """Returns the configuration, the lines of the metrics and the summary."""
    try:
        config = yaml.safe_load((path / "config.yaml").read_text())
        if follow and not (path / "metrics.jsonl").exists():
            return config, [], {}
        metrics = read_lines(path / "metrics.jsonl")
        summary = path / "summary.json"  # only a finished run has one
        return config, metrics, parse(summary.read_text()) if summary.exists() else {}
    except (OSError, ValueError) as error:
        sys.exit(f"error: expected '{path}' to hold a run, but got: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="sparse-wandb", description="Brings training runs into W&B.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--project", default="sparse-train")
    parser.add_argument("--online", action="store_true")
    parser.add_argument("--follow", action="store_true", help="log one run while it goes on")
    parser.add_argument("--interval", type=float, default=1, help="seconds between looks at it (default: 1)")
    options = parser.parse_args()
    if options.follow and len(options.runs) > 1:
        sys.exit(f"error: expected one run to follow, but got {len(options.runs)}")
    try:
        import wandb
    except ImportError:
        sys.exit("error: expected Python's package wandb, but got none: pip install wandb")
    for path in options.runs:
        config, metrics, summary = read(path, options.follow)
        with wandb.init(project=options.project, name=path.name, dir=path, config=config,
                        mode="online" if options.online else "offline") as run:
            if options.follow:
                follow(wandb, run, path, options.interval)
                continue
            for line in metrics:
                run.log(dict(numbers_of(line)), step=line["step"])
            run.summary.update(summary)


if __name__ == "__main__":
    main()
