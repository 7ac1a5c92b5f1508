// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds windows of images that lie in a line, and sums of such windows.

#include "bsr/Analysis/Windows.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;

/// The slice `[channels, columns]` of a matrix that `piece`, `[channels, 1,
/// columns]`, is.
static tensor::ExtractSliceOp getSlice(Value piece) {
  auto expand = piece.getDefiningOp<tensor::ExpandShapeOp>();
  auto slice = expand ? expand.getSrc().getDefiningOp<tensor::ExtractSliceOp>()
                      : tensor::ExtractSliceOp();
  if (!slice || !isStatic(slice) || slice.getSourceType().getRank() != 2 ||
      slice.getType().getRank() != 2 || !slice.getType().hasStaticShape() ||
      slice.getStaticSizes()[0] != slice.getSourceType().getDimSize(0))
    return nullptr;
  ArrayRef<int64_t> shape = slice.getType().getShape();
  return expand.getType().getShape() ==
                 ArrayRef<int64_t>({shape[0], 1, shape[1]})
             ? slice
             : nullptr;
}

std::optional<Offsets> Offsets::get(ArrayRef<int64_t> offsets) {
  Offsets found;
  found.first = offsets.front();
  SmallVector<int64_t> left(offsets);
  while (left.size() > 1) {
    int64_t step = left[1] - left[0], extent = 2, size = left.size();
    while (extent != size && left[extent] - left[extent - 1] == step)
      ++extent;
    if (size % extent)
      return std::nullopt;
    SmallVector<int64_t> next;
    for (auto [number, offset] : llvm::enumerate(left)) {
      int64_t digit = number % extent;
      if (digit == 0)
        next.push_back(offset);
      else if (offset != next.back() + digit * step)
        return std::nullopt;
    }
    found.digits.insert(found.digits.begin(), {extent, step});
    left = std::move(next);
  }
  return found;
}

std::optional<Windows> Windows::get(tensor::ConcatOp op) {
  if (op.getDim() != 1 || op.getResultType().getRank() != 3)
    return std::nullopt;
  Windows windows;
  SmallVector<int64_t> offsets;
  for (Value piece : op.getInputs()) {
    tensor::ExtractSliceOp slice = getSlice(piece);
    if (!slice || (windows.line && slice.getSource() != windows.line))
      return std::nullopt;
    windows.line = slice.getSource();
    offsets.push_back(slice.getStaticOffsets()[1]);
  }
  std::optional<Offsets> found = Offsets::get(offsets);
  if (!found)
    return std::nullopt;
  windows.offsets = std::move(*found);
  return windows;
}

/// True if `matrix` has windows with channels and places as one
/// dimension, and sparse products alone read it.
static bool isOfProducts(Operation *matrix) {
  auto collapse = dyn_cast<tensor::CollapseShapeOp>(matrix);
  return collapse && collapse.getType().getRank() == 2 &&
         collapse.getReassociationIndices().front().size() == 2 &&
         !collapse->use_empty() &&
         llvm::all_of(collapse->getUses(), [](OpOperand &use) {
           auto product = dyn_cast<ActivationsOpInterface>(use.getOwner());
           return product &&
                  isa<SpMMOp, SDDMMOp, BlockScoresOp>(use.getOwner()) &&
                  product.getFeatureDim() == 0 &&
                  llvm::is_contained(product.getReadActivations(), &use);
         });
}

bool bsr::areReadInLine(Operation *op) {
  auto concat = dyn_cast<tensor::ConcatOp>(op);
  return concat && !concat->use_empty() &&
         llvm::all_of(concat->getUsers(), isOfProducts) && Windows::get(concat);
}

/// Places of windows that are summed up, at most: the additions are one nest.
static constexpr int64_t maxPlaces = 64;

