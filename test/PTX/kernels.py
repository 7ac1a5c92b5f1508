# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the kernels of Inputs against float64.

    kernels.py NAME PTX [OPTION]...    spmm, wgmma, norm or pipeline; options go to ptx-run

Data and `NAME.args`, the arguments of ptx-run behind the file, are left in the current
folder. A kernel of products takes a plan: for each group of R block rows of y the
features that any of them needs, and which of them have a block there.
"""

import subprocess
import sys

import numpy as np


def narrow(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def buffer(name, kind, values):
    path = f"{sys.argv[1]}-{name}.bin"
    np.ascontiguousarray(values).tofile(path)
    return f"in:{kind}:@{path}"


def product(block, rows, tile, threads, shared, shape, tokens, density):
    """y = W^T x of blocks, features in rows and tokens in columns."""
    rng = np.random.default_rng(5)
    ins, outs = shape
    present = rng.random((outs, ins)) < density
    present[outs - 1] = False  # a group without a block, and a block row of all
    present[0] = True
    slot = np.full((outs, ins), -1)
    slot[present] = rng.permutation(int(present.sum()))
    values = narrow(rng.standard_normal((present.sum(), block, block)))
    x = narrow(rng.standard_normal((ins * block, tokens)))
    starts, steps, firsts, slots = [0], [], [], []
    for group in range(0, outs, rows):
        for i in range(ins):
            members = [o for o in range(group, min(group + rows, outs)) if slot[o, i] >= 0]
            if members:
                firsts.append(len(slots))
                steps += [i, sum(1 << o - group for o in members)]
                slots += [slot[o, i] for o in members]
        starts.append(len(firsts))
    y = np.zeros((outs * block, tokens))
    for o, i in zip(*np.nonzero(present)):
        y[o * block:(o + 1) * block] += widen(values[slot[o, i]]).T @ widen(x[i * block:(i + 1) * block])
    arguments = [buffer(name, "s32", np.array(words, np.int32)) for name, words in
                 (("starts", starts), ("steps", steps), ("firsts", firsts), ("slots", slots))]
    arguments += [buffer("values", "bf16", values), buffer("x", "bf16", x), f"out:bf16:{y.size}", f"u32:{tokens}", f"u32:{outs}"]
    grid = f"{-(-tokens // tile)},{-(-outs // rows)}"
    return ["--grid", grid, "--block", str(threads), "--shared", str(shared)], arguments, y, 2.0 ** -8


def norm():
    x = np.random.default_rng(6).standard_normal((3, 200)).astype(np.float32)
    y = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1 / 1024)
    return ["--grid", "3", "--block", "128"], [buffer("x", "f32", x), "out:f32:600", "u32:200"], y, 1e-6


def pipeline(steps=5):
    rng = np.random.default_rng(7)
    a, b = (narrow(rng.standard_normal((rows, 64 * steps))) for rows in (128, 64))
    maps = []
    for name, matrix, rows in (("a", a, 64), ("b", b, 32)):
        place = buffer(name, "bf16", matrix).removeprefix("in:bf16:")
        maps.append(f"map:bf16:{64 * steps}x{len(matrix)}:64x{rows}:128:{place}")
    options = ["--grid", "2", "--cluster", "2", "--block", "160", "--shared", "32768"]
    return options, [*maps, "out:f32:8192", f"u32:{steps}"], widen(a) @ widen(b).T, 1e-3


KERNELS = {
    "pipeline": pipeline,
    "spmm": lambda: product(16, 4, 64, 128, 3 * (16 * 64 * 2 + 4 * 512), (9, 9), 88, 0.4),
    "wgmma": lambda: product(64, 2, 64, 256, 73728, (3, 3), 72, 0.5),
    "norm": norm,
}
options, arguments, wanted, error = KERNELS[sys.argv[1]]()
command = options + [word for argument in arguments for word in ("--arg", argument)]
with open(f"{sys.argv[1]}.args", "w") as file:
    file.write("\n".join(command) + "\n")
done = subprocess.run(["ptx-run", sys.argv[2], *command, *sys.argv[3:]], capture_output=True, text=True)
if done.returncode:
    sys.exit(done.stderr)
lines = done.stdout.splitlines()
values = [line for line in lines if line.startswith("argument") or (line.startswith(" ") and ":" not in line)]
words = [word for line in values for word in line.split(": ")[-1].split()][:wanted.size]
found = np.array([float("nan") if word == "?" else float(word) for word in words]).reshape(wanted.shape)
wrong = ~(np.abs(found - wanted) <= error * np.abs(wanted) + error / 64)
print("\n".join(line for line in lines if line not in values))
print(f"{sys.argv[1]}: {wanted.size} values, {int(wrong.sum())} wrong")
sys.exit(bool(wrong.any()))
