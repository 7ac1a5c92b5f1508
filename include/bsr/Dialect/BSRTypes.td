// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pattern type, the mark attribute and the type constraints of the operations.

#ifndef BSR_DIALECT_BSRTYPES
#define BSR_DIALECT_BSRTYPES

include "bsr/Dialect/BSRDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def BSR_PatternType : TypeDef<BSR_Dialect, "Pattern"> {
  let mnemonic = "pattern";
  let summary = "Which blocks of a matrix are stored";
  let description = [{
    The pattern of a `rows x cols` matrix cut in blocks of `blockRows x
    blockCols`, of which at most `slots` are stored. Which ones is run-time data.

    Example:

    ```mlir
    // 16 x 16 blocks, of which at most 922 (a tenth) are stored.
    !bsr.pattern<768x3072, block = 16x16, slots = 922>
    ```
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$cols, "int64_t":$blockRows,
                        "int64_t":$blockCols, "int64_t":$slots);
  let assemblyFormat = [{
    `<` custom<Extents>($rows, $cols) `,` `block` `=`
    custom<Extents>($blockRows, $blockCols) `,` `slots` `=` $slots `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The number of block rows and of block columns.
    int64_t getGridRows() const { return getRows() / getBlockRows(); }
    int64_t getGridCols() const { return getCols() / getBlockCols(); }
    /// The number of lines of `view`.
    int64_t getNumLines(View view) const {
      return view == View::Rows ? getGridRows() : getGridCols();
    }
    /// The extent of a block across the lines of `view`: its rows for block rows.
    int64_t getBlockExtent(View view) const {
      return view == View::Rows ? getBlockRows() : getBlockCols();
    }
    /// The types of the index arrays of `view`, tensors of i32: a pointer a line and
    /// one more, positions, and slots.
    std::array<RankedTensorType, 3> getIndexTypes(View view) const;

    /// The type of the dense matrix.
    RankedTensorType getDenseType(Type elementType, bool transpose = false) const;
    /// The type of the stored blocks: `slots x blockRows x blockCols`.
    RankedTensorType getValuesType(Type elementType) const;
  }];
}

def BSR_MarkDim : I32EnumAttr<"MarkDim", "what a dimension of a marked argument is", [
  I32EnumAttrCase<"Stack", 0, "stack">,
  I32EnumAttrCase<"Row", 1, "row">,
  I32EnumAttrCase<"Col", 2, "col">,
]> {
  let cppNamespace = "::mlir::bsr";
}

def BSR_MarkAttr : AttrDef<BSR_Dialect, "Mark"> {
  let mnemonic = "mark";
  let summary = "The block shape and the density or pattern chosen for an argument";
  let description = [{
    Set by `bsr-mark` on an argument of a step and consumed by `bsr-bind`.
    `weight` names the argument whose pattern this one shares: itself for a
    weight, the weight for an optimizer moment. The density is in (0, 1]: the
    share of the matrix's blocks that are stored. Which ones is run-time data,
    unless the mark has the row view of a static pattern (`bsr.constant_pattern`).

    `dims` says what the dimensions of an argument are that is no matrix: first
    those that matrices are stacked along, then those that its matrices have as
    rows, then those that they have as columns. Each matrix has a pattern of its
    own (`bsr-unstack`); several dimensions of rows or columns count as one, the
    product of them.

    Example:

    ```mlir
    #bsr.mark<block = 16x16, density = 1.000000e-01, weight = "params.w">
    ```

    ```mlir
    #bsr.mark<block = 16x16, density = 1.000000e-01, dims = [stack, row, col, col],
              weight = "params.layers">
    ```

    ```mlir
    #bsr.mark<block = 16x16, density = 5.000000e-01, row_ptr = [0, 1, 2], col_idx = [1, 0],
              weight = "params.v">
    ```
  }];
  let parameters = (ins "int64_t":$blockRows, "int64_t":$blockCols,
                        "FloatAttr":$density,
                        OptionalArrayRefParameter<"MarkDim">:$dims,
                        OptionalArrayRefParameter<"int32_t">:$rowPtr,
                        OptionalArrayRefParameter<"int32_t">:$colIdx,
                        "StringAttr":$weight);
  let assemblyFormat = [{
    `<` `block` `=` custom<Extents>($blockRows, $blockCols) `,`
    `density` `=` custom<Density>($density) `,`
    (`dims` `=` `[` $dims^ `]` `,`)?
    (`row_ptr` `=` `[` $rowPtr^ `]` `,` `col_idx` `=` `[` $colIdx `]` `,`)?
    `weight` `=` $weight `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// True if the pattern never changes.
    bool isStatic() const { return !getRowPtr().empty(); }

    /// Checks that an argument of type `type` can be marked: it is a float tensor
    /// of static shape that `dims` fit, the block divides its matrices, and a
    /// static pattern is one of them.
    LogicalResult verifyFits(function_ref<InFlightDiagnostic()> emitError,
                             Type type) const;

    /// The number of dimensions that are `dim`; of a matrix, none is `stack`.
    int64_t getNumDims(MarkDim dim) const;

    /// The type of one matrix of a marked argument of type `type`.
    RankedTensorType getMatrixType(RankedTensorType type) const;

    /// This mark with other `dims`, those of a matrix if empty, for the weight
    /// `weight`.
    MarkAttr withDims(ArrayRef<MarkDim> dims, StringAttr weight) const;

    /// The pattern of one matrix of an argument of type `type`. A static pattern
    /// has a slot for each of its blocks; else, of all blocks, `density` are
    /// slots, rounded to the nearest number and at least one.
    PatternType getPatternType(RankedTensorType type) const;
  }];
}

