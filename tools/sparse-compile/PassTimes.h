// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Processor seconds of passes. (MLIR's own timing is of wall clocks: on a
// machine that does something else as well, it says little.)

#ifndef BSR_TOOLS_SPARSE_COMPILE_PASSTIMES_H
#define BSR_TOOLS_SPARSE_COMPILE_PASSTIMES_H

#include "mlir/Pass/PassInstrumentation.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {

/// Adds up the processor seconds of each pass, without those of the passes that
/// it runs, and prints them in the end. For one thread.
class PassTimes : public PassInstrumentation {
public:
  ~PassTimes() override;

  void runBeforePass(Pass *pass, Operation *op) override;
  void runAfterPass(Pass *pass, Operation *op) override;
  void runAfterPassFailed(Pass *pass, Operation *op) override;

private:
  /// Adds the time since the last change to the pass that runs.
  void lap();

  llvm::MapVector<StringRef, double> seconds;
  SmallVector<StringRef> running;
  double last = 0;
};

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_PASSTIMES_H
