// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products, on tensor cores or on arithmetic units.
//
// A thread block goes through the inner numbers 32 at a time (DenseMainloop),
// and multiplies what a stage of shared memory holds (Multiplier). Where
// such blocks are few, each takes a slice of the inner numbers.

#include "bsr/Codegen/GPU/Dense/DenseProduct.h"
#include "DenseMultiplier.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
/// A dense product whose thread blocks go through inner numbers, alone or
/// several for slices of them, whose sums another launch adds.
class DenseProduct : public Product {
public:
  DenseProduct(const DenseContraction &operands, const DenseTile &tile,
               bool isOnTensorCores)
      : operands(operands), tile(tile), isOnTensorCores(isOnTensorCores) {}

  std::optional<ResultSpace> getSpace() override;
  /// Sums of slices of the inner loops, if these are taken in slices, and
  /// memory for the epilogue.
  SmallVector<MemRefType> getScratch() override;
  std::string describeTile() const override { return tile.describe(); }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;
  bool acceptsPieces() override {
    return !operands.norms && tile.slices == 1 &&
           operands.rows.loops.size() == 1 && operands.cols.loops.size() == 1;
  }

private:
  /// What a thread does. `result` is the buffer of the result, or of those of
  /// the slices, one after the other: a dimension for each group, or, of a
  /// piece of a larger buffer, for each loop, and vectors of columns.
  void emitBlock(KernelBody &kernel, const StoredRows &result, BlockBuilder &b);
  /// Stores the sums of a warp, whose rows of the lane begin with `first`.
  void store(DenseMainloop &mainloop, const WarpSums &warp, Value first,
             const StoredRows &result);
  /// The columns that a thread stores at once.
  int64_t getStoredLength() const;
  StoredRows createResult(OpBuilder &b, Location loc, Value buffer);
  bool hasEpilogueInside() const { return epilogue && tile.slices == 1; }

  DenseContraction operands;
  DenseTile tile;
  bool isOnTensorCores;
};
} // namespace

int64_t DenseProduct::getStoredLength() const {
  constexpr int64_t pair = 2, four = 4;
  return isOnTensorCores ? pair
                         : std::gcd(four, operands.getType().getShape().back());
}

void DenseProduct::store(DenseMainloop &mainloop, const WarpSums &warp,
                         Value first, const StoredRows &result) {
  BlockBuilder &b = mainloop.b;
  int64_t perRow = int64_t(warp.sums.size()) / warp.numRows;
  for (int64_t row = 0; row != warp.numRows; ++row) {
    Value number = b.add(first, warp.layout.getRow(row));
    SmallVector<Value> at = mainloop.getStoredRow(result, number);
    mainloop.whenRow(number, [&] {
      storeRow(b, warp.layout,
               ValueRange(warp.sums).slice(row * perRow, perRow), result, at,
               warp.column, warp.areColumnsRagged);
    });
  }
}

void DenseProduct::emitBlock(KernelBody &kernel, const StoredRows &result,
                             BlockBuilder &b) {
  DenseMainloop mainloop(operands, tile, kernel, b);
  std::unique_ptr<Multiplier> multiplier = isOnTensorCores
                                               ? createWarpMultiplier(mainloop)
                                               : createLaneMultiplier(mainloop);
  const SumLayout &layout = multiplier->layout;
  Value row = layout.getFirstRow(b);
  Value first = b.add(mainloop.firstRow, row);
  SmallVector<Value> sums = mainloop.run(*multiplier);
  WarpSums warp = mainloop.getWarpSums(first);
  warp.layout = layout;
  warp.sums = multiplier->getRows(sums);
  warp.numRows = multiplier->numRows;
  if (operands.norms)
    mainloop.emitNorms(kernel, warp, b.add(mainloop.warpRow, row));
  else if (hasEpilogueInside())
    epilogue->emit(b, warp);
  else
    store(mainloop, warp, first, result);
}

std::optional<ResultSpace> DenseProduct::getSpace() {
  std::optional<ResultSpace> space = operands.getSpace(tile.getWarpCols());
  // An epilogue is behind the sum of slices, without fragments.
  if (space && tile.slices != 1)
    return ResultSpace{
        {llvm::to_vector<2>(llvm::seq(operands.getType().getRank()))}, 0, 0};
  return space;
}

SmallVector<MemRefType> DenseProduct::getScratch() {
  SmallVector<MemRefType> types;
  if (tile.slices != 1) {
    SmallVector<int64_t> shape(operands.getType().getShape());
    shape.insert(shape.begin(), tile.slices);
    types.push_back(
        MemRefType::get(shape, operands.getType().getElementType()));
  }
  if (epilogue)
    llvm::append_range(types, epilogue->getScratch());
  return types;
}

