// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How else kernels may go through sparse products.

#include "Parse.h"
#include "bsr/Codegen/CPU/Walks.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class SchedulesTest : public bsr::test::ModuleTest {
protected:
  /// Parses clusters with a product of blocks of `rows` x `cols`, its transpose
  /// and the sampled one, for a processor with `bits` of `registers`.
  void parseProducts(int64_t rows, int64_t cols, int64_t bits = 256,
                     int64_t registers = 16) {
    std::string pattern = llvm::formatv(
        "!bsr.pattern<48x48, block = {0}x{1}, slots = 6>", rows, cols);
    std::string values = llvm::formatv("tensor<6x{0}x{1}xf32>", rows, cols);
    std::string text = llvm::formatv(R"(
      !p = {0}
      !v = {1}
      !x = tensor<48x1024xf32>
      module attributes {{bsr.target = #bsr.cpu<vector_bits={2},num_registers={3}>} {{
        bsr.cluster private @forward(%p: !p, %w: !v, %x: !x) -> !x {{
          %y = bsr.spmm %p, %w, %x feature_dim = 0 : !p, !v, !x -> !x
          bsr.yield %y : !x
        }
        bsr.cluster private @back(%p: !p, %w: !v, %x: !x) -> !x {{
          %y = bsr.spmm %p, %w, %x transpose feature_dim = 0 : !p, !v, !x -> !x
          bsr.yield %y : !x
        }
        bsr.cluster private @gradient(%p: !p, %x: !x, %y: !x) -> !v {{
          %w = bsr.sddmm %p, %x, %y feature_dim = 0 : !p, !x, !x -> !v
          bsr.yield %w : !v
        }
      })",
                                     pattern, values, bits, registers);
    parse(text);
  }

  /// Checks that the verifier takes `schedules` of `op`; returns them as text.
  std::string verifyAll(Operation *op, ArrayRef<ProductSchedule> schedules) {
    std::string text;
    llvm::raw_string_ostream os(text);
    DictionaryAttr own = attrs::schedule.get(op);
    for (const ProductSchedule &schedule : schedules) {
      DictionaryAttr attr = schedule.getAttr(&context);
      EXPECT_TRUE(ProductSchedule::isValid(attr));
      attrs::schedule.set(op, attr);
      EXPECT_TRUE(succeeded(verify(*module)));
      os << stringifyWalk(*schedule.walk);
      if (schedule.rows)
        os << " " << *schedule.rows << "x" << *schedule.panels;
      if (schedule.ahead)
        os << " " << *schedule.ahead;
      os << "; ";
    }
    attrs::schedule.remove(op);
    if (own)
      attrs::schedule.set(op, own);
    return text;
  }

  cpu::CPUTarget getTarget() {
    return cpu::CPUTarget(cast<CPUAttr>(attrs::target.get(*module)));
  }
  std::string getAlternatives(Operation *op) {
    return verifyAll(op, cpu::getAlternatives(op, getTarget()));
  }
  std::string getDistances(Operation *op) {
    return verifyAll(op, cpu::getDistances(op, getTarget()));
  }
};
} // namespace

TEST_F(SchedulesTest, TilesKeepUnitsBusy) {
  parseProducts(16, 16);
  SmallVector<SpMMOp> products = findAll<SpMMOp>();
  constexpr StringLiteral tiles = "gather 4x1; gather 2x2; gather 3x2; "
                                  "gather 2x3; gather 1x4; gather 1x5; "
                                  "gather 1x6; ";
  EXPECT_EQ(getAlternatives(products[0]), tiles);
  EXPECT_EQ(getAlternatives(products[1]), tiles);
  EXPECT_EQ(getAlternatives(find<SDDMMOp>()), "inner; ");
  EXPECT_EQ(getDistances(find<SDDMMOp>()), "");
}

TEST_F(SchedulesTest, MoreRegistersHaveLowerTiles) {
  parseProducts(16, 16, 512, 32);
  EXPECT_EQ(getAlternatives(find<SpMMOp>()),
            "gather 2x1; gather 3x1; gather 4x1; gather 8x1; gather 1x2; "
            "gather 2x2; gather 3x2; gather 1x3; gather 2x3; gather 1x4; "
            "gather 1x5; gather 1x6; ");
}

TEST_F(SchedulesTest, LowBlocksAreOneTileOfHalfAPanel) {
  for (int64_t cols : {6, 8, 12}) {
    parseProducts(8, cols, 512, 32);
    std::string distances = getDistances(find<SpMMOp>());
    EXPECT_TRUE(StringRef(distances).starts_with(
        ("gather " + Twine(cols) + "x1 0; ").str()))
        << distances;
  }
  // Of fewer lanes, half a panel is half a cache line.
  for (int64_t bits : {256, 128}) {
    parseProducts(8, 8, bits, bits == 256 ? 16 : 32);
    EXPECT_TRUE(
        StringRef(getDistances(find<SpMMOp>())).starts_with("gather 6x1 0; "));
  }
}

TEST_F(SchedulesTest, BlocksOfOneRowHaveOtherWalks) {
  parseProducts(1, 8);
  SmallVector<SpMMOp> products = findAll<SpMMOp>();
  EXPECT_TRUE(StringRef(getAlternatives(products[0])).starts_with("gather; "));
  EXPECT_TRUE(StringRef(getAlternatives(products[1])).contains("gather; "));
  parseProducts(1, 1);
  EXPECT_NE(getAlternatives(find<SpMMOp>()), "");
}

TEST_F(SchedulesTest, FarRowsLeaveTheCache) {
  parseProducts(16, 16);
  EXPECT_EQ(getDistances(find<SpMMOp>()),
            "gather 6x1 0; gather 6x1 1; gather 6x1 2; gather 6x1 4; "
            "gather 6x1 8; gather 6x1 16; ");
  ProductSchedule own;
  own.walk = Walk::Gather;
  own.rows = 3;
  own.panels = 2;
  own.ahead = 2;
  auto product = find<SpMMOp>();
  attrs::schedule.set(product, own.getAttr(&context));
  EXPECT_EQ(getDistances(product),
            "gather 3x2 0; gather 3x2 1; gather 3x2 4; gather 3x2 8; ");
  EXPECT_TRUE(StringRef(getAlternatives(product)).contains("gather 6x1 2; "));
}
