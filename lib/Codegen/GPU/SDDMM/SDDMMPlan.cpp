// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which stored blocks of a pattern a thread block computes at one time.

#include "SDDMMPlan.h"
#include "bsr/Codegen/GPU/Core/PlanMaker.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr int64_t warps = PlanMaker::threads / BlockBuilder::warpThreads;
/// Shared memory that a block has on every chip.
static constexpr int64_t leastShared = 48 * 1024;

/// The most windows that are full of blocks, of `stored` blocks.
static int64_t getMostFull(const SDDMMPlan &windows, int64_t stored) {
  // One that is full has more than `blocks - lines`, and with the next one's
  // more than `blocks`.
  return std::min(stored / (windows.blocks - windows.lines + 1),
                  2 * stored / (windows.blocks + 1) + 1);
}

int64_t SDDMMPlan::getMaxOfGroup() const {
  int64_t stored = std::min(lines * length, slots);
  return std::min(length, stored) / slabs + getMostFull(*this, stored) + 1;
}

int64_t SDDMMPlan::getMax() const {
  int64_t groups = getNumGroups();
  int64_t united = std::min(groups * length, slots);
  int64_t full =
      std::min(slots / (blocks - lines + 1), 2 * slots / (blocks + 1) + groups);
  return std::min(groups * getMaxOfGroup(), united / slabs + full + groups);
}

int64_t SDDMMPlan::getMarkers(int64_t sharedBytes) const {
  for (int64_t markers = std::min(warps, lines); markers > 1; markers /= 2)
    if (getSharedBytes(markers) + BlockBuilder::sharedSymbolBytes <=
        sharedBytes)
      return markers;
  return 1;
}

bool SDDMMPlan::fits(int64_t sharedBytes) const {
  int64_t windows = getMaxOfGroup();
  int64_t most = std::max({slabs, blocks, lines});
  return lines <= mostLines && lines <= blocks && slabs < wordBase &&
         getSharedBytes(/*markers=*/1) + BlockBuilder::sharedSymbolBytes <=
             sharedBytes &&
         windows < wordBase / 2 &&
         getNumGroups() * windows <= INT32_MAX / most &&
         numLines * length <= INT32_MAX &&
         (shares == 1 ||
          (length < INT32_MAX / (copyBase * copyBase) && shares <= 8 &&
           buffers < 32 && buffers >= lines + getOfShare()));
}

SmallVector<MemRefType> SDDMMPlan::getTypes(MLIRContext *context) const {
  Type i32 = IntegerType::get(context, 32);
  int64_t groups = getNumGroups(), windows = getMaxOfGroup();
  SmallVector<MemRefType> types{MemRefType::get(groups, i32)};
  for (int64_t extent : {int64_t(2), slabs, blocks, lines, lines})
    types.push_back(MemRefType::get({groups, windows * extent}, i32));
  types.push_back(MemRefType::get({numLines, length}, i32));
  if (shares != 1) {
    types.push_back(MemRefType::get(groups, i32));
    for (int64_t extent : {lines, blocks, shares})
      types.push_back(MemRefType::get({groups, windows * extent}, i32));
  }
  return types;
}

Value SDDMMPlan::countBefore(BlockBuilder &b, Value counts, Value group) {
  Value zero = b.constant(0);
  return b.loop(zero, group, 1, zero, [&](Value at, ValueRange carried) {
    return SmallVector<Value>{
        b.add(carried[0], b.load(counts, ValueRange{at}))};
  })[0];
}

Value SDDMMPlan::getBlocks(BlockBuilder &b, Value count, Value rank) const {
  Value share = getShare(b, count);
  Value before = arith::MulIOp::create(b.b, b.loc, rank, share);
  return b.min(b.sub(b.max(count, before), before), share);
}

namespace mlir::bsr::gpu {
/// The launch that finds windows: a thread block finds those of a group.
class SDDMMPlanner : PlanMaker {
public:
  SDDMMPlanner(const SDDMMPlan &windows, int64_t markers, BlockBuilder &b,
               const PatternView &view, ValueRange arrays)
      : PlanMaker(b, view), windows(windows), markers(markers), arrays(arrays),
        padded(llvm::alignTo(windows.length, 4)) {}

