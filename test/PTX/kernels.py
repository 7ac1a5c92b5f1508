# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the kernels of Inputs against float64.

    kernels.py NAME PTX [OPTION]...    spmm, wgmma, norm or pipeline; options go to ptx-run

Each kernel has several cases, on whose data mistakes in it show. Data and the arguments of
ptx-run behind the file, `NAME.args`, `NAME-1.args` and so on, are left in the current folder. A
kernel of products takes a plan: for each group of R block rows of y the features that any of
them needs, and which of them have a block there.
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
    path = f"{NAME}-{name}.bin"
    np.ascontiguousarray(values).tofile(path)
    return f"in:{kind}:@{path}"


def scattered(ins, outs, density):
    """A random pattern with a block row of all, and as the last one, which is a group, one of none."""
    present = np.random.default_rng(5).random((outs, ins)) < density
    present[outs - 1] = False
    present[0] = True
    return present


def stepped(ins, outs, rows, steps):
    """A pattern whose first group begins behind the first feature, whose last group has `steps`, the numbers of blocks
    in each of its steps, and whose groups between have none."""
    present = np.zeros((outs, ins), bool)
    present[:rows, 1:] = np.random.default_rng(6).random((rows, ins - 1)) < 0.6
    present[0, 1:] = True
    last = (outs - 1) // rows * rows
    for step, count in enumerate(steps):
        present[last:last + count, ins - len(steps) + step] = True
    return present


def product(block, rows, tile, threads, shared, present, tokens):
    """y = W^T x of blocks, features in rows and tokens in columns."""
    rng = np.random.default_rng(5)
    outs, ins = present.shape
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


def norm(columns):
    # Of all sizes: the order of sums shows.
    rng = np.random.default_rng(6)
    x = (rng.standard_normal((3, columns)) * np.exp(2 * rng.standard_normal((3, columns)))).astype(np.float32)
    y = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1 / 1024)
    return ["--grid", "3", "--block", "128"], [buffer("x", "f32", x), f"out:f32:{x.size}", f"u32:{columns}"], y, 2e-6


def pipeline(steps=5):
    rng = np.random.default_rng(7)
    a, b = (narrow(rng.standard_normal((rows, 64 * steps))) for rows in (128, 64))
    maps = []
    for name, matrix, rows in (("a", a, 64), ("b", b, 32)):
        place = buffer(name, "bf16", matrix).removeprefix("in:bf16:")
        maps.append(f"map:bf16:{64 * steps}x{len(matrix)}:64x{rows}:128:{place}")
    options = ["--grid", "2", "--cluster", "2", "--block", "160", "--shared", "32768"]
    return options, [*maps, "out:f32:8192", f"u32:{steps}"], widen(a) @ widen(b).T, 1e-3


def spmm(present, tokens):
    return lambda: product(16, 4, 64, 128, 3 * (16 * 64 * 2 + 4 * 512), present, tokens)


def wgmma(present, tokens):
    return lambda: product(64, 2, 64, 256, 73728, present, tokens)


# Tokens end behind each of the columns that a thread writes; the last group of block rows, behind whose slots there
# are none, has from no to more steps than there are stages.
CASES = {
    "pipeline": [pipeline],
    "spmm": [spmm(scattered(9, 9, 0.4), 88), spmm(stepped(6, 12, 4, [1]), 96), spmm(stepped(5, 10, 4, [2, 1]), 72),
             spmm(stepped(7, 8, 4, [3, 2, 1]), 80), spmm(stepped(6, 7, 4, [1, 2, 3, 1]), 104)],
    "wgmma": [wgmma(scattered(3, 3, 0.5), 72), wgmma(stepped(6, 5, 2, [1]), 80), wgmma(stepped(4, 4, 2, [2, 1]), 88),
              wgmma(stepped(5, 4, 2, [1, 2, 1]), 96), wgmma(stepped(6, 4, 2, [1, 2, 2, 1, 1]), 104), wgmma(stepped(3, 3, 2, [1]), 112),
              wgmma(stepped(3, 6, 2, [1, 1]), 120)],
    "norm": [lambda: norm(200), lambda: norm(100), lambda: norm(40)],
}
failed = False
for number, case in enumerate(CASES[sys.argv[1]]):
    NAME = f"{sys.argv[1]}-{number}" if number else sys.argv[1]
    options, arguments, wanted, error = case()
    command = options + [word for argument in arguments for word in ("--arg", argument)]
    with open(f"{NAME}.args", "w") as file:
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
    print(f"{NAME}: {wanted.size} values, {int(wrong.sum())} wrong")
    failed |= bool(wrong.any())
sys.exit(failed)
