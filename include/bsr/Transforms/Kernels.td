// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clusters become kernels on buffers.

#ifndef BSR_TRANSFORMS_KERNELS
#define BSR_TRANSFORMS_KERNELS

include "mlir/Pass/PassBase.td"

def BSRPanel : Pass<"bsr-panel", "ModuleOp"> {
  let summary = "Choose the activations whose buffers are cut in panels";
  let description = [{
    A product reads a few lanes of many rows of an activation `[..., rows, lanes]`.
    Cut in panels, `[..., lanes / panel, rows, panel]`, what a register tile reads
    is one run of memory: no conflicts in the caches, few pages, and a panel stays
    in the second-level cache while all blocks of a weight stream over it. A panel
    is as wide as the register tile (16 lanes with 16 registers of 256 bits, 64
    with 32 of 512). Kernels compute positions from the tensor's own indices, so
    nothing else changes and nothing is repacked between layers.

    The attribute `bsr.panels` of a launch lists those of its operands that are
    cut; `bsr-emit` makes their buffers and types so. Results of kernels are cut
    that `bsr-layout` gave lanes (`bsr.lanes`), which the panel divides, and which
    only kernels read: arguments and results of the step stay as they are.

    Before:

    ```mlir
    !pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
    func.func private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32> -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    func.func @step(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %init = tensor.empty() : tensor<32x64xf32>
      %h = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) -> tensor<32x64xf32>
      %y = bsr.launch @product ins(%p, %w, %h : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    ```

    After:

    ```mlir
    !pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
    func.func private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32> -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    func.func @step(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %init = tensor.empty() : tensor<32x64xf32>
      %h = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) {bsr.panels = array<i64: 3>} -> tensor<32x64xf32>
      %y = bsr.launch @product ins(%p, %w, %h : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32>)
          outs(%init : tensor<32x64xf32>) {bsr.panels = array<i64: 2>} -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    }
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "Width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "Number of vector registers">,
  ];
  let statistics = [
    Statistic<"numPanels", "num-panels", "Number of activations cut in panels">,
  ];
}

def BSREmit : Pass<"bsr-emit", "ModuleOp"> {
  let summary = "Turn clusters into kernels on buffers";
  let description = [{
    Each function that a `bsr.launch` calls, a cluster of tensor operations,
    becomes a function on buffers of the same name: one level of `scf.forall`
    over independent work items, loops, and vectors in them. Accumulators stay in
    registers (`iter_args`), element-wise operations are computed where they are
    used, transposes, broadcasts and slices are index arithmetic. A chain's work item
    has the lanes of a register tile and goes through the rows in a loop a stage:
    sums that do not need each other, and what they are sums of, share a loop; of
    sums over all tokens it leaves its part in scratch memory. Forward products and
    input gradients gather over one view of the pattern and write disjointly, the
    weight gradient writes each block once, a sum over tokens is taken in a fixed
    order: no atomics, the same bits for any number of threads. A concatenation is a
    nest for each piece, which writes to a view of the whole. Patterns become the
    index arrays that the kernel walks.

    Before:

    ```mlir
    func.func private @double(%x: tensor<8xf32>) -> tensor<8xf32> {
      %two = arith.constant dense<2.0> : tensor<8xf32>
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {
          indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
                           affine_map<(d0) -> (d0)>],
          iterator_types = ["parallel"]}
          ins(%x, %two : tensor<8xf32>, tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = bsr.launch @double ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>)
          -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    func.func private @double(%x: memref<8xf32>, %y: memref<8xf32>) {
      %c0 = arith.constant 0 : index
      %0 = vector.load %x[%c0] : memref<8xf32>, vector<8xf32>
      %two = arith.constant 2.0 : f32
      %1 = vector.broadcast %two : f32 to vector<8xf32>
      %2 = arith.mulf %0, %1 : vector<8xf32>
      vector.store %2, %y[%c0] : memref<8xf32>, vector<8xf32>
      return
    }
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = bsr.launch @double ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) in_place = [0]
          -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "Width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "Number of vector registers">,
    Option<"l1Bytes", "l1-bytes", "int64_t", /*default=*/"32768",
           "Size of the first-level cache of a core: half of it holds what a loop "
           "sweeps again and again">,
    Option<"l2Bytes", "l2-bytes", "int64_t", /*default=*/"524288",
           "Size of the second-level cache of a core: three eighths of it hold the "
           "rows of a dense product that a work item reads again and again">,
  ];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "Number of kernels emitted">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bufferization::BufferizationDialect",
    "linalg::LinalgDialect", "math::MathDialect",
    "memref::MemRefDialect", "scf::SCFDialect", "tensor::TensorDialect",
    "vector::VectorDialect",
  ];
}