def BSR_MaskAttr : AttrDef<BSR_Dialect, "Mask"> {
  let mnemonic = "mask";
  let summary = "The weight whose pattern an argument repeats as zeros and ones";
  let description = [{
    Set by `bsr-mark` on an argument that masks a weight or its gradient, and
    consumed by `bsr-bind`, which puts the pattern in its place. With `transpose`
    the mask lies as the transposed weight.

    Example:

    ```mlir
    #bsr.mask<weight = "params.w">
    ```

    ```mlir
    #bsr.mask<weight = "params.w", transpose = true>
    ```
  }];
  let parameters = (ins "StringAttr":$weight,
                        DefaultValuedParameter<"bool", "false">:$transpose);
  let assemblyFormat = [{
    `<` `weight` `=` $weight (`,` `transpose` `=` $transpose^)? `>`
  }];
}

def BSR_Pattern
    : Type<CPred<"::llvm::isa<::mlir::bsr::PatternType>($_self)">,
           "block-sparse pattern", "::mlir::bsr::PatternType">;
def BSR_Element : AnyTypeOf<[F16, BF16, F32, F64]>;
def BSR_Matrix : Type<And<[2DTensorOf<[AnyType]>.predicate, HasStaticShapePred]>,
                      "matrix of static shape", "::mlir::RankedTensorType">;
def BSR_Values : Type<And<[3DTensorOf<[AnyType]>.predicate, HasStaticShapePred]>,
                      "stored blocks (slots x rows x columns)",
                      "::mlir::RankedTensorType">;
def BSR_BatchedValues
    : Type<And<[RankedTensorOf<[AnyType]>.predicate, HasStaticShapePred,
                CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() >= 3">]>,
           "stored blocks (batch... x slots x rows x columns)", "::mlir::RankedTensorType">;
def BSR_BatchedVector
    : Type<And<[RankedTensorOf<[AnyType]>.predicate, HasStaticShapePred,
                CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() >= 1">]>,
           "vectors of static shape (batch... x entries)", "::mlir::RankedTensorType">;
def BSR_BatchedFloatVector
    : Type<And<[RankedTensorOf<[F16, BF16, F32, F64]>.predicate, HasStaticShapePred,
                CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() >= 1">]>,
           "float vectors of static shape (batch... x entries)", "::mlir::RankedTensorType">;
def BSR_Vector : Type<And<[1DTensorOf<[AnyType]>.predicate, HasStaticShapePred]>,
                      "vector of static shape", "::mlir::RankedTensorType">;
def BSR_FloatVector
    : Type<And<[1DTensorOf<[F16, BF16, F32, F64]>.predicate, HasStaticShapePred]>,
           "float vector of static shape", "::mlir::RankedTensorType">;
def BSR_Activations
    : Type<And<[RankedTensorOf<[F16, BF16, F32, F64]>.predicate, HasStaticShapePred]>,
           "float tensor of static shape", "::mlir::RankedTensorType">;
def BSR_StaticTensor : Type<And<[AnyRankedTensor.predicate, HasStaticShapePred]>,
                            "tensor of static shape", "::mlir::RankedTensorType">;

def BSR_Scores : Type<And<[2DTensorOf<[F32]>.predicate, HasStaticShapePred]>,
                      "f32 matrix of static shape", "::mlir::RankedTensorType">;

def BSR_Norm : I32EnumAttr<"Norm", "norm of a block", [
  I32EnumAttrCase<"L1", 0, "l1">,
  I32EnumAttrCase<"L2", 1, "l2">,
  I32EnumAttrCase<"LInf", 2, "linf">,
]> {
  let cppNamespace = "::mlir::bsr";
}

def BSR_IndexArray : AnyTypeOf<[1DTensorOf<[I32]>, MemRefRankOf<[I32], [1]>]>;
def BSR_LaunchInput : AnyTypeOf<[BSR_StaticTensor, BSR_Pattern, Index]>;

#endif // BSR_DIALECT_BSRTYPES
