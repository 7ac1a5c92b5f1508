// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a kernel goes through a cluster.

#include "bsr/Analysis/ClusterPlan.h"
#include "Parse.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class ClusterPlanTest : public bsr::test::ModuleTest {
protected:
  /// The plan of the only cluster, written in it and read again.
  std::optional<ClusterPlan> getPlan() {
    auto cluster = find<ClusterOp>();
    std::optional<ClusterPlan> plan = ClusterPlan::match(
        cluster, getTarget(*module), /*stored=*/{}, emitReport);
    if (!plan)
      return std::nullopt;
    plan->write(cluster);
    EXPECT_TRUE(succeeded(cluster.verifyRegions()));
    return ClusterPlan::get(cluster, getTarget(*module), emitReport);
  }
};
} // namespace

TEST_F(ClusterPlanTest, ElementWiseOperationsOfOneSpaceAreOneNest) {
  parse(R"(
    #id = affine_map<(i) -> (i)>
    bsr.cluster private @c(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %e = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%y : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = math.absf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      bsr.yield %y, %z : tensor<8xf32>, tensor<8xf32>
    })");
  std::optional<ClusterPlan> plan = getPlan();
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->chain);
  ASSERT_EQ(plan->nests.size(), 1u);
  EXPECT_EQ(plan->nests[0].size(), 2u);
}

TEST_F(ClusterPlanTest, AProductLiesWhereItsEpilogueWrites) {
  parse(R"(
    !p = !bsr.pattern<32x32, block = 16x16, slots = 3>
    #id = affine_map<(f, t) -> (f, t)>
    bsr.cluster private @c(%p: !p, %w: tensor<3x16x16xf32>, %x: tensor<32x48xf32>)
        -> tensor<32x48xf32> {
      %y = bsr.spmm %p, %w, %x feature_dim = 0
          : !p, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<32x48xf32>
      %e = tensor.empty() : tensor<32x48xf32>
      %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%y : tensor<32x48xf32>) outs(%e : tensor<32x48xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = math.absf %a : f32
        linalg.yield %0 : f32
      } -> tensor<32x48xf32>
      bsr.yield %z : tensor<32x48xf32>
    })");
  std::optional<ClusterPlan> plan = getPlan();
  ASSERT_TRUE(plan);
  ASSERT_TRUE(plan->chain);
  EXPECT_TRUE(plan->nests.empty());
  auto product = find<SpMMOp>();
  auto epilogue = find<linalg::GenericOp>();
  EXPECT_EQ(plan->chain->getProduct(), product.getY());
  ASSERT_EQ(plan->places.size(), 1u);
  EXPECT_EQ(plan->places[0].first, product.getY());
  EXPECT_EQ(plan->places[0].second, epilogue.getResult(0));
}

TEST_F(ClusterPlanTest, ASumThatNobodyKeepsIsRefused) {
  parse(R"(
    #id = affine_map<(i) -> (i)>
    #none = affine_map<(i) -> ()>
    bsr.cluster private @c(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<4xf32> {
      %s = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
          ins(%x : tensor<4xf32>) outs(%i : tensor<f32>) {
      ^bb0(%b: f32, %o: f32):
        %0 = arith.addf %b, %o : f32
        linalg.yield %0 : f32
      } -> tensor<f32>
      %e = tensor.empty() : tensor<4xf32>
      %y = linalg.generic {indexing_maps = [#none, #id], iterator_types = ["parallel"]}
          ins(%s : tensor<f32>) outs(%e : tensor<4xf32>) {
      ^bb0(%b: f32, %o: f32):
        linalg.yield %b : f32
      } -> tensor<4xf32>
      bsr.yield %y : tensor<4xf32>
    })");
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  EXPECT_FALSE(getPlan());
  EXPECT_EQ(message, "expected a sum that is a result or is read by the work "
                     "item that computes it, but got one that is neither");
}
