// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vectors of bf16 as f32 without shuffles: the even lanes, then the odd ones.

#ifndef BSR_LIB_CODEGEN_CPU_SPLITLANES_H
#define BSR_LIB_CODEGEN_CPU_SPLITLANES_H

#include "bsr/Codegen/CPU/Emitter.h"

namespace mlir::bsr::cpu {

/// Whether vectors of `width` elements of `tensor` are worth splitting to take
/// them in sums of `sumType`. A bf16 is the upper half of an f32: of two that
/// lie in 32 bits, a shift makes the first, and a mask the second, where
/// conversions in order take a shuffle and a shift each.
bool canSplit(Value tensor, Type sumType, int64_t width);

/// The lanes of `x`, of bf16, in f32.
Value splitLanes(Emitter &e, Value x);

/// `sums`, lanes of f32 in the order of `splitLanes`, rounded to `type`, in
/// the order of what was split.
Value joinLanes(Emitter &e, Value sums, Type type);

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_SPLITLANES_H
