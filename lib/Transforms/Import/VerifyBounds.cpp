// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that operations of a step stay within their tensors.

#include "VerifyBounds.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;

/// Checks that `op` takes of dimension `dim`, of `extent` entries, `size`
/// entries from `offset` on, every `stride`-th. What is computed at run time
/// counts as what would be in range, if anything is.
static LogicalResult verifyRange(Operation *op, int64_t dim, int64_t extent,
                                 OpFoldResult offset, int64_t size = 1,
                                 OpFoldResult stride = {}) {
  int64_t step = stride ? getConstantIntValue(stride).value_or(0) : 1;
  int64_t way, first, last;
  if (llvm::MulOverflow(size - 1, step, way))
    way = std::numeric_limits<int64_t>::max();
  first = getConstantIntValue(offset).value_or(std::max<int64_t>(-way, 0));
  if (llvm::AddOverflow(first, way, last))
    last = std::numeric_limits<int64_t>::max();
  auto [low, high] = std::minmax(first, last);
  if (low >= 0 && high < extent)
    return success();
  return emitError(op->getLoc(), "expected '")
         << op->getName() << "' to stay within dimension " << dim << " of "
         << extent << " entries, but got entries " << low << " to " << high;
}

/// Checks that the slice that `op` takes of, or puts into, `whole` is in it.
static LogicalResult verifySlice(OffsetSizeAndStrideOpInterface op,
                                 RankedTensorType whole) {
  for (auto [dim, extent, offset, size, stride] :
       llvm::enumerate(whole.getShape(), op.getMixedOffsets(),
                       op.getMixedSizes(), op.getMixedStrides()))
    if (failed(verifyRange(op, dim, extent, offset,
                           getConstantIntValue(size).value_or(1), stride)))
      return failure();
  return success();
}

/// Checks that the entry of a tensor of `type` at `indices` is in it.
static LogicalResult verifyEntry(Operation *op, RankedTensorType type,
                                 ValueRange indices) {
  for (auto [dim, extent, index] : llvm::enumerate(type.getShape(), indices))
    if (failed(verifyRange(op, dim, extent, OpFoldResult(index))))
      return failure();
  return success();
}

/// Checks that the vector that `op` reads or writes begins in its tensor, and
/// ends there where it says so.
static LogicalResult verifyTransfer(VectorTransferOpInterface op,
                                    RankedTensorType type) {
  if (failed(verifyEntry(op, type, op.getIndices())))
    return failure();
  ArrayRef<int64_t> sizes = op.getVectorType().getShape();
  for (auto [i, expr] : llvm::enumerate(op.getPermutationMap().getResults())) {
    auto dimExpr = dyn_cast<AffineDimExpr>(expr);
    if (!dimExpr || !op.isDimInBounds(i))
      continue;
    int64_t dim = dimExpr.getPosition();
    if (failed(verifyRange(op, dim, type.getDimSize(dim),
                           OpFoldResult(op.getIndices()[dim]), sizes[i])))
      return failure();
  }
  return success();
}

/// Checks that the paddings of `op` are known, and make what its type says.
static LogicalResult verifyPad(tensor::PadOp op) {
  for (auto [dim, extent, lowPad, highPad, result] :
       llvm::enumerate(op.getSourceType().getShape(), op.getMixedLowPad(),
                       op.getMixedHighPad(), op.getResultType().getShape())) {
    std::optional<int64_t> low = getConstantIntValue(lowPad);
    std::optional<int64_t> high = getConstantIntValue(highPad);
    if (!low || !high)
      return emitError(op.getLoc(), "expected paddings that are constants, "
                                    "but got a computed one of dimension ")
             << dim;
    if (extent + *low + *high != result)
      return emitError(op.getLoc(), "expected dimension ")
             << dim << " to have " << extent + *low + *high
             << " entries with its paddings, but got " << result;
  }
  return success();
}

LogicalResult bsr::verifyBounds(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([](tensor::PadOp op) { return verifyPad(op); })
      .Case([](tensor::ExtractSliceOp op) {
        return verifySlice(op, op.getSourceType());
      })
      .Case([](tensor::InsertSliceOp op) {
        return verifySlice(op, op.getDestType());
      })
      .Case([](tensor::ParallelInsertSliceOp op) {
        return verifySlice(op, op.getDestType());
      })
      .Case([](tensor::ExtractOp op) {
        return verifyEntry(op, op.getTensor().getType(), op.getIndices());
      })
      .Case([](tensor::InsertOp op) {
        return verifyEntry(op, op.getDest().getType(), op.getIndices());
      })
      .Case([](VectorTransferOpInterface op) -> LogicalResult {
        auto type = dyn_cast<RankedTensorType>(op.getShapedType());
        return type ? verifyTransfer(op, type) : success();
      })
      .Default(success());
}
