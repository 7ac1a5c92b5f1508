// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Entries of a matrix, followed through what keeps them apart.

#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Analysis/Slices.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::bsr;

Entries Entries::getWhole(ArrayRef<int64_t> shape) {
  Entries entries;
  entries.sizes.assign(shape.begin(), shape.end());
  entries.starts.assign(shape.size(), 0);
  entries.strides.assign(shape.size(), 0);
  int64_t stride = 1;
  for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
    // A dimension of one entry has no stride.
    entries.strides[dim] = shape[dim] == 1 ? 0 : stride;
    stride *= shape[dim];
  }
  return entries;
}

bool Entries::overlap(const Entries &other) const {
  for (auto [start, size, otherStart, otherSize] :
       llvm::zip_equal(starts, sizes, other.starts, other.sizes))
    if (start + size <= otherStart || otherStart + otherSize <= start)
      return false;
  return true;
}

static RankedTensorType getStaticTensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() ? type : RankedTensorType();
}

/// True for a structured operation that reads, at each point of its loops,
/// nothing but what its maps say.
static bool readsByMaps(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.hasDynamicShape() ||
      op.getNumLoops() != op.getNumParallelLoops())
    return false;
  for (OpOperand &init : op.getDpsInitsMutable())
    if (!op.getMatchingIndexingMap(&init).isPermutation())
      return false;
  return !op.getBlock()
              ->walk([](Operation *inner) {
                bool readsTensor =
                    llvm::any_of(inner->getOperandTypes(), [](Type type) {
                      return isa<ShapedType>(type) && !isa<VectorType>(type);
                    });
                return readsTensor ? WalkResult::interrupt()
                                   : WalkResult::advance();
              })
              .wasInterrupted();
}

bool bsr::isEntryWise(Operation *op) {
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return readsByMaps(linalgOp);
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return isStatic(slice) && getStaticTensor(slice.getSource());
  if (auto slice = dyn_cast<tensor::InsertSliceOp>(op))
    return isStatic(slice) && getStaticTensor(slice.getDest());
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(op))
    return getStaticTensor(op->getOperand(0)) &&
           getStaticTensor(op->getResult(0));
  if (isa<tensor::ConcatOp, arith::SelectOp, scf::IfOp>(op))
    return llvm::all_of(op->getResults(), getStaticTensor);
  // Operations of arith and math take tensors as well.
  return op->getNumResults() == 1 && op->hasTrait<OpTrait::Elementwise>() &&
         getStaticTensor(op->getResult(0));
}

/// The entries of operand `map` of an operation whose loops are `entries`.
static std::optional<Entries> compose(AffineMap map, const Entries &entries,
                                      RankedTensorType type) {
  Entries operand;
  operand.offset = entries.offset;
  BitVector used(map.getNumDims());
  for (auto [expr, extent] :
       llvm::zip_equal(map.getResults(), type.getShape())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim && extent != 1)
      return std::nullopt;
    if (dim && used[dim.getPosition()])
      return std::nullopt;
    if (dim)
      used.set(dim.getPosition());
    operand.strides.push_back(dim ? entries.strides[dim.getPosition()] : 0);
    operand.starts.push_back(dim ? entries.starts[dim.getPosition()] : 0);
    operand.sizes.push_back(dim ? entries.sizes[dim.getPosition()] : 1);
  }
  for (unsigned dim : llvm::seq(map.getNumDims())) {
    if (used[dim])
      continue;
    if (entries.sizes[dim] != 1)
      return std::nullopt;
    operand.offset += entries.strides[dim] * entries.starts[dim];
  }
  return operand;
}

