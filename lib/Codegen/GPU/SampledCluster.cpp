// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations by clusters and warpgroups.
//
// The blocks of threads of a cluster share the blocks of a window. One warp of
// each copies, by tensor copies: its part of the rows of the window's lines,
// each to those that have blocks of the line, and the columns of its own
// blocks, to others, too, where these have blocks there. Two warpgroups
// multiply out of shared memory and keep the sums of up to four blocks each:
// two that follow each other in a line, and whose columns lie so, together.

#include "SampledCluster.h"
#include "WindowShare.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;

static constexpr int64_t consumers = WindowTile::warpgroups * warpgroupThreads;
static constexpr int64_t blockExtent = WindowTile::clusterExtent;
/// Sums that a thread has of a block, and of two.
static constexpr int64_t blockSums =
    blockExtent * blockExtent / warpgroupThreads;
/// Of a fragment.
static constexpr int64_t fragmentSums = 4;

namespace {
/// What a thread does.
class ClusterEmitter {
public:
  ClusterEmitter(const SampledShape &shape, const WindowTile &tile, Type type,
                 ValueRange scratch, Value rowsMap, Value colsMap,
                 BlockBuilder &b)
      : shape(shape), tile(tile), windows(tile.getWindows(shape)), type(type),
        arrays(scratch.drop_back()), parts(scratch.back()), rowsMap(rowsMap),
        colsMap(colsMap), b(b),
        shares(b, tile, shape, windows, arrays[SampledWindows::Counts]),
        ring(b, tile.stages, tile.getStageBytes(shape)),
        rank(b.rem(b.block[0], tile.shares)), ofThreads(windows.getOfShare()),
        // What bsr-verify-kernels knows of threads is how many there are.
        warpgroup(
            b.rem(b.div(b.thread, warpgroupThreads), WindowTile::warpgroups)) {}

  void emit();

private:
  using Stage = StageRing::Stage;
  /// A copy of each step that a lane begins, if `blocks` are some: from which
  /// map, where its rows begin in a batch, and where it goes to in a stage.
  struct Copy {
    Value isRow, row, to, blocks;
  };
  /// What a warpgroup has of a window: how many blocks, and the number of the
  /// first one in the block of threads. Of each block, where the rows and the
  /// columns begin in a stage, and of two whether they are multiplied together,
  /// or alone.
  struct Blocks {
    Value first, count;
    SmallVector<Value> rows, cols, together, isAlone;
  };

  /// Entry `at` of `window` in an array that has `each` of a window.
  Value load(SampledWindows::Array array, const WindowPart &window,
             int64_t each, Value at) {
    return b.load(
        arrays[array],
        ValueRange{window.group, b.multiplyAdd(window.number, each, at)});
  }
  /// Word `number` of the block of threads `rank`.
  Value loadWord(SampledWindows::Array array, const WindowPart &window,
                 Value number) {
    return load(array, window, windows.blocks,
                b.multiplyAdd(rank, ofThreads, number));
  }
  Value countBlocks(const WindowPart &window);
  /// Calls `body` for all steps of all windows of the cluster, in a ring of
  /// stages; `begin` and `end` for a window, with what it carries.
  void
  forSteps(llvm::function_ref<SmallVector<Value>(const WindowPart &)> begin,
           llvm::function_ref<SmallVector<Value>(Value step, Stage, ValueRange)>
               body,
           llvm::function_ref<void(const WindowPart &, ValueRange)> end);

  Copy findCopy(const WindowPart &window);
  Value countBytes(const WindowPart &window);
  void copyStep(Value step, Stage stage, const Copy &copy, Value bytes);
  void produce();

  Blocks findBlocks(const WindowPart &window);
  SmallVector<Value> multiplyStep(Stage stage, const Blocks &blocks,
                                  ValueRange pairs);
  Value multiplyPair(Value begin, const Blocks &blocks, int64_t pair,
                     Value sums);
  WarpgroupOperand getOperand(Value at);
  void release(Stage stage);
  void store(const WindowPart &window, const Blocks &blocks, ValueRange pairs);
  void consume();

  const SampledShape &shape;
  const WindowTile &tile;
  SampledWindows windows;
  Type type;
  ValueRange arrays;
  Value parts, rowsMap, colsMap;
  BlockBuilder &b;
  WindowShares shares;
  StageRing ring;
  /// The block of threads in its cluster.
  Value rank;
  /// Blocks that one block of threads has room for.
  int64_t ofThreads;
  Value warpgroup;
};
} // namespace

