# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An export of JAX is saved, and sparse-train trains it as a loop in Python does.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

"""`Export.save` of a step of JAX: the losses of a run of sparse-train and of Python."""

import itertools
import tempfile
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import sparse_opt
import sparse_opt.jax
import train_folder
from refusals import refuse

warnings.simplefilter("ignore")


def step(state, batch):
    def loss_of(params):
        h = batch["x"]
        for layer in range(3):
            h = jnp.tanh(h @ params["layers"][layer])
        logits = h @ params["head"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["labels"][:, None], 1).mean()

    loss, gradient = jax.value_and_grad(loss_of)(state["params"])
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state["moments"], gradient)
    params = jax.tree.map(lambda w, m: w - 0.1 * m, state["params"], moments)
    return {"params": params, "moments": moments}, loss


rng = np.random.default_rng(0)
params = {
    "layers": jnp.array(rng.normal(size=(3, 16, 16)) / 3, jnp.float32),
    "head": jnp.array(rng.normal(size=(16, 4)), jnp.float32),
}
state = {"params": params, "moments": jax.tree.map(jnp.zeros_like, params)}
data = {
    "x": rng.normal(size=(20, 16)).astype(np.float32),
    "labels": rng.integers(0, 4, 20).astype(np.int32),
}
first = {name: array[:8] for name, array in data.items()}
marks = "match=layers dims=stack,row,col block=4x4 density=0.5"
folder = Path(tempfile.mkdtemp())
exported = sparse_opt.jax.export(step, state, first, marks=marks)
held_out = {f"held_out.{name}": array[:4] for name, array in data.items()}
exported.save(folder, data={**data, **held_out})

# CHECK: 30 losses, 30 equal, trains True
theirs = train_folder.train(folder, "steps=30")
compiled = sparse_opt.compile(exported, check=0, pattern="random")
examples = train_folder.order(20)
losses = []
for _ in range(30):
    own = list(itertools.islice(examples, 8))
    losses.append(float(compiled({name: array[own] for name, array in data.items()})))
equal = sum(a == b for a, b in zip(losses, theirs))
print(f"{len(losses)} losses, {equal} equal, trains {losses[-1] < 0.5 * losses[0]}")
# CHECK: limits: {"labels": 4}
# CHECK: steps: 100
# CHECK-NEXT: compile:
print((folder / "train.yaml").read_text())

# Shapes have no values.
shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), first)
# CHECK: expected values of 'batch.labels' in the exported batch, but got its shape alone: say data={...}
refuse(sparse_opt.jax.export(step, state, shapes).save, folder / "x")
