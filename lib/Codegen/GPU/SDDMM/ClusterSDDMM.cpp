// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations by clusters and warpgroups.
//
// The thread blocks of a cluster share the blocks of a window. One warp of
// each copies, by tensor copies: its share of the rows of the window's lines,
// each to those that have blocks of the line, and the columns of its own
// blocks, to others, too, where these have blocks there. Two warpgroups
// multiply out of shared memory and keep the sums of up to four blocks each.

#include "ClusterSDDMM.h"
#include "StreamK.h"
#include "StreamKSums.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/Mbarriers.h"
#include "bsr/Codegen/GPU/Core/TensorCopies.h"
#include "bsr/Codegen/GPU/Core/WarpgroupMultiplier.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr int64_t consumers = SDDMMTile::warpgroups * warpgroupThreads;
static constexpr int64_t blockExtent = SDDMMTile::clusterExtent;

/// Steps of `wgmma` of which products of one extent and of another may both be
/// in a loop. Of more, ptxas does not find registers for the sums that lie the
/// same in both, and has each product wait for the one before (C7511).
static constexpr int64_t stepsOfPairs = 2;

/// What multiplies rows of a line by columns of `blocks`.
static WarpgroupMultiplier createMultiplier(BlockBuilder &b, Type type,
                                            const SDDMMShape &shape,
                                            const SDDMMTile &tile,
                                            int64_t blocks) {
  WarpgroupMultiplier::Operand operand{tile.getPitch(), /*isTransposed=*/false,
                                       tile.getSlabBytes(shape)};
  return WarpgroupMultiplier(b, {type, blocks * blockExtent, tile.tokens},
                             operand, operand);
}

namespace {
/// What a thread does.
class ClusterEmitter {
public:
  /// What is copied of the operands.
  struct Operands {
    ActivationBoxes rows, cols;
  };
  ClusterEmitter(const SDDMMShape &shape, const SDDMMTile &tile, Type type,
                 ValueRange scratch, const Operands &operands, BlockBuilder &b)
      : shape(shape), tile(tile), windows(tile.getWindows(shape)),
        single(createMultiplier(b, type, shape, tile, /*blocks=*/1)),
        both(createMultiplier(b, type, shape, tile, /*blocks=*/2)),
        arrays(scratch.drop_back()), partialSums(scratch.back()),
        operands(operands), b(b), shares(b, tile, shape, windows, arrays),
        ring(b, tile.stages, tile.getStageBytes(shape), tile.shares),
        rank(b.rem(b.block[0], tile.shares)), ofThreads(windows.getOfShare()),
        ofGroup(ofThreads / SDDMMTile::warpgroups),
        // What bsr-verify-kernels knows of threads is how many there are.
        warpgroup(
            b.rem(b.div(b.thread, warpgroupThreads), SDDMMTile::warpgroups)) {}

  void emit();

private:
  using Stage = BarrierPipeline::Stage;
  /// A copy of each step that a lane begins, if `blocks` are some: from which
  /// map, where its rows begin in a batch, and where it goes to in a stage.
  struct Copy {
    Value isRow, row, to, blocks;
  };
  /// What a warpgroup has of a window: the number of its first block in the
  /// thread block, and how many they are. Of each block, where the rows and
  /// the columns begin in a stage, whether it is there, and whether it is
  /// multiplied alone; of each two, if any are ever one product, whether they
  /// are: columns side by side, for which tensor cores read the rows once.
  struct Blocks {
    Value first, count;
    SmallVector<Value> rows, cols, isThere, isAlone, isPair;
  };

  /// Entry `at` of `window` in an array that has `each` of a window.
  Value load(SDDMMPlan::Array array, const WindowRange &window, int64_t each,
             Value at) {
    return b.load(
        arrays[array],
        ValueRange{window.group, b.multiplyAdd(window.number, each, at)});
  }
  /// Word `number` of the thread block `rank`.
  Value loadWord(SDDMMPlan::Array array, const WindowRange &window,
                 Value number) {
    return load(array, window, windows.blocks,
                b.multiplyAdd(rank, ofThreads, number));
  }
  Value countBlocks(const WindowRange &window);
  /// Calls `body` for all windows of the cluster, which go on in the ring of
  /// stages where the window before has ended.
  void forWindows(llvm::function_ref<void(const WindowRange &, Stage &)> body);

  Copy findCopy(const WindowRange &window);
  Value countBytes(const WindowRange &window);
  void copyStep(Value step, Stage stage, const Copy &copy, Value bytes);
  void produce();

  Blocks findBlocks(const WindowRange &window);
  SmallVector<Value> multiplyStep(Value begin, const Blocks &blocks,
                                  ValueRange sums);
  /// The sums of two blocks side by side as those of one, and the other way
  /// round.
  Value join(ArrayRef<Value> sums);
  SmallVector<Value> split(Value sums);
  void store(const WindowRange &window, const Blocks &blocks, ValueRange sums);
  void consume();

