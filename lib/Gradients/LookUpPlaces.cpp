// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The places that look-ups read a table at.

#include "bsr/Gradients/LookUpPlaces.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Analysis/Stripped.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::bsr;

static bool isInteger(Value value) {
  return getElementTypeOrSelf(value.getType()).isInteger();
}

/// True for what is the same in every step.
static bool isFixed(Value value) {
  return matchPattern(value, m_Constant()) ||
         isa_and_nonnull<tensor::EmptyOp, linalg::FillOp>(
             value.getDefiningOp());
}

/// The integers that `op` reads, and those that they are made of, entry by
/// entry.
static SmallVector<Value> findIntegers(linalg::LinalgOp op) {
  llvm::SetVector<Value> integers;
  auto reach = [&](Value value) {
    if (isa<RankedTensorType>(value.getType()) && isInteger(value) &&
        !isFixed(value))
      integers.insert(value);
  };
  llvm::for_each(op.getDpsInputs(), reach);
  for (unsigned i = 0; i != integers.size(); ++i) {
    Operation *producer = integers[i].getDefiningOp();
    if (producer && isEntryWise(producer) &&
        llvm::all_of(producer->getOperands(), isInteger))
      llvm::for_each(producer->getOperands(), reach);
  }
  return integers.takeVector();
}

/// The loop of `op`, of `extent` entries, that nothing but places in the body
/// goes along.
static std::optional<unsigned> getPlaceLoop(linalg::LinalgOp op,
                                            int64_t extent) {
  std::optional<unsigned> found;
  for (auto index : op.getBlock()->getOps<linalg::IndexOp>()) {
    unsigned loop = index.getDim();
    bool isRead = llvm::any_of(op.getDpsInputOperands(), [&](OpOperand *read) {
      return op.getMatchingIndexingMap(read).isFunctionOfDim(loop);
    });
    if (isRead || op.getStaticLoopRanges()[loop] != extent)
      continue;
    if (found && *found != loop)
      return std::nullopt;
    found = loop;
  }
  return found;
}

SmallVector<std::pair<Value, int64_t>> bsr::findPlaces(linalg::LinalgOp op,
                                                       int64_t extent) {
  llvm::MapVector<Value, int64_t> places;
  for (Value value : findIntegers(op))
    places.insert({value, -1});
  // The loop of an operation that a place is counted along.
  auto getLoop = [&](linalg::LinalgOp user) -> std::optional<unsigned> {
    for (OpOperand *read : user.getDpsInputOperands())
      if (int64_t dim = places.lookup(read->get());
          places.contains(read->get()) && dim >= 0) {
        auto loop = dyn_cast<AffineDimExpr>(
            user.getMatchingIndexingMap(read).getResult(dim));
        return loop ? std::optional(loop.getPosition()) : std::nullopt;
      }
    return getPlaceLoop(user, extent);
  };
  for (unsigned i = 0; i != places.size(); ++i)
    for (Operation *user : (places.begin() + i)->first.getUsers()) {
      if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(user) &&
          isInteger(user->getResult(0)))
        places.insert({user->getResult(0), -1});
      auto made = dyn_cast<linalg::LinalgOp>(user);
      if (!made || made.getNumReductionLoops() || made->getNumResults() != 1 ||
          made.hasDynamicShape() ||
          !llvm::all_of(made->getOperands(), [&](Value read) {
            return places.contains(read) || isNumber(read) || isFixed(read);
          }))
        continue;
      Value result = made->getResult(0);
      std::optional<unsigned> loop = getLoop(made);
      auto dim = loop ? made.getIndexingMapMatchingResult(made->getResult(0))
                            .getResultPosition(
                                getAffineDimExpr(*loop, made.getContext()))
                      : std::nullopt;
      if (dim || isInteger(result))
        places.insert({result, dim ? int64_t(*dim) : -1});
    }
  // Others are read as what they only reorder.
  return llvm::filter_to_vector(places.takeVector(), [](auto &place) {
    return strip(place.first).value == place.first;
  });
}