/// The entries of a tensor of shape `source` with groups of dimensions that are
/// one dimension each of the tensor of `entries`.
static std::optional<Entries> expand(ArrayRef<ReassociationIndices> groups,
                                     ArrayRef<int64_t> source,
                                     const Entries &entries) {
  Entries expanded;
  expanded.offset = entries.offset;
  expanded.strides.resize(source.size());
  expanded.starts.resize(source.size());
  expanded.sizes.resize(source.size());
  for (auto [dim, group] : llvm::enumerate(groups)) {
    int64_t stride = entries.strides[dim], start = entries.starts[dim],
            size = entries.sizes[dim], inner = 1;
    for (int64_t index : llvm::reverse(group)) {
      int64_t extent = source[index];
      expanded.strides[index] = extent == 1 ? 0 : stride * inner;
      // Part of a dimension is part of its outermost one, in whole rows.
      bool isOuter =
          llvm::all_of(ArrayRef(group).take_while(
                           [&](int64_t other) { return other != index; }),
                       [&](int64_t other) { return source[other] == 1; });
      if (!isOuter) {
        expanded.sizes[index] = extent;
      } else if (extent == 1) {
        expanded.sizes[index] = 1;
      } else {
        if (start % inner || size % inner)
          return std::nullopt;
        expanded.starts[index] = start / inner;
        expanded.sizes[index] = size / inner;
      }
      inner *= extent;
    }
  }
  return expanded;
}

/// The entries of a tensor whose dimensions are groups of those of a tensor of
/// shape `result`, which has `entries`.
static std::optional<Entries> collapse(ArrayRef<ReassociationIndices> groups,
                                       ArrayRef<int64_t> result,
                                       const Entries &entries) {
  Entries collapsed;
  collapsed.offset = entries.offset;
  for (const ReassociationIndices &group : groups) {
    int64_t stride = 0, start = 0, size = 1, inner = 1;
    bool isWhole = true; // what is inside of a dimension
    for (int64_t index : llvm::reverse(group)) {
      if (result[index] == 1)
        continue;
      if (inner == 1)
        stride = entries.strides[index];
      else if (entries.sizes[index] == 1)
        // One of the outer ones, wherever that is.
        collapsed.offset +=
            (entries.strides[index] - stride * inner) * entries.starts[index];
      else if (entries.strides[index] != stride * inner || !isWhole)
        return std::nullopt;
      start += entries.starts[index] * inner;
      size *= entries.sizes[index];
      isWhole = entries.sizes[index] == result[index];
      inner *= result[index];
    }
    collapsed.strides.push_back(stride);
    collapsed.starts.push_back(start);
    collapsed.sizes.push_back(size);
  }
  return collapsed;
}

/// Part of `entries`, seen from a slice of their tensor at `offsets`.
static std::optional<Entries> cut(Entries entries, ArrayRef<int64_t> offsets,
                                  ArrayRef<int64_t> sizes) {
  for (unsigned dim : llvm::seq<unsigned>(sizes.size())) {
    int64_t end = std::min(entries.starts[dim] + entries.sizes[dim],
                           offsets[dim] + sizes[dim]);
    int64_t start = std::max(entries.starts[dim], offsets[dim]);
    if (end <= start)
      return std::nullopt;
    entries.offset += entries.strides[dim] * offsets[dim];
    entries.starts[dim] = start - offsets[dim];
    entries.sizes[dim] = end - start;
  }
  return entries;
}

