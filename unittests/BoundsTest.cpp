// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How large indices get.

#include "bsr/Analysis/Bounds.h"
#include "Parse.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class BoundsTest : public bsr::test::ModuleTest {
protected:
  /// The largest value of %x, which `operations` compute from an argument, from
  /// %i below 6 and from %j below 8.
  std::optional<int64_t> getLargest(StringRef operations) {
    parse(("func.func @f(%any: index) {\n"
           "%c0 = arith.constant 0 : index\n"
           "%c1 = arith.constant 1 : index\n"
           "%c3 = arith.constant 3 : index\n"
           "%c8 = arith.constant 8 : index\n"
           "scf.forall (%i) in (6) {\n"
           "scf.for %j = %c0 to %c8 step %c1 {\n" +
           operations +
           "\nfunc.call @use(%x) : (index) -> ()\n}\n}\nreturn\n}\n" +
           "func.func private @use(index)")
              .str());
    return bsr::getLargest(find<func::CallOp>().getOperand(0));
  }
};
} // namespace

TEST_F(BoundsTest, SumsAndProductsOfLoops) {
  EXPECT_EQ(getLargest("%0 = arith.muli %i, %c8 : index\n"
                       "%x = arith.addi %0, %j : index"),
            5 * 8 + 7);
}

TEST_F(BoundsTest, AMinimumNeedsOneBound) {
  EXPECT_EQ(getLargest("%x = arith.minui %any, %c3 : index"), 3);
  EXPECT_EQ(getLargest("%x = arith.minui %j, %any : index"), 7);
  EXPECT_EQ(getLargest("%x = arith.minui %j, %i : index"), 5);
}

TEST_F(BoundsTest, ALoopEndsBeforeItsBound) {
  EXPECT_EQ(getLargest("%end = arith.minui %any, %c8 : index\n"
                       "%x = scf.for %k = %c0 to %end step %c1 "
                       "iter_args(%sum = %c0) -> (index) {\n"
                       "func.call @use(%k) : (index) -> ()\n"
                       "scf.yield %sum : index\n}"),
            7);
}

TEST_F(BoundsTest, NothingIsKnownOfTheRest) {
  EXPECT_EQ(getLargest("%x = arith.addi %any, %c3 : index"), std::nullopt);
  EXPECT_EQ(getLargest("%x = arith.minui %any, %any : index"), std::nullopt);
  // It may wrap around.
  EXPECT_EQ(getLargest("%x = arith.subi %i, %c3 : index"), std::nullopt);
  // What a loop carries is no induction variable.
  EXPECT_EQ(getLargest("%x = scf.for %k = %c0 to %c8 step %c1 "
                       "iter_args(%sum = %c0) -> (index) {\n"
                       "func.call @use(%sum) : (index) -> ()\n"
                       "scf.yield %k : index\n}"),
            std::nullopt);
}
