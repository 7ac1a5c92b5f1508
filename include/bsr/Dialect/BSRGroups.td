// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of rows with the matrix of the group that each row is in.

#ifndef BSR_DIALECT_BSRGROUPS
#define BSR_DIALECT_BSRGROUPS

include "bsr/Dialect/BSROps.td"

def BSR_FloatMatrix
    : Type<And<[2DTensorOf<[F16, BF16, F32, F64]>.predicate, HasStaticShapePred]>,
           "float matrix of static shape", "::mlir::RankedTensorType">;
def BSR_FloatMatrices
    : Type<And<[3DTensorOf<[F16, BF16, F32, F64]>.predicate, HasStaticShapePred]>,
           "float matrices of static shape (groups x rows x columns)",
           "::mlir::RankedTensorType">;
def BSR_MatrixOfSums
    : Type<And<[2DTensorOf<[F32, F64]>.predicate, HasStaticShapePred]>,
           "matrix of f32 or f64 of static shape", "::mlir::RankedTensorType">;
def BSR_MatricesOfSums
    : Type<And<[3DTensorOf<[F32, F64]>.predicate, HasStaticShapePred]>,
           "matrices of f32 or f64 of static shape (groups x rows x columns)",
           "::mlir::RankedTensorType">;
def BSR_GroupNumbers
    : Type<And<[1DTensorOf<[I32, I64]>.predicate, HasStaticShapePred]>,
           "vector of i32 or i64 of static shape", "::mlir::RankedTensorType">;

def BSR_GroupedMatmulOp : BSR_Op<"grouped_matmul",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getFlops"]>]> {
  let summary = "Product of rows with the matrices of their groups";
  let description = [{
    `y[t, c] = sum_r x[t, r] w[groups[t], r, c]`, or with `transpose`
    `y[t, c] = sum_r x[t, r] w[groups[t], c, r]`: what the experts of a mixture make of the rows that
    were sent to them. Its gradient at `x` is the same operation on the gradient of `y`, with
    the other `transpose`; that at `w` is a `bsr.grouped_outer`.

    Groups are data. Any of them may have any number of rows, in any order: none, or all. A
    row whose group is no matrix of `w` is 0. Each row is multiplied with one matrix, and
    nothing has a capacity. Sums are taken in f32, or in f64 if an operand is f64, which is
    the element type of `y`. A sum does not depend on which other rows are in its group.

    Example:

    ```mlir
    %y = bsr.grouped_matmul %x, %w, %groups
        : tensor<256x32xf32>, tensor<8x32x64xf32>, tensor<256xi64> -> tensor<256x64xf32>
    %dx = bsr.grouped_matmul %dy, %w, %groups transpose
        : tensor<256x64xf32>, tensor<8x32x64xf32>, tensor<256xi64> -> tensor<256x32xf32>
    ```
  }];
  let arguments = (ins BSR_FloatMatrix:$x, BSR_FloatMatrices:$w,
                       BSR_GroupNumbers:$groups, UnitAttr:$transpose);
  let results = (outs BSR_MatrixOfSums:$y);
  let assemblyFormat = [{
    $x `,` $w `,` $groups (`transpose` $transpose^)? attr-dict
    `:` type($x) `,` type($w) `,` type($groups) `->` type($y)
  }];
  let hasVerifier = 1;
}

def BSR_GroupedOuterOp : BSR_Op<"grouped_outer",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getFlops"]>]> {
  let summary = "Sums of outer products of the rows of each group";
  let description = [{
    `w[g, r, c] = sum of a[t, r] b[t, c] over all t with groups[t] = g`: the gradient of
    `bsr.grouped_matmul` at its matrices, of its `x` and the gradient of its `y`, or of this gradient
    and `x` if it has `transpose`. A group without rows is 0, and a row whose group is no
    matrix of `w` adds nothing. Sums are taken in the order of the rows, in f32, or in f64 if
    an operand is f64, which is the element type of `w`.

    Example:

    ```mlir
    %dw = bsr.grouped_outer %x, %dy, %groups
        : tensor<256x32xf32>, tensor<256x64xf32>, tensor<256xi64> -> tensor<8x32x64xf32>
    ```
  }];
  let arguments = (ins BSR_FloatMatrix:$a, BSR_FloatMatrix:$b,
                       BSR_GroupNumbers:$groups);
  let results = (outs BSR_MatricesOfSums:$w);
  let assemblyFormat = [{
    $a `,` $b `,` $groups attr-dict
    `:` type($a) `,` type($b) `,` type($groups) `->` type($w)
  }];
  let hasVerifier = 1;
}

#endif // BSR_DIALECT_BSRGROUPS
