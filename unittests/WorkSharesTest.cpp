// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How thread blocks share steps of windows and chunks of groups: launches that
// are emitted, run lane by lane.

#include "Codegen/GPU/SDDMM/StreamK.h"
#include "Codegen/GPU/SpMM/SplitK.h"
#include "Parse.h"
#include "Warp.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <random>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using bsr::test::Integers;
using bsr::test::Warp;

namespace {
class WorkSharesTest : public bsr::test::ModuleTest {
protected:
  /// A function of buffers, in which the launch comes that `emit` makes.
  void makeLaunch(ArrayRef<MemRefType> types,
                  llvm::function_ref<void(OpBuilder &, ValueRange)> emit) {
    OpBuilder b(&context);
    Location loc = b.getUnknownLoc();
    context.loadAllAvailableDialects();
    module = ModuleOp::create(b, loc);
    b.setInsertionPointToStart(module->getBody());
    SmallVector<Type> inputs(types.begin(), types.end());
    auto func =
        func::FuncOp::create(b, loc, "f", b.getFunctionType(inputs, {}));
    b.setInsertionPointToStart(func.addEntryBlock());
    emit(b, func.getArguments());
    arrays = func.getArguments();
  }
  mlir::gpu::LaunchOp getLaunch() { return find<mlir::gpu::LaunchOp>(); }

  ValueRange arrays;
};

/// What an owner has of a window.
struct Part {
  int64_t group, window, ordinal, low, high;
};

/// The steps of windows of which `counts` says how many a group has, and, if
/// clusters share them, `blocks` how many blocks a window has.
class StreamKTest : public WorkSharesTest {
protected:
  void share(ArrayRef<int32_t> counts, int64_t shares, int64_t tokens,
             int64_t batches, int64_t grid, ArrayRef<int32_t> blocks = {}) {
    context.loadAllAvailableDialects();
    auto groups = int64_t(counts.size());
    SDDMMTile tile = {
        /*lines=*/2,        /*slabs=*/4,  /*tokens=*/32,
        /*elementBytes=*/2, /*stages=*/3, grid,          shares,
        /*buffers=*/24};
    SDDMMShape shape = {PatternType::get(&context, groups * 2 * 64, 64 * 64, 64,
                                         64, groups * 8),
                        {batches, groups * 128, tokens},
                        {batches, 4096, tokens},
                        2,
                        4};
    windows = tile.getWindows(shape);
    steps = tile.getSteps(shape);
    unit = tile.getUnit(shape);
    least = tile.getLeastShare(shape);
    // What an owner has, in rows of which a window has one each, and how many
    // they are; the owners of windows.
    int64_t most = 0;
    for (int32_t count : counts)
      most += count;
    most = std::max<int64_t>(most, 1);
    SmallVector<MemRefType> types = windows.getTypes(&context);
    Type i32 = IntegerType::get(&context, 32);
    types.push_back(MemRefType::get({grid, most, 5}, i32));
    types.push_back(MemRefType::get(grid, i32));
    types.push_back(MemRefType::get({groups, most, 2}, i32));
    makeLaunch(types, [&](OpBuilder &builder, ValueRange arrays) {
      ValueRange out = arrays.take_back(3);
      auto body = [&](BlockBuilder &b) {
        StreamK owners(b, tile, shape, windows, arrays.drop_back(3));
        Value count = owners.forWindows(
            b.block[0], b.constant(0),
            [&](const WindowRange &range, ValueRange carried) {
              Value row = carried.front();
              SmallVector<Value> fields{range.group, range.number,
                                        range.ordinal, range.low, range.high};
              for (auto [field, value] : llvm::enumerate(fields))
                b.store(value, out[0],
                        {b.block[0], row, b.constant(int64_t(field))});
              // The range has a row of its own in its group.
              StreamK::Group group = owners.getGroup(range.group);
              auto [first, last] = owners.getOwners(group, range.number);
              b.store(first, out[2],
                      {range.group, range.number, b.constant(0)});
              b.store(last, out[2], {range.group, range.number, b.constant(1)});
              return SmallVector<Value>{b.add(row, 1)};
            })[0];
        b.store(count, out[1], b.block[0]);
      };
      BlockBuilder::launch(builder, builder.getUnknownLoc(), {grid, 1}, 32,
                           /*sharedBytes=*/0, body);
    });
    Warp warp(getLaunch(), /*lanes=*/1);
    warp[arrays[SDDMMPlan::Counts]].data.assign(counts.begin(), counts.end());
    size_t next = 0;
    for (int64_t group = 0; group != groups && !blocks.empty(); ++group)
      for (int64_t window = 0; window != counts[group]; ++window) {
        warp[arrays[SDDMMPlan::Sizes]].at({group, 2 * window + 1}) =
            blocks[next];
        warp[arrays[SDDMMPlan::Costs]].at(group) += getCost(blocks[next++]);
      }
    ValueRange out = arrays.take_back(3);
    owned.clear();
    for (int64_t owner = 0; owner != grid; ++owner) {
      warp.run(owner);
      owned.emplace_back();
      for (int64_t row = 0; row != warp[out[1]].at(owner); ++row) {
        auto field = [&](int64_t i) {
          return warp[out[0]].at({owner, row, i});
        };
        owned.back().push_back(
            {field(0), field(1), field(2), field(3), field(4)});
      }
    }
    expectAll(counts, warp[out[2]]);
  }

