// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the blocks of queries by keys in which masks have an entry.

#include "AttentionBlocks.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Format.h"
#include <cmath>
#include <set>

using namespace mlir;
using namespace mlir::bsr;

/// Entries of a mask above which it is not evaluated.
static constexpr int64_t maxMaskEntries = int64_t(1) << 24;
/// What is filled in must be this low for its power to be 0.
static constexpr double lowFill = -1e9;

/// True if what is filled in where masks of `match` are false is as good as
/// negative infinity.
static bool isFillLow(const AttentionMatch &match) {
  return match.fill && *match.fill <= lowFill;
}

/// The place in `tensor` of an entry of the scores.
static SmallVector<int64_t> getPlace(const AttentionMatch &match,
                                     const LabelledTensor &tensor,
                                     int64_t query, int64_t key) {
  return llvm::map_to_vector(tensor.labels, [&](int64_t label) -> int64_t {
    return label < 0 ? 0 : label == match.getQueryDim() ? query : key;
  });
}

LiveEntries::LiveEntries(const AttentionMatch &match)
    : match(&match),
      values([](Value, ArrayRef<int64_t>) { return std::optional<double>(); }) {
  values.forget();
  values.round();
  auto isKnown = [&](const LabelledTensor &tensor) {
    return llvm::all_of(tensor.labels,
                        [&](int64_t label) {
                          return label < 0 || label == match.getQueryDim() ||
                                 label == match.getKeyDim();
                        }) &&
           values.get(tensor.tensor, getPlace(match, tensor, 0, 0));
  };
  for (const AttentionMatch::Mask &mask : match.masks)
    if (isFillLow(match) && isKnown(mask.tensor))
      masks.push_back(mask);
  for (const LabelledTensor &bias : match.biases)
    if (isKnown(bias))
      biases.push_back(bias);
  infinite = masks.empty() || *match.fill == -INFINITY;
}

std::optional<LiveEntries> LiveEntries::get(const AttentionMatch &match) {
  if (match.extents[match.getQueryDim()] * match.extents[match.getKeyDim()] >
      maxMaskEntries)
    return std::nullopt;
  LiveEntries entries(match);
  if (entries.masks.empty() && entries.biases.empty())
    return std::nullopt;
  return entries;
}

bool LiveEntries::isLive(int64_t query, int64_t key) {
  for (const AttentionMatch::Mask &mask : masks) {
    std::optional<double> bit = values.get(
        mask.tensor.tensor, getPlace(*match, mask.tensor, query, key));
    if (bit && (*bit != 0) == mask.isNegated)
      return false;
  }
  for (const LabelledTensor &bias : biases) {
    std::optional<double> number =
        values.get(bias.tensor, getPlace(*match, bias, query, key));
    if (number && *number <= lowFill) {
      infinite &= *number == -INFINITY;
      return false;
    }
  }
  return true;
}

std::optional<AttentionBlocks> bsr::getLiveBlocks(const AttentionMatch &match) {
  int64_t queries = match.extents[match.getQueryDim()];
  int64_t keys = match.extents[match.getKeyDim()];
  int64_t block = 0;
  for (int64_t size : {64, 32, 16})
    if (!block && queries % size == 0 && keys % size == 0)
      block = size;
  std::optional<LiveEntries> entries;
  if (block)
    entries = LiveEntries::get(match);
  if (!entries)
    return std::nullopt;
  AttentionBlocks blocks{block, block};
  for (int64_t row = 0; row != queries / block; ++row) {
    SmallVector<bool> seen(block, false);
    for (int64_t col = 0; col != keys / block; ++col) {
      auto isLive = [&](int64_t i, int64_t j) {
        return entries->isLive(row * block + i, col * block + j);
      };
      bool isAny = false;
      for (int64_t i = 0; i != block; ++i)
        for (int64_t j = 0; j != block && !seen[i]; ++j)
          seen[i] = isLive(i, j);
      for (int64_t i = block; i-- != 0 && !isAny;)
        for (int64_t j = 0; j != block && !isAny; ++j)
          isAny = isLive(i, j);
      if (isAny)
        blocks.colIdx.push_back(col);
    }
    // Of what is filled in, a row is the mean of all values.
    if (!entries->isInfinite() && llvm::is_contained(seen, false))
      return std::nullopt;
    blocks.rowPtr.push_back(blocks.colIdx.size());
  }
  int64_t all = (queries / block) * (keys / block);
  if (static_cast<int64_t>(blocks.colIdx.size()) == all ||
      blocks.colIdx.empty())
    return std::nullopt;
  return blocks;
}

/// A matrix of stored blocks that `value` is computed from without products;
/// null if there is none.
static ToDenseOp reachDense(Value value) {
  SetVector<Value> reached;
  reached.insert(value);
  for (size_t next = 0; next != reached.size(); ++next) {
    Operation *op = reached[next].getDefiningOp();
    if (auto dense = dyn_cast_or_null<ToDenseOp>(op))
      return dense;
    if (op &&
        (isa<linalg::GenericOp>(op)
             ? !linalg::isaContractionOpInterface(cast<linalg::LinalgOp>(op))
             : isa<tensor::TensorDialect>(op->getDialect())))
      reached.insert(op->operand_begin(), op->operand_end());
  }
  return {};
}

