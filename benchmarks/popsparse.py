#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what sparse-partition predicts of 1472 cores with what was published.

    benchmarks/popsparse.py

prints a row for each block size and type of PopSparse's table (Li et al., "PopSparse:
Accelerated block sparse matrix multiplication on IPU", 2023): a 4096x4096 matrix of
density 1/16 times n columns, the speed-up over the dense product on the same machine,
each with the n that gives most operations a second. Nothing runs on such a machine: the
cores, their memory, clock and exchange are its maker's figures, their rates those of its
unit for matrices and of vectors, and cycles are counted by `docs/partition.md`. Needs
`sparse-partition` on PATH.
"""

import re
import subprocess
import sys

EXTENT, DENSITY = 4096, 1 / 16
COLUMNS = [64, 256, 1024, 4096, 16384]
MACHINE = "cores=1472 memory=624KiB exchange=4B/cycle clock=1.325GHz"
TYPES = {"f16": "macs=4x16 vector-macs=4", "f32": "macs=2x8 vector-macs=2"}
# Speed-ups with a pattern that changes, and with one that is compiled in.
PUBLISHED = {
    (1, "f16"): (0.4, 0.7),
    (1, "f32"): (0.9, 1.4),
    (16, "f16"): (1.9, 4.9),
    (16, "f32"): (3.8, 5.6),
}
STEP = """
#x = affine_map<(n, o, i) -> (n, i)>
#w = affine_map<(n, o, i) -> (i, o)>
#y = affine_map<(n, o, i) -> (n, o)>
func.func @step(%w: tensor<EXTENTxEXTENTxTYPE> {bsr.name = "w", bsr.role = "param"},
                %x: tensor<NxEXTENTxTYPE> {bsr.name = "x", bsr.role = "batch"})
    -> (tensor<NxEXTENTxTYPE> {bsr.name = "y"}) {
  %zero = arith.constant 0.0 : TYPE
  %empty = tensor.empty() : tensor<NxEXTENTxTYPE>
  %init = linalg.fill ins(%zero : TYPE) outs(%empty : tensor<NxEXTENTxTYPE>) -> tensor<NxEXTENTxTYPE>
  %y = linalg.generic {indexing_maps = [#x, #w, #y],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<NxEXTENTxTYPE>, tensor<EXTENTxEXTENTxTYPE>)
      outs(%init : tensor<NxEXTENTxTYPE>) {
  ^bb0(%a: TYPE, %b: TYPE, %c: TYPE):
    %p = arith.mulf %a, %b : TYPE
    %s = arith.addf %c, %p : TYPE
    linalg.yield %s : TYPE
  } -> tensor<NxEXTENTxTYPE>
  return %y : tensor<NxEXTENTxTYPE>
}
"""


def predict(block, density, columns, element):
    """Returns the cycles and the imbalance of a product; None if it does not fit."""
    text = STEP.replace("EXTENT", str(EXTENT)).replace("N", str(columns))
    command = [
        "sparse-partition",
        f"--mark=match=w block={block}x{block} density={density}",
        f"--plan-for={MACHINE} {TYPES[element]}",
    ]
    done = subprocess.run(
        command, input=text.replace("TYPE", element), capture_output=True, text=True
    )
    if done.returncode:
        if "no division that fits" in done.stderr:
            return None
        sys.exit(done.stderr)
    row = next(line.split() for line in done.stdout.splitlines() if re.match(r"\d+x\d+ by", line))
    return float(row[-7]), float(row[-8])


def best(block, density, element):
    """Returns the most columns a cycle over all n, and the largest imbalance."""
    found = [(n, predict(block, density, n, element)) for n in COLUMNS]
    found = [(n, made) for n, made in found if made]
    return max(n / made[0] for n, made in found), max(made[1] for _, made in found)


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    print("block  type  predicted  published: dynamic  static  imbalance")
    dense = {element: best(16, 1, element)[0] for element in TYPES}
    for (block, element), (dynamic, static) in PUBLISHED.items():
        columns, imbalance = best(block, DENSITY, element)
        print(f"{block:5}  {element:4}  {columns / dense[element]:9.1f}  {dynamic:18}  "
              f"{static:6}  {imbalance:9.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
