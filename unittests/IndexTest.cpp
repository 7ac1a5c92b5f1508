// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of positions.

#include "Parse.h"
#include "bsr/Codegen/Common/IndexBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class IndexTest : public bsr::test::ModuleTest {
protected:
  void SetUp() override {
    parse(R"(
      func.func @f(%any: index) {
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c8 = arith.constant 8 : index
        scf.for %i = %c0 to %c8 step %c1 {
        }
        return
      })");
    builder = OpBuilder::atBlockBegin(find<scf::ForOp>().getBody());
    below8 = find<scf::ForOp>().getInductionVar();
    any = find<func::FuncOp>().getArgument(0);
  }
  IndexBuilder get() {
    return IndexBuilder(*builder, builder->getUnknownLoc());
  }
  int64_t count() {
    int64_t number = 0;
    for (Operation &op : find<scf::ForOp>().getBody()->without_terminator())
      number += !isa<arith::ConstantOp>(op);
    return number;
  }
  std::optional<OpBuilder> builder;
  Value below8, any;
};
} // namespace

TEST_F(IndexTest, ConstantsAreAddedAndMultipliedWithoutCode) {
  Index index =
      get().multiplyAdd(Index::constant(3), 5, Index::constant(2).plus(4));
  EXPECT_TRUE(index.isConstant());
  EXPECT_EQ(index.offset, 21);
  EXPECT_EQ(count(), 0);
}

TEST_F(IndexTest, AlignmentIsWhatDividesBoth) {
  Index index =
      get().multiplyAdd(Index::of(below8), 16, Index::constant(0)).plus(4);
  EXPECT_EQ(index.align, 4);
  EXPECT_EQ(index.offset, 4);
}

TEST_F(IndexTest, OnlyTheLastOfSeveralDimensionsHasLanes) {
  Index lanes = Index::of(below8, /*lanes=*/true);
  EXPECT_FALSE(get().linearize(lanes, 4, Index::constant(1)));
  std::optional<Index> last = get().linearize(Index::constant(1), 4, lanes);
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->lanes);
  EXPECT_EQ(last->offset, 4);
  // A dimension of one element is no dimension.
  EXPECT_EQ(*get().linearize(lanes, 1, Index::constant(0)), lanes);
}

TEST_F(IndexTest, WhatWasMultipliedIsDividedWithoutADivision) {
  Index linear = get().multiplyAdd(Index::of(any), 8, Index::of(below8));
  auto [number, within] = get().split(linear, 8);
  EXPECT_EQ(number, Index::of(any));
  EXPECT_EQ(within, Index::of(below8));
}

TEST_F(IndexTest, AnOffsetGoesToBothParts) {
  Index linear = get().multiplyAdd(Index::of(any), 32, Index::constant(0));
  auto [number, within] = get().split(linear.plus(70), 32);
  EXPECT_EQ(number, Index::of(any).plus(2));
  EXPECT_EQ(within, Index::constant(6));
}

TEST_F(IndexTest, WhatMayPassTheNextMultipleIsDivided) {
  Index linear =
      get().multiplyAdd(Index::of(any), 8, Index::of(below8)).plus(1);
  auto [number, within] = get().split(linear, 8);
  EXPECT_TRUE(number.base.getDefiningOp<arith::DivUIOp>());
  EXPECT_TRUE(within.base.getDefiningOp<arith::RemUIOp>());
}

TEST_F(IndexTest, AConstantIsNeverAskedWhetherItIsZero) {
  EXPECT_FALSE(get().areZero({Index::constant(0), Index::constant(3)}));
  EXPECT_TRUE(get().areZero({Index::constant(0), Index::of(any)}));
}
