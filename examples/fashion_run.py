# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One run of a grid of sparse-sweep, in Python: a sparse MLP on Fashion-MNIST.

"""Trains a run of a grid, the MLP of fashion_mnist.py as one compiled step.

    fashion_run.py --help
    fashion_run.py --config FILE --overwrite

sparse-sweep calls it where a grid says `program: python3 examples/fashion_run.py`;
FILE is JSON in sections, and `run` in it the run's folder. Keys:

{keys}

Runs of one seed have the same first weights, as dense matrices, and the same
batches, whatever is stored of them. The summary has the test loss as the held-out loss,
`accuracy` in per cent of the test images, `jump`, the mean over updates of
the training loss in the 20 steps behind one less that in the 20 before, and the FLOPs.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fashion_images
import methods
import sparse_opt

KEYS = {
    "steps": "steps of training",
    "seed": "of first weights, patterns and batches",
    "width": "of the three hidden layers",
    "batch": "images a step",
    "packages": "where Debian's packages are unpacked",
    "held_out": "test, the test images; or train, the last sixth of the others, which are not trained on then",
    "beta2": "of Adam",
    "rate.peak": "the learning rate after the warm-up, from where it falls as a cosine",
    "rate.warmup": "steps in which the rate rises",
    "sparsity.method": "static, set, rigl, cht or chts; of further keys docs/sparsity.md has what they mean",
    **{f"sparsity.{key}": "of docs/sparsity.md" for key in (
        "every", "until", "drop", "schedule", "fan_in", "new_values", "new_state", "new_step", "new_ramp")},
}
OWN = {"cht": methods.CHT, "chts": methods.CHTs}
NEAR = 20  # steps on either side of an update
TEST_BATCH = 100


def value(text: Any) -> Any:
    """Returns what the text of a setting stands for."""
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            pass
    return {"true": True, "false": False}.get(text, text)


def export(width: int, batch: int, beta2: float) -> tuple[str, str]:
    """Returns the texts of a step with Adam, and of the loss and the hits of test images."""
    import torch  # which a run whose step was exported before does not need
    from torch.nn import functional

    import fashion_mnist
    import sparse_opt.torch

    def train(model: Any, optimizer: Any, images: Any) -> Any:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images["x"]), images["labels"])
        loss.backward()
        optimizer.step()
        return loss

    def test(model: Any, images: Any) -> Any:
        result = model(images["x"])
        hits = (result.argmax(1) == images["labels"]).float().mean()
        return functional.cross_entropy(result, images["labels"]), hits

    def images(count: int) -> Any:
        return {"x": torch.zeros(count, 784), "labels": torch.zeros(count, dtype=torch.int64)}

    model = fashion_mnist.make_mlp(width)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, beta2))
    return (str(sparse_opt.torch.export(train, model, optimizer, images(batch))),
            str(sparse_opt.torch.export_function(test, model, images(TEST_BATCH))))


def load(config: dict[str, Any], groups: Sequence[sparse_opt.Group]) -> tuple[sparse_opt.Step, sparse_opt.Step]:
    """Returns the step and the test function. What is compiled is kept for other runs."""
    cache = Path(config["compile"]["cache"])
    cache.mkdir(parents=True, exist_ok=True)
    model = [int(config["width"]), int(config["batch"]), float(config["beta2"])]
    texts = cache / ("mlp-" + "-".join(map(str, model)) + ".json")
    if not texts.exists():
        keep(texts, json.dumps(export(*model)).encode())
    step, test = json.loads(texts.read_text())
    is_dense = float(config["density"]) == 1
    marks = [] if is_dense else [sparse_opt.Mark(config["match"], block=config["block"], density=float(config["density"]))]
    # Of what groups ask for, these are compiled into a step.
    needs = [[group.method == "rigl", group.new_step, group.new_ramp] for group in groups]
    kind = json.dumps([step, test, str(marks), needs])
    stem = cache / hashlib.sha256(kind.encode()).hexdigest()[:16]
    step_library, test_library = (Path(f"{stem}-{part}.so") for part in ("step", "test"))
    if not test_library.exists():
        made = sparse_opt.compile(step, marks, sparsity=groups, library=step_library)
        made.bind(test, library=test_library)
    return (sparse_opt.Step(step_library, seed=int(config["seed"])),
            sparse_opt.Step(test_library))


def keep(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    temporary.rename(path)


def first_values(width: int, seed: int) -> dict[str, np.ndarray]:
    """Returns dense weights and biases: those of hidden layers for ReLU (He et al. 2015), and a
    head's and biases as PyTorch has them, uniform."""
    random = np.random.default_rng([seed, 0])
    widths = [784, width, width, width, 10]
    values = {}
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        is_head = i == 3
        weight = (random.uniform(-1, 1, (outputs, inputs)) if is_head
                  else random.normal(0, math.sqrt(2), (outputs, inputs)))
        bias = random.uniform(-1, 1, outputs)
        for name, array in (("weight", weight), ("bias", bias)):
            values[f"{2 * i}.{name}"] = (array / math.sqrt(inputs)).astype(np.float32)
    return values


