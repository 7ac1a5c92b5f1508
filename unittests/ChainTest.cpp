// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains of element-wise operations and reductions, and what may be overwritten
// in them.

#include "Parse.h"
#include "bsr/Analysis/ChainMatcher.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class ChainTest : public bsr::test::ModuleTest {
protected:
  /// The chain of all operations of the only function, which reads arguments
  /// and its roots from memory.
  std::optional<Chain> match() {
    SmallVector<Operation *> roots;
    for (linalg::GenericOp op : findAll<linalg::GenericOp>())
      roots.push_back(op);
    auto isLeaf = [&](Value value) {
      return isa<BlockArgument>(value) ||
             llvm::is_contained(roots, value.getDefiningOp());
    };
    return ChainMatcher::match(roots, isLeaf, getTarget(*module));
  }
};
} // namespace

/// Rows of `x` by their sums, `read` being how the quotient reads them: as it
/// goes, or from another row.
static std::string getQuotients(StringRef read) {
  return (R"(
    #id = affine_map<(t, f) -> (t, f)>
    #row = affine_map<(t, f) -> (t)>
    #read = affine_map<)" +
          read + R"(>
    func.func @f(%x: tensor<16x16xf32>, %i: tensor<16xf32>) -> tensor<16x16xf32> {
      %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%x : tensor<16x16xf32>) outs(%i : tensor<16xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = arith.addf %a, %o : f32
        linalg.yield %0 : f32
      } -> tensor<16xf32>
      %e = tensor.empty() : tensor<16x16xf32>
      %y = linalg.generic {indexing_maps = [#read, #row, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x, %s : tensor<16x16xf32>, tensor<16xf32>) outs(%e : tensor<16x16xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = arith.divf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<16x16xf32>
      return %y : tensor<16x16xf32>
    })")
      .str();
}

TEST_F(ChainTest, ASumOverRowsComesBeforeWhatReadsIt) {
  parse(getQuotients("(t, f) -> (t, f)"));
  std::optional<Chain> chain = match();
  ASSERT_TRUE(chain);
  // The tokens are shared; their features are rows of both nests.
  auto nests = chain->getNests();
  ASSERT_EQ(nests.size(), 2u);
  EXPECT_EQ(ArrayRef(nests[0].extents), ArrayRef<int64_t>{16});
  EXPECT_EQ(ArrayRef(nests[1].extents), ArrayRef<int64_t>{16});
  EXPECT_EQ(llvm::product_of(chain->getExtents()), 16);
  EXPECT_TRUE(chain->getStored().empty());
  EXPECT_FALSE(chain->getProduct());
}

TEST_F(ChainTest, WhatIsReadBeforeItIsWrittenMayBeOverwritten) {
  parse(getQuotients("(t, f) -> (t, f)"));
  std::optional<Chain> chain = match();
  ASSERT_TRUE(chain);
  auto ops = findAll<linalg::GenericOp>();
  Value x = ops[0].getInputs()[0], y = ops[1].getResult(0);
  auto isResult = [&](Value value) { return value == y; };
  EXPECT_TRUE(chain->isReadFirst(x, isResult));
}

TEST_F(ChainTest, WhatOtherWorkItemsReadMayNot) {
  parse(getQuotients("(t, f) -> (f, t)"));
  std::optional<Chain> chain = match();
  ASSERT_TRUE(chain);
  auto ops = findAll<linalg::GenericOp>();
  Value x = ops[0].getInputs()[0], y = ops[1].getResult(0);
  auto isResult = [&](Value value) { return value == y; };
  EXPECT_FALSE(chain->isReadFirst(x, isResult));
}

/// Two values of one type that are made of `x` element by element in the nest
/// of the sums of its rows, and what reads the second one.
static constexpr StringLiteral twoOfOneNest = R"(
    #id = affine_map<(t, f) -> (t, f)>
    #row = affine_map<(t, f) -> (t)>
    func.func @f(%x: tensor<16x16xf32>, %i: tensor<16xf32>)
        -> (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16xf32>) {
      %e = tensor.empty() : tensor<16x16xf32>
      %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x16xf32>) outs(%e : tensor<16x16xf32>) {
      ^bb0(%v: f32, %o: f32):
        %0 = math.absf %v : f32
        linalg.yield %0 : f32
      } -> tensor<16x16xf32>
      %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%x : tensor<16x16xf32>) outs(%e : tensor<16x16xf32>) {
      ^bb0(%v: f32, %o: f32):
        %0 = arith.negf %v : f32
        linalg.yield %0 : f32
      } -> tensor<16x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%b : tensor<16x16xf32>) outs(%i : tensor<16xf32>) {
      ^bb0(%v: f32, %o: f32):
        %0 = arith.addf %v, %o : f32
        linalg.yield %0 : f32
      } -> tensor<16xf32>
      return %a, %b, %s : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16xf32>
    })";

TEST_F(ChainTest, AValueLiesWhereAResultIsWrittenLater) {
  parse(twoOfOneNest);
  std::optional<Chain> chain = match();
  ASSERT_TRUE(chain);
  auto ops = findAll<linalg::GenericOp>();
  Value first = ops[0].getResult(0), second = ops[1].getResult(0);
  ASSERT_EQ(chain->getNests().size(), 1u);
  // Both are stored in each row, in the order of the program.
  EXPECT_TRUE(chain->canLieAt(first, second));
  EXPECT_FALSE(chain->canLieAt(second, first));
}
