// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns chains of inserted slices into concatenations.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCONCATENATE
#include "bsr/Transforms/Layout/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

/// Pieces of one concatenation, each of which its kernel has code for.
static constexpr size_t maxInputs = 16;

/// True if all elements of `value` are the same, or none is defined.
static bool isFilled(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto generic = dyn_cast_or_null<linalg::GenericOp>(op))
    return linalg::isaFillOpInterface(generic).has_value();
  SplatElementsAttr splat;
  return isa_and_nonnull<tensor::EmptyOp, linalg::FillOp>(op) ||
         matchPattern(value, m_Constant(&splat));
}

/// The concatenation of `inputs` along `dim`, by operations of at most
/// `maxInputs` each.
static Value createConcat(OpBuilder &b, Location loc, int64_t dim,
                          SmallVector<Value> inputs) {
  while (inputs.size() > maxInputs) {
    SmallVector<Value> joined;
    for (ArrayRef<Value> rest = inputs; !rest.empty();) {
      ArrayRef<Value> some = rest.take_front(maxInputs);
      rest = rest.drop_front(some.size());
      joined.push_back(
          some.size() == 1
              ? some.front()
              : tensor::ConcatOp::create(b, loc, dim, some).getResult());
    }
    inputs = std::move(joined);
  }
  return tensor::ConcatOp::create(b, loc, dim, inputs).getResult();
}

/// insert(x, insert(y, base)) -> concat(y, x), if they are all there is or what
/// is left of the base, between them, is filled with one value
///
/// Adds the operations of the chain to `chain`.
static bool concatenate(tensor::InsertSliceOp last,
                        SetVector<Operation *> &chain) {
  std::optional<int64_t> dim = bsr::getCutDim(last);
  if (!dim)
    return false;
  SmallVector<tensor::InsertSliceOp> pieces{last};
  Value base = last.getDest();
  for (auto op = base.getDefiningOp<tensor::InsertSliceOp>();
       op && op->hasOneUse() && bsr::getCutDim(op) == dim;
       op = base.getDefiningOp<tensor::InsertSliceOp>()) {
    pieces.push_back(op);
    base = op.getDest();
  }
  auto getOffset = [&](tensor::InsertSliceOp op) {
    return op.getStaticOffsets()[*dim];
  };
  llvm::sort(pieces, [&](tensor::InsertSliceOp a, tensor::InsertSliceOp b) {
    return getOffset(a) < getOffset(b);
  });

  // Pieces that don't overlap; slices of the base in between.
  ArrayRef<int64_t> shape = last.getType().getShape();
  int64_t end = 0, covered = 0;
  for (tensor::InsertSliceOp op : pieces) {
    if (getOffset(op) < end)
      return false;
    covered += op.getStaticSizes()[*dim];
    end = getOffset(op) + op.getStaticSizes()[*dim];
  }
  if ((covered != shape[*dim] && !isFilled(base)) ||
      !bsr::decide("bsr-concatenate", last))
    return false;

  OpBuilder b(last);
  Location loc = last.getLoc();
  SmallVector<Value> inputs;
  auto addBase = [&](int64_t low, int64_t high) {
    if (low == high)
      return;
    SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0));
    SmallVector<OpFoldResult> strides(shape.size(), b.getIndexAttr(1));
    auto sizes = getAsIndexOpFoldResult(b.getContext(), shape);
    offsets[*dim] = b.getIndexAttr(low);
    sizes[*dim] = b.getIndexAttr(high - low);
    inputs.push_back(
        tensor::ExtractSliceOp::create(b, loc, base, offsets, sizes, strides));
  };
  end = 0;
  for (tensor::InsertSliceOp op : pieces) {
    addBase(end, getOffset(op));
    inputs.push_back(op.getSource());
    end = getOffset(op) + op.getStaticSizes()[*dim];
  }
  addBase(end, shape[*dim]);
  last.replaceAllUsesWith(createConcat(b, loc, *dim, std::move(inputs)));
  chain.insert(last);
  for (Value value = last.getDest(); value != base;) {
    auto op = value.getDefiningOp<tensor::InsertSliceOp>();
    chain.insert(op);
    value = op.getDest();
  }
  return true;
}

namespace {
struct Concatenate : bsr::impl::BSRConcatenateBase<Concatenate> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<tensor::InsertSliceOp> ops;
    getOperation()->walk([&](tensor::InsertSliceOp op) { ops.push_back(op); });
    // From the end, so that the last of a chain comes first.
    SetVector<Operation *> chain;
    for (tensor::InsertSliceOp op : llvm::reverse(ops))
      if (!chain.contains(op) && concatenate(op, chain))
        ++numConcatenations;
    for (Operation *op : chain)
      op->erase();
  }
};
} // namespace
