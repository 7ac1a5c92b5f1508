// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels for processors are built with: vectors of lanes, caches.

#include "bsr/Codegen/CPU/Emitter.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

void Emitter::forLanes(Value low, int64_t extent, int64_t lanes,
                       llvm::function_ref<void(Index)> body) {
  int64_t done = extent - extent % lanes;
  auto chunk = [&](Value base, int64_t offset, int64_t size) {
    llvm::SaveAndRestore chunkWidth(width, size);
    scope([&] {
      Index index = Index::of(base, /*lanes=*/size > 1, size);
      index.offset = offset;
      body(index);
    });
  };
  if (done == lanes) {
    chunk(low, 0, lanes);
  } else if (done > 0) {
    loop(done / lanes, {}, [&](Index number, ValueRange) {
      chunk(materialize(multiplyAdd(number, lanes, Index::of(low))), 0, lanes);
      return SmallVector<Value>();
    });
  }
  for (int64_t size = llvm::bit_floor<uint64_t>(lanes); size; size /= 2) {
    if (extent - done < size)
      continue;
    chunk(low, done, size);
    done += size;
  }
}

SmallVector<Value> Emitter::getIndices(Value memref, ArrayRef<Index> at) {
  return llvm::map_to_vector(place(memref, at),
                             [&](Index i) { return materialize(i); });
}

Value Emitter::allocate(ArrayRef<int64_t> shape, Type type) {
  return memref::AllocaOp::create(b, loc, MemRefType::get(shape, type),
                                  b.getI64IntegerAttr(lineBytes));
}

void Emitter::prefetch(Value tensor, ArrayRef<Index> at, int64_t count) {
  Value memref = getBuffer(tensor);
  if (!memref) {
    Operation *op = tensor.getDefiningOp();
    if (!isa_and_nonnull<tensor::ExtractSliceOp, tensor::ExpandShapeOp,
                         tensor::CollapseShapeOp>(op))
      return;
    if (auto source = getSource(op, at))
      prefetch(op->getOperand(0), *source, count);
    return;
  }
  prefetchMemory(memref, at, count, /*isWrite=*/false);
}

void Emitter::prefetchMemory(Value memref, ArrayRef<Index> at, int64_t count,
                             bool isWrite) {
  // A number is loaded once.
  if (at.empty())
    return;
  // An i1 has a byte.
  int64_t bits = std::max(
      8u, getElementTypeOrSelf(memref.getType()).getIntOrFloatBitWidth());
  int64_t step = std::max<int64_t>(1, 8 * lineBytes / bits);
  for (int64_t number = 0; number < count; number += step) {
    SmallVector<Index> from(at);
    from.back() = from.back().plus(number);
    memref::PrefetchOp::create(b, loc, memref, getIndices(memref, from),
                               isWrite,
                               /*localityHint=*/3, /*isDataCache=*/true);
  }
}

void Emitter::prefetchInputs(linalg::GenericOp op, ArrayRef<Index> loops,
                             Shift shift, llvm::SmallDenseSet<Value> &done) {
  // An instruction for each vector is little only where one is a line.
  if (target.lanes * 4 < lineBytes || width < target.lanes)
    return;
  for (OpOperand *operand : op.getDpsInputOperands()) {
    Value input = operand->get();
    SmallVector<Index> at = applyMap(op.getMatchingIndexingMap(operand), loops);
    while (!getBuffer(input)) {
      Operation *view = input.getDefiningOp();
      if (!isa_and_nonnull<tensor::ExtractSliceOp, tensor::ExpandShapeOp,
                           tensor::CollapseShapeOp>(view))
        break;
      std::optional<SmallVector<Index>> source = getSource(view, at);
      if (!source)
        break;
      input = view->getOperand(0);
      at = *source;
    }
    Value memref = getBuffer(input);
    if (!memref) {
      auto producer = input.getDefiningOp<linalg::GenericOp>();
      if (producer && producer.getNumReductionLoops() == 0)
        prefetchInputs(
            producer,
            getLoops(producer, cast<OpResult>(input).getResultNumber(), at),
            shift, done);
      continue;
    }
    auto type = cast<MemRefType>(memref.getType());
    if (at.empty() || !at.back().lanes || !isa<BlockArgument>(input) ||
        !type.getElementType().isIntOrFloat() ||
        type.getNumElements() * type.getElementTypeBitWidth() / 8 <
            target.secondCache / 4)
      continue;
    SmallVector<Index> later = llvm::map_to_vector(at, shift);
    if (later != at && done.insert(input).second)
      prefetchMemory(memref, later, width, /*isWrite=*/false);
  }
}