  int64_t getCost(int64_t blocks) const {
    return std::max<int64_t>(llvm::divideCeil(blocks, windows.shares),
                             llvm::divideCeil(windows.getOfShare(), 2));
  }

  /// Owners in their order have all steps of all windows in theirs, each once,
  /// and know who has a window.
  void expectAll(ArrayRef<int32_t> counts, Integers &owners) {
    int64_t group = 0, window = 0, step = 0;
    auto skip = [&] {
      if (step == steps)
        step = 0, ++window;
      while (group != int64_t(counts.size()) && window == counts[group])
        window = 0, ++group;
    };
    skip();
    std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>> found;
    for (auto [owner, parts] : llvm::enumerate(owned))
      for (auto [ordinal, part] : llvm::enumerate(parts)) {
        EXPECT_EQ(part.ordinal, int64_t(ordinal));
        if (part.low == part.high)
          continue;
        ASSERT_EQ(part.group, group);
        ASSERT_EQ(part.window, window);
        ASSERT_EQ(part.low, step);
        ASSERT_LE(part.high, steps);
        step = part.high;
        auto &[first, last] =
            found.try_emplace({group, window}, owner, owner).first->second;
        last = int64_t(owner);
        skip();
      }
    EXPECT_EQ(group, int64_t(counts.size()));
    for (auto [at, both] : found) {
      EXPECT_LE(owners.at({at.first, at.second, 0}), both.first);
      EXPECT_GE(owners.at({at.first, at.second, 1}), both.second);
      if (windows.shares == 1) {
        EXPECT_EQ(owners.at({at.first, at.second, 0}), both.first);
        EXPECT_EQ(owners.at({at.first, at.second, 1}), both.second);
      }
    }
  }

  /// The steps of an owner.
  int64_t count(size_t owner) const {
    int64_t sum = 0;
    for (const Part &part : owned[owner])
      sum += part.high - part.low;
    return sum;
  }

  SDDMMPlan windows;
  int64_t steps, unit, least;
  std::vector<std::vector<Part>> owned;
};
} // namespace

TEST_F(StreamKTest, OwnersHaveAsManySteps) {
  // 4 windows of 24 steps among 5 owners: 20 each, but the last.
  share({3, 0, 1}, /*shares=*/1, /*tokens=*/24 * 32, /*batches=*/1, /*grid=*/5);
  EXPECT_EQ(steps, 24);
  for (size_t owner = 0; owner != 4; ++owner)
    EXPECT_EQ(count(owner), 20);
  EXPECT_EQ(count(4), 16);
}

