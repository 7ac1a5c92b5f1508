# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Marks as objects, as dictionaries and as texts are one; what is none is refused by its name.

# RUN: %numpy_python -u %s | FileCheck %s --implicit-check-not=accepted

import pathlib

import numpy as np

import sparse_opt
from refusals import refuse
from sparse_opt import Mark
from text_step import TEXT

# Three forms of one mark.
first = Mark("w$", block=4, density=0.25)
for other in (
    Mark(match="w$", block=(4, 4), density=np.float64(0.25)),
    Mark("w$", block="4x4", density=0.25),
    Mark.of({"match": "w$", "block": [4, 4], "density": 0.25}),
    Mark.of("match=w$ block=4x4 density=0.25"),
    Mark.of("  density=2.5e-1   match={w$} block='4x4' "),
    Mark.of(str(first)),
    eval(repr(first)),
):
    assert other == first and hash(other) == hash(first), other
assert first != Mark("w$", block=8, density=0.25) and first != "w$"
assert Mark("w") == Mark("w", block=16, density=0.1) and Mark.of(first) is first

# What is in no other.
# CHECK: match=a block=8x4 density=0.5 dims=stack,row,col mask=m attention-mask=true
# CHECK-NEXT: Mark('a', block=(8, 4), density=0.5, dims=('stack', 'row', 'col'), mask='m', attention_mask=True)
every = Mark("a", block=(8, 4), density=0.5, dims="stack,row,col", mask="m", attention_mask=True)
print(every, repr(every), sep="\n")
assert Mark.of(str(every)) == every == Mark.of(str(every).replace("=true", ""))
assert Mark.of({**vars(every), "attention-mask": 1}) == every
# CHECK-NEXT: attention=. block=64x64 window=3 global=1 random=0 seed=7
# CHECK-NEXT: Mark(attention='.', block=64, window=3, global_=1, random=0, seed=7)
seen = Mark(attention=".", global_=1, seed=7)
print(seen, repr(seen), sep="\n")
assert Mark.of(str(seen)) == seen == Mark.of({"attention": ".", "global": 1, "seed": 7})
# CHECK-NEXT: match='a b' pattern=here/w.json
print(spaced := Mark("a b", pattern=pathlib.Path("here/w.json")))
assert Mark.of(str(spaced)) == spaced and Mark.of(str(Mark("it's a"))) == Mark("it's a")
assert spaced.block is None and spaced.density is None

# CHECK-NEXT: expected a key of a mark, but got 'macth': the nearest is 'match'
refuse(Mark.of, {"macth": "w"})
# CHECK-NEXT: expected a key of a mark, but got 'blok': the nearest is 'block'
refuse(Mark.of, "match=w blok=4x4")
# CHECK-NEXT: expected a key of a mark, but got 'globl': the nearest is 'global'
refuse(Mark.of, "attention=. globl=4")
# CHECK-NEXT: expected a key of a mark, but got 5: there are match, attention, block
refuse(Mark.of, {5: "w"})
# CHECK-NEXT: expected a key of a mark, but got 'w$': there are match,
refuse(Mark.of, "w$")
# CHECK-NEXT: expected a mark, or a text or a dictionary of its keys, as 'match=weight$ block=16x16', but got 5
refuse(Mark.of, 5)
# CHECK-NEXT: expected match or attention in a mark, but got neither
refuse(Mark, block=4)
# CHECK-NEXT: expected match or attention in a mark, but got both
refuse(Mark, "w", attention=".")
# CHECK-NEXT: expected match to be a regular expression, but got ''
refuse(Mark, "")
# CHECK-NEXT: expected match to be a regular expression, but got 5
refuse(Mark, 5)
# CHECK-NEXT: expected match to be a regular expression, but got 'w\x00'
refuse(Mark, "w\0")
# CHECK-NEXT: expected mask to be a regular expression, but got '[a': unterminated character set at position 0
refuse(Mark, "w", mask="[a")
# CHECK-NEXT: expected attention to be a regular expression without spaces, but got 'a b'
refuse(Mark, attention="a b")
# CHECK-COUNT-6: expected block to be an integer from 1, two (rows and columns), or a text like 16 or 16x8, but got {{0$|..16., 8.|.16x.|.0x4.|True|4.0}}
for block in (0, ("16", 8), "16x", "0x4", True, 4.0):
    refuse(Mark, "w", block=block)
# CHECK-COUNT-4: expected a density above 0, at most 1, but got {{0$|2|nan|'a tenth'}}
for density in (0, 2, float("nan"), "a tenth"):
    refuse(Mark, "w", density=density)
# CHECK-NEXT: expected a density above 0, at most 1, but got 'much'
refuse(Mark.of, "match=w density=much")
# CHECK-COUNT-4: expected dims of stack, row or col for each dimension, in this order, with a row and a col, but got
for dims in ("stack", "col,row", ["row", "depth", "col"], 5):
    refuse(Mark, "w", dims=dims)
# CHECK-NEXT: expected pattern to be the path of a file, but got 5
refuse(Mark, "w", pattern=5)
# CHECK-NEXT: expected no density beside a pattern file, but got 0.5
refuse(Mark, "w", pattern="w.json", density=0.5)
# CHECK-NEXT: expected attention_mask to be True or False, but got 'maybe'
refuse(Mark.of, "match=w attention-mask=maybe")
# CHECK-NEXT: expected window to be an integer from 0, but got -1
refuse(Mark, attention=".", window=-1)
# CHECK-NEXT: expected global to be an integer from 0, but got 'one'
refuse(Mark.of, "attention=. global=one")
# CHECK-NEXT: expected no window in a mark of weights, but got 3
refuse(Mark, "w", window=3)
# CHECK-NEXT: expected no density in a mark of attention, but got 0.5
refuse(Mark, attention=".", density=0.5)

# Where the expressions of POSIX are others than those of Python.
assert Mark("^[[:alpha:]_]+[[:digit:]]$").matches("layer_1") and not Mark("[[:digit:]]").matches("w")


# One step of each form, without a list and in one.
def run(*marks):
    step = sparse_opt.compile(TEXT, *marks, options=["-O", "0"], pattern="random", seed=3)
    step.arrays["w"][...] = np.arange(step.arrays["w"].size).reshape(step.arrays["w"].shape)
    losses = [float(step(x=np.eye(16, dtype=np.float32), lr=0.125)) for _ in range(2)]
    return losses, list(step.patterns), step.arrays["w"].shape


want = run([str(first)])
assert want == run(first) == run([first]) == run(vars(first)) == run([{"match": "w$", "block": 4, "density": 0.25}])
# CHECK-NEXT: ['w'] (4, 4, 4)
print(*want[1:])
