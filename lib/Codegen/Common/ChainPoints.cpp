// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where work items of a chain are in the loops of its roots.

#include "bsr/Codegen/Common/ChainPoints.h"

using namespace mlir;
using namespace mlir::bsr;

SmallVector<Index> bsr::getPoint(const Chain &chain, const Chain::Root &root,
                                 ArrayRef<Index> shared, ArrayRef<Index> rows) {
  SmallVector<Index> point(root.op.getNumLoops(), Index::constant(0));
  for (int64_t loop : root.order)
    if (root.shared[loop] >= 0)
      point[loop] = shared[root.shared[loop]];
  for (auto [loop, row] : llvm::zip(chain.getRows(root), rows))
    point[loop] = row;
  return point;
}

SmallVector<Index> bsr::getPlace(OpResult result, ArrayRef<Index> point) {
  auto op = cast<linalg::GenericOp>(result.getOwner());
  return applyMap(op.getIndexingMapMatchingResult(result), point);
}

Value bsr::readInit(Evaluator &e, OpResult sum, ArrayRef<Index> place) {
  auto op = cast<linalg::GenericOp>(sum.getOwner());
  return e.broadcast(e.read(op.getDpsInits()[sum.getResultNumber()], place));
}
