// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each marked matrix of which the step takes slices into these.

#include "Arguments.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Import/ForwardSlices.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <map>
#include <set>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSPLITWEIGHTS
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Where the step cuts a weight, by dimension: the starts of slices and their
/// ends. `canCut` is false once there is a slice that no parts make up.
struct Cuts {
  std::set<int64_t> at[2];
  bool canCut = true;
};

/// A value that has the entries of a weight at their places, or at those of the
/// transpose.
struct Copy {
  Value value;
  bool isTransposed;

  bool operator<(const Copy &other) const {
    return std::pair(value.getAsOpaquePointer(), isTransposed) <
           std::pair(other.value.getAsOpaquePointer(), other.isTransposed);
  }
};
} // namespace

/// Adds to `cuts` where `slice`, of a weight or of its transpose, begins and
/// ends.
static void add(tensor::ExtractSliceOp slice, bool isTransposed, Cuts &cuts) {
  ArrayRef<int64_t> shape = slice.getSourceType().getShape();
  if (!isStatic(slice) || slice.getType().getRank() != 2) {
    cuts.canCut = false;
    return;
  }
  unsigned numCut = 0;
  for (auto [dim, offset, size, extent] : llvm::enumerate(
           slice.getStaticOffsets(), slice.getStaticSizes(), shape)) {
    if (size == extent)
      continue;
    ++numCut;
    cuts.at[dim != isTransposed].insert({offset, offset + size});
  }
  cuts.canCut &= numCut <= 1;
}

/// Adds to `cuts` the slices that the step takes of `weight`, or of what it
/// computes of it entry by entry.
static void collect(Value weight, bool isTransposed, Cuts &cuts) {
  SmallVector<Copy> worklist = {{weight, isTransposed}};
  std::set<Copy> seen;
  while (!worklist.empty()) {
    Copy copy = worklist.pop_back_val();
    if (!seen.insert(copy).second)
      continue;
    for (OpOperand &use : copy.value.getUses()) {
      if (auto slice = dyn_cast<tensor::ExtractSliceOp>(use.getOwner()))
        add(slice, copy.isTransposed, cuts);
      auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
      if (!op || !isElementWise(op))
        continue;
      for (OpResult result : op->getResults()) {
        Access access =
            getAccess(op, use, op.getIndexingMapMatchingResult(result));
        if (access == Access::Same || access == Access::Transposed)
          worklist.push_back(
              {result, copy.isTransposed != (access == Access::Transposed)});
      }
    }
  }
}

/// The weight that argument `arg` has the pattern of, and whether it lies as
/// its transpose; null if there is none that can be cut: a marked matrix.
static std::pair<StringAttr, bool> getWeight(func::FuncOp func, unsigned arg) {
  MarkAttr mark = getMark(func, arg);
  auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[arg]);
  if (!mark || !type || type.getRank() != 2 || mark.getNumDims(MarkDim::Stack))
    return {};
  auto mask = attrs::mask.ofArg(func, arg);
  return {mark.getWeight(), mask && mask.getTranspose()};
}

/// The partition of argument `arg` of `func` that `cuts` of its weight make, or
/// none. Says what becomes of a weight: its patterns are others.
static std::optional<Partition> getPartition(func::FuncOp func, unsigned arg,
                                             bool isTransposed,
                                             const Cuts &cuts) {
  MarkAttr mark = getMark(func, arg);
  if (!cuts.canCut || mark.isStatic() ||
      cuts.at[0].empty() == cuts.at[1].empty())
    return std::nullopt;
  bool isColumn = cuts.at[0].empty();
  StringRef noun = isColumn ? "column" : "row";
  auto warn = [&] {
    return emitWarning(func.getArgument(arg).getLoc(), "weight ")
           << mark.getWeight();
  };
  std::set<int64_t> starts = cuts.at[isColumn];
  int64_t block = isColumn ? mark.getBlockCols() : mark.getBlockRows();
  auto inside = llvm::find_if(starts, [&](int64_t at) { return at % block; });
  if (inside != starts.end()) {
    if (isMarkedWeight(func, arg))
      warn() << ": expected slices to begin and end at multiples of " << block
             << " " << noun << "s, its blocks', but got " << noun << " "
             << *inside << ": what is computed with them stays dense";
    return std::nullopt;
  }
  auto type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
  Partition partition;
  partition.dim = isColumn != isTransposed;
  starts.insert({0, type.getDimSize(partition.dim)});
  llvm::append_range(partition.starts, starts);
  // A tensor of one entry is a number, and cannot be marked.
  if (type.getDimSize(1 - partition.dim) == 1 &&
      llvm::any_of(llvm::seq(partition.size()), [&](int64_t i) {
        return partition.starts[i + 1] - partition.starts[i] == 1;
      })) {
    if (isMarkedWeight(func, arg))
      warn() << ": expected slices of more than one entry, but got one: what "
                "is computed with them stays dense";
    return std::nullopt;
  }
  if (!isMarkedWeight(func, arg))
    return partition;
  InFlightDiagnostic warning = warn();
  warning << " becomes matrices with patterns of their own, because the step "
             "takes slices of it: ";
  for (int64_t i : llvm::seq(partition.size()))
    warning << (i ? ", " : "") << getPartName(mark.getWeight(), i) << " from "
            << noun << " " << partition.starts[i];
  return partition;
}

/// Makes values of the slices of joined parts that are parts.
static void forwardSlices(func::FuncOp func) {
  RewritePatternSet patterns(func.getContext());
  populateForwardSlicesPatterns(patterns);
  tensor::populateMergeConsecutiveInsertExtractSlicePatterns(patterns);
  (void)applyPatternsGreedily(func, std::move(patterns));
}

namespace {
struct SplitWeights : bsr::impl::BSRSplitWeightsBase<SplitWeights> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(forEachBody(getOperation(),
                           [&](func::FuncOp func) { return run(func); })))
      signalPassFailure();
  }

  LogicalResult run(func::FuncOp func) {
    llvm::MapVector<StringAttr, Cuts> weights;
    for (unsigned arg : llvm::seq(func.getNumArguments()))
      if (auto [weight, isTransposed] = getWeight(func, arg); weight)
        collect(func.getArgument(arg), isTransposed, weights[weight]);

    SmallVector<std::optional<Partition>> partitions(func.getNumArguments());
    for (unsigned arg : llvm::seq(func.getNumArguments()))
      if (auto [weight, isTransposed] = getWeight(func, arg); weight)
        partitions[arg] =
            getPartition(func, arg, isTransposed, weights[weight]);
    if (llvm::none_of(partitions, [](const auto &partition) {
          return partition.has_value();
        }))
      return success();
    if (failed(requireOwnSignature(func, getOperation())) ||
        failed(verifyPartNames(func, partitions)))
      return failure();
    splitArguments(
        func, partitions,
        [&](Value, ArrayRef<Value> parts) { numParts += parts.size(); },
        [](Value) {});
    forwardSlices(func);
    return success();
  }
};
} // namespace
