// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels compute, and what they compute where it is used.

#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

/// True if every map of `op` has dimensions and constants as results.
static bool hasSimpleMaps(linalg::GenericOp op) {
  return llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) {
    return map.getNumSymbols() == 0 &&
           llvm::all_of(map.getResults(), [](AffineExpr expr) {
             return isa<AffineDimExpr, AffineConstantExpr>(expr);
           });
  });
}

/// True if `value`, a scalar outside of all bodies, can be computed in a
/// kernel.
static bool isSimpleScalar(Value value) {
  Operation *op = value.getDefiningOp();
  return op && (isa<arith::ConstantOp>(op) ||
                (isa<tensor::ExtractOp>(op) && op->getNumOperands() == 1));
}

/// True if the body of `op` can be turned into vectors operation by operation.
static bool hasSimpleBody(linalg::GenericOp op) {
  auto isSimple = [&](Value value) {
    return isa<TensorType>(value.getType()) ||
           value.getParentBlock() == op.getBody() || isSimpleScalar(value);
  };
  if (!llvm::all_of(op->getOperands(), isSimple))
    return false;
  return llvm::all_of(*op.getBody(), [&](Operation &inner) {
    if (!llvm::all_of(inner.getOperands(), isSimple))
      return false;
    if (isa<linalg::YieldOp>(inner))
      return true;
    if (inner.getNumRegions() || inner.getNumResults() != 1)
      return false;
    if (isa<linalg::IndexOp, tensor::ExtractOp, arith::ConstantOp>(inner))
      return true;
    return OpTrait::hasElementwiseMappableTraits(&inner) &&
           isMemoryEffectFree(&inner);
  });
}

/// True if the offsets of `op` are constants but along dimensions of which it
/// takes one entry.
static bool hasSimpleOffsets(tensor::ExtractSliceOp op) {
  return llvm::all_of(
      llvm::zip_equal(op.getStaticOffsets(), op.getStaticSizes()), [](auto it) {
        auto [offset, size] = it;
        return !ShapedType::isDynamic(offset) || size == 1;
      });
}

bool bsr::isInlinable(Operation *op) {
  // First what is cheap: the end of a step has as many operands as it results.
  if (!isa<linalg::GenericOp, arith::ConstantOp, tensor::ExtractSliceOp,
           tensor::ExtractOp, linalg::FillOp, tensor::EmptyOp,
           tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
    return false;
  auto isStatic = [](Value v) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    return !type || type.hasStaticShape();
  };
  if (!llvm::all_of(op->getOperands(), isStatic) ||
      !llvm::all_of(op->getResults(), isStatic))
    return false;
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return generic.hasPureTensorSemantics() && hasSimpleMaps(generic) &&
           hasSimpleBody(generic);
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto elements = dyn_cast<SplatElementsAttr>(constant.getValue());
    return elements || !isa<ShapedType>(constant.getType());
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return slice.hasUnitStride() && hasSimpleOffsets(slice) &&
           slice.getSourceType().getRank() == slice.getType().getRank();
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return extract.getIndices().empty();
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return isSimpleScalar(fill.getInputs()[0]);
  return true;
}

bool bsr::canCompute(Operation *op) {
  if (isa<linalg::GenericOp>(op))
    return isInlinable(op);
  if (isa<tensor::ConcatOp>(op))
    return llvm::all_of(op->getOperandTypes(), [](Type type) {
      auto piece = cast<RankedTensorType>(type);
      return piece.hasStaticShape() && piece.getNumElements();
    });
  return isa<KernelOpInterface>(op);
}

bool bsr::isPointwise(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() == 0;
}

SmallVector<std::optional<unsigned>> bsr::getResultLoops(linalg::GenericOp op) {
  AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs()];
  return llvm::map_to_vector(map.getResults(), [](AffineExpr expr) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    return dim ? std::optional<unsigned>(dim.getPosition()) : std::nullopt;
  });
}

bool bsr::isOnePointwiseNest(Operation *a, Operation *b) {
  if (!isPointwise(a) || !isPointwise(b))
    return false;
  auto x = cast<linalg::GenericOp>(a), y = cast<linalg::GenericOp>(b);
  auto shape = [](linalg::GenericOp op) {
    return cast<RankedTensorType>(op.getResult(0).getType()).getShape();
  };
  auto isOneMap = [](linalg::GenericOp op) {
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    return llvm::all_equal(ArrayRef(maps).drop_front(op.getNumDpsInputs()));
  };
  return shape(x) == shape(y) && isOneMap(x) && isOneMap(y) &&
         llvm::none_of(getResultLoops(x), [](auto l) { return !l; }) &&
         llvm::none_of(getResultLoops(y), [](auto l) { return !l; });
}

linalg::GenericOp bsr::getPieceProducer(Value piece) {
  // Through what merges dimensions, but for the last, which may be cut.
  while (auto collapse = piece.getDefiningOp<tensor::CollapseShapeOp>()) {
    auto groups = collapse.getReassociationIndices();
    if (!piece.hasOneUse() || groups.empty() || groups.back().size() != 1)
      return nullptr;
    piece = collapse.getSrc();
  }
  auto producer = piece.getDefiningOp<linalg::GenericOp>();
  return piece.hasOneUse() && producer && producer->getNumResults() == 1
             ? producer
             : nullptr;
}

Operation *bsr::getCombiner(linalg::GenericOp op, unsigned result) {
  SmallVector<Operation *> combiners;
  if (!matchReduction(op.getRegionOutputArgs(), result, combiners) ||
      combiners.size() != 1)
    return nullptr;
  return linalg::getCombinerOpKind(combiners.front()) ? combiners.front()
                                                      : nullptr;
}

bool bsr::isSum(linalg::GenericOp op) {
  return llvm::all_of(llvm::seq(op->getNumResults()), [&](unsigned result) {
    return isa_and_nonnull<arith::AddFOp>(getCombiner(op, result));
  });
}
