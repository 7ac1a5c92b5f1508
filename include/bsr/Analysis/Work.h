// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kind of work an operation is, and how much: what timers are kept by.

#ifndef BSR_ANALYSIS_WORK_H
#define BSR_ANALYSIS_WORK_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// The kind of `op`: `spmm`, `spmm_transposed`, `sddmm`, `block_scores` or
/// `dense` (products), `scatter`, `gather`, `reduction`, `copy`, `elementwise`
/// or `other`.
StringRef getWorkKind(Operation *op);

/// The floating-point operations of `op`, with every slot in use, if it is a
/// product, else 0.
int64_t getFlops(Operation *op);

/// Sets `bsr.kind` of `cluster`, which computes `members`, to that of its main
/// work (a product before all else), and `bsr.flops` to the floating-point
/// operations of its products, if it has any, with every slot in use.
void setWork(ClusterOp cluster, ArrayRef<Operation *> members);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_WORK_H
