// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An mlir-opt with a pass of its own on the dialect, built from what is
// installed.

#include "bsr/Dialect/BSR.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

using namespace mlir;

namespace {
/// Says of each function how many products it has that touch stored blocks
/// only.
struct CountProducts : PassWrapper<CountProducts, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CountProducts)
  StringRef getArgument() const override { return "count-products"; }
  void runOnOperation() override {
    int64_t count = 0;
    getOperation().walk(
        [&](Operation *op) { count += isa<bsr::SpMMOp, bsr::SDDMMOp>(op); });
    getOperation()->setAttr("products",
                            Builder(&getContext()).getI64IntegerAttr(count));
  }
};
} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registerAllDialects(registry);
  bsr::registerDialect(registry);
  bsr::registerPassesAndPipelines();
  PassRegistration<CountProducts>();
  return asMainReturnCode(
      MlirOptMain(argc, argv, "Counts products\n", registry));
}
