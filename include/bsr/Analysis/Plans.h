// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step derives of patterns alone, once for as long as they stay as they
// are.

#ifndef BSR_ANALYSIS_PLANS_H
#define BSR_ANALYSIS_PLANS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {

/// The `bsr.kind` of kernels that make plans of patterns, and of their calls.
inline constexpr llvm::StringLiteral planKind = "plan";

/// True if `op`, a launch or a call, makes the plan of a pattern.
bool makesPlan(Operation *op);

/// The name of the function that makes the plans of `step`.
std::string getPlansName(func::FuncOp step);

/// The function that makes the plans of `step`, with the same arguments; null
/// if there is none.
func::FuncOp getPlans(func::FuncOp step);
/// True if `func` makes the plans of a step.
bool isOfPlans(func::FuncOp func);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_PLANS_H
