// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is kept in memory, and what is computed at each use.

#include "bsr/Analysis/Materialization.h"
#include "Parse.h"
#include "bsr/Dialect/BSR.h"

using namespace mlir;
using namespace mlir::bsr;

using MaterializationTest = bsr::test::ModuleTest;

/// `h` of `x` by `operation`, which two others use.
static std::string getText(StringRef operation) {
  return (R"(
    #id = affine_map<(i) -> (i)>
    func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %e = tensor.empty() : tensor<8xf32>
      %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = )" +
          operation + R"( %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%h : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%h : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = math.absf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %y, %z : tensor<8xf32>, tensor<8xf32>
    })")
      .str();
}

TEST_F(MaterializationTest, CheapValuesAreComputedAtEachUse) {
  parse(getText("arith.negf"));
  auto ops = findAll<linalg::GenericOp>();
  TargetCosts costs = getTarget(*module).getCosts();
  Materialization roots(*ops[0]->getBlock(), costs);
  EXPECT_FALSE(roots.contains(ops[0]));
  EXPECT_TRUE(roots.contains(ops[1]));
  EXPECT_TRUE(roots.contains(ops[2]));
  EXPECT_FALSE(roots.isLeaf(ops[0].getResult(0)));
  // Its own operation and that which is inlined.
  EXPECT_EQ(roots.getCost(ops[1]), 2);
}

TEST_F(MaterializationTest, DearValuesAreStored) {
  parse(getText("math.exp"));
  auto ops = findAll<linalg::GenericOp>();
  TargetCosts costs = getTarget(*module).getCosts();
  EXPECT_TRUE(Materialization(*ops[0]->getBlock(), costs).contains(ops[0]));
  // The target says what is dear.
  costs.everyUse = 12;
  EXPECT_FALSE(Materialization(*ops[0]->getBlock(), costs).contains(ops[0]));
}
