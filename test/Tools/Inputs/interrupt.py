# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# interrupt.py TEXT COMMAND...: interrupts COMMAND and its processes, as a terminal does, once it has printed a line
# with TEXT; prints the rest, and the status.

import os
import signal
import subprocess
import sys

text, *command = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_DFL)  # which lit lets tests ignore
run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
for line in run.stdout:
    if text in line:
        os.killpg(run.pid, signal.SIGINT)
    print(line, end="")
print(f"status {run.wait()}")
