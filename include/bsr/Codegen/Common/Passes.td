// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clusters become kernels, whatever the target; kernels are checked.

#ifndef BSR_CODEGEN_COMMON_PASSES
#define BSR_CODEGEN_COMMON_PASSES

include "mlir/Pass/PassBase.td"

def BSRSetTarget : Pass<"bsr-set-target", "ModuleOp"> {
  let summary = "Say what a module is compiled for";
  let description = [{
    Sets the module's `bsr.target` to `target`, or, without one, to `#bsr.cpu` if the
    module has none. A module that has another target keeps it, and the pass fails.

    Before (`--bsr-set-target="target=#bsr.cpu<vector_bits=512,num_registers=32>"`):

    ```mlir
    module {
    }
    ```

    After:

    ```mlir
    module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32>} {
    }
    ```
  }];
  let options = [
    Option<"target", "target", "std::string", /*default=*/"",
           "The target, without spaces">,
  ];
  let dependentDialects = ["BSRDialect"];
}

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
    cut; `bsr-emit` makes their buffers and types so. The module's `bsr.target` says
    how many registers of which width there are. Results of kernels are cut
    that `bsr-layout` gave lanes (`bsr.lanes`), which the panel divides, and which
    only kernels read: arguments and results of the step stay as they are.

    Before:

    ```mlir
    !pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
    bsr.cluster private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32> -> tensor<32x64xf32>
      bsr.yield %y : tensor<32x64xf32>
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
    bsr.cluster private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x64xf32>)
        -> tensor<32x64xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes}
          : !pattern, tensor<3x16x16xf32>, tensor<32x64xf32> -> tensor<32x64xf32>
      bsr.yield %y : tensor<32x64xf32>
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
  let statistics = [
    Statistic<"numPanels", "num-panels", "Number of activations cut in panels">,
  ];
  let dependentDialects = ["BSRDialect"];
}

def BSREmit : Pass<"bsr-emit", "ModuleOp"> {
  let summary = "Turn clusters into kernels on buffers";
  let description = [{
    Each `bsr.cluster` that a `bsr.launch` calls becomes, by its plan, a function on buffers of the
    same name: one level of `scf.forall`
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

    Vectors and tiles are those of the module's `bsr.target`. Half of its first-level
    cache holds what a loop goes through again and again, three eighths of its
    second-level cache the rows of a dense product that a work item does.

    Before:

    ```mlir
    bsr.cluster private @double(%x: tensor<8xf32>) -> tensor<8xf32>
        attributes {plan = #bsr.plan<nests>} {
      %two = arith.constant dense<2.0> : tensor<8xf32>
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {
          indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
                           affine_map<(d0) -> (d0)>],
          iterator_types = ["parallel"]}
          ins(%x, %two : tensor<8xf32>, tensor<8xf32>) outs(%init : tensor<8xf32>)
          attrs = {bsr.root = #bsr.root<nest = 0>} {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      bsr.yield %y : tensor<8xf32>
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
  let statistics = [
    Statistic<"numKernels", "num-kernels", "Number of kernels emitted">,
  ];
  let dependentDialects = [
    "amx::AMXDialect", "arith::ArithDialect", "bufferization::BufferizationDialect",
    "BSRDialect", "linalg::LinalgDialect", "math::MathDialect",
    "memref::MemRefDialect", "scf::SCFDialect", "tensor::TensorDialect",
    "vector::VectorDialect", "x86vector::X86VectorDialect",
  ];
}