  void emit() {
    clear();
    b.barrier();
    markLines();
    uniteMarks();
    b.barrier();
    b.when(b.equal(b.thread, b.constant(0)), [&] { cutWindows(); });
    b.barrier();
    numWindows = b.load(arrays[SDDMMPlan::Counts], group);
    listPositions();
    b.barrier();
    countBlocks();
    b.barrier();
    addBlocks();
    b.barrier();
    if (windows.shares != 1) {
      addCosts();
      shareBlocks();
    }
    listBlocks();
    if (windows.shares != 1) {
      b.barrier();
      assignBlocks();
    }
  }

private:
  Value read(SDDMMPlan::Array array, Value at) {
    return b.load(arrays[array], ValueRange{group, at});
  }
  void write(Value value, SDDMMPlan::Array array, Value at) {
    b.store(value, arrays[array], ValueRange{group, at});
  }
  /// In shared memory, of each position: the lines that store a block there, a
  /// bit each; how many they are, and then the number of its window times
  /// `wordBase` plus its number in it; and the lines that a marker has noted.
  Value getLines(Value position) { return b.at(b.mul(position, 4)); }
  Value getLocation(Value position) {
    return b.at(b.add(b.mul(position, 4), 4 * padded));
  }
  Value getMark(Value marker, Value position) {
    Value begin = b.multiplyAdd(marker, 4 * padded, b.constant(8 * padded));
    return b.at(b.multiplyAdd(position, 4, begin));
  }
  /// Calls `body` for each line of the group, which is a marker's, its number
  /// in all, and its blocks, each in one lane: where a block lies in the index
  /// arrays, and where the line begins there.
  void forBlocks(
      llvm::function_ref<void(Value line, Value number, Value at, Value low)>
          body) {
    Value marker = b.div(b.thread, threads / markers);
    Value lane = b.rem(b.thread, threads / markers);
    int64_t passes = windows.lines / markers;
    b.loop(
        b.constant(0), b.constant(passes), 1, {}, [&](Value pass, ValueRange) {
          Value line = b.multiplyAdd(pass, markers, marker);
          Value number = b.multiplyAdd(group, windows.lines, line);
          b.when(b.less(number, b.constant(windows.numLines)), [&] {
            forLine(number, lane, threads / markers,
                    [&](Value at, Value low) { body(line, number, at, low); });
          });
          b.barrier();
          return SmallVector<Value>();
        });
  }

  void clear() {
    Value zero = b.constant(0);
    forEach(padded * markers,
            [&](Value at) { b.storeShared(zero, getMark(zero, at)); });
  }

  /// A marker notes one line after the other: no two threads have one word.
  void markLines() {
    Value marker = b.div(b.thread, threads / markers);
    forBlocks([&](Value line, Value, Value at, Value) {
      Value mark = getMark(marker, readPattern(idx, at));
      Value bit = b.shiftLeft(b.constant(1), line);
      b.storeShared(b.bitOr(b.load(mark, i32), bit), mark);
    });
  }

  void uniteMarks() {
    forEach(padded, [&](Value position) {
      Value lines = b.load(getMark(b.constant(0), position), i32);
      for (int64_t marker = 1; marker != markers; ++marker)
        lines =
            b.bitOr(lines, b.load(getMark(b.constant(marker), position), i32));
      b.storeShared(lines, getLines(position));
      b.storeShared(b.countOnes(lines), getLocation(position));
    });
  }

  /// One thread: which window a position is in depends on those before.
  void cutWindows() {
    constexpr int64_t together = 4;
    Value zero = b.constant(0);
    SmallVector<Value> last =
        b.loop(zero, b.constant(padded), together, {zero, zero, zero},
               [&](Value first, ValueRange carried) {
                 SmallVector<Value> counts =
                     b.loadIntegers(getLocation(first), together);
                 SmallVector<Value> next(carried);
                 for (auto [i, count] : llvm::enumerate(counts))
                   next = addPosition(b.add(first, i), count, next);
                 return next;
               });
    // A group without blocks has no window.
    Value isEmpty = b.equal(last[2], zero);
    b.store(b.select(isEmpty, zero, b.add(last[0], 1)),
            arrays[SDDMMPlan::Counts], group);
  }

