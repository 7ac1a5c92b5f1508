// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where work items of a chain are in the loops of its roots.

#ifndef BSR_CODEGEN_COMMON_CHAINPOINTS_H
#define BSR_CODEGEN_COMMON_CHAINPOINTS_H

#include "bsr/Analysis/Chain.h"
#include "bsr/Codegen/Common/Evaluator.h"

namespace mlir::bsr {

/// The loops of `root` where a work item is at `shared`, the shared loops of
/// `chain`, and at `rows`; without rows, at the first of each.
SmallVector<Index> getPoint(const Chain &chain, const Chain::Root &root,
                            ArrayRef<Index> shared, ArrayRef<Index> rows);

/// Where the element of `result` lies that its operation makes at `point`.
SmallVector<Index> getPlace(OpResult result, ArrayRef<Index> point);

/// What `sum`, a result of a reduction, starts from at `place`.
Value readInit(Evaluator &e, OpResult sum, ArrayRef<Index> place);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_CHAINPOINTS_H
