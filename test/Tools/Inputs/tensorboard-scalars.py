# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# tensorboard-scalars.py RUN: prints how many points TensorBoard itself reads of each
# number, picture and distribution, and what it knows of the settings, without its log.

import logging
import sys

logging.disable()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "images": 0, "histograms": 0, "tensors": 0})
events.Reload()
for tag in events.Tags()["scalars"]:
    points = events.Scalars(tag)
    steps = [point.step for point in points]
    assert steps == sorted(set(steps)), tag
    print(tag, len(points), f"last {points[-1].value:.4f} of step {steps[-1]}")
for tag in events.Tags()["images"]:
    import io

    import numpy as np
    from PIL import Image

    points = events.Images(tag)
    grey = np.asarray(Image.open(io.BytesIO(points[-1].encoded_image_string)))
    assert all((p.width, p.height) == grey.shape[::-1] for p in points)
    print("image", tag, len(points), f"of {points[-1].width}x{points[-1].height}, dark {(grey == 0).mean():.2f}")
for tag in events.Tags()["histograms"]:
    points = events.Histograms(tag)
    values = points[-1].histogram_value
    assert sum(values.bucket) == values.num and values.min <= values.sum / values.num <= values.max
    assert sorted(values.bucket_limit) == list(values.bucket_limit)
    print("histogram", tag, len(points), f"of {values.num:.0f} numbers")
from tensorboard.plugins.hparams import plugin_data_pb2

content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
value = lambda name: getattr(start.hparams[name], start.hparams[name].WhichOneof("kind"))
print("settings", ", ".join(f"{n} {value(n)}" for n in ("rate.peak", "sparsity.method", "rate.sparsity_rule")))
