// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product is cut for thread blocks: what tiles have alike, and which
// of those that fit takes least time.

#ifndef BSR_CODEGEN_GPU_CORE_TILESEARCH_H
#define BSR_CODEGEN_GPU_CORE_TILESEARCH_H

#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "llvm/Support/Debug.h"
#include "llvm/Support/Format.h"
#include <cmath>
#include <functional>
#include <tuple>

namespace mlir::bsr::gpu {

/// Sums that a thread keeps in registers; with as many again for operands and
/// addresses, 256 threads use all of a multiprocessor.
constexpr int64_t mostSums = 128;

/// Of the positions along a line of a random pattern, the share at which one of
/// `lines` stores a block.
inline double getUnion(double density, double lines) {
  return 1 - std::pow(1 - density, lines);
}

/// Goes through the tiles of a product that fit, and keeps the one of which the
/// model has that it takes least time; of equal ones, the first. Each is
/// printed with its time by `--debug-only=bsr-tiles`.
template <typename Tile>
class TileSearch {
public:
  using Describe = std::function<std::string(const Tile &)>;

  TileSearch(const Chip &chip, Describe describe)
      : chip(chip), describe(std::move(describe)) {}

  /// A tile lacks something for which others are preferred, however long they
  /// take: a bit each, the most important one highest. `factor` is that of its
  /// time: what is not in the model has to be outweighed. Of tiles that take as
  /// long, the one with less `effort` is preferred.
  struct Reservations {
    unsigned lacks = 0;
    double factor = 1, effort = 0;
  };
  /// `launches` are what a product of `tile` is, each by what it does.
  void consider(const Tile &tile, llvm::ArrayRef<KernelWork> launches,
                Reservations reservations = {}) {
    std::tuple cost(reservations.lacks,
                    getSeconds(launches, chip) * reservations.factor,
                    reservations.effort);
    bool isBest = !best || cost < least;
    DEBUG_WITH_TYPE("bsr-tiles",
                    llvm::dbgs()
                        << "[bsr-tiles] " << describe(tile) << ": lacks "
                        << reservations.lacks
                        << llvm::format(", %.2f us", std::get<1>(cost) * 1e6)
                        << (isBest ? ", the best so far\n" : "\n"));
    if (!isBest)
      return;
    best = tile;
    least = cost;
  }
  /// True if half of `extent` or more lies beyond `count`, where a smaller tile
  /// was found.
  bool isTooLarge(int64_t extent, int64_t count) const {
    return best && extent / 2 >= count;
  }

  std::optional<Tile> best;

private:
  const Chip &chip;
  Describe describe;
  /// What `best` lacks, its time and effort.
  std::tuple<unsigned, double, double> least;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_TILESEARCH_H
