// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a checkpoint holds, for people.

#ifndef BSR_TOOLS_SPARSECHECKPOINT_DESCRIBE_H
#define BSR_TOOLS_SPARSECHECKPOINT_DESCRIBE_H

#include "Contents.h"

namespace sparse_opt {

/// The state of the run, its configuration, and a line for each matrix.
std::string describe(const Contents &contents);

/// A picture (SVG) of the patterns called `names`, or of all: dark where blocks
/// are stored. A cell of a large pattern stands for several blocks and is as
/// dark as the share of them that is stored.
std::string drawPatterns(const Contents &contents,
                         const std::vector<std::string> &names);

} // namespace sparse_opt

#endif // BSR_TOOLS_SPARSECHECKPOINT_DESCRIBE_H
