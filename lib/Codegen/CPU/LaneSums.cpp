// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions along lanes: in vectors first, then across them.

#include "LaneSums.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Codegen/CPU/Tiling.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

Value cpu::combineLanes(Emitter &e, OpResult sum, Value value) {
  if (!isa<VectorType>(value.getType()))
    return value;
  Operation *combiner = bsr::getCombiner(
      cast<linalg::GenericOp>(sum.getOwner()), sum.getResultNumber());
  return vector::ReductionOp::create(e.b, e.loc,
                                     *linalg::getCombinerOpKind(combiner),
                                     value, arith::FastMathFlags::none);
}

SmallVector<Value> cpu::emitSums(
    Emitter &e, ArrayRef<int64_t> extents, int64_t width,
    ArrayRef<OpResult> sums, SmallVector<Value> totals,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Index>, ValueRange)> step) {
  for (const Tiles &vectors : getVectors(extents.back(), width)) {
    llvm::SaveAndRestore width(e.width, vectors.size);
    SmallVector<Value> neutral = llvm::map_to_vector(
        sums, [&](OpResult sum) { return createNeutral(e, sum); });
    SmallVector<Value> partial = e.nest(
        extents.drop_back(), neutral,
        [&](ArrayRef<Index> rows, ValueRange outer) {
          return e.loop(
              vectors.count, outer, [&](Index vector, ValueRange inner) {
                SmallVector<Index> at(rows);
                at.push_back(e.multiplyAdd(vector, vectors.size,
                                           Index::constant(vectors.base)));
                at.back().lanes = vectors.size > 1;
                return step(at, inner);
              });
        });
    for (auto [total, sum, part] : llvm::zip_equal(totals, sums, partial))
      total = combine(e, sum, combineLanes(e, sum, part), total);
  }
  return totals;
}
