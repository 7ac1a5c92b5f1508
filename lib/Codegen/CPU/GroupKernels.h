// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels for products of rows with the matrices of their groups.

#ifndef BSR_CODEGEN_CPU_GROUPKERNELS_H
#define BSR_CODEGEN_CPU_GROUPKERNELS_H

#include "bsr/Codegen/CPU/Emitter.h"

namespace mlir::bsr::cpu {

/// The memory that the kernel of `root` lists the rows of each group in; none
/// if `root` is no such product.
SmallVector<MemRefType> getGroupMemory(Operation *root);

/// Emits `root` into `output` if it is a product of groups; false, and nothing
/// emitted, if not.
bool emitGroups(Emitter &emitter, Operation *root, Value output,
                ValueRange scratch);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_GROUPKERNELS_H
