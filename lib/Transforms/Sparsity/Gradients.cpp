// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Masks the gradients of block-sparse weights in a step.

#include "Gradients.h"
#include "bsr/Analysis/Stripped.h"
#include "bsr/Gradients/GradientFinder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
class Masker {
public:
  Masker(func::FuncOp func, ArrayRef<BoundWeight> weights,
         ArrayRef<GradientMark> marks,
         function_ref<void(const BoundWeight &, Operation *, StringRef)> report)
      : func(func), weights(weights), report(report),
        finder(func, weights, marks, report) {}

  /// Masks the gradients of a weight; true if there was something to mask.
  bool mask(unsigned number);

private:
  Value createMasked(OpBuilder &b, const BoundWeight &weight, Value value,
                     const Entries &entries,
                     SmallPtrSetImpl<Operation *> &created);
  bool maskUses(unsigned number, Value value, const Entries &entries);
  bool maskMarked(unsigned number);

  func::FuncOp func;
  ArrayRef<BoundWeight> weights;
  function_ref<void(const BoundWeight &, Operation *, StringRef)> report;
  GradientFinder finder;
};
} // namespace

/// Creates `value`, each of whose `entries` may be there several times, as in
/// the gradients of examples, with zeros off the pattern of `weight`; null if
/// its dimensions are not those of the matrix and of examples.
static Value createSelected(OpBuilder &b, ToDenseOp weight, Value value,
                            const Entries &entries,
                            SmallPtrSetImpl<Operation *> &created) {
  Location loc = value.getLoc();
  auto type = cast<RankedTensorType>(value.getType());
  auto patternType = cast<PatternType>(weight.getPattern().getType());
  int64_t rows = patternType.getRows(), cols = patternType.getCols();
  Entries all = Entries::getWhole(type.getShape());
  if (entries.offset || entries.starts != all.starts ||
      entries.sizes != all.sizes)
    return {};
  AffineExpr place[2] = {b.getAffineConstantExpr(0),
                         b.getAffineConstantExpr(0)};
  for (auto [dim, stride] : llvm::enumerate(entries.strides)) {
    if (!stride)
      continue;
    bool isRow = stride == cols && type.getDimSize(dim) == rows;
    if ((!isRow && (stride != 1 || type.getDimSize(dim) != cols)) ||
        isa<AffineDimExpr>(place[!isRow]))
      return {};
    place[!isRow] = b.getAffineDimExpr(dim);
  }
  auto note = [&](Value made) {
    created.insert(made.getDefiningOp());
    return made;
  };
  Type element = type.getElementType();
  Value ones = note(arith::ConstantOp::create(
      b, loc,
      DenseElementsAttr::get(patternType.getValuesType(element),
                             b.getOneAttr(element))));
  Value mask = note(ToDenseOp::create(b, loc, patternType.getDenseType(element),
                                      weight.getPattern(), ones, Value(),
                                      /*transpose=*/false));
  Value empty = note(tensor::EmptyOp::create(b, loc, type.getShape(), element));
  AffineMap same = b.getMultiDimIdentityMap(type.getRank());
  AffineMap maps[] = {
      same, AffineMap::get(type.getRank(), 0, place, b.getContext()), same};
  SmallVector<utils::IteratorType> kinds(type.getRank(),
                                         utils::IteratorType::parallel);
  auto select = linalg::GenericOp::create(
      b, loc, type, ValueRange{value, mask}, empty, maps, kinds,
      [](OpBuilder &b, Location loc, ValueRange in) {
        Value zero =
            arith::ConstantOp::create(b, loc, b.getZeroAttr(in[0].getType()));
        Value isStored = arith::CmpFOp::create(
            b, loc, arith::CmpFPredicate::UNE, in[1], zero);
        Value entry = arith::SelectOp::create(b, loc, isStored, in[0], zero);
        linalg::YieldOp::create(b, loc, entry);
      });
  return note(select.getResult(0));
}

