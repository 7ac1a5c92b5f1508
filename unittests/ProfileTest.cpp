// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is counted in kernels, against numbers that follow from their text.

#include "bsr/Codegen/GPU/Prediction/Profile.h"
#include "gtest/gtest.h"

using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// The profile of a kernel with `body` and the parameters of `launch`, one warp
/// if it says nothing else; or the error.
static llvm::Expected<Profile> getProfile(llvm::StringRef body,
                                          Launch launch = {}) {
  if (launch.block[0] == 1)
    launch.block[0] = 32;
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n"
                     "// .globl k\n.visible .entry k(\n";
  for (size_t i = 0; i != launch.arguments.size(); ++i)
    text += (i ? ",\n" : "") + std::string("\t.param .u64 .ptr .align 1 p") +
            std::to_string(i);
  text += "\n)\n.maxntid 128, 1, 1\n{\n\t.reg .b32 %r<9>;\n" + body.str() +
          "\n\tret;\n}\n";
  auto kernels = ptx::parse(text);
  if (!kernels)
    return kernels.takeError();
  EXPECT_EQ(kernels->size(), 1u);
  EXPECT_EQ(kernels->front().name, "k");
  return profile(kernels->front(), launch);
}

static Profile count(llvm::StringRef body, Launch launch = {}) {
  return llvm::cantFail(getProfile(body, std::move(launch)));
}

static std::string fail(llvm::StringRef body, Launch launch = {}) {
  auto found = getProfile(body, std::move(launch));
  return found ? "no error" : llvm::toString(found.takeError());
}

static Launch withBuffer(KnownWords words = {}) {
  Launch launch;
  launch.arguments.resize(1);
  launch.arguments[0].bytes = 1 << 20;
  if (!words.empty())
    launch.arguments[0].words = std::make_shared<KnownWords>(std::move(words));
  return launch;
}

TEST(Profile, IterationsAreCountedExactly) {
  // Few, many, downwards, by a step that does not divide, tested in front.
  auto loop = [](const std::string &first, const std::string &step,
                 const std::string &test) {
    return "mov.b32 %r1, " + first + ";\n$L1:\nadd.s32 %r1, %r1, " + step +
           ";\nsetp." + test + ";\n@%p1 bra $L1;";
  };
  EXPECT_DOUBLE_EQ(
      count(loop("0", "1", "ne.s32 %p1, %r1, 5")).work.instructions,
      1 + 3 * 5 + 1);
  EXPECT_DOUBLE_EQ(
      count(loop("0", "1", "ne.s32 %p1, %r1, 100000")).work.instructions,
      1 + 3 * 100000 + 1);
  EXPECT_DOUBLE_EQ(
      count(loop("-7", "3", "lt.s32 %p1, %r1, 1000")).work.instructions,
      1 + 3 * 336 + 1);
  EXPECT_DOUBLE_EQ(
      count(loop("-7", "3", "le.s32 %p1, %r1, 1001")).work.instructions,
      1 + 3 * 337 + 1);
  EXPECT_DOUBLE_EQ(
      count(loop("999", "-2", "gt.s32 %p1, %r1, 1")).work.instructions,
      1 + 3 * 499 + 1);
  EXPECT_DOUBLE_EQ(
      count(loop("999", "-2", "ge.s32 %p1, %r1, 1")).work.instructions,
      1 + 3 * 500 + 1);
  EXPECT_DOUBLE_EQ(
      count("mov.b32 %r1, 0;\n$L1:\nsetp.eq.b32 %p1, %r1, 500;\n@%p1 bra "
            "$L2;\nadd.s32 %r1, %r1, 1;\nbra.uni $L1;\n$L2:")
          .work.instructions,
      1 + 4 * 500 + 2 + 1);
}

TEST(Profile, LoopsInLoopsAndChangesInThemAreCountedExactly) {
  EXPECT_DOUBLE_EQ(count(R"(mov.b32 %r1, 0;
$L1:
  mov.b32 %r2, 0;
$L2:
  add.s32 %r2, %r2, 1;
  setp.ne.s32 %p2, %r2, 300;
  @%p2 bra $L2;
  add.s32 %r1, %r1, 1;
  setp.ne.s32 %p1, %r1, 200;
  @%p1 bra $L1;)")
                       .work.instructions,
                   1 + 200 * (1 + 3 * 300 + 3) + 1);
  // A triangle: the inner loop grows with the outer one.
  EXPECT_DOUBLE_EQ(count(R"(mov.b32 %r1, 0;
$L1:
  add.s32 %r1, %r1, 1;
  mov.b32 %r2, 0;
$L2:
  add.s32 %r2, %r2, 1;
  setp.lt.s32 %p2, %r2, %r1;
  @%p2 bra $L2;
  setp.ne.s32 %p1, %r1, 60;
  @%p1 bra $L1;)")
                       .work.instructions,
                   1 + 60 * 4 + 3 * 60 * 61 / 2 + 1);
  // From iteration 500 on there is less to do.
  EXPECT_DOUBLE_EQ(count(R"(mov.b32 %r1, 0;
$L1:
  setp.ge.s32 %p2, %r1, 500;
  @%p2 bra $L2;
  mul.f32 %r3, %r3, %r3;
$L2:
  add.s32 %r1, %r1, 1;
  setp.ne.s32 %p1, %r1, 1200;
  @%p1 bra $L1;)")
                       .work.instructions,
                   1 + 1200 * 5 + 500 + 1);
}

