// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a machine of many small cores, each with its own memory, would divide
// sparse products, and how long they would take there.

#ifndef BSR_PARTITION_COREPLAN_H
#define BSR_PARTITION_COREPLAN_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// Equal cores without a memory in common.
struct Cores {
  int64_t count = 1;
  double memory = 0;   ///< bytes of each
  double exchange = 0; ///< bytes a cycle that each sends and receives
  /// Multiplications and additions a cycle: of a unit for matrices, which takes
  /// `unitInputs` inputs of each of `unitOutputs` outputs, of which a block
  /// fills as many as it has rows and columns; and of vectors, which every
  /// block fills.
  int64_t unitOutputs = 1, unitInputs = 1, vector = 1;
};

/// The products of a step with the stored blocks of a matrix: how many there
/// are of each kind, for `tokens` columns of activations.
struct BlockProducts {
  int64_t gridRows = 0, gridCols = 0, blockRows = 0, blockCols = 0;
  int64_t blocks = 0, tokens = 0;
  unsigned valueBytes = 4;
  int64_t forward = 0, transposed = 0, sampled = 0;
};

/// A block: its line in each view.
struct BlockAt {
  int32_t row, col;
};

/// As many different blocks as `products` has, at random, the same for one
/// seed.
std::vector<BlockAt> createRandomBlocks(const BlockProducts &products,
                                        uint64_t seed);

/// How blocks and tokens are divided: in the order of their rows, blocks are
/// cut in `rows` shares of equal number, each of these in the order of its
/// columns in `cols` shares, and tokens in `tokens` shares. A core has a share
/// of both, for all products of the matrix: stored blocks stay where they are.
struct CoreDivision {
  int64_t rows = 1, cols = 1, tokens = 1;
  int64_t getCores() const { return rows * cols * tokens; }
};

/// What a division takes.
struct CoreCost {
  /// Work of the busiest core over the mean of all that have a share.
  double imbalance = 1;
  /// Cycles of a product of each kind on the busiest core; 0 if there is none.
  double forward = 0, transposed = 0, sampled = 0;
  /// Bytes that all cores receive for all products: activations, and parts of
  /// sums.
  double exchangeBytes = 0;
  double memory = 0; ///< bytes of the core that needs most
  double cycles = 0; ///< of all products
};

/// The cost of `division` of `blocks`, counted core by core.
CoreCost getCoreCost(const BlockProducts &products, const Cores &cores,
                     CoreDivision division, std::vector<BlockAt> blocks);

/// The division with the least cycles, as blocks at random would have them on
/// the average, of those that fit into memory and whose imbalance is 1.05 at
/// most; or nothing.
std::optional<CoreDivision> planCores(const BlockProducts &products,
                                      const Cores &cores);

} // namespace mlir::bsr

#endif // BSR_PARTITION_COREPLAN_H
