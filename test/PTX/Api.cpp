// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library without ptx-run: memory, modules and variables that launches
// share.

#include "ptx/Interpreter.h"
#include "support/Error.h"
#include <cstdio>
#include <cstring>

using namespace ptx;

static const char *const first = R"(
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b32 total = 5;
.visible .entry add(.param .u64 out, .param .u32 by) {
  .reg .b32 %r<3>; .reg .b64 %d<3>;
  ld.param.u64 %d0, [out]; ld.param.u32 %r0, [by];
  ld.global.b32 %r1, [total]; add.s32 %r1, %r1, %r0; st.global.b32 [total], %r1; st.global.b32 [%d0], %r1;
})";
static const char *const second = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 out) .maxntid 32, 1, 1 .maxnreg 64 {
  .reg .b32 %r; .reg .b64 %d; .shared .b8 s[100];
  ld.param.u64 %d, [out]; ld.global.b32 %r, [%d]; add.s32 %r, %r, %r; st.global.b32 [%d], %r;
})";
static const char *const third = R"(
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

template <typename Body>
static void expectError(Body body) {
  try {
    body();
    std::printf("no error\n");
  } catch (const bsr::Error &error) {
    std::printf("error: %s\n", error.what());
  }
}

static Counts run(const Module &module, const char *entry, Memory &memory,
                  uint64_t out, uint32_t by, LaunchOptions options = {}) {
  options.parameters.resize(module.entry(entry).parameterBytes);
  std::memcpy(options.parameters.data(), &out, 8);
  if (options.parameters.size() > 8)
    std::memcpy(&options.parameters[8], &by, 4);
  return launch(module, entry, options, memory);
}

/// What a caller may ask for who counts: traffic by allocations, no races, and
/// waits that end with their phases.
static void count(const Module &add, const Module &meet) {
  Memory memory;
  LaunchOptions options;
  options.grid.x = 2;
  uint64_t out = memory.allocateZeros(4);
  expectError([&] { run(add, "add", memory, out, 1, options); });
  options.findsGlobalRaces = false;
  options.countsBuffers = true;
  Counts counts = run(add, "add", memory, out, 1, options);
  BufferTraffic of = counts.buffers.at(memory.find(out)->number);
  std::printf("sectors read %u, written %u\n", unsigned(of.read),
              unsigned(of.written));
  LaunchOptions warps;
  warps.block.x = 64;
  for (bool suspends : {false, true}) {
    warps.suspendsWaits = suspends;
    counts = launch(meet, "meet", warps, memory);
    std::printf("barriers %u\n",
                unsigned(counts.instructions[unsigned(Class::Barrier)]));
  }
  options.grid = {4, 2};
  options.cluster = {2, 1};
  std::printf("cluster %u\n", unsigned(clusterOf(6, options)));
}

int main() {
  Module one(first), two(second);
  Memory memory, other;
  uint64_t out = memory.allocate(4);
  uint32_t value = 0;
  // A variable keeps its value from launch to launch, in each memory its own.
  for (uint32_t by : {1, 10})
    run(one, "add", memory, out, by);
  run(two, "twice", memory, out, 0);
  memory.read(out, &value, 4);
  std::printf("value %u\n", value);
  memory.read(one.address("total", memory), &value, 4);
  std::printf("total %u\n", value);
  other.read(one.address("total", other), &value, 4);
  std::printf("other %u\n", value);
  EntryInfo info = two.entry("");
  std::printf("%s: shared %u, threads %u, registers %u, parameters %u\n",
              info.name.c_str(), info.staticShared, info.maxThreads,
              info.maxRegisters, info.parameterBytes);
  TensorMap map;
  map.address = 4096;
  map.dimensions = 3;
  map.size = {64, 8, 2};
  map.stride = {128, 1024};
  map.box = {64, 4, 2};
  map.swizzle = Swizzle::Bytes128;
  TensorMap again = decodeTensorMap(encode(map).data());
  std::printf("map %d\n", encode(again) == encode(map));

  count(one, Module(third));
  expectError([&] { memory.allocate(0); });
  expectError([&] { memory.release(out + 1); });
  expectError([&] { memory.write(out + 1, &value, 4); });
  uint64_t fresh = memory.allocate(4);
  expectError([&] { memory.read(fresh, &value, 4); });
  expectError([&] { one.address("none", memory); });
  memory.release(out);
  expectError([&] { run(two, "twice", memory, out, 0); });
  expectError([&] { launch(two, "twice", {}, memory); });
  map.dimensions = 4;
  expectError([&] { encode(map); });
  map.dimensions = 3;
  map.elementBytes = 3;
  expectError([&] { encode(map); });
  map.elementBytes = 2;
  map.address = 8;
  expectError([&] { encode(map); });
  map.address = 16;
  map.size[1] = 0;
  expectError([&] { encode(map); });
}
