# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps with block-sparse weights against dense ones with masks, in float64: weight decay,
clipping by the global norm, LAMB's trust ratios, Adafactor's means, loss scaling.

The reference is what automatic differentiation makes of w * mask: weights, gradients
and moments are zero where no block is, and everything else sees these zeros. The
steps are those of Inputs/export-optimizers.py."""

import gzip
import sys
from pathlib import Path

import numpy as np
import step

RATE, DECAY, EPS = 0.01, 0.1, 1e-6
SCALE = 2.0**16
random = np.random.default_rng(0)
shapes = {"w1": (32, 48), "w2": (48, 16), "b": (16,)}
blocks = {"w1": random.random((4, 6)) < 0.5, "w2": random.random((6, 2)) < 0.5}
blocks["w1"][0] = False # inputs 0 to 7 are read by no block
masks = {name: np.kron(mask, np.ones((8, 8))) for name, mask in blocks.items()} | {"b": 1}
start = {name: random.standard_normal(shape) * 0.3 * masks[name] for name, shape in shapes.items()}
x, y = random.standard_normal((16, 32)), random.standard_normal((16, 16))


def differentiate(w, x, y):
    """Returns the loss, and the gradients of w * mask."""
    h = np.tanh(x @ w["w1"])
    error = h @ w["w2"] + w["b"] - y
    dy = 2 * error / error.size
    dz = dy @ w["w2"].T * (1 - h**2)
    gradients = {"w1": x.T @ dz, "w2": h.T @ dy, "b": dy.sum(0)}
    return (error**2).mean(), {name: g * masks[name] for name, g in gradients.items()}


def norm(values):
    return np.sqrt(sum((v**2).sum() for v in values))


def adam(g, state, t):
    """Updates both moments of each matrix; returns the directions."""
    for name in g:
        mu, nu = state["mu." + name], state["nu." + name]
        mu[...] = 0.9 * mu + 0.1 * g[name]
        nu[...] = 0.999 * nu + 0.001 * g[name]**2
    return {name: state["mu." + name] / (1 - 0.9**t)
            / (np.sqrt(state["nu." + name] / (1 - 0.999**t)) + EPS) for name in g}


def adamw(w, g, state, t):
    # An absent weight decays from zero to zero.
    return {name: -RATE * (u + DECAY * w[name]) for name, u in adam(g, state, t).items()}


def clipped(w, g, state, t):
    # The norm of what is stored: absent gradients are none.
    for name, value in clip(g).items():
        state["trace." + name][...] = value + 0.9 * state["trace." + name]
    return {name: -0.1 * state["trace." + name] for name in g}


def lamb(w, g, state, t):
    # The norms of a matrix are those of its stored elements.
    u = {name: u + DECAY * w[name] for name, u in adam(g, state, t).items()}
    ratio = {name: norm([w[name]]) / norm([u[name]]) if norm([w[name]]) else 1 for name in u}
    return {name: -RATE * ratio[name] * u[name] for name in u}


def clip(g):
    factor = min(1, 0.05 / norm(g.values()))
    return {name: factor * value for name, value in g.items()}


def rms(value):
    return np.sqrt((value**2).mean())


def adafactor(w, g, state, t):
    # Means of rows and columns, over all entries: an absent gradient adds 1e-30.
    changes, decay = {}, 1 - t**-0.8
    def mean(key, value):
        state[key] = decay * state[key] + (1 - decay) * value
        return state[key]
    for name, gradient in clip(g).items():
        squares = gradient**2 + 1e-30
        if gradient.ndim == 1:
            u = gradient / np.sqrt(mean(f"v.{name}", squares))
        else:
            large = int(np.argmax(gradient.shape))
            row = mean(f"v_row.{name}", squares.mean(large))
            col = mean(f"v_col.{name}", squares.mean(1 - large))
            u = gradient / np.expand_dims(np.sqrt(row / row.mean()), large)
            u /= np.expand_dims(np.sqrt(col), 1 - large)
        u *= 0.1 * max(rms(w[name]), 1e-3) / max(1, rms(u))
        ema = state[f"ema.{name}"] = 0.9 * state[f"ema.{name}"] + 0.1 * u
        changes[name] = -(ema + 0.01 * w[name])
    return changes


def train(update, steps):
    w = {name: value.copy() for name, value in start.items()}
    state = {f"{kind}.{name}": np.zeros(shape) for kind in ("mu", "nu", "trace", "ema")
             for name, shape in shapes.items()}
    state |= {"v.b": np.zeros(16), "v_row.w1": np.zeros(32), "v_col.w1": np.zeros(48),
              "v_row.w2": np.zeros(16), "v_col.w2": np.zeros(48)}
    for t in range(1, steps + 1):
        loss, g = differentiate(w, x, y)
        for name, change in update(w, g, state, t).items():
            w[name] += change
    return loss, w, state


def load(path):
    text = gzip.decompress(path.read_bytes()).decode()
    return step.compile(text, ["--mark=match=params.w block=8x8 density=1"])


def inputs(compiled, x, y):
    """The arrays that the compiled step begins with."""
    arrays = {"batch.x": x.astype(np.float32), "batch.y": y.astype(np.float32)}
    for buffer in compiled.manifest["buffers"]:
        name, last = buffer["name"], buffer["name"].split(".")[-1]
        if not buffer["carried"]:
            continue
        arrays[name] = np.zeros(buffer["shape"], step.TYPES[buffer["type"]])
        if name == "state.scale":
            arrays[name] += np.float32(SCALE)
        elif name.startswith("state.params."):
            arrays[name] = start[last].astype(np.float32)
        if buffer["kind"] == "values":
            values = step.to_values(start[last].astype(np.float32), blocks[last], (8, 8),
                                    buffer["shape"][0])
            arrays[name] = np.where(name.startswith("state.params."), values, 0 * values)
    return arrays


def run(compiled, arrays, steps=1):
    patterns = {f"state.params.{name}": mask for name, mask in blocks.items()}
    return compiled.run(arrays, patterns, steps=steps)


def dense(name, array):
    last = name.split(".")[-1]
    return step.to_dense(array, blocks[last]) if array.ndim == 3 else array


def check(name, compiled, update):
    got = run(compiled, inputs(compiled, x, y), 3)
    loss, w, state = train(update, 3)
    np.testing.assert_allclose(got["loss"], loss, rtol=2e-6)
    compared = set()
    for key, array in got.items():
        kind, last = key.split(".")[-2:] if "." in key else ("", "")
        expected = w.get(last) if kind == "params" else state.get(f"{kind}.{last}")
        if expected is not None:
            np.testing.assert_allclose(dense(key, array), expected, rtol=1e-4,
                                       atol=2e-6 * np.abs(expected).max(), err_msg=key)
            compared.add(key)
    assert len(compared) >= 6, compared # parameters, and what goes with each
    print(f"{name}: 3 steps, {compiled.manifest['left_dense']} left dense")
    return got


def check_overflow(name, compiled):
    """An overflow halves the scale and changes nothing else. One where no block is, is
    none: here of the gradient of inputs that no block of w1 reads."""
    arrays = inputs(compiled, x, y * 1e36)
    got = run(compiled, arrays)
    assert got["state.scale"] == SCALE / 2 and got["state.good"] == 0
    for key, array in got.items():
        if key.startswith("state.") and key not in ("state.scale", "state.good"):
            np.testing.assert_array_equal(dense(key, array), dense(key, arrays[key]), key)
    far = x.copy()
    far[:, :8] = 3e38
    got = run(compiled, inputs(compiled, far, y))
    near = run(compiled, inputs(compiled, x, y))
    assert got["state.scale"] == SCALE and got["state.good"] == 1
    for key in got:
        if key.startswith("state."):
            np.testing.assert_array_equal(dense(key, got[key]), dense(key, near[key]), key)
    print(f"{name}: overflow, then none where no block is")


folder = Path(sys.argv[1])
for name, update in {"adamw": adamw, "clipped": clipped, "lamb": lamb, "adafactor": adafactor,
                     "scaled": adamw, "scaled-all": adamw}.items():
    compiled = load(folder / f"{name}.mlir.gz")
    got = check(name, compiled, update)
    if name == "adafactor":
        np.testing.assert_allclose(got["state.opt.1.0.v_row.w1"][:8], 1e-30, rtol=1e-5)
    if name.startswith("scaled"):
        assert got["state.scale"] == 2 * SCALE and got["state.good"] == 1
        check_overflow(name, compiled)
