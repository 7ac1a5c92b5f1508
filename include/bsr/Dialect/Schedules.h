// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How kernels go through sparse products, as a program or a tool may say it.

#ifndef BSR_DIALECT_SCHEDULES_H
#define BSR_DIALECT_SCHEDULES_H

#include "bsr/Dialect/BSR.h"
#include "mlir/IR/DialectInterface.h"

namespace mlir::bsr {

/// How a kernel goes through a sparse product. `bsr.spmm` may
/// - `gather`: line after line of blocks of the result, whose sums are in
///   registers;
/// - `ordered_gather`: so, with the values in this order first, where blocks
///   read one feature;
/// - `scatter`: line after line of what is read, to sums in memory, where
///   blocks make one feature;
/// - `single_weights`: through blocks of 1x1 in an order of their own.
/// `bsr.sddmm` is a sum over tokens of `outer` products, or of `inner` ones,
/// vectors of tokens, or goes through `single_weights`.
enum class Walk { Gather, OrderedGather, Scatter, SingleWeights, Outer, Inner };

/// The name of `walk`, as attributes have it.
StringRef stringifyWalk(Walk walk);

/// What `bsr.schedule` of a `bsr.spmm` or a `bsr.sddmm` says; the target
/// chooses what it does not say. Passes keep the attribute; the verifier of
/// `bsr.cluster` asks whether the module's target has such a kernel.
struct ProductSchedule {
  /// Whether `attr` is a dictionary of these: `walk`, a string, and of one that
  /// gathers `rows`, `panels` and `ahead`, integers of 64 bits.
  static bool isValid(Attribute attr);
  /// What the attribute of `op`, a valid one, says; nothing if there is none.
  static ProductSchedule get(Operation *op);
  /// The attribute that says this, which has a walk.
  DictionaryAttr getAttr(MLIRContext *context) const;

  std::optional<Walk> walk;
  /// Features that a register tile has at most, and panels of tokens that it
  /// takes side by side, from 1 on.
  std::optional<int64_t> rows, panels;
  /// How many blocks later the rows are needed that are prefetched, 0 to
  /// `maxAhead`; with 0, nothing is prefetched.
  std::optional<int64_t> ahead;
  static constexpr int64_t maxAhead = 64;
};

/// The part of the verifier of `bsr.cluster` that knows through what kernels
/// can go: a target implements it, which the dialect does not know.
class ScheduleVerifierInterface
    : public DialectInterface::Base<ScheduleVerifierInterface> {
public:
  explicit ScheduleVerifierInterface(Dialect *dialect) : Base(dialect) {}

  /// Checks the `bsr.schedule` of `op`, which has one.
  virtual LogicalResult verifySchedule(Operation *op) const = 0;
};

/// Checks that the target has a kernel for the `bsr.schedule` of `op`, if there
/// is one.
LogicalResult verifySchedule(Operation *op);

} // namespace mlir::bsr

#endif // BSR_DIALECT_SCHEDULES_H
