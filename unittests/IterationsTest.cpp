// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether iterations of a parallel loop touch different elements.

#include "bsr/Analysis/Iterations.h"
#include "Parse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class IterationsTest : public bsr::test::ModuleTest {
protected:
  /// Whether the iterations of a loop over 4 lines, with this `body`, touch
  /// different elements of %m. %ptr and %slot are the arrays of a pattern's
  /// view if `hasPattern`.
  bool areApart(StringRef body, bool hasPattern = true) {
    parse(("func.func @f(%ptr: memref<5xi32>, %slot: memref<9xi32>, "
           "%m: memref<64xf32>, %v: f32, %w: vector<8xf32>) {\n"
           "%c0 = arith.constant 0 : index\n"
           "%c1 = arith.constant 1 : index\n"
           "%c7 = arith.constant 7 : index\n"
           "%c8 = arith.constant 8 : index\n"
           "%c9 = arith.constant 9 : index\n"
           "scf.forall (%i) in (4) {\n"
           "%i8 = arith.muli %i, %c8 : index\n" +
           body + "\n}\nreturn\n}")
              .str());
    auto function = find<func::FuncOp>();
    PatternArrays arrays;
    if (hasPattern) {
      arrays.pointers.insert(function.getArgument(0));
      arrays.views.insert({function.getArgument(0), function.getArgument(1)});
    }
    auto loop = find<scf::ForallOp>();
    Iterations iterations(loop, arrays);
    SmallVector<MemoryAccess> accesses;
    loop.walk([&](Operation *op) {
      std::optional<MemoryAccess> access = iterations.getAccess(op);
      if (access && access->buffer == function.getArgument(2))
        accesses.push_back(*access);
    });
    EXPECT_FALSE(accesses.empty());
    return iterations.areApart(accesses);
  }
  /// The same of a store at %at, for each %j below `extent`.
  bool isStoreApart(StringRef extent, StringRef at) {
    return areApart(("scf.for %j = %c0 to " + extent + " step %c1 {\n" + at +
                     "\nmemref.store %v, %m[%at] : memref<64xf32>\n}")
                        .str());
  }
  /// The same of a store at the slot of each block of the lines from %i to
  /// `end`.
  bool isSlotApart(StringRef end, StringRef at, bool hasPattern = true) {
    return areApart((end +
                     "\n%a = memref.load %ptr[%i] : memref<5xi32>\n"
                     "%b = memref.load %ptr[%end] : memref<5xi32>\n"
                     "%low = arith.index_cast %a : i32 to index\n"
                     "%high = arith.index_cast %b : i32 to index\n"
                     "scf.for %k = %low to %high step %c1 {\n" +
                     at + "\nmemref.store %v, %m[%at] : memref<64xf32>\n}")
                        .str(),
                    hasPattern);
  }
  /// The same of a store at the slot of the block at %q, by threads %j below 9,
  /// in a branch on %is.
  bool isGuardedApart(StringRef q, StringRef is) {
    return areApart(("%n = arith.addi %i, %c1 : index\n"
                     "%a = memref.load %ptr[%i] : memref<5xi32>\n"
                     "%b = memref.load %ptr[%n] : memref<5xi32>\n"
                     "%start = arith.index_cast %a : i32 to index\n"
                     "%end = arith.index_cast %b : i32 to index\n"
                     "scf.for %j = %c0 to %c9 step %c1 {\n" +
                     q + "\n" + is +
                     "\nscf.if %is {\n"
                     "%s = memref.load %slot[%q] : memref<9xi32>\n"
                     "%at = arith.index_cast %s : i32 to index\n"
                     "memref.store %v, %m[%at] : memref<64xf32>\n}\n}")
                        .str());
  }
  static constexpr StringRef next = "%end = arith.addi %i, %c1 : index";
  static constexpr StringRef slot =
      "%s = memref.load %slot[%k] : memref<9xi32>\n"
      "%at = arith.index_cast %s : i32 to index";
};
} // namespace

