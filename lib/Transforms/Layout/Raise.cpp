// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns products with one-hot matrices into gathers and scatter-adds.

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/OneHot.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRRAISE
#include "bsr/Transforms/Layout/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The loops that are results of `map`, which has dimensions only.
static SmallVector<unsigned> getLoops(AffineMap map) {
  return llvm::map_to_vector(map.getResults(), [](AffineExpr expr) {
    return cast<AffineDimExpr>(expr).getPosition();
  });
}

/// The scatter-add of `updates` by `indices`; reshapes that only merge the
/// tokens are undone.
static Value createScatterAdd(OpBuilder &b, Location loc, RankedTensorType type,
                              Value indices, Value updates,
                              int64_t featureDim) {
  auto collapse = updates.getDefiningOp<tensor::CollapseShapeOp>();
  auto rank = cast<RankedTensorType>(updates.getType()).getRank();
  if (collapse && featureDim == rank - 1 &&
      collapse.getReassociationIndices().back().size() == 1) {
    SmallVector<ReassociationIndices> groups(
        collapse.getReassociationIndices());
    groups.pop_back();
    ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
    auto indexType = cast<RankedTensorType>(indices.getType());
    indices = tensor::ExpandShapeOp::create(
        b, loc,
        RankedTensorType::get(shape.drop_back(), indexType.getElementType()),
        indices, groups);
    updates = collapse.getSrc();
    featureDim = shape.size() - 1;
  }
  return ScatterAddOp::create(b, loc, type, indices, updates, featureDim);
}

/// The rows of `table` at `indices`, zero where there is none.
static Value createGather(OpBuilder &b, Location loc, RankedTensorType type,
                          Value indices, Value table, int64_t rowDim) {
  int64_t rank = type.getRank();
  Value init =
      tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  SmallVector<AffineMap> maps{
      b.getMultiDimIdentityMap(rank).getMajorSubMap(rank - 1),
      b.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> kinds(rank, utils::IteratorType::parallel);
  int64_t rows = cast<RankedTensorType>(table.getType()).getDimSize(rowDim);
  return linalg::GenericOp::create(
             b, loc, type, indices, init, maps, kinds,
             [&](OpBuilder &nested, Location loc, ValueRange args) {
               auto constant = [&](int64_t value) {
                 return arith::ConstantIndexOp::create(nested, loc, value);
               };
               Value row = arith::IndexCastOp::create(
                   nested, loc, nested.getIndexType(), args[0]);
               Value inside = arith::CmpIOp::create(
                   nested, loc, arith::CmpIPredicate::ult, row, constant(rows));
               Value safe = arith::SelectOp::create(nested, loc, inside, row,
                                                    constant(0));
               Value feature = linalg::IndexOp::create(nested, loc, rank - 1);
               SmallVector<Value> at{safe, feature};
               if (rowDim == 1)
                 std::swap(at[0], at[1]);
               Value entry = tensor::ExtractOp::create(nested, loc, table, at);
               Value zero = arith::ConstantOp::create(
                   nested, loc, nested.getZeroAttr(type.getElementType()));
               Value result =
                   arith::SelectOp::create(nested, loc, inside, entry, zero);
               linalg::YieldOp::create(nested, loc, result);
             })
      .getResult(0);
}

/// `start` and `sum`, where a product adds to what is there.
static Value addTo(OpBuilder &b, Location loc, Value start, Value sum) {
  if (isZeros(start))
    return sum;
  auto type = cast<RankedTensorType>(sum.getType());
  Value init =
      tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  auto add = linalg::AddOp::create(b, loc, type, ValueRange{start, sum}, init);
  IRRewriter rewriter(b);
  return linalg::generalizeNamedOp(rewriter, add)->getResult(0);
}

/// product(one_hot(i), u) -> scatter_add(i, u), if the indices are summed over
/// product(one_hot(i), w) -> gather(w, i), if the rows are
static Value raise(linalg::GenericOp op, bool &isScatter) {
  if (!linalg::isaContractionOpInterface(op) || op.getNumDpsInputs() != 2 ||
      op->getNumResults() != 1)
    return {};
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  OpBuilder b(op);
  for (unsigned side : {0, 1}) {
    std::optional<OneHot> oneHot = matchOneHot(op.getDpsInputs()[side]);
    if (!oneHot)
      continue;
    Value other = op.getDpsInputs()[1 - side];
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    SmallVector<unsigned> tokens = getLoops(maps[side]);
    unsigned row = tokens[oneHot->dim];
    tokens.erase(tokens.begin() + oneHot->dim);
    SmallVector<unsigned> otherLoops = getLoops(maps[1 - side]);
    SmallVector<unsigned> resultLoops = getLoops(maps[2]);
    auto reduced = [&](unsigned loop) {
      return op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction;
    };
    if (llvm::all_of(tokens, reduced) && !reduced(row) &&
        resultLoops.size() == 2 && resultLoops.front() == row) {
      unsigned feature = resultLoops.back();
      auto found = llvm::find(otherLoops, feature);
      SmallVector<unsigned> rest = llvm::filter_to_vector(
          otherLoops, [&](unsigned loop) { return loop != feature; });
      if (found == otherLoops.end() || rest != tokens ||
          cast<RankedTensorType>(other.getType()).getElementType() !=
              type.getElementType())
        continue;
      isScatter = true;
      return addTo(b, op.getLoc(), op.getDpsInits()[0],
                   createScatterAdd(b, op.getLoc(), type, oneHot->indices,
                                    other, found - otherLoops.begin()));
    }
    if (reduced(row) && llvm::none_of(tokens, reduced) &&
        otherLoops.size() == 2 && llvm::is_contained(otherLoops, row)) {
      unsigned rowDim = otherLoops[0] == row ? 0 : 1;
      SmallVector<unsigned> expected(tokens);
      expected.push_back(otherLoops[1 - rowDim]);
      if (resultLoops != expected ||
          cast<RankedTensorType>(other.getType()).getElementType() !=
              type.getElementType())
        continue;
      isScatter = false;
      return addTo(
          b, op.getLoc(), op.getDpsInits()[0],
          createGather(b, op.getLoc(), type, oneHot->indices, other, rowDim));
    }
  }
  return {};
}

namespace {
struct Raise : bsr::impl::BSRRaiseBase<Raise> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([&](linalg::GenericOp op) {
      bool isScatter = false;
      Value raised = raise(op, isScatter);
      if (!raised)
        return;
      op.getResult(0).replaceAllUsesWith(raised);
      op.erase();
      ++(isScatter ? numScatterAdds : numGathers);
    });
    getOperation()->walk([&](ScatterAddOp op) {
      OpBuilder b(op);
      op.replaceAllUsesWith(createScatterAdd(
          b, op.getLoc(), op.getRows().getType(), op.getIndices(),
          op.getUpdates(), op.getFeatureDim()));
      op.erase();
    });
    // The one-hot matrices.
    getOperation()->walk<WalkOrder::PostOrder, ReverseIterator>(
        [](Operation *op) {
          if (isOpTriviallyDead(op))
            op->erase();
        });
  }
};
} // namespace
