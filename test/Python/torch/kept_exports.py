# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Texts of exports that are kept on disk are those that would be made.

# RUN: rm -rf %t && env -u SPARSE_OPT_CACHE_EXPORTS SPARSE_OPT_CACHE=%t/cache %python -u %s %t 2>&1 | FileCheck %s --implicit-check-not=accepted --implicit-check-not=Traceback
# RUN: env SPARSE_OPT_CACHE=%t/cache %python -m sparse_opt.cache | FileCheck %s --check-prefix=FULL
# RUN: env SPARSE_OPT_CACHE=%t/cache %python -m sparse_opt.cache --clear | FileCheck %s --check-prefix=CLEARED
# RUN: env SPARSE_OPT_CACHE=%t/cache %python -m sparse_opt.cache | FileCheck %s --check-prefix=EMPTY

# FULL: kernels and {{[1-9][0-9]*}} exports of {{[0-9.]+}} MiB in {{.*}}cache
# CLEARED: removed {{[0-9]+}} kernels and {{[1-9][0-9]*}} exports from {{.*}}cache
# EMPTY: 0 kernels of 0.0 MiB in {{.*}}cache

"""One change of a program at a time: each text that the cache returns is compared with the one
that is made without it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import sparse_opt
import sparse_opt.torch
from refusals import refuse
from sparse_opt import cache
from sparse_opt.torch import _export_cache, _linalg


class Model(nn.Module):
    def __init__(self, names: Any = ("first",), dtype: Any = torch.float32, p: float = 0.1):
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(8, 8, dtype=dtype))
        self.names = names
        self.embedding = nn.Embedding(11, 8, dtype=dtype)
        self.dropout = nn.Dropout(p)
        self.register_buffer("shift", torch.full((8,), 0.5, dtype=dtype))
        self.register_buffer("unsaved", torch.full((2,), 0.5), persistent=False)
        self.numbers = (1.0, 2.0, 4.0)
        self.factor: Any = 2.0
        self.activation: Any = F.relu

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids) * self.factor + self.shift
        for name in self.names:
            x = self.dropout(self.activation(getattr(self, name)(x)))
        weights = torch.tensor(self.numbers, dtype=x.dtype)
        return x * weights.sum() + weights.amax() * self.unsaved.sum().to(x.dtype)


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["labels"].flatten())
    loss.backward()
    optimizer.step()
    return loss


def smoothed_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    logits = model(batch["ids"]).flatten(0, 1)
    loss = F.cross_entropy(logits, batch["labels"].flatten(), label_smoothing=batch["smoothing"])
    loss.backward()
    optimizer.step()
    return loss


def logits(model: Any, batch: Any) -> Any:
    return model(batch["ids"])


def sgd(model: Any, **options: Any) -> Any:
    return torch.optim.SGD(model.parameters(), **{"lr": 1e-3, "momentum": 0.9, **options})


def adamw(model: Any, **options: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3, **options})


def groups(ratio: float) -> Any:
    return lambda model: torch.optim.SGD(
        [
            {"params": [model.embedding.weight]},
            {"params": [p for n, p in model.named_parameters() if n != "embedding.weight"],
             "lr": 1e-3 * ratio},
        ],
        lr=1e-3,
    )  # fmt: skip


def batch_of(rows: int = 2, length: int = 4, **more: Any) -> Any:
    numbers = torch.arange(rows * length).view(rows, length)
    return {"ids": numbers % 11, "labels": numbers % 8, **more}


def with_attribute(name: str, value: Any) -> Any:
    def make() -> Model:
        model = Model()
        setattr(model, name, value)
        return model

    return make


def with_buffer(name: str, value: float) -> Any:
    def make() -> Model:
        model = Model()
        getattr(model, name).fill_(value)
        return model

    return make


def frozen() -> Model:
    model = Model()
    model.first.weight.requires_grad_(False)
    return model


def tied() -> Model:
    model = Model(("first", "second"))
    model.second.weight = model.first.weight
    return model


def doubled(self: Any, ids: Any) -> Any:
    return Model.forward(self, ids) * 2


class Doubled(Model):
    factor_of_class = 2.0

    def forward(self, ids: Any) -> Any:
        return super().forward(ids) * self.factor_of_class


class Tripled(Doubled):
    factor_of_class = 3.0


class Halved(Model):
    def forward(self, ids: Any) -> Any:
        return super().forward(ids // 2)


def patched() -> Model:
    model = Model()
    model.forward = functools.partial(doubled, model)
    return model


def hooked(change: Any) -> Any:
    """Returns what makes a model with a hook."""

    def make() -> Model:
        model = Model()
        change(model)
        return model

    return make


class Scaled(nn.Module):
    def forward(self, weight: Any) -> Any:
        return weight * 0.5


def parametrized() -> Model:
    model = Model()
    nn.utils.parametrize.register_parametrization(model.first, "weight", Scaled())
    return model


SCALE = 2.0
SCALES = np.array([1.0, 2.0, 3.0], np.float32)


def scaled_step(model: Any, optimizer: Any, batch: Any, scale: Any = None) -> Any:
    optimizer.zero_grad()
    loss = model(batch["ids"]).square().mean() * (SCALE if scale is None else scale)
    loss.backward()
    optimizer.step()
    return loss


def array_step(model: Any, optimizer: Any, batch: Any) -> Any:
    return scaled_step(model, optimizer, batch, torch.tensor(SCALES).sum())


def with_global(name: str, value: Any, step: Any) -> Any:
    """Returns a step that finds another global when it runs."""

    @functools.wraps(step)
    def run(model: Any, optimizer: Any, batch: Any) -> Any:
        own = globals()[name]
        globals()[name] = value
        try:
            return step(model, optimizer, batch)
        finally:
            globals()[name] = own

    return run


def closing_over(scale: Any) -> Any:
    def step(model: Any, optimizer: Any, batch: Any) -> Any:
        return scaled_step(model, optimizer, batch, scale)

    return step


def defaulting(to: Any) -> Any:
    def step(model: Any, optimizer: Any, batch: Any, scale: Any = to) -> Any:
        return scaled_step(model, optimizer, batch, scale)

    return step


def autocast(dtype: Any) -> Any:
    def step(model: Any, optimizer: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = model(batch["ids"]).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def detaching(is_detached: bool) -> Any:
    def step(model: Any, optimizer: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        with torch.set_grad_enabled(not is_detached):
            factor = model.embedding.weight.mean()
        loss = (model(batch["ids"]) * factor).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def empty_shapes(*shape: int) -> Any:
    """Returns a step that sums a constant without numbers."""
    constant = np.zeros(shape, np.float32)

    def step(model: Any, optimizer: Any, batch: Any) -> Any:
        return scaled_step(model, optimizer, batch, 1.0 + torch.tensor(constant).sum())

    return step


def by_environment(model: Any, optimizer: Any, batch: Any) -> Any:
    return scaled_step(model, optimizer, batch, float(os.environ.get("KEPT_EXPORTS", 1)))


def with_environment(model: Any, optimizer: Any, batch: Any) -> Any:
    os.environ["KEPT_EXPORTS"] = "4"
    try:
        return by_environment(model, optimizer, batch)
    finally:
        del os.environ["KEPT_EXPORTS"]


SOURCE = textwrap.dedent("""
    def step(model, optimizer, batch):
        optimizer.zero_grad()
        loss = model(batch["ids"]).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    """)


def written(text: str, lines: int = 0) -> Any:
    """Returns the step of a program that another file may have."""
    scope: dict[str, Any] = {}
    exec(compile("\n" * lines + text, "/program/train.py", "exec"), scope)
    return scope["step"]


def export(change: Any) -> Any:
    """Exports one program, with what is changed of it."""
    change = dict(change)
    dtype = change.pop("default_dtype", torch.float32)
    make, step = change.pop("model", Model), change.pop("step", train_step)
    optimizer, batch = change.pop("optimizer", sgd), change.pop("batch", batch_of())
    is_function = change.pop("function", False)
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        model = make()
        if is_function:
            return sparse_opt.torch.export_function(logits, model, batch, **change)
        return sparse_opt.torch.export(step, model, optimizer(model), batch, **change)
    finally:
        torch.set_default_dtype(torch.float32)


def without_cache(change: Any) -> Any:
    os.environ["SPARSE_OPT_CACHE_EXPORTS"] = "0"
    try:
        return export(change)
    finally:
        del os.environ["SPARSE_OPT_CACHE_EXPORTS"]


made = 0
own_lower = _linalg.lower


def counted(*arguments: Any) -> str:
    global made
    made += 1
    return own_lower(*arguments)


_linalg.lower = counted


def is_made(action: Any) -> tuple[Any, bool]:
    before = made
    result = action()
    return result, made > before


CHANGES: dict[str, Any] = {
    "nothing": {},
    "numbers of a constant": {"model": with_attribute("numbers", (1.0, 2.0, 3.0))},
    "a NaN in a constant": {"model": with_attribute("numbers", (1.0, 2.0, float("nan")))},
    "the length of a constant": {"model": with_attribute("numbers", (1.0, 2.0, 4.0, 0.0))},
    "a factor": {"model": with_attribute("factor", 3.0)},
    "a factor that is whole": {"model": with_attribute("factor", 2)},
    "a factor of 0": {"model": with_attribute("factor", 0.0)},
    "a factor of -0": {"model": with_attribute("factor", -0.0)},
    "an activation": {"model": with_attribute("activation", F.gelu)},
    "dropout": {"model": lambda: Model(p=0.25)},
    "no dropout": {"model": lambda: Model(p=0.0)},
    "names": {"model": lambda: Model(("third",))},
    "the number of layers": {"model": lambda: Model(("first", "second"))},
    "the type": {"model": lambda: Model(dtype=torch.float64)},
    "the default type": {"default_dtype": torch.float64},
    "what a buffer begins with": {"model": with_buffer("shift", 0.25)},
    "what a constant buffer begins with": {"model": with_buffer("unsaved", 0.25)},
    "a frozen weight": {"model": frozen},
    "a tied weight": {"model": tied},
    "the rows of the batch": {"batch": batch_of(rows=3)},
    "the length of the batch": {"batch": batch_of(length=6)},
    "the type of the batch": {"batch": {k: v.int() for k, v in batch_of().items()}},
    "another order of the batch": {"batch": {k: v.t().contiguous().t() for k, v in batch_of().items()}},
    "a number of the batch": {"step": smoothed_step, "batch": batch_of(smoothing=0.1)},
    "another number of the batch": {"step": smoothed_step, "batch": batch_of(smoothing=0.2)},
    "the decay": {"optimizer": lambda m: adamw(m, weight_decay=0.5)},
    "the betas": {"optimizer": lambda m: adamw(m, betas=(0.8, 0.95))},
    "the epsilon": {"optimizer": lambda m: adamw(m, eps=1e-6)},
    "a rate of a group": {"optimizer": groups(2.0)},
    "another rate of a group": {"optimizer": groups(3.0)},
    "another optimizer": {"optimizer": adamw},
    "the momentum": {"optimizer": lambda m: sgd(m, momentum=0.8)},
    "a scheduled option": {"scheduled": ["weight_decay"]},
    "accumulate": {"accumulate": True},
    "inits": {"inits": {"first": "normal(0.02)"}},
    "other inits": {"inits": {"first": "normal(0.03)"}},
    "no locations": {"locations": False},
    "a program of a file": {"step": written(SOURCE)},
    "its lines": {"step": written(SOURCE, 3)},
    "its operations": {"step": written(SOURCE.replace("square", "abs"))},
    "an optimizer that branches": {"optimizer": lambda m: torch.optim.RAdam(m.parameters())},
    "indices that are computed": {"model": Halved},
    "a patched method": {"model": patched},
    "a class": {"model": Tripled},
    "a hook": {"model": hooked(lambda m: m.first.register_forward_hook(lambda _, x, y: y * 2))},
    "a hook in front": {
        "model": hooked(lambda m: m.first.register_forward_pre_hook(lambda _, x: (x[0] * 2,)))
    },
    "a hook of a gradient": {
        "model": hooked(lambda m: m.first.weight.register_hook(lambda g: g * 2))
    },
    "a parametrization": {"model": parametrized},
    "a global number": {"step": scaled_step},
    "another global number": {"step": with_global("SCALE", 3.0, scaled_step)},
    "a global array": {"step": array_step},
    "another global array": {"step": with_global("SCALES", SCALES * 2, array_step)},
    "a closure": {"step": closing_over(5.0)},
    "another closure": {"step": closing_over(6.0)},
    "a default": {"step": defaulting(7.0)},
    "another default": {"step": defaulting(8.0)},
    "a partial": {"step": functools.partial(scaled_step, scale=9.0)},
    "another partial": {"step": functools.partial(scaled_step, scale=10.0)},
    "an environment": {"step": by_environment},
    "another environment": {"step": with_environment},
    "autocast": {"step": autocast(torch.bfloat16)},
    "another autocast": {"step": autocast(torch.float16)},
    "a gradient that flows": {"step": detaching(False)},
    "a gradient that ends": {"step": detaching(True)},
    "an empty constant": {"step": empty_shapes(0, 3)},
    "another empty constant": {"step": empty_shapes(3, 0)},
    "maximize": {"optimizer": lambda m: adamw(m, maximize=True)},
    "amsgrad": {"optimizer": lambda m: adamw(m, amsgrad=True)},
    "another group": {
        "optimizer": lambda m: torch.optim.AdamW(
            [
                {"params": [m.first.weight], "weight_decay": 0.25},
                {"params": [p for p in m.parameters() if p is not m.first.weight]},
            ],
            lr=1e-3,
        )
    },
    "a function": {"function": True},
    "a function in training": {"function": True, "training": True},
    "a function without locations": {"function": True, "locations": False},
}  # fmt: skip

texts: dict[str, str] = {}
for name, change in CHANGES.items():
    before = len(cache._files([cache.EXPORT]))
    first, is_first_made = is_made(lambda: export(change))
    again, is_again_made = is_made(lambda: export(change))
    keys = len(cache._files([cache.EXPORT])) - before
    if not is_first_made or keys != 1:
        print(name, "has no key of its own:", is_first_made, keys)
    if str(again) != str(first) or is_again_made:
        print(name, "has another text:", str(again) == str(first), is_again_made)
    texts[name] = str(first)
# A factor of 2 and one of 2.0 are one, and so are batches whose rows lie otherwise.
# CHECK-NOT: has
# CHECK: programs: 72 of 70 texts, without a cache the same: True
right = without_cache({})
print(
    f"programs: {len(CHANGES)} of {len(set(texts.values()))} texts, without a cache the same:",
    str(right) == texts["nothing"],
)

# The rate of a step is an argument: another one has the same text.
# CHECK: another rate: False True
other, is_other_made = is_made(lambda: export({"optimizer": lambda m: sgd(m, lr=0.5)}))
print("another rate:", is_other_made, str(other) == texts["nothing"])

# Another version of anything that computes a text makes it again.
own_versions = _export_cache._versions
for place in range(len(own_versions())):
    parts = list(own_versions())
    parts[place] = "another"
    _export_cache._versions = lambda: tuple(parts)
    if not is_made(lambda: export({}))[1]:
        print("taken from another version", place)
_export_cache._versions = own_versions
# CHECK-NOT: taken
# CHECK: versions: 6
print("versions:", len(own_versions()))

# A damaged file is made again.
for damage in (lambda c: c[: len(c) // 2], lambda c: b"", lambda c: c[:-9] + b"x" + c[-8:]):
    for path in cache._files([cache.EXPORT]):
        path.write_bytes(damage(path.read_bytes()))
    mended, is_mended = is_made(lambda: export({}))
    # CHECK-COUNT-3: damaged: True True False
    print("damaged:", is_mended, str(mended) == texts["nothing"], is_made(lambda: export({}))[1])

# What is taken has limits, first values and its own tensors as what is made.
losses = []
for take in (without_cache, export):
    step = sparse_opt.compile(take({}), check=0)
    losses.append([float(step(batch_of())) for _ in range(3)])
# CHECK: losses: True
print("losses:", losses[0] == losses[1])
# CHECK: expected {{.*}} in 'batch.ids', but got 11
refuse(step, {**batch_of(), "ids": torch.full((2, 4), 11)})

# So are indices that it makes of its buffers.


class Positions(Model):
    def __init__(self, last: int) -> None:
        super().__init__()
        self.register_buffer("positions", torch.tensor([0, 1, 2, last]))
        self.places = nn.Embedding(8, 8)

    def forward(self, ids: Any) -> Any:
        return super().forward(ids + 0 * self.positions) + self.places(self.positions)


export({"model": lambda: Positions(3)})
# CHECK: positions: False False
print("positions:", *(is_made(lambda: export({"model": lambda: Positions(n)}))[1] for n in (3, 7)))
# CHECK: expected indices from {{.*}} to 7 at {{.*}}, but got 8
refuse(export, {"model": lambda: Positions(8)})

# What a step keeps outside of its model is seen, whatever was kept.
count, moves = [0], [False]


def counting_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model(batch["ids"]).square().mean() * (1.0 + count[0])
    count[0] += moves[0]
    loss.backward()
    optimizer.step()
    return loss


export({"step": counting_step})
moves[0] = True
# CHECK: expected a step that does the same each time, but got {{.*}}'count'
refuse(export, {"step": counting_step})

# What has a content that is not known has no key.
library = torch.library.Library("kept_exports", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")


class Traced:
    def __init__(self, *nodes: Any) -> None:
        self.graph = torch.fx.GraphModule({}, torch.fx.Graph())
        for operation, *operands in nodes:
            self.graph.graph.call_function(operation, tuple(operands))


for what, node in {
    "operation": (torch.ops.kept_exports.twice.default,),
    "function": (len,),
    "object": (torch.ops.aten.add.Tensor, object()),
}.items():
    try:
        _export_cache._content_of(Traced(node).graph)
        print("accepted", what)
    except sparse_opt._export_cache.Unknown:
        # CHECK-COUNT-3: no key of an unknown
        print("no key of an unknown", what)
with torch.device("cpu"):
    # CHECK: within a mode: True
    print("within a mode:", is_made(lambda: export({}))[1])

# Processes at once, a limit, a folder that cannot be written, and none of it at all.
folder = sys.argv[1]
text = Path(__file__).read_text().partition("made = 0")[0] + textwrap.dedent("""
    import hashlib
    print(hashlib.sha256(export({"locations": False}).encode()).hexdigest())
    """)
Path(f"{folder}/several.py").write_text(text)
environment = {**os.environ, "SPARSE_OPT_CACHE": f"{folder}/several"}
processes = [
    subprocess.Popen([sys.executable, f"{folder}/several.py"], env=environment, stdout=subprocess.PIPE)
    for _ in range(3)
]
hashes = {process.communicate()[0] for process in processes}
left = sorted(path.name.partition(".")[2] for path in Path(f"{folder}/several").iterdir())
# CHECK: processes: 1 ['export.gz', 'run.gz']
print("processes:", len(hashes), left)

os.environ["SPARSE_OPT_CACHE"] = f"{folder}/small"
os.environ["SPARSE_OPT_CACHE_BYTES"] = "1"
export({})
export({"locations": False})
# CHECK: limited: 1
print("limited:", len(cache._files()))
del os.environ["SPARSE_OPT_CACHE_BYTES"]
os.environ["SPARSE_OPT_CACHE"] = "/dev/null/cache"
# CHECK: not written: True
print("not written:", str(export({})) == texts["nothing"])
os.environ["SPARSE_OPT_CACHE"] = f"{folder}/none"
without_cache({})
# CHECK: off: False
print("off:", os.path.exists(f"{folder}/none"))