TEST(Profile, LanesThatPartAreOneWarp) {
  // Lane i goes round i + 1 times.
  EXPECT_DOUBLE_EQ(count(R"(mov.u32 %r1, %tid.x;
$L1:
  add.s32 %r1, %r1, -1;
  setp.ge.s32 %p1, %r1, 0;
  @%p1 bra $L1;)")
                       .work.instructions,
                   1 + 3 * 32 + 1);
  // The threads of a block that is no multiple of a warp, and those that a
  // guard ends.
  Launch launch;
  launch.block[0] = 40;
  launch.grid[0] = 3;
  Profile profile = count(R"(mov.u32 %r1, %tid.x;
  setp.gt.u32 %p1, %r1, 3;
  @%p1 bra $L1;
  add.s32 %r2, %r1, %r1;
$L1:)",
                          launch);
  EXPECT_EQ(profile.work.instructions, 3 * (5 + 4));
  EXPECT_EQ(profile.work.warps, 2);
  EXPECT_EQ(profile.work.blocks, 3);
  EXPECT_EQ(profile.work.longestWarp, 5);
}

TEST(Profile, IndexArraysDecide) {
  // A block's line: from its pointer to the next.
  Launch launch = withBuffer({0, 2, 2, 9});
  launch.grid[0] = 3;
  const char *body = R"(ld.param.b64 %rd1, [p0];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.b32 %r2, [%rd4];
  ld.global.b32 %r3, [%rd4+4];
  setp.ge.s32 %p1, %r2, %r3;
  @%p1 bra $L2;
$L1:
  add.s32 %r2, %r2, 1;
  setp.lt.s32 %p2, %r2, %r3;
  @%p2 bra $L1;
$L2:)";
  Profile profile = count(body, launch);
  EXPECT_EQ(profile.work.instructions, 3 * 10 + 3 * 9);
  EXPECT_EQ(profile.work.longestWarp, 10 + 3 * 7);
  EXPECT_FALSE(profile.hasDataBranches);
  // Of other data a loop is run through once, and that is said.
  launch.arguments[0].words = nullptr;
  profile = count(body, launch);
  EXPECT_EQ(profile.work.instructions, 3 * (10 + 3));
  EXPECT_TRUE(profile.hasDataBranches);
}

TEST(Profile, PlansAreMadeByWholeBlocks) {
  // Thread i of 64 puts word i in shared memory and writes what thread i + 1
  // put there, of the other warp too; what is read of other data is not known.
  Launch launch = withBuffer();
  launch.block[0] = 64;
  launch.arguments.resize(3);
  for (LaunchArgument &argument : launch.arguments)
    argument.words = std::make_shared<KnownWords>(64);
  for (uint32_t i = 0; i != 64; ++i)
    (*launch.arguments[0].words)[i] = 100 + i;
  (*launch.arguments[0].words)[9] = std::nullopt;
  const char *body = R"(ld.param.b64 %rd1, [p0];
  ld.param.b64 %rd2, [p1];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.b32 %r2, [%rd4];
  shl.b32 %r3, %r1, 2;
  st.shared.b32 [%r3], %r2;
  bar.sync 0;
  add.s32 %r3, %r3, 4;
  and.b32 %r3, %r3, 255;
  ld.shared.b32 %r4, [%r3];
  st.global.b32 [%rd5], %r4;)";
  std::string text = ".entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)"
                     ".maxntid 64\n{" +
                     std::string(body) + "ret;}";
  auto kernels = llvm::cantFail(ptx::parse(text));
  Profile counted = llvm::cantFail(fillWords(kernels[0], launch));
  EXPECT_EQ(counted.work.instructions, 2 * 15);
  EXPECT_EQ(counted.sharedWavefronts, 2 + 2);
  for (uint32_t i = 0; i != 64; ++i) {
    uint32_t next = (i + 1) % 64;
    EXPECT_EQ((*launch.arguments[1].words)[i],
              next == 9 ? std::nullopt : std::optional<uint32_t>(100 + next));
    EXPECT_EQ((*launch.arguments[2].words)[i], std::nullopt);
  }
}