  /// Adds `position`, with `count` blocks, to the last window or to the next:
  /// `state` has its number, and the positions and blocks in it.
  SmallVector<Value> addPosition(Value position, Value count,
                                 ValueRange state) {
    Value zero = b.constant(0);
    Value window = state[0], slabs = state[1], blocks = state[2];
    Value fits =
        b.bitAnd(b.less(slabs, b.constant(windows.slabs)),
                 b.less(b.add(blocks, count), b.constant(windows.blocks + 1)));
    window = b.select(fits, window, b.add(window, 1));
    slabs = b.select(fits, slabs, zero);
    blocks = b.add(b.select(fits, blocks, zero), count);
    return b.when(b.less(zero, count), state, [&]() -> SmallVector<Value> {
      b.storeShared(b.multiplyAdd(window, SDDMMPlan::wordBase, slabs),
                    getLocation(position));
      Value after = b.add(slabs, 1);
      write(after, SDDMMPlan::Sizes, b.mul(window, 2));
      write(blocks, SDDMMPlan::Sizes, b.add(b.mul(window, 2), 1));
      return {window, after, blocks};
    });
  }

  void listPositions() {
    forEach(windows.length, [&](Value position) {
      Value lines = b.load(getLines(position), i32);
      b.when(b.less(b.constant(0), b.countOnes(lines)), [&] {
        Value location = b.load(getLocation(position), i32);
        Value at = b.multiplyAdd(SDDMMPlan::getLine(b, location), windows.slabs,
                                 SDDMMPlan::getSlab(b, location));
        write(position, SDDMMPlan::Positions, at);
      });
    });
    forEach(b.mul(numWindows, windows.blocks), [&](Value at) {
      write(b.constant(0), SDDMMPlan::Words, at);
      if (windows.shares != 1)
        write(b.constant(0), SDDMMPlan::Copies, at);
    });
  }

  /// Of each window and line: its blocks, and the blocks of lines before it.
  void countBlocks() {
    forEach(b.mul(numWindows, windows.lines), [&](Value at) {
      Value window = b.div(at, windows.lines), line = b.rem(at, windows.lines);
      Value one = b.constant(1), zero = b.constant(0);
      Value below = b.sub(b.shiftLeft(one, line), one);
      SmallVector<Value> counts =
          b.loop(zero, read(SDDMMPlan::Sizes, b.mul(window, 2)), 1,
                 {zero, zero}, [&](Value slab, ValueRange carried) {
                   Value position =
                       read(SDDMMPlan::Positions,
                            b.multiplyAdd(window, windows.slabs, slab));
                   Value lines = b.load(getLines(position), i32);
                   Value own = b.bitAnd(b.shiftRight(lines, line), one);
                   Value before = b.countOnes(b.bitAnd(lines, below));
                   return SmallVector<Value>{b.add(carried[0], before),
                                             b.add(carried[1], own)};
                 });
      write(counts[0], SDDMMPlan::Firsts, at);
      write(counts[1], SDDMMPlan::Owned, at);
      if (windows.shares != 1)
        writeRow(window, counts[0], counts[1], at);
    });
  }

  /// Where a window has blocks of a line, there are some of it in windows
  /// before.
  void addBlocks() {
    forEach(windows.lines, [&](Value line) {
      b.loop(b.constant(0), numWindows, 1, b.constant(0),
             [&](Value window, ValueRange carried) {
               Value at = b.multiplyAdd(window, windows.lines, line);
               Value first = read(SDDMMPlan::Firsts, at);
               write(b.sub(first, carried[0]), SDDMMPlan::Firsts, at);
               return SmallVector<Value>{
                   b.add(carried[0], read(SDDMMPlan::Owned, at))};
             });
    });
  }

  /// How many blocks of `window` a thread block has, but the last ones.
  Value getShare(Value window) {
    Value count = read(SDDMMPlan::Sizes, b.add(b.mul(window, 2), 1));
    return windows.getShare(b, count);
  }
  Value divide(Value x, Value y) {
    return arith::DivUIOp::create(b.b, b.loc, x, y);
  }

  void addCosts() {
    b.when(b.equal(b.thread, b.constant(0)), [&] {
      Value all = b.loop(b.constant(0), numWindows, 1, b.constant(0),
                         [&](Value window, ValueRange carried) {
                           Value size = read(SDDMMPlan::Sizes,
                                             b.add(b.mul(window, 2), 1));
                           return SmallVector<Value>{
                               b.add(carried[0], windows.getCost(b, size))};
                         })[0];
      b.store(all, arrays[SDDMMPlan::Costs], group);
    });
  }

  /// Of a line with `own` blocks in `window`, behind `before` ones.
  void writeRow(Value window, Value before, Value own, Value at) {
    Value zero = b.constant(0), one = b.constant(1);
    Value share = getShare(window);
    Value first = divide(before, share);
    Value last = divide(b.sub(b.add(before, own), one), share);
    Value mask =
        b.sub(b.shiftLeft(b.constant(2), last), b.shiftLeft(one, first));
    write(b.select(b.less(zero, own), mask, zero), SDDMMPlan::Rows, at);
  }

