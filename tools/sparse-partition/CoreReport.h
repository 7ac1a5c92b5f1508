// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many cores divide the sparse products of a step, as a table.

#ifndef BSR_TOOLS_SPARSE_PARTITION_COREREPORT_H
#define BSR_TOOLS_SPARSE_PARTITION_COREREPORT_H

#include "bsr/Partition/CorePlan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::bsr {

/// Prints, for each kind of pattern that products of `step` read, how `cores`
/// divide the products, with a random pattern of seed `seed`; `clock` is cycles
/// a second. Fails if there are none, or if none of the divisions fits.
llvm::Error planProducts(func::FuncOp step, const Cores &cores, double clock,
                         uint64_t seed, llvm::raw_ostream &os);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_PARTITION_COREREPORT_H
