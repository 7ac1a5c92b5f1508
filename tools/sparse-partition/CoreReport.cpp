// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints how many cores divide the sparse products of a step.

#include "CoreReport.h"
#include "Report.h"
#include "bsr/Analysis/Work.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::formatv;

namespace {
/// The products with weights of one kind of pattern.
struct Weights {
  BlockProducts products; ///< of all weights
  DenseSet<Value> patterns;
};
} // namespace

/// The sparse products of `step`, those of equal patterns together.
static SmallVector<Weights> collect(func::FuncOp step) {
  // By the type of the pattern, tokens and bytes of a value.
  llvm::MapVector<std::pair<Type, std::pair<int64_t, unsigned>>, Weights> found;
  step.walk([&](Operation *op) {
    StringRef kind = getWorkKind(op);
    Value pattern, values;
    if (auto product = dyn_cast<SpMMOp>(op)) {
      pattern = product.getPattern();
      values = product.getValues();
    } else if (auto product = dyn_cast<SDDMMOp>(op)) {
      pattern = product.getPattern();
      values = product->getResult(0);
    } else {
      return;
    }
    auto type = cast<PatternType>(pattern.getType());
    int64_t area = type.getBlockRows() * type.getBlockCols();
    int64_t tokens = getFlops(op) / (2 * type.getSlots() * area);
    unsigned bits =
        getElementTypeOrSelf(values.getType()).getIntOrFloatBitWidth();
    Weights &weights = found[{type, {tokens, bits}}];
    weights.patterns.insert(pattern);
    BlockProducts &products = weights.products;
    products.gridRows = type.getGridRows();
    products.gridCols = type.getGridCols();
    products.blockRows = type.getBlockRows();
    products.blockCols = type.getBlockCols();
    products.blocks = type.getSlots();
    products.tokens = tokens;
    products.valueBytes = bits / 8;
    products.forward += kind == "spmm";
    products.transposed += kind == "spmm_transposed";
    products.sampled += kind == "sddmm";
  });
  return llvm::to_vector(llvm::make_second_range(found));
}

Error bsr::planProducts(func::FuncOp step, const Cores &cores, double clock,
                        uint64_t seed, llvm::raw_ostream &os) {
  SmallVector<Weights> all = collect(step);
  if (all.empty())
    return createStringError("expected a step with products of stored blocks "
                             "for cores to divide, but got none: mark weights");
  double cycles = 0, bytes = 0;
  os << formatv("{0,-20} {1,8} {2,7} {3,8} {4,14} {5,7} {6,9} {7,10} {8,10} "
                "{9,10} {10,11} {11,11}\n",
                "matrix", "blocks", "tokens", "products", "division", "cores",
                "imbalance", "forward", "transposed", "sampled", "exchange",
                "memory");
  for (const Weights &weights : all) {
    const BlockProducts &products = weights.products;
    std::string matrix =
        formatv("{0}x{1} by {2}x{3}", products.gridRows * products.blockRows,
                products.gridCols * products.blockCols, products.blockRows,
                products.blockCols);
    std::optional<CoreDivision> division = planCores(products, cores);
    if (!division)
      return createStringError(
          formatv("expected {0} cores of {1} to hold {2} blocks of a matrix of "
                  "{3} and {4} tokens, but got no division that fits: more "
                  "memory, fewer tokens or a lower density may",
                  cores.count, formatBytes(cores.memory), products.blocks,
                  matrix, products.tokens)
              .str());
    CoreCost cost = getCoreCost(products, cores, *division,
                                createRandomBlocks(products, seed));
    std::string shares = formatv("{0} x {1} x {2}", division->rows,
                                 division->cols, division->tokens);
    os << formatv("{0,-20} {1,8} {2,7} {3,8} {4,14} {5,7} {6,9:f3} {7,10:f0} "
                  "{8,10:f0} {9,10:f0} {10,11} {11,11}\n",
                  matrix, products.blocks, products.tokens,
                  products.forward + products.transposed + products.sampled,
                  shares, division->getCores(), cost.imbalance, cost.forward,
                  cost.transposed, cost.sampled,
                  formatBytes(cost.exchangeBytes), formatBytes(cost.memory));
    cycles += cost.cycles;
    bytes += cost.exchangeBytes;
  }
  os << "\ndivision: of rows, columns and tokens; imbalance: of the busiest "
        "core over the mean; forward, transposed, sampled: cycles of a "
        "product; exchange: of all products; memory: of a core\n\n"
     << formatv("predicted: {0:f0} cycles, {1:f3} ms, of all sparse products "
                "of a step, with random patterns; {2} exchanged\n",
                cycles, cycles / clock * 1e3, formatBytes(bytes));
  return Error::success();
}
