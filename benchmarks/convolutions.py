#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of convolutions with weights in blocks, and dense ones, beside PyTorch's.

    PYTHONPATH=python benchmarks/convolutions.py [--threads N] [--runs N] [--images N] [--filter REGEX]
    PYTHONPATH=python benchmarks/convolutions.py --network resnet18|resnet50 [--size N] [--threads N] [--runs N] [--images N]

prints a table (docs/benchmarks.md). A step is the forward pass of one convolution of ResNet-50, the
gradients of its input and of its weight, and the update of both by SGD. All are called in turn in one
process; times are medians. Losses are compared with PyTorch's of the weight times its mask in float64
before anything is timed. The last column is sparse_opt.torch.nn.Conv2d with blocks of 16x16 in
PyTorch's own loop. With --network it is a step of a whole network of examples/resnet.py, with SGD, all
convolutions but the first in blocks, and its loss is compared likewise. Then each takes three steps in a
process of its own, which prints the most memory that it took beyond that of its modules.
"""

import argparse
import copy
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

# Channels in and out, window, stride, and height and width of the images.
LAYERS = [
    (64, 64, 3, 1, 56), (128, 128, 3, 1, 28), (256, 256, 3, 1, 14), (512, 512, 3, 1, 7), (256, 256, 3, 2, 28),
    (256, 64, 1, 1, 56), (512, 128, 1, 1, 28), (256, 1024, 1, 1, 14), (1024, 256, 1, 1, 14), (512, 2048, 1, 1, 7),
    (512, 1024, 1, 2, 28), (3, 64, 7, 2, 224),
]  # fmt: skip
BLOCKS = [16, 1]


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model.convolution(model.x) * batch).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


def make(layer, images):
    """A model whose input is trained, too, its optimizer, and a batch: the gradient of what comes out."""
    import torch

    ins, outs, window, stride, size = layer
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.convolution = torch.nn.Conv2d(ins, outs, window, stride, window // 2, bias=False)
    model.x = torch.nn.Parameter(torch.randn(images, ins, size, size))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return model, optimizer, torch.randn_like(model.convolution(model.x).detach())


def compiled(layer, images, block, density):
    """A step, its batch and its share of blocks that are stored, compared with PyTorch's."""
    import numpy as np
    import sparse_opt.torch
    import torch

    model, optimizer, batch = make(layer, images)
    reference, reference_optimizer = copy.deepcopy((model, optimizer))
    export = sparse_opt.torch.export(train_step, model, optimizer, batch)
    mark = {"match": "weight", "block": block, "density": density, "dims": "row,col,col,col"}
    step = sparse_opt.compile(export, [mark] if block else [], pattern="random" if block else None, check=0)
    reference.double()
    reference.convolution.weight.data = torch.from_numpy(step.read("convolution.weight").astype(np.float64))
    got, want = float(step(batch)), float(train_step(reference, reference_optimizer, batch.double()))
    size = float(torch.linalg.vector_norm(batch.double()))  # of a sum of products with these
    if abs(got - want) > 1e-5 * size:
        raise SystemExit(f"error: expected the loss of the masked convolution, {want}, but got {got}")
    return step, batch


def in_loop(layer, images, density):
    """A step of a layer of blocks in PyTorch's loop."""
    import torch
    from sparse_opt.torch import nn

    model, _, batch = make(layer, images)
    nn.sparsify(model, {"match": "weight", "block": 16, "density": density, "dims": "row,col,col,col"})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return lambda: float(train_step(model, optimizer, batch))


def time_in_turn(calls, runs):
    """The median of each call, in milliseconds."""
    times = [[] for _ in calls]
    for _ in range(runs):
        for own, call in zip(times, calls):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [statistics.median(own) * 1e3 for own in times]


def peak_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def network_of(options):
    """A network with its optimizer, and a batch."""
    import resnet
    import torch

    torch.manual_seed(0)
    model = resnet.ResNet(*resnet.NETWORKS[options.network])
    batch = {"x": torch.randn(options.images, 3, options.size, options.size),
             "label": torch.randint(0, 1000, (options.images,))}  # fmt: skip
    return model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), batch


def take_steps(options):
    """Takes three steps of PyTorch, or of the library `options.alone`, and prints what memory they take."""
    if options.alone == "torch":
        import resnet
        import torch

        torch.ones(8, 8) @ torch.ones(8, 8)  # Loads what products load.
        before = peak_bytes()
        model, optimizer, batch = network_of(options)
        for _ in range(3):
            resnet.train_step(model, optimizer, batch)
    else:
        import numpy as np
        import sparse_opt

        before = peak_bytes()
        step = sparse_opt.Step(options.alone, pattern=None if Path(options.alone).stem == "0" else "random")
        images = np.random.default_rng(0).standard_normal((options.images, 3, options.size, options.size), np.float32)
        labels = np.arange(options.images, dtype=np.int64)
        names = [b.name for b in step.buffers.values() if b.role == "batch"]
        for _ in range(3):
            step(**{name: images if name.endswith("x") else labels for name in names})
    print(peak_bytes() - before)


