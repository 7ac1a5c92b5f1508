// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that have the form of a weight's gradient.

#include "bsr/Gradients/GradientMatch.h"
#include "bsr/Analysis/Stripped.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The match of one operation with one factor.
class Matcher {
public:
  Matcher(const Forward &forward, const Factor &factor, const FactorRead &read)
      : forward(forward), factor(factor), operand(*read.operand),
        dims(read.dims), cuts(read.cuts),
        op(cast<linalg::LinalgOp>(operand.getOwner())),
        map(op.getMatchingIndexingMap(&operand)),
        type(cast<RankedTensorType>(op->getResult(0).getType())),
        assigned(type.getRank(), -1) {}

  std::optional<GradientMatch> match();

private:
  bool isInOthers(unsigned loop) const;
  bool sortCuts();
  bool assign(unsigned dim, unsigned of);
  bool isTaken(unsigned of) const {
    return llvm::is_contained(assigned, of) || llvm::is_contained(places, of);
  }
  bool sortDims();
  bool assignOpen();
  bool goesAlong(const Factor &known, ArrayRef<int64_t> otherDims,
                 AffineMap otherMap, unsigned dim, unsigned of) const;
  bool isOfBoth() const;
  bool isSquare() const;
  bool mayHave() const;
  Entries getEntries() const;

  const Forward &forward;
  const Factor &factor;
  OpOperand &operand;
  ArrayRef<int64_t> dims;
  ArrayRef<FactorRead::Cut> cuts;
  linalg::LinalgOp op;
  AffineMap map, resultMap;
  RankedTensorType type;
  /// For each dimension of the result the one of the weight, or -1.
  SmallVector<int64_t> assigned;
  /// Dimensions of a stack of which the weight is an entry, and the operand.
  SmallVector<unsigned> places;
  /// Dimensions of the result that are none of the factor's.
  SmallVector<unsigned> open;
  /// True if what a dimension is, is not known.
  bool isLost = false;
};
} // namespace

/// True if another operand goes along `loop`.
bool Matcher::isInOthers(unsigned loop) const {
  linalg::LinalgOp op = this->op;
  return llvm::any_of(op.getDpsInputOperands(), [&](OpOperand *other) {
    return other != &operand &&
           op.getMatchingIndexingMap(other).isFunctionOfDim(loop);
  });
}

/// Finds what the operand has of the factor: of a stack of weights, the entry
/// of this weight. Of other parts along the weight's own dimensions it is not
/// known which part of the weight they multiply. False if it is another's
/// entry.
bool Matcher::sortCuts() {
  for (const FactorRead::Cut &cut : cuts) {
    auto *of = llvm::find(factor.dims, cut.dim);
    isLost |= cut.dim < 0;
    if (cut.dim < 0 || of == factor.dims.end())
      continue;
    unsigned place = of - factor.dims.begin();
    int64_t start = factor.entries.starts[place];
    isLost |= factor.entries.sizes[place] != 1 || cut.size != 1;
    if (start < cut.offset || start >= cut.offset + cut.size)
      return isLost;
    places.push_back(place);
  }
  return true;
}

bool Matcher::assign(unsigned dim, unsigned of) {
  if (isTaken(of) || type.getDimSize(dim) != factor.shape[of])
    return false;
  assigned[dim] = of;
  return true;
}

/// Says of each dimension of the result whether it is one of the factor's;
/// false if it is one that no gradient has.
bool Matcher::sortDims() {
  for (auto [dim, expr] : llvm::enumerate(resultMap.getResults())) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop)
      return false;
    if (type.getDimSize(dim) == 1)
      continue;
    auto at = map.getResultPosition(expr);
    if (!at) {
      isLost |= map.isFunctionOfDim(loop.getPosition());
      open.push_back(dim);
      continue;
    }
    int64_t source = dims[*at];
    auto *of = source < 0 ? factor.dims.end() : llvm::find(factor.dims, source);
    if (of != factor.dims.end()) {
      if (!assign(dim, of - factor.dims.begin()))
        return false;
      continue;
    }
    if (source < 0 || factor.dims.empty() ||
        llvm::is_contained(factor.dims, Factor::Lost))
      isLost = true;
    else if (!isInOthers(loop.getPosition()))
      return false;
  }
  return true;
}

