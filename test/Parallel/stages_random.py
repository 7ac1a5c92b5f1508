# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cuts random training steps into stages, and compares what these compute together with an interpreter.

    stages_random.py PROGRAMS [FIRST]

Program i is that of seed FIRST + i of scripts/fuzz-steps: random models, optimizers, clipping, patterns. Each is
compiled for two and three stages, each of which runs on a thread of its own; a queue for each two of them is the
communicator. The reference is the float64 interpreter of scripts/fuzz, with masks, of the whole step.
"""

import dataclasses
import re
import sys
import tempfile
import threading
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "test" / "Integration"), str(ROOT / "test" / "Parallel")]
import step
import team
import numpy as np
from fuzz import check, programs
from fuzz.interpreter import Unstable

SMALL = {"features": 32, "tokens": 11, "layers": 4}
# Too few parts, and what reads several stages' parameters.
REFUSALS = ("stages, since the step has", "at least two products with weights", "to read patterns of its own weights",
            "to be in a stage that has it")
def run_stages(case, stages):
    """The stages of a case and what each returns."""
    communicators = team.Communicators(len(stages))
    results, threads = [None] * len(stages), []

    def run(rank):
        stage = stages[rank]
        buffers, run_once = stage.step.bind(stage.arrays, stage.masks, stage.orders)
        context = step.Context()
        context.communicator = communicators.make(rank)
        if hasattr(stage.step.library, "omp_set_num_threads"):
            stage.step.library.omp_set_num_threads(1)
        for _ in range(case.steps):
            assert run_once(context) == 0
        results[rank] = {described["name"]: buffer for described, buffer in zip(stage.manifest["buffers"], buffers)
                         if described["carried"] or described["kind"] == "output"}

    for rank in range(len(stages)):
        threads.append(threading.Thread(target=run, args=(rank,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(2 * team.SECONDS)
    assert not communicators.failures and None not in results, (case.seed, communicators.failures)
    assert all(q.empty() for q in communicators.queues.values()), (case.seed, "a message that nobody receives")
    return results, communicators.sent


def compile_stages(case, count):
    stages = []
    for rank in range(count):
        options = [*case.options, f"--stages={count}", f"--stage={rank}"]
        with tempfile.TemporaryDirectory() as folder:
            stages.append(check.Compiled(dataclasses.replace(case, options=options), folder))
        manifest = stages[-1].manifest
        assert (manifest["stage"], manifest["stages"]) == (rank, count), manifest
    return stages


def main():
    number, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    compared = refused = sent = clipped = shared = 0
    for seed in range(first, first + number):
        program = programs.generate(seed, SMALL, ("special",))
        case = dataclasses.replace(check.make_case(program), scores="")
        case.options = [o for o in case.options if not o.startswith("--target")]
        for count in (2, 3):
            try:
                stages = compile_stages(case, count)
            except check.Refused as error:
                assert re.search("|".join(REFUSALS), str(error)), \
                    (seed, count, str(error))
                refused += 1
                continue
            # A warning says that a gradient may be another one.
            if any(stage.is_unsure for stage in stages):
                continue
            masks = {name: np.logical_or.reduce([s.element_masks[name] for s in stages]) for name in case.marks}
            for stage in stages:
                stage.element_masks = masks
            try:
                wanted, kinds, _, _ = check.reference(case, masks)
            except Unstable:
                continue
            results, messages = run_stages(case, stages)
            for rank, (stage, got) in enumerate(zip(stages, results)):
                errors = check.find_errors(case, stage, got, wanted, kinds)
                for name, error in errors.items():
                    assert error <= 1, (seed, count, rank, name, error)
            names = {check.place_of(b)[0] for s in stages for b in s.manifest["buffers"]
                     if b["carried"] or b["kind"] == "output"}
            assert names == set(wanted), (seed, count, set(wanted) ^ names)
            compared += 1
            sent += messages
            clipped += "clip.global" in program.features
            params = [b["name"] for s in stages for b in s.manifest["buffers"] if b["carried"] and np.prod(b["shape"]) > 1]
            shared += len(params) > len(set(params))
    print(f"{compared} steps compared, {refused} refused, {clipped} clipped by the norm of all "
          f"stages, {shared} with parameters on several, {sent} messages")


main()
