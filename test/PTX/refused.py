# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that each statement or module of Inputs/refused.txt is refused with its sentence.

    refused.py FILE

`statement => sentence` is a statement in line 5 of a kernel; `module: text => sentence`
is a whole module. `\\n` is a new line.
"""

import subprocess
import sys

HEAD = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) { .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>; .reg .f64 %e<2>; .reg .pred %p<4>; .shared .align 16 .b8 s[64]; .local .b8 l[16];
"""
wrong = 0
lines = [line.rstrip("\n") for line in open(sys.argv[1]) if " => " in line and not line.startswith("# ")]
for line in lines:
    text, sentence = line.split(" => ")
    text = text.replace("\\n", "\n")
    module = text.removeprefix("module: ") if text.startswith("module: ") else f"{HEAD}{text}\n}}\n"
    with open("refused.ptx", "w") as file:
        file.write(module)
    done = subprocess.run(["ptx-run", "refused.ptx", "--entries"], capture_output=True, text=True)
    if done.returncode != 1 or done.stderr != f"error: expected {sentence}\n":
        print(f"{text}: expected 'expected {sentence}', but got '{done.stderr.strip()}'")
        wrong += 1
print(f"{len(lines)} texts, {wrong} wrong")
sys.exit(bool(wrong))
