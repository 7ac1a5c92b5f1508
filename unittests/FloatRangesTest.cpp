// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where floating-point numbers lie.

#include "bsr/Analysis/FloatRanges.h"
#include "Parse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <list>

using namespace mlir;
using namespace mlir::bsr;

namespace {
class FloatRangesTest : public bsr::test::ModuleTest {
protected:
  /// The interval of %y, which `operations` compute from %x, any number, and
  /// constants.
  FloatRange get(StringRef operations) {
    parse(("func.func @f(%x: f32) -> f32 {\n"
           "%zero = arith.constant 0.0 : f32\n"
           "%one = arith.constant 1.0 : f32\n"
           "%two = arith.constant 2.0 : f32\n"
           "%large = arith.constant 3.0e+38 : f32\n"
           "%small = arith.constant 1.0e-30 : f32\n" +
           operations + "\nreturn %y : f32\n}")
              .str());
    auto function = find<func::FuncOp>();
    return intervals.emplace_back().get(
        function.getBody().front().getTerminator()->getOperand(0));
  }
  std::list<FloatRanges> intervals;
};
constexpr double infinity = std::numeric_limits<double>::infinity();
} // namespace

TEST_F(FloatRangesTest, ZeroTimesAnythingIsZeroOrNaN) {
  FloatRange any = get("%y = arith.mulf %x, %zero : f32");
  EXPECT_TRUE(any.isZeroOrNaN());
  EXPECT_FALSE(any.isZero());
  EXPECT_TRUE(get("%y = arith.mulf %two, %zero : f32").isZero());
  // It may be infinite, but is a number.
  EXPECT_FALSE(get("%0 = arith.mulf %large, %two : f32\n"
                   "%y = arith.mulf %0, %zero : f32")
                   .isZero());
}

TEST_F(FloatRangesTest, ZeroOverWhatMayBeZeroMayBeNaN) {
  FloatRange any = get("%0 = arith.mulf %small, %small : f32\n"
                       "%y = arith.divf %zero, %0 : f32");
  EXPECT_TRUE(any.isZeroOrNaN());
  EXPECT_FALSE(any.isZero());
  EXPECT_TRUE(get("%y = arith.divf %zero, %two : f32").isZero());
}

TEST_F(FloatRangesTest, NothingIsKnownOfAQuotientByWhatMayBeZero) {
  FloatRange any = get("%0 = math.sqrt %x : f32\n"
                       "%y = arith.divf %one, %0 : f32");
  EXPECT_EQ(any.low, -infinity);
  EXPECT_TRUE(any.mayBeNaN);
}

TEST_F(FloatRangesTest, ARootPlusEpsilonIsPositive) {
  FloatRange quotient = get("%0 = math.sqrt %x : f32\n"
                            "%1 = arith.addf %0, %one : f32\n"
                            "%y = arith.divf %two, %1 : f32");
  EXPECT_EQ(quotient.low, 0);
  EXPECT_GE(quotient.high, 2);
  EXPECT_LT(quotient.high, 2.2);
  // Of a negative number it is NaN.
  EXPECT_TRUE(quotient.mayBeNaN);
}

TEST_F(FloatRangesTest, ResultsHaveRoomForRoundings) {
  FloatRange sum = get("%y = arith.addf %one, %two : f32");
  EXPECT_LT(sum.low, 3);
  EXPECT_GT(sum.high, 3);
  EXPECT_TRUE(sum.isFinite());
  // A sign is exact.
  FloatRange negative = get("%y = arith.negf %two : f32");
  EXPECT_EQ(negative.low, -2);
  EXPECT_EQ(negative.high, -2);
}

TEST_F(FloatRangesTest, LargeNumbersMayOverflowAndSmallOnesVanish) {
  EXPECT_FALSE(get("%y = arith.mulf %large, %two : f32").isFinite());
  FloatRange small = get("%y = arith.mulf %small, %small : f32");
  EXPECT_EQ(small.low, 0);
  EXPECT_TRUE(small.isFinite());
}

TEST_F(FloatRangesTest, InfinitiesOfBothSignsMayCancel) {
  EXPECT_TRUE(get("%0 = arith.mulf %large, %two : f32\n"
                  "%1 = arith.negf %0 : f32\n"
                  "%y = arith.addf %0, %1 : f32")
                  .mayBeNaN);
}

TEST_F(FloatRangesTest, AClampKeepsNaNByItsComparison) {
  StringRef select = "\n%y = arith.select %0, %one, %x : f32";
  // NaN is not ordered below one, and stays.
  FloatRange ordered =
      get(("%0 = arith.cmpf olt, %x, %one : f32" + select).str());
  EXPECT_EQ(ordered.low, 1);
  EXPECT_TRUE(ordered.mayBeNaN);
  FloatRange unordered =
      get(("%0 = arith.cmpf ult, %x, %one : f32" + select).str());
  EXPECT_EQ(unordered.low, 1);
  EXPECT_FALSE(unordered.mayBeNaN);
}

TEST_F(FloatRangesTest, EntriesOfATensorAreNumbers) {
  FloatRange entry = get(R"(
    %t = tensor.empty() : tensor<4xf32>
    %c = arith.constant dense<2.0> : tensor<4xf32>
    %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]}
        ins(%c : tensor<4xf32>) outs(%t : tensor<4xf32>) {
    ^bb0(%a: f32, %o: f32):
      %m = arith.maximumf %a, %x : f32
      linalg.yield %m : f32
    } -> tensor<4xf32>
    %i = arith.constant 0 : index
    %y = tensor.extract %0[%i] : tensor<4xf32>)");
  // (An extraction has an index beside its tensor.)
  EXPECT_EQ(entry.low, -infinity);
  EXPECT_EQ(intervals.back().get(find<linalg::GenericOp>()->getResult(0)).low,
            2);
}
