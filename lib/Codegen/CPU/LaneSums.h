// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions along lanes: in vectors first, then across them.

#ifndef BSR_LIB_CODEGEN_CPU_LANESUMS_H
#define BSR_LIB_CODEGEN_CPU_LANESUMS_H

#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/Common/Combine.h"

namespace mlir::bsr::cpu {

/// The lanes of `value`, combined.
Value combineLanes(Emitter &e, OpResult sum, Value value);

/// Takes `sums` over `extents` and adds them to `totals`, in vectors of at most
/// `width` along the last extent: its vectors of one width first, then across
/// their lanes. `step` gets a point, lanes last, and what is summed up so far.
SmallVector<Value> emitSums(
    Emitter &e, ArrayRef<int64_t> extents, int64_t width,
    ArrayRef<OpResult> sums, SmallVector<Value> totals,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Index>, ValueRange)> step);

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_LANESUMS_H