/// True if `op` adds up two matrices and does nothing else.
static bool isAddition(Operation *op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || generic.getNumDpsInputs() != 2 ||
      generic->getNumResults() != 1 || generic.getNumLoops() != 2 ||
      generic.getNumReductionLoops() ||
      !llvm::hasSingleElement(generic.getBody()->without_terminator()) ||
      !llvm::all_of(generic.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return false;
  auto sum = dyn_cast<arith::AddFOp>(generic.getBody()->front());
  ValueRange inputs = generic.getBody()->getArguments().take_front(2);
  return sum &&
         generic.getBody()->getTerminator()->getOperand(0) == sum.getResult() &&
         ((sum.getLhs() == inputs[0] && sum.getRhs() == inputs[1]) ||
          (sum.getLhs() == inputs[1] && sum.getRhs() == inputs[0]));
}

/// Collects what `value`, a sum, adds up.
static void collectTerms(Value value, SmallVectorImpl<Value> &terms) {
  Operation *op = value.getDefiningOp();
  if (!isAddition(op) || !value.hasOneUse())
    return terms.push_back(value);
  for (Value input : op->getOperands().take_front(2))
    collectTerms(input, terms);
}

namespace {
/// Columns of one place of windows, `[channels, places, columns]`.
struct Term {
  tensor::ExpandShapeOp windows;
  int64_t place, offset;
};
} // namespace

/// `value`, a matrix, as columns of a place from an offset on.
static std::optional<Term> getTerm(Value value) {
  Term term{nullptr, 0, 0};
  while (value.hasOneUse()) {
    Operation *op = value.getDefiningOp();
    if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op)) {
      RankedTensorType from = slice.getSourceType(), to = slice.getType();
      if (!isStatic(slice) || from.getRank() != to.getRank() ||
          from.getDimSize(0) != to.getDimSize(0))
        return std::nullopt;
      term.offset += slice.getStaticOffsets().back();
      if (from.getRank() == 3)
        term.place += slice.getStaticOffsets()[1];
      value = slice.getSource();
    } else if (auto collapse = dyn_cast_or_null<tensor::CollapseShapeOp>(op)) {
      ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
      if (shape.size() != 3 || shape[1] != 1 ||
          collapse.getType().getShape() !=
              ArrayRef<int64_t>({shape[0], shape[2]}))
        return std::nullopt;
      value = collapse.getSrc();
    } else {
      break;
    }
    if (auto windows = value.getDefiningOp<tensor::ExpandShapeOp>()) {
      term.windows = windows;
      return term;
    }
  }
  return std::nullopt;
}

/// True if a kernel computes sums of what `op` makes: all is numbers of one
/// type, none of which is rounded on the way, and nothing says another way.
static bool canSumUp(SpMMOp op) {
  Type type = op.getY().getType().getElementType();
  return op->hasOneUse() && !attrs::schedule.isOn(op) && !op.getBias() &&
         !op.getNumBatchDims() && op.getFeatureDim() == 0 &&
         op.getX().getType().getRank() == 2 && (type.isF32() || type.isF64()) &&
         getElementTypeOrSelf(op.getX()) == type &&
         getElementTypeOrSelf(op.getValues()) == type;
}

std::optional<SummedWindows> SummedWindows::get(Operation *sum) {
  if (!isAddition(sum))
    return std::nullopt;
  SmallVector<Value> values;
  for (Value input : sum->getOperands().take_front(2))
    collectTerms(input, values);
  std::optional<Term> first = getTerm(values.front());
  int64_t places = values.size();
  if (!first || places > maxPlaces)
    return std::nullopt;
  tensor::ExpandShapeOp windows = first->windows;
  auto product = windows.getSrc().getDefiningOp<SpMMOp>();
  ArrayRef<int64_t> shape = windows.getType().getShape();
  if (!product || !canSumUp(product) || shape.size() != 3 ||
      windows.getReassociationIndices().front().size() != 2 ||
      shape[1] != places ||
      llvm::range_size(windows->getUses()) != values.size())
    return std::nullopt;
  SmallVector<std::optional<int64_t>> offsets(places);
  for (Value value : values) {
    std::optional<Term> term = getTerm(value);
    if (!term || term->windows != windows || offsets[term->place])
      return std::nullopt;
    offsets[term->place] = term->offset;
  }
  std::optional<Offsets> found = Offsets::get(
      llvm::map_to_vector(offsets, [](auto offset) { return *offset; }));
  if (!found)
    return std::nullopt;
  return SummedWindows{product, shape[0], places, std::move(*found)};
}

bool bsr::areSummedUp(Operation *op) {
  auto product = dyn_cast<SpMMOp>(op);
  if (!product || !canSumUp(product))
    return false;
  // From a slice to the last of the additions that it goes into.
  Operation *user = *product->user_begin();
  while (isView(user) && !user->use_empty())
    user = *user->user_begin();
  while (isAddition(user)) {
    if (std::optional<SummedWindows> windows = SummedWindows::get(user))
      return windows->product == product;
    if (!user->hasOneUse())
      return false;
    user = *user->user_begin();
  }
  return false;
}