TEST_F(StreamKTest, AnOwnerHasNoFewerThanTheLeast) {
  // 24 steps among 16 owners: 8 each, for three of them.
  share({1}, 1, 24 * 32, 1, 16);
  EXPECT_EQ(least, SDDMMTile::leastSteps);
  for (size_t owner = 0; owner != 16; ++owner)
    EXPECT_EQ(count(owner), owner < 3 ? 8 : 0);
}

TEST_F(StreamKTest, WindowsOfFewStepsAreWhole) {
  // 6 steps each, of 2 batches of 80 tokens, which end in a part of a step.
  share({2, 1, 4}, 1, 80, 2, 3);
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(unit, 6);
  for (const auto &parts : owned)
    for (const Part &part : parts)
      EXPECT_EQ(part.high - part.low, 6);
}

TEST_F(StreamKTest, NothingIsSharedOfNoWindows) {
  share({0, 0}, 1, 512, 1, 3);
  for (size_t owner = 0; owner != 3; ++owner)
    EXPECT_TRUE(owned[owner].empty());
}

TEST_F(StreamKTest, StepsOfClustersCostWhatTheirBlocksDo) {
  // A window with few blocks costs half of a full one, so that who has such
  // windows has more steps.
  share({2, 2}, 2, 64 * 32, 1, 6, {1, 1, 16, 16});
  int64_t full = getCost(windows.getOfShare() * 2), few = getCost(1);
  EXPECT_EQ(full, 2 * few);
  for (auto [owner, parts] : llvm::enumerate(owned)) {
    int64_t sum = 0;
    for (const Part &part : parts)
      sum += (part.high - part.low) * (part.group == 0 ? few : full);
    EXPECT_NEAR(sum, 64 * 2 * (full + few) / 6, full) << owner;
  }
}

TEST_F(StreamKTest, RandomWindowsAreSharedWhole) {
  std::mt19937 random(0);
  auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial != 24; ++trial) {
    int64_t shares = trial % 2 ? 2 : 1;
    std::vector<int32_t> counts(size_t(draw(1, 5))), blocks;
    for (int32_t &count : counts) {
      count = draw(0, 3);
      for (int32_t i = 0; i != count && shares == 2; ++i)
        blocks.push_back(draw(1, 16));
    }
    share(counts, shares, draw(1, 20) * 16, draw(1, 3), draw(1, 9), blocks);
  }
}

namespace {
/// Groups with so many chunks and so much to do, which a launch cuts.
class SplitKTest : public WorkSharesTest {
protected:
  struct Slice {
    int64_t group, first, end;
  };