TEST_F(IterationsTest, PartsThatFillTheirStepAreApart) {
  StringRef at = "%at = arith.addi %i8, %j : index";
  EXPECT_TRUE(isStoreApart("%c8", at));
  EXPECT_TRUE(isStoreApart("%c7", at));
  // The last element of one is the first of the next.
  EXPECT_FALSE(isStoreApart("%c9", at));
}

TEST_F(IterationsTest, ALoopWithinAPartIsApart) {
  auto isPartApart = [&](StringRef low, StringRef end) {
    return areApart(("%a = memref.load %slot[%i] : memref<9xi32>\n"
                     "%n = arith.index_cast %a : i32 to index\n"
                     "%end = arith.addi %i8, " +
                     end + " : index\n%low = " + low +
                     " : index\n%high = arith.minui %end, %n : index\n"
                     "scf.for %at = %low to %high step %c1 {\n"
                     "memref.store %v, %m[%at] : memref<64xf32>\n}")
                        .str(),
                    /*hasPattern=*/false);
  };
  EXPECT_TRUE(isPartApart("arith.maxui %i8, %n", "%c8"));
  EXPECT_TRUE(isPartApart("arith.maxui %n, %i8", "%c8"));
  EXPECT_FALSE(isPartApart("arith.maxui %i8, %n", "%c9"));
  // Nothing keeps it from beginning before the part.
  EXPECT_FALSE(isPartApart("arith.addi %n, %c0", "%c8"));
  EXPECT_FALSE(isPartApart("arith.minui %i8, %n", "%c8"));
}

TEST_F(IterationsTest, AnIndexWithoutTheIterationIsNot) {
  EXPECT_FALSE(isStoreApart("%c8", "%at = arith.addi %j, %c1 : index"));
}

TEST_F(IterationsTest, AQuotientLosesWhichIterationItIs) {
  EXPECT_FALSE(isStoreApart("%c1", "%at = arith.divui %i, %c8 : index"));
  // A multiple of the divisor has it back.
  EXPECT_TRUE(isStoreApart("%c8", "%0 = arith.addi %i8, %j : index\n"
                                  "%at = arith.divui %0, %c8 : index"));
  EXPECT_FALSE(isStoreApart("%c8", "%0 = arith.addi %i8, %j : index\n"
                                   "%at = arith.remui %0, %c8 : index"));
}

TEST_F(IterationsTest, AVectorTouchesAllItsLanes) {
  EXPECT_TRUE(areApart("vector.store %w, %m[%i8] : memref<64xf32>, "
                       "vector<8xf32>"));
  EXPECT_FALSE(areApart("%i7 = arith.muli %i, %c7 : index\n"
                        "vector.store %w, %m[%i7] : memref<64xf32>, "
                        "vector<8xf32>"));
}

TEST_F(IterationsTest, ALoadOfAnothersElementIsNotApart) {
  StringRef store = "memref.store %v, %m[%i] : memref<64xf32>\n";
  EXPECT_TRUE(
      areApart((store + "%0 = memref.load %m[%i] : memref<64xf32>").str()));
  EXPECT_FALSE(areApart((store + "%0 = arith.addi %i, %c1 : index\n"
                                 "%1 = memref.load %m[%0] : memref<64xf32>")
                            .str()));
}

TEST_F(IterationsTest, LinesOfAPatternHaveBlocksOfTheirOwn) {
  EXPECT_TRUE(isSlotApart(next, slot));
  EXPECT_TRUE(isSlotApart(next, "%at = arith.addi %k, %c0 : index"));
}

TEST_F(IterationsTest, AnyOtherArraysMayRepeatThemselves) {
  EXPECT_FALSE(isSlotApart(next, slot, /*hasPattern=*/false));
}

TEST_F(IterationsTest, TwoLinesAnIterationAreSharedWithTheNext) {
  EXPECT_FALSE(isSlotApart("%two = arith.constant 2 : index\n"
                           "%end = arith.addi %i, %two : index",
                           slot));
}

