# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs steps that are compiled for AArch64, whose processor qemu-aarch64 emulates.

`step.compile` takes it where BSR_COMPILE has --target-triple=aarch64-linux-gnu. BSR_RUN_STEP is the command that runs a
step: qemu-aarch64 with its options, and the program of Inputs/run-step.c.
"""

import json
import os
import shutil
import subprocess
import tempfile

import numpy as np
import step

COMMAND = os.environ["BSR_RUN_STEP"].split()


def run(*arguments, threads=None):
    """What the program prints that runs a step."""
    more = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return subprocess.run([*COMMAND, *arguments], env={**os.environ, **more}, stdout=subprocess.PIPE, check=True).stdout


class Step(step.Step):
    """A compiled step: a shared library of another machine with its manifest."""

    def __init__(self, path):
        self.threads = None
        self.folder = tempfile.TemporaryDirectory()
        self.path = shutil.copy(path, self.folder.name)
        self.manifest = json.loads(run(self.path))

    def bind(self, arrays, patterns={}, orders={}, entry="bsr_step_run"):
        buffers, arena = self.make_buffers(arrays, patterns, orders)
        # Scores lie in the arena.
        scores = [buffer["kind"] == "scores" for buffer in self.manifest["buffers"]]
        own = [buffer for buffer, is_score in zip(buffers, scores) if not is_score] + [arena]
        offsets = np.cumsum([0] + [-(-array.nbytes // 64) * 64 for array in own])
        places = [str(offset) for offset in offsets[:-1]]
        arguments = [places.pop(0) if not is_score else str(offsets[-2] + described["arena_offset"])
                     for is_score, described in zip(scores, self.manifest["buffers"])]

        def run_once():
            file = os.path.join(self.folder.name, "buffers")
            memory = np.zeros(max(1, offsets[-1]), np.uint8)
            parts = [(memory[offset:offset + array.nbytes], array) for offset, array in zip(offsets, own)]
            for part, array in parts:
                part[...] = array.reshape(-1).view(np.uint8)
            memory.tofile(file)
            run(self.path, entry, file, *arguments, str(offsets[-2]), threads=self.threads)
            memory[...] = np.fromfile(file, np.uint8)
            for part, array in parts:
                array.reshape(-1).view(np.uint8)[...] = part
            return 0

        return buffers, run_once

    def run(self, arrays, patterns={}, orders={}, threads=None, steps=1, entry="bsr_step_run"):
        self.threads = threads
        return super().run(arrays, patterns, orders, None, steps, entry)
