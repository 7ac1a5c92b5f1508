// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns that stand for those which a run will have.

#ifndef BSR_LIB_CODEGEN_GPU_PREDICTION_RANDOMPATTERN_H
#define BSR_LIB_CODEGEN_GPU_PREDICTION_RANDOMPATTERN_H

#include <array>
#include <cstdint>
#include <vector>

namespace mlir::bsr::gpu {

/// The arrays of one view of a pattern: where lines begin, the other coordinate
/// of each block, and its slot.
using ViewArrays = std::array<std::vector<uint32_t>, 3>;

/// One view of a pattern with `slots` blocks in `lines` lines of `extent`.
/// Lines have as many blocks as those of a random pattern: quantiles of the
/// binomial distribution, at multiples of the golden ratio, so that any evenly
/// spaced lines are like all. Blocks of a line lie evenly.
ViewArrays makeRandomView(int64_t lines, int64_t extent, int64_t slots);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_PREDICTION_RANDOMPATTERN_H
