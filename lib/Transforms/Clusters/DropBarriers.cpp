// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Drops barriers; what is computed again stays apart from the first time.
// (Upstream's CSE is kept apart from that by the barriers, and would merge both
// without them.)

#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRDROPBARRIERS
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// What `op` is a barrier around, or null if it is none.
static Value getBarred(Operation &op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumDpsInputs() != 1 ||
      generic.getNumDpsInits() != 1 || !isElementWise(generic) ||
      !llvm::all_of(generic.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return {};
  auto barrier = generic.getBody()
                     ->getTerminator()
                     ->getOperand(0)
                     .getDefiningOp<BarrierOp>();
  if (!barrier || barrier.getInput() != generic.getBody()->getArgument(0))
    return {};
  return generic.getDpsInputOperand(0)->get();
}

namespace {
struct DropBarriers : bsr::impl::BSRDropBarriersBase<DropBarriers> {
  using Base::Base;

  void runOnOperation() override {
    getOperation().walk([&](Block *block) {
      if (!isa<linalg::LinalgOp>(block->getParentOp()))
        run(*block);
    });
    // Bodies in which a barrier met something else.
    getOperation().walk([](BarrierOp barrier) {
      barrier.replaceAllUsesWith(barrier.getInput());
      barrier.erase();
    });
  }

  /// Drops the barriers of `block`.
  void run(Block &block) {
    // What each value is but for barriers, and the operations seen by that.
    DenseMap<Value, Value> same;
    DenseMap<llvm::hash_code, SmallVector<Operation *>> seen;
    auto get = [&](Value value) {
      Value known = same.lookup(value);
      return known ? known : value;
    };
    auto areEqual = [&](Operation *a, Operation *b) {
      DenseMap<Value, Value> inner;
      return OperationEquivalence::isEquivalentTo(
          a, b,
          [&](Value x, Value y) {
            return success(inner.lookup(y) == x || get(x) == get(y));
          },
          [&](Value x, Value y) { inner[y] = x; },
          OperationEquivalence::IgnoreLocations);
    };
    SmallVector<Operation *> barriers;
    for (Operation &op : block) {
      if (Value source = getBarred(op)) {
        same[op.getResult(0)] = get(source);
        barriers.push_back(&op);
        continue;
      }
      if (!isMemoryEffectFree(&op) || op.getNumOperands() == 0)
        continue;
      llvm::hash_code hash = OperationEquivalence::computeHash(
          &op, [&](Value value) { return hash_value(get(value)); },
          OperationEquivalence::ignoreHashValue,
          OperationEquivalence::IgnoreLocations);
      SmallVector<Operation *> &equal = seen[hash];
      auto *first = llvm::find_if(
          equal, [&](Operation *other) { return areEqual(other, &op); });
      if (first == equal.end()) {
        equal.push_back(&op);
        continue;
      }
      for (auto [a, b] :
           llvm::zip_equal((*first)->getResults(), op.getResults()))
        same[b] = get(a);
      attrs::recomputed.set(&op, UnitAttr::get(&getContext()));
      ++numKeptApart;
    }
    // In order: where a barrier is around another one, its operand is by now
    // what that one was around.
    for (Operation *op : barriers) {
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
      op->erase();
      ++numDropped;
    }
  }
};
} // namespace
