// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels for processors are made for.

#include "bsr/Codegen/CPU/CPUTarget.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mlir::bsr;

bsr::CPUTarget::CPUTarget(CPUAttr attr)
    : lanes(attr.getVectorBits() / 32), count(attr.getNumRegisters()),
      firstCache(attr.getL1Bytes()), secondCache(attr.getL2Bytes()) {}

CPUTarget bsr::getCPUTarget(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  auto target = module->getAttrOfType<CPUAttr>(getTargetAttrName());
  return CPUTarget(target ? target : CPUAttr::get(op->getContext()));
}
