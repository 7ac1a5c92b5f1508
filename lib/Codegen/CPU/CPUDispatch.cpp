// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which kernel computes what, for processors.

#include "bsr/Codegen/CPU/CPUDispatch.h"
#include "Attention.h"
#include "ChainNests.h"
#include "GroupKernels.h"
#include "RowKernels.h"
#include "SingleSpMM.h"
#include "bsr/Analysis/InPlace.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

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
    return cpu::acceptsEpilogue(op);
  }
  bool transposesSums(Attribute attr, Operation *op) const {
    return cpu::transposesSums(op, CPUTarget(cast<CPUAttr>(attr)));
  }
  bool hasAttention(Attribute, Operation *) const { return true; }
  bool wantsTokensLast(Attribute) const { return true; }
};

struct KernelModel
    : KernelTargetAttrInterface::ExternalModel<KernelModel, CPUAttr> {
  int64_t getPanel(Attribute attr) const { return get(attr).panel(); }
  RankedTensorType getPanelType(Attribute attr, RankedTensorType tensor) const {
    return cpu::getPanelType(tensor, getPanel(attr));
  }
  std::optional<View> getWalkedView(Attribute attr, Operation *op) const {
    return cpu::getWalkedView(op, get(attr));
  }
  SmallVector<MemRefType> getScratch(Attribute attr,
                                     const ClusterPlan &plan) const {
    if (plan.chain)
      return cpu::getScratch(*plan.chain, get(attr));
    SmallVector<MemRefType> types;
    for (Operation *root : plan.roots) {
      if (std::optional<Attention> attention = getAttention(root))
        llvm::append_range(types, getAttentionScratch(*attention, get(attr)));
      llvm::append_range(types, getLinkMemory(root));
      llvm::append_range(types, getGroupMemory(root));
      llvm::append_range(types, getOrderMemory(root, get(attr)));
      llvm::append_range(types, getContractionMemory(root, get(attr)));
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

struct ScheduleVerifier : ScheduleVerifierInterface {
  using ScheduleVerifierInterface::ScheduleVerifierInterface;

  LogicalResult verifySchedule(Operation *op) const override {
    TargetAttrInterface target = getTarget(op);
    if (auto cpu = dyn_cast<CPUAttr>(target))
      return cpu::verifySchedule(op, CPUTarget(cpu));
    return op->emitOpError("expected no ")
           << attrs::schedule.name << " for a target with one kernel for it, "
           << "but got one for " << target;
  }
};
} // namespace

/// Makes `buffer` the memory of `tensor`, and of what collapses dimensions of
/// it: they lie side by side, so that lanes may cross from one to the next.
static void setBuffer(Emitter &e, Value tensor, Value buffer) {
  e.setBuffer(tensor, buffer);
  auto type = dyn_cast<MemRefType>(buffer.getType());
  auto shape = dyn_cast<RankedTensorType>(tensor.getType());
  if (!type || !shape || type.getShape() != shape.getShape())
    return; // A number, or in panels.
  for (Operation *user : tensor.getUsers()) {
    auto collapse = dyn_cast<tensor::CollapseShapeOp>(user);
    if (!collapse)
      continue;
    SmallVector<ReassociationIndices> groups =
        collapse.getReassociationIndices();
    if (memref::CollapseShapeOp::isGuaranteedCollapsible(type, groups))
      setBuffer(e, collapse,
                memref::CollapseShapeOp::create(e.b, e.loc, buffer, groups));
  }
}

LogicalResult KernelModel::emitBody(Attribute attr, OpBuilder &builder,
                                    KernelBody &kernel) const {
  Emitter emitter(builder, kernel.loc, get(attr));
  emitter.panel = kernel.isCut ? emitter.target.panel() : 0;
  for (auto [argument, buffer] : kernel.inputs)
    setBuffer(emitter, argument, buffer);
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
    else if (size_t count = getContractionMemory(root, get(attr)).size())
      emitContraction(emitter, cast<linalg::GenericOp>(root), outputs, {},
                      takeScratch(count));
    else if (!emitRows(emitter, root, outputs.lookup(root->getResult(0)),
                       kernel.patterns,
                       takeScratch(getLinkMemory(root).size())) &&
             !emitGroups(emitter, root, outputs.lookup(root->getResult(0)),
                         takeScratch(getGroupMemory(root).size())))
      emitNest(emitter, nest, outputs, kernel.patterns);
    for (Operation *root : nest)
      for (Value result : root->getResults())
        if (Value buffer = outputs.lookup(result))
          setBuffer(emitter, result, buffer);
  }
  return failure(emitter.hasFailed);
}

void bsr::registerCPUTargetExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *dialect) {
    dialect->addInterfaces<ScheduleVerifier>();
    CPUAttr::attachInterface<Model, KernelModel>(*context);
  });
}
