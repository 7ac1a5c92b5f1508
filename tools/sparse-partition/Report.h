// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan as a table and as a picture.

#ifndef BSR_TOOLS_SPARSE_PARTITION_REPORT_H
#define BSR_TOOLS_SPARSE_PARTITION_REPORT_H

#include "../Quantity.h"
#include "bsr/Partition/StagePlan.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::bsr {

using tools::formatBytes;

/// A plan with what it is of and what it costs.
struct Report {
  const StepParts &step;
  const StageChain &chain;
  const Devices &devices;
  const StagePlan &plan;
  SmallVector<StageCost> costs; ///< of each stage
  Timeline timeline;

  Report(const StepParts &step, const StageChain &chain, const Devices &devices,
         const StagePlan &plan);

  /// The first and the last part of stage `number`.
  StringRef getFirst(unsigned number) const;
  StringRef getLast(unsigned number) const;
};

/// Writes `report` as text: a line for each stage, then the step.
void printTable(const Report &report, llvm::raw_ostream &os);

/// The error that no plan of `chain`, of `step`, fits on `devices`, and why.
llvm::Error createNoFit(const StepParts &step, const StageChain &chain,
                        const Devices &devices);

/// Writes `report` as an SVG: what each stage does when, and its memory.
void drawPicture(const Report &report, llvm::raw_ostream &os);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_PARTITION_REPORT_H
