# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The LLaMA of examples/, compiled with its layers in blocks, against a masked one in float64.

    llama.py llama_tiny.mlir.gz

The reference is written out here, forward and back: RMSNorm, rotary positions, causal
attention, SwiGLU, the mean cross-entropy of the next tokens, and Adam, on w * mask. The
patterns change after the third step of six: in each weight some blocks go, as many
others begin at zero, and so do their moments. Of every weight, one block row stores
nothing and another one everything.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import references
import step

LAYERS, HIDDEN, HEADS, VOCABULARY, BATCH, TOKENS, GATED = 2, 64, 2, 400, 4, 32, 96
WEIGHTS = {"query": (HIDDEN, HIDDEN), "key": (HIDDEN, HIDDEN), "value": (HIDDEN, HIDDEN), "out": (HIDDEN, HIDDEN),
           "gate": (HIDDEN, GATED), "up": (HIDDEN, GATED), "down": (GATED, HIDDEN)}
STEPS, UPDATE_AFTER, RATE, DENSITY = 6, 3, 3e-3, 0.3


def rms_norm(x, gain):
    """y, and what makes dx and the gain's gradient of dy."""
    scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    def back(dy):
        d = dy * gain
        return scale * d - x * scale**3 * (x * d).mean(-1, keepdims=True), (dy * x * scale).sum((0, 1))

    return x * scale * gain, back


def turn(x, direction):
    """Feature pairs (i, i + size / 2) of [B, heads, T, size] as complex numbers, turned by their positions."""
    half = x.shape[-1] // 2
    angles = np.arange(TOKENS)[:, None] * 10000.0 ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * direction * angles)
    return np.concatenate([z.real, z.imag], -1)


def split(x):
    return x.reshape(BATCH, TOKENS, HEADS, -1).transpose(0, 2, 1, 3)


def join(x):
    return x.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, HIDDEN)


def differentiate(w, ids, labels):
    """The loss, and its gradient with respect to each parameter."""
    gradient = {}

    def product(x, name):
        def back(dy):
            gradient[name] = np.einsum("bti,bto->io", x, dy)
            return dy @ w[name].T

        return x @ w[name], back

    x, backs = w["token_embedding"][ids], []
    causal = np.tri(TOKENS, dtype=bool)
    for i in range(LAYERS):
        name = f"layers.{i}"
        n, norm_back = rms_norm(x, w[f"{name}.attention_gain"])
        (q, q_back), (k, k_back), (v, v_back) = (product(n, f"{name}.{p}_w") for p in ("query", "key", "value"))
        heads = turn(split(q), 1), turn(split(k), 1), split(v)
        scale = (HIDDEN // HEADS) ** -0.5
        mixed = references.attention(*heads, np.zeros_like(heads[0]), scale, mask=causal).y
        y, out_back = product(join(mixed), f"{name}.out_w")

        def attention_back(dx, name=name, heads=heads, scale=scale, out_back=out_back, norm_back=norm_back,
                           q_back=q_back, k_back=k_back, v_back=v_back):
            d = references.attention(*heads, split(out_back(dx)), scale, mask=causal)
            dn = q_back(join(turn(d.dq, -1))) + k_back(join(turn(d.dk, -1))) + v_back(join(d.dv))
            dn, gradient[f"{name}.attention_gain"] = norm_back(dn)
            return dx + dn

        x = x + y
        n, norm_back = rms_norm(x, w[f"{name}.ffn_gain"])
        (a, a_back), (b, b_back) = (product(n, f"{name}.{p}_w") for p in ("gate", "up"))
        s = 1 / (1 + np.exp(-a))
        y, down_back = product(a * s * b, f"{name}.down_w")

        def ffn_back(dx, name=name, a=a, b=b, s=s, a_back=a_back, b_back=b_back, down_back=down_back, norm_back=norm_back):
            dh = down_back(dx)
            dn = a_back(dh * b * (s + a * s * (1 - s))) + b_back(dh * a * s)
            dn, gradient[f"{name}.ffn_gain"] = norm_back(dn)
            return dx + dn

        x = x + y
        backs += [attention_back, ffn_back]
    n, norm_back = rms_norm(x, w["final_gain"])
    logits, head_back = product(n, "head_w")
    p = references.softmax(logits)[0]
    picked = np.take_along_axis(p, labels[..., None], -1)
    dlogits = p.copy()
    np.put_along_axis(dlogits, labels[..., None], picked - 1, -1)
    dx, gradient["final_gain"] = norm_back(head_back(dlogits / labels.size))
    for back in reversed(backs):
        dx = back(dx)
    gradient["token_embedding"] = np.zeros_like(w["token_embedding"])
    np.add.at(gradient["token_embedding"], ids, dx)
    return -np.log(picked).mean(), gradient


def check_gradient(w, ids, labels, random):
    """The reference's gradient is that of its loss, along a random direction of each parameter."""
    gradient = differentiate(w, ids, labels)[1]
    for name in w:
        direction = random.standard_normal(w[name].shape)
        ends = [differentiate(w | {name: w[name] + e * direction}, ids, labels)[0] for e in (1e-6, -1e-6)]
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, (gradient[name] * direction).sum(), rtol=1e-5, atol=1e-8, err_msg=name)


def first_mask(grid, slots, random):
    mask = np.zeros(grid, bool)
    mask[1] = True
    others = [(row, col) for row in range(2, grid[0]) for col in range(grid[1])]
    for i in random.permutation(len(others))[:slots - grid[1]]:
        mask[others[i]] = True
    return mask


