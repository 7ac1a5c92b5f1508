# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# python_step.py mpi4py|mpi FOLDER: one process of several that an MPI started, which train two weights,
# one of them in blocks, with batches of their own, with a ramp of new blocks and without. Compares them
# with an independent computation in float64, and the bits with those of a run whose moments are sharded.


import sys
import warnings
from pathlib import Path

import numpy as np

import sparse_opt
from refusals import refuse
from two_weights import text

if sys.argv[1] == "mpi4py":
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
else:
    comm = "mpi"
folder = Path(sys.argv[2])
SHAPES = {"a": (128, 96), "b": (128, 65)}
TEXT, MARKS, RATE = text(*SHAPES.values()), ["match=^a$ block=16x16 density=0.375"], 2.0**-10
options = {"seed": 5, "comm": comm}


def batch(step, rank):
    return np.random.default_rng([step, rank]).normal(0, 0.25, (16, 128)).astype(np.float32)


def mask():
    blocks = whole.blocks("a")
    grid = np.zeros((8, 6))
    grid[blocks.rows, blocks.col_idx] = 1
    return np.kron(grid, np.ones((16, 16)))


def check():
    for name, expected in weights.items():
        assert np.abs(whole.read(name) - expected).max() < 1e-4 * np.abs(expected).max(), (rank, name)
        assert np.abs(whole.read(f"{name}.m") - moments[name]).max() < 1e-4 * np.abs(moments[name]).max(), (rank, name)
        assert whole.read(name).tobytes() == sharded.read(name).tobytes(), (rank, name)


for ramp in (3, 0):
    whole = sparse_opt.compile(TEXT, MARKS, block_ramp=ramp, **options)
    ranks = whole.ranks
    rank, size = ranks.rank, ranks.size
    sharded = sparse_opt.compile(TEXT, MARKS, block_ramp=ramp, options=[f"--shard-state={size}"], **options)
    weights = {name: whole.read(name).astype(np.float64) for name in SHAPES}
    moments = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    ages = np.full(SHAPES["a"], ramp or 1.0)
    for step in range(6):
        losses = [run(x=batch(step, rank), lr=RATE) for run in (whole, sharded)]
        batches = [batch(step, r).astype(np.float64) for r in range(size)]
        expected = np.mean([sum(((x @ w) ** 2).sum() for w in weights.values()) for x in batches])
        assert abs(losses[0] / expected - 1) < 1e-5 and abs(losses[1] / losses[0] - 1) < 1e-6, (rank, losses, expected)
        for name, w in weights.items():
            gradient = np.mean([x.T @ (x @ w) for x in batches], 0) * (mask() if name == "a" else 1)
            moments[name] = 0.5 * moments[name] + gradient
            if name == "a":
                ages = np.minimum(ages + 1, ramp or 1)
            w -= RATE * moments[name] * (ages / (ramp or 1) if name == "a" else 1)
        check()
        if step % 2:
            before = mask()
            for run in (whole, sharded):
                assert run.update_patterns(0.5, method="set") > 0
            # What is new begins with nothing; where a block went another may have come back.
            kept = before * mask()
            same = kept * (whole.read("a") != 0)
            for state in (weights, moments):
                state["a"] *= same
            ages = ages * same if ramp else ages
            check()

# Each has a share of the moments, and all of them save one checkpoint of the whole.
share = sum(b.shape != b.whole for b in sharded.buffers.values())
state = [sum(a.nbytes for n, a in run.arrays.items() if n.endswith(".m")) for run in (whole, sharded)]
for run, name in (whole, "whole"), (sharded, "sharded"):
    run.save(folder / name)
for run, name in (whole, "sharded"), (sharded, "whole"):

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        run.load(folder / name)
check()
for run in (whole, sharded):
    run(x=batch(9, rank), lr=RATE)
for name in SHAPES:
    assert whole.read(name).tobytes() == sharded.read(name).tobytes(), (rank, name)
if rank == 0:
    print(f"{size} processes: {share} shards of moments, {state[1]} of {state[0]} bytes")
    refuse(sharded.read, "a.m")
    refuse(sparse_opt.compile, TEXT, MARKS, comm=7)
    refuse(sparse_opt.compile, TEXT, MARKS, comm=comm, device="cuda")