  const SDDMMShape &shape;
  const SDDMMTile &tile;
  SDDMMPlan windows;
  /// What multiplies a block, and two side by side.
  WarpgroupMultiplier single, both;
  ValueRange arrays;
  Value partialSums;
  Operands operands;
  BlockBuilder &b;
  StreamK shares;
  BarrierPipeline ring;
  /// The thread block in its cluster.
  Value rank;
  /// Blocks that one thread block has room for, and a warpgroup.
  int64_t ofThreads, ofGroup;
  Value warpgroup;
};
} // namespace

void ClusterEmitter::forWindows(
    llvm::function_ref<void(const WindowRange &, Stage &)> body) {
  Stage start = ring.getFirst();
  shares.forWindows(b.div(b.block[0], tile.shares),
                    {start.number, start.parity},
                    [&](const WindowRange &window, ValueRange carried) {
                      Stage stage{carried[0], carried[1]};
                      body(window, stage);
                      return SmallVector<Value>{stage.number, stage.parity};
                    });
}

Value ClusterEmitter::countBlocks(const WindowRange &window) {
  Value all = load(SDDMMPlan::Sizes, window, 2, b.constant(1));
  return windows.getBlocks(b, all, rank);
}

ClusterEmitter::Copy ClusterEmitter::findCopy(const WindowRange &window) {
  // The first lanes have blocks, the next ones lines.
  Value isRow = b.less(b.constant(ofThreads - 1), b.lane);
  Value number = b.min(b.lane, b.constant(ofThreads - 1));
  Value copy = loadWord(SDDMMPlan::Copies, window, number);
  Value inOrder = b.max(b.sub(b.lane, b.constant(ofThreads)), b.constant(0));
  Value line = b.multiplyAdd(inOrder, tile.shares, rank);
  Value isLine = b.less(line, b.constant(tile.lines));
  line = b.min(line, b.constant(tile.lines - 1));
  Value rows = load(SDDMMPlan::Rows, window, tile.lines, line);
  rows = b.select(isLine, rows, b.constant(0));
  Value row = b.select(isRow, b.multiplyAdd(window.group, tile.lines, line),
                       SDDMMPlan::getPosition(b, copy));
  copy = b.select(isRow, rows, copy);
  return {isRow, b.mul(row, blockExtent),
          b.mul(SDDMMPlan::getBuffer(b, copy), tile.getSlabBytes(shape)),
          SDDMMPlan::getMask(b, copy)};
}

Value ClusterEmitter::countBytes(const WindowRange &window) {
  Value zero = b.constant(0), one = b.constant(1);
  Value count = countBlocks(window);
  // Each buffer counts once, however many blocks read it.
  Value filled = zero;
  for (int64_t number = 0; number != ofThreads; ++number) {
    Value word = loadWord(SDDMMPlan::Words, window, b.constant(number));
    Value rows = b.shiftLeft(one, SDDMMPlan::getLine(b, word));
    Value cols = b.shiftLeft(one, SDDMMPlan::getSlab(b, word));
    Value isThere = b.less(b.constant(number), count);
    filled = b.bitOr(filled, b.select(isThere, b.bitOr(rows, cols), zero));
  }
  return b.mul(b.countOnes(filled), tile.getSlabBytes(shape));
}

void ClusterEmitter::copyStep(Value step, Stage stage, const Copy &copy,
                              Value bytes) {
  Value full = ring.getFull(stage);
  b.when(b.equal(b.lane, b.constant(0)), [&] { expectBytes(b, full, bytes); });
  StepTokens tokens = getStepTokens(b, shape.rows, tile.tokens, step);
  Value to = b.at(b.add(ring.getBegin(stage), copy.to));
  Value isCopied = b.less(b.constant(0), copy.blocks);
  auto copyFrom = [&](const ActivationBoxes &x) {
    x.copy(b, to, {tokens.batch, copy.row, tokens.first}, full, copy.blocks);
  };
  Value isTrue = b.equal(b.constant(0), b.constant(0));
  b.when(b.bitAnd(isCopied, copy.isRow), [&] { copyFrom(operands.rows); });
  b.when(b.bitAnd(isCopied, b.bitXor(copy.isRow, isTrue)),
         [&] { copyFrom(operands.cols); });
}

void ClusterEmitter::produce() {
  forWindows([&](const WindowRange &window, Stage &stage) {
    Copy copy = findCopy(window);
    Value bytes = countBytes(window);
    ring.produce({window.low, window.high}, stage,
                 [&](Value step, Stage stage, ValueRange) {
                   copyStep(step, stage, copy, bytes);
                 });
  });
}

