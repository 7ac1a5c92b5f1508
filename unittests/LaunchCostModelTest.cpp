// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bounds of launches, against figures that were derived by hand.

#include "bsr/Codegen/GPU/Core/TileSearch.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/IR/Diagnostics.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// What a thread block on each multiprocessor of an H100 does for a slab of
/// `block` features and `tokens` tokens in bf16 with `present` blocks.
static KernelWork getProduct(double block, double tokens, double present,
                             double instructions, double sharedBytes) {
  KernelWork work;
  work.blocks = 132;
  work.warps = 8;
  work.instructions = work.blocks * instructions;
  work.longestWarp = instructions / work.warps;
  work.tensorFlops[0] = work.blocks * 2 * block * block * tokens * present;
  work.sharedBytes = work.blocks * sharedBytes;
  work.l2Bytes =
      work.blocks * (2 * block * tokens + 2 * present * block * block);
  return work;
}

TEST(Model, EachChipOfTheTargetHasFigures) {
  MLIRContext context;
  context.loadDialect<BSRDialect>();
  ScopedDiagnosticHandler silent(&context, [](Diagnostic &) {});
  auto verify = [&](StringRef chip) {
    return GPUAttr::getChecked(
        [&] { return emitError(UnknownLoc::get(&context)); }, &context, chip,
        /*tileOutputs=*/int64_t(0), /*tileTokens=*/int64_t(0),
        /*shareOutputs=*/int64_t(0), /*shareTokens=*/int64_t(0),
        /*tf32=*/false);
  };
  std::string known;
  for (const Chip &chip : getChips()) {
    EXPECT_TRUE(verify(chip.name)) << std::string(chip.name);
    EXPECT_EQ(findChip(chip.name), &chip);
  }
  EXPECT_EQ(findChip("sm_70"), nullptr);
  // The sentence about a chip that is none lists them all.
  std::string message;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { message = diagnostic.str(); });
  EXPECT_FALSE(verify("sm_70"));
  EXPECT_EQ(StringRef(message).count("sm_"), getChips().size() + 1) << message;
}

TEST(Model, PeaksAreThoseOfTheDataSheets) {
  // TFLOP/s of bf16 and tf32, dense.
  const std::tuple<StringRef, double, double> sheets[] = {
      {"sm_80", 312, 156},
      {"sm_86", 149.7, 74.8},
      {"sm_89", 181, 90.5},
      {"sm_90a", 989, 494.5},
      {"sm_100a", 2250, 1125}};
  for (auto [name, half, tf32] : sheets) {
    const Chip &chip = *findChip(name);
    double scale = chip.multiprocessors * chip.clock / 1e12;
    EXPECT_NEAR(chip.tensor[0] * scale / half, 1, .01) << name.str();
    EXPECT_NEAR(chip.tensor[1] * scale / tf32, 1, .01) << name.str();
  }
}

TEST(Model, BindingResourceIsTheOneThatTakesLongest) {
  const Chip &chip = *findChip("sm_90a");
  // 16x16 blocks, lists, 16 block rows, 10 %: 3.9 blocks of a slab are there.
  KernelWork work = getProduct(16, 128, 1.97, 258.6, 9 * 512 * 1.97 + 5104);
  ModelParameters alone;
  alone.launchSeconds = 0;
  Prediction prediction = bound(work, chip, alone);
  EXPECT_EQ(prediction.binding, Resource::L2);
  EXPECT_NEAR(prediction[Resource::Tensor], 2 * 256 * 128 * 1.97 / 2580, .1);
  EXPECT_NEAR(prediction[Resource::Issue], 258.6 / 4, 1e-9);
  EXPECT_NEAR(prediction[Resource::Shared], (9 * 512 * 1.97 + 5104) / 128, .1);
  EXPECT_NEAR(prediction[Resource::L2], 5104.6 / (9.7e12 / 132 / 1.83e9), .5);
  EXPECT_NEAR(prediction.seconds, prediction[Resource::L2] / 1.83e9, 1e-15);

  // Named parameters move the bound.
  ModelParameters fast = alone;
  fast.l2Bandwidth = 1e14;
  EXPECT_DOUBLE_EQ(bound(work, chip, fast)[Resource::L2], 5104.64 / 64);
  fast.mmaRate = .1;
  EXPECT_EQ(bound(work, chip, fast).binding, Resource::Tensor);
  ModelParameters serial = alone;
  serial.overlap = 0;
  double all = 0;
  for (double clocks : prediction.clocks)
    all += clocks;
  EXPECT_NEAR(bound(work, chip, serial).seconds, all / 1.83e9, 1e-15);
}

TEST(Model, TheBusiestMultiprocessorCounts) {
  const Chip &chip = *findChip("sm_90a");
  KernelWork work;
  work.blocks = 132;
  work.instructions = 132 * 4000.0;
  EXPECT_EQ(bound(work, chip)[Resource::Issue], 1000);
  // One block more: one multiprocessor has two.
  work.blocks = 133;
  work.instructions = 133 * 4000.0;
  EXPECT_EQ(bound(work, chip)[Resource::Issue], 2000);
  // A warp alone issues one instruction a clock.
  work.blocks = 1;
  work.instructions = work.longestWarp = 4000;
  EXPECT_EQ(bound(work, chip)[Resource::Issue], 4000);
}