/// Creates `value` with zeros where `entries`, some of it, are off the pattern
/// of `weight`; null if they are neither a rectangle of the matrix nor all of
/// it for each example.
Value Masker::createMasked(OpBuilder &b, const BoundWeight &weight, Value value,
                           const Entries &entries,
                           SmallPtrSetImpl<Operation *> &created) {
  Location loc = value.getLoc();
  Value pattern = ToDenseOp(weight.dense).getPattern();
  auto type = cast<RankedTensorType>(value.getType());
  auto patternType = cast<PatternType>(pattern.getType());
  int64_t rows = patternType.getRows(), cols = patternType.getCols();
  auto note = [&](Value made) {
    created.insert(made.getDefiningOp());
    return made;
  };
  auto mask = [&](Value matrix, bool transpose) {
    auto matrixType = cast<RankedTensorType>(matrix.getType());
    Value sample = note(SampleOp::create(
        b, loc, patternType.getValuesType(matrixType.getElementType()), pattern,
        matrix, transpose));
    return note(ToDenseOp::create(b, loc, matrixType, pattern, sample, Value(),
                                  transpose));
  };
  Entries whole = Entries::getWhole({rows, cols}), swapped = whole;
  std::swap(swapped.strides[0], swapped.strides[1]);
  std::swap(swapped.sizes[0], swapped.sizes[1]);
  if (type.getRank() == 2 &&
      type == patternType.getDenseType(type.getElementType()) &&
      entries == whole)
    return mask(value, /*transpose=*/false);
  if (type.getRank() == 2 &&
      type == patternType.getDenseType(type.getElementType(), true) &&
      entries == swapped)
    return mask(value, /*transpose=*/true);

  std::optional<Rectangle> rectangle = getRectangle(entries, cols);
  if (!rectangle)
    return createSelected(b, ToDenseOp(weight.dense), value, entries, created);
  auto getSlice = [&](Value source, ArrayRef<int64_t> offsets,
                      ArrayRef<int64_t> sizes) -> Value {
    auto sourceType = cast<RankedTensorType>(source.getType());
    if (sourceType.getShape() == sizes)
      return source;
    return note(tensor::ExtractSliceOp::create(
        b, loc, sourceType.clone(sizes), source, ValueRange(), ValueRange(),
        ValueRange(), offsets, sizes, SmallVector<int64_t>(sizes.size(), 1)));
  };
  auto putSlice = [&](Value slice, Value dest,
                      ArrayRef<int64_t> offsets) -> Value {
    auto sliceType = cast<RankedTensorType>(slice.getType());
    if (sliceType == dest.getType())
      return slice;
    return note(tensor::InsertSliceOp::create(
        b, loc, slice, dest, ValueRange(), ValueRange(), ValueRange(), offsets,
        sliceType.getShape(), SmallVector<int64_t>(offsets.size(), 1)));
  };
  auto transpose = [&](Value source, ArrayRef<int64_t> permutation) -> Value {
    if (isIdentityPermutation(permutation))
      return source;
    auto sourceType = cast<RankedTensorType>(source.getType());
    Value empty = note(tensor::EmptyOp::create(
        b, loc, applyPermutation(sourceType.getShape(), permutation),
        sourceType.getElementType()));
    return note(linalg::TransposeOp::create(b, loc, source, empty, permutation)
                    ->getResult(0));
  };
  auto reshape = [&](Value source, ArrayRef<int64_t> shape) -> Value {
    auto sourceType = cast<RankedTensorType>(source.getType());
    if (sourceType.getShape() == shape)
      return source;
    auto collapse = [&](int64_t rank) {
      return ReassociationIndices(llvm::to_vector<2>(llvm::seq<int64_t>(rank)));
    };
    if (sourceType.getRank() != 1)
      source = note(tensor::CollapseShapeOp::create(
          b, loc, source,
          ArrayRef<ReassociationIndices>{collapse(sourceType.getRank())}));
    if (shape.size() == 1)
      return source;
    return note(tensor::ExpandShapeOp::create(
        b, loc, sourceType.clone(shape), source,
        ArrayRef<ReassociationIndices>{collapse(shape.size())}));
  };

  Value part = getSlice(value, entries.starts, entries.sizes);
  part = transpose(part, rectangle->order);
  SmallVector<int64_t> ordered(
      cast<RankedTensorType>(part.getType()).getShape());
  part = reshape(part, {rectangle->rows, rectangle->cols});
  SmallVector<int64_t> offsets = {rectangle->row, rectangle->col};
  auto matrix = patternType.getDenseType(type.getElementType());
  if (part.getType() != matrix) {
    Value zeros =
        note(arith::ConstantOp::create(b, loc, b.getZeroAttr(matrix)));
    part = putSlice(part, zeros, offsets);
  }
  part = mask(part, /*transpose=*/false);
  part = getSlice(part, offsets, {rectangle->rows, rectangle->cols});
  part = reshape(part, ordered);
  part = transpose(part, invertPermutationVector(rectangle->order));
  return putSlice(part, value, entries.starts);
}

