// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of tiles of bf16, added up in tiles of f32.

#include "TileProducts.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Panels of tokens, at least, for which values are packed once: it takes about
/// as long as the product of one of them.
static constexpr int64_t minPanels = 4;

TileBuilder::TileBuilder(Emitter &e)
    : e(e),
      factors(amx::TileType::get({tileSize, tileDepth}, e.b.getBF16Type())),
      sums(amx::TileType::get({tileSize, tileSize}, e.b.getF32Type())) {}

Value TileBuilder::zero() { return amx::TileZeroOp::create(e.b, e.loc, sums); }

Value TileBuilder::load(Value memref, ArrayRef<Index> at) {
  return amx::TileLoadOp::create(e.b, e.loc, factors, memref,
                                 e.getIndices(memref, at));
}

Value TileBuilder::loadSums(Value memref, ArrayRef<Index> at) {
  return amx::TileLoadOp::create(e.b, e.loc, sums, memref,
                                 e.getIndices(memref, at));
}

void TileBuilder::store(Value tile, Value memref, ArrayRef<Index> at) {
  amx::TileStoreOp::create(e.b, e.loc, memref, e.getIndices(memref, at), tile);
}

Value TileBuilder::multiplyAdd(Value a, Value b, Value tile) {
  return amx::TileMulFOp::create(e.b, e.loc, sums, a, b, tile);
}

Value TileBuilder::convert(Value vector, Type to) {
  if (!to.isBF16())
    return e.convert(vector, to);
  auto type = cast<VectorType>(vector.getType());
  return arith::TruncFOp::create(
      e.b, e.loc, Type(type.clone(to)), vector,
      arith::RoundingModeAttr::get(e.b.getContext(),
                                   arith::RoundingMode::to_nearest_even),
      arith::FastMathFlagsAttr());
}

static bool isBF16(Value tensor) {
  return getElementTypeOrSelf(tensor.getType()).isBF16();
}

std::optional<TiledSpMM> TiledSpMM::find(SpMMOp op, CPUTarget target) {
  if (!target.hasTiles || !isBF16(op.getValues()) || !isBF16(op.getX()) ||
      ProductSchedule::get(op).walk)
    return std::nullopt;
  OpBuilder b(op);
  Type sumType = getSumType(
      b, {op.getValues().getType(), op.getX().getType(), op.getY().getType()});
  Activations activations(op.getX().getType().getShape(), op.getFeatureDim());
  if (!sumType.isF32() || op.getNumBatchDims() || !activations.hasLanes ||
      activations.tokens < target.panel())
    return std::nullopt;
  TiledSpMM tiled;
  tiled.pattern = op.getPattern().getType();
  tiled.walked = getView(!op.getTranspose());
  tiled.lines = tiled.pattern.getNumLines(tiled.walked);
  tiled.outBlock = tiled.pattern.getBlockExtent(tiled.walked);
  tiled.inBlock = tiled.pattern.getBlockExtent(getOther(tiled.walked));
  if (tiled.outBlock % tileSize != 0 ||
      (tiled.inBlock != tileSize && tiled.inBlock % tileDepth != 0))
    return std::nullopt;
  tiled.rowTiles = getDivisor(tiled.outBlock / tileSize, sumTiles);
  tiled.tokenTiles = llvm::bit_floor<uint64_t>(sumTiles / tiled.rowTiles);
  tiled.isPacked = tiled.together() > 1 || !op.getTranspose() ||
                   !isa<BlockArgument>(op.getValues());
  int64_t tokens = llvm::product_of(activations.leading) * activations.tokens;
  if (tiled.isPacked && tokens < minPanels * target.panel())
    return std::nullopt;
  return tiled;
}

MemRefType TiledSpMM::getPacked(MLIRContext *context) const {
  return MemRefType::get(
      {pattern.getSlots(), outBlock, std::max(inBlock, tileDepth)},
      BFloat16Type::get(context));
}

namespace {
/// Puts the values of a pattern where tiles read them.
class Packer {
public:
  Packer(Emitter &e, SpMMOp op, const TiledSpMM &tiled, const PatternView &view,
         Value packed)
      : e(e), op(op), tiled(tiled), view(view), packed(packed),
        depth(std::min(tiled.inBlock, tileDepth)) {}

