// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads chains that are written down.

#ifndef BSR_ANALYSIS_CHAINREADER_H
#define BSR_ANALYSIS_CHAINREADER_H

#include "bsr/Analysis/Chain.h"

namespace mlir::bsr {

/// The chain that `roots` are by their `bsr.root`, over shared loops of
/// `extents`; nothing, and a report, where work items could not go through it.
std::optional<Chain> readChain(ArrayRef<Operation *> roots,
                               ArrayRef<int64_t> extents, IsLeaf isLeaf,
                               TargetAttrInterface target, Report report);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_CHAINREADER_H
