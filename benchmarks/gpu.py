#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with a block-sparse weight on a GPU, and whole steps, beside NVIDIA's libraries and PyTorch, in one process.

    benchmarks/gpu.py kernels [--device cuda] [--type bf16|f16|f32] [--blocks N,...] [--rows N] [--cols N] [--tokens N]
                              [--density D] [--repeats N] [--flush]
    benchmarks/gpu.py steps [--device cuda] [--examples NAME,...] [--block N] [--density D] [--repeats N] [--eager]
    benchmarks/gpu.py launches [--device cuda] [--examples NAME,...] [--block N] [--density D] [--repeats N] [--csv FILE]

kernels: forward, transposed and the gradient of the weight, each checked against float64 first. Columns are the median time
of a launch in us, by events of the driver; what the model of `sparse-compile --print-report` predicts; what the bytes of
operands and results take at the chip's memory bandwidth; E, the FLOP/s on stored blocks over those of the dense product
(cuBLAS, in the same table); and, where PyTorch has a GPU, cuBLAS, and BSR and CSR products of torch.sparse (Triton's or
cuSPARSE's kernels). Ours and the peers take turns. --flush reads and writes 256 MiB between launches, so that L2 holds
nothing of the last one.

steps: `examples/bert_<NAME>.mlir.gz`, and `examples/<NAME>.mlir.gz` of GPT-2, on one batch; beside it PyTorch's step of the same model, eager and
compiled, which takes a minute; not with --eager. The time is that of a run until its loss is read. Losses are compared by scripts/check-device.sh, not here.

launches: of such a step, how long its launches take one by one, between two events of the driver, beside what is predicted: by kind, and those
that are farthest away in all. --csv writes every kernel.

--compile-only ends before anything is run.

On the driver of the tests (LD_LIBRARY_PATH=build/dev/lib/fake-driver) a GPU is the PTX interpreter: results are right and
times mean nothing, and say so.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import gzip
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import gpu_bounds
import harness

sys.path.insert(0, str(harness.ROOT / "python"))

from sparse_opt import StepError, _library, _runtime  # noqa: E402

PRODUCTS = {"spmm": "forward", "spmm_transposed": "transposed", "sddmm": "gradient"}
TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.5e-2}
FLUSH = """func.func @step(%x: tensor<67108864xf32> {bsr.name = "x", bsr.result = 0 : i64}) -> tensor<67108864xf32> {
  %y = linalg.add ins(%x, %x : tensor<67108864xf32>, tensor<67108864xf32>) outs(%x : tensor<67108864xf32>) -> tensor<67108864xf32>
  return %y : tensor<67108864xf32>
}"""


class Timer(ctypes.Structure):
    """bsr_timer_info."""

    _fields_ = [("kernel", ctypes.c_char_p), ("kind", ctypes.c_char_p), ("operands", ctypes.c_char_p)] + [
        (name, ctypes.c_int64) for name in ("flops", "bytes", "items", "launches", "nanoseconds")]


def read_timers(step):
    """Microseconds since the last call, and what the timer is of, by kernel."""
    library, timers = _library.library(), {}
    library.bsr_step_num_timers.restype = ctypes.c_int64
    for index in range(library.bsr_step_num_timers(step._handle)):
        timer = Timer()
        _library.check(library.bsr_step_timer(step._handle, ctypes.c_int64(index), ctypes.byref(timer)))
        timers[timer.kernel.decode()] = timer.kind.decode(), timer.nanoseconds / 1e3
    library.bsr_step_reset_timers(step._handle)
    return timers


# Whether a benchmark ends when its steps are compiled.
compile_only = False


@dataclasses.dataclass
class Prediction:
    """What the report predicts, in us: for each kernel, and of the whole step; and the bytes a second of the chip's memory."""

    kernels: dict
    total: float
    bandwidth: float


