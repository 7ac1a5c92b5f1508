// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of integers from how they are computed.

#include "bsr/Analysis/IntegerRanges.h"
#include "Parse.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
using Bounds = std::pair<int64_t, int64_t>;
constexpr Bounds anything = {INT64_MIN, INT64_MAX};

class IntegerRangesTest : public bsr::test::ModuleTest {
protected:
  /// The range of %x, an index that `operations` compute.
  Bounds getRange(StringRef operations) {
    parse(("func.func @f(%any: index, %ids: tensor<4xi32>) {\n"
           "%c0 = arith.constant 0 : index\n"
           "%c1 = arith.constant 1 : index\n"
           "%c3 = arith.constant 3 : index\n"
           "%c8 = arith.constant 8 : index\n" +
           operations + "\nfunc.call @use(%x) : (index) -> ()\nreturn\n}\n" +
           "func.func private @use(index)")
              .str());
    ConstantIntRanges range =
        IntegerRanges().get(find<func::CallOp>().getOperand(0));
    return {range.smin().getSExtValue(), range.smax().getSExtValue()};
  }
};
} // namespace

TEST_F(IntegerRangesTest, OperationsSayTheirOwn) {
  EXPECT_EQ(getRange("%0 = arith.maxsi %any, %c1 : index\n"
                     "%x = arith.minsi %0, %c3 : index"),
            Bounds(1, 3));
  EXPECT_EQ(getRange("%x = arith.remui %any, %c8 : index"), Bounds(0, 7));
  EXPECT_EQ(getRange("%x = arith.addi %any, %c8 : index"), anything);
}

TEST_F(IntegerRangesTest, ADivisionByZeroSaysNothing) {
  EXPECT_EQ(getRange("%0 = arith.minui %any, %c8 : index\n"
                     "%x = arith.remui %any, %0 : index"),
            anything);
}

TEST_F(IntegerRangesTest, EntriesOfTensors) {
  EXPECT_EQ(getRange("%e = tensor.empty() : tensor<4xi32>\n"
                     "%five = arith.constant 5 : i32\n"
                     "%0 = linalg.map ins(%ids : tensor<4xi32>) outs(%e : "
                     "tensor<4xi32>) (%i: i32, %o: i32) {\n"
                     "%r = arith.remui %i, %five : i32\n"
                     "linalg.yield %r : i32\n}\n"
                     "%1 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 2] "
                     ": tensor<4xi32> into tensor<2x2xi32>\n"
                     "%2 = tensor.extract %1[%c0, %c1] : tensor<2x2xi32>\n"
                     "%x = arith.index_cast %2 : i32 to index"),
            Bounds(0, 4));
}

TEST_F(IntegerRangesTest, SumsOfEntriesAreUnknown) {
  EXPECT_EQ(getRange("%s = tensor.empty() : tensor<i32>\n"
                     "%0 = linalg.reduce ins(%ids : tensor<4xi32>) outs(%s : "
                     "tensor<i32>) dimensions = [0] (%i: i32, %o: i32) {\n"
                     "%r = arith.addi %i, %o : i32\n"
                     "linalg.yield %r : i32\n}\n"
                     "%1 = tensor.extract %0[] : tensor<i32>\n"
                     "%x = arith.index_cast %1 : i32 to index"),
            Bounds(INT32_MIN, INT32_MAX));
}

TEST_F(IntegerRangesTest, LoopsBoundTheirCountersAlone) {
  EXPECT_EQ(getRange("%x = scf.for %i = %c0 to %c8 step %c1 "
                     "iter_args(%s = %c0) -> (index) {\n"
                     "func.call @use(%i) : (index) -> ()\n"
                     "scf.yield %i : index\n}"),
            Bounds(0, 7));
  EXPECT_EQ(getRange("%x = scf.for %i = %c0 to %c8 step %c1 "
                     "iter_args(%s = %c0) -> (index) {\n"
                     "func.call @use(%s) : (index) -> ()\n"
                     "scf.yield %i : index\n}"),
            anything);
  // A loop that does not run.
  EXPECT_EQ(getRange("%x = scf.for %i = %c3 to %c1 step %c1 "
                     "iter_args(%s = %c0) -> (index) {\n"
                     "func.call @use(%i) : (index) -> ()\n"
                     "scf.yield %i : index\n}"),
            anything);
}