TEST(Profile, LanesWaitForTheirWarpAtABarrier) {
  // Some lanes of the second warp come to the barrier later, by code behind it;
  // the first warp reads what they write.
  Launch launch = withBuffer();
  launch.block[0] = 64;
  launch.arguments[0].words = std::make_shared<KnownWords>(64);
  auto kernels = llvm::cantFail(ptx::parse(R"(.entry k(.param .u64 p0) {
  ld.param.b64 %rd1, [p0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.b32 %r4, 0;
  add.s32 %r2, %r1, -32;
  setp.lt.u32 %p1, %r2, 8;
  @%p1 bra $L2;
$L1:
  bar.sync 0;
  bra.uni $L3;
$L2:
  st.shared.b32 [%r4], 7;
  bra.uni $L1;
$L3:
  ld.shared.b32 %r3, [%r4];
  st.global.b32 [%rd3], %r3;
  ret;
})"));
  Profile counted = llvm::cantFail(fillWords(kernels[0], launch));
  EXPECT_FALSE(counted.hasDataBranches);
  for (const std::optional<uint32_t> &word : *launch.arguments[0].words)
    EXPECT_EQ(word, 7u);
}

TEST(Profile, AddressesBecomeSectors) {
  auto access = [](const std::string &offset, const std::string &then) {
    return "ld.param.b64 %rd1, [p0];\nmov.u32 %r1, %tid.x;\n"
           "mul.wide.u32 %rd2, %r1, " +
           offset + ";\nadd.s64 %rd3, %rd1, %rd2;\n" + then;
  };
  Profile profile =
      count(access("4", "ld.global.b32 %r2, [%rd3];"), withBuffer());
  EXPECT_EQ(profile.globalSectors, 4);
  EXPECT_EQ(profile.work.l2Bytes, 128);
  EXPECT_EQ(profile.work.memoryBytes, 128);
  EXPECT_EQ(count(access("128", "ld.global.b32 %r2, [%rd3];"), withBuffer())
                .globalSectors,
            32);
  // What was read is in L1; what is written goes to L2 each time.
  profile = count(access("4", "ld.global.b32 %r2, [%rd3];\n"
                              "ld.global.v2.b32 {%r2, %r3}, [%rd3];\n"
                              "st.global.b32 [%rd3], %r2;\n"
                              "st.global.b32 [%rd3], %r2;"),
                  withBuffer());
  EXPECT_EQ(profile.globalSectors, 4 + 5 + 4 + 4);
  EXPECT_EQ(profile.work.l2Bytes, (5 + 8) * 32);
  // One value for all lanes in each of 4096 iterations: a sector has 8.
  profile = count(R"(ld.param.b64 %rd1, [p0];
  mov.b32 %r1, 0;
$L1:
  ld.global.b32 %r2, [%rd1];
  add.s64 %rd1, %rd1, 4;
  add.s32 %r1, %r1, 1;
  setp.ne.s32 %p1, %r1, 4096;
  @%p1 bra $L1;)",
                  withBuffer());
  EXPECT_EQ(profile.globalSectors, 4096);
  EXPECT_NEAR(profile.work.l2Bytes, 4096 * 4, 64);
  // Of a buffer no more than it has.
  Launch small = withBuffer();
  small.arguments[0].bytes = 100;
  EXPECT_EQ(count(access("128", "st.global.b32 [%rd3], %r1;"), small)
                .work.memoryBytes,
            100);
  // An address that is read: each lane has a sector.
  profile = count(access("4", "ld.global.b32 %r2, [%rd3];\n"
                              "mul.wide.s32 %rd4, %r2, 4;\n"
                              "add.s64 %rd5, %rd1, %rd4;\n"
                              "ld.global.b32 %r3, [%rd5];"),
                  withBuffer());
  EXPECT_EQ(profile.globalSectors, 4 + 32);
  EXPECT_TRUE(profile.hasDataAddresses);
}

