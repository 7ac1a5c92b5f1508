// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clusters become kernels of vectors, kernels parallel loops.

#ifndef BSR_CODEGEN_CPU_PASSES
#define BSR_CODEGEN_CPU_PASSES

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
    Each `bsr.cluster` that a `bsr.launch` calls becomes a function on buffers of the
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
    bsr.cluster private @double(%x: tensor<8xf32>) -> tensor<8xf32> {
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
    "arith::ArithDialect", "bufferization::BufferizationDialect",
    "BSRDialect", "linalg::LinalgDialect", "math::MathDialect",
    "memref::MemRefDialect", "scf::SCFDialect", "tensor::TensorDialect",
    "vector::VectorDialect",
  ];
}

def BSRApproximateMath : Pass<"bsr-approximate-math"> {
  let summary = "Compute mathematical functions by polynomials";
  let description = [{
    `exp`, `tanh`, `log`, `log2`, `log1p`, `expm1`, `erf`, `erfc`, `sin` and `cos` of f32
    run in vectors, 12 times (exp) to 46 times (tanh) as fast as calls of the C library,
    and are exact to 5 units in the last place for every f32, zeros, subnormals,
    infinities and NaN among them; f16 and bf16 go through f32. `exp`, `sin` and `cos`
    are this project's, the others upstream's polynomials, with subnormals scaled for the
    logarithms. `sin` and `cos` subtract the nearest multiple of pi / 2 in f64; a vector
    with a number beyond 2^22 calls the C library for it. `test/Integration/math.test`
    measures what is exact to how much.

    Everything else, and f64, is the C library's. There are two exceptions: a power with
    a small constant exponent is products or roots (so one half of -0 is -0, and of an
    infinity below zero NaN), and one with an integer that is a value is computed in f64.

    Before:

    ```mlir
    func.func @f(%x: f32) -> f32 {
      %y = math.rsqrt %x : f32
      return %y : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: f32) -> f32 {
      %one = arith.constant 1.0 : f32
      %root = math.sqrt %x : f32
      %y = arith.divf %one, %root : f32
      return %y : f32
    }
    ```
  }];
  let dependentDialects = [
    "arith::ArithDialect", "math::MathDialect", "scf::SCFDialect",
    "vector::VectorDialect",
  ];
}

def BSRExpandBF16 : Pass<"bsr-expand-bf16", "ModuleOp"> {
  let summary = "Make bf16 integers";
  let description = [{
    A bf16 is the upper half of an f32, rounded to nearest even. Few processors have
    instructions for the conversion and the C library of Debian 12 has no function;
    shifts and sums run in vectors everywhere. After the conversions nothing is left
    to do with a bf16 but to move it: it becomes an i16, for LLVM takes vectors of
    bf16 apart where it selects between two. From and to f64 it goes by way of f32,
    and is rounded once. Arithmetic on bf16 must have been emulated in f32 before
    (`arith-emulate-unsupported-floats`).

    Before:

    ```mlir
    func.func @f(%x: bf16) -> f32 {
      %y = arith.extf %x : bf16 to f32
      return %y : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: i16) -> f32 {
      %c16_i32 = arith.constant 16 : i32
      %wide = arith.extui %x : i16 to i32
      %shifted = arith.shli %wide, %c16_i32 : i32
      %y = arith.bitcast %shifted : i32 to f32
      return %y : f32
    }
    ```
  }];
  let dependentDialects = [
    "arith::ArithDialect", "math::MathDialect", "vector::VectorDialect",
  ];
}

def BSRHoistMemory : Pass<"bsr-hoist-memory"> {
  let summary = "Make memory of work items memory of threads";
  let description = [{
    Kernels pack operands into memory on the stack of a work item. Inside of a
    parallel region of OpenMP, each thread allocates that memory once, before its
    first work item: a work item does not read what another left there, and the
    scope around its body has nothing to free.

    Before:

    ```mlir
    func.func @f(%x: memref<8xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      omp.parallel {
        omp.wsloop {
          omp.loop_nest (%i) : index = (%c0) to (%c8) step (%c1) {
            memref.alloca_scope {
              %scratch = memref.alloca() : memref<1xf32>
              %0 = memref.load %x[%i] : memref<8xf32>
              memref.store %0, %scratch[%c0] : memref<1xf32>
            }
            omp.yield
          }
        }
        omp.terminator
      }
      return
    }
    ```

    After:

    ```mlir
    func.func @f(%x: memref<8xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      omp.parallel {
        %scratch = memref.alloca() : memref<1xf32>
        omp.wsloop {
          omp.loop_nest (%i) : index = (%c0) to (%c8) step (%c1) {
            memref.alloca_scope {
              %0 = memref.load %x[%i] : memref<8xf32>
              memref.store %0, %scratch[%c0] : memref<1xf32>
            }
            omp.yield
          }
        }
        omp.terminator
      }
      return
    }
    ```
  }];
  let statistics = [
    Statistic<"numHoisted", "num-hoisted", "Allocations moved to threads">,
  ];
}

#endif // BSR_CODEGEN_CPU_PASSES
