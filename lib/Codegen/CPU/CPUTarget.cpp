// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels for processors are made for.

#include "bsr/Codegen/CPU/CPUTarget.h"
#include "Attention.h"
#include "ChainNests.h"
#include "RowKernels.h"
#include "SingleProducts.h"
#include "bsr/Analysis/InPlace.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "bsr/Codegen/Common/KernelTarget.h"

using namespace mlir;
using namespace mlir::bsr;

bsr::CPUTarget::CPUTarget(CPUAttr attr)
    : lanes(attr.getVectorBits() / 32), count(attr.getNumRegisters()),
      firstCache(attr.getL1Bytes()), secondCache(attr.getL2Bytes()),
      hasPairDots(attr.getBf16Dots() != PairDots::None && lanes >= 4 &&
                  lanes <= 16) {}

CPUTarget bsr::getCPUTarget(Operation *op) {
  return CPUTarget(cast<CPUAttr>(getTarget(op)));
}

RankedTensorType bsr::getPanelType(RankedTensorType tensor, int64_t panel) {
  // A way of a first-level cache, and the quarter of it that a block may take.
  constexpr int64_t way = 4096, share = way / 4;
  ArrayRef<int64_t> shape = tensor.getShape();
  int64_t rows = shape[shape.size() - 2];
  int64_t rowBytes = panel * tensor.getElementTypeBitWidth() / 8;
  // One row more: what products read of a row, panel after panel, lies in all
  // sets of the cache, not in four of them.
  int64_t padding = share / rowBytes + 1;
  if (rows * rowBytes % way == 0 && rows >= 16 * padding)
    rows += padding;
  SmallVector<int64_t> result(shape.drop_back(2));
  result.append({shape.back() / panel, rows, panel});
  return tensor.clone(result);
}

namespace {
struct Model : TargetAttrInterface::ExternalModel<Model, CPUAttr> {
  TargetCosts getCosts(Attribute) const {
    TargetCosts costs;
    costs.maxOutputs = 8;
    costs.maxRoots = 16;
    costs.maxSlices = 8;
    return costs;
  }
  bool acceptsEpilogue(Attribute, Operation *op) const {
    return bsr::acceptsEpilogue(op);
  }
  bool hasAttention(Attribute, Operation *) const { return true; }
  bool wantsTokensLast(Attribute) const { return true; }
};

struct KernelModel
    : KernelTargetAttrInterface::ExternalModel<KernelModel, CPUAttr> {
  int64_t getPanel(Attribute attr) const { return get(attr).panel(); }
  RankedTensorType getPanelType(Attribute attr, RankedTensorType tensor) const {
    return bsr::getPanelType(tensor, getPanel(attr));
  }
  std::optional<View> getWalkedView(Attribute attr, Operation *op) const {
    return bsr::getWalkedView(op, get(attr));
  }
  SmallVector<MemRefType> getScratch(Attribute attr,
                                     const ClusterPlan &plan) const {
    if (plan.chain)
      return bsr::getScratch(*plan.chain, get(attr));
    SmallVector<MemRefType> types;
    for (Operation *root : plan.roots) {
      if (std::optional<Attention> attention = getAttention(root))
        llvm::append_range(types, getAttentionScratch(*attention, get(attr)));
      llvm::append_range(types, getLinkMemory(root));
      llvm::append_range(types, getOrderMemory(root, get(attr)));
    }
    return types;
  }
  SmallVector<int64_t> getInPlace(Attribute, ClusterOp cluster,
                                  const ClusterPlan &plan) const {
    return getInPlaceArguments(cluster, plan);
  }
  LogicalResult emitBody(Attribute attr, OpBuilder &builder,
                         KernelBody &kernel) const;

private:
  static CPUTarget get(Attribute attr) {
    return CPUTarget(cast<CPUAttr>(attr));
  }
};
} // namespace

LogicalResult KernelModel::emitBody(Attribute attr, OpBuilder &builder,
                                    KernelBody &kernel) const {
  Emitter emitter(builder, kernel.loc, get(attr));
  emitter.panel = kernel.isCut ? emitter.target.panel() : 0;
  for (auto [argument, buffer] : kernel.inputs)
    emitter.setBuffer(argument, buffer);
  DenseMap<Value, Value> &outputs = kernel.outputs;
  for (auto [value, place] : kernel.plan.places)
    outputs[value] = outputs.lookup(place);
  if (kernel.plan.chain)
    emitChain(emitter, *kernel.plan.chain, outputs, kernel.patterns,
              kernel.scratch);
  ValueRange scratch = kernel.scratch;
  auto takeScratch = [&](size_t count) {
    ValueRange taken = scratch.take_front(count);
    scratch = scratch.drop_front(count);
    return taken;
  };
  for (ArrayRef<Operation *> nest : kernel.plan.nests) {
    Operation *root = nest.front();
    if (std::optional<Attention> attention = getAttention(root))
      emitAttention(
          emitter, *attention, outputs, kernel.patterns,
          takeScratch(getAttentionScratch(*attention, get(attr)).size()));
    else if (size_t count = getOrderMemory(root, get(attr)).size())
      emitOrdered(emitter, root, outputs.lookup(root->getResult(0)),
                  kernel.patterns, takeScratch(count));
    else if (!emitRows(emitter, root, outputs.lookup(root->getResult(0)),
                       kernel.patterns,
                       takeScratch(getLinkMemory(root).size())))
      emitNest(emitter, nest, outputs, kernel.patterns);
    for (Operation *root : nest)
      for (Value result : root->getResults())
        if (Value buffer = outputs.lookup(result))
          emitter.setBuffer(result, buffer);
  }
  return failure(emitter.hasFailed);
}

void bsr::registerCPUTargetExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    CPUAttr::attachInterface<Model, KernelModel>(*context);
  });
}