  /// A block: its window, and its number there.
  struct Block {
    Value window, number;
  };
  Block getBlock(Value line, Value position, Value inLine) {
    Value location = b.load(getLocation(position), i32);
    Value window = SDDMMPlan::getLine(b, location);
    Value first =
        read(SDDMMPlan::Firsts, b.multiplyAdd(window, windows.lines, line));
    return {window, b.add(first, inLine)};
  }

  /// What thread blocks need at a position, in shared memory: a bit of
  /// each; then, times `copyBase`, one more than the buffer that is common, or
  /// 0.
  Value getNeeds(Value position) { return getMark(b.constant(0), position); }

  /// Finds what thread blocks need, and buffers of what they share.
  void shareBlocks() {
    clear();
    b.barrier();
    Value marker = b.div(b.thread, threads / markers);
    forBlocks([&](Value line, Value, Value at, Value low) {
      Value position = readPattern(idx, at);
      Block block = getBlock(line, position, b.sub(at, low));
      Value rank = divide(block.number, getShare(block.window));
      Value mark = getMark(marker, position);
      Value bit = b.shiftLeft(b.constant(1), rank);
      b.storeShared(b.bitOr(b.load(mark, i32), bit), mark);
    });
    forEach(padded, [&](Value position) {
      Value needs = b.load(getNeeds(position), i32);
      for (int64_t other = 1; other != markers; ++other)
        needs =
            b.bitOr(needs, b.load(getMark(b.constant(other), position), i32));
      b.storeShared(needs, getNeeds(position));
    });
    b.barrier();
    forEach(numWindows, [&](Value window) { shareWindow(window); });
    b.barrier();
  }

  /// One thread: what is free depends on the lines and positions before.
  void shareWindow(Value window) {
    Value zero = b.constant(0), one = b.constant(1);
    SmallVector<Value> free(windows.shares,
                            b.constant((int64_t(1) << windows.buffers) - 1));
    free = b.loop(zero, b.constant(windows.lines), 1, free,
                  [&](Value line, ValueRange free) {
                    Value at = b.multiplyAdd(window, windows.lines, line);
                    Value mask = read(SDDMMPlan::Rows, at);
                    SmallVector<Value> next(free);
                    Value buffer = takeBuffer(mask, next);
                    write(b.multiplyAdd(buffer, SDDMMPlan::copyBase, mask),
                          SDDMMPlan::Rows, at);
                    return next;
                  });
    Value count = read(SDDMMPlan::Sizes, b.mul(window, 2));
    free = b.loop(zero, count, 1, free, [&](Value slab, ValueRange free) {
      Value position = read(SDDMMPlan::Positions,
                            b.multiplyAdd(window, windows.slabs, slab));
      Value lines = b.load(getLines(position), i32);
      return b.when(b.less(one, b.countOnes(lines)), free, [&] {
        Value needs = b.load(getNeeds(position), i32);
        SmallVector<Value> next(free);
        Value buffer = takeBuffer(needs, next);
        Value common = b.select(b.less(buffer, zero), zero, b.add(buffer, 1));
        b.storeShared(b.multiplyAdd(common, SDDMMPlan::copyBase, needs),
                      getNeeds(position));
        return next;
      });
    });
    for (auto [rank, mask] : llvm::enumerate(free))
      write(mask, SDDMMPlan::Free,
            b.multiplyAdd(window, windows.shares, b.constant(rank)));
  }

  /// Takes the first buffer that is free in all thread blocks of `mask` off
  /// what is `free` in each; -1 if there is none.
  Value takeBuffer(Value mask, MutableArrayRef<Value> free) {
    Value zero = b.constant(0), one = b.constant(1);
    Value all = b.constant((int64_t(1) << windows.buffers) - 1);
    SmallVector<Value> needed;
    for (auto [rank, ofRank] : llvm::enumerate(free)) {
      Value bit = b.bitAnd(b.shiftRight(mask, b.constant(rank)), one);
      needed.push_back(b.equal(bit, one));
      all = b.bitAnd(all, b.select(needed.back(), ofRank, all));
    }
    Value taken = b.bitAnd(all, b.sub(zero, all));
    for (auto [ofRank, isNeeded] : llvm::zip_equal(free, needed))
      ofRank = b.bitXor(ofRank, b.select(isNeeded, taken, zero));
    // The number of the lowest bit.
    return b.select(b.equal(taken, zero), b.constant(-1),
                    b.countOnes(b.sub(taken, one)));
  }