/// Masks the uses of `value`. What only reads slices that are `entries` and
/// nothing else sees is masked behind them.
bool Masker::maskUses(unsigned number, Value value, const Entries &entries) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() != ArrayRef(entries.sizes)) {
    SmallVector<tensor::ExtractSliceOp> slices;
    bool onlySlices = llvm::all_of(value.getUsers(), [&](Operation *user) {
      auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
      if (!slice || !isEntryWise(slice))
        return false;
      Entries box;
      llvm::append_range(box.starts, slice.getStaticOffsets());
      llvm::append_range(box.sizes, slice.getStaticSizes());
      if (!box.overlap(entries))
        return true;
      slices.push_back(slice);
      return finder.getSpaces()[number].entries.contains(slice) &&
             ArrayRef(box.starts) == ArrayRef(entries.starts) &&
             ArrayRef(box.sizes) == ArrayRef(entries.sizes);
    });
    if (onlySlices)
      return llvm::all_of(slices, [&](tensor::ExtractSliceOp slice) {
        return maskUses(
            number, slice,
            finder.getSpaces()[number].entries.find(slice)->second.front());
      });
  }
  OpBuilder b(func.getContext());
  b.setInsertionPointAfterValue(value);
  SmallPtrSet<Operation *, 8> created;
  Value masked = createMasked(b, weights[number], value, entries, created);
  if (masked)
    value.replaceAllUsesExcept(masked, created);
  return static_cast<bool>(masked);
}

/// Masks the gradients that are marked as a weight's where more than its update
/// sees them.
bool Masker::maskMarked(unsigned number) {
  bool masked = false;
  for (const HiddenGradient &gradient : finder.getMarked(number)) {
    Value value = gradient.value;
    if (!finder.isOpen(number, value) && !finder.isHidden(number, value))
      continue;
    Operation *op = value.getDefiningOp();
    if (!gradient.isSure)
      report(weights[number], op, "is one at a function of it");
    else if (maskUses(number, value, gradient.entries))
      masked = true;
    else
      report(weights[number], op,
             "computes entries that are no part of the matrix");
  }
  return masked;
}