void ClusterEmitter::forSteps(
    llvm::function_ref<SmallVector<Value>(const WindowPart &)> begin,
    llvm::function_ref<SmallVector<Value>(Value, Stage, ValueRange)> body,
    llvm::function_ref<void(const WindowPart &, ValueRange)> end) {
  Stage start = ring.getFirst();
  shares.forWindows(
      b.div(b.block[0], tile.shares), {start.number, start.parity},
      [&](const WindowPart &window, ValueRange carried) {
        SmallVector<Value> all(carried);
        llvm::append_range(all, begin(window));
        SmallVector<Value> last =
            b.loop(window.low, window.high, 1, all,
                   [&](Value step, ValueRange carried) {
                     Stage stage{carried[0], carried[1]};
                     SmallVector<Value> own =
                         body(step, stage, carried.drop_front(2));
                     Stage next = ring.getNext(stage);
                     SmallVector<Value> result{next.number, next.parity};
                     llvm::append_range(result, own);
                     return result;
                   });
        end(window, ValueRange(last).drop_front(2));
        last.truncate(2);
        return last;
      });
}

Value ClusterEmitter::countBlocks(const WindowPart &window) {
  Value all = load(SampledWindows::Sizes, window, 2, b.constant(1));
  Value share = b.div(b.add(all, tile.shares - 1), tile.shares);
  Value before = arith::MulIOp::create(b.b, b.loc, rank, share);
  Value rest = b.sub(b.max(all, before), before);
  return b.min(rest, share);
}

ClusterEmitter::Copy ClusterEmitter::findCopy(const WindowPart &window) {
  // The first lanes have blocks, the next ones lines.
  Value isRow = b.less(b.constant(ofThreads - 1), b.lane);
  Value number = b.min(b.lane, b.constant(ofThreads - 1));
  Value copy = loadWord(SampledWindows::Copies, window, number);
  Value inOrder = b.max(b.sub(b.lane, b.constant(ofThreads)), b.constant(0));
  Value line = b.multiplyAdd(inOrder, tile.shares, rank);
  Value isLine = b.less(line, b.constant(tile.lines));
  line = b.min(line, b.constant(tile.lines - 1));
  Value lineMask = load(SampledWindows::RowMasks, window, tile.lines, line);
  lineMask = b.select(isLine, lineMask, b.constant(0));
  Value row = b.select(isRow, b.multiplyAdd(window.group, tile.lines, line),
                       SampledWindows::getPosition(b, copy));
  Value place = b.select(isRow, line,
                         b.add(SampledWindows::getPlace(b, copy), tile.lines));
  return {isRow, b.mul(row, blockExtent),
          b.mul(place, tile.getSlabBytes(shape)),
          b.select(isRow, lineMask, SampledWindows::getMask(b, copy))};
}

Value ClusterEmitter::countBytes(const WindowPart &window) {
  Value zero = b.constant(0), one = b.constant(1);
  Value count = countBlocks(window);
  // Common places count once.
  Value own = zero, common = zero;
  for (int64_t number = 0; number != ofThreads; ++number) {
    Value word = loadWord(SampledWindows::Words, window, b.constant(number));
    Value place = SampledWindows::getSlab(b, word);
    Value isThere = b.less(b.constant(number), count);
    Value isOwn = b.less(place, b.constant(ofThreads));
    own = b.add(own, b.select(b.bitAnd(isThere, isOwn), one, zero));
    Value bit = b.select(isOwn, zero, b.shiftLeft(one, place));
    common = b.bitOr(common, b.select(isThere, bit, zero));
  }
  Value copies = b.add(own, b.countOnes(common));
  for (int64_t line = 0; line != tile.lines; ++line) {
    Value mask =
        load(SampledWindows::RowMasks, window, tile.lines, b.constant(line));
    copies = b.add(copies, b.bitAnd(b.shiftRight(mask, rank), one));
  }
  return b.mul(copies, tile.getSlabBytes(shape));
}

void ClusterEmitter::copyStep(Value step, Stage stage, const Copy &copy,
                              Value bytes) {
  ring.waitForEmpty(stage);
  Value full = ring.getFull(stage);
  b.when(b.equal(b.lane, b.constant(0)), [&] { expectBytes(b, full, bytes); });
  StepTokens tokens = getStepTokens(b, tile, shape, step);
  Value to = b.at(b.add(ring.getBegin(stage), copy.to));
  Value isCopied = b.less(b.constant(0), copy.blocks);
  auto copyFrom = [&](Value map, const Activations &x) {
    Value row = b.multiplyAdd(tokens.batch, x.features, copy.row);
    copyBox(b, to, map, row, tokens.first, full, copy.blocks);
  };
  Value isTrue = b.equal(b.constant(0), b.constant(0));
  b.when(b.bitAnd(isCopied, copy.isRow),
         [&] { copyFrom(rowsMap, shape.rows); });
  b.when(b.bitAnd(isCopied, b.bitXor(copy.isRow, isTrue)),
         [&] { copyFrom(colsMap, shape.cols); });
}

