# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Generates the golden data of the BERT-tiny training test.

"""Trains BERT-tiny block-sparse in JAX, by masks, and writes what came out.

    python3 golden.py golden.json
    python3 golden.py --check golden.json

writes the file, or checks that it would be the same but for rounding. Needs
`jax` and `optax`, and `python/` and `examples/` on the module path.

The reference is `w * mask` under automatic differentiation, in float64, so that
what is compared is the error of the compiled step alone. Twenty steps of four
batches, with two pattern updates: after steps 7 and 14 the blocks of lowest L1
norm are dropped, as many others start at zero, and so do their moments.

The file holds no inputs: `counter.py` makes them from names.

    {"steps": 20, "lr": [..],                the learning rate of each step
     "losses": [..],                         the loss of each step
     "block": [16, 16], "density": 0.25,
     "match": regex,                         which parameters are sparse
     "state": {name: {shape, type, kind, scale}},       inputs, see counter.py;
     "batch": {name: {shape, type, kind, n}},           a sparse weight is masked
     "num_batches": 4,                       step k sees batch k mod 4, whose
                                             tensors are called "batch.ids/0"
     "patterns": {weight: [[row, col], ..]}, the first, in blocks
     "updates": [{"after": 7,                steps done before the update
                  "drop": {weight: [[row, col], ..]},
                  "grow": {weight: [[row, col], ..]}}, ..],
     "final": {name: {"sum", "norm",         of every carried tensor, dense,
                      "at": [..], "is": [..]}}}      and some of its entries
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import counter
import generate
from sparse_opt.jax import leaf_names

CONFIG = generate.CONFIGS["tiny"]
STEPS = 20
UPDATES_AFTER = (7, 14)
NUM_BATCHES = 4
BLOCK = 16
DENSITY = 0.25
MATCH = r"^state\.params\.(token_embedding|layers\.[0-9]+\.(qkv|out|ffn1|ffn2)_w)$"
SCALE = 0.07  # the width of a uniform distribution of standard deviation 0.02
NUM_SAMPLES = 24

Pattern = set[tuple[int, int]]


def state_spec(name: str, leaf: jax.ShapeDtypeStruct) -> dict[str, Any]:
    spec: dict[str, Any] = {"shape": list(leaf.shape), "type": str(leaf.dtype)}
    if not name.startswith("state.params."):
        return spec | {"kind": "zero"}
    kind = "gain" if name.endswith("_gain") else "centered"
    return spec | {"kind": kind, "scale": SCALE}


def batch_spec(name: str, leaf: jax.ShapeDtypeStruct) -> dict[str, Any]:
    spec: dict[str, Any] = {"shape": list(leaf.shape), "type": str(leaf.dtype)}
    if name == "batch.weights":
        return spec | {"kind": "coin"}
    n = CONFIG.tokens if name == "batch.positions" else CONFIG.vocabulary
    return spec | {"kind": "below", "n": n}


def ranked_blocks(key: str, blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns `blocks` in the random order that `key` names."""
    rank = counter.bits(key, len(blocks))
    return [blocks[i] for i in sorted(range(len(blocks)), key=rank.__getitem__)]


def mask_of(pattern: Pattern, shape: tuple[int, int]) -> np.ndarray:
    mask = np.zeros(shape)
    for row, col in pattern:
        mask[row * BLOCK : (row + 1) * BLOCK, col * BLOCK : (col + 1) * BLOCK] = 1
    return mask


