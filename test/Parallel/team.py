# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stages of a step on threads, with queues between them."""

import ctypes
import queue
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
TRANSFER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
# The table of functions, in the order of the header.
HEADER = (ROOT / "runtime/include/bsr/step.h").read_text()
FIELDS = re.findall(r"\(\*(\w+)\)", re.search(r"struct bsr_communicator \{(.*?)\n\};", HEADER, re.S)[1])


class Communicators:
    """Those of `count` stages: a send waits for nobody, a receive for its send."""

    def __init__(self, count):
        self.queues = {(a, b): queue.Queue() for a in range(count) for b in range(count)}
        self.sent, self.failures, self.kept = 0, [], []

    def make(self, rank):
        def send(_, data, size, to):
            self.sent += 1
            self.queues[rank, to].put(ctypes.string_at(data, size))

        def receive(_, data, size, source):
            try:
                message = self.queues[source, rank].get(timeout=SECONDS)
                if len(message) != size:
                    self.failures.append(f"expected {size} bytes from {source} to {rank}, but got {len(message)}")
                ctypes.memmove(data, message, min(size, len(message)))
            except queue.Empty:
                self.failures.append(f"expected a message from {source} to {rank}, but got none")

        table = (ctypes.c_void_p * len(FIELDS))()
        for name, function in (("send", TRANSFER(send)), ("receive", TRANSFER(receive))):
            self.kept.append(function)
            table[FIELDS.index(name)] = ctypes.cast(function, ctypes.c_void_p)
        self.kept.append(table)
        return ctypes.addressof(table)
