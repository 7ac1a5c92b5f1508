// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In which order a thread block goes through the blocks of several lines.

#include "SpMMPlan.h"
#include "bsr/Codegen/GPU/Core/PlanMaker.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

int64_t SpMMPlan::getMaxChunks() const {
  int64_t stored = std::min(lines * length, slots);
  if (isByLine)
    return std::max<int64_t>(1, std::min(length, stored));
  // A chunk that is full of blocks has more than `room - lines`, and with the
  // next one's more than `room`.
  int64_t room = getRoom();
  int64_t full =
      std::min(stored / (room - lines + 1), 2 * stored / (room + 1) + 1);
  return length / slabs + full + 1;
}

int64_t SpMMPlan::getFullChunks() const {
  int64_t stored = std::min(lines * length, slots);
  return std::max(std::min<int64_t>(length / slabs, stored),
                  stored / std::max<int64_t>(1, getRoom()));
}

bool SpMMPlan::fits(int64_t sharedBytes) const {
  int64_t most = std::max(slabs, blocks * getPackedBlocks());
  return getSharedBytes() + BlockBuilder::sharedSymbolBytes <= sharedBytes &&
         getNumGroups() * getMaxChunks() <= INT32_MAX / most;
}

SmallVector<MemRefType> SpMMPlan::getTypes(MLIRContext *context) const {
  Type i32 = IntegerType::get(context, 32);
  int64_t groups = getNumGroups(), chunks = getMaxChunks();
  SmallVector<MemRefType> types{MemRefType::get(groups, i32)};
  for (int64_t extent : {slabs, lines, blocks * getPackedBlocks()})
    types.push_back(MemRefType::get({groups, chunks * extent}, i32));
  if (isByLine)
    types.erase(types.begin() + 2);
  if (numSlices)
    types.append({MemRefType::get(groups, i32),
                  MemRefType::get({groups + numSlices, itemFields}, i32),
                  MemRefType::get({groups, itemFields}, i32)});
  return types;
}

void SpMMPlan::cutLongGroups(const Chip &chip, int64_t blocks, double fullRatio,
                             const KernelWork *work) {
  int64_t groups = getNumGroups();
  itemsAtOnce = chip.multiprocessors / blocks;
  double others = double(groups * blocks) / double(chip.multiprocessors);
  turns = std::lround(others * turnUnits);
  if (groups <= itemsAtOnce)
    others = 0;
  // A launch that all thread blocks share alike, and one with a full group.
  constexpr double noticeable = 1.25;
  if (groups == 1 || others + fullRatio < noticeable * (others + 1))
    return;
  // Every step has the launch that adds slices, also where no group is long: of
  // so many patterns, one is taken to have a group that is full. What cuts is a
  // launch of updates, not of steps.
  constexpr double patternsOfFull = 5;
  double gain = (fullRatio - 1) / (others + 1);
  ModelParameters alone;
  alone.launchSeconds = 0;
  if (work && bound(*work, chip, alone).seconds * gain <
                  patternsOfFull * chip.launchSeconds)
    return;
  constexpr int64_t groupsOfSlice = 2;
  int64_t count = groups / groupsOfSlice + 1;
  // All numbers that SplitK comes to have 32 bits, those of costs 30.
  int64_t chunks = getMaxChunks();
  int64_t all = chunkCost * groups * chunks + blockCost * slots;
  if (all < INT32_MAX / 4 && all / groups * turns < INT32_MAX &&
      chunks * count < INT32_MAX)
    numSlices = count;
}

/// Row `number` of one of the arrays of items.
static SmallVector<Value> loadItem(BlockBuilder &b, Value array, Value number) {
  constexpr int64_t fields = SpMMPlan::itemFields;
  Value row =
      b.at(b.getPointer(array), b.mul(number, fields), b.b.getI32Type());
  return b.loadIntegers(row, fields);
}

std::pair<ChunkRange, Value> SpMMPlan::getItem(BlockBuilder &b, Value number,
                                               ValueRange arrays) const {
  ChunkRange range;
  range.group = range.whole = number;
  if (!numSlices) {
    range.first = b.constant(0);
    range.end = b.load(b.at(b.getPointer(arrays[0]), number, b.b.getI32Type()),
                       b.b.getI32Type());
    return {range, Value()};
  }
  SmallVector<Value> row = loadItem(b, arrays[getNumChunkArrays() + 1], number);
  range.group = row[0];
  range.first = row[1];
  range.end = row[2];
  range.isSlice = b.less(b.constant(getNumGroups() - 1), number);
  range.slice = b.add(number, -getNumGroups());
  return {range, b.equal(row[3], b.constant(1))};
}

std::pair<ChunkRange, Value> SpMMPlan::getSum(BlockBuilder &b, Value number,
                                              ValueRange arrays) const {
  SmallVector<Value> row = loadItem(b, arrays[getNumChunkArrays() + 2], number);
  ChunkRange range;
  range.group = range.whole = number;
  range.first = range.end = b.constant(0);
  range.firstSlice = row[0];
  range.numSlices = row[1];
  return {range, b.less(b.constant(0), range.numSlices)};
}