/// Emits the launch that adds `slices` of `count` sums in `scratch`, in order:
/// a thread takes `length` of them, which `finish` gets with their number.
static void
emitSum(OpBuilder &b, Location loc, int64_t slices, int64_t count,
        int64_t length, Value scratch,
        llvm::function_ref<void(BlockBuilder &, Value, ValueRange)> finish) {
  Value terms = createRows(b, loc, scratch, slices, count, length).vectors;
  int64_t threads = count / length;
  int64_t blocks = llvm::divideCeil(threads, blockThreads);
  BlockBuilder::launch(
      b, loc, {blocks, 1}, blockThreads,
      /*sharedBytes=*/0, [&](BlockBuilder &b) {
        Value number = b.multiplyAdd(b.block[0], blockThreads, b.thread);
        b.when(b.less(number, b.constant(threads)), [&] {
          SmallVector<Value> sums;
          for (int64_t i = 0; i != length; ++i) {
            sums.push_back(
                b.load(terms, {b.constant(0), number, b.constant(i)}));
            for (int64_t slice = 1; slice != slices; ++slice)
              sums.back() = arith::AddFOp::create(
                  b.b, b.loc, sums.back(),
                  b.load(terms, {b.constant(slice), number, b.constant(i)}));
          }
          finish(b, number, sums);
        });
      });
}

StoredRows DenseProduct::createResult(OpBuilder &b, Location loc,
                                      Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  int64_t length = getStoredLength(), columns = operands.cols.size;
  if (type.getLayout().isIdentity()) {
    SmallVector<int64_t> sizes;
    if (tile.slices != 1)
      sizes.push_back(tile.slices);
    for (DenseContraction::Group DenseContraction::*group :
         ArrayRef(operands.resultOrder).drop_back())
      sizes.push_back((operands.*group).size);
    return createRows(b, loc, buffer, sizes, columns, length);
  }
  // A piece of a larger buffer.
  auto [strides, offset] = type.getStridesAndOffset();
  strides.back() = length;
  strides.push_back(1);
  SmallVector<int64_t> sizes(type.getShape().drop_back());
  sizes.append({columns / length, length});
  auto layout = StridedLayoutAttr::get(b.getContext(), offset, strides);
  return {memref::ReinterpretCastOp::create(
              b, loc, MemRefType::get(sizes, type.getElementType(), layout),
              buffer, offset, sizes, strides),
          columns, length};
}

LogicalResult DenseProduct::emit(OpBuilder &b, KernelBody &kernel,
                                 ValueRange scratch) {
  Location loc = kernel.loc;
  int64_t slices = tile.slices;
  Value output = kernel.outputs.lookup(operands.op->getResult(0));
  Value result = slices == 1 ? output : scratch[0];
  if (epilogue)
    epilogue->begin(b, kernel, scratch.drop_front(slices == 1 ? 0 : 1));
  StoredRows stored;
  if (!hasEpilogueInside() && !operands.norms)
    stored = createResult(b, loc, result);
  int64_t sharedBytes = tile.stages * tile.getStageBytes(operands);
  if (operands.norms)
    sharedBytes =
        std::max(sharedBytes,
                 BlockNorms::getSharedBytes(tile.left.tile, tile.right.tile));
  BlockBuilder::launch(
      b, loc, {tile.getNumTiles(operands), operands.batch.size * slices},
      blockThreads, sharedBytes,
      [&](BlockBuilder &block) { emitBlock(kernel, stored, block); });
  int64_t count = operands.getType().getNumElements();
  if (slices != 1 && epilogue) {
    emitSum(b, loc, slices, count, Epilogue::length, result,
            [&](BlockBuilder &b, Value number, ValueRange sums) {
              epilogue->emit(b, number, sums);
            });
  } else if (slices != 1) {
    int64_t length = count % 2 ? 1 : 2;
    Value vectors = createRows(b, loc, output, {}, count, length).vectors;
    emitSum(b, loc, slices, count, length, result,
            [&](BlockBuilder &b, Value number, ValueRange sums) {
              for (auto [i, sum] : llvm::enumerate(sums))
                b.store(sum, vectors, {number, b.constant(i)});
            });
  }
  return epilogue ? epilogue->end(b) : success();
}

std::unique_ptr<Product> bsr::gpu::matchDense(Operation *root, GPUAttr target) {
  auto operands = DenseContraction::match(root);
  if (!operands)
    return nullptr;
  auto tile = chooseWarpTile(*operands, target);
  bool isOnTensorCores = tile.has_value();
  if (!tile)
    tile = chooseLaneTile(*operands, target);
  if (!tile)
    return nullptr;
  return std::make_unique<DenseProduct>(*operands, *tile, isOnTensorCores);
}
