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

/// How far from its first entry the last of `size` entries is, every
/// `stride`-th; of a stride that is no constant 0.
static int64_t getWay(int64_t size, OpFoldResult stride) {
  int64_t way;
  if (llvm::MulOverflow(size - 1, getConstantIntValue(stride).value_or(0), way))
    return std::numeric_limits<int64_t>::max();
  return way;
}

/// The offsets of the slice that `op` takes of, or puts into, `whole`.
static SmallVector<BoundedIndex> getOffsets(OffsetSizeAndStrideOpInterface op,
                                            RankedTensorType whole) {
  SmallVector<BoundedIndex> indices;
  OperandRange computed = op.getOffsets();
  unsigned operand = computed.empty() ? 0 : computed.getBeginOperandIndex();
  for (auto [dim, extent, offset, size, stride] :
       llvm::enumerate(whole.getShape(), op.getMixedOffsets(),
                       op.getMixedSizes(), op.getMixedStrides())) {
    int64_t way = getWay(getConstantIntValue(size).value_or(1), stride);
    indices.push_back({int64_t(dim), extent, way, offset, operand});
    operand += isa<Value>(offset);
  }
  return indices;
}

/// The indices of an entry of a tensor of `type`.
static SmallVector<BoundedIndex> getEntry(RankedTensorType type,
                                          OperandRange indices) {
  SmallVector<BoundedIndex> entry;
  for (auto [dim, extent, index] : llvm::enumerate(type.getShape(), indices))
    entry.push_back({int64_t(dim), extent, /*way=*/0, OpFoldResult(index),
                     unsigned(indices.getBeginOperandIndex() + dim)});
  return entry;
}

/// The indices of the vector that `op` reads or writes, which begins in its
/// tensor, and ends there where it says so.
static SmallVector<BoundedIndex> getEntry(VectorTransferOpInterface op,
                                          RankedTensorType type) {
  SmallVector<BoundedIndex> indices = getEntry(type, op.getIndices());
  ArrayRef<int64_t> sizes = op.getVectorType().getShape();
  for (auto [i, expr] : llvm::enumerate(op.getPermutationMap().getResults()))
    if (auto dim = dyn_cast<AffineDimExpr>(expr); dim && op.isDimInBounds(i))
      indices[dim.getPosition()].way = sizes[i] - 1;
  return indices;
}

SmallVector<BoundedIndex> bsr::getBoundedIndices(Operation *op) {
  using Indices = SmallVector<BoundedIndex>;
  return llvm::TypeSwitch<Operation *, Indices>(op)
      .Case([](tensor::ExtractSliceOp op) {
        return getOffsets(op, op.getSourceType());
      })
      .Case([](tensor::InsertSliceOp op) {
        return getOffsets(op, op.getDestType());
      })
      .Case([](tensor::ParallelInsertSliceOp op) {
        return getOffsets(op, op.getDestType());
      })
      .Case([](tensor::ExtractOp op) {
        return getEntry(op.getTensor().getType(), op.getIndices());
      })
      .Case([](tensor::InsertOp op) {
        return getEntry(op.getDest().getType(), op.getIndices());
      })
      .Case([](tensor::DimOp op) -> Indices {
        auto type = dyn_cast<RankedTensorType>(op.getSource().getType());
        if (!type)
          return {};
        return {{BoundedIndex::ofShape, type.getRank(), /*way=*/0,
                 OpFoldResult(op.getIndex()), 1}};
      })
      .Case([](VectorTransferOpInterface op) -> Indices {
        auto type = dyn_cast<RankedTensorType>(op.getShapedType());
        return type ? getEntry(op, type) : Indices();
      })
      .Default(Indices());
}

/// Checks what is known of `index` of `op`: what is computed at run time counts
/// as what would be in range, if anything is.
static LogicalResult verifyIndex(Operation *op, const BoundedIndex &index) {
  int64_t last, first = getConstantIntValue(index.index).value_or(index.low());
  if (llvm::AddOverflow(first, index.way, last))
    last = std::numeric_limits<int64_t>::max();
  auto [low, high] = std::minmax(first, last);
  if (low >= 0 && high < index.extent)
    return success();
  if (index.dim == BoundedIndex::ofShape)
    return emitError(op->getLoc(), "expected '")
           << op->getName() << "' of one of " << index.extent
           << " dimensions, but got dimension " << first;
  return emitError(op->getLoc(), "expected '")
         << op->getName() << "' to stay within dimension " << index.dim
         << " of " << index.extent << " entries, but got entries " << low
         << " to " << high;
}

/// Checks that the strides of `op` are known where they matter.
static LogicalResult verifyStrides(OffsetSizeAndStrideOpInterface op) {
  for (auto [dim, size, stride] :
       llvm::enumerate(op.getMixedSizes(), op.getMixedStrides()))
    if (getConstantIntValue(size) != 1 && !getConstantIntValue(stride))
      return emitError(op.getLoc(), "expected strides that are constants, but "
                                    "got a computed one of dimension ")
             << dim;
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
  if (auto pad = dyn_cast<tensor::PadOp>(op))
    return verifyPad(pad);
  // Nothing says of a vector of indices how large they are.
  if (isa<vector::GatherOp, vector::ScatterOp>(op))
    return emitError(op->getLoc(), "expected entries of a tensor to be read by "
                                   "'tensor.extract', but got '")
           << op->getName() << "'";
  if (auto slice = dyn_cast<OffsetSizeAndStrideOpInterface>(op))
    if (failed(verifyStrides(slice)))
      return failure();
  for (const BoundedIndex &index : getBoundedIndices(op))
    if (failed(verifyIndex(op, index)))
      return failure();
  return success();
}
