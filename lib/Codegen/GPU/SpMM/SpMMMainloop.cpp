// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block goes through the plan of a product.

#include "SpMMMainloop.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

SpMMMainloop::SpMMMainloop(const SpMMContext &product, int64_t numAccumulators,
                           bool areNeighbours, const SpMMGrid &grid,
                           BlockBuilder &b)
    : product(product), numAccumulators(numAccumulators),
      areNeighbours(areNeighbours), shape(product.shape), plan(product.plan),
      b(b), i32(b.b.getI32Type()) {
  const Activations &x = shape.activations;
  int64_t tilesPerBatch = llvm::divideCeil(x.tokens, grid.tokens);
  areTokensRagged = x.tokens % grid.tokens != 0;
  areBatchesRagged = x.batches * tilesPerBatch % grid.cluster[1] != 0;
  rank = b.rem(b.block[0], grid.cluster[0]);
  batch = b.constant(0);
  Value tileNumber = b.block[1];
  if (x.batches != 1 || areBatchesRagged) {
    batch = b.div(tileNumber, tilesPerBatch);
    tileNumber = b.rem(tileNumber, tilesPerBatch);
  }
  tokenTile = firstToken = b.mul(tileNumber, grid.tokens);
}

Value SpMMMainloop::getPlanArray(unsigned array, int64_t each) {
  return b.atFar(b.getPointer(product.launch.memory[array]),
                 product.range.group, plan.getMaxChunks() * each, i32);
}
