#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains BERT-Tiny, sparse, with one process and with several and the same global batches, and
# compares the losses of all steps and the patterns after all updates (docs/parallel.md).

import argparse
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "test" / "Integration"))
import runs  # noqa: E402
import tensor_file  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path, help="for runs; a new one")
parser.add_argument("--processes", type=int, default=4)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--every", type=int, default=19, help="steps between updates of patterns")
parser.add_argument("--mpirun", default="mpirun")
args = parser.parse_args()
# More processes than cores, where Open MPI asks for it.
os.environ.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
args.folder.mkdir(parents=True)
step, tokens = args.folder / "step.mlir", args.folder / "text.tok"
step.write_bytes(gzip.open(ROOT / "examples" / "bert_tiny_accumulate.mlir.gz").read())
subprocess.run([sys.executable, ROOT / "test/Tools/Inputs/write-text.py", args.folder / "text", "200"], check=True)
subprocess.run(["sparse-train", "tokenize", "--vocabulary", "400", "--output", tokens, args.folder / "text"],
               check=True, stdout=subprocess.DEVNULL)


def train(name, *starter, shards=False):
    run = args.folder / name
    settings = {"step": step, "tokens": tokens, "run": run, "compile.cache": args.folder / "cache", "steps": args.steps,
                "accumulate": args.processes, "sparsity.every": args.every, "sparsity.until": 1, "rate.peak": 0.0005,
                "checkpoint.every": args.every, "checkpoint.keep": 1000, "held_out.batches": args.processes,
                "held_out.every": 0, "log.every": args.steps, "shard_state": str(shards).lower(),
                "compile.options": '["--mark=match=layers.*_w$ block=16x16 density=0.25"]'}
    subprocess.run([*starter, "sparse-train", "--config", ROOT / "examples/bert.yaml",
                    *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))],
                   check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    patterns = {(path.name, name): tensor for path in runs.checkpoints(run) for name, tensor in tensor_file.read(path)[0].items()
                if name.endswith((".bsr.row_ptr", ".bsr.col_idx"))}
    return runs.losses(run), patterns, json.loads((run / "summary.json").read_text())


one, own, summary = train("one")
print(f"{args.steps} steps, {summary['pattern_updates']} updates, {summary['blocks_pruned']} blocks pruned, "
      f"loss {one[0]:.4f} to {one[-1]:.4f}", flush=True)
for shards in (False, True):
    name = f"{args.processes} processes{' with shards' * shards}"
    several, others, _ = train(name.replace(" ", "-"), args.mpirun, "-n", str(args.processes), shards=shards)
    assert len(one) == len(several) == args.steps and own.keys() == others.keys()
    same, furthest = sum(own[key] == others[key] for key in own), np.abs(several / one - 1).max()
    print(f"{name}: to {several[-1]:.4f}, at most {furthest:.1e} from one process, relative; "
          f"{same} of {len(own)} pattern arrays the same", flush=True)
    assert same == len(own) and furthest < 1e-5
