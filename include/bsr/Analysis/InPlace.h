// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which arguments of a cluster its results may be written over.

#ifndef BSR_ANALYSIS_INPLACE_H
#define BSR_ANALYSIS_INPLACE_H

#include "bsr/Analysis/ClusterPlan.h"

namespace mlir::bsr {

/// The numbers of the arguments of `cluster` of which `plan` reads every
/// element before it writes what may lie there: in one element-wise nest, of
/// which a point reads no element but the one that it writes; in a chain, of
/// which a work item has read its part when it writes. Work items compute all
/// that is read at a point before they write there.
SmallVector<int64_t> getInPlaceArguments(ClusterOp cluster,
                                         const ClusterPlan &plan);
/// The numbers of the arguments of `cluster` of which the product of `chain`
/// reads nothing, and what follows it, element by element, no element but the
/// one that it writes.
SmallVector<int64_t> getUpdatedArguments(ClusterOp cluster, const Chain &chain);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_INPLACE_H
