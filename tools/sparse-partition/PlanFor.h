// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What --plan-for says of machines.

#ifndef BSR_TOOLS_SPARSE_PARTITION_PLANFOR_H
#define BSR_TOOLS_SPARSE_PARTITION_PLANFOR_H

#include "../Quantity.h"
#include "bsr/Partition/CorePlan.h"
#include "bsr/Partition/StagePlan.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr {

using tools::Unit;

/// The keys of a text such as `devices=256 memory=32GiB`, in units without
/// prefix. Each `read` takes its key out; `finish` refuses what is left.
class PlanFor {
public:
  explicit PlanFor(llvm::StringRef text) : text(text) {}

  /// Splits the text into keys and values.
  llvm::Error parse();
  bool has(llvm::StringRef key) const { return values.contains(key); }
  /// Sets `value` if there is `key`, which is positive; fails if there is none
  /// and `isNeeded`.
  llvm::Error read(llvm::StringRef key, Unit unit, bool isNeeded,
                   double &value);
  llvm::Error read(llvm::StringRef key, bool isNeeded, int64_t &value);
  /// The same for two numbers, such as 4x16.
  llvm::Error readShape(llvm::StringRef key, int64_t &rows, int64_t &cols);
  llvm::Error finish() const;

private:
  std::string text;
  llvm::StringMap<std::string> values;
  llvm::SmallVector<std::string> known;
};

/// Devices as `planFor` describes them. `samples` is set if it says how many
/// samples the step's own batch has, `shape` to what a plan is to have; `batch`
/// is that of the step, or 0, if it says nothing of a training step's.
llvm::Expected<Devices> readDevices(PlanFor &planFor, int64_t &samples,
                                    PlanShape &shape);

/// Cores as `planFor` describes them; cycles a second go to `clock`.
llvm::Expected<Cores> readCores(PlanFor &planFor, double &clock);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_PARTITION_PLANFOR_H