namespace mlir::bsr::gpu {
/// The launch that makes a plan: a thread block makes that of a group.
class SpMMPlanner : PlanMaker {
public:
  SpMMPlanner(const SpMMPlan &plan, BlockBuilder &b, const PatternView &view,
              ValueRange arrays)
      : PlanMaker(b, view), plan(plan), slot(b.getPointer(view.slot)),
        numChunks(arrays[0]), positions(arrays[1]),
        words(plan.isByLine ? Value() : arrays[2]),
        slots(arrays[plan.getNumChunkArrays() - 1]),
        costs(plan.numSlices ? arrays[plan.getNumChunkArrays()] : Value()) {}

  void emit() {
    clear();
    b.barrier();
    Value longest = markLines();
    b.when(b.equal(b.thread, b.constant(0)), [&] { cutChunks(longest); });
    b.barrier();
    if (!plan.isByLine) {
      countBlocks();
      b.barrier();
    }
    assignBlocks();
  }

private:
  /// An entry of an array of the plan.
  Value read(Value array, Value at) {
    return b.load(array, ValueRange{group, at});
  }
  void write(Value value, Value array, Value at) {
    b.store(value, array, ValueRange{group, at});
  }
  /// In shared memory: the lines that store a block at a position of the
  /// pattern, a bit each; and the location of `position`, the number of its
  /// chunk times `1 << slabBits` plus that of its slab.
  Value getMark(Value position) { return b.at(b.mul(position, 4)); }
  Value getLocation(Value position) {
    return b.at(b.add(b.mul(position, 4), 4 * getNumMarks()));
  }
  int64_t getNumMarks() const { return plan.length * plan.packedPositions; }
  /// The lines that store a block at `position`.
  Value loadLines(Value position) {
    Value first = b.mul(position, plan.packedPositions);
    Value lines = b.load(getMark(first), i32);
    for (int64_t next = 1; next != plan.packedPositions; ++next)
      lines = b.bitOr(lines, b.load(getMark(b.add(first, next)), i32));
    return lines;
  }
  /// Calls `body` for each line of the pattern in the group and its blocks,
  /// each in one thread; after each line `afterLine`, with how many blocks it
  /// has and what is carried on, which is returned in the end.
  SmallVector<Value>
  forBlocks(llvm::function_ref<void(Value, Value)> body, ValueRange carried,
            llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)>
                afterLine) {
    int64_t lines = plan.lines * plan.packedLines;
    int64_t numLines = plan.numLines * plan.packedLines;
    Value zero = b.constant(0);
    return b.loop(zero, b.constant(lines), 1, carried,
                  [&](Value line, ValueRange carried) {
                    Value number = b.multiplyAdd(group, lines, line);
                    SmallVector<Value> count =
                        b.when(b.less(number, b.constant(numLines)), zero,
                               [&]() -> SmallVector<Value> {
                                 return {forLine(
                                     number, b.thread, threads,
                                     [&](Value at, Value) { body(line, at); })};
                               });
                    return afterLine(line, count.front(), carried);
                  });
  }

  void clear() {
    Value zero = b.constant(0), noPlace = b.constant(-1);
    Value none = b.constant(plan.isByLine ? plan.slots : -1);
    int64_t chunks = plan.getMaxChunks();
    forEach(getNumMarks(), [&](Value at) { b.storeShared(zero, getMark(at)); });
    forEach(plan.length,
            [&](Value at) { b.storeShared(noPlace, getLocation(at)); });
    forEach(chunks * plan.slabs, [&](Value at) { write(zero, positions, at); });
    forEach(chunks * plan.blocks * plan.getPackedBlocks(),
            [&](Value at) { write(none, slots, at); });
  }

  /// One line after the other: no two threads have one position. Returns how
  /// many blocks take longest.
  Value markLines() {
    Value zero = b.constant(0);
    SmallVector<Value> counts = forBlocks(
        [&](Value line, Value at) {
          Value mark = getMark(readPattern(idx, at));
          Value bit = b.shiftLeft(b.constant(1), b.div(line, plan.packedLines));
          b.storeShared(b.bitOr(b.load(mark, i32), bit), mark);
        },
        {zero, zero, zero},
        [&](Value line, Value count, ValueRange carried) -> SmallVector<Value> {
          b.barrier();
          Value inWarp = b.rem(line, plan.warpLines * plan.packedLines);
          Value ofWarp = b.select(b.equal(inWarp, zero), zero, carried[0]);
          ofWarp = b.add(ofWarp, count);
          return {ofWarp, b.max(carried[1], ofWarp), b.add(carried[2], count)};
        });
    // Warps share what issues instructions.
    Value fair = b.div(counts[2], plan.warpsAtOnce);
    return b.max(counts[1], fair);
  }

