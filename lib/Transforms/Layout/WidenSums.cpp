// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes sums of halves in f32.

#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRWIDENSUMS
#include "bsr/Transforms/Layout/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

static bool isHalf(Type type) {
  Type element = getElementTypeOrSelf(type);
  return element.isF16() || element.isBF16();
}

/// The scalar `value` as an f32.
static Value widen(OpBuilder &b, Location loc, Value value) {
  return arith::ExtFOp::create(b, loc, b.getF32Type(), value);
}

/// `tensor` with elements of `type`, each made from one by `body`.
static Value
createConversion(OpBuilder &b, Location loc, Value tensor, Type type,
                 llvm::function_ref<Value(OpBuilder &, Value)> body) {
  auto from = cast<RankedTensorType>(tensor.getType());
  Value init = tensor::EmptyOp::create(b, loc, from.getShape(), type);
  AffineMap map = b.getMultiDimIdentityMap(from.getRank());
  SmallVector<utils::IteratorType> kinds(from.getRank(),
                                         utils::IteratorType::parallel);
  auto op = linalg::GenericOp::create(
      b, loc, init.getType(), tensor, init, ArrayRef{map, map}, kinds,
      [&](OpBuilder &nested, Location loc, ValueRange args) {
        linalg::YieldOp::create(nested, loc, body(nested, args.front()));
      });
  return op.getResult(0);
}

/// Fills `body`, whose last arguments are f32, with what `old` does; products
/// that are added up are not rounded.
static void fillBody(linalg::GenericOp old, Block &body) {
  OpBuilder b(&body, body.begin());
  Location loc = old.getLoc();
  IRMapping mapping;
  mapping.map(old.getBody()->getArguments(), body.getArguments());
  SmallVector<Operation *> adds;
  for (unsigned result = 0; result != old->getNumResults(); ++result)
    adds.push_back(getCombiner(old, result));
  for (Operation &op : old.getBody()->without_terminator())
    if (!llvm::is_contained(adds, &op))
      b.clone(op, mapping);
  SmallVector<Value> sums;
  for (auto [add, before] : llvm::zip_equal(adds, old.getRegionOutputArgs())) {
    Value term = add->getOperand(add->getOperand(0) == before ? 1 : 0);
    auto product = mapping.lookup(term).getDefiningOp<arith::MulFOp>();
    Value wide;
    if (product) {
      Value x = widen(b, loc, product.getLhs());
      Value y = widen(b, loc, product.getRhs());
      wide = arith::MulFOp::create(b, loc, x, y);
    } else {
      wide = widen(b, loc, mapping.lookup(term));
    }
    if (product && product->use_empty())
      product->erase();
    sums.push_back(arith::AddFOp::create(b, loc, mapping.lookup(before), wide));
  }
  linalg::YieldOp::create(b, loc, sums);
}

/// Takes the sums of `op` in f32 and rounds them at the end, if they are
/// halves.
static bool widenSums(linalg::GenericOp op) {
  if (op.getNumReductionLoops() == 0 || !op.hasPureTensorSemantics() ||
      !llvm::all_of(op->getResultTypes(), isHalf) || !isSum(op))
    return false;
  OpBuilder b(op);
  Location loc = op.getLoc();
  SmallVector<Value> inits;
  for (Value init : op.getDpsInits()) {
    auto type = cast<RankedTensorType>(init.getType()).clone(b.getF32Type());
    inits.push_back(
        isZeros(init)
            ? arith::ConstantOp::create(b, loc, b.getZeroAttr(type)).getResult()
            : createConversion(b, loc, init, b.getF32Type(),
                               [&](OpBuilder &b, Value value) {
                                 return widen(b, loc, value);
                               }));
  }
  auto wide = linalg::GenericOp::create(
      b, loc, TypeRange(ValueRange(inits)), op.getDpsInputs(), inits,
      op.getIndexingMapsArray(), op.getIteratorTypesArray());
  wide->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  Block &body = wide.getRegion().emplaceBlock();
  for (Value operand : wide->getOperands())
    body.addArgument(getElementTypeOrSelf(operand.getType()), loc);
  fillBody(op, body);
  for (OpResult result : op->getResults()) {
    Type type = getElementTypeOrSelf(result.getType());
    result.replaceAllUsesWith(
        createConversion(b, loc, wide.getResult(result.getResultNumber()), type,
                         [&](OpBuilder &b, Value value) {
                           return arith::TruncFOp::create(b, loc, type, value);
                         }));
  }
  op.erase();
  return true;
}

namespace {
struct WidenSums : bsr::impl::BSRWidenSumsBase<WidenSums> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<linalg::GenericOp> ops;
    getOperation().walk([&](linalg::GenericOp op) { ops.push_back(op); });
    for (linalg::GenericOp op : ops)
      numWidened += widenSums(op);
  }
};
} // namespace
