// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes unsigned integers signless, as the operations on them are.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/IR/AttrTypeSubElements.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRDROPSIGNS
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct DropSigns : bsr::impl::BSRDropSignsBase<DropSigns> {
  using Base::Base;

  void runOnOperation() override {
    AttrTypeReplacer replacer;
    replacer.addReplacement([](IntegerType type) -> std::optional<Type> {
      if (!type.isUnsigned())
        return std::nullopt;
      return IntegerType::get(type.getContext(), type.getWidth());
    });
    // Constants keep their bits.
    replacer.addReplacement([&](DenseIntOrFPElementsAttr attr) -> Attribute {
      auto type = cast<ShapedType>(replacer.replace(attr.getType()));
      return DenseElementsAttr::getFromRawBuffer(type, attr.getRawData());
    });

    for (auto func : getOperation().getOps<func::FuncOp>())
      if (isStep(func))
        noteSigns(func);
    replacer.recursivelyReplaceElementsIn(getOperation(), /*replaceAttrs=*/true,
                                          /*replaceLocs=*/false,
                                          /*replaceTypes=*/true);
    getOperation().walk([](UnrealizedConversionCastOp cast) {
      if (cast.getInputs().getTypes() != cast.getResultTypes())
        return;
      cast.replaceAllUsesWith(cast.getInputs());
      cast.erase();
    });
  }

  /// Leaves on arguments and results of `step` that they are unsigned: the
  /// manifest says so.
  void noteSigns(func::FuncOp step) {
    auto isUnsigned = [](Type type) {
      return getElementTypeOrSelf(type).isUnsignedInteger();
    };
    auto unit = UnitAttr::get(&getContext());
    for (auto [index, type] : llvm::enumerate(step.getArgumentTypes()))
      if (isUnsigned(type)) {
        attrs::isUnsigned.setOfArg(step, index, unit);
        ++numUnsigned;
      }
    for (auto [index, type] : llvm::enumerate(step.getResultTypes()))
      if (isUnsigned(type))
        attrs::isUnsigned.setOfResult(step, index, unit);
  }
};
} // namespace
