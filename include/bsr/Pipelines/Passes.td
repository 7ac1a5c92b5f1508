// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes, by room, about in the order of the pipeline (lib/Pipelines/Pipelines.cpp).
// Each says why it is there, has a Before and an After, its options and statistics.

#ifndef BSR_PIPELINES_PASSES
#define BSR_PIPELINES_PASSES

include "bsr/Transforms/Import/Passes.td"
include "bsr/Transforms/Sparsity/Passes.td"
include "bsr/Transforms/Layout/Passes.td"
include "bsr/Transforms/Attention/Passes.td"
include "bsr/Transforms/Clusters/Passes.td"
include "bsr/Codegen/Common/Passes.td"
include "bsr/Codegen/CPU/Passes.td"
include "bsr/Transforms/Bufferization/Passes.td"
include "bsr/Transforms/Library/Passes.td"
include "bsr/Transforms/SparseTensors/Passes.td"

#endif // BSR_PIPELINES_PASSES
