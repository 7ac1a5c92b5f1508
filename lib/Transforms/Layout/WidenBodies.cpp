// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes each element-wise operation of halves in f32, and rounds its result.

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRWIDENBODIES
#include "bsr/Transforms/Layout/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

static bool isHalf(Value value) {
  Type type = value.getType();
  return type.isF16() || type.isBF16();
}

/// Whether `op` computes numbers of which f32 has more bits. What converts to a
/// half, and what is of its bits, is of the half.
static bool isComputed(Operation &op) {
  return isa<arith::ArithDialect, math::MathDialect>(op.getDialect()) &&
         !isa<arith::BitcastOp, arith::ConstantOp, arith::TruncFOp>(op) &&
         (llvm::any_of(op.getResults(), isHalf) ||
          llvm::any_of(op.getOperands(), isHalf));
}

namespace {
/// Writes a body again.
class Widening {
public:
  explicit Widening(Block &body) : body(body), b(body.getParentOp()) {}

  void run() {
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator()))
      if (isComputed(op))
        widen(op);
    b.setInsertionPoint(body.getTerminator());
    for (OpOperand &operand : body.getTerminator()->getOpOperands())
      operand.set(getNarrow(operand.get()));
  }

private:
  /// A half as an f32.
  Value getWide(Value value) {
    Value &wide = wides[value];
    if (!wide)
      wide = arith::ExtFOp::create(b, value.getLoc(), b.getF32Type(), value);
    return wide;
  }

  /// What a half is that was computed in f32.
  Value getNarrow(Value value) {
    auto it = computed.find(value);
    if (it == computed.end())
      return value;
    return arith::TruncFOp::create(b, value.getLoc(), value.getType(),
                                   it->second);
  }

  void widen(Operation &op) {
    b.setInsertionPoint(&op);
    IRMapping mapping;
    for (Value operand : op.getOperands())
      if (isHalf(operand))
        mapping.map(operand, getWide(operand));
    if (auto extension = dyn_cast<arith::ExtFOp>(op)) {
      Value wide = getWide(extension.getIn());
      if (extension.getType() != wide.getType())
        wide = arith::ExtFOp::create(b, op.getLoc(), extension.getType(), wide);
      extension.replaceAllUsesWith(wide);
      return;
    }
    Operation *wide = b.clone(op, mapping);
    for (auto [before, result] :
         llvm::zip_equal(op.getResults(), wide->getResults())) {
      if (!isHalf(before)) {
        before.replaceAllUsesWith(result);
        continue;
      }
      result.setType(b.getF32Type());
      wides[before] = computed[before] = result;
    }
  }

  Block &body;
  OpBuilder b;
  llvm::DenseMap<Value, Value> wides;    // of halves, in f32
  llvm::DenseMap<Value, Value> computed; // of those, what is no extension
};
} // namespace

/// Computes the body of `op` in f32, if it does more than one thing with
/// halves.
static bool widenBody(linalg::GenericOp op) {
  if (!isElementWise(op) || llvm::count_if(*op.getBody(), isComputed) < 2)
    return false;
  Block &body = *op.getBody();
  // Of a half that is made before, anything may be read: it keeps its type.
  for (Operation &inner : body.without_terminator())
    if (!isComputed(inner) && !isa<arith::ConstantOp>(inner))
      if (llvm::any_of(inner.getOperands(), isHalf))
        return false;
  Widening(body).run();
  // What is left of the body as it was, from its end on.
  SmallVector<Operation *> inner(
      llvm::make_pointer_range(body.without_terminator()));
  for (Operation *op : llvm::reverse(inner))
    if (isOpTriviallyDead(op))
      op->erase();
  return true;
}

namespace {
struct WidenBodies : bsr::impl::BSRWidenBodiesBase<WidenBodies> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<linalg::GenericOp> ops;
    getOperation().walk([&](linalg::GenericOp op) { ops.push_back(op); });
    for (linalg::GenericOp op : ops)
      numWidened += widenBody(op);
  }
};
} // namespace
