# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# python_refused.py FOLDER CASE...: one of two processes, of which one does what the other does not.
# Prints the sentences of rank 0; those of rank 1 are the same.

import sys
from pathlib import Path

import mpi4py

folder, cases = Path(sys.argv[1]), sys.argv[2:]
if "threads" in cases:
    mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI

import numpy as np

import sparse_opt
from two_weights import text

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
TEXT, MARK = text((64, 48), (64, 16)), "match=^a$ block=16x16 density=0.5"
OTHER = MARK.replace("0.5", "0.25") if rank else MARK
BATCH = np.ones((16, 64), np.float32)


def compile(mark=MARK, comm=comm):
    return sparse_opt.compile(TEXT, [mark], seed=5, comm=comm)


def load(mark, *options):
    """A library that each process compiled by itself."""
    library = folder / f"{rank}.so"
    sparse_opt.compile(TEXT, [mark], library=library, options=options)
    return sparse_opt.Step(library, comm=comm)


def update():
    step = compile()
    step(x=BATCH, lr=0.01)
    step.update_patterns(0.5 if rank else 0.25)


def save():
    step = compile()
    step.arrays["b"][0, 0] += rank
    step.save(folder / "never.safetensors")


def resume():
    step = compile()
    for name in ("first", "second"):
        step.save(folder / f"{name}.safetensors")
        step.update_patterns(0.5)
    step.load(folder / ("second.safetensors" if rank else "first.safetensors"))


def fail():
    step = compile()
    if rank:
        raise ZeroDivisionError
    step(x=BATCH, lr=0.01)


CASES = {
    "communicator": lambda: compile(comm=MPI.COMM_SELF),
    "marks": lambda: compile(OTHER),
    "compiler": lambda: compile(MARK.replace("16x16", "7x7")),
    "library": lambda: load(OTHER, "--data-parallel"),
    "alone": lambda: load(MARK),
    "update": update,
    "save": save,
    "resume": resume,
    "threads": compile,
    "fail": fail,
}
failed = 0
for case in cases:
    sentence = "accepted"
    try:
        CASES[case]()
    except sparse_opt.StepError as error:
        sentence = str(error)
        failed += 1
    # Who is alone in what it did says so itself.
    if case not in ("communicator", "fail", "threads"):
        assert comm.bcast(sentence) == sentence, (case, sentence)
    if rank == 0:
        print(f"{case}: {sentence}")
sys.exit(failed > 0)
