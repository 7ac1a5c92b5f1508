// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows of images that lie in a line: what products of convolutions read and
// make.

#ifndef BSR_ANALYSIS_WINDOWS_H
#define BSR_ANALYSIS_WINDOWS_H

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {

/// How far the elements of each place of a window are from those of the first
/// one: places count, with the last digit fastest, in `digits`, of an extent
/// and a step each.
struct Offsets {
  struct Digit {
    int64_t extent, step;
  };

  int64_t first = 0;
  SmallVector<Digit> digits;

  /// Nothing if `offsets` are not such numbers.
  static std::optional<Offsets> get(ArrayRef<int64_t> offsets);
};

/// The windows of images, `[channels, places, columns]`: a concatenation of
/// slices of `line`, `[channels, elements]`, one for each place of a window.
/// Column q of a place is element q + its offset.
struct Windows {
  Value line;
  Offsets offsets;

  static std::optional<Windows> get(tensor::ConcatOp op);
};

/// True if `op` makes windows, which nothing but sparse products read, as a
/// matrix: their kernels can read them in the line.
bool areReadInLine(Operation *op);

/// The gradient of images, `[channels, elements]`, by that of their windows: a
/// sum of slices of what `product` makes, `[channels * places, columns]`, one
/// for each place of a window. Element q sums up columns q + the offsets.
struct SummedWindows {
  SpMMOp product;
  int64_t channels, places;
  Offsets offsets;

  /// Those that `sum`, the last of its additions, adds up.
  static std::optional<SummedWindows> get(Operation *sum);
};

/// True if what `op`, a product, makes is summed up and nothing else reads it:
/// a kernel can compute sums without it.
bool areSummedUp(Operation *op);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_WINDOWS_H