  void cut(ArrayRef<int32_t> chunks, ArrayRef<int32_t> costs, int64_t numSlices,
           int64_t itemsAtOnce = 1024) {
    SpMMPlan plan{int64_t(chunks.size()) * 4,
                  /*length=*/4096,
                  /*slots=*/4096,
                  /*lines=*/4,
                  /*slabs=*/4,
                  /*blocks=*/16};
    plan.numSlices = numSlices;
    plan.itemsAtOnce = itemsAtOnce;
    plan.turns = SpMMPlan::turnUnits;
    makeLaunch(plan.getTypes(&context), [&](OpBuilder &b, ValueRange arrays) {
      SplitK(plan, arrays).emit(b, b.getUnknownLoc());
    });
    Warp warp(getLaunch(), BlockBuilder::warpThreads);
    auto groups = int64_t(chunks.size());
    Value items = arrays.drop_back().back(), ofGroups = arrays.back();
    warp[arrays.front()].data.assign(chunks.begin(), chunks.end());
    warp[arrays.drop_back(2).back()].data.assign(costs.begin(), costs.end());
    // What was there before is written over.
    llvm::fill(warp[items].data, -1);
    llvm::fill(warp[ofGroups].data, -1);
    warp.run(0);
    slices.assign(size_t(groups), {});
    int64_t all = 0;
    auto row = [&](Value array, int64_t number) {
      std::vector<int64_t> fields;
      for (int64_t field = 0; field != SpMMPlan::itemFields; ++field)
        fields.push_back(warp[array].at({number, field}));
      return fields;
    };
    using Row = std::vector<int64_t>;
    for (int64_t group = 0; group != groups; ++group) {
      int64_t count = row(ofGroups, group)[1];
      EXPECT_EQ(row(ofGroups, group), (Row{all, count, 0, 0}));
      EXPECT_NE(count, 1);
      EXPECT_EQ(row(items, group), count ? (Row{group, 0, 0, 0})
                                         : (Row{group, 0, chunks[group], 1}));
      // Slices of one length, about, that are all of the group.
      int64_t next = 0;
      for (int64_t i = 0; i != count; ++i) {
        Row slice = row(items, groups + all + i);
        EXPECT_EQ(slice[0], group);
        EXPECT_EQ(slice[1], next);
        EXPECT_EQ(slice[3], 1);
        next = slice[2];
        EXPECT_NEAR(double(next - slice[1]), double(chunks[group]) / count, 1);
        slices[size_t(group)].push_back(next - slice[1]);
      }
      EXPECT_EQ(next, count ? chunks[group] : 0);
      all += count;
    }
    EXPECT_LE(all, numSlices);
    for (int64_t rest = all; rest != numSlices; ++rest)
      EXPECT_EQ(row(items, groups + rest), (Row{0, 0, 0, 0}));
  }
  size_t countCut() const {
    return size_t(
        llvm::count_if(slices, [](const auto &own) { return !own.empty(); }));
  }

  /// Chunks of the slices of each group.
  std::vector<std::vector<int64_t>> slices;
};
} // namespace

TEST_F(SplitKTest, EqualGroupsStayWhole) {
  cut(std::vector<int32_t>(40, 12), std::vector<int32_t>(40, 96), 64);
  EXPECT_EQ(countCut(), 0u);
}

TEST_F(SplitKTest, LongGroupsAreCut) {
  // Two of 70 groups, of lanes that have three each, but the last.
  std::vector<int32_t> chunks(70, 4), costs(70, 32);
  chunks[3] = chunks[69] = 64;
  costs[3] = costs[69] = 512;
  cut(chunks, costs, 64);
  EXPECT_EQ(countCut(), 2u);
  // The mean is 45: no slice has more to do than the least of lengths.
  EXPECT_EQ(slices[3].size(), 12u);
  EXPECT_EQ(slices[69].size(), 12u);
}

TEST_F(SplitKTest, SlicesAreNoMoreThanThereIsRoomFor) {
  std::vector<int32_t> chunks(8, 2), costs(8, 16);
  chunks[0] = 64, costs[0] = 512;
  for (int64_t room : {2, 3, 5, 9})
    cut(chunks, costs, room);
  EXPECT_EQ(countCut(), 1u);
}

TEST_F(SplitKTest, AGainOfAnEighthIsWorthIt) {
  // The one chunk of the first is what takes longest then, instead of 64.
  std::vector<int32_t> chunks(10, 1), costs(10, 8);
  for (size_t group : {1, 2, 3})
    chunks[group] = 8, costs[group] = 64;
  costs[0] = 60;
  cut(chunks, costs, 64);
  EXPECT_EQ(countCut(), 0u);
  costs[0] = 50;
  cut(chunks, costs, 64);
  EXPECT_EQ(countCut(), 3u);
}

TEST_F(SplitKTest, AChunkIsNotCut) {
  cut({1, 1, 1, 1, 1, 1, 1, 1}, {400, 8, 8, 8, 8, 8, 8, 8}, 64);
  EXPECT_EQ(countCut(), 0u);
}
