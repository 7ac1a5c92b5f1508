# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What an export has, and what marks would make of it.

# RUN: %numpy_python -u %s | FileCheck %s --implicit-check-not=accepted

import dataclasses
import gzip
import os
from pathlib import Path

import numpy as np

import sparse_opt
from refusals import refuse
from sparse_opt import Mark
from text_step import TEXT
from two_weights import text

# A step that came as text says what it has, by its aliases of types, too.
# CHECK: <sparse_opt.Export of text: 3 arguments, {{1,...}} characters of text (print shows it)
# CHECK-NEXT:   weights     1, of 256 parameters (export.weights lists them)
# CHECK-NEXT:   operations  13>
export = sparse_opt.Export(TEXT)
print(repr(export))
assert str(export) == TEXT and f"{export}" == TEXT
# CHECK-NEXT: weight  shape     blocks          parameters  share of FLOPs
# CHECK-NEXT: w       [16, 16]  1, 2, 4, 8, 16         256          100.0%
print(export.weights)
assert export.weights is export.weights

# Two weights of which one is marked: the numbers are those that their shapes say.
both = sparse_opt.Export(text(a=(16, 24), b=(16, 8), tokens=32))
a, b = both.weights
flops = {name: 2 * 2 * 32 * 16 * cols for name, cols in (("a", 24), ("b", 8))}  # forward, gradient
assert (a.name, a.shape, a.dtype, a.blocks, a.parameters) == ("a", (16, 24), "f32", (1, 2, 4, 8), 384)
assert (a.flops, b.flops) == (flops["a"], flops["b"]) and (a.share, b.share) == (0.75, 0.25)
explained = sparse_opt.explain(both, Mark("^a$", block=8, density=0.5))
assert [w.is_sparse for w in explained.weights] == [True, False]
assert explained.weights[0].mark == Mark("^a$", block=8, density=0.5)
assert (explained.weights[0].stored, explained.weights[0].blocks) == (3, 6)
assert explained.weights[0].products == {"spmm": 1, "sddmm": 1}
assert explained.weight_bytes == explained.state_bytes == (4 * 16 * 32, 4 * (3 * 64 + 16 * 8))
assert explained.weights[0].flops == (flops["a"], flops["a"] // 2)
assert explained.flops == (flops["a"] + flops["b"], flops["a"] // 2 + flops["b"])
compiled = sparse_opt.compile(both, Mark("^a$", block=8, density=0.5), options=["-O", "0"])
indices = [b for b in compiled._step.buffers if b.pattern == 0 and b.kind != "values"]
assert explained.pattern_bytes == sum(4 * int(np.prod(buffer.shape)) for buffer in indices)
assert explained.flops[1] == compiled.flops and explained.report == compiled.report
# CHECK-NEXT: 1 of 2 weights are sparse
# CHECK-NEXT:   a  [16, 24]  8x8  3 of 6 blocks  1 spmm, 1 sddmm
# CHECK-NEXT: dense, matched by no mark: 'b' [16, 8]
# CHECK-NEXT:                      dense  sparse
# CHECK-NEXT:   bytes of weights   2,048   1,280
# CHECK-NEXT:   bytes of state     2,048   1,280
# CHECK-NEXT:   bytes of patterns      0     {{...?$}}
# CHECK-NEXT:   FLOPs of products 65,536  40,960
print(explained)

# Names come as they are, and what stays dense with its reason.
odd = TEXT.replace('"w"', '"a \\22w\\C3\\BC\\22"')
weight = sparse_opt.explain(odd, Mark('"wü"$', block=8)).weights[0]
# CHECK-NEXT: a "wü" (8, 8) ()
print(weight.name, weight.block, weight.left_dense)
assert sparse_opt.Export(odd).weights[0].share == 1

# Attention as it is, and where a mark says which blocks of it are computed.
bert = gzip.decompress((Path(__file__).parents[3] / "examples" / "bert_tiny.mlir.gz").read_bytes()).decode()
# CHECK-NEXT: ('expected attention to at least 256 keys, but got 64: scores stay in memory',)
# CHECK-NEXT: imposed on attention.0 {{.*}}: 4 blocks of 16x16
print(sparse_opt.explain(bert, "match=layers.*_w$").notes)
imposed = sparse_opt.explain(bert, [Mark(attention=".", block=16, window=1), Mark("ffn1_w$")])
print(imposed.notes[0])
# CHECK-NEXT: 2 of {{[0-9]+}} weights are sparse
# CHECK:      note: imposed on attention.0
# CHECK-NEXT: note: imposed on attention.1
print(imposed)
# Of many only the first are shown.
# CHECK:      14 of 14 weights are sparse
# CHECK-COUNT-12: blocks  1 spmm, 1 spmm transposed, 1 sddmm
# CHECK-NEXT:   and 2 more (weights)
# CHECK-COUNT-12: note: {{[0-9]+}}
# CHECK-NEXT: and 8 more (left_dense of weights, and notes)
ffn = next(w for w in imposed.weights if w.is_sparse)
print(dataclasses.replace(imposed, weights=(ffn,) * 14, notes=tuple(map(str, range(20)))))
assert sum(w.is_sparse for w in imposed.weights) == 2

# Without a compiler weights are what they are.
os.environ["PATH"] = "/usr/bin:/bin"
# CHECK: None None (1, 2, 4, 8, 16)
alone = sparse_opt.Export(TEXT).weights[0]
print(alone.flops, alone.share, alone.blocks)
# CHECK-NEXT: expected sparse-compile in this package or on PATH, but got none
refuse(sparse_opt.explain, TEXT, "match=w$")
