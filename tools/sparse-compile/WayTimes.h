// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether one way of a kernel is faster than another, on a machine that does
// other things, too.

#ifndef BSR_TOOLS_SPARSE_COMPILE_WAYTIMES_H
#define BSR_TOOLS_SPARSE_COMPILE_WAYTIMES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace mlir::bsr {

/// What runs took that go through a kernel as it is, then in other ways, then
/// as it is again. What the two own ones differ by is noise: a run in which
/// that is much was disturbed, and does not count.
class WayTimes {
public:
  /// Adds a run: the own time, those of other ways, the own one again.
  void add(llvm::ArrayRef<int64_t> nanoseconds);

  /// Runs that count, at least `fewestRuns` for any answer.
  size_t getNumRuns() const { return runs.size(); }
  static constexpr size_t fewestRuns = 5;
  /// The median of the own times, in nanoseconds.
  double getOwnTime() const;
  /// The median of the time of way `number`, from 0 on, as a share of the own
  /// one of the same run.
  double getRatio(size_t number) const;
  /// Whether this way is faster: by more than a fiftieth and by more than the
  /// noise, and in three of four runs.
  bool isFaster(size_t number) const;

private:
  std::vector<double> getRatios(size_t number) const;
  static double getOwnTime(llvm::ArrayRef<int64_t> run);

  std::vector<std::vector<int64_t>> runs;
};

/// Compares the results of two ways of kernel `name`, both of which round sums:
/// `roundoff` is that of their type, `sumRoundoff` that of sums. Returns a
/// sentence about the first that are farther apart than that explains, or "".
std::string describeDifference(llvm::StringRef name, llvm::ArrayRef<double> own,
                               llvm::ArrayRef<double> other, double roundoff,
                               double sumRoundoff);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_WAYTIMES_H
