// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where kernels find the elements of windows.

#ifndef BSR_CODEGEN_COMMON_WINDOWOFFSETS_H
#define BSR_CODEGEN_COMMON_WINDOWOFFSETS_H

#include "bsr/Analysis/Windows.h"
#include "bsr/Codegen/Common/IndexBuilder.h"

namespace mlir::bsr {

/// `element` and the offset of `place`.
Index addOffset(IndexBuilder &b, const Offsets &offsets, Index place,
                Index element);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_WINDOWOFFSETS_H
