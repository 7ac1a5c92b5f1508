// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels that make the plans of patterns, and their launches: what is
// equal there is once.

#ifndef BSR_LIB_CODEGEN_COMMON_PLANKERNELS_H
#define BSR_LIB_CODEGEN_COMMON_PLANKERNELS_H

#include "bsr/Codegen/Common/KernelTarget.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {

/// A kernel that makes plans of patterns: from `view` of one.
struct PlanKernel {
  func::FuncOp function;
  View view;
  SmallVector<MemRefType> types;
};

/// Makes kernels of plans, and launches of them.
class PlanKernels {
public:
  explicit PlanKernels(SymbolTable &symbols) : symbols(symbols) {}

  /// The kernel that makes `plan`: one that is there already, or a new one with
  /// a name that begins as `name`.
  PlanKernel getKernel(const PatternPlan &plan, StringRef name);

  /// The arrays that `kernel` makes of `pattern`: those of a launch that is
  /// there already, or of a new one right behind the pattern.
  ValueRange getArrays(const PlanKernel &kernel, Value pattern);

private:
  SymbolTable &symbols;
  SmallVector<PlanKernel> kernels;
  DenseMap<std::tuple<Operation *, Value, View>, LaunchOp> launches;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_COMMON_PLANKERNELS_H
