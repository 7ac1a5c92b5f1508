// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values of bsr.spmm in the order in which its kernel takes blocks.

#include "SparseKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Panels of tokens, at least: values take as long to be put in order as about
/// one of them, and panels are work items where blocks scatter.
static constexpr int64_t minPanels = 16;
/// Features of a block that scatters, at least: a row of sums is read and
/// written for as many.
static constexpr int64_t minRows = 4;

/// True if the values of `op` may be put in order: they are numbers of one
/// type, f32 or f64, of one product, of enough panels.
static bool canOrder(SpMMOp op, CPUTarget target) {
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  Type type = op.getY().getType().getElementType();
  auto hasType = [&](Value tensor) {
    return getElementTypeOrSelf(tensor.getType()) == type;
  };
  int64_t panels = llvm::product_of(activations.leading) * activations.tokens /
                   target.panel();
  return !op.getNumBatchDims() && (type.isF32() || type.isF64()) &&
         hasType(op.getValues()) && hasType(op.getX()) && panels >= minPanels;
}

bool cpu::isScattered(SpMMOp op, CPUTarget target) {
  PatternType pattern = op.getPattern().getType();
  View read = getView(op.getTranspose());
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  return pattern.getBlockExtent(getOther(read)) == 1 &&
         pattern.getBlockExtent(read) >= minRows && activations.hasLanes &&
         activations.tokens % target.panel() == 0 && canOrder(op, target);
}

MemRefType cpu::getOrderedValues(SpMMOp op, CPUTarget target) {
  PatternType pattern = op.getPattern().getType();
  View read = getView(op.getTranspose());
  bool isOfOne = pattern.getBlockExtent(read) == 1 &&
                 pattern.getBlockExtent(getOther(read)) > 1;
  if (!isScattered(op, target) && !(isOfOne && canOrder(op, target)))
    return {};
  return MemRefType::get(
      {pattern.getSlots(), pattern.getBlockRows(), pattern.getBlockCols()},
      op.getValues().getType().getElementType());
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
        e.forLanes(e.constant(0), pattern.getBlockCols(), e.target.lanes,
                   [&](Index col) {
                     e.store(e.read(op.getValues(), {slot, row, col}), ordered,
                             {Index::of(block), row, col});
                   });
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  });
}