ClusterEmitter::Blocks ClusterEmitter::findBlocks(const WindowRange &window) {
  Value all = countBlocks(window);
  Value half = b.div(b.add(all, 1), SDDMMTile::warpgroups);
  Blocks blocks;
  Value isSecond = b.less(b.constant(0), warpgroup);
  blocks.first = b.select(isSecond, half, b.constant(0));
  blocks.count = b.select(isSecond, b.sub(all, half), half);
  int64_t bytes = tile.getSlabBytes(shape);
  for (int64_t block = 0; block != ofGroup; ++block) {
    Value number = b.min(b.add(blocks.first, block), b.constant(ofThreads - 1));
    Value word = loadWord(SDDMMPlan::Words, window, number);
    blocks.rows.push_back(b.mul(SDDMMPlan::getLine(b, word), bytes));
    blocks.cols.push_back(b.mul(SDDMMPlan::getSlab(b, word), bytes));
    blocks.isThere.push_back(b.less(b.constant(block), blocks.count));
  }
  blocks.isAlone = blocks.isThere;
  if (tile.tokens > stepsOfPairs * warpgroupDepth)
    return blocks;
  Value isTrue = b.equal(b.constant(0), b.constant(0));
  for (int64_t block = 0; block + 1 < ofGroup; block += 2) {
    Value isOneLine = b.equal(blocks.rows[block], blocks.rows[block + 1]);
    Value isNext =
        b.equal(b.add(blocks.cols[block], bytes), blocks.cols[block + 1]);
    Value isPair =
        b.bitAnd(blocks.isThere[block + 1], b.bitAnd(isOneLine, isNext));
    blocks.isPair.push_back(isPair);
    for (int64_t i : {block, block + 1})
      blocks.isAlone[i] = b.bitAnd(blocks.isThere[i], b.bitXor(isPair, isTrue));
  }
  return blocks;
}

Value ClusterEmitter::join(ArrayRef<Value> sums) {
  SmallVector<Value> all;
  for (Value sum : sums)
    llvm::append_range(all, unpackSums(b, sum));
  return packSums(b, all);
}

SmallVector<Value> ClusterEmitter::split(Value sums) {
  SmallVector<Value> all = unpackSums(b, sums);
  size_t half = all.size() / 2;
  return {packSums(b, ValueRange(all).take_front(half)),
          packSums(b, ValueRange(all).drop_front(half))};
}

SmallVector<Value> ClusterEmitter::multiplyStep(Value begin,
                                                const Blocks &blocks,
                                                ValueRange sums) {
  auto multiply = [&](const Multiplier &multiplier, int64_t block, Value sum) {
    return multiplier.multiply(b.at(b.add(begin, blocks.rows[block])),
                               b.at(b.add(begin, blocks.cols[block])), sum);
  };
  SmallVector<Value> next(sums);
  for (auto [number, isPair] : llvm::enumerate(blocks.isPair)) {
    auto first = int64_t(2 * number);
    SmallVector<Value> two(next.begin() + first, next.begin() + first + 2);
    two = b.when(isPair, two, [&] {
      return split(multiply(both, first, join(two)).front());
    });
    llvm::copy(two, next.begin() + first);
  }
  for (int64_t block = 0; block != ofGroup; ++block)
    next[block] = b.when(blocks.isAlone[block], next[block], [&] {
      return multiply(single, block, next[block]);
    })[0];
  return next;
}

void ClusterEmitter::store(const WindowRange &window, const Blocks &blocks,
                           ValueRange sums) {
  Value warp = b.rem(b.warp, warpgroupThreads / BlockBuilder::warpThreads);
  for (int64_t block = 0; block != ofGroup; ++block)
    b.when(blocks.isThere[block], [&] {
      storePartialSums(b, partialSums,
                       {b.block[0], window.ordinal, b.add(blocks.first, block)},
                       /*fragment=*/b.mul(warp, blockExtent / fragmentCols),
                       unpackSums(b, sums[block]));
    });
}

void ClusterEmitter::consume() {
  Value zero = b.zeros(1).front();
  forWindows([&](const WindowRange &window, Stage &stage) {
    Blocks blocks = findBlocks(window);
    SmallVector<Value> sums;
    for (int64_t block = 0; block != ofGroup; ++block)
      llvm::append_range(sums, single.fillRows({zero, zero}));
    sums = ring.consume({window.low, window.high}, stage, sums,
                        [&](Value, Value begin, ValueRange, ValueRange sums) {
                          return multiplyStep(begin, blocks, sums);
                        });
    store(window, blocks, sums);
  });
}

void ClusterEmitter::emit() {
  // All thread blocks of the cluster follow one order of stages.
  ring.split(
      consumers, b.less(b.constant(consumers - 1), b.thread),
      [&] { consume(); }, [&] { produce(); });
}

void bsr::gpu::emitClusterSDDMM(OpBuilder &b, KernelBody &kernel, SDDMMOp op,
                                const SDDMMShape &shape, const SDDMMTile &tile,
                                ValueRange scratch) {
  std::array<int64_t, 2> box{blockExtent, tile.tokens};
  ClusterEmitter::Operands operands;
  operands.rows =
      ActivationBoxes::create(b, kernel, op.getA(), shape.rows, box);
  operands.cols =
      ActivationBoxes::create(b, kernel, op.getB(), shape.cols, box);
  Type type = op.getA().getType().getElementType();
  BlockBuilder::launch(
      b, kernel.loc, {tile.grid * tile.shares, 1},
      consumers + BlockBuilder::warpThreads, tile.getSharedBytes(shape),
      [&](BlockBuilder &block) {
        ClusterEmitter(shape, tile, type, scratch, operands, block).emit();
      },
      {tile.shares, 1});
}
