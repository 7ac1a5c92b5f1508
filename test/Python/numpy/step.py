# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A step that came as text runs on NumPy arrays, with patterns and checkpoints.

# RUN: rm -rf %t && mkdir -p %t/none/bin %t/old/bin %t/old/lib
# RUN: touch %t/none/bin/sparse-compile %t/old/bin/sparse-compile
# RUN: chmod +x %t/none/bin/sparse-compile %t/old/bin/sparse-compile
# RUN: echo 'unsigned bsr_runtime_version(void) { return 0; }' > %t/old.c
# RUN: %build_library -o %t/old/lib/libbsr_runtime.so.1 %t/old.c
# RUN: %numpy_python -u %s %t.bsr %t/none %t/old | FileCheck %s

import copy
import os
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np

import sparse_opt
from refusals import refuse
from text_step import TEXT

MARKS = ["match=^w$ block=4x4 density=0.5"]

rng = np.random.default_rng(0)
w = rng.normal(size=(16, 16)).astype(np.float32)
x = rng.normal(size=(16, 16)).astype(np.float32)
step = sparse_opt.compile(TEXT, MARKS, seed=3, options=["-O", "1"])

# CHECK: products {'spmm': 1, 'spmm_transposed': 0, 'sddmm': 1, 'dense': 0, 'left_dense': 0}
print("products", step.products)

# The step computes what w * mask does.

# CHECK: 8 blocks stored, step equal True, loss equal True
step.write("w", w)
blocks = step.blocks("w")
mask = np.zeros((4, 4), np.float32)
mask[blocks.rows, blocks.col_idx] = 1
mask = np.kron(mask, np.ones((4, 4), np.float32))
masked = w * mask
loss = step(x=x, lr=0.01)
want = masked - 0.01 * mask * (x.T @ (x @ masked))
print(
    f"{len(blocks.slot)} blocks stored, step equal"
    f" {np.allclose(step.read('w'), want, atol=1e-5)}, loss equal"
    f" {np.isclose(loss, np.square(x @ masked).sum(), rtol=1e-5)}"
)

# Arrays look into the step's memory, and outlive the step object.

# CHECK: arrays (8, 4, 4), same memory True
values = step.arrays["w"]
values[:] = 1
print(f"arrays {values.shape}, same memory {np.array_equal(step.read('w'), mask)}")
step.write("w", w)

# An update moves blocks without compiling or allocating.

# CHECK: pruned 4 of 8, allocations 2, recompilations 0, changed True
before = step.blocks("w")
pruned = step.update_patterns(0.5)
after = step.blocks("w")
changed = not np.array_equal(before.col_idx, after.col_idx)
counters = step.counters
print(
    f"pruned {pruned} of {len(after.slot)}, allocations {counters.allocations},"
    f" recompilations {counters.recompilations}, changed {changed}"
)

# Checkpoints and native states repeat a run bit for bit.

# CHECK: checkpoint equal True, metadata epoch 3
step.save(sys.argv[1], "epoch 3")
want = [step(x=x, lr=0.01) for _ in range(3)], step.read("w")
again = sparse_opt.compile(TEXT, MARKS, options=["-O", "1"])
metadata = again.load(sys.argv[1])
got = [again(x=x, lr=0.01) for _ in range(3)], again.read("w")
equal = want[0] == got[0] and np.array_equal(want[1], got[1])
print(f"checkpoint equal {equal}, metadata {metadata}")

# Other code is said to be other code; other steps are no recompilation of this one.

# CHECK: warns of other code: level 0, was 1; loss near True; recompilations 0
other = sparse_opt.compile(TEXT, MARKS, options=["-O", "0"])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    again.load(sys.argv[1])
    other.load(sys.argv[1])
(warning,) = caught
said = re.search(r"another compilation \((.*)\): the run goes on from it", str(warning.message))
print(
    "warns of", said and said[1] + ";",
    "loss near", str(np.isclose(other(x=x, lr=0.01), want[0][0], rtol=1e-5)) + ";",
    "recompilations", step.counters.recompilations,
)

# CHECK: <sparse_opt.Step 'step': 3 arrays, 1 patterns with 8 of 16 blocks stored, 2 runs>
print(other)

# CHECK-COUNT-2: expected something that can be copied or pickled, but got a compiled step: step.save(path) writes what it has learned, and another step of the same export loads it
refuse(pickle.dumps, step)
refuse(copy.deepcopy, step)

# CHECK: native ['w.bsr.col_idx', 'w.bsr.row_ptr', 'w.bsr.values'] equal True
native = step.native_state()
again.update_patterns(1.0)
again.load_native_state(native)
print("native", sorted(native), "equal", np.array_equal(again.read("w"), step.read("w")))

