// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How else kernels for processors may go through sparse products.

#ifndef BSR_CODEGEN_CPU_WALKS_H
#define BSR_CODEGEN_CPU_WALKS_H

#include "bsr/Codegen/CPU/CPUTarget.h"
#include "bsr/Dialect/Schedules.h"

namespace mlir::bsr::cpu {

/// What there is beside the way in which the kernel of `op`, a `bsr.spmm` or a
/// `bsr.sddmm`, goes through it: the other walks, and, of one that gathers,
/// the register tiles of other shapes that keep both units for multiply-adds
/// busy. The verifier takes each of them.
SmallVector<ProductSchedule> getAlternatives(Operation *op, CPUTarget target);

/// The same way with other distances of prefetches: none unless it gathers. The
/// verifier takes each of them.
SmallVector<ProductSchedule> getDistances(Operation *op, CPUTarget target);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_WALKS_H
