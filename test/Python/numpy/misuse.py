# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a step is not for is refused in a sentence, and changes nothing.

# RUN: rm -rf %t && mkdir %t && cd %t
# RUN: %numpy_python -u %s | FileCheck %s

import os
import subprocess
import sys
import threading

import numpy as np

import sparse_opt
from refusals import refuse
from text_step import TEXT

MARKS = ["match=^w$ block=4x4 density=0.5"]

rng = np.random.default_rng(0)
w, x = (rng.normal(size=(16, 16)).astype(np.float32) for _ in range(2))
step = sparse_opt.compile(TEXT, MARKS, options=["-O", "1"])
step.write("w", w)

# Of each of 8 blocks: 16 numbers in products with 16 tokens, forward and in the gradient.

# CHECK: flops 8192, of one block less 7168
flops = step.flops
blocks = step.blocks("w")
step.update_patterns(method="gmp", density=7 / 16)
print(f"flops {flops}, of one block less {step.flops}")
step.set_blocks("w", blocks.row_ptr, blocks.col_idx, blocks.slot)
step.write("w", w)


def changes(action, *arguments):
    """Refuses, and says whether the weight or its pattern is another one then."""
    weight, blocks = step.read("w"), step.blocks("w")
    refuse(action, *arguments)
    now = step.blocks("w")
    same = np.array_equal(weight, step.read("w")) and np.array_equal(blocks.col_idx, now.col_idx)
    print("unchanged" if same else "CHANGED")


# A state is taken whole, or not at all.

# CHECK: expected 'lr' of shape [], but got [3]
# CHECK-NEXT: unchanged
changes(step.load_state_dict, {"w": 2 * w, "lr": np.zeros(3, np.float32)})
# CHECK: expected 'x' of type float32, but got float64
# CHECK-NEXT: unchanged
changes(step.load_state_dict, {"w": 2 * w, "x": x.astype(np.float64)})
# CHECK: expected the name of an argument, but got 'v'
# CHECK-NEXT: unchanged
changes(step.load_state_dict, {"w": 2 * w, "v": w})

other = sparse_opt.compile(TEXT, MARKS, seed=1, options=["-O", "1"])
native = {**other.native_state(), "w.bsr.values": np.ones((7, 4, 4), np.float32)}
# CHECK: expected 'w.bsr.values' of shape [8, 4, 4], but got [7, 4, 4]
# CHECK-NEXT: unchanged
changes(step.load_native_state, native)
native = {**other.native_state(), "w.bsr.col_idx": np.full(8, 9)}
# CHECK: expected col_idx[0] of pattern 'w', in block row 0, to be in [0, 3], but got 9
# CHECK-NEXT: unchanged
changes(step.load_native_state, native)
# CHECK: expected row_ptr of 'w' of shape [5], but got [2]
# CHECK-NEXT: unchanged
changes(step.set_blocks, "w", np.array([0, 1]), np.array([0]))
# CHECK: expected slot of 'w' of shape [4], but got [1]
# CHECK-NEXT: unchanged
changes(step.set_blocks, "w", np.arange(5), np.arange(4), np.array([0]))
# CHECK: expected integers of 32 bits in row_ptr of 'w', but got float64
# CHECK-NEXT: unchanged
changes(step.set_blocks, "w", np.arange(5) + 0.5, np.arange(4))
# CHECK: expected integers of 32 bits in row_ptr of 'w', but got 4294967300
# CHECK-NEXT: unchanged
changes(step.set_blocks, "w", np.array([0, 1, 2, 3, 2**32 + 4]), np.arange(4))
# CHECK: expected integers of 32 bits in col_idx of 'w', but got float32
# CHECK-NEXT: unchanged
native = {**other.native_state(), "w.bsr.col_idx": np.zeros(8, np.float32)}
changes(step.load_native_state, native)

# Gradual pruning leaves floor(16 d + 1/2) blocks, and at least one.