def batches(count: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Yields which images a step takes: all in each epoch but a rest smaller than a batch."""
    for epoch in itertools.count(1):
        order = np.random.default_rng([seed, epoch]).permutation(count)
        yield from order[:count - count % size].reshape(-1, size)


def rate_at(step: int, config: dict[str, Any]) -> float:
    """Returns the learning rate of a step, counted from 1."""
    warm_up, steps, peak = (float(v) for v in (config["rate"]["warmup"], config["steps"], config["rate"]["peak"]))
    if step <= warm_up:
        return peak * step / warm_up
    return peak * (1 + math.cos(math.pi * (step - warm_up) / (steps + 1 - warm_up))) / 2


def jump_of(losses: Sequence[float], updates: Sequence[int]) -> float:
    """Returns the mean over updates of the mean loss of the steps behind one less that of those
    before. `losses[s]` is the loss of step s + 1, `updates` how many steps were done. Updates
    that are closer to another one, or to an end, do not count."""
    ends = [0, *updates, len(losses)]
    jumps = [np.mean(losses[at:at + NEAR]) - np.mean(losses[at - NEAR:at])
             for before, at, after in zip(ends, ends[1:], ends[2:])
             if at - before >= NEAR and after - at >= NEAR]
    return float(np.mean(jumps)) if jumps else math.nan


def evaluate(test: sparse_opt.Step, images: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Returns the mean loss and the share of hits."""
    parts = [test({"batch.x": fashion_images.scale(images[i:i + TEST_BATCH]), "batch.labels": labels[i:i + TEST_BATCH]})
             for i in range(0, len(labels), TEST_BATCH)]
    loss, hits = np.mean(parts, axis=0)
    return float(loss), float(hits)


def train(config: dict[str, Any]) -> None:
    """Trains the run, and writes its folder."""
    steps, seed, width = (int(config[key]) for key in ("steps", "seed", "width"))
    keys = {key: value(text) for key, text in config["sparsity"].items()}
    keys["method"] = OWN[keys["method"]]() if keys["method"] in OWN else keys["method"]
    is_dense = float(config["density"]) == 1
    groups = [] if is_dense else [sparse_opt.Group(**keys)]
    images, labels = fashion_images.read(Path(config["packages"]), "train")
    if config["held_out"] == "test":
        held_out = fashion_images.read(Path(config["packages"]), "t10k")
    else:
        count = len(labels) // 6
        held_out = images[-count:], labels[-count:]
        images, labels = images[:-count], labels[:-count]

    step, test = load(config, groups)
    for name, array in first_values(width, seed).items():
        step.write(name, array)
    sparsity = sparse_opt.Sparsity(step, groups, steps=steps) if groups else None
    losses, updates, flops = [], [], 0
    folder = Path(config["run"])
    for old in ("config.yaml", "metrics.jsonl", "sessions.jsonl", "patterns.jsonl", "summary.json"):
        (folder / old).unlink(missing_ok=True)
    for events in folder.glob("events.out.tfevents.*"):
        events.unlink()
    plain = {key: value(text) for key, text in flat(config) if key != "run"}
    plain.pop("steps")
    with sparse_opt.Recorder(folder, plain, steps=steps) as recorder:
        if sparsity:
            recorder.add(0, **sparsity.describe())
        of_step = step.flops
        for i, chosen in zip(range(1, steps + 1), batches(len(labels), int(config["batch"]), seed)):
            rate = rate_at(i, config)
            batch = {"batch.x": fashion_images.scale(images[chosen]), "batch.labels": labels[chosen]}
            loss = step(batch, lr=rate, scores=bool(sparsity and sparsity.needs_scores))
            changed = sparsity.update() if sparsity else {}
            losses.append(float(loss))
            flops += of_step
            if changed:
                of_step = step.flops
                updates.append(i)
            recorder.add(i, loss=loss, lr=rate, **changed)
        test.load_native_state(step.native_state())
        loss, hits = evaluate(test, *held_out)
        recorder.close(held_out_end=loss, accuracy=100 * hits, jump=jump_of(losses, updates), training_flops=flops)


def flat(settings: dict[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Yields settings of sections with the names of these in front."""
    for key, text in settings.items():
        if isinstance(text, dict):
            yield from flat(text, f"{start}{key}.")
        else:
            yield start + key, text


def main() -> None:
    lines = "\n".join(f"  {key}: {what}" for key, what in KEYS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").format(keys=lines), usage=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--overwrite", action="store_true", required=True)
    train(json.loads(parser.parse_args().config.read_text()))


if __name__ == "__main__":
    main()
