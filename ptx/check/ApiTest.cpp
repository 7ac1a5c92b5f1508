// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library without ptx-run: memory, modules and variables that launches
// share.

#include "ptx/Interpreter.h"
#include "support/Error.h"
#include <cstring>
#include <gtest/gtest.h>

using namespace ptx;

/// Adds to a variable of its module.
static const char *const adding = R"(
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b32 total = 5;
.visible .entry add(.param .u64 out, .param .u32 by) {
  .reg .b32 %r<3>; .reg .b64 %d<3>;
  ld.param.u64 %d0, [out]; ld.param.u32 %r0, [by];
  ld.global.b32 %r1, [total]; add.s32 %r1, %r1, %r0; st.global.b32 [total], %r1; st.global.b32 [%d0], %r1;
})";
/// Doubles a number.
static const char *const doubling = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 out) .maxntid 32, 1, 1 .maxnreg 64 {
  .reg .b32 %r; .reg .b64 %d; .shared .b8 s[100];
  ld.param.u64 %d, [out]; ld.global.b32 %r, [%d]; add.s32 %r, %r, %r; st.global.b32 [%d], %r;
})";
/// Waits for an arrival of each thread of a warp.
static const char *const meeting = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry meet() {
  .reg .pred %q; .reg .b32 %r<3>; .shared .align 8 .b64 bar;
  mov.u32 %r0, %tid.x; mov.u32 %r1, bar; setp.ne.u32 %q, %r0, 0;
  @!%q mbarrier.init.shared.b64 [%r1], 32;
  bar.sync 0; setp.lt.u32 %q, %r0, 32; @%q bra ARRIVE;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %q, [%r1], 0; @!%q bra WAIT; bra DONE;
ARRIVE:
  mbarrier.arrive.shared.b64 _, [%r1];
DONE:
})";