void ClusterEmitter::produce() {
  Copy copy;
  Value bytes;
  forSteps(
      [&](const WindowPart &window) {
        copy = findCopy(window);
        bytes = countBytes(window);
        return SmallVector<Value>();
      },
      [&](Value step, Stage stage, ValueRange) {
        copyStep(step, stage, copy, bytes);
        return SmallVector<Value>();
      },
      [](const WindowPart &, ValueRange) {});
}

ClusterEmitter::Blocks ClusterEmitter::findBlocks(const WindowPart &window) {
  Value all = countBlocks(window);
  Value half = b.div(b.add(all, 1), WindowTile::warpgroups);
  Blocks blocks;
  Value isSecond = b.less(b.constant(0), warpgroup);
  blocks.first = b.select(isSecond, half, b.constant(0));
  blocks.count = b.select(isSecond, b.sub(all, half), half);
  int64_t bytes = tile.getSlabBytes(shape);
  int64_t most = ofThreads / WindowTile::warpgroups;
  SmallVector<Value> lines, places;
  for (int64_t block = 0; block != most; ++block) {
    Value number = b.min(b.add(blocks.first, block), b.constant(ofThreads - 1));
    Value word = loadWord(SampledWindows::Words, window, number);
    lines.push_back(SampledWindows::getLine(b, word));
    places.push_back(SampledWindows::getSlab(b, word));
    blocks.rows.push_back(b.mul(lines.back(), bytes));
    blocks.cols.push_back(b.mul(b.add(places.back(), tile.lines), bytes));
  }
  for (int64_t block = 0; block != most; block += 2) {
    Value areSide =
        b.bitAnd(b.equal(lines[block], lines[block + 1]),
                 b.equal(b.add(places[block], 1), places[block + 1]));
    Value together =
        b.bitAnd(areSide, b.less(b.constant(block + 1), blocks.count));
    blocks.together.push_back(together);
    Value isTrue = b.equal(b.constant(0), b.constant(0));
    for (int64_t i = 0; i != 2; ++i)
      blocks.isAlone.push_back(
          b.bitAnd(b.bitXor(together, isTrue),
                   b.less(b.constant(block + i), blocks.count)));
  }
  return blocks;
}

WarpgroupOperand ClusterEmitter::getOperand(Value at) {
  constexpr int64_t rowsTogether = 8;
  return {b.at(at), tile.getPitch(), /*isTransposed=*/false,
          rowsTogether * tile.getPitch(), tile.getSlabBytes(shape)};
}

Value ClusterEmitter::multiplyPair(Value begin, const Blocks &blocks,
                                   int64_t pair, Value sums) {
  int64_t depth = tile.getPitch() / fragmentBytes;
  auto getRows = [&](int64_t block) {
    return getOperand(b.add(begin, blocks.rows[block]));
  };
  auto getCols = [&](int64_t block) {
    return getOperand(b.add(begin, blocks.cols[block]));
  };
  sums = b.when(blocks.together[pair], sums, [&]() -> SmallVector<Value> {
    return {multiplyAdd(b, type, getRows(2 * pair), getCols(2 * pair),
                        2 * blockExtent, depth, sums)};
  })[0];
  Value zero =
      arith::ConstantOp::create(b.b, b.loc, b.b.getZeroAttr(b.b.getF32Type()));
  for (int64_t i = 0; i != 2; ++i) {
    int64_t block = 2 * pair + i;
    sums = b.when(blocks.isAlone[block], sums, [&]() -> SmallVector<Value> {
      Value own = createSums(b, blockExtent, {zero, zero});
      for (int64_t sum = 0; sum != blockSums; ++sum) {
        Value one =
            LLVM::ExtractValueOp::create(b.b, b.loc, sums, i * blockSums + sum);
        own = LLVM::InsertValueOp::create(b.b, b.loc, own, one, sum);
      }
      own = multiplyAdd(b, type, getRows(block), getCols(block), blockExtent,
                        depth, own);
      Value all = sums;
      for (int64_t sum = 0; sum != blockSums; ++sum) {
        Value one = LLVM::ExtractValueOp::create(b.b, b.loc, own, sum);
        all = LLVM::InsertValueOp::create(b.b, b.loc, all, one,
                                          i * blockSums + sum);
      }
      return {all};
    })[0];
  }
  return sums;
}

