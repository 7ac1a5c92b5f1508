// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiling of the dialect's operations: those that write each element of their
// result from one slice of one operand.

#include "bsr/Dialect/TilingInterfaceImpl.h"
#include "bsr/Dialect/Rows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/TilingInterface.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// How a tile of an operation's result follows from a slice of `operand`.
struct Slicing {
  OpOperand &operand;
  /// The dimension of the result that a tile keeps whole: what it holds comes
  /// from wherever the pattern or the indices say.
  int64_t whole;
  /// For each other dimension of the result, that of the operand.
  SmallVector<int64_t> operandDims;
};
} // namespace

/// y[t, c] = sum_r x[t, r] W[r, c]: whole features, any tokens.
static Slicing getSlicing(SpMMOp op) {
  return {
      op.getXMutable(), static_cast<int64_t>(op.getFeatureDim()),
      llvm::to_vector(llvm::seq<int64_t>(0, op.getX().getType().getRank()))};
}

/// rows[indices[t], f] += updates[t, f]: whole columns, any features.
static Slicing getSlicing(ScatterAddOp op) {
  return {op.getUpdatesMutable(),
          /*whole=*/0,
          {-1, static_cast<int64_t>(op.getFeatureDim())}};
}

/// rows[t, f] = W[indices[t], f]: whole features, any tokens.
static Slicing getSlicing(GatherRowsOp op) {
  int64_t featureDim = op.getFeatureDim();
  SmallVector<int64_t> dims;
  for (int64_t dim : llvm::seq(op.getRows().getType().getRank()))
    dims.push_back(dim - (dim > featureDim));
  return {op.getIndicesMutable(), featureDim, dims};
}

namespace {
/// An operation whose loops are the dimensions of its result.
template <typename OpTy>
struct TilingModel : TilingInterface::ExternalModel<TilingModel<OpTy>, OpTy> {
  static ArrayRef<int64_t> getShape(Operation *op) {
    return cast<RankedTensorType>(op->getResult(0).getType()).getShape();
  }

  SmallVector<utils::IteratorType> getLoopIteratorTypes(Operation *op) const {
    return SmallVector<utils::IteratorType>(getShape(op).size(),
                                            utils::IteratorType::parallel);
  }

  SmallVector<Range> getIterationDomain(Operation *op, OpBuilder &b) const {
    return llvm::map_to_vector(getShape(op), [&](int64_t extent) {
      return Range{b.getIndexAttr(0), b.getIndexAttr(extent),
                   b.getIndexAttr(1)};
    });
  }

  FailureOr<TilingResult>
  getTiledImplementation(Operation *op, OpBuilder &b,
                         ArrayRef<OpFoldResult> offsets,
                         ArrayRef<OpFoldResult> sizes) const {
    Slicing slicing = getSlicing(cast<OpTy>(op));
    auto operandType = cast<RankedTensorType>(slicing.operand.get().getType());
    SmallVector<OpFoldResult> zeros(operandType.getRank(), b.getIndexAttr(0));
    SmallVector<OpFoldResult> ones(operandType.getRank(), b.getIndexAttr(1));
    SmallVector<OpFoldResult> sliceOffsets = zeros;
    SmallVector<OpFoldResult> sliceSizes =
        getAsIndexOpFoldResult(b.getContext(), operandType.getShape());
    SmallVector<int64_t> tile;
    for (auto [dim, extent] : llvm::enumerate(getShape(op))) {
      std::optional<int64_t> size = getConstantIntValue(sizes[dim]);
      if (!size)
        return op->emitOpError("expected a tile size that divides dimension ")
               << dim << " (" << extent
               << "), but got one that leaves a smaller tile";
      tile.push_back(*size);
      if (static_cast<int64_t>(dim) == slicing.whole) {
        if (*size != extent)
          return op->emitOpError("expected a tile with the whole of dimension ")
                 << dim << " (" << extent << "), but got " << *size;
        continue;
      }
      sliceOffsets[slicing.operandDims[dim]] = offsets[dim];
      sliceSizes[slicing.operandDims[dim]] = sizes[dim];
    }

    auto slice = tensor::ExtractSliceOp::create(
        b, op->getLoc(), slicing.operand.get(), sliceOffsets, sliceSizes, ones);
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    IRMapping mapping;
    Operation *tiled = b.clone(*op, mapping);
    tiled->setOperand(slicing.operand.getOperandNumber(), slice);
    tiled->getResult(0).setType(type.clone(tile));
    return TilingResult{{tiled}, {tiled->getResult(0)}, {slice}};
  }

  /// A tile of the loops is the tile of the result.
  LogicalResult getResultTilePosition(
      Operation *, OpBuilder &, unsigned, ArrayRef<OpFoldResult> offsets,
      ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
      SmallVector<OpFoldResult> &resultSizes) const {
    resultOffsets.assign(offsets.begin(), offsets.end());
    resultSizes.assign(sizes.begin(), sizes.end());
    return success();
  }
  LogicalResult getIterationDomainTileFromResultTile(
      Operation *, OpBuilder &, unsigned, ArrayRef<OpFoldResult> offsets,
      ArrayRef<OpFoldResult> sizes,
      SmallVectorImpl<OpFoldResult> &domainOffsets,
      SmallVectorImpl<OpFoldResult> &domainSizes) const {
    domainOffsets.assign(offsets.begin(), offsets.end());
    domainSizes.assign(sizes.begin(), sizes.end());
    return success();
  }
  FailureOr<TilingResult>
  generateResultTileValue(Operation *op, OpBuilder &b, unsigned,
                          ArrayRef<OpFoldResult> offsets,
                          ArrayRef<OpFoldResult> sizes) const {
    return getTiledImplementation(op, b, offsets, sizes);
  }
};
} // namespace

void bsr::registerTilingInterfaceExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    GatherRowsOp::attachInterface<TilingModel<GatherRowsOp>>(*context);
    ScatterAddOp::attachInterface<TilingModel<ScatterAddOp>>(*context);
    SpMMOp::attachInterface<TilingModel<SpMMOp>>(*context);
    context->loadDialect<tensor::TensorDialect>();
  });
}
