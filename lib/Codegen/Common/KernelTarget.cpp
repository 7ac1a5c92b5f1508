// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the passes that make kernels ask of targets.

#include "bsr/Codegen/Common/KernelTarget.h"

using namespace mlir;
using namespace mlir::bsr;

#include "bsr/Codegen/Common/AttrInterfaces.cpp.inc"

KernelTargetAttrInterface bsr::getKernelTarget(Operation *op) {
  return cast<KernelTargetAttrInterface>(getTarget(op));
}
