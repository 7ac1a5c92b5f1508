// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loops that evaluate elements.

#include "bsr/Codegen/Common/Evaluator.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;

void Evaluator::scope(llvm::function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(b);
  std::map<Key, Value> outer = memory;
  body();
  memory = std::move(outer);
}

SmallVector<Value> Evaluator::loop(Value low, Value high, int64_t step,
                                   ValueRange inits, Body body) {
  auto loop = scf::ForOp::create(b, loc, low, high, constant(step), inits);
  scope([&] {
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> next =
        body(loop.getInductionVar(), loop.getRegionIterArgs());
    if (!inits.empty())
      scf::YieldOp::create(b, loc, next);
  });
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> Evaluator::loop(
    int64_t extent, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(Index, ValueRange)> body) {
  if (extent == 1) {
    SmallVector<Value> results;
    results = body(Index::constant(0), inits);
    return results;
  }
  Value first = constant(0), end = constant(extent);
  return loop(first, end, 1, inits, [&](Value iv, ValueRange carried) {
    return body(Index::of(iv), carried);
  });
}

SmallVector<Value> Evaluator::nest(
    ArrayRef<int64_t> extents, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Index>, ValueRange)> body) {
  SmallVector<Index> ivs;
  std::function<SmallVector<Value>(ValueRange)> recurse =
      [&](ValueRange carried) -> SmallVector<Value> {
    if (ivs.size() == extents.size())
      return body(ivs, carried);
    return loop(extents[ivs.size()], carried, [&](Index iv, ValueRange inner) {
      ivs.push_back(iv);
      SmallVector<Value> next = recurse(inner);
      ivs.pop_back();
      return next;
    });
  };
  return recurse(inits);
}

void Evaluator::forEach(ArrayRef<int64_t> extents,
                        llvm::function_ref<void(ArrayRef<Index>)> body) {
  nest(extents, {}, [&](ArrayRef<Index> at, ValueRange) {
    body(at);
    return SmallVector<Value>();
  });
}

void Evaluator::forall(ArrayRef<int64_t> extents,
                       llvm::function_ref<void(ArrayRef<Index>)> body) {
  SmallVector<Index> at(extents.size(), Index::constant(0));
  SmallVector<int64_t> bounds;
  for (int64_t extent : extents)
    if (extent != 1)
      bounds.push_back(extent);
  if (bounds.empty())
    return body(at);
  auto forall = scf::ForallOp::create(
      b, loc, getAsIndexOpFoldResult(b.getContext(), bounds), ValueRange(),
      std::nullopt);
  scope([&] {
    b.setInsertionPointToStart(forall.getBody());
    unsigned next = 0;
    for (auto [index, extent] : llvm::zip_equal(at, extents))
      if (extent != 1)
        index = Index::of(forall.getInductionVars()[next++]);
    body(at);
  });
}