TEST_F(IterationsTest, TheNextSlotMayBeAnothersBlock) {
  EXPECT_FALSE(isSlotApart(next, "%0 = arith.addi %k, %c1 : index\n"
                                 "%s = memref.load %slot[%0] : memref<9xi32>\n"
                                 "%at = arith.index_cast %s : i32 to index"));
}

TEST_F(IterationsTest, PositionsBelowTheNextLineAreOfThisOne) {
  StringRef q = "%q = arith.addi %start, %j : index";
  EXPECT_TRUE(isGuardedApart(q, "%is = arith.cmpi ult, %q, %end : index"));
  EXPECT_TRUE(isGuardedApart(q, "%is = arith.cmpi slt, %q, %end : index"));
  // The first one of the next line, anything, another line, another number.
  EXPECT_FALSE(isGuardedApart(q, "%is = arith.cmpi ule, %q, %end : index"));
  EXPECT_FALSE(isGuardedApart(q, "%is = arith.cmpi ult, %j, %end : index"));
  EXPECT_FALSE(isGuardedApart(q, "%is = arith.cmpi ult, %q, %start : index"));
  EXPECT_FALSE(isGuardedApart("%q = arith.subi %start, %j : index",
                              "%is = arith.cmpi ult, %q, %end : index"));
}

TEST_F(IterationsTest, AnEmptyLineBeginsWhereTheNextOneDoes) {
  EXPECT_FALSE(areApart("%a = memref.load %ptr[%i] : memref<5xi32>\n"
                        "%at = arith.index_cast %a : i32 to index\n"
                        "memref.store %v, %m[%at] : memref<64xf32>"));
}

TEST_F(IterationsTest, DigitsBelowWhatIsAddedDoNotCount) {
  // i8 + j + 0 and i8 + j + 3, for j below 4: above, %i tells them apart.
  auto stores = [](StringRef more) {
    return ("%c4 = arith.constant 4 : index\n"
            "scf.for %j = %c0 to %c4 step %c1 {\n"
            "%x = arith.addi %i8, %j : index\n"
            "%d = arith.constant " +
            more +
            " : index\n%y = arith.addi %x, %d : index\n"
            "memref.store %v, %m[%x] : memref<64xf32>\n"
            "memref.store %v, %m[%y] : memref<64xf32>\n}")
        .str();
  };
  EXPECT_TRUE(areApart(stores("4")));
  EXPECT_FALSE(areApart(stores("5")));
}

TEST_F(IterationsTest, NumbersThatAreTooLargeSayNothing) {
  EXPECT_FALSE(areApart("%large = arith.constant 4611686018427387904 : index\n"
                        "%two = arith.constant 2 : index\n"
                        "%x = arith.muli %i, %large : index\n"
                        "%y = arith.muli %x, %two : index\n"
                        "%at = arith.addi %y, %i : index\n"
                        "memref.store %v, %m[%at] : memref<64xf32>"));
}

/// 60 numbers, each the quotient and the rest of the one before: along all ways
/// there are 2^60 to the first, `start`. The last is %at.
static std::string writeDigits(const std::string &start,
                               const std::string &worthOfRest) {
  std::string text = "%two = arith.constant 2 : index\n", last = start;
  for (int link = 0; link < 60; ++link) {
    std::string number = std::to_string(link);
    text += "%q" + number + " = arith.divui " + last + ", %two : index\n%r" +
            number + " = arith.remui " + last + ", %two : index\n%s" + number +
            " = arith.muli %r" + number + ", " + worthOfRest + " : index\n";
    last = link < 59 ? "%a" + number : "%at";
    text += last + " = arith.addi %q" + number + ", %s" + number + " : index\n";
  }
  return text;
}

TEST_F(IterationsTest, DigitsOfDigitsAreVisitedOnce) {
  EXPECT_FALSE(isStoreApart("%c8", writeDigits("%j", "%c1")));
  EXPECT_FALSE(isStoreApart("%c1", writeDigits("%i8", "%c1")));
  // The digits change places: each number tells the one before.
  EXPECT_TRUE(isStoreApart("%c1", writeDigits("%i", "%two")));
}
