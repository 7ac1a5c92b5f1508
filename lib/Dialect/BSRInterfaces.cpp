// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the operations answer to passes, in .td order.

#include "bsr/Dialect/BSR.h"

using namespace mlir;
using namespace mlir::bsr;

#include "bsr/Dialect/BSRAttrInterfaces.cpp.inc"
#include "bsr/Dialect/BSROpInterfaces.cpp.inc"

/// The operations of a product of all slots of `pattern` with `activations`, of
/// which it reads or makes `features`.
static int64_t countFlops(PatternType pattern, Value activations,
                          int64_t features) {
  int64_t tokens =
      cast<ShapedType>(activations.getType()).getNumElements() / features;
  return 2 * tokens * pattern.getSlots() * pattern.getBlockRows() *
         pattern.getBlockCols();
}

std::optional<View> LiveOp::getLineView() { return View::Rows; }

std::optional<View> NumAbsentOp::getLineView() { return View::Rows; }

std::optional<View> ToDenseOp::getLineView() { return getView(getTranspose()); }

std::optional<View> SampleOp::getLineView() { return View::Rows; }

StringRef SampleVecOp::getWorkKind() { return "gather"; }
std::optional<View> SampleVecOp::getLineView() { return View::Rows; }

StringRef ReduceVecOp::getWorkKind() { return "reduction"; }
std::optional<View> ReduceVecOp::getLineView() {
  return getView(getDim() == 1);
}

StringRef SpMMOp::getWorkKind() {
  return getTranspose() ? "spmm_transposed" : "spmm";
}
int64_t SpMMOp::getFlops() {
  PatternType pattern = getPattern().getType();
  return countFlops(pattern, getX(),
                    getTranspose() ? pattern.getCols() : pattern.getRows());
}
std::optional<View> SpMMOp::getLineView() { return getView(!getTranspose()); }
SmallVector<OpOperand *, 2> SpMMOp::getReadActivations() {
  if (getNumBatchDims())
    return {};
  return {&getXMutable()};
}
Value SpMMOp::getMadeActivations() {
  return getNumBatchDims() ? Value() : getY();
}

StringRef SDDMMOp::getWorkKind() { return "sddmm"; }
int64_t SDDMMOp::getFlops() {
  PatternType pattern = getPattern().getType();
  return countFlops(pattern, getA(), pattern.getRows());
}
std::optional<View> SDDMMOp::getLineView() { return View::Rows; }
SmallVector<OpOperand *, 2> SDDMMOp::getReadActivations() {
  if (getNumBatchDims())
    return {};
  return {&getAMutable(), &getBMutable()};
}

StringRef BlockScoresOp::getWorkKind() { return "block_scores"; }
int64_t BlockScoresOp::getFlops() {
  return 2 * getA().getType().getDimSize(getFeatureDim()) *
         getB().getType().getNumElements();
}
SmallVector<OpOperand *, 2> BlockScoresOp::getReadActivations() {
  return {&getAMutable(), &getBMutable()};
}

StringRef ScatterAddOp::getWorkKind() { return "scatter"; }
SmallVector<OpOperand *, 2> ScatterAddOp::getReadActivations() {
  return {&getUpdatesMutable()};
}
bool ScatterAddOp::keepsTokenOrder() { return true; }
