#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Measures what the check of a compiled step's first runs costs.

"""Prints what the checked runs of a step cost beside its own step in the framework.

A run's check is a call of a step that is checked, less the same call of one that is not,
in processor time of one thread, which other work on the machine changes little. The
framework's own step is the median of a few, behind one that warms it up.

`PYTHONPATH` must have `python` and `examples`, `PATH` the tools; JAX needs the extra
`jax`, PyTorch `torch` and `huggingface`.
"""

import argparse
import logging
import sys
import time

import harness


def seconds(function, *arguments):
    """Processor seconds of a call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def calls(program, export, options, check):
    """Processor seconds of the calls of a new step: the checked ones, and one more."""
    import sparse_opt

    step = sparse_opt.compile(
        export,
        [f"match={program.marks} block=16x16 density={options.density}"],
        pattern="random",
        check=check,
    )
    return [seconds(step, *program.batch) for _ in range(options.runs + 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--framework", choices=("torch", "jax"), default="torch")
    parser.add_argument("--model", default="small", help="(default: %(default)s)")
    parser.add_argument("--activation", choices=("gelu", "relu"), default="gelu")
    parser.add_argument("--density", default="0.1", help="(default: %(default)s)")
    parser.add_argument("--runs", type=int, default=2, help="that are checked (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="of the framework (default: %(default)s)")
    options = parser.parse_args()
    harness.set_threads(1)
    from frameworks import PROGRAMS

    program = PROGRAMS[options.framework](options.model, options.activation)
    own = program.own()
    first = seconds(own)
    step = harness.median([seconds(own) for _ in range(options.steps)])
    del own
    logging.getLogger("sparse_opt").addHandler(logging.StreamHandler(sys.stdout))
    export = program.export()
    checked, plain = (calls(program, export, options, check) for check in (options.runs, 0))
    name = f"{options.framework}, {options.model}, {options.activation}"
    print(f"{name}: a step {step:.2f} s, the first one {first:.2f} s")
    costs = [with_it - without for with_it, without in zip(checked, plain)]
    for run, cost in enumerate(costs[:-1], 1):
        print(f"check of run {run}: {cost:.2f} s, {cost / step:.2f} steps")
    total, later = sum(costs[:-1]), costs[-1] / step
    print(f"of all: {total:.2f} s, {total / step:.2f} steps; of run {options.runs + 1}: {later:.2f} steps")


if __name__ == "__main__":
    main()
