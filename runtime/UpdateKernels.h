// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a GPU does in an update of a pattern, as PTX.

#ifndef BSR_RUNTIME_UPDATEKERNELS_H
#define BSR_RUNTIME_UPDATEKERNELS_H

#include "bsr/runtime.h"
#include <string>

namespace bsr {

/// A module with the kernels below, for every GPU that steps are compiled for.
/// Both are launched with `updateThreads` threads a block.
///
/// `normKernel(norm, type)`, with the addresses of values, of the slot of each
/// block (i32) and of norms (f64), and the numbers (u32) of elements a block
/// and of blocks: writes for each block what `blockNorms` does, bit for bit.
/// It takes `normThreads` threads a block of the matrix.
///
/// `zeroKernel`, with the addresses of values and of slots (i32), and the bytes
/// (u32) of a slot, a multiple of 2: zeroes these slots, each by a block of
/// threads.
std::string updateKernels();

std::string normKernel(bsr_norm norm, bsr_type type);

constexpr char zeroKernel[] = "bsr_zero_slots";
constexpr unsigned updateThreads = 128, normThreads = 8;

} // namespace bsr

#endif // BSR_RUNTIME_UPDATEKERNELS_H
