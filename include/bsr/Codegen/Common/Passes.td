// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels of every target are checked and lowered by.

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

def BSRFastMath : Pass<"bsr-fast-math"> {
  let summary = "Say what the compiler may do with floating-point numbers";
  let description = [{
    Compiled steps are deterministic: the same input gives the same bits, whatever
    the number of threads. Within that, the code generator may

    - fuse a product and a sum (`contract`): one rounding less;
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
    func.func @f(%x: f32, %y: f32) -> f32 {
      %0 = arith.divf %x, %y : f32
      %1 = arith.maximumf %0, %x : f32
      %2 = arith.mulf %1, %x : f32
      return %2 : f32
    }
    ```

    After:

    ```mlir
    func.func @f(%x: f32, %y: f32) -> f32 {
      %0 = arith.divf %x, %y fastmath<contract> : f32
      %1 = arith.maximumf %0, %x fastmath<nsz> : f32
      %2 = arith.mulf %1, %x fastmath<contract> : f32
      return %2 : f32
    }
    ```
  }];
}

#endif // BSR_CODEGEN_COMMON_PASSES
