// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which dimension of tensors the lanes run along.

#include "bsr/Analysis/Lanes.h"
#include "Parse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class LanesTest : public bsr::test::ModuleTest {
protected:
  /// The lanes of the results of the operations of a step: a product of x
  /// (tokens 12, features 8) that makes `%y` (tokens 12, features 16), and
  /// `operations`; -1 where there are none.
  SmallVector<int64_t> getLanes(StringRef operations) {
    parse((R"(
      func.func @f(%p: !bsr.pattern<8x16, block = 4x4, slots = 4>,
                   %w: tensor<4x4x4xf32>, %x: tensor<12x8xf32>,
                   %z: tensor<12x16xf32>, %v: tensor<16x6xf32>) {
        %y = bsr.spmm %p, %w, %x feature_dim = 1
            : !bsr.pattern<8x16, block = 4x4, slots = 4>, tensor<4x4x4xf32>,
              tensor<12x8xf32> -> tensor<12x16xf32>
)" + operations +
           "\nreturn\n}")
              .str());
    Block &block = find<func::FuncOp>().getBody().front();
    Lanes lanes(block);
    SmallVector<int64_t> found;
    for (Operation &op : block)
      for (Value result : op.getResults()) {
        std::optional<unsigned> lane = lanes.get(result);
        found.push_back(lane ? int64_t(*lane) : -1);
      }
    return found;
  }

  /// An element-wise operation of `x`, read by `map`, and `y`, that makes
  /// `type`.
  static std::string add(StringRef x, StringRef map, StringRef xType,
                         StringRef y, StringRef yMap, StringRef type) {
    return (" = linalg.generic {indexing_maps = [affine_map<(i, j) -> " + map +
            ">, affine_map<(i, j) -> " + yMap +
            ">, affine_map<(i, j) -> (i, j)>], iterator_types = "
            "[\"parallel\", \"parallel\"]} ins(" +
            x + ", " + y + " : " + xType +
            ", tensor<12x16xf32>) outs(%e : " + type +
            ") {\n^bb0(%a: f32, %b: f32, %o: f32):\n%0 = arith.addf %a, %b : "
            "f32\nlinalg.yield %0 : f32\n} -> " +
            type + "\n")
        .str();
  }
};
} // namespace

TEST_F(LanesTest, AProductHasItsTokens) {
  EXPECT_EQ(getLanes(""), SmallVector<int64_t>{0});
}

TEST_F(LanesTest, ElementWiseOperationsGoAlong) {
  std::string sum = add("%y", "(i, j)", "tensor<12x16xf32>", "%z", "(i, j)",
                        "tensor<12x16xf32>");
  EXPECT_EQ(getLanes("%e = tensor.empty() : tensor<12x16xf32>\n%s" + sum),
            (SmallVector<int64_t>{0, 0, 0}));
}

TEST_F(LanesTest, ATransposeMovesThem) {
  std::string sum = add("%y", "(j, i)", "tensor<12x16xf32>", "%z", "(j, i)",
                        "tensor<16x12xf32>");
  EXPECT_EQ(getLanes("%e = tensor.empty() : tensor<16x12xf32>\n%s" + sum),
            (SmallVector<int64_t>{0, 1, 1}));
}

TEST_F(LanesTest, ReshapesKeepThemWhereADimensionStays) {
  EXPECT_EQ(getLanes(R"(
    %h = tensor.expand_shape %y [[0], [1, 2]] output_shape [12, 2, 8]
        : tensor<12x16xf32> into tensor<12x2x8xf32>
    %u = tensor.expand_shape %y [[0, 1], [2]] output_shape [1, 12, 16]
        : tensor<12x16xf32> into tensor<1x12x16xf32>)"),
            (SmallVector<int64_t>{0, 0, 1}));
  // Tokens that are split are two dimensions.
  EXPECT_EQ(getLanes(R"(
    %h = tensor.expand_shape %y [[0, 1], [2]] output_shape [3, 4, 16]
        : tensor<12x16xf32> into tensor<3x4x16xf32>)"),
            (SmallVector<int64_t>{0, -1}));
}