def BSRVerifyKernels : Pass<"bsr-verify-kernels", "ModuleOp"> {
  let summary = "Fail if a kernel allocates or its parallel loops race";
  let description = [{
    The contract of kernels. A kernel allocates nothing but stack of a size that is
    known at compile time. No two iterations of a `scf.forall` touch an element that
    one of them writes: of each buffer that the loop writes, the indices of all its
    loads and stores together tell which iteration they belong to.

    An index tells iterations apart if it is a sum of multiples of induction
    variables, plus less than the smallest of these multiples (the constant range of
    inner loops and lanes), and each multiple is larger than all smaller ones
    together: like the digits of a number. The quotient and the rest of a division are
    such digits, too, where they are two indices: a panel and a lane in it. What holds for
    a buffer holds for a view of it, if different indices of the view are different
    elements and the loop touches the buffer in no other way. Positions and slots of
    blocks tell the lines of a pattern apart: in a loop from `ptr[i]` to `ptr[i + 1]`, the
    position `k` belongs to line `i`, and `slot[k]` is the slot of no other block.
    So does a loop from `f(i)` to `f(i + 1)`, where the same operations compute both
    from nothing but pointers: the lines of one part of a balanced division.

    What is assumed: the invariants of a pattern, which the runtime checks where one
    enters; that such an `f` does not decrease; that buffers which are different
    arguments do not overlap, but for inputs in `in_place`, of which an iteration
    reads no element that another one writes.

    Before, and after:

    ```mlir
    func.func private @double(%x: memref<8x64xf32>, %y: memref<8x64xf32>) {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c64 = arith.constant 64 : index
      scf.forall (%i) in (8) {
        scf.for %j = %c0 to %c64 step %c16 {
          %0 = vector.load %x[%i, %j] : memref<8x64xf32>, vector<16xf32>
          %1 = arith.addf %0, %0 : vector<16xf32>
          vector.store %1, %y[%i, %j] : memref<8x64xf32>, vector<16xf32>
        }
      }
      return
    }
    func.func @step(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
      %init = tensor.empty() : tensor<8x64xf32>
      %y = bsr.launch @double ins(%x : tensor<8x64xf32>) outs(%init : tensor<8x64xf32>)
          -> tensor<8x64xf32>
      return %y : tensor<8x64xf32>
    }
    ```

    ```mlir
    func.func private @double(%x: memref<8x64xf32>, %y: memref<8x64xf32>) {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c64 = arith.constant 64 : index
      scf.forall (%i) in (8) {
        scf.for %j = %c0 to %c64 step %c16 {
          %0 = vector.load %x[%i, %j] : memref<8x64xf32>, vector<16xf32>
          %1 = arith.addf %0, %0 : vector<16xf32>
          vector.store %1, %y[%i, %j] : memref<8x64xf32>, vector<16xf32>
        }
      }
      return
    }
    func.func @step(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
      %init = tensor.empty() : tensor<8x64xf32>
      %y = bsr.launch @double ins(%x : tensor<8x64xf32>) outs(%init : tensor<8x64xf32>)
          -> tensor<8x64xf32>
      return %y : tensor<8x64xf32>
    }
    ```
  }];
}

#endif // BSR_TRANSFORMS_KERNELS
