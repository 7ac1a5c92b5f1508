// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where tensors lie in the buffers of others.

#ifndef BSR_CODEGEN_GPU_CORE_STRIDEDVIEW_H
#define BSR_CODEGEN_GPU_CORE_STRIDEDVIEW_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace mlir::bsr::gpu {

/// Where a tensor lies in the buffer of another one, which it is a part of or
/// has other dimensions than: its first element, and how far apart its elements
/// are along each dimension.
struct StridedView {
  /// Looks through slices and dimensions that were cut; what else `tensor` is,
  /// is a buffer of its own.
  static StridedView get(Value tensor);

  /// True if copies can read it: it is in memory, offsets have 32 bits, and
  /// elements of the last dimension lie side by side.
  bool isCopied() const;
  /// The elements of a copy of 16, 8 or 4 bytes, all of which begin at
  /// multiples of their size: rows along the last dimension have `length`
  /// elements of `elementBytes`. Nothing if there is none.
  std::optional<int64_t> getCopied(int64_t elementBytes, int64_t length) const;

  Value buffer;
  int64_t offset = 0;
  SmallVector<int64_t> strides;
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_STRIDEDVIEW_H