bool Masker::mask(unsigned number) {
  if (!finder.getMarked(number).empty())
    return maskMarked(number);
  const Space &space = finder.getSpaces()[number];
  const BoundWeight &weight = weights[number];
  SmallVector<Value> ordered = finder.getGradients(number);
  bool masked = false;
  for (Value source : ordered) {
    bool isHidden = finder.isHidden(number, source);
    if (!finder.isOpen(number, source) && !isHidden)
      continue;
    Operation *op = source.getDefiningOp();
    if (!isHidden && finder.isShared(number, source)) {
      if (finder.getSpaces().isClaimed(number, source) &&
          llvm::any_of(source.getUses(), [&](OpOperand &use) {
            Operation *user = use.getOwner();
            return !isa<SampleOp, scf::YieldOp>(user) &&
                   llvm::none_of(user->getResults(), [&](Value result) {
                     return finder.getSpaces().contains(result);
                   });
          }))
        report(weight, op, "is the gradient of something else as well");
      continue;
    }
    Operation *producer = strip(source).value.getDefiningOp();
    if (!isa_and_nonnull<linalg::LinalgOp, ScatterAddOp>(producer))
      report(weight, op, "is no product and no sum");
    if (source.use_empty())
      continue;
    if (maskUses(number, source, space.entries.find(source)->second.front()))
      masked = true;
    else
      report(weight, op, "computes entries that are no part of the matrix");
  }

  // What is shared is masked where it becomes this weight's alone.
  DenseSet<Value> carriers = finder.getSpaces().getCarriers(number, ordered);
  SmallVector<std::tuple<OpOperand *, Entries>> edges;
  for (auto &known : space.entries) {
    Value value = known.first;
    Operation *op = value.getDefiningOp();
    if (op && finder.isActivation(number, value) &&
        !finder.isHidden(number, value) &&
        !finder.getSpaces().isClaimed(number, value) &&
        carriers.contains(value))
      for (OpOperand &use : value.getUses())
        if (!finder.getSpaces().isInside(number, use) &&
            !finder.goesBack(number, use))
          edges.push_back({&use, known.second.front()});
    if (!op || !finder.isOpen(number, value) || !isEntryWise(op) ||
        isa<scf::IfOp>(op) || finder.isShared(number, value))
      continue;
    visitOperands(
        op, cast<OpResult>(value).getResultNumber(), known.second.front(),
        [&](OpOperand &operand, const Entries &read) {
          Value source = operand.get();
          if (carriers.contains(source) && finder.isShared(number, source))
            edges.push_back({&operand, read});
        });
  }
  for (auto &[operand, entries] : edges) {
    OpBuilder b(operand->getOwner());
    SmallPtrSet<Operation *, 8> created;
    Value value = createMasked(b, weight, operand->get(), entries, created);
    if (value)
      operand->set(value);
    else
      report(weight, operand->getOwner(), "reads it as no part of the matrix");
    masked |= static_cast<bool>(value);
  }
  return masked;
}

/// Lets what reads the next value of a weight or of its moments, beside their
/// own updates, see it as it will be: zero where no block is.
static void maskNextValues(func::FuncOp func, ArrayRef<BoundWeight> weights) {
  auto isRead = [](SampleOp sample) { return !sample.getDense().hasOneUse(); };
  if (llvm::none_of(weights, [&](const BoundWeight &weight) {
        return llvm::any_of(weight.samples, isRead);
      }))
    return;
  Spaces spaces(func, weights);
  OpBuilder b(func.getContext());
  for (auto [number, weight] : llvm::enumerate(weights))
    for (SampleOp sample : weight.samples) {
      Value next = sample.getDense();
      if (next.getDefiningOp<ToDenseOp>())
        continue;
      SmallVector<OpOperand *> outside;
      for (OpOperand &use : next.getUses())
        if (!spaces.isInside(number, use))
          outside.push_back(&use);
      if (outside.empty())
        continue;
      Operation *op = next.getDefiningOp();
      sample->moveAfter(op ? op : ToDenseOp(weight.dense).getOperation());
      b.setInsertionPointAfter(sample);
      Value masked = ToDenseOp::create(b, next.getLoc(), next.getType(),
                                       sample.getPattern(), sample, Value(),
                                       /*transpose=*/false);
      for (OpOperand *use : outside)
        use->set(masked);
    }
}

unsigned bsr::maskGradients(
    func::FuncOp func, ArrayRef<BoundWeight> weights,
    function_ref<void(const BoundWeight &, Operation *, StringRef)> report) {
  maskNextValues(func, weights);
  SmallVector<GradientMark> marks = takeGradientMarks(func);
  unsigned masked = 0;
  {
    Masker masker(func, weights, marks, report);
    for (unsigned number : llvm::seq<unsigned>(weights.size()))
      masked += masker.mask(number);
  }
  dropGradientMarks(marks);
  return masked;
}
