// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that no entry-wise way leads from to a next value.

#include "bsr/Gradients/HiddenGradients.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Analysis/Stripped.h"
#include "bsr/Gradients/GradientMatch.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::bsr;

/// Goes on from `read`, of `slice`, to what that is a slice of, stripped.
static Value readWhole(tensor::ExtractSliceOp slice, FactorRead &read) {
  Stripped whole = strip(slice.getSource());
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  SmallVector<int64_t> sources;
  for (int64_t dim : llvm::seq<int64_t>(dropped.size()))
    if (!dropped[dim])
      sources.push_back(dim);
  ArrayRef<int64_t> shape = slice.getSourceType().getShape();
  llvm::SmallBitVector isCut(shape.size());
  for (FactorRead::Cut &cut : read.cuts)
    if (cut.dim >= 0) {
      int64_t dim = sources[cut.dim];
      isCut.set(dim);
      cut.dim = slice.isDynamicOffset(dim) ? -1 : whole.dims[dim];
      cut.offset += slice.getStaticOffsets()[dim];
    }
  for (auto [dim, size] : llvm::enumerate(slice.getStaticSizes()))
    if (size != shape[dim] && !isCut[dim])
      read.cuts.push_back({slice.isDynamicOffset(dim) ? -1 : whole.dims[dim],
                           slice.getStaticOffsets()[dim], size});
  if (!slice.hasUnitStride())
    read.cuts.push_back({-1, 0, 0});
  for (int64_t &dim : read.dims)
    dim = dim < 0 ? dim : whole.dims[sources[dim]];
  return whole.value;
}

HiddenGradients::HiddenGradients(func::FuncOp func, const Spaces &spaces)
    : func(func), spaces(spaces) {
  auto add = [&](OpOperand *operand) {
    if (!isa<RankedTensorType>(operand->get().getType()))
      return;
    Stripped stripped = strip(operand->get());
    FactorRead read{operand, stripped.dims, {}};
    Value value = stripped.value;
    readers[value].push_back(read);
    while (auto slice = value.getDefiningOp<tensor::ExtractSliceOp>()) {
      value = readWhole(slice, read);
      readers[value].push_back(read);
    }
  };
  unsigned number = 0;
  func.walk([&](Operation *op) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (linalgOp && op->getNumResults() == 1 &&
        isa<RankedTensorType>(op->getResult(0).getType()))
      bySize[countElements(op->getResult(0))].push_back({number++, linalgOp});
    if (linalgOp && linalgOp.getNumDpsInputs() > 1)
      llvm::for_each(linalgOp.getDpsInputOperands(), add);
    else if (linalgOp && linalgOp.getNumReductionLoops() &&
             op->getNumResults() == 1)
      sums.push_back(linalgOp);
    if (auto sum = dyn_cast<ScatterAddOp>(op))
      add(&sum.getIndicesMutable());
  });
}

bool HiddenGradients::isProduct(Value value, const Forward &forward) const {
  return llvm::any_of(forward.factors, [&](const Factor &factor) {
    return llvm::any_of(readers.lookup(factor.value), [&](const auto &read) {
      if (read.operand->getOwner() != value.getDefiningOp())
        return false;
      auto found = matchGradient(forward, factor, read);
      return found && found->isOfBoth;
    });
  });
}

bool HiddenGradients::isOnlySummed(Value value, const Space &space) {
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen = {value};
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      bool isInside = llvm::all_of(user->getResults(), [&](Value result) {
        return space.entries.contains(result);
      });
      if (isInside && user->getNumResults())
        continue;
      if (user->getNumResults() != 1 ||
          strip(user->getResult(0)).value != strip(value).value)
        return false;
      if (seen.insert(user->getResult(0)).second)
        worklist.push_back(user->getResult(0));
    }
  return true;
}

bool HiddenGradients::isUsedAsGradient(Value value, int64_t count,
                                       const Forward &forward) const {
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    for (Operation *user : next.getUsers()) {
      auto op = dyn_cast<linalg::LinalgOp>(user);
      bool isSum = op && op.getNumReductionLoops() && op.getNumDpsInputs() == 1;
      if (isSum &&
          countElements(op->getResult(0)) * count <= countElements(next))
        return true;
      // What an update is made of is found from there.
      isSum = isSum && countElements(op->getResult(0)) % count == 0 &&
              !spaces.contains(op->getResult(0));
      if (!isSum && (!isEntryWise(user) || isa<scf::IfOp>(user)))
        continue;
      if (!isSum && llvm::any_of(user->getOperands(), [&](Value read) {
            return read != next && forward.values.contains(read) &&
                   !seen.contains(read);
          }))
        return true;
      for (Value result : user->getResults())
        if (seen.insert(result).second)
          worklist.push_back(result);
    }
  }
  return false;
}

