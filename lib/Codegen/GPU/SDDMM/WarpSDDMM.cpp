// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of windows that a thread block multiplies, warp by warp.
//
// A stage of shared memory holds what a step has of the rows of all lines of
// the group and of the columns of all positions of the window, while copies for
// the next steps are under way. A warp has as many of the window's blocks as
// the others, one after the other, keeps their sums in 128 or 160 registers a
// thread, and reads rows again where the line changes.

#include "WarpSDDMM.h"
#include "StreamK.h"
#include "StreamKSums.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
/// What a thread does.
class WarpSDDMMEmitter {
public:
  WarpSDDMMEmitter(KernelBody &kernel, SDDMMOp op, const SDDMMShape &shape,
                   const SDDMMTile &tile, ValueRange scratch, BlockBuilder &b);
  void emit();

private:
  /// What a thread block has of a window: its group, its number there, its
  /// positions, how many they are, its blocks, and the steps from `low` to
  /// below `high`.
  struct Window {
    Value group, number, positions, slabs, blocks, low, high;
  };

  void emitWindow(const WindowRange &range);
  /// Copies a step to `stage`, if it is one of `window`.
  void copy(Value step, Value stage, const Window &window);
  void copyRows(Value stage, const CopiedTokens &tokens, Value group);
  void copyColumns(Value stage, const CopiedTokens &tokens,
                   const Window &window);
  void loadBlocks(const Window &window);
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  void store(Value ordinal, ValueRange sums);

  /// Pieces of 16 bytes of a row, which lie in another order in every other
  /// row, or two: those of 8 rows lie in different banks.
  int64_t getPieces() const { return tile.getPitch() / copiedBytes; }
  Value getSwizzle(Value row) {
    return b.rem(b.div(row, 8 / getPieces()), getPieces());
  }
  const SDDMMShape &shape;
  const SDDMMTile &tile;
  const SDDMMPlan windows;
  ValueRange arrays;
  BlockBuilder &b;
  Type type, i32;
  /// What multiplies a block.
  WarpMultiplier multiplier;
  int64_t warpBlocks, steps;
  Value rows, cols, partialSums;
  /// Of what the thread copies: the piece, its first token in a step, and where
  /// that lies in a stage.
  CopiedPiece copied;
  Value copiedToken, copiedTo;
  /// Of the warp, in the window: its first block, and each one's line and
  /// position, and whether it is there.
  Value firstBlock;
  SmallVector<Value> lines, slabs, isThere;
};
} // namespace

/// Rows of both operands have the tokens of a step.
static WarpMultiplier::Operand getOperand(const SDDMMTile &tile) {
  return {tile.getPitch(), /*isInnerLast=*/true, /*first=*/{},
          /*isSwizzled=*/true};
}

WarpSDDMMEmitter::WarpSDDMMEmitter(KernelBody &kernel, SDDMMOp op,
                                   const SDDMMShape &shape,
                                   const SDDMMTile &tile, ValueRange scratch,
                                   BlockBuilder &b)
    : shape(shape), tile(tile), windows(tile.getWindows(shape)),
      arrays(scratch.drop_back()), b(b),
      type(op.getA().getType().getElementType()), i32(b.b.getI32Type()),
      multiplier(b,
                 {type, getFragments(shape).rows, getFragments(shape).cols,
                  tile.tokens},
                 getOperand(tile), getOperand(tile)),
      warpBlocks(SDDMMTile::getWarpBlocks(shape)), steps(tile.getSteps(shape)),
      rows(b.getPointer(kernel.inputs.lookup(skipReshapes(op.getA())))),
      cols(b.getPointer(kernel.inputs.lookup(skipReshapes(op.getB())))),
      partialSums(scratch.back()) {
  copied = {b.div(b.thread, getPieces()), b.rem(b.thread, getPieces()),
            blockThreads / getPieces()};
  copiedToken = b.mul(copied.piece, copiedBytes / shape.elementBytes);
  Value position = b.bitXor(copied.piece, getSwizzle(copied.row));
  copiedTo =
      b.multiplyAdd(copied.row, tile.getPitch(), b.mul(position, copiedBytes));
}

void WarpSDDMMEmitter::copyRows(Value stage, const CopiedTokens &tokens,
                                Value group) {
  const Activations &x = shape.rows;
  int64_t count = tile.lines * shape.getBlockRows();
  int64_t numRows = windows.numLines * shape.getBlockRows();
  Value firstRow = b.multiplyAdd(tokens.batch, numRows, b.mul(group, count));
  Value to = b.at(b.add(stage, copiedTo));
  auto find = [&](int64_t pass) {
    Value row = b.add(copied.row, pass);
    // Rows beyond the last are clamped: no block uses them.
    if (windows.numLines % tile.lines) {
      Value last = b.constant(numRows - 1);
      row = b.sub(b.min(b.add(b.mul(group, count), row), last),
                  b.mul(group, count));
    }
    Value from = b.multiplyAdd(b.add(firstRow, row), x.tokens, tokens.first);
    return b.at(rows, from, type);
  };
  copied.copyRows(b, count, to, tile.getPitch(), find, tokens.bytes);
}

void WarpSDDMMEmitter::copyColumns(Value stage, const CopiedTokens &tokens,
                                   const Window &window) {
  const Activations &y = shape.cols;
  int64_t blockCols = shape.getBlockCols();
  Value from = b.multiplyAdd(tokens.batch, y.features * y.tokens, tokens.first);
  auto find = [&](Value row) {
    Value slab = b.div(row, blockCols);
    Value position = b.load(b.at(window.positions, slab, i32), i32);
    Value column = b.multiplyAdd(position, blockCols, b.rem(row, blockCols));
    return b.at(cols, b.multiplyAdd(column, y.tokens, from), type);
  };
  copied.copyRows(b, b.mul(window.slabs, blockCols),
                  b.add(b.add(stage, tile.getRowBytes(shape)), copiedTo),
                  tile.getPitch(), find, tokens.bytes);
}