def measure_memory(options, names, libraries):
    peaks = []
    for name, library in zip(names, libraries):
        done = subprocess.run([sys.executable, __file__, "--alone", library, *sys.argv[1:]],
                              stdout=subprocess.PIPE, text=True, check=True)
        peaks.append(int(done.stdout))
        print(f"{name:>8} {peaks[-1] / 2**20:10.0f} MiB {peaks[-1] / peaks[0]:6.2f} of PyTorch's", flush=True)


def measure_network(options):
    import numpy as np
    import resnet
    import sparse_opt.torch
    import torch

    folder = tempfile.TemporaryDirectory()
    names, calls, libraries = ["PyTorch"], [], ["torch"]
    model, optimizer, batch = network_of(options)
    calls.append(lambda: float(resnet.train_step(model, optimizer, batch)))
    for block in map(int, options.blocks.split(",")):
        own, own_optimizer, _ = network_of(options)
        export = sparse_opt.torch.export(resnet.train_step, own, own_optimizer, batch)
        marks = [resnet.mark(f"{block}x{block}", options.density)] if block else []
        libraries.append(str(Path(folder.name) / f"{block}.so"))
        step = sparse_opt.compile(
            export, marks, pattern="random" if block else None, check=0, library=libraries[-1]
        )
        # The same network, with the weights that the step begins with, in float64.
        reference, reference_optimizer, _ = network_of(options)
        reference.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in step.state_dict().items()})
        wide = {"x": batch["x"].double(), "label": batch["label"]}
        want = float(resnet.train_step(reference.double(), reference_optimizer, wide))
        got = float(step(batch))
        if abs(got - want) > 1e-4 * abs(want):
            raise SystemExit(f"error: expected the loss of the masked network, {want}, but got {got}")
        names.append(f"{block}x{block}" if block else "dense")
        calls.append(lambda step=step: float(step(batch)))
    medians = time_in_turn(calls, options.runs)
    print(f"{options.network}, {options.images} x 3 x {options.size} x {options.size}, density {options.density}, {options.threads} threads")
    for name, median in zip(names, medians):
        print(f"{name:>8} {median:10.1f} ms {medians[0] / median:6.2f} x PyTorch", flush=True)
    measure_memory(options, names, libraries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--filter", default="", help="of layers like 256x256/3x3/14, or 256x256/3x3/2/28 with a stride")
    parser.add_argument("--network", choices=["resnet18", "resnet50"])
    parser.add_argument("--blocks", default="0,16,1", help="of the network's steps: 0 is a dense one")
    parser.add_argument("--size", type=int, default=224, help="height and width of the network's images")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    harness.set_threads(options.threads)
    if options.alone and options.alone != "torch":
        return take_steps(options)
    import torch

    torch.set_num_threads(options.threads)
    if options.alone:
        return take_steps(options)
    if options.network:
        return measure_network(options)
    names = ["PyTorch, ms", "dense, ms", *(f"{b}x{b}, ms" for b in BLOCKS), "layer, ms"]
    print(f"{'layer':20} " + " ".join(f"{name:>12}" for name in names) + "   times PyTorch: dense, " +
          ", ".join([f"{b}x{b}" for b in BLOCKS] + ["layer"]))
    for layer in LAYERS:
        ins, outs, window, stride, size = layer
        name = f"{ins}x{outs}/{window}x{window}/{f'{stride}/' if stride > 1 else ''}{size}"
        if not re.search(options.filter, name):
            continue
        fits = [b for b in BLOCKS if outs % b == 0 and ins * window**2 % b == 0]
        steps = [compiled(layer, options.images, block, options.density) for block in [0, *fits]]
        model, optimizer, batch = make(layer, options.images)
        calls = [lambda: float(train_step(model, optimizer, batch))]
        calls += [lambda step=step, batch=batch: float(step(batch)) for step, batch in steps]
        columns = ["", 0, *fits]
        if 16 in fits:
            calls.append(in_loop(layer, options.images, options.density))
            columns.append("layer")
        medians = time_in_turn(calls, options.runs)
        found = dict(zip(columns, medians))
        every = ["", 0, *BLOCKS, "layer"]
        print(f"{name:20} " + " ".join(f"{found[c]:12.2f}" if c in found else f"{'-':>12}" for c in every) + " " * 3 +
              ", ".join(f"{medians[0] / found[c]:.2f}" if c in found else "-" for c in every[1:]), flush=True)


if __name__ == "__main__":
    main()