TEST(Profile, BankConflictsAreWavefronts) {
  auto store = [](const std::string &offset, const std::string &then) {
    return count(
               "mov.u32 %r1, %tid.x;\nmov.b32 %r2, s;\nmad.lo.u32 %r3, %r1, " +
               offset + ", %r2;\n" + then)
        .sharedWavefronts;
  };
  EXPECT_EQ(store("4", "st.shared.b32 [%r3], %r1;"), 1);
  EXPECT_EQ(store("8", "st.shared.b32 [%r3], %r1;"), 2);
  EXPECT_EQ(store("128", "st.shared.b32 [%r3], %r1;"), 32);
  EXPECT_EQ(store("16", "st.shared.v4.b32 [%r3], {%r1, %r1, %r1, %r1};"), 4);
  EXPECT_EQ(store("0", "ld.shared.b32 %r4, [%r3];"), 1);
}

TEST(Profile, TensorInstructionsAreWork) {
  Profile profile = count(
      R"(ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};
  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};)");
  EXPECT_EQ(profile.work.tensorFlops[0], 2 * 16 * 8 * 16);
  EXPECT_EQ(profile.work.tensorFlops[1], 2 * 16 * 8 * 8);
  EXPECT_EQ(profile.sharedWavefronts, 4);
  EXPECT_EQ(profile.matrixInstructions, 3);
  // 16 bytes a lane, none of which come from where all are to be zero.
  const char *copy = R"(ld.param.b64 %rd1, [p0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 16;
  add.s64 %rd3, %rd1, %rd2;
  mul.lo.s32 %r3, %r1, 16;
  cp.async.cg.shared.global [%r3], [%rd3], 16)";
  profile = count(std::string(copy) + ";\ncp.async.commit_group;\n"
                                      "cp.async.wait_group 0;",
                  withBuffer());
  EXPECT_EQ(profile.globalSectors, 16);
  EXPECT_EQ(profile.sharedWavefronts, 4);
  // Past L1 (cg) or through it (ca).
  std::string twice = std::string(copy) + ";\n" +
                      llvm::StringRef(copy).rsplit('\n').second.str() + ";";
  EXPECT_EQ(count(twice, withBuffer()).work.l2Bytes, 2 * 512);
  twice.replace(twice.rfind(".cg."), 4, ".ca.");
  twice.replace(twice.rfind(".cg."), 4, ".ca.");
  EXPECT_EQ(count(twice, withBuffer()).work.l2Bytes, 512);
  profile = count(std::string(copy) + ", 0;", withBuffer());
  EXPECT_EQ(profile.globalSectors, 0);
  EXPECT_EQ(profile.sharedWavefronts, 4);
}

TEST(Profile, UnitsAreThoseOfTheTypes) {
  Profile profile = count("fma.rn.f32 %f1, %f2, %f3, %f4;\n"
                          "ex2.approx.ftz.f32 %f1, %f1;\n"
                          "add.f64 %fd1, %fd2, %fd3;\n"
                          "add.s64 %rd1, %rd2, 4;\nmov.b32 %r1, 3;");
  for (Unit unit : {Unit::Float, Unit::Special, Unit::Double, Unit::Integer})
    EXPECT_EQ(profile.work.arithmetic[static_cast<unsigned>(unit)], 1);
  EXPECT_EQ(profile.work.instructions, 6);
}

TEST(Profile, ManyWarpsAreLikeSome) {
  Launch launch;
  launch.grid[0] = 100000;
  launch.block[0] = 128;
  // Half of the blocks do ten instructions more.
  std::string body = "mov.u32 %r1, %ctaid.x;\nand.b32 %r2, %r1, 1;\n"
                     "setp.eq.b32 %p1, %r2, 0;\n@%p1 bra $L1;\n";
  for (int i = 0; i != 10; ++i)
    body += "add.s32 %r2, %r2, %r2;\n";
  Profile profile = count(body + "$L1:", launch);
  EXPECT_NEAR(profile.work.instructions / (400000 * 10.0), 1, .1);
  EXPECT_EQ(profile.work.longestWarp, 15);
}

TEST(Profile, PartsOfWordsAreKnown) {
  auto countTo = [](const std::string &load) {
    return count("mov.b64 %rd1, p0;\n" + load +
                     "\nmov.b32 %r2, 0;\n$L1:\nadd.s32 %r2, %r2, 1;\n"
                     "setp.lt.s32 %p1, %r2, %r1;\n@%p1 bra $L1;",
                 withBuffer({0x00500007, 0xfffffffe}))
        .work.instructions;
  };
  EXPECT_EQ(countTo("ld.global.u16 %r1, [%rd1];"), 3 + 3 * 7 + 1);
  EXPECT_EQ(countTo("ld.global.u16 %r1, [%rd1+2];"), 3 + 3 * 0x50 + 1);
  EXPECT_EQ(countTo("ld.global.u8 %r1, [%rd1+2];"), 3 + 3 * 0x50 + 1);
  EXPECT_EQ(countTo("ld.global.s8 %r1, [%rd1+4];"), 3 + 3 * 1 + 1);
  EXPECT_EQ(countTo("ld.global.u8 %r1, [%rd1+4];"), 3 + 3 * 0xfe + 1);
}

