// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations, of which a thread takes several elements: 16 bytes
// are what it loads and stores at once.

#include "bsr/Codegen/GPU/Core/Elementwise.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/MemoryReads.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr int64_t vectorBits = 128;

/// The loops of `root`, an element-wise operation, at the point `at` of its
/// results.
static SmallVector<Index> getPoint(Operation *root, ArrayRef<Index> at) {
  return getLoops(cast<linalg::GenericOp>(root), 0, at);
}

/// The elements of results, of which there are `extent` side by side, that a
/// thread takes: as many as 16 bytes hold of the largest type that `roots`
/// write, or read side by side.
static int64_t getWidth(ArrayRef<Operation *> roots, int64_t extent) {
  int64_t bits = 8;
  auto add = [&](Type type) {
    Type element = getElementTypeOrSelf(type);
    bits = std::max<int64_t>(
        bits, element.isIndex() ? 64 : element.getIntOrFloatBitWidth());
  };
  for (Operation *root : roots) {
    llvm::for_each(root->getResultTypes(), add);
    auto op = cast<linalg::GenericOp>(root);
    std::optional<unsigned> lanes = getResultLoops(op).back();
    for (const Read &access : getReads(op, llvm::IsaPred<BlockArgument>))
      if (!access.at.empty() && lanes && access.at.back() == *lanes)
        add(access.tensor.getType());
  }
  int64_t width = vectorBits / bits;
  while (extent % width)
    width /= 2;
  return width;
}

/// True if all results of `root` have its loops as their dimensions.
static bool hasOneMap(Operation *root) {
  auto op = cast<linalg::GenericOp>(root);
  ArrayRef<AffineMap> maps =
      ArrayRef(op.getIndexingMapsArray()).drop_front(op.getNumDpsInputs());
  return maps.front().isPermutation() && llvm::all_equal(maps);
}

bool bsr::gpu::emitPointwise(Evaluator &e, ArrayRef<Operation *> roots,
                             const DenseMap<Value, Value> &outputs) {
  bool isAlone = roots.size() == 1;
  if (!isPointwise(roots.front()) || (isAlone && !hasOneMap(roots.front())))
    return false;
  SmallVector<int64_t> extents(
      cast<RankedTensorType>(roots.front()->getResult(0).getType()).getShape());
  int64_t width = extents.empty() ? 1 : getWidth(roots, extents.back());
  if (isAlone && width == 1)
    return false;
  if (width != 1)
    extents.back() /= width;
  llvm::SaveAndRestore lanes(e.width, width);
  e.forEach(extents, [&](ArrayRef<Index> at) {
    SmallVector<Index> indices(at);
    if (width != 1) {
      indices.back() = e.multiplyAdd(indices.back(), width, Index::constant(0));
      indices.back().lanes = true;
    }
    // What is written may lie where something is read.
    SmallVector<std::pair<Value, Value>> stores;
    for (Operation *root : roots) {
      auto op = cast<linalg::GenericOp>(root);
      SmallVector<Value> values = e.evaluate(op, getPoint(root, indices));
      for (auto [result, value] : llvm::zip_equal(op->getResults(), values)) {
        e.remember(result, indices, value);
        if (Value output = outputs.lookup(result))
          stores.push_back({value, output});
      }
    }
    for (auto [value, output] : stores)
      e.store(value, output, indices);
  });
  return true;
}