namespace {
/// Looks for the matrix of stored blocks that a mask is a function of.
class DenseFinder {
public:
  explicit DenseFinder(AttentionObstacle &obstacle) : obstacle(obstacle) {}

  /// The matrix of stored blocks that `tensor` is a function of, entry by
  /// entry, and what its dimensions are; nothing, and in `obstacle` what is in
  /// the way, if it is none.
  std::optional<std::pair<ToDenseOp, Labels>>
  find(const LabelledTensor &tensor);

private:
  AttentionObstacle &obstacle;
  /// What was looked at, and found to be none.
  std::set<std::pair<void *, Labels>> visited;
};
} // namespace

std::optional<std::pair<ToDenseOp, Labels>>
DenseFinder::find(const LabelledTensor &tensor) {
  if (!visited.insert({tensor.tensor.getAsOpaquePointer(), tensor.labels})
           .second ||
      !reachDense(tensor.tensor))
    return std::nullopt;
  Operation *op = tensor.tensor.getDefiningOp();
  if (auto dense = dyn_cast<ToDenseOp>(op))
    return std::pair(dense, tensor.labels);
  auto stop = [&](StringRef reason) {
    if (!obstacle.op)
      obstacle = {
          op, ("'" + op->getName().getStringRef() + "' that " + reason).str()};
    return std::nullopt;
  };
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
    bool isWhole = true;
    Labels labels =
        getReshaped(op, tensor.labels, /*isBackward=*/true, isWhole);
    if (!isWhole)
      return stop(isa<tensor::ExpandShapeOp>(op) ? "splits a dimension of it"
                                                 : "merges dimensions of it");
    return find({op->getOperand(0), labels});
  }
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumReductionLoops() != 0)
    return stop("does not take it entry by entry");
  auto result = cast<OpResult>(tensor.tensor);
  Labels loops(generic.getNumLoops(), -1);
  for (auto [expr, label] : llvm::zip_equal(
           generic.getIndexingMapMatchingResult(result).getResults(),
           tensor.labels))
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops[dim.getPosition()] = label;
  for (OpOperand *operand : generic.getDpsInputOperands()) {
    LabelledTensor read{operand->get(), {}};
    for (AffineExpr expr :
         generic.getMatchingIndexingMap(operand).getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      read.labels.push_back(dim ? loops[dim.getPosition()] : -1);
    }
    if (auto found = find(read))
      return found;
  }
  return std::nullopt;
}

/// What `tensor` is where `dense` stores no block, if `other` is what else it
/// depends on; nothing if that is not known.
static std::optional<double>
getBackground(ToDenseOp dense, const LabelledTensor &tensor,
              std::optional<double> other = std::nullopt) {
  EntryValues values([&](Value, ArrayRef<int64_t>) { return other; });
  std::optional<double> background = 0;
  if (dense.getBackground())
    background = values.get(dense.getBackground(), {});
  if (!background)
    return std::nullopt;
  values.set(dense.getDense(), *background);
  return values.get(tensor.tensor,
                    SmallVector<int64_t>(tensor.labels.size(), 0));
}

Value bsr::getMaskPattern(const AttentionMatch &match,
                          AttentionObstacle &obstacle) {
  Labels expected{match.getQueryDim(), match.getKeyDim()};
  auto get = [&](const LabelledTensor &tensor, double fill,
                 llvm::function_ref<bool(double)> isSeen) -> Value {
    AttentionObstacle before;
    auto found = DenseFinder(before).find(tensor);
    if (!found && !before.op)
      return {};
    std::string finite;
    llvm::raw_string_ostream(finite) << llvm::format("%g", fill);
    // What is in the way, one after the other.
    if (!found)
      obstacle = before;
    else if (fill != -INFINITY)
      // A row that sees nothing of a number that is filled in is a mean of all
      // values, stored or not.
      obstacle = {match.scores, finite + " filled in where it is zero"};
    else if (auto [dense, labels] = *found;
             dense.getTranspose() || labels != expected)
      obstacle = {match.scores, "other rows and columns of it"};
    else if (std::optional<double> background = getBackground(dense, tensor);
             !background)
      obstacle = {match.scores, "a mask that depends on more"};
    else if (isSeen(*background))
      obstacle = {match.scores, "scores that are seen where it is zero"};
    else
      return dense.getPattern();
    return {};
  };
  for (const AttentionMatch::Mask &mask : match.masks)
    if (Value pattern =
            get(mask.tensor, match.fill.value_or(0),
                [&](double bit) { return (bit != 0) != mask.isNegated; }))
      return pattern;
  for (const LabelledTensor &bias : match.biases) {
    // A bias that is a weight masks nothing.
    ToDenseOp dense = reachDense(bias.tensor);
    std::optional<double> fill;
    if (dense)
      fill = getBackground(dense, bias, /*other=*/0);
    if (!fill || *fill > lowFill)
      continue;
    if (Value pattern =
            get(bias, *fill, [](double number) { return number != -INFINITY; }))
      return pattern;
  }
  return {};
}
