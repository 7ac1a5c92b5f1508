// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the loops and vectors of kernels for processors become.

#ifndef BSR_CODEGEN_CPU_PASSES
#define BSR_CODEGEN_CPU_PASSES

include "mlir/Pass/PassBase.td"

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

def BSRExpandI1 : Pass<"bsr-expand-i1", "ModuleOp"> {
  let summary = "Store i1 as bytes";
  let description = [{
    In memory an i1 has a byte, but LLVM takes a vector of them for bits that lie side
    by side. So buffers of i1, and constants, become buffers of bytes, which are compared
    with 0 after a load. Kernels may load and store vectors of i1 then (`vector.load`,
    `vector.store`), which they would have to do bit by bit.

    Before:

    ```mlir
    func.func @f(%x: memref<16xi1>, %i: index) -> vector<8xi1> {
      %y = vector.load %x[%i] : memref<16xi1>, vector<8xi1>
      return %y : vector<8xi1>
    }
    ```

    After:

    ```mlir
    func.func @f(%x: memref<16xi8>, %i: index) -> vector<8xi1> {
      %bytes = vector.load %x[%i] : memref<16xi8>, vector<8xi8>
      %zero = arith.constant dense<0> : vector<8xi8>
      %y = arith.cmpi ne, %bytes, %zero : vector<8xi8>
      return %y : vector<8xi1>
    }
    ```
  }];
  let dependentDialects = ["arith::ArithDialect"];
}

def BSREmulateDots : Pass<"bsr-emulate-dots", "ModuleOp"> {
  let summary = "Replace products of pairs and of tiles of bf16 by plain vectors";
  let description = [{
    Kernels for `#bsr.cpu<bf16_dots = ...>` add up products of pairs of bf16 by
    `x86vector.avx512.dot`, an instruction that few processors have. Where the target says
    `emulated`, each becomes arithmetic on f32 of the same layout and the same roundings
    (Intel's Software Developer's Manual, VDPBF16PS): the products of the upper numbers
    of pairs are added first, then those of the lower ones, each sum is rounded to nearest
    even, and subnormal operands and results are zeros. So what surrounds the
    instruction, from packing to the last token, runs in tests on every machine.

    With `bf16_tiles = emulated`, a tile of `amx` becomes a vector of two dimensions, and
    what works on tiles loops over their rows, with the roundings of TDPBF16PS: the products
    of lower numbers of pairs have a sum, those of upper ones another, and both
    together are added to the tile.

    Before:

    ```mlir
    module attributes {bsr.target = #bsr.cpu<bf16_dots = emulated>} {
      func.func @f(%sum: vector<4xf32>, %a: vector<8xbf16>, %b: vector<8xbf16>) -> vector<4xf32> {
        %y = x86vector.avx512.dot %sum, %a, %b : vector<8xbf16> -> vector<4xf32>
        return %y : vector<4xf32>
      }
    }
    ```

    After, each `select` with the sign of a number that is subnormal:

    ```mlir
    module attributes {bsr.target = #bsr.cpu<bf16_dots = emulated>} {
      func.func @f(%sum: vector<4xf32>, %a: vector<8xbf16>, %b: vector<8xbf16>) -> vector<4xf32> {
        %0 = vector.bitcast %a : vector<8xbf16> to vector<4xi32>
        %1 = vector.bitcast %b : vector<8xbf16> to vector<4xi32>
        %cst = arith.constant dense<-65536> : vector<4xi32>
        %2 = arith.andi %0, %cst : vector<4xi32>
        %3 = vector.bitcast %2 : vector<4xi32> to vector<4xf32>
        %4 = vector.bitcast %3 : vector<4xf32> to vector<4xi32>
        %cst_0 = arith.constant dense<2139095040> : vector<4xi32>
        %5 = arith.andi %4, %cst_0 : vector<4xi32>
        %cst_1 = arith.constant dense<0> : vector<4xi32>
        %6 = arith.cmpi ne, %5, %cst_1 : vector<4xi32>
        %cst_2 = arith.constant dense<-2147483648> : vector<4xi32>
        %7 = arith.andi %4, %cst_2 : vector<4xi32>
        %8 = arith.select %6, %4, %7 : vector<4xi1>, vector<4xi32>
        %9 = vector.bitcast %8 : vector<4xi32> to vector<4xf32>
        %cst_3 = arith.constant dense<-65536> : vector<4xi32>
        %10 = arith.andi %1, %cst_3 : vector<4xi32>
        %11 = vector.bitcast %10 : vector<4xi32> to vector<4xf32>
        %12 = vector.bitcast %11 : vector<4xf32> to vector<4xi32>
        %cst_4 = arith.constant dense<2139095040> : vector<4xi32>
        %13 = arith.andi %12, %cst_4 : vector<4xi32>
        %cst_5 = arith.constant dense<0> : vector<4xi32>
        %14 = arith.cmpi ne, %13, %cst_5 : vector<4xi32>
        %cst_6 = arith.constant dense<-2147483648> : vector<4xi32>
        %15 = arith.andi %12, %cst_6 : vector<4xi32>
        %16 = arith.select %14, %12, %15 : vector<4xi1>, vector<4xi32>
        %17 = vector.bitcast %16 : vector<4xi32> to vector<4xf32>
        %18 = vector.bitcast %sum : vector<4xf32> to vector<4xi32>
        %cst_7 = arith.constant dense<2139095040> : vector<4xi32>
        %19 = arith.andi %18, %cst_7 : vector<4xi32>
        %cst_8 = arith.constant dense<0> : vector<4xi32>
        %20 = arith.cmpi ne, %19, %cst_8 : vector<4xi32>
        %cst_9 = arith.constant dense<-2147483648> : vector<4xi32>
        %21 = arith.andi %18, %cst_9 : vector<4xi32>
        %22 = arith.select %20, %18, %21 : vector<4xi1>, vector<4xi32>
        %23 = vector.bitcast %22 : vector<4xi32> to vector<4xf32>
        %24 = math.fma %9, %17, %23 : vector<4xf32>
        %25 = vector.bitcast %24 : vector<4xf32> to vector<4xi32>
        %cst_10 = arith.constant dense<2139095040> : vector<4xi32>
        %26 = arith.andi %25, %cst_10 : vector<4xi32>
        %cst_11 = arith.constant dense<0> : vector<4xi32>
        %27 = arith.cmpi ne, %26, %cst_11 : vector<4xi32>
        %cst_12 = arith.constant dense<-2147483648> : vector<4xi32>
        %28 = arith.andi %25, %cst_12 : vector<4xi32>
        %29 = arith.select %27, %25, %28 : vector<4xi1>, vector<4xi32>
        %30 = vector.bitcast %29 : vector<4xi32> to vector<4xf32>
        %cst_13 = arith.constant dense<16> : vector<4xi32>
        %31 = arith.shli %0, %cst_13 : vector<4xi32>
        %32 = vector.bitcast %31 : vector<4xi32> to vector<4xf32>
        %33 = vector.bitcast %32 : vector<4xf32> to vector<4xi32>
        %cst_14 = arith.constant dense<2139095040> : vector<4xi32>
        %34 = arith.andi %33, %cst_14 : vector<4xi32>
        %cst_15 = arith.constant dense<0> : vector<4xi32>
        %35 = arith.cmpi ne, %34, %cst_15 : vector<4xi32>
        %cst_16 = arith.constant dense<-2147483648> : vector<4xi32>
        %36 = arith.andi %33, %cst_16 : vector<4xi32>
        %37 = arith.select %35, %33, %36 : vector<4xi1>, vector<4xi32>
        %38 = vector.bitcast %37 : vector<4xi32> to vector<4xf32>
        %cst_17 = arith.constant dense<16> : vector<4xi32>
        %39 = arith.shli %1, %cst_17 : vector<4xi32>
        %40 = vector.bitcast %39 : vector<4xi32> to vector<4xf32>
        %41 = vector.bitcast %40 : vector<4xf32> to vector<4xi32>
        %cst_18 = arith.constant dense<2139095040> : vector<4xi32>
        %42 = arith.andi %41, %cst_18 : vector<4xi32>
        %cst_19 = arith.constant dense<0> : vector<4xi32>
        %43 = arith.cmpi ne, %42, %cst_19 : vector<4xi32>
        %cst_20 = arith.constant dense<-2147483648> : vector<4xi32>
        %44 = arith.andi %41, %cst_20 : vector<4xi32>
        %45 = arith.select %43, %41, %44 : vector<4xi1>, vector<4xi32>
        %46 = vector.bitcast %45 : vector<4xi32> to vector<4xf32>
        %47 = math.fma %38, %46, %30 : vector<4xf32>
        %48 = vector.bitcast %47 : vector<4xf32> to vector<4xi32>
        %cst_21 = arith.constant dense<2139095040> : vector<4xi32>
        %49 = arith.andi %48, %cst_21 : vector<4xi32>
        %cst_22 = arith.constant dense<0> : vector<4xi32>
        %50 = arith.cmpi ne, %49, %cst_22 : vector<4xi32>
        %cst_23 = arith.constant dense<-2147483648> : vector<4xi32>
        %51 = arith.andi %48, %cst_23 : vector<4xi32>
        %52 = arith.select %50, %48, %51 : vector<4xi1>, vector<4xi32>
        %53 = vector.bitcast %52 : vector<4xi32> to vector<4xf32>
        return %53 : vector<4xf32>
      }
    }
    ```
  }];
  let dependentDialects = [
    "BSRDialect", "arith::ArithDialect", "math::MathDialect", "memref::MemRefDialect",
    "scf::SCFDialect", "vector::VectorDialect",
  ];
}

