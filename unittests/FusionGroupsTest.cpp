// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which operations one kernel computes.

#include "Transforms/Clusters/FusionGroups.h"
#include "Parse.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class GroupsTest : public bsr::test::ModuleTest {
protected:
  /// A step of a product `s` and of `rest`, which returns `results`.
  void makeStep(StringRef rest, StringRef results, StringRef types) {
    parse(
        ("#id = affine_map<(i, j) -> (i, j)>\n"
         "#row = affine_map<(i, j) -> (i)>\n#col = affine_map<(i, j) -> (j)>\n"
         "!t = tensor<64x48xf32>\n!c = tensor<48xf32>\n"
         "!p = !bsr.pattern<64x64, block = 16x16, slots = 4>\n"
         "!v = tensor<4x16x16xf32>\n"
         "func.func @f(%p: !p, %v: !v, %x: !t, %z: !t) -> (" +
         types +
         ") {\n%e = tensor.empty() : !t\n"
         "%s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t\n" +
         rest + "return " + results + " : " + types + "\n}")
            .str());
  }
  /// `%name` of `input` and `%z`, element by element.
  static std::string apply(StringRef name, StringRef input,
                           StringRef operation = "arith.mulf") {
    return ("%" + name +
            " = linalg.generic {indexing_maps = [#id, #id, #id], "
            "iterator_types = [\"parallel\", \"parallel\"]} ins(%" +
            input +
            ", %z : !t, !t) outs(%e : !t) {\n^bb0(%a: f32, %b: f32, %o: f32):\n"
            "%0 = " +
            operation +
            " %a, %b : f32\n%1 = math.exp %0 : f32\nlinalg.yield %1 : f32\n"
            "} -> !t\n")
        .str();
  }
  /// The sizes of the groups that there are, in their order.
  SmallVector<size_t> getSizes() {
    FusionGroups groups(find<func::FuncOp>().getBody().front(),
                        getTarget(*module));
    SmallVector<size_t> sizes;
    for (const FusionGroups::Group &group : groups.groups)
      if (!group.empty())
        sizes.push_back(group.size());
    return sizes;
  }
};
using Sizes = SmallVector<size_t>;
} // namespace

TEST_F(GroupsTest, WhatFollowsAProductIsItsEpilogue) {
  makeStep(apply("y", "s"), "%y", "!t");
  EXPECT_EQ(getSizes(), Sizes{2});
  FusionGroups groups(find<func::FuncOp>().getBody().front(),
                      getTarget(*module));
  EXPECT_TRUE(isa<SpMMOp>(groups.groups[0].front()));
  // The product itself is read by nobody else.
  EXPECT_EQ(groups.getKept(0).used,
            SmallVector<Value>{findAll<linalg::GenericOp>()[0].getResult(0)});
}

TEST_F(GroupsTest, InputsAreThoseOfTheWholeGroup) {
  makeStep(apply("y", "s"), "%y", "!t");
  FusionGroups groups(find<func::FuncOp>().getBody().front(),
                      getTarget(*module));
  SetVector<Value> inputs;
  SetVector<Operation *> members;
  groups.collect(groups.groups[0], inputs, members);
  // The pattern, the values and two tensors: not what lies between.
  EXPECT_EQ(inputs.size(), 4u);
  EXPECT_FALSE(inputs.contains(find<SpMMOp>().getY()));
}

TEST_F(GroupsTest, AnotherProductBeginsAGroup) {
  makeStep(apply("y", "s") +
               "%q = bsr.spmm %p, %v, %y feature_dim = 0 : !p, !v, !t -> !t\n" +
               apply("w", "q"),
           "%y, %w", "!t, !t");
  EXPECT_EQ(getSizes(), (Sizes{2, 2}));
}

TEST_F(GroupsTest, WhatIsNotThereYetIsWaitedFor) {
  // `w` follows `s`, but reads what is made of the later product `q`.
  makeStep("%q = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t\n"
           "%w = linalg.generic {indexing_maps = [#id, #id, #id], "
           "iterator_types = [\"parallel\", \"parallel\"]} "
           "ins(%s, %q : !t, !t) outs(%e : !t) {\n"
           "^bb0(%a: f32, %b: f32, %o: f32):\n%0 = arith.mulf %a, %b : f32\n"
           "linalg.yield %0 : f32\n} -> !t\n",
           "%w", "!t");
  FusionGroups groups(find<func::FuncOp>().getBody().front(),
                      getTarget(*module));
  auto w = findAll<linalg::GenericOp>()[0];
  auto products = findAll<SpMMOp>();
  for (const FusionGroups::Group &group : groups.groups)
    if (llvm::is_contained(group, w.getOperation()))
      EXPECT_FALSE(llvm::is_contained(group, products[0].getOperation()));
}

TEST_F(GroupsTest, NothingJoinsFromBehindThePeak) {
  std::string rest = apply("y", "x") + apply("w", "z");
  makeStep(rest, "%s, %y, %w", "!t, !t, !t");
  size_t whole = getSizes().size();
  auto ops = findAll<linalg::GenericOp>();
  attrs::peak.set(ops[1], UnitAttr::get(&context));
  EXPECT_EQ(getSizes().size(), whole + 1);
}
