# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Brings training runs into Weights & Biases.

"""Logs the run folders of sparse-train as runs of W&B: configuration, every line
of metrics.jsonl at its step, summary.

    python3 scripts/import-wandb.py RUN... [--project NAME] [--online]

writes them offline, into RUN/wandb, without a network or an account; `wandb sync
RUN/wandb/offline-run-*` sends them later, and `--online` at once. Needs the
packages `wandb` and `pyyaml` of Python.
"""

import argparse
import sys
from pathlib import Path

from page import parse, read_lines


def read(path):
    """Returns the configuration, the lines of the metrics and the summary."""
    import yaml

    try:
        config = yaml.safe_load((path / "config.yaml").read_text())
        metrics = read_lines(path / "metrics.jsonl")
        summary = path / "summary.json" # only a finished run has one
        return config, metrics, parse(summary.read_text()) if summary.exists() else {}
    except (OSError, ValueError) as error:
        sys.exit(f"error: expected '{path}' to hold a run, but got: {error}")


def main():
    parser = argparse.ArgumentParser(description="Brings training runs into W&B.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--project", default="sparse-train")
    parser.add_argument("--online", action="store_true")
    options = parser.parse_args()
    try:
        import wandb
    except ImportError:
        sys.exit("error: expected Python's package wandb, but got none: pip install wandb pyyaml")
    for path in options.runs:
        config, metrics, summary = read(path)
        with wandb.init(project=options.project, name=path.name, dir=path, config=config,
                        mode="online" if options.online else "offline") as run:
            for line in metrics:
                run.log(line, step=line["step"])
            run.summary.update(summary)


if __name__ == "__main__":
    main()
