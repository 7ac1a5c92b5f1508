// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations that look rows of a matrix up by index.

#include "bsr/Dialect/Rows.h"

using namespace mlir;
using namespace mlir::bsr;

/// `<rows>x<columns>`, two attributes.
static ParseResult parseBlockShape(OpAsmParser &parser, IntegerAttr &rows,
                                   IntegerAttr &cols) {
  SmallVector<int64_t> extents;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseDimensionList(extents, /*allowDynamic=*/false,
                                /*withTrailingX=*/false))
    return failure();
  if (extents.size() != 2)
    return parser.emitError(loc, "expected rows and columns of a block, but "
                                 "got ")
           << extents.size() << " numbers";
  rows = parser.getBuilder().getI64IntegerAttr(extents[0]);
  cols = parser.getBuilder().getI64IntegerAttr(extents[1]);
  return success();
}

static void printBlockShape(OpAsmPrinter &printer, Operation *,
                            IntegerAttr rows, IntegerAttr cols) {
  printer << rows.getInt() << 'x' << cols.getInt();
}

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRRows.cpp.inc"

/// Checks that `activations` have `features` features, and a token for each of
/// `indices`.
static LogicalResult verifyTokens(Operation *op, StringRef name,
                                  RankedTensorType activations,
                                  int64_t featureDim, int64_t features,
                                  RankedTensorType indices) {
  if (featureDim < 0 || featureDim >= activations.getRank())
    return op->emitOpError("expected feature_dim in 0 to ")
           << activations.getRank() - 1 << ", but got " << featureDim;
  if (activations.getDimSize(featureDim) != features)
    return op->emitOpError("expected dimension ")
           << featureDim << " of " << name << " to have " << features
           << " features, but got " << activations.getDimSize(featureDim);
  SmallVector<int64_t> tokens(activations.getShape());
  tokens.erase(tokens.begin() + featureDim);
  auto expected = RankedTensorType::get(tokens, indices.getElementType());
  if (indices != expected)
    return op->emitOpError("expected indices of type ")
           << expected << ", but got " << indices;
  return success();
}

/// Checks that `values` are the stored blocks of `pattern`, of the elements of
/// `activations`.
static LogicalResult verifyStored(Operation *op, PatternType pattern,
                                  RankedTensorType values,
                                  RankedTensorType activations) {
  auto expected = pattern.getValuesType(activations.getElementType());
  if (values != expected)
    return op->emitOpError("expected values of type ")
           << expected << ", but got " << values;
  return success();
}

//===----------------------------------------------------------------------===//
// GatherRowsOp
//===----------------------------------------------------------------------===//

LogicalResult GatherRowsOp::verify() {
  PatternType pattern = getPattern().getType();
  RankedTensorType rows = getRows().getType();
  if (failed(
          verifyTokens(*this, "rows", rows, getFeatureDim(),
                       getTranspose() ? pattern.getRows() : pattern.getCols(),
                       getIndices().getType())))
    return failure();
  return verifyStored(*this, pattern, getValues().getType(), rows);
}

StringRef GatherRowsOp::getWorkKind() { return "gather"; }
std::optional<View> GatherRowsOp::getLineView() {
  return getView(getTranspose());
}
SmallVector<OpOperand *, 2> GatherRowsOp::getReadActivations() { return {}; }
Value GatherRowsOp::getMadeActivations() { return getRows(); }
bool GatherRowsOp::keepsTokenOrder() { return true; }

//===----------------------------------------------------------------------===//
// ScatterRowsOp
//===----------------------------------------------------------------------===//

LogicalResult ScatterRowsOp::verify() {
  PatternType pattern = getPattern().getType();
  RankedTensorType updates = getUpdates().getType();
  if (failed(
          verifyTokens(*this, "updates", updates, getFeatureDim(),
                       getTranspose() ? pattern.getRows() : pattern.getCols(),
                       getIndices().getType())))
    return failure();
  return verifyStored(*this, pattern, getValues().getType(), updates);
}

StringRef ScatterRowsOp::getWorkKind() { return "scatter"; }
std::optional<View> ScatterRowsOp::getLineView() {
  return getView(getTranspose());
}
SmallVector<OpOperand *, 2> ScatterRowsOp::getReadActivations() {
  return {&getUpdatesMutable()};
}
bool ScatterRowsOp::keepsTokenOrder() { return true; }

//===----------------------------------------------------------------------===//
// ScoreRowsOp
//===----------------------------------------------------------------------===//

LogicalResult ScoreRowsOp::verify() {
  RankedTensorType scores = getScores().getType();
  int64_t rows = getBlockRows(), cols = getBlockCols();
  if (rows < 1 || cols < 1)
    return emitOpError("expected a block of 1x1 at least, but got ")
           << rows << "x" << cols;
  return verifyTokens(*this, "updates", getUpdates().getType(), getFeatureDim(),
                      getTranspose() ? scores.getDimSize(0) * rows
                                     : scores.getDimSize(1) * cols,
                      getIndices().getType());
}

StringRef ScoreRowsOp::getWorkKind() { return "block_scores"; }
SmallVector<OpOperand *, 2> ScoreRowsOp::getReadActivations() {
  return {&getUpdatesMutable()};
}
bool ScoreRowsOp::keepsTokenOrder() { return true; }