TEST(Model, UnitsHaveTheirRates) {
  KernelWork work;
  work.blocks = 1;
  work.instructions = 100;
  work.arithmetic[static_cast<unsigned>(Unit::Double)] = 100;
  EXPECT_EQ(bound(work, *findChip("sm_90"))[Resource::Arithmetic], 50);
  EXPECT_EQ(bound(work, *findChip("sm_86"))[Resource::Arithmetic], 1600);
  // 1600 clocks are less than those of a launch.
  EXPECT_EQ(bound(work, *findChip("sm_86")).binding, Resource::Launch);
  work.arithmetic[static_cast<unsigned>(Unit::Double)] = 200;
  EXPECT_EQ(bound(work, *findChip("sm_86")).binding, Resource::Arithmetic);
}

TEST(Model, MemoryIsOfTheWholeChip) {
  KernelWork work;
  work.blocks = 1000;
  work.memoryBytes = 3.35e9;
  Prediction prediction = bound(work, *findChip("sm_90"));
  EXPECT_EQ(prediction.binding, Resource::Memory);
  EXPECT_NEAR(prediction.seconds, 1e-3 + 1.2e-6, 1e-12);
  EXPECT_EQ(stringify(prediction.binding), "memory");
  ModelParameters parameters;
  parameters.memoryBandwidth = 6.7e12;
  EXPECT_NEAR(bound(work, *findChip("sm_90"), parameters).seconds,
              5e-4 + 1.2e-6, 1e-12);
}

TEST(Model, LaunchesComeOnTopOfTheirWork) {
  for (const Chip &chip : getChips())
    EXPECT_DOUBLE_EQ(chip.launchSeconds, 1.2e-6) << chip.name;
  const Chip &chip = *findChip("sm_90a");
  KernelWork work;
  EXPECT_EQ(bound(work, chip).binding, Resource::Launch);
  EXPECT_DOUBLE_EQ(bound(work, chip).seconds, 1.2e-6);
  work.memoryBytes = 3.35e6;
  EXPECT_DOUBLE_EQ(bound(work, chip).seconds, 1e-6 + 1.2e-6);
  EXPECT_DOUBLE_EQ(getSeconds({work, work}, chip), 2e-6 + 2.4e-6);
  // Resources that are not used at one time add up; launches always do.
  work.blocks = 1000;
  work.l2Bytes = 9.7e6;
  ModelParameters parameters;
  parameters.overlap = 0;
  parameters.launchSeconds = 5e-6;
  EXPECT_NEAR(bound(work, chip, parameters).seconds, 7e-6, 1e-12);
}

/// Work whose time is that of L2.
static KernelWork getTransfer(double megabytes) {
  KernelWork work;
  work.l2Bytes = megabytes * 1e6;
  return work;
}

static TileSearch<int> makeSearch() {
  return {*findChip("sm_90a"), [](int tile) { return std::to_string(tile); }};
}

TEST(TileSearch, KeepsTheFirstTileOfLeastCost) {
  TileSearch<int> search = makeSearch();
  EXPECT_FALSE(search.best || search.isTooLarge(8, 2));
  search.consider(1, getTransfer(100));
  EXPECT_TRUE(search.isTooLarge(4, 2) && !search.isTooLarge(4, 3));
  search.consider(2, getTransfer(100));
  EXPECT_EQ(search.best, 1);
  // What is not in the model has to be outweighed.
  search.consider(3, getTransfer(96), {/*lacks=*/0, /*factor=*/1.05});
  EXPECT_EQ(search.best, 1);
  search.consider(4, getTransfer(95), {/*lacks=*/0, /*factor=*/1.05});
  EXPECT_EQ(search.best, 4);
  // However fast one is that lacks something.
  search.consider(5, getTransfer(1), {/*lacks=*/1, /*factor=*/1});
  EXPECT_EQ(search.best, 4);
}

TEST(TileSearch, LessEffortDecidesBetweenEqualTimes) {
  TileSearch<int> search = makeSearch();
  search.consider(1, getTransfer(100), {/*lacks=*/0, /*factor=*/1, 10});
  search.consider(2, getTransfer(100), {/*lacks=*/0, /*factor=*/1, 9});
  EXPECT_EQ(search.best, 2);
  search.consider(3, getTransfer(101), {/*lacks=*/0, /*factor=*/1, 1});
  EXPECT_EQ(search.best, 2);
}

TEST(TileSearch, AnotherLaunchHasToBeWorthIt) {
  TileSearch<int> search = makeSearch();
  search.consider(1, getTransfer(.2));
  search.consider(2, {getTransfer(.1), getTransfer(.01)});
  EXPECT_EQ(search.best, 1);
  search.consider(3, {getTransfer(.02), getTransfer(.01)});
  EXPECT_EQ(search.best, 3);
}

TEST(TileSearch, WhatIsWantedMostComesFirst) {
  TileSearch<int> search = makeSearch();
  search.consider(1, getTransfer(1), {/*lacks=*/4, /*factor=*/1});
  search.consider(2, getTransfer(9), {/*lacks=*/3, /*factor=*/1});
  EXPECT_EQ(search.best, 2);
}

TEST(Model, UnionOfLines) {
  EXPECT_DOUBLE_EQ(getUnion(0.25, 1), 0.25);
  EXPECT_DOUBLE_EQ(getUnion(0.5, 3), 0.875);
}
