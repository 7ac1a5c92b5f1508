// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Unrolls loops of few operations.

#include "bsr/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Utils/Utils.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRUNROLL
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

/// The number of operations that `loop` becomes, or none if its trip count is
/// not known.
static std::optional<uint64_t> getUnrolledSize(scf::ForOp loop) {
  std::optional<APInt> trips = loop.getStaticTripCount();
  if (!trips)
    return std::nullopt;
  uint64_t size = 0;
  loop.getBody()->walk([&](linalg::LinalgOp) { ++size; });
  return llvm::SaturatingMultiply(trips->getLimitedValue(), size);
}

namespace {
struct Unroll : bsr::impl::BSRUnrollBase<Unroll> {
  using Base::Base;

  void runOnOperation() override {
    // A walk in post-order: inner loops first, so their operations count.
    getOperation()->walk([&](scf::ForOp loop) {
      std::optional<uint64_t> size = getUnrolledSize(loop);
      if (!size || *size > maxOperations || failed(loopUnrollFull(loop)))
        return;
      ++numUnrolled;
    });
  }
};
} // namespace
