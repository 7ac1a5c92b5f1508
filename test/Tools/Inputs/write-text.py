# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes a folder of small texts: words from a fixed list in a fixed disorder.

import sys
from pathlib import Path

WORDS = """block sparse pattern weight training step value slot row column prune
regrow density matrix kernel product gradient moment vector tensor""".split()

folder, count = Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
state = 1
for i in range(count):
    lines = []
    for _ in range(20):
        line = []
        for _ in range(10):
            state = (state * 1103515245 + 12345) % 2**31
            line.append(WORDS[(state >> 16) % len(WORDS)])
        lines.append(" ".join(line))
    (folder / f"{i:03}.txt").write_text("\n".join(lines) + "\n")