def BSRExpandBF16 : Pass<"bsr-expand-bf16", "ModuleOp"> {
  let summary = "Convert bf16 by integer operations";
  let description = [{
    A bf16 is the upper half of an f32, rounded to nearest even. Few processors have
    instructions for the conversion and the C library of Debian 12 has no function;
    shifts and sums run in vectors everywhere. After the conversions nothing is left
    to do with a bf16 but to move it: it becomes an i16, for LLVM takes vectors of
    bf16 apart where it selects between two. From and to f64 it goes by way of f32,
    and is rounded once. Arithmetic on bf16 must have been emulated in f32 before
    (`arith-emulate-unsupported-floats`); `x86vector.avx512.dot` gets its operands back as bf16,
    and tiles are of bf16. For a target with `bf16_tiles = amx`, a rounding that says how it
    rounds (`to_nearest_even`) is of numbers of which none is subnormal: the processor's
    instruction rounds them.

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
    "arith::ArithDialect", "LLVM::LLVMDialect", "math::MathDialect",
    "vector::VectorDialect",
  ];
}

def BSRHoistMemory : Pass<"bsr-hoist-memory"> {
  let summary = "Hoist stack memory out of parallel loops";
  let description = [{
    Kernels pack operands into memory on the stack of a work item. Inside of a
    parallel region of OpenMP, each thread allocates that memory once, before its
    first work item: a work item does not read what another left there, and the
    scope around its body has nothing to free. Requires `convert-scf-to-openmp`.

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
