// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which arguments of a cluster its results may be written over.

#include "bsr/Analysis/InPlace.h"
#include "Parse.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class InPlaceTest : public bsr::test::ModuleTest {
protected:
  /// The arguments of a cluster of `x` and `y`, both 4x4, that adds them with
  /// these maps, in front of which `operations` stand.
  SmallVector<int64_t> getInPlace(StringRef xMap, StringRef yMap,
                                  StringRef operations = "", StringRef x = "%x",
                                  StringRef type = "tensor<4x4xf32>") {
    std::string text =
        ("bsr.cluster private @c(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> "
         "tensor<4x4xf32> {\n" +
         operations +
         "\n%e = tensor.empty() : tensor<4x4xf32>\n"
         "%z = linalg.generic {indexing_maps = [affine_map<(i, j) -> " +
         xMap + ">, affine_map<(i, j) -> " + yMap +
         ">, affine_map<(i, j) -> (i, j)>], iterator_types = [\"parallel\", "
         "\"parallel\"]} ins(" +
         x + ", %y : " + type +
         ", tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {\n"
         "^bb0(%a: f32, %b: f32, %o: f32):\n"
         "%0 = arith.addf %a, %b : f32\n"
         "linalg.yield %0 : f32\n"
         "} -> tensor<4x4xf32>\n"
         "bsr.yield %z : tensor<4x4xf32>\n}")
            .str();
    parse(text);
    auto cluster = find<ClusterOp>();
    std::optional<ClusterPlan> plan = ClusterPlan::match(
        cluster, getTarget(*module), /*stored=*/{}, emitReport);
    EXPECT_TRUE(plan);
    return getInPlaceArguments(cluster, *plan);
  }
};
} // namespace

TEST_F(InPlaceTest, WhatIsReadWhereItIsWrittenMayBeOverwritten) {
  EXPECT_EQ(getInPlace("(i, j)", "(i, j)"), (SmallVector<int64_t>{0, 1}));
}

TEST_F(InPlaceTest, ATransposedReadForbidsIt) {
  EXPECT_EQ(getInPlace("(i, j)", "(j, i)"), SmallVector<int64_t>{0});
}

TEST_F(InPlaceTest, AConstantIndexForbidsIt) {
  EXPECT_EQ(getInPlace("(0, j)", "(i, j)"), SmallVector<int64_t>{1});
}

TEST_F(InPlaceTest, AReadByWayOfAnInlinedTransposeForbidsIt) {
  EXPECT_EQ(getInPlace("(i, j)", "(i, j)", R"(
    %t = tensor.empty() : tensor<4x4xf32>
    %u = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>,
                                          affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<4x4xf32>) outs(%t : tensor<4x4xf32>) {
    ^bb0(%a: f32, %o: f32):
      linalg.yield %a : f32
    } -> tensor<4x4xf32>)",
                       "%u"),
            SmallVector<int64_t>{1});
}

TEST_F(InPlaceTest, AReadByWayOfASliceForbidsIt) {
  EXPECT_EQ(getInPlace("(0, j)", "(i, j)", R"(
    %u = tensor.extract_slice %x[2, 0] [1, 4] [1, 1]
        : tensor<4x4xf32> to tensor<1x4xf32>)",
                       "%u", "tensor<1x4xf32>"),
            SmallVector<int64_t>{1});
}

TEST_F(InPlaceTest, AReadByAnIndexFromDataForbidsIt) {
  parse(R"(
    #id = affine_map<(i) -> (i)>
    bsr.cluster private @c(%x: tensor<4xf32>, %i: tensor<4xi32>) -> tensor<4xf32> {
      %e = tensor.empty() : tensor<4xf32>
      %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%i : tensor<4xi32>) outs(%e : tensor<4xf32>) {
      ^bb0(%a: i32, %o: f32):
        %0 = arith.index_cast %a : i32 to index
        %1 = tensor.extract %x[%0] : tensor<4xf32>
        linalg.yield %1 : f32
      } -> tensor<4xf32>
      bsr.yield %z : tensor<4xf32>
    })");
  auto cluster = find<ClusterOp>();
  std::optional<ClusterPlan> plan = ClusterPlan::match(
      cluster, getTarget(*module), /*stored=*/{}, emitReport);
  ASSERT_TRUE(plan);
  EXPECT_EQ(getInPlaceArguments(cluster, *plan), SmallVector<int64_t>{1});
}
