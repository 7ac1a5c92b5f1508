// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes patterns and values of sparse tensors that a function takes.

#include "SparseTensors.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/SparseTensors/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFROMSPARSETENSOR
#include "bsr/Transforms/SparseTensors/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Checks that every use of `argument` can read a dense matrix instead.
static LogicalResult verifyUses(BlockArgument argument) {
  for (OpOperand &use : argument.getUses()) {
    auto user = dyn_cast<linalg::LinalgOp>(use.getOwner());
    auto convert = dyn_cast<sparse_tensor::ConvertOp>(use.getOwner());
    if ((user && user.isDpsInput(&use)) ||
        (convert && !sparse_tensor::getSparseTensorEncoding(convert.getType())))
      continue;
    return use.getOwner()->emitError(
               "expected a block-sparse argument to be an input of linalg "
               "operations or converted to a dense tensor, but got a use by '")
           << use.getOwner()->getName() << "'";
  }
  return success();
}

namespace {
struct FromSparseTensor : bsr::impl::BSRFromSparseTensorBase<FromSparseTensor> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (!(density > 0 && density <= 1)) {
      func.emitError("expected density in (0, 1], but got ") << density;
      return signalPassFailure();
    }
    if (func.isDeclaration())
      return;
    for (unsigned arg = 0, e = func.getNumArguments(); arg != e; ++arg)
      if (auto block = getBlock(func.getArgument(arg).getType()))
        if (failed(replace(func, arg, *block)))
          return signalPassFailure();
  }

  /// Makes argument `arg` of `func` values and adds a pattern.
  LogicalResult replace(func::FuncOp func, unsigned arg,
                        std::pair<int64_t, int64_t> block) {
    BlockArgument argument = func.getArgument(arg);
    if (failed(verifyUses(argument)))
      return failure();
    auto sparse = cast<RankedTensorType>(argument.getType());
    auto dense =
        RankedTensorType::get(sparse.getShape(), sparse.getElementType());
    OpBuilder b(func.getContext());
    auto name = attrs::name.ofArg(func, arg);
    FloatAttr share = b.getF64FloatAttr(density);
    auto mark =
        MarkAttr::get(func.getContext(), block.first, block.second, share, {},
                      {}, {}, name ? name : b.getStringAttr("w"));
    auto emitError = [&] { return func.emitError(); };
    if (failed(mark.verifyFits(emitError, dense)))
      return failure();
    PatternType type = mark.getPatternType(dense);
    NamedAttrList attrs;
    if (name) {
      attrs::name.set(attrs, name);
      attrs::role.set(attrs, b.getStringAttr("pattern"));
      attrs::density.set(attrs, share);
    }
    unsigned last = func.getNumArguments();
    if (failed(func.insertArgument(last, type,
                                   attrs.getDictionary(func.getContext()),
                                   argument.getLoc())))
      return failure();
    argument.setType(type.getValuesType(dense.getElementType()));
    if (name)
      attrs::pattern.setOfArg(func, arg, b.getI64IntegerAttr(last));
    func.setType(b.getFunctionType(func.getBody().getArgumentTypes(),
                                   func.getResultTypes()));
    b.setInsertionPointToStart(&func.getBody().front());
    auto toDense = ToDenseOp::create(b, argument.getLoc(), dense,
                                     func.getArgument(last), argument,
                                     /*background=*/Value(),
                                     /*transpose=*/false);
    argument.replaceAllUsesExcept(toDense, toDense);
    for (Operation *user : llvm::make_early_inc_range(toDense->getUsers()))
      if (auto convert = dyn_cast<sparse_tensor::ConvertOp>(user)) {
        convert.replaceAllUsesWith(toDense.getDense());
        convert.erase();
      }
    ++numReplaced;
    return success();
  }
};
} // namespace