# Blocks of the caller's choice; a state by name.

# CHECK: diagonal True state True
again.set_blocks("w", np.arange(5), np.arange(4))
again.load_state_dict({"w": w})
diagonal = np.kron(np.eye(4, dtype=np.float32), np.ones((4, 4), np.float32))
print(
    "diagonal", np.array_equal(again.read("w"), w * diagonal),
    "state", np.array_equal(again.state_dict()["w"], w * diagonal),
)

# CHECK: expected 'x' of shape [16, 16], but got [8, 16]: a compiled step has one shape, export the step again for another
refuse(step, x=x[:8])

# CHECK: expected 'x' of type float32, but got float64
refuse(step, x=x.astype(np.float64))

# CHECK: expected a NumPy array for 'w', but got a torch.Tensor: pass tensor.detach().numpy()
tensor = type("Tensor", (), {"__module__": "torch", "shape": (16, 16), "dtype": "torch.float32"})
refuse(step.write, "w", tensor())

# CHECK: expected the name of an argument, but got 'z'; the step has lr, w, x
refuse(step, x=x, z=x)

# CHECK: expected an array for 'x', but got none
refuse(sparse_opt.compile(TEXT, options=["-O", "1"]))

# CHECK: expected one mapping from names to arrays, but got 2 arguments
refuse(step, x, x)

# CHECK: expected the name of a weight in blocks, but got 'x'; the step has w
refuse(step.blocks, "x")

# CHECK: expected 'w' of shape [16, 16], but got [4, 4]
refuse(step.write, "w", w[:4, :4])

# CHECK: pattern 'w'
refuse(step.set_blocks, "w", np.arange(5), np.full(4, 9))

# CHECK: expected 'w.bsr.row_ptr' and '.col_idx' in the state, but got neither
refuse(step.load_native_state, {})

# CHECK: expected a program with objects of its own, but got text: use state_dict()
refuse(step.store)

# CHECK: expected one of static, set, rigl, gmp, but got 'best'
refuse(step.update_patterns, method="best")

# CHECK: expected a density for the method gmp and for no other, but got None for gmp
refuse(step.update_patterns, method="gmp")

# CHECK: gmp leaves 4
step.update_patterns(method="gmp", density=0.25)
print("gmp leaves", len(step.blocks("w").slot))

# CHECK: expected a pattern that is random, largest or mask, but got 'best'
refuse(sparse_opt.compile, TEXT, pattern="best", options=["-O", "1"])

# CHECK: expected an export that has values for its weights, but got none for 'w': use pattern='random'
refuse(sparse_opt.compile, TEXT, MARKS, pattern="largest", options=["-O", "1"])

# CHECK: expected 'v$' to match the bsr.name of a weight, but got no match in 1 names
refuse(sparse_opt.compile, TEXT, ["match=v$"])

# CHECK: argument "w": expected matrix 16x16 to be a multiple of block 5x4: pad it or choose another block at train.py:7{{$}}
placed = TEXT.rstrip() + ' loc("train.py":7:3)'
refuse(sparse_opt.compile, placed, ["match=w$ block=5x4"])

# CHECK: expected a list of marks, but got 5
refuse(sparse_opt.compile, TEXT, 5)

# CHECK: expected what sparse_opt.torch.export or sparse_opt.jax.export returned, but got a function
refuse(sparse_opt.compile, refuse)

# CHECK: expected seed to be an integer from 0, but got 'one'
refuse(sparse_opt.compile, TEXT, seed="one")

# CHECK: expected device 'cpu', 'cuda' or 'cuda:' and a number, but got 'gpu'
# CHECK: expected a device that is a string, but got 0
refuse(sparse_opt.compile, TEXT, device="gpu")
refuse(sparse_opt.compile, TEXT, device=0)

# CHECK: expected no seed, for the step has no argument of that role, but got 1
refuse(step, x=x, seed=1)

# CHECK: expected sparse-compile in this package or on PATH, but got none: install the wheel that carries the compiler, or build it and add build/dev/bin to PATH
path, os.environ["PATH"] = os.environ["PATH"], "/nowhere"
refuse(sparse_opt.compile, TEXT)

# A process of its own meets another runtime, or none.
# CHECK: expected libbsr_runtime.so.1 beside sparse-compile or on the library path, but got '{{.*}}'
# CHECK: expected a runtime of version 1 or later, but got 0: build it again
LOAD = """
import sparse_opt
try:
    sparse_opt.Step("step.so")
except sparse_opt.StepError as error:
    print(error)
"""
for folder in sys.argv[2:]:
    environment = {**os.environ, "PATH": os.path.join(folder, "bin")}
    subprocess.run([sys.executable, "-c", LOAD], env=environment, check=True)
    sys.stdout.flush()
