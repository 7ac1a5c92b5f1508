// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plainest target: one element after the other.

#include "bsr/Codegen/Scalar/ScalarTarget.h"
#include "bsr/Codegen/Common/Nests.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Every operation is a kernel of its own, as far as that is up to the target.
struct Model : TargetAttrInterface::ExternalModel<Model, ScalarAttr> {
  TargetCosts getCosts(Attribute) const {
    TargetCosts costs;
    costs.everyUse = 0;
    costs.singleUse = 0;
    costs.broadcast = 0;
    costs.stored = 0;
    return costs;
  }
  bool acceptsEpilogue(Attribute, Operation *) const { return false; }
  bool hasAttention(Attribute, Operation *) const { return true; }
  bool wantsTokensLast(Attribute) const { return false; }
};

struct KernelModel
    : KernelTargetAttrInterface::ExternalModel<KernelModel, ScalarAttr> {
  std::optional<View> getWalkedView(Attribute, Operation *op) const {
    return getLineView(op);
  }
  SmallVector<MemRefType> getScratch(Attribute, const ClusterPlan &plan) const {
    return getNestScratch(plan);
  }
  LogicalResult emitBody(Attribute, OpBuilder &builder,
                         KernelBody &kernel) const {
    Evaluator evaluator(builder, kernel.loc);
    return emitNests(evaluator, kernel);
  }
};
} // namespace

void bsr::registerScalarTargetExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    ScalarAttr::attachInterface<Model, KernelModel>(*context);
  });
}
