// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns copies between views into parallel loops over contiguous copies.

#include "bsr/Codegen/Common/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLOWERCOPIES
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Whether the lowering of MLIR makes a copy between these types one of
/// contiguous memory; of what is left it makes a call of its own runtime.
static bool isContiguous(MemRefType source, MemRefType target) {
  return memref::isStaticShapeAndContiguousRowMajor(source) &&
         memref::isStaticShapeAndContiguousRowMajor(target);
}

/// `buffer` without its dimensions of one entry, whose strides say nothing.
static Value dropUnitDims(OpBuilder &b, Location loc, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<int64_t> shape = llvm::filter_to_vector(
      type.getShape(), [](int64_t extent) { return extent != 1; });
  return memref::SubViewOp::rankReduceIfNeeded(b, loc, buffer, shape).value();
}

/// The number of trailing dimensions that are contiguous in both types.
static int64_t getContiguousDims(MemRefType source, MemRefType target) {
  int64_t dims = source.getRank();
  while (dims != 0 && (!source.areTrailingDimsContiguous(dims) ||
                       !target.areTrailingDimsContiguous(dims)))
    --dims;
  return dims;
}

/// The part of `buffer` at `index` of its first dimensions, in the others
/// whole.
static Value getPart(OpBuilder &b, Location loc, Value buffer,
                     ValueRange index) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<OpFoldResult> offsets(index.begin(), index.end());
  offsets.resize(type.getRank(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> sizes(index.size(), b.getIndexAttr(1));
  for (int64_t extent : type.getShape().drop_front(index.size()))
    sizes.push_back(b.getIndexAttr(extent));
  SmallVector<OpFoldResult> strides(type.getRank(), b.getIndexAttr(1));
  return memref::SubViewOp::create(b, loc, buffer, offsets, sizes, strides);
}

/// Replaces `copy` by loops, unless it is a copy of contiguous memory.
static void lowerCopy(memref::CopyOp copy) {
  OpBuilder b(copy);
  Location loc = copy.getLoc();
  if (isContiguous(cast<MemRefType>(copy.getSource().getType()),
                   cast<MemRefType>(copy.getTarget().getType())))
    return;
  Value source = dropUnitDims(b, loc, copy.getSource());
  Value target = dropUnitDims(b, loc, copy.getTarget());
  auto type = cast<MemRefType>(source.getType());
  int64_t contiguous =
      getContiguousDims(type, cast<MemRefType>(target.getType()));
  if (contiguous == type.getRank()) {
    memref::CopyOp::create(b, loc, source, target);
  } else if (contiguous == 0 || copy->getParentOfType<scf::ForallOp>()) {
    linalg::makeMemRefCopyOp(b, loc, source, target);
  } else {
    SmallVector<OpFoldResult> extents;
    for (int64_t extent : type.getShape().drop_back(contiguous))
      extents.push_back(b.getIndexAttr(extent));
    scf::ForallOp::create(b, loc, extents, /*outputs=*/ValueRange(),
                          /*mapping=*/std::nullopt,
                          [&](OpBuilder &b, Location loc, ValueRange index) {
                            Value from = getPart(b, loc, source, index);
                            Value to = getPart(b, loc, target, index);
                            memref::CopyOp::create(b, loc, from, to);
                            scf::InParallelOp::create(b, loc);
                          });
  }
  copy.erase();
}

namespace {
struct LowerCopies : bsr::impl::BSRLowerCopiesBase<LowerCopies> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<memref::CopyOp> copies;
    getOperation()->walk([&](memref::CopyOp copy) { copies.push_back(copy); });
    for (memref::CopyOp copy : copies)
      lowerCopy(copy);
  }
};
} // namespace
