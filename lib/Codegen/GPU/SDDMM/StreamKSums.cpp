// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of windows that thread blocks leave in memory, and the launch that adds
// them up.

#include "StreamKSums.h"
#include "StreamK.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

FragmentGrid bsr::gpu::getFragments(const SDDMMShape &shape) {
  return {shape.getBlockRows() / fragmentRows,
          shape.getBlockCols() / fragmentCols};
}

void bsr::gpu::storePartialSums(BlockBuilder &b, Value partialSums,
                                ValueRange at, Value fragment,
                                ValueRange sums) {
  constexpr int64_t length = FragmentGrid::fragmentSums;
  auto vector = VectorType::get(length, b.b.getF32Type());
  for (size_t first = 0; first != sums.size(); first += length) {
    SmallVector<Value> position(at);
    position.append({b.add(fragment, first / length), b.lane, b.constant(0)});
    b.store(vector::FromElementsOp::create(b.b, b.loc, vector,
                                           sums.slice(first, length)),
            partialSums, position);
  }
}

namespace {
/// What a thread does that adds up sums: a warp has 16 rows of one block after
/// the other.
class SumEmitter {
public:
  /// Without an epilogue, `values` is the result.
  SumEmitter(const StreamKSums &sums, const PatternView &view,
             ValueRange scratch, const StoredRows &values, Epilogue *epilogue,
             BlockBuilder &b)
      : tile(sums.tile), ofThreads(tile.getBlocks(sums.shape)),
        windows(tile.getWindows(sums.shape)), view(view),
        arrays(scratch.drop_back()), partialSums(scratch.back()),
        values(values), epilogue(epilogue),
        b(b), grid{1, getFragments(sums.shape).cols},
        shares(b, tile, sums.shape, windows, arrays) {}

  void emit();

private:
  void addBlock(Value slot, Value position);
  /// `sums` plus those that thread block `owner` has left of the window.
  SmallVector<Value> addPartialSums(Value owner, Value window, Value block,
                                    ValueRange sums);
  void store(Value slot, ValueRange sums);
  void emitEpilogue(Value slot, ValueRange sums);
  /// Row `half` of the lane, of 2.
  Value getRow(int64_t half);

  const SDDMMTile &tile;
  /// Blocks of a window that a thread block has at most.
  int64_t ofThreads;
  SDDMMPlan windows;
  const PatternView &view;
  ValueRange arrays;
  Value partialSums;
  const StoredRows &values;
  Epilogue *epilogue;
  BlockBuilder &b;
  /// Those of 16 rows.
  FragmentGrid grid;
  StreamK shares;
  StreamK::Group group;
};
} // namespace

SmallVector<Value> SumEmitter::addPartialSums(Value owner, Value window,
                                              Value block, ValueRange sums) {
  constexpr int64_t length = FragmentGrid::fragmentSums;
  Value ordinal = b.sub(window, shares.getFirstWindow(owner));
  Type f32 = b.b.getF32Type();
  auto getOffset = [&](ValueRange at) {
    auto shape = cast<MemRefType>(partialSums.getType()).getShape();
    Value offset = at[0];
    for (auto [number, extent] :
         llvm::zip_equal(at.drop_front(), shape.slice(1, at.size() - 1)))
      offset = b.multiplyAdd(offset, extent, number);
    return offset;
  };
  Value fragment = b.mul(b.block[1], grid.cols);
  // Of a cluster, which is the owner, one thread block after the other.
  if (tile.shares != 1) {
    owner = b.multiplyAdd(owner, tile.shares, b.div(block, ofThreads));
    block = b.rem(block, ofThreads);
  }
  Value offset = getOffset({owner, ordinal, block, fragment, b.lane});
  Value begin = b.at(b.getPointer(partialSums), b.mul(offset, length), f32);
  SmallVector<Value> next;
  for (int64_t col = 0; col != grid.cols; ++col) {
    SmallVector<Value> terms =
        b.loadFloats(b.at(begin, col * BlockBuilder::warpThreads * length, f32),
                     f32, length);
    for (auto [sum, term] :
         llvm::zip_equal(sums.slice(col * length, length), terms))
      next.push_back(arith::AddFOp::create(b.b, b.loc, sum, term));
  }
  return next;
}

Value SumEmitter::getRow(int64_t half) {
  return b.multiplyAdd(b.block[1], fragmentRows,
                       b.add(b.div(b.lane, 4), half * 8));
}

void SumEmitter::store(Value slot, ValueRange sums) {
  for (int64_t half = 0; half != grid.getNumRows(); ++half)
    storeRow(b, grid.getRow(sums, half), values, {slot, getRow(half)},
             b.constant(0), /*isRagged=*/false);
}

void SumEmitter::emitEpilogue(Value slot, ValueRange sums) {
  WarpSums warp;
  warp.sums = grid.getRows(sums);
  warp.numRows = grid.getNumRows();
  warp.at = {slot, getRow(/*half=*/0)};
  warp.column = warp.warpNumber = b.constant(0);
  warp.areRowsRagged = warp.areColumnsRagged = false;
  epilogue->emit(b, warp);
}

void SumEmitter::addBlock(Value slot, Value position) {
  Value inGroup = b.div(position, windows.blocks);
  Value window = b.add(group.firstWindow, inGroup);
  Value block = b.rem(position, windows.blocks);
  auto [first, last] = shares.getOwners(group, inGroup);
  SmallVector<Value> sums =
      b.loop(first, b.add(last, 1), 1, b.zeros(grid.getNumSums()),
             [&](Value owner, ValueRange sums) {
               return addPartialSums(owner, window, block, sums);
             });
  if (epilogue)
    emitEpilogue(slot, sums);
  else
    store(slot, sums);
}

void SumEmitter::emit() {
  Value line = b.block[0];
  group = shares.getGroup(b.div(line, windows.lines));
  Value start = b.load(view.ptr, line), end = b.load(view.ptr, b.add(line, 1));
  int64_t passes = llvm::divideCeil(windows.length, blockWarps);
  b.loop(b.constant(0), b.constant(passes), 1, {}, [&](Value pass, ValueRange) {
    Value inLine = b.multiplyAdd(pass, blockWarps, b.warp);
    Value position = b.add(start, inLine);
    b.when(b.less(position, end), [&] {
      addBlock(b.load(view.slot, position),
               b.load(arrays[SDDMMPlan::Locations], ValueRange{line, inLine}));
    });
    return SmallVector<Value>();
  });
}

MemRefType StreamKSums::getType(MLIRContext *context) const {
  FragmentGrid fragments = getFragments(shape);
  return MemRefType::get(
      {tile.grid * tile.shares, tile.getMostWindows(shape),
       tile.getBlocks(shape), fragments.rows * fragments.cols,
       BlockBuilder::warpThreads, FragmentGrid::fragmentSums},
      Float32Type::get(context));
}

void StreamKSums::emit(OpBuilder &b, const KernelBody &kernel, SDDMMOp op,
                       ValueRange scratch, const StoredRows &values,
                       Epilogue *epilogue) const {
  const PatternView &view = kernel.patterns.at({op.getPattern(), View::Rows});
  int64_t numLines = tile.getWindows(shape).numLines;
  BlockBuilder::launch(
      b, kernel.loc, {numLines, getFragments(shape).rows}, blockThreads,
      /*sharedBytes=*/0, [&](BlockBuilder &block) {
        SumEmitter(*this, view, scratch, values, epilogue, block).emit();
      });
}