TEST_F(LanesTest, WhatAnotherOperationReadsIsPinned) {
  // Nobody may lay out anew what is read one element at a time.
  EXPECT_EQ(getLanes(R"(
    %c = arith.constant 0 : index
    %one = tensor.extract %y[%c, %c] : tensor<12x16xf32>)"),
            (SmallVector<int64_t>{-1, -1, -1}));
}

TEST_F(LanesTest, WhatARegionReadsIsPinned) {
  // bsr-layout rewrites the operations of one block and of bodies in it.
  EXPECT_EQ(getLanes(R"(
    %c = arith.constant true
    %r = scf.if %c -> tensor<12x16xf32> {
      %e = tensor.empty() : tensor<12x16xf32>
      %n = linalg.negf ins(%y : tensor<12x16xf32>) outs(%e : tensor<12x16xf32>) -> tensor<12x16xf32>
      scf.yield %n : tensor<12x16xf32>
    } else {
      scf.yield %z : tensor<12x16xf32>
    })"),
            (SmallVector<int64_t>{-1, -1, -1}));
}

TEST_F(LanesTest, WhatAnElementIsExtractedFromInABodyIsPinnedInARegion) {
  auto extract = [](StringRef before, StringRef after) {
    return (before + R"(
    %e = tensor.empty() : tensor<12xf32>
    %n = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        outs(%e : tensor<12xf32>) {
    ^bb0(%o: f32):
      %i = linalg.index 0 : index
      %0 = tensor.extract %y[%i, %i] : tensor<12x16xf32>
      linalg.yield %0 : f32
    } -> tensor<12xf32>)" +
            after)
        .str();
  };
  EXPECT_EQ(getLanes(extract("", "")), (SmallVector<int64_t>{0, -1, -1}));
  EXPECT_EQ(getLanes(extract("%c = arith.constant true\nscf.if %c {", "\n}")),
            (SmallVector<int64_t>{-1, -1}));
}

TEST_F(LanesTest, IndicesOfALookUpArePinned) {
  // They are an operand of an operation on activations, and none of those.
  EXPECT_EQ(getLanes(R"(
    %e = tensor.empty() : tensor<12x16xi32>
    %i = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%y : tensor<12x16xf32>) outs(%e : tensor<12x16xi32>) {
    ^bb0(%a: f32, %o: i32):
      %0 = arith.fptosi %a : f32 to i32
      linalg.yield %0 : i32
    } -> tensor<12x16xi32>
    %g = bsr.gather_rows %p, %w, %i feature_dim = 2
        : !bsr.pattern<8x16, block = 4x4, slots = 4>, tensor<4x4x4xf32>, tensor<12x16xi32> -> tensor<12x16x16xf32>)"),
            (SmallVector<int64_t>{0, 0, -1, 1}));
}

TEST_F(LanesTest, TheOrderPutsThemLast) {
  parse(R"(
    func.func @f(%p: !bsr.pattern<8x16, block = 4x4, slots = 4>,
                 %w: tensor<4x4x4xf32>, %x: tensor<3x12x8xf32>) {
      %y = bsr.spmm %p, %w, %x feature_dim = 2
          : !bsr.pattern<8x16, block = 4x4, slots = 4>, tensor<4x4x4xf32>,
            tensor<3x12x8xf32> -> tensor<3x12x16xf32>
      return
    })");
  Lanes lanes(find<func::FuncOp>().getBody().front());
  EXPECT_EQ(lanes.getOrder(find<SpMMOp>().getResult()),
            (SmallVector<int64_t>{0, 2, 1}));
  EXPECT_EQ(lanes.getOrder(find<SpMMOp>().getX()),
            (SmallVector<int64_t>{0, 1, 2}));
}
