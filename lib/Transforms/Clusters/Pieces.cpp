// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What computes the pieces of concatenations.

#include "Pieces.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/Windows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

static void addProducers(tensor::ConcatOp concat) {
  OpBuilder b(concat);
  Location loc = concat.getLoc();
  for (OpOperand &piece : concat->getOpOperands()) {
    if (getPieceProducer(piece.get()))
      continue;
    auto type = cast<RankedTensorType>(piece.get().getType());
    AffineMap map = b.getMultiDimIdentityMap(type.getRank());
    SmallVector<utils::IteratorType> kinds(type.getRank(),
                                           utils::IteratorType::parallel);
    Value init =
        tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
    auto copy = linalg::GenericOp::create(
        b, loc, type, piece.get(), init, ArrayRef{map, map}, kinds,
        [](OpBuilder &nested, Location loc, ValueRange args) {
          linalg::YieldOp::create(nested, loc, args.front());
        });
    piece.set(copy.getResult(0));
  }
}

void bsr::addPieceProducers(ClusterOp cluster) {
  for (auto concat : cluster.getBody().front().getOps<tensor::ConcatOp>())
    if (canCompute(concat) && !areReadInLine(concat))
      addProducers(concat);
}
