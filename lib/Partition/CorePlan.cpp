// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Divides sparse products among many small cores.

#include "bsr/Partition/CorePlan.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <random>

using namespace mlir;
using namespace mlir::bsr;
using llvm::divideCeil;

/// The most that a core may have over the mean.
static constexpr double mostImbalance = 1.05;
/// Sums are taken in f32.
static constexpr double sumBytes = 4;

std::vector<BlockAt> bsr::createRandomBlocks(const BlockProducts &products,
                                             uint64_t seed) {
  std::mt19937_64 random(seed);
  uint64_t all = uint64_t(products.gridRows) * uint64_t(products.gridCols);
  std::vector<bool> isTaken(all);
  std::vector<BlockAt> blocks;
  // Of most blocks, those are drawn that are left out.
  bool isSparse = uint64_t(products.blocks) * 2 <= all;
  uint64_t rest = isSparse ? products.blocks : all - products.blocks;
  while (rest) {
    uint64_t at = random() % all;
    if (!isTaken[at])
      isTaken[at] = true, --rest;
  }
  for (uint64_t at = 0; at < all; ++at)
    if (isTaken[at] == isSparse)
      blocks.push_back(
          {int32_t(at / products.gridCols), int32_t(at % products.gridCols)});
  return blocks;
}

namespace {
/// What the busiest core has: stored blocks, lines of each view, and lines
/// whose sums other cores have parts of.
struct Load {
  double blocks = 0, rows = 0, cols = 0;
  double sharedRows = 0, sharedCols = 0;
};

/// What a core has to do, from the most that any has of each.
class CostModel {
public:
  CostModel(const BlockProducts &products, const Cores &cores,
            CoreDivision division)
      : products(products), cores(cores), division(division),
        tokens(divideCeil(products.tokens, division.tokens)) {}

  /// Cycles of a product and what a core receives for it, in bytes.
  struct Product {
    double cycles, bytes;
  };
  /// Sums over `inputs` lines of `inputExtent`, for `outputs` of which others
  /// have parts of the sums.
  Product gather(const Load &load, double inputs, double inputExtent,
                 double shared, double outputExtent) const {
    double values = tokens * products.valueBytes, sums = tokens * sumBytes;
    double received = inputs * inputExtent * values;
    // Each part is sent to one core, which adds it up; all have equal shares.
    double parts = shared * outputExtent * sums;
    double cycles = getCompute(load) + (received + parts) / cores.exchange +
                    parts / sumBytes / double(cores.vector);
    return {cycles, received + parts};
  }
  Product sample(const Load &load) const {
    double received = (load.rows * double(products.blockRows) +
                       load.cols * double(products.blockCols)) *
                      tokens * products.valueBytes;
    double parts = division.tokens > 1 ? load.blocks * getArea() * sumBytes : 0;
    double cycles = getCompute(load) + (received + parts) / cores.exchange +
                    parts / sumBytes / double(cores.vector);
    return {cycles, received + parts};
  }
  double getMemory(const Load &load) const {
    double lines = load.rows * double(products.blockRows) +
                   load.cols * double(products.blockCols);
    return load.blocks * getArea() * products.valueBytes +
           lines * tokens * sumBytes;
  }
  Product forward(const Load &load) const {
    return gather(load, load.rows, double(products.blockRows), load.sharedCols,
                  double(products.blockCols));
  }
  Product transposed(const Load &load) const {
    return gather(load, load.cols, double(products.blockCols), load.sharedRows,
                  double(products.blockRows));
  }

private:
  double getArea() const {
    return double(products.blockRows * products.blockCols);
  }
  double getCompute(const Load &load) const {
    double outputs = std::min(cores.unitOutputs, products.blockCols);
    double inputs = std::min(cores.unitInputs, products.blockRows);
    double rate = std::max(outputs * inputs, double(cores.vector));
    return load.blocks * std::ceil(getArea() * tokens / rate);
  }

  const BlockProducts &products;
  const Cores &cores;
  CoreDivision division;
  double tokens;
};
} // namespace

/// Cycles of all products on the core that has `load`.
static double getCycles(const BlockProducts &products, const CostModel &model,
                        const Load &load) {
  return double(products.forward) * model.forward(load).cycles +
         double(products.transposed) * model.transposed(load).cycles +
         double(products.sampled) * model.sample(load).cycles;
}

