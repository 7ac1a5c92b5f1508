// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds matrices that choose rows of what they are multiplied with.

#include "bsr/Analysis/OneHot.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::bsr;

/// Looks through a cast of an index.
static Value stripCast(Value value) {
  auto cast = value.getDefiningOp<arith::IndexCastOp>();
  return cast ? cast.getIn() : value;
}

/// True if `value` is 1 where `condition` holds and 0 elsewhere.
static Value getCondition(Value value) {
  if (auto select = value.getDefiningOp<arith::SelectOp>())
    if (matchPattern(select.getTrueValue(), m_OneFloat()) &&
        matchPattern(select.getFalseValue(), m_AnyZeroFloat()))
      return select.getCondition();
  if (auto convert = value.getDefiningOp<arith::UIToFPOp>())
    return convert.getIn();
  return {};
}

std::optional<OneHot> bsr::matchOneHot(Value value) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || op.getNumReductionLoops() || op.getNumDpsInputs() != 1 ||
      op->getNumResults() != 1 ||
      !op.getIndexingMapsArray().back().isIdentity())
    return std::nullopt;
  Value condition = getCondition(op.getBody()->getTerminator()->getOperand(0));
  auto equal =
      condition ? condition.getDefiningOp<arith::CmpIOp>() : arith::CmpIOp();
  if (!equal || equal.getPredicate() != arith::CmpIPredicate::eq)
    return std::nullopt;
  Value lhs = stripCast(equal.getLhs()), rhs = stripCast(equal.getRhs());
  auto index = lhs.getDefiningOp<linalg::IndexOp>();
  if (!index) {
    std::swap(lhs, rhs);
    index = lhs.getDefiningOp<linalg::IndexOp>();
  }
  if (!index || rhs != op.getBody()->getArgument(0))
    return std::nullopt;
  unsigned dim = index.getDim();
  SmallVector<AffineExpr> others;
  for (unsigned i = 0; i != op.getNumLoops(); ++i)
    if (i != dim)
      others.push_back(getAffineDimExpr(i, op.getContext()));
  auto all = AffineMap::get(op.getNumLoops(), 0, others, op.getContext());
  Value indices = op.getDpsInputs()[0];
  Type type = cast<RankedTensorType>(indices.getType()).getElementType();
  if (op.getIndexingMapsArray().front() != all || !type.isInteger())
    return std::nullopt;
  // In fewer bits, rows past the largest number are numbered again.
  if (!llvm::isIntN(type.getIntOrFloatBitWidth(),
                    op.getStaticLoopRanges()[dim] - 1))
    return std::nullopt;
  return OneHot{indices, dim};
}
