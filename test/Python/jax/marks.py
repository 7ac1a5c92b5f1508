# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Marks that an export is given are checked before it traces.

# RUN: %python %s | FileCheck %s --implicit-check-not=accepted

import jax
import jax.numpy as jnp

import sparse_opt
import sparse_opt.jax
from sparse_opt import Mark
from sparse_opt.jax import nn
from refusals import refuse

traces = 0


def step(state, x):
    global traces
    traces += 1
    loss = lambda p: jnp.mean((x @ p["up"] + p["bias"]) ** 2) + jnp.sum(p["layers"] ** 2)
    value, gradient = jax.value_and_grad(loss)(state["params"])
    return {"params": jax.tree.map(lambda w, g: w - 0.1 * g, state["params"], gradient)}, value


state = {"params": {"up": jnp.ones((16, 32)), "bias": jnp.ones(32), "layers": jnp.ones((3, 16, 16))}}
x = jnp.ones((4, 16))


def export(*marks, **options):
    return sparse_opt.jax.export(step, state, x, marks=marks, **options)


# CHECK: expected 'params.upp' to match the bsr.name of a weight, but got no match in 3 names: the nearest are 'state.params.up'
refuse(export, "match=params.upp")
# CHECK: argument "state.params.up": expected matrix 16x32 to be a multiple of block 64x64: pad it or choose another block
refuse(export, "match=params.up$ block=64x64")
# CHECK: expected 'params.layers$' to match matrices that blocks of 16x16 divide, but got 'state.params.layers' [3, 16, 16]
refuse(export, "match=params.layers$")
# CHECK: argument "state.params.layers": expected matrix 16x16 to be a multiple of block 32x32: pad it or choose another block
refuse(export, "match=params.layers$ dims=stack,row,col block=32x32")
# CHECK: expected weights to mark, but got a step without any: call a part of the state `params`
refuse(export, "match=up", roles={"": "state"})
# CHECK: traces 0
print("traces", traces)
# CHECK: ['state.params.layers.0', 'state.params.layers.1', 'state.params.layers.2', 'state.params.up']
exported = export("match=params.up$ block=8x8 density=1", "match=params.layers$ dims=stack,row,col density=1")
print(list(sparse_opt.compile(exported, pattern="largest", check=0).patterns))

# Marks of any form, and what they would make of the step: stacks are their matrices.
# CHECK: <sparse_opt.Export of JAX: 4 arguments, {{[0-9,]+}} characters of text (print shows it)
# CHECK-NEXT:   weights     3, of 1,312 parameters (export.weights lists them)
# CHECK-NEXT:   operations  {{[0-9]+$}}
# CHECK-NEXT:   marks       Mark('params.up$', block=8, density=0.5), Mark('params.layers$', block=16, density=0.1, dims=('stack', 'row', 'col'))>
exported = export(Mark("params.up$", block=8, density=0.5), {"match": "params.layers$", "dims": "stack,row,col"})
print(repr(exported))
# CHECK-NEXT: weight               shape        blocks          parameters  share of FLOPs
# CHECK-NEXT: state.params.bias    [32]         -                       32               -
# CHECK-NEXT: state.params.layers  [3, 16, 16]  -                      768               -
# CHECK-NEXT: state.params.up      [16, 32]     1, 2, 4, 8, 16         512          100.0%
print(exported.weights)
assert exported.weights[2].flops == 2 * 2 * 4 * 16 * 32  # forward, and the gradient
# CHECK-NEXT: 2 of 3 weights are sparse
# CHECK-NEXT: state.params.layers  [3, 16, 16]  16x16  3 of 3 blocks
# CHECK-NEXT: state.params.up      [16, 32]     8x8    4 of 8 blocks  1 spmm, 1 sddmm
# CHECK-NEXT: dense, no matrix: 'state.params.bias' [32]
print(sparse_opt.explain(exported))
# CHECK: expected a key of a mark, but got 'dim': the nearest is 'dims'
refuse(export, {"match": "params.layers$", "dim": "stack,row,col"})
# CHECK: expected an option of export, but got 'locals': the nearest is 'locations'
refuse(export, locals=False)
# CHECK: expected an option of random_pattern, but got 'densty': the nearest is 'density'
refuse(nn.random_pattern, jax.random.key(0), (16, 16), densty=0.1)