  /// One thread: which positions are in which chunk depends on those before.
  void cutChunks(Value longest) {
    Value zero = b.constant(0);
    SmallVector<Value> last = b.loop(
        zero, b.constant(plan.length), 1, {zero, zero, zero},
        [&](Value position, ValueRange carried) {
          Value lines = loadLines(position);
          Value count = b.countOnes(lines);
          Value chunk = carried[0], slabs = carried[1], blocks = carried[2];
          Value hasSlab = b.less(slabs, b.constant(plan.slabs));
          Value hasBlocks =
              b.less(b.add(blocks, count), b.constant(plan.getRoom() + 1));
          Value fits = b.bitAnd(hasSlab, hasBlocks);
          chunk = b.select(fits, chunk, b.add(chunk, 1));
          slabs = b.select(fits, slabs, zero);
          blocks = b.select(fits, blocks, zero);
          return b.when(
              b.less(zero, count), carried, [&]() -> SmallVector<Value> {
                Value scaled = b.mul(chunk, int64_t(1) << SpMMPlan::slabBits);
                b.storeShared(b.add(scaled, slabs), getLocation(position));
                write(position, positions,
                      b.multiplyAdd(chunk, plan.slabs, slabs));
                return {chunk, b.add(slabs, 1), b.add(blocks, count)};
              });
        });
    // A group without blocks has no chunk.
    Value isEmpty = b.equal(last[2], zero);
    Value count = b.select(isEmpty, zero, b.add(last[0], 1));
    b.store(count, numChunks, group);
    if (costs)
      b.store(
          b.multiplyAdd(count, plan.chunkCost, b.mul(longest, plan.blockCost)),
          costs, group);
  }

  /// The words: of each line and chunk.
  void countBlocks() {
    Value count = b.mul(b.load(numChunks, group), plan.lines);
    forEach(count, [&](Value at) {
      Value chunk = b.div(at, plan.lines), line = b.rem(at, plan.lines);
      Value below = b.sub(b.shiftLeft(b.constant(1), line), b.constant(1));
      Value slabs = b.constant(0), first = b.constant(0), odd = first;
      for (int64_t slab = 0; slab != plan.slabs; ++slab) {
        Value position = read(positions, b.add(b.mul(chunk, plan.slabs), slab));
        // A slab that the chunk lacks has position 0, which another may be.
        Value lines = loadLines(position);
        Value location = b.load(getLocation(position), i32);
        Value here =
            b.add(b.mul(chunk, int64_t(1) << SpMMPlan::slabBits), slab);
        lines = b.select(b.equal(location, here), lines, b.constant(0));
        Value bit = b.bitAnd(b.shiftRight(lines, line), b.constant(1));
        slabs = b.bitOr(slabs, b.shiftLeft(bit, b.constant(slab)));
        first = b.add(first, b.countOnes(b.bitAnd(lines, below)));
        odd = b.bitXor(odd, lines);
      }
      // Lines with an odd number of blocks are followed by a gap.
      if (plan.alignment == 2)
        first = b.add(first, b.countOnes(b.bitAnd(odd, below)));
      Value word =
          b.bitOr(slabs, b.shiftLeft(first, b.constant(SpMMPlan::slabBits)));
      write(word, words, at);
    });
  }

  /// The number in its chunk of the block of `line` at slab `slab`.
  Value getNumber(Value line, Value chunk, Value slab) {
    if (plan.isByLine)
      return line;
    Value word = read(
        words, b.multiplyAdd(chunk, plan.lines, b.div(line, plan.packedLines)));
    Value below = b.sub(b.shiftLeft(b.constant(1), slab), b.constant(1));
    Value before = b.countOnes(b.bitAnd(SpMMPlan::getSlabs(b, word), below));
    return b.add(SpMMPlan::getFirstBlock(b, word), before);
  }

  void assignBlocks() {
    forBlocks(
        [&](Value line, Value at) {
          Value position = readPattern(idx, at);
          Value location =
              b.load(getLocation(b.div(position, plan.packedPositions)), i32);
          Value chunk = b.div(location, int64_t(1) << SpMMPlan::slabBits);
          Value slab = b.rem(location, int64_t(1) << SpMMPlan::slabBits);
          Value number =
              b.multiplyAdd(chunk, plan.blocks, getNumber(line, chunk, slab));
          number = b.multiplyAdd(number, plan.packedLines,
                                 b.rem(line, plan.packedLines));
          number = b.multiplyAdd(number, plan.packedPositions,
                                 b.rem(position, plan.packedPositions));
          write(readPattern(slot, at), slots, number);
        },
        {}, [](Value, Value, ValueRange) { return SmallVector<Value>(); });
  }

  const SpMMPlan &plan;
  Value slot;
  Value numChunks, positions, words, slots, costs;
};
} // namespace mlir::bsr::gpu

void SpMMPlan::emit(OpBuilder &b, Location loc, const PatternView &view,
                    ValueRange arrays) const {
  assert(slabs <= slabBits && getRoom() >= lines);
  BlockBuilder::launch(b, loc, {getNumGroups(), 1}, PlanMaker::threads,
                       getSharedBytes(), [&](BlockBuilder &block) {
                         SpMMPlanner(*this, block, view, arrays).emit();
                       });
}