void ClusterEmitter::release(Stage stage) {
  Value barrier = ring.getEmpty(stage);
  b.when(b.equal(b.lane, b.constant(0)), [&] {
    for (int64_t other = 0; other != tile.shares; ++other)
      arriveAt(b, barrier, b.constant(other));
  });
}

SmallVector<Value> ClusterEmitter::multiplyStep(Stage stage,
                                                const Blocks &blocks,
                                                ValueRange pairs) {
  ring.waitForFull(stage);
  Value begin = ring.getBegin(stage);
  SmallVector<Value> next;
  for (auto [pair, sums] : llvm::enumerate(pairs))
    next.push_back(multiplyPair(begin, blocks, int64_t(pair), sums));
  release(stage);
  return next;
}

void ClusterEmitter::store(const WindowPart &window, const Blocks &blocks,
                           ValueRange pairs) {
  auto vector = VectorType::get(fragmentSums, b.b.getF32Type());
  Value warp = b.rem(b.warp, warpgroupThreads / BlockBuilder::warpThreads);
  constexpr int64_t colTiles = blockExtent / fragmentCols;
  int64_t most = ofThreads / WindowTile::warpgroups;
  for (int64_t block = 0; block != most; ++block)
    b.when(b.less(b.constant(block), blocks.count), [&] {
      Value number = b.add(blocks.first, block);
      for (int64_t col = 0; col != colTiles; ++col) {
        SmallVector<Value> four;
        for (int64_t sum = 0; sum != fragmentSums; ++sum)
          four.push_back(LLVM::ExtractValueOp::create(
              b.b, b.loc, pairs[block / 2],
              block % 2 * blockSums + col * fragmentSums + sum));
        b.store(vector::FromElementsOp::create(b.b, b.loc, vector, four), parts,
                ValueRange{b.block[0], window.part, number,
                           b.multiplyAdd(warp, colTiles, b.constant(col)),
                           b.lane, b.constant(0)});
      }
    });
}

void ClusterEmitter::consume() {
  Blocks blocks;
  Value zero =
      arith::ConstantOp::create(b.b, b.loc, b.b.getZeroAttr(b.b.getF32Type()));
  forSteps(
      [&](const WindowPart &window) {
        blocks = findBlocks(window);
        int64_t most = ofThreads / WindowTile::warpgroups;
        SmallVector<Value> pairs;
        for (int64_t block = 0; block != most; block += 2)
          pairs.push_back(createSums(b, 2 * blockExtent, {zero, zero}));
        return pairs;
      },
      [&](Value, Stage stage, ValueRange pairs) {
        return multiplyStep(stage, blocks, pairs);
      },
      [&](const WindowPart &window, ValueRange pairs) {
        store(window, blocks, pairs);
      });
}

void ClusterEmitter::emit() {
  // All blocks of threads of the cluster follow one order of stages.
  ring.init(/*readers=*/tile.shares * consumers / BlockBuilder::warpThreads,
            tile.shares);
  b.when(b.less(b.thread, b.constant(consumers)), [&] { consume(); });
  b.when(b.less(b.constant(consumers - 1), b.thread), [&] { produce(); });
  // Others copy to this block of threads, and arrive at its mbarriers.
  ring.waitForAll(tile.shares);
}

void bsr::emitSampledCluster(OpBuilder &b, KernelBody &kernel, SDDMMOp op,
                             const SampledShape &shape, const WindowTile &tile,
                             ValueRange scratch) {
  std::array<int64_t, 2> box{blockExtent, tile.tokens};
  Value rows = createTensorMap(b, kernel.loc, kernel.inputs.lookup(op.getA()),
                               shape.rows.tokens, box);
  Value cols = createTensorMap(b, kernel.loc, kernel.inputs.lookup(op.getB()),
                               shape.cols.tokens, box);
  Type type = op.getA().getType().getElementType();
  BlockBuilder::launch(
      b, kernel.loc, {tile.grid * tile.shares, 1},
      consumers + BlockBuilder::warpThreads, tile.getSharedBytes(shape),
      [&](BlockBuilder &block) {
        ClusterEmitter(shape, tile, type, scratch, rows, cols, block).emit();
      },
      {tile.shares, 1});
}
