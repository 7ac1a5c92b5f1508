# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Kills a run while its step is compiled.

"""kill-compiling.py COMPILER COMMAND...: writes COMPILER, a program that never
ends, runs the command, which calls it, kills the command, and checks that the
compiler ends with it."""

import os
import subprocess
import sys
import time

compiler, *command = sys.argv[1:]
with open(compiler, "w") as file:
    file.write('#!/bin/sh\necho $$ > "$0.part"\nmv "$0.part" "$0.pid"\nexec sleep 300\n')
os.chmod(compiler, 0o755)
process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
while not os.path.exists(compiler + ".pid"):
    assert process.poll() is None, "the command ended by itself"
    time.sleep(0.02)
process.kill()
process.wait()
pid = open(compiler + ".pid").read().strip()
for _ in range(500):
    # A zombie waits for whoever adopted it.
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    if state.returncode or state.stdout.startswith("Z"):
        sys.exit()
    time.sleep(0.02)
sys.exit(f"process {pid} goes on")
