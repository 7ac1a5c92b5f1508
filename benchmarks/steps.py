#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole training steps of BERT, GPT-2 and LLaMA: this project's against PyTorch's and JAX's.

    benchmarks/steps.py [--model MODEL] [--batch B] [--tokens T] [--attention SHAPE] [--impl NAME,...] [--over NAME] [--csv FILE] [--plot FILE]

The models, the batch and the optimizer are those of examples/generate.py: the head sees
the masked positions only (mini, base, base-bf16), or all positions (base-all, gpt2), or
there is none (base-encoder). Another batch, other tokens and gpt2 take JAX, which exports
the step. Those of LLaMA predict the next token, and have a head of their own. With a shape, such as "window=3 global=1 random=2 block=64x64", attention is that
of a mark, and PyTorch's is masked by blocks of this shape. Each implementation is a process of its own; they take turns,
a step each, so that what disturbs the machine disturbs all of them.
docs/benchmarks.md explains the table.
"""

import argparse
import csv
import importlib
import json
import os
import random
import re
import subprocess
import sys
import time
import typing

import harness


class Model(typing.NamedTuple):
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    batch: int
    tokens: int
    predictions: int
    head: str = "masked"
    matmul: str = ""
    gated: int = 0  # of LLaMA, the width of its feed-forward layers


BASE = Model(12, 768, 12, 30522, 8, 128, 20)
# Those of examples/generate.py, which needs JAX.
MODELS = {
    "tiny": Model(2, 128, 2, 1024, 4, 64, 12),
    "mini": Model(4, 256, 4, 1024, 8, 128, 20),
    "base": BASE,
    "base-all": BASE._replace(predictions=128, head="all"),
    "base-encoder": BASE._replace(head="none"),
    "base-bf16": BASE._replace(matmul="bfloat16"),
    "gpt2": Model(12, 768, 12, 50304, 8, 128, 128, "next"),
    "gpt2-tiny": Model(1, 64, 2, 500, 2, 32, 32, "next"),
    "llama_tiny": Model(2, 64, 2, 400, 4, 32, 32, "next", gated=96),
    "llama_9m": Model(4, 128, 4, 32000, 8, 256, 256, "next", gated=352),
    "llama_20m": Model(4, 256, 4, 32000, 8, 256, 256, "next", gated=688),
    "llama_60m": Model(8, 512, 8, 32000, 8, 256, 256, "next", gated=1376),
}
RATE = 1e-4

# The module that makes each implementation's step, and its options.
IMPLEMENTATIONS = {
    "ours": ("steps_ours", {"density": 0.1}),
    # The embedding, too, which is the head's matrix.
    "ours-embedding": ("steps_ours", {"density": 0.1, "match": r"(layers\..*_w|token_embedding)$"}),
    # The head, too, where it is a matrix of its own.
    "ours-head": ("steps_ours", {"density": 0.1, "match": r"(layers\..*|head)_w$"}),
    "ours-1x1": ("steps_ours", {"density": 0.1, "block": "1x1"}),
    "ours-dense": ("steps_ours", {"density": 1}),
    "torch": ("steps_torch", {}),
    "torch-compile": ("steps_torch", {"compile": True}),
    # Every weight of the layers times a mask, as papers of sparse training do it.
    "torch-masked": ("steps_torch", {"masked": 0.1}),
    "torch-bf16": ("steps_torch", {"bf16": True}),
    "torch-compile-bf16": ("steps_torch", {"compile": True, "bf16": True}),
    "jax": ("steps_jax", {}),
}
# Another density, other blocks: ours@0.25, ours-1x8@0.25, torch-masked@0.25.
OTHER = re.compile(r"(?:ours(?:-(\d+x\d+))?|(torch-masked))(?:@(0?\.\d*[1-9]\d*|1))?")
# What attention is computed on.
SHAPE = re.compile(r"((?:window|global|random|seed)=\d+(?: |$))+(?:block=(\d+)x\2)?")
DEFAULTS = ["ours", "ours-dense", "torch", "torch-compile", "jax"]


def find_implementation(name):
    """The module and options of `name`, or None."""
    if name in IMPLEMENTATIONS or not (other := OTHER.fullmatch(name)):
        return IMPLEMENTATIONS.get(name)
    block, masked, density = other.groups()
    density = float(density or 0.1)
    if masked:
        return "steps_torch", {"masked": density}
    return "steps_ours", {"density": density} | ({"block": block} if block else {})


def find_model(options):
    """The model that the command line asks for, with its batch and tokens."""
    model = MODELS[options.model]
    tokens = options.tokens or model.tokens
    return model._replace(batch=options.batch or model.batch, tokens=tokens,
                          predictions=max(1, model.predictions * tokens // model.tokens))


def make_batch(model):
    """The batch that all train on: lists of integers and weights, row by row."""
    numbers = random.Random(0)
    if model.head == "none":
        size = model.tokens * model.hidden
        return {key: [[numbers.uniform(-1, 1) for _ in range(size)] for _ in range(model.batch)]
                for key in ("x", "target")}

    def tokens(count):
        return [[numbers.randrange(model.vocabulary) for _ in range(count)] for _ in range(model.batch)]

    positions = [sorted(numbers.sample(range(model.tokens), model.predictions)) for _ in range(model.batch)]
    weights = [[1.0] * model.predictions] * model.batch
    batch = {"ids": tokens(model.tokens), "positions": positions,
             "labels": tokens(model.predictions), "weights": weights}
    if model.head in ("all", "next"):
        del batch["positions"]
    if model.gated:
        del batch["weights"]
    return batch


#===------------------------------------------------------------------------===#
# A worker: one implementation in a process
#===------------------------------------------------------------------------===#


def peak_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024


def work(name, model, size, threads, attention):
    """Runs a step for every line that comes in, and says what it took."""
    harness.set_threads(threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    module, options = find_implementation(name)
    if attention:
        options = {**options, "attention": attention}
    # What libraries print is not for the coordinator.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    try:
        step = importlib.import_module(module).make_step(size, make_batch(size), RATE, threads, name=model, **options)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=answers, flush=True)
        return
    for _ in sys.stdin:
        own, start = harness.own_seconds(), time.perf_counter()
        loss = step()
        print(json.dumps({"seconds": time.perf_counter() - start, "own": harness.own_seconds() - own,
                          "loss": loss, "peak": peak_bytes()}), file=answers, flush=True)


class Worker:
    def __init__(self, name, options):
        self.name, self.answers = name, []
        sizes = [f"--{key}={value}" for key in ("batch", "tokens", "attention") if (value := getattr(options, key))]
        self.missing = None
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", name, "--model", options.model, "--threads", str(options.threads), *sizes],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = self.ask()
        self.missing = first.get("missing")
        # From nothing to the end of the first step: with compilation, if there is any.
        self.ready = time.perf_counter() - start

    def ask(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"error: expected '{self.name}' to run a step, but got exit code {self.process.wait()}")
        return json.loads(line)

    def take_turn(self, quiet):
        """A step, again if others disturbed it."""
        for _ in range(harness.RETRIES):
            harness.wait_for_quiet()
            quiet.restart()
            answer = self.ask()
            if quiet.was_quiet(answer["own"]):
                break
        self.answers.append(answer)

    def median(self):
        return harness.median([answer["seconds"] for answer in self.answers])

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


#===------------------------------------------------------------------------===#
# The report
#===------------------------------------------------------------------------===#


def draw(title, workers, baseline):
    """A bar for each implementation, as SVG."""
    left, width, height = 170, 420, 26
    longest = max(worker.median() for worker in workers)
    rows = []
    for number, worker in enumerate(workers):
        y = 40 + number * height
        bar = max(1, width * worker.median() / longest)
        fill = "#2a6f97" if worker.name.startswith("ours") else "#a9b4bd"
        speed_up = f" ({baseline / worker.median():.2f} x)" if baseline else ""
        rows.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{worker.name}</text>'
                    f'<rect x="{left}" y="{y}" width="{bar:.1f}" height="{height - 8}" fill="{fill}"/>'
                    f'<text x="{left + bar + 6:.1f}" y="{y + 14}">{worker.median() * 1e3:.0f} ms{speed_up}</text>')
    size = f'width="{left + width + 150}" height="{50 + height * len(workers)}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n<text x="16" y="22" font-size="15">{title}</text>\n'
            + "\n".join(rows) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini", choices=MODELS)
    parser.add_argument("--batch", type=int, metavar="B", help="sequences, instead of the model's")
    parser.add_argument("--tokens", type=int, metavar="T", help="tokens of a sequence, instead of the model's")
    parser.add_argument("--attention", metavar="SHAPE",
                        help="blocks that attention is computed on, as marks say them: window=3 global=1 random=2 block=64x64")
    parser.add_argument("--impl", default=",".join(DEFAULTS), metavar="NAME,...",
                        help="what takes part (" + ", ".join(IMPLEMENTATIONS) + "; ours@0.25, ours-1x8@0.25 and torch-masked@0.25 for other densities and blocks)")
    parser.add_argument("--over", metavar="NAME", help="the implementation that speed-ups are over, instead of the faster of PyTorch's dense ones")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="steps of each, of which the median counts")
    parser.add_argument("--csv", metavar="FILE", help="where to write every step")
    parser.add_argument("--plot", metavar="FILE", help="where to draw the medians, as SVG")
    parser.add_argument("--patience", type=float, default=harness.patience, metavar="SECONDS",
                        help="how long to wait, in all, for others to leave the machine alone")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    harness.patience = options.patience
    if options.worker:
        return work(options.worker, options.model, find_model(options), options.threads, options.attention)
    for name in ("batch", "tokens"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"expected --{name} to be 1 or more, but got {value}")
    if options.attention is not None and not SHAPE.fullmatch(options.attention):
        parser.error(f"expected --attention to be like 'window=3 global=1 random=2 block=64x64', but got '{options.attention}'")
    names = options.impl.split(",")
    for name in names:
        if not find_implementation(name):
            parser.error(f"expected --impl to name {', '.join(IMPLEMENTATIONS)}, ours-RxC or one of them @DENSITY, but got '{name}'")
    if options.over and options.over not in names:
        parser.error(f"expected --over to be one of {', '.join(names)}, but got '{options.over}'")

    harness.describe_machine(options.threads)
    workers = []
    for name in names:
        worker = Worker(name, options)
        if worker.missing:
            harness.note(f"no {name}: {worker.missing}")
        else:
            workers.append(worker)
    if not workers:
        sys.exit("error: expected an implementation that is installed, but got none")
    for worker in workers:
        worker.ask()
    quiet = harness.Quiet()
    for _ in range(options.rounds):
        for worker in workers:
            worker.take_turn(quiet)
    if quiet.disturbed:
        harness.note(f"{quiet.disturbed} steps were disturbed")

    over = [options.over] if options.over else ["torch", "torch-compile"]
    baseline = min((w.median() for w in workers if w.name in over), default=None)
    model = find_model(options)
    title = options.model if model.head == "next" else f"BERT-{options.model}"
    print(f"{title}, {model.batch} x {model.tokens} tokens, {f'attention {options.attention}, ' if options.attention else ''}{options.threads} threads")
    print(f"  {'implementation':20} {'ms':>9} {'least':>9} {'most':>9} {'tokens/s':>9} {'speed-up':>9} "
          f"{'peak MiB':>9} {'first s':>8} {'loss':>8}")
    for worker in workers:
        times = [answer["seconds"] * 1e3 for answer in worker.answers]
        speed_up = f"{baseline / worker.median():9.2f}" if baseline else f"{'-':>9}"
        print(f"  {worker.name:20} {worker.median() * 1e3:9.1f} {min(times):9.1f} {max(times):9.1f} "
              f"{model.batch * model.tokens / worker.median():9.0f} {speed_up} "
              f"{worker.answers[-1]['peak'] / 2**20:9.0f} {worker.ready:8.1f} {worker.answers[-1]['loss']:8.4f}")
        worker.stop()
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["model", "threads", "impl", "round", "ms", "loss", "peak_mib"])
            for worker in workers:
                for number, answer in enumerate(worker.answers):
                    writer.writerow([options.model, options.threads, worker.name, number,
                                     f"{answer['seconds'] * 1e3:.3f}", f"{answer['loss']:.6f}",
                                     f"{answer['peak'] / 2**20:.1f}"])
    if options.plot:
        with open(options.plot, "w") as file:
            file.write(draw(f"A step of {title}, {options.threads} threads", workers, baseline))


if __name__ == "__main__":
    main()
