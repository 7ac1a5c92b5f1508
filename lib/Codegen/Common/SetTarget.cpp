// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says what a module is compiled for.

#include "bsr/Codegen/Common/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSETTARGET
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct SetTarget : bsr::impl::BSRSetTargetBase<SetTarget> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Attribute has = attrs::target.get(module);
    if (target.empty()) {
      if (!has)
        attrs::target.set(module, getTarget(module));
      return;
    }
    Attribute wanted;
    {
      // A word that is no attribute is answered below; of an attribute the
      // parser says what is wrong with it.
      ScopedDiagnosticHandler quiet(&getContext(), [&](Diagnostic &) {
        return success(!StringRef(target).starts_with("#"));
      });
      wanted = parseAttribute(target, &getContext());
    }
    if (!wanted && StringRef(target).starts_with("#"))
      return signalPassFailure();
    auto known = dyn_cast_or_null<TargetAttrInterface>(wanted);
    if (!known) {
      module.emitError("expected a target, such as #bsr.cpu or "
                       "#bsr.cpu<vector_bits=512>, but got '")
          << target.getValue() << "'";
      return signalPassFailure();
    }
    if (has && has != wanted) {
      module.emitError("expected the module's target to be ")
          << wanted << ", but got " << has;
      return signalPassFailure();
    }
    attrs::target.set(module, known);
  }
};
} // namespace
