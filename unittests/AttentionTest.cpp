// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is found of an attention: what is exponentiated, and that nothing but
// its formula is taken for it.

#include "Parse.h"
#include "Transforms/Attention/AttentionMatcher.h"
#include "Transforms/Attention/AttentionScores.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class AttentionTest : public bsr::test::ModuleTest {
protected:
  /// What is found in a program whose softmax is of `last`, which `terms` make
  /// of the scores `%s`, and what is in the way. A term may read `%bias`,
  /// `%mask` and the numbers `%half`, `%low` and `%zero`.
  std::optional<AttentionMatch> match(StringRef terms, StringRef last) {
    parse((R"(
#q = affine_map<(t, i, j, d) -> (t, i, d)>
#k = affine_map<(t, i, j, d) -> (t, j, d)>
#s = affine_map<(t, i, j, d) -> (t, i, j)>
#p = affine_map<(t, i, e, j) -> (t, i, j)>
#v = affine_map<(t, i, e, j) -> (t, j, e)>
#y = affine_map<(t, i, e, j) -> (t, i, e)>
#id = affine_map<(t, i, j) -> (t, i, j)>
#row = affine_map<(t, i, j) -> (t, i)>
#pair = affine_map<(t, i, j) -> (i, j)>
!t = tensor<2x8x4xf32>
!s = tensor<2x8x8xf32>
!r = tensor<2x8xf32>
func.func @f(%q: !t, %k: !t, %v: !t, %bias: tensor<8x8xf32>, %mask: tensor<8x8xi1>) -> !t {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : !s
  %er = tensor.empty() : !r
  %et = tensor.empty() : !t
  %s0 = linalg.fill ins(%zero : f32) outs(%es : !s) -> !s
  %m0 = linalg.fill ins(%low : f32) outs(%er : !r) -> !r
  %l0 = linalg.fill ins(%zero : f32) outs(%er : !r) -> !r
  %y0 = linalg.fill ins(%zero : f32) outs(%et : !t) -> !t
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : !t, !t) outs(%s0 : !s) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> !s
)" + terms +
           "%m = linalg.generic {indexing_maps = [#id, #row], "
           "iterator_types = [\"parallel\", \"parallel\", \"reduction\"]} "
           "ins(%" +
           last + R"( : !s) outs(%m0 : !r) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> !r
  %x = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%)" +
           last + R"(, %m : !s, !r) outs(%es : !s) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> !s
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : !s) outs(%l0 : !r) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> !r
  %n = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %l : !s, !r) outs(%es : !s) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> !s
  %w = linalg.generic {indexing_maps = [#p, #v, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%n, %v : !s, !t) outs(%y0 : !t) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> !t
  return %w : !t
})")
              .str());
    auto product = find<linalg::GenericOp>();
    obstacle = {};
    return matchAttention(product, findMaximized(*product->getBlock()),
                          obstacle);
  }
  /// `%name` of the scores `%of` by `operations`, whose last one is `%r`.
  static std::string apply(StringRef name, StringRef of, StringRef operations) {
    return ("%" + name +
            " = linalg.generic {indexing_maps = [#id, #id], iterator_types = "
            "[\"parallel\", \"parallel\", \"parallel\"]} ins(%" +
            of + " : !s) outs(%es : !s) {\n^bb0(%a: f32, %o: f32):\n" +
            operations + "\nlinalg.yield %r : f32\n} -> !s\n")
        .str();
  }
  /// The same with an entry `%b` of `%other`, a tensor of pairs.
  static std::string applyTo(StringRef name, StringRef of, StringRef other,
                             StringRef type, StringRef operations) {
    return ("%" + name +
            " = linalg.generic {indexing_maps = [#id, #pair, #id], "
            "iterator_types = [\"parallel\", \"parallel\", \"parallel\"]} "
            "ins(%" +
            of + ", %" + other + " : !s, tensor<8x8x" + type +
            ">) outs(%es : !s) {\n^bb0(%a: f32, %b: " + type + ", %o: f32):\n" +
            operations + "\nlinalg.yield %r : f32\n} -> !s\n")
        .str();
  }
  static std::string addBias(StringRef name, StringRef of) {
    return applyTo(name, of, "bias", "f32", "%r = arith.addf %a, %b : f32");
  }
  static std::string scale(StringRef name, StringRef of) {
    return apply(name, of, "%r = arith.mulf %a, %half : f32");
  }
  static std::string applyMask(StringRef name, StringRef of,
                               StringRef operands = "%b, %a, %low") {
    return applyTo(name, of, "mask", "i1",
                   ("%r = arith.select " + operands + " : f32").str());
  }
  Value getArgument(unsigned number) {
    return find<func::FuncOp>().getArgument(number);
  }

  AttentionObstacle obstacle;
};
} // namespace