/// Finds what the open dimensions are, by their extents; false if they are none
/// of the weight's. Those of a joined or a reshaped weight are not known.
bool Matcher::assignOpen() {
  int64_t left = 1;
  for (unsigned dim : open)
    left *= type.getDimSize(dim);
  for (auto [of, extent] : llvm::enumerate(factor.shape))
    if (!factor.dims.empty() && factor.dims[of] < 0)
      left = left < extent ? 0 : left / extent;
  for (unsigned dim : open) {
    unsigned loop = resultMap.getDimPosition(dim);
    int64_t kind = map.isFunctionOfDim(loop) ? Factor::Lost
                   : isInOthers(loop)        ? Factor::Absent
                                             : Factor::ByPlace;
    SmallVector<unsigned> fitting;
    for (auto [of, known] : llvm::enumerate(factor.dims))
      if ((known == kind || known == Factor::Lost) && !isTaken(of) &&
          factor.shape[of] == type.getDimSize(dim))
        fitting.push_back(of);
    if (fitting.empty()) {
      isLost |= left > 0;
      return false;
    }
    // Of several with one extent nothing says which.
    isLost |= fitting.size() > 1 || factor.dims[fitting[0]] == Factor::Lost;
    assigned[dim] = fitting[0];
  }
  return true;
}

/// True if the dimension `dim` of the result, which is dimension `of` of what
/// `factor` multiplied, is one of another operand that goes along the same
/// dimension of the weight in `known`.
bool Matcher::goesAlong(const Factor &known, ArrayRef<int64_t> otherDims,
                        AffineMap otherMap, unsigned dim, unsigned of) const {
  auto at = otherMap.getResultPosition(resultMap.getResult(dim));
  if (!at || otherDims[*at] < 0)
    return false;
  auto *place = llvm::find(known.dims, otherDims[*at]);
  return place != known.dims.end() &&
         known.entries.strides[place - known.dims.begin()] ==
             factor.entries.strides[of];
}

bool Matcher::isOfBoth() const {
  linalg::LinalgOp op = this->op;
  return llvm::any_of(op.getDpsInputOperands(), [&](OpOperand *other) {
    if (other == &operand)
      return false;
    Stripped stripped = strip(other->get());
    AffineMap otherMap = op.getMatchingIndexingMap(other);
    return llvm::any_of(forward.factors, [&](const Factor &known) {
      return known.value == stripped.value && !known.dims.empty() &&
             llvm::all_of(open, [&](unsigned dim) {
               return goesAlong(known, stripped.dims, otherMap, dim,
                                assigned[dim]);
             });
    });
  });
}

/// True for another product of what the weight is multiplied with, such as a
/// square: both go along the same dimension of it.
bool Matcher::isSquare() const {
  linalg::LinalgOp op = this->op;
  for (OpOperand *other : op.getDpsInputOperands()) {
    if (other == &operand)
      continue;
    Stripped stripped = strip(other->get());
    AffineMap otherMap = op.getMatchingIndexingMap(other);
    for (const Factor &known : forward.factors)
      for (unsigned dim : open)
        for (int64_t own : assigned)
          if (known.value == stripped.value && !known.dims.empty() &&
              own >= 0 && factor.dims[own] >= 0 &&
              goesAlong(known, stripped.dims, otherMap, dim, own))
            return true;
  }
  return false;
}

