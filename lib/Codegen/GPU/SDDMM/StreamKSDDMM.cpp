// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores.
//
// A launch before finds the windows of the pattern (SDDMMPlan). All steps of
// all windows are shared evenly among as many thread blocks as the chip has
// multiprocessors, or among clusters, in their order: each has the last steps
// of a window, whole windows, and the first steps of another one
// (WarpSDDMM.cpp, ClusterSDDMM.cpp). What they have in registers is left in
// memory; a last launch adds what there is of a block (StreamKSums.cpp).

#include "StreamKSDDMM.h"
#include "ClusterSDDMM.h"
#include "StreamKSums.h"
#include "WarpSDDMM.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<StreamKSDDMM> StreamKSDDMM::match(const BlockProduct &operands,
                                                GPUAttr chip) {
  if (!operands.fitsFragments(chip.getTf32()) ||
      operands.getLeastExtent() < fragmentRows)
    return std::nullopt;
  StreamKSDDMM product;
  product.op = cast<SDDMMOp>(operands.op);
  product.shape = SDDMMShape::get(operands);
  auto tile = SDDMMTile::choose(product.shape, *findChip(chip.getChip()),
                                chip.getTileOutputs(), chip.getShareOutputs());
  if (!tile)
    return std::nullopt;
  product.tile = *tile;
  product.windows = tile->getWindows(product.shape);
  return product;
}

std::optional<PatternPlan> StreamKSDDMM::getPlan() {
  auto emit = [windows = windows](OpBuilder &b, Location loc,
                                  const PatternView &view, ValueRange arrays) {
    windows.emit(b, loc, view, arrays);
  };
  return PatternPlan{op, op.getPattern(), View::Rows,
                     windows.getTypes(op->getContext()), emit};
}

SmallVector<MemRefType> StreamKSDDMM::getScratch() {
  return {StreamKSums{shape, tile}.getType(op->getContext())};
}

LogicalResult StreamKSDDMM::emit(OpBuilder &b, KernelBody &kernel,
                                 ValueRange scratch) {
  SmallVector<Value> memory(kernel.plans.at(op));
  llvm::append_range(memory, scratch);
  if (tile.shares == 1)
    emitWarpSDDMM(b, kernel, op, shape, tile, memory);
  else
    emitClusterSDDMM(b, kernel, op, shape, tile, memory);
  StoredRows values;
  if (epilogue)
    epilogue->begin(b, kernel, /*scratch=*/{});
  else
    values = createRows(b, kernel.loc, kernel.outputs.lookup(op.getValues()),
                        {shape.pattern.getSlots(), shape.getBlockRows()},
                        shape.getBlockCols());
  StreamKSums{shape, tile}.emit(b, kernel, op, memory, values,
                                epilogue ? &*epilogue : nullptr);
  return epilogue ? epilogue->end(b) : success();
}