def BSRVerifyKernels : Pass<"bsr-verify-kernels", "ModuleOp"> {
  let summary = "Fail if a kernel allocates or its parallel loops or launches race";
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

    Of a `gpu.launch`, the iterations are the blocks. What the threads of one block do is like
    a loop inside: barriers put it in order, which is not checked here, and memory in the
    address space `workgroup` is the block's own. An instruction that is given the
    address of a buffer may read all of it; only stores write.

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

def BSRLowerCopies : Pass<"bsr-lower-copies", "func::FuncOp"> {
  let summary = "Turn copies between views into parallel loops";
  let description = [{
    A copy of contiguous memory becomes `memcpy`. Any other would become a call of
    a runtime library that walks the elements. This pass makes it a parallel loop
    over the longest contiguous parts (or, where the innermost dimension is
    strided, a linalg operation).

    Before:

    ```mlir
    func.func @f(%x: memref<4x4xf32, strided<[8, 1]>>, %y: memref<4x4xf32>) {
      memref.copy %x, %y : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
      return
    }
    ```

    After:

    ```mlir
    func.func @f(%x: memref<4x4xf32, strided<[8, 1]>>, %y: memref<4x4xf32>) {
      scf.forall (%i) in (4) {
        %from = memref.subview %x[%i, 0] [1, 4] [1, 1] : memref<4x4xf32, strided<[8, 1]>>
            to memref<1x4xf32, strided<[8, 1], offset: ?>>
        %to = memref.subview %y[%i, 0] [1, 4] [1, 1] : memref<4x4xf32>
            to memref<1x4xf32, strided<[4, 1], offset: ?>>
        memref.copy %from, %to : memref<1x4xf32, strided<[8, 1], offset: ?>>
            to memref<1x4xf32, strided<[4, 1], offset: ?>>
      }
      return
    }
    ```
  }];
  let dependentDialects = [
    "linalg::LinalgDialect", "memref::MemRefDialect", "scf::SCFDialect",
  ];
}

def BSRDefineIntegers : Pass<"bsr-define-integers"> {
  let summary = "Give every operation on integers a result";
  let description = [{
    LLVM leaves open what a float that no integer is near to becomes, what a shift by
    the width or more gives, and whether a program lives on that divides by zero: an
    index that comes of it could be anything. In a compiled step, as in XLA,

    - a float becomes the nearest number that the integer type has, NaN becomes 0;
    - `x / 0`, rounded to zero, up or down, has all bits set (-1), `x % 0` is `x`; the
      least number divided by -1 is itself, with nothing left;
    - a shift by the width or more leaves 0, or of a number with a sign the sign.

    Divisions and shifts by constants, and `index`, with which the compiler counts,
    stay as they are.

    Before:

    ```mlir
    func.func @f(%x: i32, %n: i32) -> i32 {
      %y = arith.shli %x, %n : i32
      return %y : i32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: i32, %n: i32) -> i32 {
      %last = arith.constant 31 : i32
      %far = arith.cmpi ugt, %n, %last : i32
      %near = arith.select %far, %last, %n : i32
      %shifted = arith.shli %x, %near : i32
      %zero = arith.constant 0 : i32
      %y = arith.select %far, %zero, %shifted : i32
      return %y : i32
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect"];
}

def BSRKeepRoundings : Pass<"bsr-keep-roundings"> {
  let summary = "Round what is computed of 16-bit floats as often as the program does";
  let description = [{
    Processors compute bf16 in f32, and upstream's passes that make it so let a rounding to
    bf16 and back fold away (`contract`). A value that two kernels compute, each where it
    reads it, would have other bits in each, and others than where it is stored: no entry
    would equal the maximum of all, and its gradient would be lost. So conversions are
    what they are. What one operation of a framework rounds once, `bsr-widen-bodies`
    computes in f32.

    Before:

    ```mlir
    func.func @f(%x: f32) -> f32 {
      %0 = arith.truncf %x fastmath<contract> : f32 to bf16
      %1 = arith.extf %0 fastmath<contract> : bf16 to f32
      return %1 : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: f32) -> f32 {
      %0 = arith.truncf %x : f32 to bf16
      %1 = arith.extf %0 : bf16 to f32
      return %1 : f32
    }
    ```
  }];
}

def BSRFastMath : Pass<"bsr-fast-math"> {
  let summary = "Say what the compiler may do with floating-point numbers";
  let description = [{
    Compiled steps are deterministic: the same input gives the same bits, whatever
    the number of threads. Within that, the code generator may

    - fuse a product and the sum that a loop adds it to (`contract`): one rounding less.
      Not other products and sums: a value that several kernels compute, each where it
      reads it, has to have the same bits in all of them. Else no entry equals the maximum
      of all, its gradient is lost, and `x - max(x)` is not 0. What kernels of products and
      polynomials fuse, they say themselves;
    - take either zero as the maximum of -0 and +0 (`nsz` on maxima and minima);
    - sum the lanes of a vector in the order that suits it (`reassoc` on
      reductions): an order fixed at compile time.

    It may not assume that there are no NaN or infinite values: a loss that becomes
    NaN is seen as NaN. Nor may it divide by multiplying with a reciprocal (`arcp`):
    where the divisor is subnormal or zero the reciprocal is infinite, and the product
    with a zero is NaN where the quotient is not. x86's estimates of `1 / sqrt(x)` do
    so at 0, at infinity and at subnormals.

    Before:

    ```mlir
    func.func @f(%x: memref<8xf32>, %y: f32, %zero: f32) -> f32 {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      %0 = scf.for %i = %c0 to %c8 step %c1 iter_args(%sum = %zero) -> f32 {
        %2 = memref.load %x[%i] : memref<8xf32>
        %3 = arith.mulf %2, %2 : f32
        %4 = arith.addf %sum, %3 : f32
        scf.yield %4 : f32
      }
      %1 = arith.maximumf %0, %y : f32
      return %1 : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: memref<8xf32>, %y: f32, %zero: f32) -> f32 {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      %0 = scf.for %i = %c0 to %c8 step %c1 iter_args(%sum = %zero) -> f32 {
        %2 = memref.load %x[%i] : memref<8xf32>
        %3 = arith.mulf %2, %2 fastmath<contract> : f32
        %4 = arith.addf %sum, %3 fastmath<contract> : f32
        scf.yield %4 : f32
      }
      %1 = arith.maximumf %0, %y fastmath<nsz> : f32
      return %1 : f32
    }
    ```
  }];
}

#endif // BSR_CODEGEN_COMMON_PASSES
