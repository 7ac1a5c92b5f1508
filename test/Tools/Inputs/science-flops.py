# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks the FLOPs of BERTs of two layers, 64 wide, with two heads: 16 sequences of 32 tokens, of which 5 are
# predicted among a vocabulary of 512; counted by hand.

import json
import sys
from pathlib import Path

LAYERS, HIDDEN, TOKENS, BATCH, MASKED, VOCABULARY = 2, 64, 32, 16, 5, 512
ALL = LAYERS * 12 * HIDDEN**2  # elements of marked matrices
# Queries by keys, and probabilities by values: of all heads together, as of one of all features.
attention = LAYERS * 2 * 2 * BATCH * TOKENS**2 * HIDDEN
# What is predicted goes through a matrix, and then through the table of embeddings.
head = 2 * BATCH * MASKED * HIDDEN * (HIDDEN + VOCABULARY)
dense = 3 * (attention + head)


def step(elements):
    """Of marked matrices: forward, to the inputs, and the gradient."""
    return dense + 3 * 2 * BATCH * TOKENS * elements


scores = 2 * BATCH * TOKENS * ALL
for run in Path(sys.argv[1]).iterdir():
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    stored = ALL * lines[0]["density"]
    got = [line["flops"] for line in lines[1:]]
    updates = {line["step"] for line in lines if "update_time" in line} if "rigl" in run.name else set()
    want = [step(stored) + (scores if number in updates else 0) for number in range(1, len(lines))]
    assert got == want, (run.name, got[:6], want[:6])
    assert json.loads((run / "summary.json").read_text())["training_flops"] == sum(want), run.name
    print(run.name, int(got[0]))
