// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When values lie in memory, and which of them are computed again.

#include "Transforms/Clusters/StoredValues.h"
#include "Parse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class StoredValuesTest : public bsr::test::ModuleTest {
protected:
  /// A step whose forward part makes `y` by `operation` of the product `s`, and
  /// whose backward part reads `y`, and where `isRead` `s`.
  void makeStep(StringRef operation, bool isRead) {
    std::string last = isRead ? R"(
      %dx = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%y, %s : !t, !t) outs(%e : !t) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> !t
      return %u, %dv, %dx : !t, !v, !t)"
                              : "return %u, %dv, %dz : !t, !v, !t";
    parse((R"(
    #id = affine_map<(i, j) -> (i, j)>
    !t = tensor<64x64xf32>
    !p = !bsr.pattern<64x64, block = 16x16, slots = 4>
    !v = tensor<4x16x16xf32>
    func.func @f(%p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v, !t) {
      %e = tensor.empty() : !t
      %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : !t) outs(%e : !t) {
      ^bb0(%a: f32, %o: f32):
        )" +
           operation + R"(
        linalg.yield %0 : f32
      } -> !t
      %z = bsr.spmm %p, %v, %y feature_dim = 0 : !p, !v, !t -> !t
      %w = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
      %u = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%w, %z : !t, !t) outs(%e : !t) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> !t
      %dv = bsr.sddmm %p, %y, %dz feature_dim = 0 : !p, !t, !t -> !v
      )" + last +
           "\n}")
              .str());
  }
  Block &getBlock() { return find<func::FuncOp>().getBody().front(); }
  TargetCosts getCosts() { return getTarget(*module).getCosts(); }
  SmallVector<Value> choose(int64_t maxCost) {
    return StoredValues(getBlock(), getCosts()).choose(maxCost);
  }
  Value getActivation() { return findAll<linalg::GenericOp>()[0].getResult(0); }
};
constexpr StringRef ofTanh = "%0 = math.tanh %a : f32";
} // namespace

TEST_F(StoredValuesTest, KnowsWhenValuesAreRead) {
  makeStep(ofTanh, /*isRead=*/true);
  StoredValues memory(getBlock(), getCosts());
  auto products = findAll<SpMMOp>();
  Value s = products[0].getY(), y = getActivation();
  ASSERT_TRUE(memory.values.count(s) && memory.values.count(y));
  auto &ofS = memory.values[s], &ofY = memory.values[y];
  EXPECT_EQ(ofS.bytes, 64 * 64 * 4);
  EXPECT_EQ(ofY.reads.size(), 3u);
  EXPECT_EQ(ofS.reads.size(), 2u);
  EXPECT_LT(ofS.begin, ofY.begin);
  EXPECT_TRUE(llvm::is_sorted(ofY.reads));
  // Most is live where the forward part ends.
  EXPECT_EQ(memory.getPeak(), findAll<linalg::GenericOp>()[1]);
}

TEST_F(StoredValuesTest, WhatIsKeptAnywayServes) {
  makeStep(ofTanh, /*isRead=*/true);
  EXPECT_EQ(choose(/*maxCost=*/64), SmallVector<Value>{getActivation()});
  // The first has nothing that it could be computed from, but by a product.
  makeStep(ofTanh, /*isRead=*/false);
  EXPECT_TRUE(choose(64).empty());
}

TEST_F(StoredValuesTest, DearValuesStay) {
  makeStep(ofTanh, /*isRead=*/true);
  EXPECT_TRUE(choose(/*maxCost=*/0).empty());
}

TEST_F(StoredValuesTest, TensorsHaveBytes) {
  makeStep(ofTanh, /*isRead=*/true);
  EXPECT_EQ(getTensorBytes(getActivation()), 64 * 64 * 4);
  EXPECT_EQ(getTensorBytes(getBlock().getArgument(1)), 4 * 16 * 16 * 4);
  EXPECT_EQ(getTensorBytes(getBlock().getArgument(0)), 0);
}