void bsr::visitOperands(
    Operation *op, unsigned result, const Entries &entries,
    function_ref<void(OpOperand &, const Entries &)> visit) {
  auto visitIf = [&](OpOperand &operand, std::optional<Entries> found) {
    if (found)
      visit(operand, *found);
  };
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    AffineMap loops = inversePermutation(
        linalgOp.getIndexingMapMatchingResult(op->getResult(result)));
    for (OpOperand &operand : op->getOpOperands()) {
      RankedTensorType type = getStaticTensor(operand.get());
      if (type && linalgOp.payloadUsesValueFromOperand(&operand))
        visitIf(
            operand,
            compose(linalgOp.getMatchingIndexingMap(&operand).compose(loops),
                    entries, type));
    }
    return;
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    Entries source;
    source.offset = entries.offset;
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    unsigned dim = 0;
    for (auto [index, offset] : llvm::enumerate(slice.getStaticOffsets())) {
      bool isKept = !dropped[index];
      source.strides.push_back(isKept ? entries.strides[dim] : 0);
      source.starts.push_back(offset + (isKept ? entries.starts[dim] : 0));
      source.sizes.push_back(isKept ? entries.sizes[dim] : 1);
      source.offset -= source.strides.back() * offset;
      dim += isKept;
    }
    return visit(slice.getSourceMutable(), source);
  }
  if (auto slice = dyn_cast<tensor::InsertSliceOp>(op)) {
    auto source =
        cut(entries, slice.getStaticOffsets(), slice.getStaticSizes());
    if (source) {
      llvm::SmallBitVector dropped = slice.getDroppedDims();
      Entries reduced;
      reduced.offset = source->offset;
      for (unsigned dim : llvm::seq<unsigned>(dropped.size())) {
        if (dropped[dim])
          continue;
        reduced.strides.push_back(source->strides[dim]);
        reduced.starts.push_back(source->starts[dim]);
        reduced.sizes.push_back(source->sizes[dim]);
      }
      visit(slice.getSourceMutable(), reduced);
    }
    return visit(slice.getDestMutable(), entries);
  }
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    SmallVector<int64_t> offsets(entries.sizes.size(), 0);
    for (OpOperand &operand : op->getOpOperands()) {
      auto type = cast<RankedTensorType>(operand.get().getType());
      visitIf(operand, cut(entries, offsets, type.getShape()));
      offsets[concat.getDim()] += type.getDimSize(concat.getDim());
    }
    return;
  }
  if (auto reshape = dyn_cast<tensor::CollapseShapeOp>(op))
    return visitIf(reshape.getSrcMutable(),
                   expand(reshape.getReassociationIndices(),
                          reshape.getSrcType().getShape(), entries));
  if (auto reshape = dyn_cast<tensor::ExpandShapeOp>(op))
    return visitIf(reshape.getSrcMutable(),
                   collapse(reshape.getReassociationIndices(),
                            reshape.getResultType().getShape(), entries));
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    for (Region *region : {&branch.getThenRegion(), &branch.getElseRegion()})
      if (!region->empty())
        visit(region->front().getTerminator()->getOpOperand(result), entries);
    return;
  }
  for (OpOperand &operand : op->getOpOperands())
    if (RankedTensorType type = getStaticTensor(operand.get());
        type && type.getShape() == getStaticTensor(op->getResult(0)).getShape())
      visit(operand, entries);
}

/// The entries of the loops of an operation that reads `entries` by `map`.
static std::optional<Entries> spread(AffineMap map, ArrayRef<int64_t> ranges,
                                     const Entries &entries) {
  Entries loops = Entries::getWhole(ranges);
  loops.strides.assign(ranges.size(), 0);
  loops.offset = entries.offset;
  BitVector used(ranges.size());
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop && entries.sizes[dim] != 1)
      return std::nullopt;
    if (!loop) {
      loops.offset += entries.strides[dim] * entries.starts[dim];
      continue;
    }
    unsigned position = loop.getPosition();
    if (used[position])
      return std::nullopt;
    used.set(position);
    loops.strides[position] = entries.strides[dim];
    loops.starts[position] = entries.starts[dim];
    loops.sizes[position] = entries.sizes[dim];
  }
  return loops;
}

/// `entries`, seen from a tensor of which theirs is a slice at `offsets`.
static Entries shift(Entries entries, ArrayRef<int64_t> offsets) {
  for (auto [dim, offset] : llvm::enumerate(offsets)) {
    entries.offset -= entries.strides[dim] * offset;
    entries.starts[dim] += offset;
  }
  return entries;
}

static std::optional<Entries> followSlice(tensor::ExtractSliceOp slice,
                                          const Entries &entries) {
  auto part = cut(entries, slice.getStaticOffsets(), slice.getStaticSizes());
  if (!part)
    return std::nullopt;
  Entries kept;
  kept.offset = part->offset;
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (unsigned dim : llvm::seq<unsigned>(dropped.size())) {
    if (dropped[dim])
      continue;
    kept.strides.push_back(part->strides[dim]);
    kept.starts.push_back(part->starts[dim]);
    kept.sizes.push_back(part->sizes[dim]);
  }
  return kept;
}

