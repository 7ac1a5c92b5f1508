// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations of which a thread takes several elements: 16 bytes
// are what it loads and stores at once.

#include "Vectors.h"
#include "bsr/Analysis/Kernels.h"
#include "bsr/Analysis/Reads.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;

static constexpr int64_t vectorBits = 128;

/// The elements of `op` that a thread takes along loop `lanes`, which goes over
/// `extent`: as many as 16 bytes hold of the largest type that it writes, or
/// reads along that loop.
static int64_t getWidth(linalg::GenericOp op, int64_t lanes, int64_t extent) {
  int64_t bits = 8;
  auto add = [&](Type type) {
    Type element = getElementTypeOrSelf(type);
    bits = std::max<int64_t>(
        bits, element.isIndex() ? 64 : element.getIntOrFloatBitWidth());
  };
  for (Type type : op->getResultTypes())
    add(type);
  for (const Read &access : getReads(op, llvm::IsaPred<BlockArgument>))
    if (!access.at.empty() && access.at.back() == lanes)
      add(access.tensor.getType());
  int64_t width = vectorBits / bits;
  while (extent % width)
    width /= 2;
  return width;
}

bool bsr::emitVectors(Evaluator &e, Operation *root,
                      const DenseMap<Value, Value> &outputs) {
  if (!isPointwise(root))
    return false;
  auto op = cast<linalg::GenericOp>(root);
  // Loops in the order in which results lie in memory; the last has lanes.
  AffineMap map = op.getIndexingMapMatchingResult(op->getResult(0));
  if (!map.isPermutation() ||
      !llvm::all_equal(
          ArrayRef(op.getIndexingMapsArray()).drop_front(op.getNumDpsInputs())))
    return false;
  SmallVector<int64_t> ranges = op.getStaticLoopRanges(), extents;
  for (unsigned place : llvm::seq(map.getNumResults()))
    extents.push_back(ranges[map.getDimPosition(place)]);
  if (extents.empty())
    return false;
  int64_t width =
      getWidth(op, map.getDimPosition(extents.size() - 1), extents.back());
  if (width == 1)
    return false;
  extents.back() /= width;
  llvm::SaveAndRestore lanes(e.width, width);
  e.forEach(extents, [&](ArrayRef<Index> at) {
    SmallVector<Index> place(at);
    place.back() = e.multiplyAdd(place.back(), width, Index::constant(0));
    place.back().lanes = true;
    SmallVector<Value> values = e.evaluate(op, getLoops(op, 0, place));
    for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
      if (Value output = outputs.lookup(result))
        e.store(value, output, place);
  });
  return true;
}
