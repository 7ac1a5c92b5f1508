// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What slices of one tensor have in common.

#include "bsr/Analysis/Slices.h"
#include "Parse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class SlicesTest : public bsr::test::ModuleTest {
protected:
  /// A slice that writes a `source` at `where`, such as "[0] [2] [1]", into an
  /// 8x4 tensor.
  tensor::InsertSliceOp getSlice(StringRef source, StringRef where) {
    parse(("func.func @f(%x: tensor<" + source +
           "xf32>, %y: tensor<8x4xf32>, %i: index) -> tensor<8x4xf32> {\n"
           "%z = tensor.insert_slice %x into %y" +
           where + " : tensor<" + source +
           "xf32> into tensor<8x4xf32>\nreturn %z : tensor<8x4xf32>\n}")
              .str());
    return find<tensor::InsertSliceOp>();
  }
  /// Whether two slices, of 4 rows and of 2, are apart.
  bool areApart(StringRef first, StringRef second) {
    parse(("func.func @f(%x: tensor<8x4xf32>) {\n"
           "%0 = tensor.extract_slice %x" +
           first + " [4, 2] [1, 1] : tensor<8x4xf32> to tensor<4x2xf32>\n" +
           "%1 = tensor.extract_slice %x" + second +
           " [2, 2] [1, 1] : tensor<8x4xf32> to tensor<2x2xf32>\nreturn\n}")
              .str());
    auto slices = findAll<tensor::ExtractSliceOp>();
    bool result = areDisjoint(slices[0], slices[1]);
    EXPECT_EQ(areDisjoint(slices[1], slices[0]), result);
    return result;
  }
};
} // namespace

TEST_F(SlicesTest, SlicesSideBySideAreDisjoint) {
  EXPECT_TRUE(areApart("[0, 0]", "[4, 0]"));
  EXPECT_TRUE(areApart("[2, 0]", "[0, 0]"));
  EXPECT_TRUE(areApart("[0, 0]", "[0, 2]"));
}

TEST_F(SlicesTest, SlicesThatShareAnEntryAreNot) {
  EXPECT_FALSE(areApart("[0, 0]", "[3, 0]"));
  EXPECT_FALSE(areApart("[0, 0]", "[1, 1]"));
}

TEST_F(SlicesTest, OneDimensionIsCut) {
  EXPECT_EQ(getCutDim(getSlice("2x4", "[3, 0] [2, 4] [1, 1]")), 0);
  EXPECT_EQ(getCutDim(getSlice("8x1", "[0, 3] [8, 1] [1, 1]")), 1);
}

TEST_F(SlicesTest, NoneOrTwoAreNotOne) {
  EXPECT_EQ(getCutDim(getSlice("8x4", "[0, 0] [8, 4] [1, 1]")), std::nullopt);
  EXPECT_EQ(getCutDim(getSlice("2x2", "[0, 0] [2, 2] [1, 1]")), std::nullopt);
}

TEST_F(SlicesTest, NothingIsCutByUnknownOffsetsOrWithGaps) {
  EXPECT_EQ(getCutDim(getSlice("2x4", "[%i, 0] [2, 4] [1, 1]")), std::nullopt);
  EXPECT_EQ(getCutDim(getSlice("2x4", "[0, 0] [2, 4] [2, 1]")), std::nullopt);
  EXPECT_EQ(getCutDim(getSlice("4", "[3, 0] [1, 4] [1, 1]")), std::nullopt);
}