namespace {

/// What `body` throws as an error, or nothing.
template <typename Body>
std::string errorOf(Body body) {
  try {
    body();
  } catch (const sparse_opt::Error &error) {
    return error.what();
  }
  return {};
}

/// Whether `text`, an error, begins with `start` and has `part` behind it.
testing::AssertionResult has(const std::string &text, const std::string &start,
                             const std::string &part = {}) {
  if (text.rfind(start, 0) == 0 &&
      text.find(part, start.size()) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the error is '" << text << "'";
}

Counts run(const Module &module, const char *entry, Memory &memory,
           uint64_t out, uint32_t by, LaunchOptions options = {}) {
  options.parameters.resize(module.entry(entry).parameterBytes);
  std::memcpy(options.parameters.data(), &out, 8);
  if (options.parameters.size() > 8)
    std::memcpy(&options.parameters[8], &by, 4);
  return launch(module, entry, options, memory);
}

uint32_t readNumber(const Memory &memory, uint64_t address) {
  uint32_t value = 0;
  memory.read(address, &value, 4);
  return value;
}

TEST(InterpreterTest, VariablesKeepTheirValuesInEachMemory) {
  Module add(adding), twice(doubling);
  Memory memory, other;
  uint64_t out = memory.allocate(4);
  for (uint32_t by : {1, 10})
    run(add, "add", memory, out, by);
  run(twice, "twice", memory, out, 0);
  EXPECT_EQ(readNumber(memory, out), 32u);
  EXPECT_EQ(readNumber(memory, add.address("total", memory)), 16u);
  EXPECT_EQ(readNumber(other, add.address("total", other)), 5u);
  EXPECT_EQ(errorOf([&] { add.address("none", memory); }),
            "expected a variable of the module, but got 'none'");
}

TEST(InterpreterTest, EntriesSayWhatTheyNeed) {
  Module twice(doubling);
  EntryInfo info = twice.entry("");
  EXPECT_EQ(info.name, "twice");
  EXPECT_EQ(info.staticShared, 100u);
  EXPECT_EQ(info.maxThreads, 32u);
  EXPECT_EQ(info.maxRegisters, 64u);
  EXPECT_EQ(info.parameterBytes, 8u);
  Memory memory;
  EXPECT_EQ(errorOf([&] { launch(twice, "twice", {}, memory); }),
            "expected 8 bytes of parameters of 'twice', but got 0");
}

TEST(InterpreterTest, BlocksThatWriteTheSameAddressRace) {
  Module add(adding);
  Memory memory;
  LaunchOptions options;
  options.grid.x = 2;
  uint64_t out = memory.allocateZeros(4);
  EXPECT_TRUE(has(errorOf([&] { run(add, "add", memory, out, 1, options); }),
                  "expected one launch for each write",
                  "but got a race with block 0"));
}

TEST(InterpreterTest, TrafficIsCountedByAllocation) {
  Module add(adding);
  Memory memory;
  LaunchOptions options;
  options.grid.x = 2;
  options.findsGlobalRaces = false;
  options.countsBuffers = true;
  uint64_t out = memory.allocateZeros(4);
  Counts counts = run(add, "add", memory, out, 1, options);
  BufferTraffic of = counts.buffers.at(memory.find(out)->number);
  EXPECT_EQ(of.read, 0u);
  EXPECT_EQ(of.written, 2u);
}

TEST(InterpreterTest, SuspendedWaitsEndWithTheirPhases) {
  Module meet(meeting);
  Memory memory;
  LaunchOptions options;
  options.block.x = 64;
  auto countBarriers = [&](bool suspends) {
    options.suspendsWaits = suspends;
    return launch(meet, "meet", options, memory)
        .instructions[unsigned(Class::Barrier)];
  };
  EXPECT_EQ(countBarriers(false), 7u);
  EXPECT_EQ(countBarriers(true), 6u);
}

TEST(InterpreterTest, BlocksAreInClusters) {
  LaunchOptions options;
  options.grid = {4, 2};
  options.cluster = {2, 1};
  EXPECT_EQ(clusterOf(6, options), 3u);
}

TEST(MemoryTest, AccessesOutsideOfAllocationsAreRefused) {
  Memory memory;
  uint32_t value = 0;
  uint64_t out = memory.allocateZeros(4);
  EXPECT_EQ(errorOf([&] { memory.allocate(0); }),
            "expected an allocation of 1 byte to 64 GiB, but got 0 bytes");
  EXPECT_TRUE(has(errorOf([&] { memory.release(out + 1); }),
                  "expected the address of an allocation, but got "));
  EXPECT_TRUE(has(errorOf([&] { memory.write(out + 1, &value, 4); }),
                  "expected an address inside of an allocation, but got ",
                  " with 4 bytes"));
  memory.release(out);
  Module twice(doubling);
  EXPECT_TRUE(has(errorOf([&] { run(twice, "twice", memory, out, 0); }),
                  "expected 4 bytes inside of an allocation, but got global "
                  "address"));
}

TEST(MemoryTest, BytesThatNobodyWroteAreRefused) {
  Memory memory;
  uint64_t fresh = memory.allocate(4);
  EXPECT_EQ(errorOf([&] { readNumber(memory, fresh); }),
            "expected every byte to have a value, but got byte 0 of an "
            "allocation of 4, which was never written");
}

class TensorMapTest : public testing::Test {
protected:
  TensorMapTest() {
    map.address = 4096;
    map.dimensions = 3;
    map.size = {64, 8, 2};
    map.stride = {128, 1024};
    map.box = {64, 4, 2};
    map.swizzle = Swizzle::Bytes128;
  }
  std::string encodingError() const {
    return errorOf([&] { encode(map); });
  }

  TensorMap map;
};

TEST_F(TensorMapTest, DecodesToWhatWasEncoded) {
  TensorMap again = decodeTensorMap(encode(map).data());
  EXPECT_EQ(encode(again), encode(map));
}

TEST_F(TensorMapTest, RefusesWhatNoMapDescribes) {
  map.dimensions = 6;
  EXPECT_EQ(encodingError(),
            "expected a tensor of 1 to 5 dimensions, but got 6");
  map.dimensions = 3;
  map.elementBytes = 3;
  EXPECT_EQ(encodingError(),
            "expected elements of 1, 2, 4 or 8 bytes, but got 3");
  map.elementBytes = 2;
  map.address = 8;
  EXPECT_EQ(encodingError(),
            "expected a tensor at a multiple of 16 bytes, but got 8");
  map.address = 16;
  map.size[1] = 0;
  EXPECT_EQ(encodingError(), "expected a size of 1 to 2^32, but got 0");
}

} // namespace
