// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels for processors are made for.

#include "bsr/Codegen/CPU/CPUTarget.h"
#include "bsr/Codegen/CPU/Kernels.h"

using namespace mlir;
using namespace mlir::bsr;

bsr::CPUTarget::CPUTarget(CPUAttr attr)
    : lanes(attr.getVectorBits() / 32), count(attr.getNumRegisters()),
      firstCache(attr.getL1Bytes()), secondCache(attr.getL2Bytes()) {}

CPUTarget bsr::getCPUTarget(Operation *op) {
  return CPUTarget(cast<CPUAttr>(getTarget(op)));
}

namespace {
struct Model : TargetAttrInterface::ExternalModel<Model, CPUAttr> {
  TargetCosts getCosts(Attribute) const {
    TargetCosts costs;
    costs.everyUse = 3;
    costs.singleUse = 64;
    costs.broadcast = 1;
    costs.stored = 12;
    costs.maxOutputs = 8;
    costs.maxRoots = 16;
    costs.maxSlices = 8;
    return costs;
  }
  bool acceptsEpilogue(Attribute, Operation *op) const {
    return bsr::acceptsEpilogue(op);
  }
};
} // namespace

void bsr::registerCPUTargetExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    CPUAttr::attachInterface<Model>(*context);
  });
}