static std::optional<Entries> followInsert(tensor::InsertSliceOp slice,
                                           OpOperand &operand,
                                           const Entries &entries) {
  ArrayRef<int64_t> offsets = slice.getStaticOffsets();
  if (&operand == &slice.getDestMutable()) {
    Entries box = entries;
    box.starts.assign(offsets.begin(), offsets.end());
    box.sizes.assign(slice.getStaticSizes().begin(),
                     slice.getStaticSizes().end());
    if (entries.overlap(box))
      return std::nullopt;
    return entries;
  }
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  Entries whole = entries;
  for (unsigned dim : llvm::seq<unsigned>(dropped.size())) {
    if (!dropped[dim])
      continue;
    whole.strides.insert(whole.strides.begin() + dim, 0);
    whole.starts.insert(whole.starts.begin() + dim, 0);
    whole.sizes.insert(whole.sizes.begin() + dim, 1);
  }
  return shift(whole, offsets);
}

std::optional<Entries> bsr::followEntries(OpOperand &operand, unsigned result,
                                          const Entries &entries) {
  Operation *op = operand.getOwner();
  RankedTensorType type = getStaticTensor(op->getResult(result));
  if (!isEntryWise(op) || !type || isa<scf::IfOp>(op))
    return std::nullopt;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    auto loops = spread(linalgOp.getMatchingIndexingMap(&operand),
                        linalgOp.getStaticLoopRanges(), entries);
    AffineMap map =
        linalgOp.getIndexingMapMatchingResult(op->getResult(result));
    return loops ? compose(map, *loops, type) : std::nullopt;
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return followSlice(slice, entries);
  if (auto slice = dyn_cast<tensor::InsertSliceOp>(op))
    return followInsert(slice, operand, entries);
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    SmallVector<int64_t> offsets(entries.sizes.size(), 0);
    for (Value before :
         op->getOperands().take_front(operand.getOperandNumber()))
      offsets[concat.getDim()] +=
          cast<RankedTensorType>(before.getType()).getDimSize(concat.getDim());
    return shift(entries, offsets);
  }
  if (auto reshape = dyn_cast<tensor::CollapseShapeOp>(op))
    return collapse(reshape.getReassociationIndices(),
                    reshape.getSrcType().getShape(), entries);
  if (auto reshape = dyn_cast<tensor::ExpandShapeOp>(op))
    return expand(reshape.getReassociationIndices(), type.getShape(), entries);
  RankedTensorType read = getStaticTensor(operand.get());
  if (!read || read.getShape() != type.getShape())
    return std::nullopt;
  return entries;
}

std::optional<Rectangle> bsr::getRectangle(const Entries &entries,
                                           int64_t cols) {
  Rectangle rectangle;
  int64_t first = entries.offset;
  SmallVector<int64_t> units;
  for (unsigned dim : llvm::seq<unsigned>(entries.sizes.size())) {
    first += entries.strides[dim] * entries.starts[dim];
    (entries.sizes[dim] == 1 ? units : rectangle.order).push_back(dim);
  }
  if (first < 0)
    return std::nullopt;
  rectangle.row = first / cols;
  rectangle.col = first % cols;
  rectangle.rows = rectangle.cols = 1;
  llvm::sort(rectangle.order, [&](int64_t a, int64_t b) {
    return entries.strides[a] > entries.strides[b];
  });
  // From the innermost dimension of columns to the outermost one of rows.
  rectangle.numRowDims = 0;
  for (int64_t dim : llvm::reverse(rectangle.order)) {
    int64_t stride = entries.strides[dim], size = entries.sizes[dim];
    if (rectangle.numRowDims == 0 && stride == rectangle.cols &&
        rectangle.col + rectangle.cols * size <= cols) {
      rectangle.cols *= size;
    } else if (rectangle.numRowDims == 0 && stride == rectangle.cols &&
               rectangle.col == 0 && cols % stride == 0 &&
               stride * size % cols == 0) {
      // Whole rows, flat.
      rectangle.rows = stride * size / cols;
      rectangle.cols = cols;
      rectangle.isFlat = true;
      ++rectangle.numRowDims;
    } else if (stride == cols * rectangle.rows) {
      rectangle.rows *= size;
      ++rectangle.numRowDims;
    } else {
      return std::nullopt;
    }
  }
  // Dimensions of one entry are anywhere.
  rectangle.order.insert(rectangle.order.begin(), units.begin(), units.end());
  rectangle.numRowDims += units.size();
  return rectangle;
}