  /// The number that block `number` of `window` has if each thread block
  /// has room for as many, and what is copied with it, to the common buffer or,
  /// for now, to none.
  Value listCopy(const Block &block, Value line, Value position,
                 Value &common) {
    Value share = getShare(block.window), zero = b.constant(0);
    Value rank = divide(block.number, share);
    Value inShare =
        b.sub(block.number, arith::MulIOp::create(b.b, b.loc, rank, share));
    Value number = b.multiplyAdd(rank, windows.getOfShare(), inShare);
    Value needs = b.load(getNeeds(position), i32);
    common = b.div(needs, SDDMMPlan::copyBase);
    // The first line of those that share a copy has it copied.
    Value lines = b.load(getLines(position), i32);
    Value isFirst = b.equal(b.countTrailingZeros(lines), line);
    Value ofFirst = b.select(isFirst, b.rem(needs, SDDMMPlan::copyBase), zero);
    Value mask = b.select(b.less(zero, common), ofFirst,
                          b.shiftLeft(b.constant(1), rank));
    constexpr int64_t base = SDDMMPlan::copyBase;
    write(b.multiplyAdd(position, base * base, mask), SDDMMPlan::Copies,
          b.multiplyAdd(block.window, windows.blocks, number));
    return number;
  }

  /// Gives those blocks buffers of their own that have no common one, and says
  /// where lines lie.
  void assignBlocks() {
    constexpr int64_t base = SDDMMPlan::copyBase;
    forEach(b.mul(numWindows, windows.shares), [&](Value ofThreads) {
      Value window = b.div(ofThreads, windows.shares);
      Value rank = b.rem(ofThreads, windows.shares);
      Value all = read(SDDMMPlan::Sizes, b.add(b.mul(window, 2), 1));
      Value first = b.mul(ofThreads, windows.getOfShare());
      b.loop(b.constant(0), windows.getBlocks(b, all, rank), 1,
             read(SDDMMPlan::Free, ofThreads),
             [&](Value number, ValueRange carried) {
               Value free = carried.front();
               Value at = b.add(first, number);
               Value word = read(SDDMMPlan::Words, at);
               Value common = SDDMMPlan::getSlab(b, word);
               Value isOwn = b.equal(common, b.constant(0));
               Value own = b.countTrailingZeros(free);
               Value buffer =
                   b.select(isOwn, own, b.sub(common, b.constant(1)));
               Value line = b.multiplyAdd(window, windows.lines,
                                          SDDMMPlan::getLine(b, word));
               Value rows =
                   SDDMMPlan::getBuffer(b, read(SDDMMPlan::Rows, line));
               write(b.multiplyAdd(rows, SDDMMPlan::wordBase, buffer),
                     SDDMMPlan::Words, at);
               write(b.multiplyAdd(buffer, base, read(SDDMMPlan::Copies, at)),
                     SDDMMPlan::Copies, at);
               Value rest = b.bitAnd(free, b.add(free, -1));
               return SmallVector<Value>{b.select(isOwn, rest, free)};
             });
    });
  }

  void listBlocks() {
    forBlocks([&](Value line, Value number, Value at, Value low) {
      Value position = readPattern(idx, at);
      Value inLine = b.sub(at, low);
      Block found = getBlock(line, position, inLine);
      Value slab = SDDMMPlan::getSlab(b, b.load(getLocation(position), i32));
      if (windows.shares != 1)
        found.number = listCopy(found, line, position, slab);
      Value block = b.multiplyAdd(found.window, windows.blocks, found.number);
      write(b.multiplyAdd(line, SDDMMPlan::wordBase, slab), SDDMMPlan::Words,
            block);
      b.store(block, arrays[SDDMMPlan::Locations], ValueRange{number, inLine});
    });
  }

  const SDDMMPlan &windows;
  int64_t markers;
  ValueRange arrays;
  /// Positions, and a few more that no line has.
  int64_t padded;
  Value numWindows;
};
} // namespace mlir::bsr::gpu

void SDDMMPlan::emit(OpBuilder &b, Location loc, const PatternView &view,
                     ValueRange arrays) const {
  int64_t markers = getMarkers(leastShared);
  BlockBuilder::launch(
      b, loc, {getNumGroups(), 1}, PlanMaker::threads, getSharedBytes(markers),
      [&](BlockBuilder &block) {
        SDDMMPlanner(*this, markers, block, view, arrays).emit();
      });
}