def exchanged(mask, random):
    """Another mask: a fifth of the blocks elsewhere."""
    stored, absent = np.argwhere(mask), np.argwhere(~mask)
    count = max(1, len(stored) // 5)
    new = mask.copy()
    new[tuple(random.permutation(stored)[:count].T)] = False
    new[tuple(random.permutation(absent)[:count].T)] = True
    return new


def check(source, block, keys):
    """`keys`: to how many at least attention is computed without scores in memory; larger models have them."""
    random = np.random.default_rng(block)
    mark = rf"--mark=match=layers\..*_w$ block={block[0]}x{block[1]} density={DENSITY}"
    compiled = step.compile(source, [mark, f"--attention-keys={keys}"])
    assert compiled.manifest["left_dense"] == 0
    shapes = {"token_embedding": (VOCABULARY, HIDDEN), "final_gain": (HIDDEN,), "head_w": (HIDDEN, VOCABULARY)}
    for i in range(LAYERS):
        shapes |= {f"layers.{i}.{name}_w": shape for name, shape in WEIGHTS.items()}
        shapes |= {f"layers.{i}.{name}_gain": (HIDDEN,) for name in ("attention", "ffn")}
    patterns = {entry["name"].removeprefix("state.params."): entry for entry in compiled.manifest["patterns"]}
    assert patterns.keys() == {name for name in shapes if name.startswith("layers.") and name.endswith("_w")}
    masks = {name: first_mask([n // b for n, b in zip(shapes[name], block)], entry["slots"], random)
             for name, entry in patterns.items()}

    def whole(name):
        return np.kron(masks[name], np.ones(block)) if name in masks else 1

    w = {name: (1 if name.endswith("gain") else 0) + random.standard_normal(shape) * 0.3 * whole(name)
         for name, shape in shapes.items()}
    w = {name: value.astype(np.float32).astype(np.float64) for name, value in w.items()}
    mu, nu = ({name: np.zeros(shape) for name, shape in shapes.items()} for _ in range(2))
    kinds = {"state.params.": w, "state.opt.0.mu.": mu, "state.opt.0.nu.": nu}

    def parts(name):
        """The reference's arrays and the parameter that a carried buffer is of; none of a count."""
        return next(((arrays, name.removeprefix(kind)) for kind, arrays in kinds.items() if name.startswith(kind)), None)

    carried = {buffer["name"]: buffer for buffer in compiled.manifest["buffers"] if buffer["carried"]}
    arrays = {}
    for name, buffer in carried.items():
        dense = parts(name)[0][parts(name)[1]] if parts(name) else np.zeros(buffer["shape"])
        arrays[name] = dense.astype(step.TYPES[buffer["type"]])
    if keys > TOKENS:
        ids = random.integers(0, VOCABULARY, (2, BATCH, TOKENS))
        check_gradient(w, *ids, random)

    start, worst, worst_loss = {name: value.copy() for name, value in w.items()}, 0, 0
    # Adam divides by the size of a gradient: where that is 1e-8 of a sum's terms, as of an improbable token in the head, f32 has
    # another direction. Moments are compared everywhere, parameters where gradients have been zero or larger.
    is_clear = {name: np.ones(shape, bool) for name, shape in shapes.items()}
    for t in range(1, STEPS + 1):
        if t == UPDATE_AFTER + 1:
            masks = {name: exchanged(mask, random) for name, mask in masks.items()}
            for name in masks:
                for values in kinds.values():
                    values[name] *= whole(name)
            for name in carried:
                if parts(name) and parts(name)[1] in masks:
                    arrays[name] *= whole(parts(name)[1]).astype(np.float32)
        ids, labels = random.integers(0, VOCABULARY, (2, BATCH, TOKENS))
        loss, gradient = differentiate(w, ids, labels)
        for name in w:
            g = gradient[name] * whole(name)
            mu[name] = 0.9 * mu[name] + 0.1 * g
            nu[name] = 0.999 * nu[name] + 0.001 * g**2
            root = np.sqrt(nu[name] / (1 - 0.999**t))
            is_clear[name] &= (root == 0) | (root > 1e-6)
            w[name] = w[name] - RATE * (mu[name] / (1 - 0.9**t)) / (root + 1e-8)
        given = {"batch.ids": ids, "batch.labels": labels, "lr": np.float32(RATE)}
        for name, array in arrays.items():
            pattern = parts(name) and masks.get(parts(name)[1])
            if pattern is not None:
                array = step.to_values(array, pattern, block, patterns[parts(name)[1]]["slots"])
            given[name] = array
        got = compiled.run(given, {f"state.params.{name}": mask for name, mask in masks.items()})
        worst_loss = max(worst_loss, abs(float(got["loss"]) / loss - 1))
        for name in carried:
            pattern = parts(name) and masks.get(parts(name)[1])
            arrays[name] = step.to_dense(got[name], pattern) if pattern is not None else got[name]
            if parts(name):
                values, of = parts(name)
                change, error = values[of] - (start[of] if values is w else 0), arrays[name] - values[of]
                compared = is_clear[of] if values is w else slice(None)
                worst = max(worst, np.linalg.norm(error[compared]) / np.linalg.norm(change[compared]))
    assert min(mask.mean() for mask in is_clear.values()) > 0.7
    assert arrays["state.opt.0.count"] == STEPS
    print(f"{block[0]}x{block[1]}, {keys} keys: {len(masks)} weights, {STEPS} steps, loss within {worst_loss:.0e}, "
          f"parameters and moments within {worst:.0e} of what changed", file=sys.stderr)
    assert worst_loss < 5e-6 and worst < 5e-4, (worst_loss, worst)


source = gzip.decompress(Path(sys.argv[1]).read_bytes()).decode()
for block, keys in [((16, 16), 256), ((16, 16), 1), ((1, 8), 1), ((1, 1), 1), ((8, 4), 1)]:
    check(source, block, keys)
