// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a pattern says of its views, and what a processor offers.

#include "Parse.h"
#include "bsr/Codegen/CPU/CPUTarget.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

using PatternTest = bsr::test::ModuleTest;

TEST_F(PatternTest, ViewsSwapLinesAndBlocks) {
  auto type = PatternType::get(&context, 32, 128, 4, 16, 5);
  EXPECT_EQ(type.getNumLines(View::Rows), 8);
  EXPECT_EQ(type.getNumLines(View::Columns), 8);
  EXPECT_EQ(type.getBlockExtent(View::Rows), 4);
  EXPECT_EQ(type.getBlockExtent(View::Columns), 16);
  EXPECT_EQ(getOther(View::Rows), View::Columns);
  EXPECT_EQ(getView(/*transpose=*/true), View::Columns);

  auto wide = PatternType::get(&context, 32, 256, 4, 16, 5);
  auto [ptr, idx, slot] = wide.getIndexTypes(View::Columns);
  EXPECT_EQ(ptr.getShape(), ArrayRef<int64_t>{17});
  EXPECT_EQ(idx.getShape(), ArrayRef<int64_t>{5});
  EXPECT_EQ(slot, idx);
  EXPECT_TRUE(ptr.getElementType().isSignlessInteger(32));
  EXPECT_EQ(getIndexKinds(View::Columns)[0], "col_ptr");
}

TEST_F(PatternTest, TargetIsThatOfTheModuleOrTheDefault) {
  parse("func.func @f() { return }");
  CPUTarget target = getCPUTarget(find<FunctionOpInterface>());
  EXPECT_EQ(target.lanes, 8);
  EXPECT_EQ(target.panel(), 16);
  parse("module attributes {bsr.target = #bsr.cpu<vector_bits = 512, "
        "num_registers = 32>} { func.func @f() { return } }");
  target = getCPUTarget(find<FunctionOpInterface>());
  EXPECT_EQ(target.lanes, 16);
  EXPECT_EQ(target.panel(), 64);
}
