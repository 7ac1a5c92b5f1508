// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Debug output of passes, as LLVM_DEBUG has it, with LLVM's release libraries.

#ifndef BSR_ANALYSIS_TRACING_H
#define BSR_ANALYSIS_TRACING_H

namespace mlir::bsr {

/// Registers `--debug-only=TYPE,...`, which turns on what LLVM_DEBUG and
/// LDBG print of these types. LLVM's release libraries have what it sets, and
/// lack the option alone; where LLVM has it, nothing is registered. Without
/// assertions (NDEBUG), LLVM_DEBUG prints nothing, and there is no option.
void registerDebugOnly();

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_TRACING_H