def compile_for(device, text, *options):
    """The step, and what the report predicts of it."""
    chip = _library.target(device)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([harness.find_tool("sparse-compile"), "-", f"--target={chip}", "-o", f"{folder}/step.so", "--print-report", *options],
                              input=text, text=True, capture_output=True)
        if done.returncode:
            sys.exit(done.stderr)
        step = None if compile_only else _runtime.Step(f"{folder}/step.so")
    kernels = {row[1]: int(row[2]) * float(row[3]) for row in re.finditer(r"^(\w+) +(\d+) +([\d.]+)  \w+ ", done.stderr, re.M)}
    total, bandwidth = (float(re.search(found, done.stderr, re.M)[1])
                        for found in (r"^total +\d+ +([\d.]+)", r"^predicted for .*, ([\d.]+) TB/s\)"))
    return step, Prediction(kernels, total, bandwidth * 1e12)


def to_type(array, type):
    """`array` in the memory of elements of `type`; bf16 as its bits."""
    if type != "bf16":
        return np.ascontiguousarray(array, {"f16": np.float16, "f32": np.float32}[type])
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_type(array, type):
    if type != "bf16":
        return array.astype(np.float64)
    return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


class Products:
    """A step with the three products of one weight, and its data."""

    def __init__(self, options, block, random):
        self.options, self.block = options, block
        self.step, self.predicted = self.compile(options, block)
        self.session = _runtime.Session(self.step, options.device, 1)
        self.session.initialize()
        self.buffers = {(buffer.name, buffer.kind): buffer for buffer in self.step.buffers}
        pattern = self.step.patterns[0]
        self.blocks = self.session.blocks(pattern)
        self.grid = pattern.rows // pattern.block_rows, pattern.cols // pattern.block_cols
        self.inputs = {name: to_type(random.standard_normal(shape), options.type)
                       for name, shape in [("x", (options.tokens, options.rows)), ("dy", (options.tokens, options.cols))]}
        for name, array in self.inputs.items():
            self.session.write(self.buffers[name, "dense"], array)
        self.weight = self.buffers["w", "values"]
        self.values = to_type(random.standard_normal(self.weight.shape) / options.cols**0.5, options.type)
        self.stored = len(self.blocks.col_idx) * block * block
        self.flops = 2 * self.stored * options.tokens

    @staticmethod
    def compile(options, block):
        return compile_for(options.device, gpu_bounds.STEP.format(**vars(options)), "--timers",
                           f"--mark=match=w block={block}x{block} density={options.density}")

    def read(self, buffer):
        array = np.empty(buffer.shape, buffer.dtype)
        self.session.read(buffer, array)
        return from_type(array, self.options.type)

    def stored_blocks(self):
        """Row, column and slot of each stored block."""
        rows = np.repeat(np.arange(len(self.blocks.row_ptr) - 1), np.diff(self.blocks.row_ptr))
        return zip(rows.tolist(), self.blocks.col_idx.tolist(), self.blocks.slot.tolist())

    def check(self, random):
        """The largest error of a product, over what 64 tokens and 64 blocks have in float64."""
        options, block = self.options, self.block
        values = from_type(self.values, options.type)
        dense = np.zeros((options.rows, options.cols))
        place = lambda r, c: (slice(r * block, (r + 1) * block), slice(c * block, (c + 1) * block))
        for r, c, slot in self.stored_blocks():
            dense[place(r, c)] = values[slot]
        self.session.write(self.weight, self.values)
        self.session.run()
        tokens = random.choice(options.tokens, min(64, options.tokens), replace=False)
        x, dy = (from_type(self.inputs[name], options.type) for name in ("x", "dy"))
        got = self.read(self.buffers["y", "output"])[tokens], self.read(self.buffers["dx", "output"])[tokens]
        want = x[tokens] @ dense, dy[tokens] @ dense.T
        errors = {kind: np.linalg.norm(g - w) / np.linalg.norm(w) for kind, g, w in zip(PRODUCTS, got, want)}
        # Of a weight of zeros what is left is the gradient, rounded once.
        self.session.write(self.weight, np.zeros_like(self.values))
        self.session.run()
        gradient = -self.read(self.weight)
        worst = size = 0.0
        for r, c, slot in list(self.stored_blocks())[:: max(1, len(self.blocks.col_idx) // 64)]:
            rows, cols = place(r, c)
            wanted = x[:, rows].T @ dy[:, cols]
            worst, size = worst + np.sum((gradient[slot] - wanted) ** 2), size + np.sum(wanted**2)
        errors["sddmm"] = (worst / size) ** 0.5
        self.session.write(self.weight, self.values)
        for kind, error in errors.items():
            if not error <= TOLERANCE[options.type]:
                sys.exit(f"error: expected the {PRODUCTS[kind]} product of {block}x{block} blocks to be within {TOLERANCE[options.type]} of "
                         f"float64, but got {error:.2g}")
        read_timers(self.step)
        return errors

    def time(self):
        """Microseconds of each product."""
        self.session.run()
        times = dict.fromkeys(PRODUCTS, 0.0)
        for kind, us in read_timers(self.step).values():
            if kind in times:
                times[kind] += us
        return times


def find_torch():
    """PyTorch, if it has a GPU; or why not."""
    try:
        import torch
    except ImportError:
        return None, "PyTorch is not installed"
    return (torch, "") if torch.cuda.is_available() else (None, "PyTorch has no GPU here")


def make_peers(torch, products):
    """Functions that launch a product of a library, by name and kind."""
    options, block = products.options, products.block
    type = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[options.type]
    x, dy = (torch.tensor(from_type(products.inputs[name], options.type), dtype=type, device="cuda") for name in ("x", "dy"))
    dense = torch.zeros(options.rows, options.cols, dtype=type, device="cuda")
    values = torch.tensor(from_type(products.values, options.type), dtype=type, device="cuda")
    for r, c, slot in products.stored_blocks():
        dense[r * block : (r + 1) * block, c * block : (c + 1) * block] = values[slot]
    peers = {("cuBLAS", "spmm"): lambda: x @ dense, ("cuBLAS", "spmm_transposed"): lambda: dy @ dense.T,
             ("cuBLAS", "sddmm"): lambda: x.T @ dy}
    for name, make in [("BSR", lambda m: m.to_sparse_bsr((block, block))), ("CSR", lambda m: m.to_sparse_csr())]:
        with contextlib.suppress(RuntimeError):  # types and blocks that it lacks
            own, other = make(dense.T.contiguous()), make(dense)
            peers[name, "spmm"] = functools.partial(torch.matmul, own, x.T.contiguous())
            peers[name, "spmm_transposed"] = functools.partial(torch.matmul, other, dy.T.contiguous())
    usable = {}
    for key, launch in peers.items():
        try:
            launch()
            torch.cuda.synchronize()
            usable[key] = launch
        except RuntimeError as error:
            print(f"# no {key[0]} {PRODUCTS[key[1]]} product: {str(error).splitlines()[0]}")
    return usable


def time_peer(torch, launch):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def run_kernels(options):
    random = np.random.default_rng(0)
    torch, reason = find_torch()
    flush = lambda: None
    if options.flush:
        step, _ = compile_for(options.device, FLUSH)
        flush = flush if compile_only else _runtime.Session(step, options.device, 1).run
    describe(options, f"{options.rows} x {options.cols}, {options.tokens} tokens, {options.density:g} of the blocks stored, {options.type}"
             + (", L2 flushed" if options.flush else ""), reason)
    names = ["cuBLAS", "BSR", "CSR"]
    print("| block | product | us | predicted us | bytes' us | E | " + " | ".join(f"{name} us" for name in names) + " | error |")
    print("|---:|---|" + "---:|" * (len(names) + 5))
    for block in options.blocks:
        if compile_only:
            Products.compile(options, block)
            continue
        products = Products(options, block, random)
        errors = products.check(random)
        peers = make_peers(torch, products) if torch else {}
        ours, theirs = {kind: [] for kind in PRODUCTS}, {key: [] for key in peers}
        for repeat in range(options.repeats):
            flush()
            for kind, us in products.time().items():
                ours[kind].append(us)
            for key, launch in peers.items():
                flush()
                theirs[key].append(time_peer(torch, launch))
            show_progress(f"{block}x{block}: {repeat + 1} of {options.repeats}")
        show_progress("")
        kinds = {kernel: kind for kernel, (kind, _) in read_timers(products.step).items()}
        element = {"bf16": 2, "f16": 2, "f32": 4}[options.type]
        bytes = element * (products.stored + options.tokens * (options.rows + options.cols))
        for kind, name in PRODUCTS.items():
            us = statistics.median(ours[kind])
            predicted = sum(time for kernel, time in products.predicted.kernels.items() if kinds.get(kernel) == kind)
            columns = [f"{block}x{block}", name, f"{us:.1f}", f"{predicted:.1f}", f"{bytes / products.predicted.bandwidth * 1e6:.1f}"]
            dense = theirs.get(("cuBLAS", kind))
            if dense:
                rate = 2 * options.rows * options.cols * options.tokens / statistics.median(dense)
                columns.append(f"{products.flops / us / rate:.2f}")
            else:
                columns.append("-")
            columns += [f"{statistics.median(theirs[peer, kind]):.1f}" if (peer, kind) in theirs else "-" for peer in names]
            print("| " + " | ".join([*columns, f"{errors[kind]:.1e}"]) + " |")


def time_steps(runs, repeats):
    """The median seconds of each function, which take turns."""
    times = {name: [] for name in runs}
    for repeat in range(repeats + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
        show_progress(f"step {repeat + 1} of {repeats + 2}")
    show_progress("")
    return {name: statistics.median(taken[2:]) for name, taken in times.items()}


def make_run(step, device, batch):
    """A function that runs the step on `batch` until the loss is read."""
    session = _runtime.Session(step, device, 1)
    session.initialize()
    buffers = {buffer.name: buffer for buffer in step.buffers if buffer.kind in ("dense", "output")}
    roles = {buffer.role: buffer for buffer in step.buffers}
    for key, rows in batch.items():
        buffer = buffers[f"batch.{key}"]
        session.write(buffer, np.ascontiguousarray(rows, buffer.dtype))
    session.write(roles["lr"], np.array(1e-4, np.float32))
    loss = np.empty((), np.float32)

    def run():
        session.run()
        session.read(roles["loss"], loss)
        return float(loss)

    return run


def read_example(options, name):
    """What it is called, its text, and how its layers are marked."""
    example = name if name.startswith("gpt2") else f"bert_{name}"
    text = gzip.decompress((harness.ROOT / "examples" / f"{example}.mlir.gz").read_bytes()).decode()
    return example, text, rf"--mark=match=layers.*_w$ block={options.block}x{options.block} density={options.density}"


def run_launches(options):
    import steps

    describe(options, f"launches of a step with blocks of {options.block}x{options.block}, {options.density:g} of them stored", "")
    rows = []
    for name in options.examples:
        example, text, mark = read_example(options, name)
        step, prediction = compile_for(options.device, text, mark, "--timers")
        predicted = prediction.kernels
        if compile_only:
            continue
        run = make_run(step, options.device, steps.make_batch(steps.MODELS[name.removesuffix("-bf16")]))
        run()
        samples = []
        for _ in range(options.repeats):
            read_timers(step)
            run()
            samples.append({kernel: (kind, us) for kernel, (kind, us) in read_timers(step).items() if us})
        medians = {kernel: (kind, statistics.median(sample[kernel][1] for sample in samples if kernel in sample))
                   for kernel, (kind, _) in samples[-1].items()}
        # The first timer is the whole step's.
        kernels = {kernel: times for kernel, times in medians.items() if kernel in predicted}
        print(f"\n{example}: {sum(us for _, us in kernels.values()):.0f} us in all kernels, {prediction.total:.0f} predicted\n")
        print("| kind | kernels | us | predicted us | ratio |\n|---|---:|---:|---:|---:|")
        for kind in sorted({kind for kind, _ in kernels.values()}):
            own = [kernel for kernel, (other, _) in kernels.items() if other == kind]
            took, said = sum(kernels[kernel][1] for kernel in own), sum(predicted[kernel] for kernel in own)
            print(f"| {kind} | {len(own)} | {took:.0f} | {said:.0f} | {took / max(said, 1e-9):.2f} |")
        print("\n| kernel | kind | us | predicted us | ratio |\n|---|---|---:|---:|---:|")
        for kernel in sorted(kernels, key=lambda kernel: predicted[kernel] - kernels[kernel][1])[:25]:
            kind, us = kernels[kernel]
            print(f"| {kernel} | {kind} | {us:.1f} | {predicted[kernel]:.1f} | {us / max(predicted[kernel], 1e-9):.2f} |")
        rows += [f"{example},{kernel},{kind},{us:.3f},{predicted[kernel]:.3f}" for kernel, (kind, us) in kernels.items()]
    if options.csv and rows:
        pathlib.Path(options.csv).write_text("\n".join(["example,kernel,kind,us,predicted_us", *rows, ""]))


def run_steps(options):
    import steps

    torch, reason = find_torch()
    describe(options, f"blocks of {options.block}x{options.block}, {options.density:g} of them stored", reason)
    print("| step | ours ms | predicted ms | ours, dense ms | predicted ms | PyTorch ms | compiled ms |")
    print("|---|" + "---:|" * 6)
    for name in options.examples:
        example, text, mark = read_example(options, name)
        model = steps.MODELS[name.removesuffix("-bf16")]
        batch = steps.make_batch(model)
        runs, predicted = {}, []
        for label, marks in [("ours", [mark]), ("ours, dense", [])]:
            step, prediction = compile_for(options.device, text, *marks)
            if not compile_only:
                runs[label] = make_run(step, options.device, batch)
            predicted.append(prediction.total)
        if compile_only:
            continue
        if torch:
            import steps_torch

            for label, compile in [("PyTorch", False), ("compiled", True)][: 1 if options.eager else 2]:
                runs[label] = steps_torch.make_step(model, batch, 1e-4, 1, name, compile=compile, bf16=name.endswith("bf16"), device="cuda")
        times = time_steps(runs, options.repeats)
        columns = [f"{times[label] * 1e3:.2f}" if label in times else "-" for label in ("ours", "ours, dense", "PyTorch", "compiled")]
        for place, total in enumerate(predicted):
            columns.insert(2 * place + 1, f"{total / 1e3:.2f}")
        print(f"| {example} | " + " | ".join(columns) + " |")


def show_progress(text):
    """On a terminal, in the place of what was shown before."""
    if sys.stderr.isatty():
        print(f"\r{text:<40}\r", end="", file=sys.stderr, flush=True)


def describe(options, what, reason):
    isReal = "PTX interpreter" not in options.gpu
    print(f"# {options.gpu}: {what}; medians of {options.repeats}" + ("" if isReal else "; **times mean nothing: the GPU is an interpreter**"))
    if reason:
        print(f"# no peers: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    numbers = lambda text: [int(number) for number in text.split(",")]
    for name in ("kernels", "steps", "launches"):
        command = commands.add_parser(name)
        command.add_argument("--device", default="cuda")
        command.add_argument("--density", type=float, default=0.1)
        command.add_argument("--repeats", type=int, default=30)
        command.add_argument("--compile-only", action="store_true")
        if name == "launches":
            command.add_argument("--csv")
        if name != "kernels":
            command.add_argument("--examples", default=["base", "base-bf16", "gpt2-bf16"], type=lambda text: text.split(","))
            command.add_argument("--block", type=int, default=16)
            command.add_argument("--eager", action="store_true")
            continue
        command.add_argument("--type", default="bf16", choices=list(TOLERANCE))
        command.add_argument("--blocks", default=[64, 32, 16], type=numbers)
        command.add_argument("--rows", type=int, default=4096)
        command.add_argument("--cols", type=int, default=4096)
        command.add_argument("--tokens", type=int, default=8192)
        command.add_argument("--flush", action="store_true")
    options = parser.parse_args()
    options.gpu = subprocess.run([harness.find_tool("ptx-run"), "--device-name"], capture_output=True, text=True).stdout.strip()
    global compile_only
    compile_only = options.compile_only
    try:
        {"kernels": run_kernels, "steps": run_steps, "launches": run_launches}[options.command](options)
    except StepError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
