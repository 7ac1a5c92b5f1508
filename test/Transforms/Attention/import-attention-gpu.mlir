// RUN: sparse-opt %s --bsr-set-target="target=#bsr.gpu" --bsr-import-attention | FileCheck %s

// PyTorch's attention of bf16 has kernels on GPUs; taken apart, its queries, keys and values are widened first, and it has none.

!t = tensor<2x64x32xbf16>

// CHECK: %[[Y:.*]], %[[LSE:.*]] = bsr.attention(%arg0, %arg1, %arg2) mask %arg4
// CHECK: bsr.attention_grad(%arg0, %arg1, %arg2, %[[Y]], %[[LSE]], %arg3) mask %arg4
func.func @step(%q: !t {bsr.name = "q"}, %k: !t {bsr.name = "k"}, %v: !t {bsr.name = "v"}, %dy: !t {bsr.name = "dy"},
                %mask: tensor<64x64xi1> {bsr.name = "mask"})
    -> (!t {bsr.name = "y"}, !t {bsr.name = "dq"}, !t {bsr.name = "dk"}, !t {bsr.name = "dv"}) {
  %y = call @attend(%q, %k, %v, %mask) : (!t, !t, !t, tensor<64x64xi1>) -> !t
  %dq, %dk, %dv = call @attend_back(%q, %k, %v, %dy, %mask) : (!t, !t, !t, !t, tensor<64x64xi1>) -> (!t, !t, !t)
  return %y, %dq, %dk, %dv : !t, !t, !t, !t
}
func.func private @attend(!t, !t, !t, tensor<64x64xi1>) -> !t
    attributes {bsr.attention = {operands = ["q", "k", "v", "mask"], scale = 1.0}}
func.func private @attend_back(!t, !t, !t, !t, tensor<64x64xi1>) -> (!t, !t, !t)
    attributes {bsr.attention = {operands = ["q", "k", "v", "dy", "mask"], scale = 1.0}}