CoreCost bsr::getCoreCost(const BlockProducts &products, const Cores &cores,
                          CoreDivision division, std::vector<BlockAt> blocks) {
  auto less = [](bool byRow) {
    return [byRow](BlockAt a, BlockAt b) {
      return byRow ? std::pair(a.row, a.col) < std::pair(b.row, b.col)
                   : std::pair(a.col, a.row) < std::pair(b.col, b.row);
    };
  };
  auto cut = [](int64_t size, int64_t shares, int64_t share) {
    return size * share / shares;
  };
  llvm::sort(blocks, less(/*byRow=*/true));
  // What each core has of blocks and lines, and how many cores have a line.
  std::vector<SmallVector<BlockAt>> shares;
  std::vector<int> rowCores(products.gridRows), colCores(products.gridCols);
  std::vector<DenseSet<int32_t>> rows, cols;
  int64_t size = blocks.size();
  for (int64_t i = 0; i < division.rows; ++i) {
    auto begin = blocks.begin() + cut(size, division.rows, i);
    auto end = blocks.begin() + cut(size, division.rows, i + 1);
    std::sort(begin, end, less(/*byRow=*/false));
    for (int64_t j = 0; j < division.cols; ++j) {
      auto from = begin + cut(end - begin, division.cols, j);
      auto to = begin + cut(end - begin, division.cols, j + 1);
      shares.emplace_back(from, to);
      DenseSet<int32_t> &ownRows = rows.emplace_back();
      DenseSet<int32_t> &ownCols = cols.emplace_back();
      for (BlockAt block : shares.back()) {
        if (ownRows.insert(block.row).second)
          ++rowCores[block.row];
        if (ownCols.insert(block.col).second)
          ++colCores[block.col];
      }
    }
  }
  CostModel model(products, cores, division);
  CoreCost cost;
  double most = 0;
  for (size_t share = 0; share < shares.size(); ++share) {
    Load load;
    load.blocks = double(shares[share].size());
    load.rows = double(rows[share].size());
    load.cols = double(cols[share].size());
    for (int32_t row : rows[share])
      load.sharedRows += rowCores[row] > 1;
    for (int32_t col : cols[share])
      load.sharedCols += colCores[col] > 1;
    most = std::max(most, load.blocks);
    cost.memory = std::max(cost.memory, model.getMemory(load));
    auto add = [&](int64_t number, CostModel::Product product, double &cycles) {
      if (!number)
        return;
      cycles = std::max(cycles, product.cycles);
      cost.exchangeBytes +=
          double(number) * product.bytes * double(division.tokens);
    };
    add(products.forward, model.forward(load), cost.forward);
    add(products.transposed, model.transposed(load), cost.transposed);
    add(products.sampled, model.sample(load), cost.sampled);
  }
  cost.cycles = double(products.forward) * cost.forward +
                double(products.transposed) * cost.transposed +
                double(products.sampled) * cost.sampled;
  double tokens = double(divideCeil(products.tokens, division.tokens));
  double tokenImbalance =
      tokens * double(division.tokens) / double(products.tokens);
  cost.imbalance = most * double(shares.size()) / double(size) * tokenImbalance;
  return cost;
}

/// What a core has of blocks at random.
static Load getExpectedLoad(const BlockProducts &products,
                            CoreDivision division) {
  Load load;
  load.blocks = double(
      divideCeil(divideCeil(products.blocks, division.rows), division.cols));
  auto getLines = [&](int64_t lines, int64_t shares) {
    double own = std::max(1.0, double(lines) / double(shares));
    return own * (1 - std::pow(1 - 1 / std::max(own, 1.0 + 1e-9), load.blocks));
  };
  load.rows = getLines(products.gridRows, division.rows);
  load.cols = getLines(products.gridCols, division.cols);
  load.sharedCols = division.rows > 1 ? load.cols : 0;
  load.sharedRows = division.cols > 1 ? load.rows : 0;
  return load;
}

std::optional<CoreDivision> bsr::planCores(const BlockProducts &products,
                                           const Cores &cores) {
  std::optional<CoreDivision> best;
  double least = INFINITY;
  auto visit = [&](CoreDivision division) {
    Load load = getExpectedLoad(products, division);
    double shares = double(division.rows * division.cols);
    double tokens = double(divideCeil(products.tokens, division.tokens));
    double imbalance = load.blocks * shares / double(products.blocks) * tokens *
                       double(division.tokens) / double(products.tokens);
    CostModel model(products, cores, division);
    if (imbalance > mostImbalance || model.getMemory(load) > cores.memory)
      return;
    double cycles = getCycles(products, model, load);
    if (cycles < least)
      least = cycles, best = division;
  };
  for (int64_t tokens = 1; tokens <= std::min(cores.count, products.tokens);
       ++tokens)
    for (int64_t rows = 1;
         rows <= std::min(cores.count / tokens, products.gridRows); ++rows)
      for (int64_t cols =
               std::min(cores.count / tokens / rows, products.gridCols);
           cols > 0; cols = cols > 8 ? cols * 15 / 16 : cols - 1)
        visit({rows, cols, tokens});
  return best;
}