TEST(Profile, LanesMeetWhereTheirWaysDo) {
  // What one lane does lies behind the loop: the others wait for it.
  Profile profile =
      count("mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n"
            "mov.b32 %r2, 0;\n$L1:\n@%p1 bra $L3;\n$L2:\n"
            "add.s32 %r2, %r2, 1;\nsetp.ne.b32 %p2, %r2, 3;\n"
            "@%p2 bra $L1;\nbra.uni $L4;\n$L3:\nadd.s32 %r3, %r3, 1;\n"
            "bra.uni $L2;\n$L4:");
  EXPECT_EQ(profile.work.instructions, 3 + 3 * (1 + 2 + 3) + 1 + 1);
}

TEST(Profile, BoxesAreReadOnceAndFillEachBlock) {
  Launch launch = withBuffer();
  // A matrix of 100 rows; the second box begins at row 96.
  launch.arguments[0].box = TensorBox{100, 64, 32, 64, 2};
  const std::string copy =
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_"
      "tx::bytes";
  Profile profile = count(
      "mov.b64 %rd1, p0;\nmov.u32 %r1, %tid.x;\nsetp.ne.u32 %p1, %r1, 0;\n"
      "@%p1 bra $L1;\nmov.b32 %r2, 0;\nmov.b32 %r3, 96;\nmov.b16 %rs1, 5;\n" +
          copy + " [%r4], [%rd1, {%r2, %r2}], [%r5];\n" + copy +
          ".multicast::cluster [%r4], [%rd1, {%r2, %r3}], [%r5], %rs1;\n$L1:",
      launch);
  constexpr double row = 128, rows = 32, inside = 4;
  EXPECT_EQ(profile.work.l2Bytes, (rows + inside) * row);
  EXPECT_EQ(profile.work.memoryBytes, (rows + inside) * row);
  EXPECT_EQ(profile.work.sharedBytes, (1 + 2) * rows * row);
}

TEST(Profile, WarpgroupsReadSharedMemory) {
  Launch launch;
  launch.block[0] = 128;
  Profile profile = count(
      "$L1:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;\n"
      "not.pred %p2, %p1;\n@%p2 bra $L1;\n"
      "wgmma.fence.sync.aligned;\n"
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r3, %r4}, %rd1, "
      "%rd2, p, 1, 1, 1, 1;\n}\n",
      launch);
  EXPECT_EQ(profile.work.instructions, 4 * (3 + 1 + 2 + 1));
  EXPECT_EQ(profile.work.warpgroupFlops[0], 2.0 * 64 * 128 * 16);
  EXPECT_EQ(profile.work.tensorFlops[0], 0);
  EXPECT_EQ(profile.work.sharedBytes, (64 + 128) * 32);
  EXPECT_FALSE(profile.hasDataBranches);
}

TEST(Profile, WhatCannotBeCountedIsAnError) {
  EXPECT_EQ(fail("tcgen05.fence;"),
            "expected instructions that the model knows in PTX, but got "
            "'tcgen05.fence'");
  EXPECT_EQ(fail("cp.async.bulk.commit_group;"),
            "expected instructions that the model knows in PTX, but got "
            "'cp.async.bulk.commit_group'");
  EXPECT_EQ(fail("bra $L9;"),
            "expected the label of a branch in PTX, but got '$L9'");
  EXPECT_EQ(fail("add.s32 %r1, %r1, 0f00zz;"),
            "expected a float in PTX, but got '00zz'");
  EXPECT_EQ(fail("ld.global.b32 %r1, [%rd1+x];"),
            "expected an offset in PTX, but got 'x'");
  auto kernels = llvm::cantFail(ptx::parse(".entry k(.param .u64 x) { ret; }"));
  EXPECT_EQ(llvm::toString(profile(kernels[0], Launch()).takeError()),
            "expected a launch of 'k' with 1 arguments, but got 0");
  EXPECT_EQ(llvm::toString(ptx::parse(".entry k() { ret;").takeError()),
            "expected the body of 'k' in PTX, but got '{ ret;'");
  // It ends after 2^32 iterations that nothing says anything of.
  EXPECT_EQ(fail("mov.b32 %r1, 1;\n$L1:\nmad.lo.s32 %r1, %r1, 5, 1;\n"
                 "setp.ne.b32 %p1, %r1, 0;\n@%p1 bra $L1;"),
            "expected warps of 'k' to end within 4000000 instructions that "
            "differ, but got more");
}
