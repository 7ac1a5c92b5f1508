// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kinds of work, and how much of it.

#include "bsr/Analysis/Work.h"
#include "Parse.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class WorkTest : public bsr::test::ModuleTest {
protected:
  /// A cluster of 5 blocks of 16x16 that `operations` turn into %y, marked with
  /// their work.
  ClusterOp mark(StringRef operations, StringRef type) {
    parse(("!p = !bsr.pattern<32x64, block = 16x16, slots = 5>\n"
           "#id = affine_map<(i, j) -> (i, j)>\n"
           "bsr.cluster private @c(%p: !p, %w: tensor<5x16x16xf32>, "
           "%x: tensor<32x48xf32>, %z: tensor<64x48xf32>) -> " +
           type + " {\n" + operations + "\nbsr.yield %y : " + type + "\n}")
              .str());
    auto cluster = find<ClusterOp>();
    SmallVector<Operation *> members;
    for (Operation &op : cluster.getBody().front().without_terminator())
      members.push_back(&op);
    setWork(cluster, members);
    return cluster;
  }
  static StringRef getKind(ClusterOp cluster) {
    return attrs::kind.get(cluster).getValue();
  }
  static int64_t getFlops(ClusterOp cluster) {
    IntegerAttr flops = attrs::flops.get(cluster);
    return flops ? flops.getInt() : 0;
  }
};
constexpr StringRef negate = "%n = arith.negf %a : f32\nlinalg.yield %n : f32";
} // namespace

/// Element-wise `operation` of %0, into %y.
static std::string follow(StringRef operation) {
  return ("%e = tensor.empty() : tensor<64x48xf32>\n"
          "%y = linalg.generic {indexing_maps = [#id, #id], "
          "iterator_types = [\"parallel\", \"parallel\"]} "
          "ins(%0 : tensor<64x48xf32>) outs(%e : tensor<64x48xf32>) {\n"
          "^bb0(%a: f32, %o: f32):\n" +
          operation + "\n} -> tensor<64x48xf32>")
      .str();
}

TEST_F(WorkTest, AProductIsItsClustersWork) {
  ClusterOp cluster = mark(
      "%0 = bsr.spmm %p, %w, %x feature_dim = 0 : !p, tensor<5x16x16xf32>, "
      "tensor<32x48xf32> -> tensor<64x48xf32>\n" +
          follow(negate),
      "tensor<64x48xf32>");
  EXPECT_EQ(getKind(cluster), "spmm");
  // Of stored blocks, not of the matrix.
  EXPECT_EQ(getFlops(cluster), 2 * 5 * 16 * 16 * 48);
}

TEST_F(WorkTest, TransposedAndSampledProductsAreKindsOfTheirOwn) {
  ClusterOp cluster =
      mark("%y = bsr.spmm %p, %w, %z transpose feature_dim = 0 : !p, "
           "tensor<5x16x16xf32>, tensor<64x48xf32> -> tensor<32x48xf32>",
           "tensor<32x48xf32>");
  EXPECT_EQ(getKind(cluster), "spmm_transposed");
  EXPECT_EQ(getFlops(cluster), 2 * 5 * 16 * 16 * 48);
  cluster = mark("%y = bsr.sddmm %p, %x, %z feature_dim = 0 : !p, "
                 "tensor<32x48xf32>, tensor<64x48xf32> -> tensor<5x16x16xf32>",
                 "tensor<5x16x16xf32>");
  EXPECT_EQ(getKind(cluster), "sddmm");
  EXPECT_EQ(getFlops(cluster), 2 * 5 * 16 * 16 * 48);
}

TEST_F(WorkTest, ADenseProductTakesAMultiplicationAndAnAdditionAPoint) {
  ClusterOp cluster = mark(
      R"(%e = tensor.empty() : tensor<32x64xf32>
         %y = linalg.generic {
             indexing_maps = [affine_map<(i, j, k) -> (i, k)>,
                              affine_map<(i, j, k) -> (j, k)>,
                              affine_map<(i, j, k) -> (i, j)>],
             iterator_types = ["parallel", "parallel", "reduction"]}
             ins(%x, %z : tensor<32x48xf32>, tensor<64x48xf32>)
             outs(%e : tensor<32x64xf32>) {
         ^bb0(%a: f32, %b: f32, %o: f32):
           %m = arith.mulf %a, %b : f32
           %s = arith.addf %o, %m : f32
           linalg.yield %s : f32
         } -> tensor<32x64xf32>)",
      "tensor<32x64xf32>");
  EXPECT_EQ(getKind(cluster), "dense");
  EXPECT_EQ(getFlops(cluster), 2 * 32 * 64 * 48);
}

TEST_F(WorkTest, OnlyProductsAreCounted) {
  std::string zero = "%0 = tensor.empty() : tensor<64x48xf32>\n";
  ClusterOp cluster = mark(zero + follow(negate), "tensor<64x48xf32>");
  EXPECT_EQ(getKind(cluster), "elementwise");
  EXPECT_FALSE(attrs::flops.isOn(cluster));
  EXPECT_EQ(getKind(mark(zero + follow("linalg.yield %a : f32"),
                         "tensor<64x48xf32>")),
            "copy");
}
