// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops for products of rows with the matrices of their groups.

#include "bsr/Codegen/Common/GroupLoops.h"
#include "bsr/Codegen/Common/RowLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;

void bsr::emitGroupedMatmul(Evaluator &e, GroupedMatmulOp op, Value output) {
  RankedTensorType y = op.getY().getType();
  int64_t groups = op.getW().getType().getDimSize(0);
  e.forEach(y.getShape(), [&](ArrayRef<Index> at) {
    Value group = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                             e.read(op.getGroups(), at[0]));
    // Unsigned: a negative number is too large as well.
    Value isGroup = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult,
                                          group, e.constant(groups));
    Index near = Index::of(
        arith::MinUIOp::create(e.b, e.loc, group, e.constant(groups - 1)));
    Value zero = getZeros(e, y.getElementType(), 1).front();
    Value sum =
        e.loop(op.getX().getType().getDimSize(1), zero,
               [&](Index feature, ValueRange sum) {
                 SmallVector<Index> entry{near, feature, at[1]};
                 if (op.getTranspose())
                   std::swap(entry[1], entry[2]);
                 Value x = e.read(op.getX(), {at[0], feature});
                 Value w = e.read(op.getW(), entry);
                 return SmallVector<Value>{multiplyAdd(e, x, w, sum.front())};
               })
            .front();
    e.store(arith::SelectOp::create(e.b, e.loc, isGroup, sum, zero), output,
            at);
  });
}

void bsr::emitGroupedOuter(Evaluator &e, GroupedOuterOp op, Value output) {
  RankedTensorType w = op.getW().getType();
  RowTokens rows(e, op.getGroups(), w.getDimSize(0), /*links=*/{});
  e.forEach(w.getShape(), [&](ArrayRef<Index> at) {
    Value zero = getZeros(e, w.getElementType(), 1).front();
    Value sum = rows.addTokens(at[0], rows.getFirst(at[0]), zero,
                               [&](ArrayRef<Index> row) {
                                 Value a = e.read(op.getA(), {row[0], at[1]});
                                 Value b = e.read(op.getB(), {row[0], at[2]});
                                 return multiplyAdd(e, a, b, zero);
                               });
    e.store(sum, output, at);
  });
}
