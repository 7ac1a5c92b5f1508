// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bsr/Codegen/GPU/Prediction/SASS.h"
#include "ptx/Program.h"
#include "gtest/gtest.h"

using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

// A loop of 8 instructions, 2 of them fixed, behind 1, and 1 behind it.
static constexpr llvm::StringLiteral text = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p0) {
  .reg .pred %p<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<2>;
  ld.param.b64 %rd1, [p0];
$L__BB0_1:
  ld.global.b32 %r1, [%rd1];
  add.s32 %r2, %r1, 1;
  mul.lo.s32 %r3, %r2, %r1;
  @%p1 st.global.b32 [%rd1], %r3;
  add.s64 %rd1, %rd1, 4;
  add.s32 %r4, %r4, 1;
  setp.lt.s32 %p1, %r4, 100;
  @%p1 bra $L__BB0_1;
  ret;
})";

static constexpr llvm::StringLiteral needs =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "    8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
    "ptxas info    : Used 10 registers, used 0 barriers, 360 bytes cmem[0]\n";

static std::string disassemble(llvm::StringRef body) {
  return ("\t.headerflags\t@\"EF_CUDA_SM90\"\n"
          "\t.section\t.nv.info.k,\"\",@\"SHT_CUDA_INFO\"\n"
          "\t.section\t.text.k,\"ax\",@progbits\n.text.k:\n" +
          body +
          "        /*00f0*/                   EXIT ;\n"
          ".L_x_2:\n"
          "        /*0100*/                   BRA `(.L_x_2);\n"
          "        /*0110*/                   NOP;\n"
          "\t.section\t.nv.shared.k,\"aw\",@nobits\n")
      .str();
}

/// The machine's loop of `copies` iterations, each of 3 instructions, 2 fixed.
static std::string makeLoop(unsigned copies, llvm::StringRef branch) {
  std::string body =
      "        /*0000*/                   LDC R1, c[0x0][0x28] ;\n"
      ".L_x_1:\n";
  for (unsigned i = 0; i != copies; ++i)
    body += "        /*0010*/                   LDG.E R0, desc[UR4][R2.64] ;\n"
            "        /*0020*/                   IMAD R0, R0, R0, R0 ;\n"
            "        /*0030*/              @!P1 STG.E desc[UR4][R2.64], R0 ;\n";
  return body + branch.str();
}

static SASSKernel read(llvm::StringRef body) {
  return llvm::cantFail(parseMachine(disassemble(body), needs))["k"];
}

static double getRatio(llvm::StringRef body) {
  ::ptx::Module module{std::string_view(text)};
  return getMachineRatio(module.program().kernels.front(), read(body));
}

static constexpr llvm::StringLiteral branch =
    "        /*0040*/               @P0 BRA `(.L_x_1) ;\n";

TEST(Machine, ReadsNeedsAndDropsFilling) {
  SASSKernel kernel = read(makeLoop(1, branch));
  EXPECT_EQ(kernel.registers, 10u);
  EXPECT_EQ(kernel.spilledBytes, 12u);
  ASSERT_EQ(kernel.instructions.size(), 6u);
  EXPECT_EQ(kernel.instructions[4].target, 1u);
  EXPECT_FALSE(kernel.instructions[4].isLast);
  EXPECT_TRUE(kernel.instructions[5].isLast);
}

TEST(Machine, ComparesLoops) {
  EXPECT_DOUBLE_EQ(getRatio(makeLoop(1, branch)), 4. / 8);
  // Of four iterations at once there is one branch.
  EXPECT_DOUBLE_EQ(getRatio(makeLoop(4, branch)), 13. / 32);
  EXPECT_DOUBLE_EQ(
      getRatio(makeLoop(1, "        /*0040*/    BRA.U UP0, `(.L_x_1) ;\n")),
      4. / 8);
}

TEST(Machine, ComparesTextsWithOtherLoops) {
  // 1 + 4 * 3 + 1 instructions, 8 fixed; 10 of PTX, 2 fixed.
  EXPECT_DOUBLE_EQ(getRatio(makeLoop(4, "")), (14. / 8) / (10. / 2));
  // No branch back: what follows is out of reach of the loop's beginning.
  EXPECT_DOUBLE_EQ(
      getRatio(makeLoop(1, "        /*0040*/    BRA `(.L_x_9) ;\n.L_x_9:\n")),
      (6. / 2) / (10. / 2));
}

TEST(Machine, RefusesKernelsWithoutNeeds) {
  auto kernels = parseMachine(disassemble(""), "");
  ASSERT_FALSE(bool(kernels));
  EXPECT_EQ(llvm::toString(kernels.takeError()),
            "expected ptxas to say what 1 kernels need, but got it of 0");
}