TEST_F(AttentionTest, SoftmaxOfAProduct) {
  auto found = match("", "s");
  ASSERT_TRUE(found) << obstacle.reason;
  EXPECT_EQ(found->scale, 1);
  EXPECT_EQ(found->numBatchDims, 1u);
  EXPECT_EQ(found->q.tensor, getArgument(0));
  EXPECT_EQ(found->k.tensor, getArgument(1));
  EXPECT_EQ(found->v.tensor, getArgument(2));
  EXPECT_TRUE(found->biases.empty() && found->masks.empty() && !found->fill);
}

TEST_F(AttentionTest, ScalesBiasesAndMasksComeInTheirOrder) {
  auto found = match(
      scale("t1", "s") + addBias("t2", "t1") + applyMask("t3", "t2"), "t3");
  ASSERT_TRUE(found) << obstacle.reason;
  EXPECT_EQ(found->scale, .5);
  ASSERT_EQ(found->biases.size(), 1u);
  EXPECT_EQ(found->biases[0].tensor, getArgument(3));
  // Of a query and a key.
  EXPECT_EQ(found->biases[0].labels, (Labels{1, 2}));
  ASSERT_EQ(found->masks.size(), 1u);
  EXPECT_EQ(found->masks[0].tensor.tensor, getArgument(4));
  EXPECT_FALSE(found->masks[0].isNegated);
  EXPECT_EQ(found->fill, -INFINITY);
}

TEST_F(AttentionTest, ScalesMultiply) {
  auto found = match(scale("t1", "s") +
                         apply("t2", "t1", "%r = arith.divf %a, %half : f32") +
                         scale("t3", "t2"),
                     "t3");
  ASSERT_TRUE(found) << obstacle.reason;
  EXPECT_EQ(found->scale, .5);
}

TEST_F(AttentionTest, ScalesBehindABiasAreNone) {
  // It would be one of the bias, too.
  EXPECT_FALSE(match(addBias("t1", "s") + scale("t2", "t1"), "t2"));
  EXPECT_FALSE(match(applyMask("t1", "s") + addBias("t2", "t1"), "t2"));
}

TEST_F(AttentionTest, QuotientsAreByANumber) {
  EXPECT_FALSE(
      match(apply("t1", "s", "%r = arith.divf %half, %a : f32"), "t1"));
}

TEST_F(AttentionTest, MasksMayBeNegated) {
  auto found = match(applyMask("t1", "s", "%b, %low, %a"), "t1");
  ASSERT_TRUE(found) << obstacle.reason;
  ASSERT_EQ(found->masks.size(), 1u);
  EXPECT_TRUE(found->masks[0].isNegated);
  EXPECT_EQ(found->fill, -INFINITY);
}

TEST_F(AttentionTest, MasksHaveOneFill) {
  EXPECT_FALSE(match(
      applyMask("t1", "s") + applyMask("t2", "t1", "%b, %a, %zero"), "t2"));
}

TEST_F(AttentionTest, WhatDiffersOnlyForLargeScoresIsNone) {
  // All of these are the scores themselves while those are small.
  std::string small = "%c = arith.constant 1.0e-6 : f32\n"
                      "%0 = arith.mulf %a, %c : f32\n"
                      "%1 = arith.addf %0, %half : f32\n";
  std::string end = "%r = arith.addf %a, %2 : f32";
  for (StringRef operation :
       {"%2 = math.floor %1 : f32\n", "%2 = math.trunc %1 : f32\n",
        "%2 = math.roundeven %0 : f32\n", "%2 = math.round %0 : f32\n",
        "%3 = math.ceil %1 : f32\n%4 = arith.constant 1.0 : f32\n"
        "%2 = arith.subf %3, %4 : f32\n",
        "%3 = arith.fptosi %1 : f32 to i32\n"
        "%2 = arith.sitofp %3 : i32 to f32\n",
        "%3 = arith.cmpf ogt, %0, %half : f32\n"
        "%2 = arith.select %3, %half, %zero : f32\n",
        "%3 = arith.maximumf %0, %half : f32\n"
        "%2 = arith.subf %3, %half : f32\n"}) {
    EXPECT_FALSE(match(apply("t1", "s", small + operation.str() + end), "t1"))
        << operation.str();
    EXPECT_EQ(obstacle.reason, "compares scores") << operation.str();
  }
  // Smooth functions are what they are everywhere.
  auto found = match(apply("t1", "s",
                           small +
                               "%3 = math.tanh %0 : f32\n"
                               "%4 = math.tanh %0 : f32\n"
                               "%2 = arith.subf %3, %4 : f32\n" +
                               end),
                     "t1");
  EXPECT_TRUE(found) << obstacle.reason;
}