def lowest_blocks(weight: np.ndarray, pattern: Pattern) -> Pattern:
    """Returns about a quarter of the blocks, those of lowest L1 norm.

    Cuts where neighbours in the order differ most, so that rounding cannot
    change the choice.
    """

    def norm(block: tuple[int, int]) -> float:
        row, col = block
        tile = weight[row * BLOCK : (row + 1) * BLOCK, col * BLOCK : (col + 1) * BLOCK]
        return float(np.abs(tile).sum())

    order = sorted(pattern, key=norm)
    norms = [norm(block) for block in order]
    cuts = range(len(order) // 8, 3 * len(order) // 8)
    cut = max(cuts, key=lambda n: norms[n] / norms[n - 1])
    assert norms[cut] / norms[cut - 1] > 1.001
    return set(order[:cut])


def train(dtype: type) -> dict[str, Any]:
    """Returns the golden data, computed in `dtype`."""
    shapes = generate.step_arguments(CONFIG)
    names = leaf_names("state", shapes[0])
    state_specs = {
        n: state_spec(n, s) for n, s in zip(names, jax.tree.leaves(shapes[0]))
    }
    batch_names = leaf_names("batch", shapes[1])
    batch_specs = {
        n: batch_spec(n, s) for n, s in zip(batch_names, jax.tree.leaves(shapes[1]))
    }
    state_tree, batch_tree = (
        jax.tree.structure(shapes[0]),
        jax.tree.structure(shapes[1]),
    )

    def tensor(name: str, spec: dict[str, Any]) -> np.ndarray:
        array = np.array(counter.tensor(name, spec)).reshape(spec["shape"])
        return array.astype(dtype) if array.dtype == np.float32 else array

    leaves = {n: tensor(n, spec) for n, spec in state_specs.items()}
    batches = [
        jax.tree.unflatten(
            batch_tree,
            [tensor(f"{n}/{k}", spec) for n, spec in batch_specs.items()],
        )
        for k in range(NUM_BATCHES)
    ]
    weights = [n for n in names if re.search(MATCH, n)]
    grid = {
        n: [(r, c) for r in range(h // BLOCK) for c in range(w // BLOCK)]
        for n in weights
        for h, w in [leaves[n].shape]
    }
    patterns: dict[str, Pattern] = {
        n: set(ranked_blocks(f"{n}/pattern", grid[n])[: round(DENSITY * len(grid[n]))])
        for n in weights
    }
    first_patterns = {n: sorted(p) for n, p in patterns.items()}

    def masks() -> Any:
        ones = {n: np.ones(leaves[n].shape, dtype) for n in names if ".params." in n}
        ones |= {
            n: mask_of(p, leaves[n].shape).astype(dtype) for n, p in patterns.items()
        }
        return jax.tree.unflatten(
            jax.tree.structure(shapes[0]["params"]), list(ones.values())
        )

    @jax.jit
    def step(state: Any, batch: Any, lr: Any, mask: Any) -> tuple[Any, Any]:
        def masked_loss(params: Any) -> Any:
            params = jax.tree.map(lambda p, m: p * m, params, mask)
            return generate.loss(params, batch, CONFIG)

        params = state["params"]
        loss, gradient = jax.value_and_grad(masked_loss)(params)
        updates, opt = generate.optimizer(lr, CONFIG).update(gradient, state["opt"], params)
        return {"params": optax.apply_updates(params, updates), "opt": opt}, loss

    for n, pattern in patterns.items():
        leaves[n] *= mask_of(pattern, leaves[n].shape).astype(dtype)
    rates = [float(np.float32(2e-3 * min(1.0, (k + 1) / 5))) for k in range(STEPS)]
    losses, updates = [], []
    for k in range(STEPS):
        if k in UPDATES_AFTER:
            drop, grow = {}, {}
            for n in weights:
                old = patterns[n]
                drop[n] = lowest_blocks(leaves[n], old)
                absent = [b for b in grid[n] if b not in old]
                grow[n] = set(ranked_blocks(f"{n}/grow/{k}", absent)[: len(drop[n])])
                keep = mask_of(old - drop[n], leaves[n].shape).astype(dtype)
                for moment in ("params", "opt.0.mu", "opt.0.nu"):
                    leaves[n.replace("params", moment, 1)] *= keep
                patterns[n] = (old - drop[n]) | grow[n]
            updates.append(
                {
                    "after": k,
                    "drop": {n: sorted(b) for n, b in drop.items()},
                    "grow": {n: sorted(b) for n, b in grow.items()},
                }
            )
        state = jax.tree.unflatten(state_tree, list(leaves.values()))
        state, loss = step(state, batches[k % NUM_BATCHES], dtype(rates[k]), masks())
        leaves = dict(zip(names, map(np.array, jax.tree.leaves(state))))
        losses.append(float(loss))

    final = {}
    for n, leaf in leaves.items():
        flat = leaf.astype(np.float64).ravel()
        stored = np.arange(flat.size)
        if weight := next(
            (w for w in weights if n.endswith(w.split("params")[1])), None
        ):
            stored = np.flatnonzero(mask_of(patterns[weight], leaf.shape))
        numbers = counter.bits(f"{n}/sample", NUM_SAMPLES)
        at = np.unique([stored[z % stored.size] for z in numbers])
        final[n] = {
            "sum": float(flat.sum()),
            "norm": float(np.sqrt((flat * flat).sum())),
            "at": at.tolist(),
            "is": flat[at].tolist(),
        }
    return {
        "steps": STEPS,
        "lr": rates,
        "losses": losses,
        "block": [BLOCK, BLOCK],
        "density": DENSITY,
        "match": MATCH,
        "state": state_specs,
        "batch": batch_specs,
        "num_batches": NUM_BATCHES,
        "patterns": first_patterns,
        "updates": updates,
        "final": final,
    }


def rounded(value: Any) -> Any:
    """Returns `value` with its floats cut to ten digits."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    return value


def is_close(a: Any, b: Any) -> bool:
    """Returns whether `a` and `b` are the same but for rounding of floats."""
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-7 * max(abs(a), 1e-3)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_close(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_close, a, b))
    return a == b


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    data = json.loads(json.dumps(rounded(train(np.float64))))
    if sys.argv[1] == "--check":
        stored = json.loads(Path(sys.argv[2]).read_text())
        changed = [k for k in data if not is_close(data[k], stored.get(k))]
        sys.exit(
            f"expected the same golden data, but got other {changed}" if changed else 0
        )
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
        for key, value in data.items()
    ]
    Path(sys.argv[1]).write_text("{" + ",\n ".join(lines) + "}\n")


if __name__ == "__main__":
    main()
