// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows of images that lie in a line: what products of convolutions read.

#ifndef BSR_ANALYSIS_WINDOWS_H
#define BSR_ANALYSIS_WINDOWS_H

#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {

/// The windows of images, `[channels, places, columns]`: a concatenation of
/// slices of `line`, `[channels, elements]`, one for each place of a window.
/// Places count, with the last digit fastest, in `digits`, which have an extent
/// and a step each: column q of a place is element q + `first` + the steps of
/// its digits.
struct Windows {
  struct Digit {
    int64_t extent, step;
  };

  Value line;
  int64_t first = 0;
  SmallVector<Digit> digits;

  static std::optional<Windows> get(tensor::ConcatOp op);
};

/// True if `op` makes windows, which nothing but sparse products read, as a
/// matrix: their kernels can read them in the line.
bool areReadInLine(Operation *op);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_WINDOWS_H
