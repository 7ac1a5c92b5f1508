#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The device memory that a step needs, beside PyTorch's; nothing is run.

    benchmarks/gpu_memory.py [--size base] [--batch N] [--tokens N] [--block N] [--density D] [--chip NAME]

Ours is what a session allocates on the device: the buffers of the step, its arena and the room of updates, as the
compiled library's manifest says. PyTorch's is the most that its tensors hold at one time in a step of the same BERT
(benchmarks/steps_torch.py: f32 parameters and AdamW, bf16 by autocast, eager, attention by scaled_dot_product_attention),
counted by torch.distributed's MemTracker on fake tensors: the context, the allocator's rounding and the workspaces of
libraries, which a process needs as well, are in neither. Needs jax and torch (scripts/check-python.sh installs both).
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i8": 1, "i1": 1}


def part(count):
    """What a session takes for a part of its area."""
    return (count + 63) // 64 * 64


def read_manifest(library):
    """The manifest of a compiled step, which is text that ends in a zero."""
    contents = library.read_bytes()
    start = contents.index(b'"format":"bsr-step"')
    start = contents.rindex(b"\0", 0, start) + 1
    return json.loads(contents[start : contents.index(b"\0", start)])


def room(manifest):
    """What updates of patterns work in: all of them at one time, or some where all take more (runtime/session/DeviceUpdate.cpp)."""
    scored = {buffer["pattern"] for buffer in manifest["buffers"] if buffer["kind"] == "scores"}
    rooms = []
    for index, pattern in enumerate(manifest["patterns"]):
        if pattern["static"]:
            continue
        rows, cols = (size // block for size, block in zip(pattern["shape"], pattern["block"]))
        values = sum(buffer["kind"] == "values" and buffer["pattern"] == index for buffer in manifest["buffers"])
        groups = (rows + 31) // 32 * cols
        marks = max(groups, rows * cols // 32 + 1 if index in scored else 0)
        lists = 5 * part(8 * pattern["slots"]) + 4 * part(4 * pattern["slots"])
        rooms.append(part(192 + 32 + 48 * values + 3 * 64) + lists + part(4 * marks) + part(4 * groups))
    return max(max(rooms, default=0), min(sum(rooms), 32 << 20))


def ours(options, density):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, HERE.parent / "examples/generate.py", "--output-dir", folder, "--batch", str(options.batch),
             "--tokens", str(options.tokens), f"{options.size}-bf16"],
            check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": f"{HERE.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}"})
        text = subprocess.run(["gzip", "--decompress", "--stdout", f"{folder}/bert_{options.size}-bf16.mlir.gz"],
                              check=True, capture_output=True).stdout
        library = pathlib.Path(folder) / "step.so"
        mark = [f"--mark=match=layers.*_w$ block={options.block}x{options.block} density={density}"] if density else []
        subprocess.run(["sparse-compile", "-", *mark, f"--target={options.chip}", "-o", library], input=text, check=True,
                       stderr=subprocess.DEVNULL)
        manifest = read_manifest(library)
    buffers = sum(part(math.prod(buffer["shape"]) * BYTES[buffer["type"]])
                  for buffer in manifest["buffers"] if buffer["kind"] != "scores")
    return buffers + room(manifest), manifest["arena_bytes"]


def find_shape(options):
    import dataclasses

    import generate

    config = generate.CONFIGS[f"{options.size}-bf16"]
    return dataclasses.replace(config, batch=options.batch, tokens=options.tokens,
                               predictions=max(1, config.predictions * options.tokens // config.tokens))


def pytorch(options):
    """The most bytes at one time, and those of parameters and the optimizer."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    import steps_torch

    shape = find_shape(options)
    with FakeTensorMode():
        model = steps_torch.Bert(shape)
        optimizer = torch.optim.AdamW(model.parameters())
        places = shape.batch, shape.predictions
        batch = {"ids": torch.zeros(shape.batch, shape.tokens, dtype=torch.int64),
                 "labels": torch.zeros(places, dtype=torch.int64), "weights": torch.ones(places),
                 "positions": torch.zeros(places, dtype=torch.int64)}
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *batch.values())
        with tracker:
            for _ in range(2):  # moments are made in the first step
                with torch.autocast("cpu", torch.bfloat16):
                    loss = model(**batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")
    state = 3 * sum(parameter.numel() * 4 for parameter in model.parameters())
    return max(kinds["Total"] for kinds in peak.values()), state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=["base", "tiny"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--chip", default="sm_90a")
    options = parser.parse_args()
    for folder in (HERE, HERE.parent / "examples", HERE.parent / "python"):
        sys.path.insert(0, str(folder))

    print(f"predicted MiB of a device, nothing was run: bert_{options.size}-bf16, {options.batch} x {options.tokens} tokens, AdamW")
    print(f"{'':<34}{'state and batch':>18}{'rest of a step':>18}{'all':>9}{'of PyTorch':>12}")
    peak, state = pytorch(options)
    rows = [("PyTorch, dense, autocast", state, peak - state), ("ours, dense", *ours(options, None)),
            (f"ours, {options.block}x{options.block}, density {options.density:g}", *ours(options, options.density))]
    for name, held, rest in rows:
        print(f"{name:<34}{held / 2**20:>18.0f}{rest / 2**20:>18.0f}{(held + rest) / 2**20:>9.0f}{(held + rest) / peak:>12.2f}")


if __name__ == "__main__":
    main()