# CHECK: left [3, 1, 1]
# CHECK-NEXT: expected density to be a number from 0 to 1, but got 2
left = []
for density in (2.5 / 16, 0.01, 0.0):
    step.update_patterns(method="gmp", density=density)
    left.append(len(step.blocks("w").slot))
    step.set_blocks("w", blocks.row_ptr, blocks.col_idx, blocks.slot)
print("left", left)
refuse(step.update_patterns, method="gmp", density=2)
step.write("w", w)

# A path that a step was loaded from may hold another one now.

# CHECK: losses of two steps 1.0, 2.0, of the first 1.0
steps = []
for text in (TEXT, TEXT.replace("arith.mulf %a, %a", "arith.addf %a, %a")):
    steps.append(sparse_opt.compile(text, library="kept.so", options=["-O", "1"]))
    steps[-1].write("w", np.eye(16, dtype=np.float32))
one = np.zeros((16, 16), np.float32)
one[0, 0] = 1
losses = [float(s(x=one, lr=0.0)) for s in (*steps, steps[0])]
print(f"losses of two steps {losses[0]}, {losses[1]}, of the first {losses[2]}")
os.remove("kept.so")

# A text of C ends at NUL: what lies behind it would be lost.

# CHECK: expected a path without NUL, but got 'a\x00b'
refuse(step.save, "a\0b")
# CHECK: expected a path without NUL, but got 'a\x00b'
refuse(step.load, "a\0b")
# CHECK: expected a path without NUL, but got 'a\x00b.so'
refuse(sparse_opt.Step, "a\0b.so")
# CHECK: expected metadata without NUL, but got 'a\x00b'
refuse(step.save, "checkpoint", "a\0b")
# CHECK: expected a device without NUL, but got 'cpu\x00b'
refuse(sparse_opt.compile, TEXT, device="cpu\0b")
# CHECK: files []
print("files", os.listdir())

# Entries that a mask hides would count.

# CHECK-COUNT-3: expected an array without a mask for 'x', but got a numpy.ma.MaskedArray: pass value.filled(0), or the mask beside it
masked = np.ma.masked_array(x, x > 0)
refuse(step, x=masked)
refuse(step.write, "x", masked)
refuse(step.load_state_dict, {"x": masked})
# CHECK: expected numbers to choose from, but got a numpy.ma.MaskedArray: pass numbers.filled(value)
refuse(sparse_opt.lowest, masked.ravel(), 3)

# A mark that is no text comes back as the compiler says it.

# CHECK: expected '{{.*}}' to match the bsr.name of a weight, but got no match in 1 names
refuse(sparse_opt.compile, TEXT, ["match=\udcff block=4x4"])

# While one thread is in a step, another is refused; it may come later.

# CHECK-COUNT-8: expected one thread at a time to use a step, but got a second before the first was done: let threads wait for each other, or give each a step of its own
# CHECK: then loss True, runs 2
run, inside, leave = step._session.run, threading.Event(), threading.Event()


def wait():
    inside.set()
    leave.wait()
    run()


step._session.run = wait
first = threading.Thread(target=lambda: step(x=x, lr=0.0))
first.start()
inside.wait()
sparsity = sparse_opt.Sparsity(other, sparse_opt.Group(every=1), steps=9)
sparsity._step = step
for action in (
    lambda: step(x=x, lr=0.0), lambda: step.read("w"), lambda: step.write("w", w),
    lambda: step.save("checkpoint"), step.update_patterns, step.state_dict, step.native_state,
    sparsity.update,
):  # fmt: skip
    refuse(action)
leave.set()
first.join()
step._session.run = run
print(f"then loss {step(x=x, lr=0.0) > 0}, runs {step.counters.steps}")

# A step that lives as long as the interpreter ends without a word, though modules may end before it.

# CHECK: ends 0 ''
SCRIPT = """
import sparse_opt
import sparse_opt._runtime
from text_step import TEXT
step = sparse_opt.compile(TEXT, ["match=^w$ block=4x4 density=0.5"], options=["-O", "1"])
values = step.arrays["w"]
vars(sparse_opt._runtime).update(dict.fromkeys(vars(sparse_opt._runtime)))
"""
done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
print("ends", done.returncode, repr(done.stderr))