/// True if the result may have an entry for each of the weight's: it has as
/// many, or a multiple, and dimensions that the factor has not.
bool Matcher::mayHave() const {
  int64_t count = 1;
  for (int64_t extent : factor.shape)
    count *= extent;
  // What was multiplied with a vector, or with a stack of them, is one, too.
  bool isVector = llvm::is_contained(factor.shape, 1);
  linalg::LinalgOp op = this->op;
  return count > 1 && type.getNumElements() % count == 0 &&
         (!open.empty() || (isVector && op.getNumReductionLoops()));
}

Entries Matcher::getEntries() const {
  Entries entries = Entries::getWhole(type.getShape());
  entries.strides.assign(type.getRank(), 0);
  entries.offset = factor.entries.offset;
  for (unsigned of : places)
    entries.offset += factor.entries.strides[of] * factor.entries.starts[of];
  for (auto [dim, of] : llvm::enumerate(assigned)) {
    if (of < 0)
      continue;
    entries.strides[dim] = factor.entries.strides[of];
    entries.starts[dim] = factor.entries.starts[of];
    entries.sizes[dim] = factor.entries.sizes[of];
  }
  return entries;
}

std::optional<GradientMatch> Matcher::match() {
  if (op->getNumResults() != 1 || op.getNumDpsInputs() < 2 ||
      op.hasDynamicShape() || llvm::any_of(op.getDpsInputs(), [&](Value input) {
        return forward.values.contains(strip(input).value);
      }))
    return std::nullopt;
  resultMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (!sortCuts() || !sortDims())
    return std::nullopt;
  GradientMatch found;
  // A dimension of one entry has no stride, nor has one of examples.
  found.isThin = llvm::count_if(factor.entries.strides,
                                [](int64_t stride) { return stride != 0; }) < 2;
  bool isUnknown = factor.dims.empty() || !assignOpen() || isLost;
  if (isUnknown && !factor.dims.empty() && !isLost)
    return std::nullopt;
  if (isUnknown)
    return mayHave() ? std::optional(found) : std::nullopt;
  for (auto [of, extent] : llvm::enumerate(factor.shape))
    if (extent != 1 && !isTaken(of))
      return std::nullopt;
  // Of the weight's own dimensions the factor has one: it is no scale of
  // gradients of examples.
  bool isOwn = llvm::any_of(llvm::enumerate(factor.dims), [&](auto known) {
    return known.value() != Factor::Absent &&
           factor.entries.strides[known.index()] != 0;
  });
  if (!isOwn && !found.isThin)
    return std::nullopt;
  // What an activation is multiplied with, element by element.
  bool isAcross = llvm::any_of(resultMap.getResults(), [&](AffineExpr expr) {
    return !map.getResultPosition(expr);
  });
  if ((!isAcross && !op.getNumReductionLoops()) || isSquare())
    return std::nullopt;
  found.isOfBoth = isOfBoth();
  found.entries = getEntries();
  return found;
}

/// Matches sums of rows by their places.
static std::optional<GradientMatch> matchSum(ScatterAddOp op,
                                             const Factor &factor) {
  auto *placed = llvm::find(factor.dims, Factor::ByPlace);
  auto *kept = llvm::find(factor.dims, Factor::Absent);
  if (placed == factor.dims.end() || kept == factor.dims.end() ||
      factor.dims.size() != 2)
    return std::nullopt;
  unsigned row = placed - factor.dims.begin(), col = kept - factor.dims.begin();
  if (op.getType().getShape() !=
      ArrayRef<int64_t>({factor.shape[row], factor.shape[col]}))
    return std::nullopt;
  GradientMatch found;
  found.entries = factor.entries;
  for (SmallVector<int64_t> *list :
       {&found.entries->strides, &found.entries->starts, &found.entries->sizes})
    *list = {(*list)[row], (*list)[col]};
  return found;
}

std::optional<GradientMatch> bsr::matchGradient(const Forward &forward,
                                                const Factor &factor,
                                                const FactorRead &read) {
  if (auto sum = dyn_cast<ScatterAddOp>(read.operand->getOwner()))
    return matchSum(sum, factor);
  return Matcher(forward, factor, read).match();
}
