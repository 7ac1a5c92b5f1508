# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# tensorboard-scalars.py RUN: prints how many points TensorBoard itself reads of each
# number, without its log.

import logging
import sys

logging.disable()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
for tag in events.Tags()["scalars"]:
    points = events.Scalars(tag)
    steps = [point.step for point in points]
    assert steps == sorted(set(steps)), tag
    print(tag, len(points), f"last {points[-1].value:.4f} of step {steps[-1]}")
