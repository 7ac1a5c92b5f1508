// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plainest target: one element after the other.

#include "bsr/Codegen/Scalar/ScalarTarget.h"
#include "bsr/Codegen/Common/KernelTarget.h"
#include "bsr/Codegen/Scalar/Nests.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

/// True if an operation reads `result`, what a root of a cluster makes, and
/// neither the cluster nor a concatenation has it.
static bool needsScratch(const ClusterPlan &plan, OpResult result) {
  return !result.use_empty() && !plan.pieces.contains(result.getOwner()) &&
         !isa<tensor::ConcatOp>(result.getOwner()) &&
         llvm::none_of(result.getUsers(), llvm::IsaPred<YieldOp>);
}

namespace {
/// Every operation is a kernel of its own, as far as that is up to the target.
struct Model : TargetAttrInterface::ExternalModel<Model, ScalarAttr> {
  TargetCosts getCosts(Attribute) const {
    TargetCosts costs;
    costs.everyUse = 0;
    costs.singleUse = 0;
    costs.broadcast = 0;
    costs.stored = 0;
    costs.maxOutputs = 1;
    costs.maxRoots = 1;
    costs.maxSlices = 1;
    return costs;
  }
  bool acceptsEpilogue(Attribute, Operation *) const { return false; }
  bool wantsTokensLast(Attribute) const { return false; }
};

struct KernelModel
    : KernelTargetAttrInterface::ExternalModel<KernelModel, ScalarAttr> {
  std::optional<View> getWalkedView(Attribute, Operation *op) const {
    return getLineView(op);
  }
  SmallVector<MemRefType> getScratch(Attribute, const ClusterPlan &plan) const {
    SmallVector<MemRefType> types;
    for (Operation *root : plan.roots)
      for (OpResult result : root->getResults())
        if (needsScratch(plan, result))
          types.push_back(getDenseBufferType(result.getType()));
    return types;
  }
  LogicalResult emitBody(Attribute, OpBuilder &builder,
                         KernelBody &kernel) const {
    Evaluator evaluator(builder, kernel.loc);
    for (auto [argument, buffer] : kernel.inputs)
      evaluator.setBuffer(argument, buffer);
    DenseMap<Value, Value> &outputs = kernel.outputs;
    ValueRange scratch = kernel.scratch;
    for (Operation *root : kernel.plan.roots) {
      if (isa<tensor::ConcatOp>(root))
        continue;
      for (OpResult result : root->getResults()) {
        if (!needsScratch(kernel.plan, result))
          continue;
        outputs[result] = scratch.front();
        scratch = scratch.drop_front();
      }
      emitLoops(evaluator, root, outputs, kernel.patterns);
      for (Value result : root->getResults())
        if (Value buffer = outputs.lookup(result))
          evaluator.setBuffer(result, buffer);
    }
    return failure(evaluator.hasFailed);
  }
};
} // namespace

void bsr::registerScalarTargetExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    ScalarAttr::attachInterface<Model, KernelModel>(*context);
  });
}