void WarpSDDMMEmitter::copy(Value step, Value stage, const Window &window) {
  CopiedTokens tokens =
      getCopiedTokens(b, shape.rows, tile.tokens, step, copiedToken);
  copyRows(stage, tokens, window.group);
  copyColumns(stage, tokens, window);
}

void WarpSDDMMEmitter::loadBlocks(const Window &window) {
  Value ofWarp = b.div(b.add(window.blocks, blockWarps - 1), blockWarps);
  firstBlock = arith::MulIOp::create(b.b, b.loc, b.warp, ofWarp);
  Value count = b.min(ofWarp, b.sub(window.blocks, firstBlock));
  // The last of a window for those that are not there.
  Value first = b.mul(window.number, windows.blocks);
  for (int64_t block = 0; block != warpBlocks; ++block) {
    Value number =
        b.min(b.add(firstBlock, block), b.constant(windows.blocks - 1));
    Value word = b.load(arrays[SDDMMPlan::Words],
                        ValueRange{window.group, b.add(first, number)});
    isThere.push_back(b.less(b.constant(block), count));
    lines.push_back(SDDMMPlan::getLine(b, word));
    slabs.push_back(SDDMMPlan::getSlab(b, word));
  }
}

SmallVector<Value> WarpSDDMMEmitter::multiply(Value stage, ValueRange sums) {
  SmallVector<Value> next;
  size_t ofBlock = sums.size() / warpBlocks;
  // The rows of the block before; zeros where none has been there.
  SmallVector<Value> left(multiplier.getNumRegisters(Multiplier::Left),
                          b.constant(0));
  int64_t lineBytes = shape.getBlockRows() * tile.getPitch();
  Value firstSlab = b.add(stage, tile.getRowBytes(shape));
  for (int64_t block = 0; block != warpBlocks; ++block) {
    bool isLast = block == warpBlocks - 1;
    SmallVector<Value> before(sums.slice(block * ofBlock, ofBlock));
    if (!isLast)
      llvm::append_range(before, left);
    SmallVector<Value> after = b.when(isThere[block], before, [&] {
      auto load = [&] {
        Value rows = b.multiplyAdd(lines[block], lineBytes, stage);
        return multiplier.load(Multiplier::Left,
                               multiplier.at(Multiplier::Left, rows));
      };
      SmallVector<Value> rows =
          block == 0
              ? load()
              : b.when(b.less(lines[block - 1], lines[block]), left, load);
      Value cols =
          b.multiplyAdd(slabs[block], tile.getSlabBytes(shape), firstSlab);
      SmallVector<Value> result =
          multiplier.multiply(rows, multiplier.at(Multiplier::Right, cols),
                              sums.slice(block * ofBlock, ofBlock));
      if (!isLast)
        llvm::append_range(result, rows);
      return result;
    });
    next.append(after.begin(), after.begin() + ofBlock);
    left.assign(after.begin() + ofBlock, after.end());
  }
  return next;
}

void WarpSDDMMEmitter::store(Value ordinal, ValueRange sums) {
  int64_t count = multiplier.numSums;
  for (int64_t block = 0; block != warpBlocks; ++block)
    b.when(isThere[block], [&] {
      storePartialSums(
          b, partialSums, {b.block[0], ordinal, b.add(firstBlock, block)},
          /*fragment=*/b.constant(0), sums.slice(block * count, count));
    });
}

void WarpSDDMMEmitter::emitWindow(const WindowRange &range) {
  Value group = range.group;
  auto getSize = [&](int64_t i) {
    return b.load(arrays[SDDMMPlan::Sizes],
                  ValueRange{group, b.add(b.mul(range.number, 2), i)});
  };
  Value positions = b.atFar(b.getPointer(arrays[SDDMMPlan::Positions]), group,
                            windows.getMaxOfGroup() * windows.slabs, i32);
  Window window{group,
                range.number,
                b.at(positions, b.mul(range.number, windows.slabs), i32),
                getSize(0),
                getSize(1),
                range.low,
                range.high};
  loadBlocks(window);
  // All have read what is in shared memory of the window before.
  b.barrier();
  auto begin = [&] {
    // A thread block has some steps of each of its windows.
    b.assume(b.less(window.low, window.high));
    return b.zeros(SDDMMTile::getSums(shape));
  };
  SmallVector<Value> sums =
      CopyPipeline(b, tile.stages, tile.getStageBytes(shape))
          .run(
              {window.low, window.high},
              [&](Value step, Value stage, ValueRange) {
                copy(step, stage, window);
              },
              begin,
              [&](Value, Value stage, ValueRange, ValueRange sums) {
                return multiply(stage, sums);
              });
  store(range.ordinal, sums);
}

void WarpSDDMMEmitter::emit() {
  StreamK shares(b, tile, shape, windows, arrays);
  shares.forWindows(b.block[0], {}, [&](const WindowRange &window, ValueRange) {
    emitWindow(window);
    return SmallVector<Value>();
  });
}

void bsr::gpu::emitWarpSDDMM(OpBuilder &b, KernelBody &kernel, SDDMMOp op,
                             const SDDMMShape &shape, const SDDMMTile &tile,
                             ValueRange scratch) {
  BlockBuilder::launch(
      b, kernel.loc, {tile.grid, 1}, blockThreads, tile.getSharedBytes(shape),
      [&](BlockBuilder &block) {
        WarpSDDMMEmitter(kernel, op, shape, tile, scratch, block).emit();
      });
}
