// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values of bsr.spmm in the order in which its kernel takes blocks.

#include "PairProducts.h"
#include "SparseKernels.h"
#include "TileProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Panels of tokens, at least, for which values are converted once: it takes as
/// long as a tenth of the product for one of them.
static constexpr int64_t minPanels = 4;

MemRefType cpu::getOrderedValues(SpMMOp op, CPUTarget target) {
  if (std::optional<TiledSpMM> tiled = TiledSpMM::find(op, target))
    return tiled->isPacked ? tiled->getPacked(op.getContext()) : MemRefType();
  PatternType pattern = op.getPattern().getType();
  ProductSchedule schedule = getSchedule(op, target);
  Type type = op.getValues().getType().getElementType();
  if (*schedule.walk == Walk::Gather) {
    OpBuilder b(op);
    Type sumType =
        getSumType(b, {type, op.getX().getType(), op.getY().getType()});
    Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
    int64_t tokens = llvm::product_of(activations.leading) * activations.tokens;
    if (type == sumType || op.getNumBatchDims() ||
        arePaired(target, op.getValues(), op.getX(), sumType) ||
        tokens < minPanels * *schedule.panels * target.panel())
      return {};
    type = sumType;
  } else if (*schedule.walk != Walk::Scatter &&
             *schedule.walk != Walk::OrderedGather) {
    return {};
  }
  return MemRefType::get(
      {pattern.getSlots(), pattern.getBlockRows(), pattern.getBlockCols()},
      type);
}

void cpu::emitOrderedValues(Emitter &e, SpMMOp op, const PatternView &view,
                            Value ordered) {
  PatternType pattern = op.getPattern().getType();
  int64_t size = llvm::divideCeil(pattern.getSlots(), minItems);
  int64_t lines = pattern.getNumLines(*getWalkedView(op, e.target));
  Value end = loadIndex(e, view.ptr, Index::constant(lines));
  e.forall(minItems, [&](ArrayRef<Index> slice) {
    Index first = e.multiplyAdd(slice.front(), size, Index::constant(0));
    Value high = arith::MinUIOp::create(e.b, e.loc,
                                        e.materialize(first.plus(size)), end);
    e.loop(e.materialize(first), high, 1, {}, [&](Value block, ValueRange) {
      Index slot = Index::of(loadIndex(e, view.slot, Index::of(block)));
      e.loop(pattern.getBlockRows(), {}, [&](Index row, ValueRange) {
        e.forLanes(
            e.constant(0), pattern.getBlockCols(), e.target.lanes,
            [&](Index col) {
              Value value = e.read(op.getValues(), {slot, row, col});
              e.store(e.convert(value, getElementTypeOrSelf(ordered.getType())),
                      ordered, {Index::of(block), row, col});
            });
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  });
}