/// True if an operation other than `op` looks the same places up in another
/// tensor of this shape.
static bool hasOtherLookUp(const Factor &factor, const Forward &forward,
                           Operation *op) {
  return llvm::any_of(factor.value.getUsers(), [&](Operation *user) {
    if (user == op || !isa<linalg::GenericOp>(user))
      return false;
    auto found = user->walk([&](tensor::ExtractOp extract) {
      TypedValue<RankedTensorType> table = extract.getTensor();
      return !forward.values.contains(table) &&
                     table.getType().getShape() == ArrayRef(factor.shape)
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    return found.wasInterrupted();
  });
}

bool HiddenGradients::mayHaveEntriesOf(Value product, Value weight) {
  int64_t entries = countElements(product), count = countElements(weight);
  if (entries == count || entries % count)
    return entries == count;
  SmallVector<int64_t> left(
      cast<RankedTensorType>(product.getType()).getShape());
  return llvm::all_of(cast<RankedTensorType>(weight.getType()).getShape(),
                      [&](int64_t extent) {
                        auto *found = llvm::find(left, extent);
                        if (found == left.end())
                          return extent == 1;
                        left.erase(found);
                        return true;
                      });
}

HiddenGradients::Rival
HiddenGradients::findRival(OpOperand &operand, const Factor &factor,
                           const Forward &forward) const {
  if (llvm::is_contained(factor.dims, Factor::ByPlace))
    return hasOtherLookUp(factor, forward, operand.getOwner()) ? Rival::Possible
                                                               : Rival::None;
  auto product = cast<linalg::LinalgOp>(operand.getOwner());
  auto reads = [](Operation *reader, Value value) {
    return llvm::any_of(reader->getOperands(), [&](Value input) {
      return strip(input).value == value;
    });
  };
  Rival rival = Rival::None;
  for (const FactorRead &read : readers.lookup(factor.value)) {
    OpOperand *use = read.operand;
    auto reader = dyn_cast<linalg::LinalgOp>(use->getOwner());
    if (!reader || reader == product || reader.getNumDpsInputs() != 2 ||
        !getDependents(reader.getOperation()).contains(product))
      continue;
    unsigned otherPlace = reader.getDpsInputOperand(0) == use ? 1 : 0;
    Value weight = strip(reader.getDpsInputs()[otherPlace]).value;
    AffineMap map = reader.getMatchingIndexingMap(use),
              resultMap =
                  reader.getMatchingIndexingMap(reader.getDpsInitOperand(0));
    bool isSummed = false;
    for (auto [at, dim] : llvm::enumerate(read.dims))
      isSummed |= dim >= 0 && llvm::is_contained(factor.dims, dim) &&
                  !resultMap.getResultPosition(map.getResult(at));
    if (forward.values.contains(weight) || !isSummed ||
        !mayHaveEntriesOf(product->getResult(0), weight))
      continue;
    rival = Rival::Possible;
    for (Value input : product.getDpsInputs()) {
      Value across = strip(input).value;
      if (across != factor.value &&
          llvm::any_of(readers.lookup(across), [&](const auto &other) {
            return reads(other.operand->getOwner(), weight);
          }))
        return Rival::Sure;
    }
  }
  return rival;
}

HiddenGradients::Updates HiddenGradients::findUpdates(Value value,
                                                      const Space &space,
                                                      bool takesFactors) const {
  int64_t count = space.shape[0] * space.shape[1];
  int64_t examples = countElements(value) / count;
  Updates updates;
  SmallVector<Value> worklist = {value};
  DenseSet<Value> seen = {value};
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    for (Operation *user : next.getUsers()) {
      auto op = dyn_cast<linalg::LinalgOp>(user);
      // Sums over examples may have a factor of each; other products are of
      // another forward pass.
      bool isFollowed =
          op ? !op.getNumReductionLoops() ||
                   llvm::all_of(op.getDpsInputs(),
                                [&](Value input) {
                                  return input == next ||
                                         (takesFactors &&
                                          countElements(input) <= examples);
                                })
             : isa<tensor::TensorDialect>(user->getDialect());
      for (Value result : user->getResults()) {
        if (space.entries.contains(result))
          updates.hasOwn = true;
        else if (spaces.contains(result)) {
          updates.hasOthers = true;
          updates.hasNear |= isFollowed;
        } else if (isFollowed && countElements(result) >= count &&
                   seen.insert(result).second)
          worklist.push_back(result);
      }
    }
  }
  return updates;
}

std::optional<HiddenGradient> HiddenGradients::judge(const FactorRead &read,
                                                     const Factor &factor,
                                                     const Space &space,
                                                     const Forward &forward,
                                                     bool isPlain) const {
  OpOperand &operand = *read.operand;
  Operation *op = operand.getOwner();
  if (factor.isOfData)
    return std::nullopt;
  auto found = matchGradient(forward, factor, read);
  if (!found)
    return std::nullopt;
  Value result = op->getResult(0);
  Updates updates = findUpdates(result, space, /*takesFactors=*/true);
  bool isAfter = forward.after.contains(op);
  auto areOfOthers = [&](const Updates &updates) {
    return updates.hasOthers && !(updates.hasOwn && isAfter);
  };
  auto areTheirs = [&](const Updates &updates) {
    return areOfOthers(updates) && (!isAfter || updates.hasNear);
  };
  bool isOfOthers = areOfOthers(updates);
  // What looks like a factor of each example may be an activation of each.
  if ((!updates.hasOwn && !isAfter) || isOnlySummed(result, space) ||
      (areTheirs(updates) &&
       areTheirs(findUpdates(result, space, /*takesFactors=*/false))))
    return std::nullopt;
  HiddenGradient gradient{result, found->entries.value_or(Entries()),
                          /*isSure=*/true};
  if (!isOfOthers &&
      (found->isOfBoth || (found->entries && !found->isThin && !isPlain)))
    return gradient;
  Rival rival = findRival(operand, factor, forward);
  if (rival == Rival::Sure)
    return std::nullopt;
  int64_t count = 1;
  for (int64_t extent : factor.shape)
    count *= extent;
  count = std::min(count, space.shape[0] * space.shape[1]);
  bool isUsed = isUsedAsGradient(result, count, forward);
  // A product that updates other parameters may be a gradient of these alone.
  bool isSure = !isOfOthers && found->entries && !found->isThin;
  if (!isUsed && !isSure)
    return std::nullopt;
  gradient.isSure = isUsed && isSure && rival == Rival::None;
  return gradient;
}

bool HiddenGradients::isPlaced(Value value, const Entries &entries,
                               const Space &space) {
  Entries whole = Entries::getWhole(space.shape);
  SmallVector<std::pair<Value, Entries>> worklist = {{value, entries}};
  DenseSet<Value> seen = {value};
  while (!worklist.empty()) {
    auto [next, known] = worklist.pop_back_val();
    if (known.sizes.size() != space.shape.size())
      continue;
    auto shape = cast<RankedTensorType>(next.getType()).getShape();
    if (shape == ArrayRef(space.shape)) {
      if (!known.offset && known.strides == whole.strides)
        return true;
      continue;
    }
    for (OpOperand &use : next.getUses())
      for (OpResult result : use.getOwner()->getResults())
        if (auto moved = followEntries(use, result.getResultNumber(), known);
            moved && seen.insert(result).second)
          worklist.push_back({result, *moved});
  }
  return false;
}

HiddenGradient HiddenGradients::choose(ArrayRef<HiddenGradient> candidates,
                                       const Space &space) {
  SmallVector<HiddenGradient> different;
  for (const HiddenGradient &candidate : candidates)
    if (candidate.isSure &&
        llvm::none_of(different, [&](const HiddenGradient &known) {
          return known.entries == candidate.entries;
        }))
      different.push_back(candidate);
  if (different.empty())
    return candidates.front();
  if (different.size() > 1)
    llvm::erase_if(different, [&](const HiddenGradient &candidate) {
      return !isPlaced(candidate.value, candidate.entries, space);
    });
  HiddenGradient chosen = different.empty() ? candidates.front() : different[0];
  chosen.isSure = different.size() == 1;
  return chosen;
}

SmallVector<HiddenGradient> HiddenGradients::find(const Space &space,
                                                  const Forward &forward,
                                                  bool isPlain) const {
  llvm::MapVector<Value, SmallVector<HiddenGradient, 1>> candidates;
  for (const Factor &factor : forward.factors)
    for (const FactorRead &read : readers.lookup(factor.value)) {
      Value result = read.operand->getOwner()->getResult(0);
      if (spaces.contains(result))
        continue;
      if (auto found = judge(read, factor, space, forward, isPlain))
        candidates[result].push_back(*found);
    }
  SmallVector<HiddenGradient> gradients;
  for (ArrayRef<HiddenGradient> found : llvm::make_second_range(candidates))
    gradients.push_back(choose(found, space));
  return gradients;
}
