// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pipelines; read top to bottom, the architecture.

#include "bsr/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;

void bsr::registerBSRPipelines() {}
