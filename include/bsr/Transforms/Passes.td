// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes, by stage, in the order of the pipeline (lib/Transforms/Pipelines.cpp).
// Each says why it is there, has a Before and an After, its options and statistics.

#ifndef BSR_TRANSFORMS_PASSES
#define BSR_TRANSFORMS_PASSES

include "bsr/Transforms/Import.td"
include "bsr/Transforms/Sparsity.td"
include "bsr/Transforms/Layout.td"
include "bsr/Transforms/Clusters.td"
include "bsr/Transforms/Kernels.td"
include "bsr/Transforms/Bufferization.td"
include "bsr/Transforms/Loops.td"
include "bsr/Transforms/Library.td"
include "bsr/Transforms/SparseTensors.td"

#endif // BSR_TRANSFORMS_PASSES
