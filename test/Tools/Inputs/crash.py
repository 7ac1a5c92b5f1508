# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Kills a tool that waits for its input as a wrong access would: crash.py FIFO TOOL...

import os
import signal
import subprocess
import sys

fifo, *command = sys.argv[1:]
if os.path.exists(fifo):
    os.remove(fifo)
os.mkfifo(fifo)
process = subprocess.Popen([*command, fifo])
with open(fifo, "wb"):  # returns when the tool has opened it
    process.send_signal(signal.SIGSEGV)
    process.wait()
