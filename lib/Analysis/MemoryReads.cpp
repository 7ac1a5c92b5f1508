// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an operation reads of values in memory, and where.

#include "bsr/Analysis/MemoryReads.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <set>

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Follows the values that an operation reads up to the leaves.
class Reads {
public:
  Reads(IsLeaf isLeaf, SmallVector<Read> &reads)
      : isLeaf(isLeaf), reads(reads) {}

  /// Visits what `op` reads at the point `loops`; -1 stands for anything.
  void visit(linalg::GenericOp op, ArrayRef<int64_t> loops);

private:
  void visit(Value value, SmallVector<int64_t> at);

  IsLeaf isLeaf;
  SmallVector<Read> &reads;
  std::set<std::pair<void *, SmallVector<int64_t>>> visited;
};
} // namespace

void Reads::visit(linalg::GenericOp op, ArrayRef<int64_t> loops) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!op.payloadUsesValueFromOperand(&operand))
      continue;
    SmallVector<int64_t> at;
    for (AffineExpr expr : op.getMatchingIndexingMap(&operand).getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      at.push_back(dim ? loops[dim.getPosition()] : -1);
    }
    visit(operand.get(), std::move(at));
  }
  for (Operation &inner : *op.getBody()) {
    if (auto extract = dyn_cast<tensor::ExtractOp>(inner)) {
      SmallVector<int64_t> at;
      for (Value index : extract.getIndices()) {
        auto loop = index.getDefiningOp<linalg::IndexOp>();
        at.push_back(loop ? loops[loop.getDim()] : -1);
      }
      visit(extract.getTensor(), std::move(at));
      continue;
    }
    // Scalars from outside.
    for (Value operand : inner.getOperands())
      if (operand.getParentBlock() != op.getBody())
        visit(operand, {});
  }
}

void Reads::visit(Value value, SmallVector<int64_t> at) {
  if (auto scalar = value.getDefiningOp<tensor::ExtractOp>())
    return visit(scalar.getTensor(), {});
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !visited.insert({value.getAsOpaquePointer(), at}).second)
    return;
  if (isLeaf(value)) {
    reads.push_back({value, std::move(at)});
    return;
  }
  Operation *op = value.getDefiningOp();
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    AffineMap map = generic.getIndexingMapMatchingResult(cast<OpResult>(value));
    SmallVector<int64_t> loops(generic.getNumLoops(), -1);
    for (auto [expr, loop] : llvm::zip_equal(map.getResults(), at))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        loops[dim.getPosition()] = loop;
    return visit(generic, loops);
  }
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return visit(fill.getInputs()[0], {});
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    for (auto [loop, extent, whole] :
         llvm::zip_equal(at, type.getShape(), slice.getSourceType().getShape()))
      if (extent != whole)
        loop = -1;
    return visit(slice.getSource(), std::move(at));
  }
  // Dimensions of one element aside, what stays as it is.
  auto getOnly = [](ArrayRef<int64_t> dims, ArrayRef<int64_t> shape) {
    SmallVector<int64_t> large = llvm::filter_to_vector(
        dims, [&](int64_t dim) { return shape[dim] != 1; });
    return large.size() == 1 ? large.front() : -1;
  };
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    SmallVector<int64_t> source;
    for (ArrayRef<int64_t> group : expand.getReassociationIndices()) {
      int64_t only = getOnly(group, type.getShape());
      source.push_back(only < 0 ? -1 : at[only]);
    }
    return visit(expand.getSrc(), std::move(source));
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
    SmallVector<int64_t> source(shape.size(), -1);
    for (auto [loop, group] :
         llvm::zip_equal(at, collapse.getReassociationIndices()))
      if (int64_t only = getOnly(group, shape); only >= 0)
        source[only] = loop;
    return visit(collapse.getSrc(), std::move(source));
  }
}

SmallVector<Read> bsr::getReads(linalg::GenericOp op, IsLeaf isLeaf) {
  SmallVector<Read> reads;
  Reads(isLeaf, reads)
      .visit(op, llvm::to_vector(llvm::seq<int64_t>(op.getNumLoops())));
  return reads;
}
