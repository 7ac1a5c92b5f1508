// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values of bsr.spmm in the order in which its kernel takes blocks.

#include "SparseKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

MemRefType cpu::getOrderedValues(SpMMOp op, CPUTarget target) {
  PatternType pattern = op.getPattern().getType();
  Walk walk = *getSchedule(op, target).walk;
  if (walk != Walk::Scatter && walk != Walk::OrderedGather)
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
