// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What values are off the pattern of a weight, operation by operation.

#include "bsr/Gradients/OffPattern.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

Off bsr::getOff(const Offs &offs, Value value) {
  auto known = offs.find(value);
  if (known != offs.end())
    return known->second;
  return isZeros(value) || value.getDefiningOp<tensor::EmptyOp>()
             ? Off::Zero
             : Off::Constant;
}

Off bsr::getBodyOff(linalg::LinalgOp op, OpResult result, Offs &offs) {
  for (OpOperand &operand : op->getOpOperands())
    offs[op.getMatchingBlockArgument(&operand)] = getOff(offs, operand.get());
  for (Operation &inner : op.getBlock()->without_terminator()) {
    Off most = Off::Zero, least = Off::Data;
    for (Value operand : inner.getOperands()) {
      most = std::max(most, getOff(offs, operand));
      least = std::min(least, getOff(offs, operand));
    }
    if (isa<arith::ConstantOp>(inner))
      most = isZeros(inner.getResult(0)) ? Off::Zero : Off::Constant;
    else if (isa<arith::MulFOp>(inner) && least == Off::Zero)
      most = Off::Zero;
    else if (isa<arith::DivFOp>(inner) &&
             getOff(offs, inner.getOperand(0)) == Off::Zero)
      most = Off::Zero;
    else if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
                  arith::NegFOp, arith::ExtFOp, arith::TruncFOp,
                  arith::MaximumFOp, arith::MinimumFOp, arith::SelectOp,
                  BarrierOp>(inner))
      most = std::max(most, Off::Constant);
    for (Value value : inner.getResults())
      offs[value] = most;
  }
  return getOff(offs, op.getBlock()->getTerminator()->getOperand(
                          result.getResultNumber()));
}
