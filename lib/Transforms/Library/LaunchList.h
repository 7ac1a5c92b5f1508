// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a lowered step has a GPU do, as the manifest says it.

#ifndef BSR_TRANSFORMS_LIBRARY_LAUNCHLIST_H
#define BSR_TRANSFORMS_LIBRARY_LAUNCHLIST_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/JSON.h"

namespace mlir::bsr {

/// The launches of kernels of `step` in their order, first those of the
/// function beside it that makes plans of patterns, if there is one. Fails
/// where the host does anything else than to launch kernels on its arguments
/// and on parts of the arena, its last argument.
FailureOr<llvm::json::Array> getLaunches(func::FuncOp step);

/// How many bytes from the start of the arena on the plans of `step` take; 0
/// without plans.
int64_t getPlanBytes(func::FuncOp step);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_LIBRARY_LAUNCHLIST_H