  /// Packs the blocks from number `block` on that make a step together, of a
  /// line that ends at `end`; zeros take the place of those that are missing.
  void pack(Value block, Value end) {
    place = Index::of(block);
    Value last = arith::SubIOp::create(e.b, e.loc, end, e.constant(1));
    for (int64_t i : llvm::seq(tiled.together())) {
      Value number = e.materialize(place.plus(i));
      isThere = nullptr;
      if (i > 0) {
        isThere = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult,
                                        number, end);
        number = arith::MinUIOp::create(e.b, e.loc, number, last);
      }
      slot = Index::of(loadIndex(e, view.slot, Index::of(number)));
      first = i * tiled.inBlock;
      op.getTranspose() ? copy() : transpose();
    }
  }

private:
  Value read(Index row, Index col) {
    return e.read(op.getValues(), {slot, row, col});
  }

  /// Stores `values`, `depth` of them for feature `made`.
  void store(Value values, Index made, Index feature) {
    llvm::SaveAndRestore width(e.width, depth);
    if (isThere)
      values = arith::SelectOp::create(
          e.b, e.loc, isThere, values,
          arith::ConstantOp::create(e.b, e.loc,
                                    e.b.getZeroAttr(values.getType())));
    feature = feature.plus(first);
    feature.lanes = true;
    feature.align = depth;
    e.store(values, packed, {place, made, feature});
  }

  /// Features that are read are the columns of a block.
  void copy() {
    e.nest({tiled.outBlock, tiled.inBlock / depth}, {},
           [&](ArrayRef<Index> at, ValueRange) {
             llvm::SaveAndRestore width(e.width, depth);
             Index feature = e.multiplyAdd(at[1], depth, Index::constant(0));
             Index lanes = feature;
             lanes.lanes = true;
             lanes.align = depth;
             store(read(at[0], lanes), at[0], feature);
             return SmallVector<Value>();
           });
  }

  /// They are its rows: pairs of rows are words of 32 bits, and squares of
  /// these are transposed; of half as many pairs, words of two columns lie side
  /// by side.
  void transpose() {
    int64_t numPairs = depth / 2, side = tileSize / numPairs;
    auto words = VectorType::get({tileSize}, e.b.getI32Type());
    auto type = VectorType::get({depth}, e.b.getBF16Type());
    e.nest({tiled.outBlock / tileSize, tiled.inBlock / depth}, {},
           [&](ArrayRef<Index> at, ValueRange) {
             Index made = e.multiplyAdd(at[0], tileSize, Index::constant(0));
             Index feature = e.multiplyAdd(at[1], depth, Index::constant(0));
             SmallVector<Value> rows;
             {
               llvm::SaveAndRestore width(e.width, tileSize);
               Index lanes = made;
               lanes.lanes = true;
               lanes.align = tileSize;
               for (int64_t i = 0; i != depth; i += 2) {
                 Value pairs = vector::InterleaveOp::create(
                     e.b, e.loc, read(feature.plus(i), lanes),
                     read(feature.plus(i + 1), lanes));
                 rows.push_back(
                     vector::BitCastOp::create(e.b, e.loc, words, pairs));
               }
             }
             for (auto [number, columns] : llvm::enumerate(e.transpose(rows)))
               for (int64_t i = 0; i != side; ++i) {
                 SmallVector<int64_t> lanes;
                 for (int64_t pair = 0; pair != numPairs; ++pair)
                   lanes.push_back(pair * side + i);
                 Value column = vector::ShuffleOp::create(e.b, e.loc, columns,
                                                          columns, lanes);
                 store(vector::BitCastOp::create(e.b, e.loc, type, column),
                       made.plus(number * side + i), feature);
               }
             return SmallVector<Value>();
           });
  }

  Emitter &e;
  SpMMOp op;
  const TiledSpMM &tiled;
  const PatternView &view;
  Value packed;
  /// Features of a tile's row that one block has.
  int64_t depth;
  // Of the block that is packed: where to, and from which feature there on;
  // whether there is one, if that is not known.
  Index place, slot;
  int64_t first = 0;
  Value isThere;
};
} // namespace

void cpu::emitPackedValues(Emitter &e, SpMMOp op, const TiledSpMM &tiled,
                           const PatternView &view, Value packed) {
  e.forall(tiled.lines, [&](ArrayRef<Index> item) {
    Value low = loadIndex(e, view.ptr, item.front());
    Value high = loadIndex(e, view.ptr, item.front().plus(1));
    e.loop(low, high, tiled.together(), {}, [&](Value block, ValueRange) {
      Packer(e, op, tiled, view, packed).pack(block, high);
      return SmallVector<Value>();
    });
  });
}
