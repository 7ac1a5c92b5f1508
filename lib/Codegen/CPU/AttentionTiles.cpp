// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors of attention by rows and lanes, and products of small tiles.

#include "AttentionTiles.h"
#include "bsr/Codegen/CPU/Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

int64_t AttentionTiles::getWidth(int64_t count) const {
  int64_t lanes = e.target.lanes;
  return count < lanes ? static_cast<int64_t>(llvm::PowerOf2Ceil(count))
                       : static_cast<int64_t>(llvm::alignTo(count, lanes));
}

int64_t AttentionTiles::getMaxRows(int64_t width) const {
  int64_t vectors = llvm::divideCeil(width, e.target.lanes);
  return std::max<int64_t>(1, CPUTarget::tileRows * e.target.tileVectors() /
                                  vectors);
}

Value AttentionTiles::constant(double value) {
  return arith::ConstantOp::create(e.b, e.loc,
                                   e.b.getFloatAttr(sumType, value));
}

AttentionTensor AttentionTiles::getStatistics(LsePart part) const {
  AffineMap map = AffineMap::getMultiDimIdentityMap(attention.extents.size(),
                                                    e.b.getContext());
  map = map.getMajorSubMap(attention.numBatchDims + 1);
  AffineExpr number =
      getAffineConstantExpr(static_cast<int64_t>(part), e.b.getContext());
  return {attention.lse, map.insertResult(number, 0)};
}

SmallVector<Index> AttentionTiles::place(const AttentionTensor &tensor,
                                         AttentionPoint at) const {
  SmallVector<Index> loops(at.batch);
  loops.append({at.query, at.key, at.feature, at.feature});
  return applyMap(tensor.map, loops);
}

Value AttentionTiles::readNumber(const AttentionTensor &tensor,
                                 AttentionPoint at) {
  return e.convert(e.read(tensor.tensor, place(tensor, at)), sumType);
}

/// `index` from lane `lane` of a run on, `width` lanes.
static Index getLanes(Index index, int64_t lane, int64_t width) {
  Index result = index.plus(lane);
  result.lanes = width > 1;
  return result;
}

/// `at` with `index` along the dimension of the queries, of the keys, or of a
/// feature.
static AttentionPoint move(const Attention &attention, AttentionPoint at,
                           unsigned dim, Index index) {
  if (dim == attention.getQueryDim())
    at.query = index;
  else if (dim == attention.getKeyDim())
    at.key = index;
  else
    at.feature = index;
  return at;
}

Value AttentionTiles::readLanes(const AttentionTensor &tensor,
                                AttentionPoint at, unsigned dim, LaneRun run) {
  auto widen = [&](Value value) {
    bool isFloat = isa<FloatType>(getElementTypeOrSelf(value.getType()));
    return isFloat ? e.convert(value, sumType) : value;
  };
  auto read = [&](int64_t lane, int64_t width) {
    llvm::SaveAndRestore saved(e.width, width);
    Index index = getLanes(run.first, lane, width);
    return widen(
        e.read(tensor.tensor, place(tensor, move(attention, at, dim, index))));
  };
  if (!tensor.map.isFunctionOfDim(dim))
    return read(0, 1);
  if (run.count == run.width)
    return e.broadcast(read(0, run.width));
  Type type = getElementTypeOrSelf(tensor.tensor.getType());
  if (isa<FloatType>(type))
    type = sumType;
  Value all = arith::ConstantOp::create(
      e.b, e.loc, e.b.getZeroAttr(VectorType::get({run.width}, type)));
  for (const Tiles &piece : getVectors(run.count, run.width))
    for (int64_t number = 0; number != piece.count; ++number) {
      int64_t lane = piece.base + number * piece.size;
      Value value = read(lane, piece.size);
      if (piece.size == 1) {
        all = vector::InsertOp::create(e.b, e.loc, value, all, lane);
        continue;
      }
      // What is computed may be one number along the lanes.
      llvm::SaveAndRestore saved(e.width, piece.size);
      all = vector::InsertStridedSliceOp::create(e.b, e.loc, e.broadcast(value),
                                                 all, ArrayRef<int64_t>{lane},
                                                 ArrayRef<int64_t>{1});
    }
  return all;
}

void AttentionTiles::storeLanes(Value value, const AttentionTensor &tensor,
                                AttentionPoint at, unsigned dim, LaneRun run) {
  Value output = outputs.lookup(tensor.tensor);
  value = e.convert(value, getElementTypeOrSelf(tensor.tensor.getType()));
  for (const Tiles &piece : getVectors(run.count, run.width))
    for (int64_t number = 0; number != piece.count; ++number) {
      int64_t lane = piece.base + number * piece.size;
      Value part = value;
      if (piece.size == 1 && isa<VectorType>(value.getType()))
        part = vector::ExtractOp::create(e.b, e.loc, value, lane);
      else if (piece.size != run.width)
        part = vector::ExtractStridedSliceOp::create(
            e.b, e.loc, value, ArrayRef<int64_t>{lane},
            ArrayRef<int64_t>{piece.size}, ArrayRef<int64_t>{1});
      llvm::SaveAndRestore saved(e.width, piece.size);
      Index index = getLanes(run.first, lane, piece.size);
      e.store(part, output, place(tensor, move(attention, at, dim, index)));
    }
}

/// Where the lanes of a row are.
static SmallVector<Index> getRowPlace(const LaneRows &rows, Index row,
                                      Index lane, int64_t width) {
  SmallVector<Index> place(rows.outer);
  place.append({row, getLanes(lane, 0, width)});
  return place;
}

Value AttentionTiles::loadRow(const LaneRows &rows, Index row, int64_t width,
                              Index lane) {
  llvm::SaveAndRestore saved(e.width, width);
  return e.load(rows.memory, getRowPlace(rows, row, lane, width));
}

void AttentionTiles::storeRow(Value value, const LaneRows &rows, Index row,
                              Index lane) {
  auto type = dyn_cast<VectorType>(value.getType());
  int64_t width = type ? type.getDimSize(0) : 1;
  llvm::SaveAndRestore saved(e.width, width);
  e.store(value, rows.memory, getRowPlace(rows, row, lane, width));
}

void AttentionTiles::forVectors(
    int64_t count, int64_t width,
    llvm::function_ref<void(Index, Index, int64_t)> body) {
  e.loop(count, {}, [&](Index row, ValueRange) {
    for (const Tiles &piece : getVectors(width, e.target.panel()))
      for (int64_t number = 0; number != piece.count; ++number) {
        llvm::SaveAndRestore saved(e.width, piece.size);
        body(row, Index::constant(piece.base + number * piece.size),
             piece.size);
      }
    return SmallVector<Value>();
  });
}

void AttentionTiles::clear(const LaneRows &rows, int64_t count, int64_t width) {
  forVectors(count, width, [&](Index row, Index lane, int64_t) {
    storeRow(e.broadcast(constant(0)), rows, row, lane);
  });
}

void AttentionTiles::scaleRows(const LaneRows &rows, int64_t count,
                               int64_t width, const LaneRows &factors) {
  forVectors(count, width, [&](Index row, Index lane, int64_t size) {
    Value factor = e.load(factors.memory, {Index::constant(0), row});
    Value scaled = arith::MulFOp::create(
        e.b, e.loc, loadRow(rows, row, size, lane), e.broadcast(factor));
    storeRow(scaled, rows, row, lane);
  });
}

/// The dimension of the attention along which elements of `tensor` lie side by
/// side, those of extent 1 aside, and then the next one.
static SmallVector<unsigned> getInnerDims(const AttentionTensor &tensor) {
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(tensor.tensor.getType()).getShape();
  SmallVector<unsigned> dims;
  for (auto [expr, extent] : llvm::zip_equal(tensor.map.getResults(), shape))
    if (extent != 1)
      dims.push_back(cast<AffineDimExpr>(expr).getPosition());
  std::reverse(dims.begin(), dims.end());
  return dims;
}

bool AttentionTiles::isAlong(const AttentionTensor &tensor,
                             unsigned dim) const {
  SmallVector<unsigned> dims = getInnerDims(tensor);
  return !dims.empty() && dims[0] == dim;
}

bool AttentionTiles::isTransposed(const AttentionTensor &tensor,
                                  unsigned rowDim, LaneRun run) const {
  return isAlong(tensor, rowDim) && e.target.lanes > 1 &&
         run.width >= e.target.lanes;
}

int64_t AttentionTiles::forSquares(
    int64_t numRows, LaneRun run,
    llvm::function_ref<void(Index, Index, int64_t)> body) {
  int64_t size = e.target.lanes;
  if (numRows < size)
    return numRows;
  e.loop(numRows / size, {}, [&](Index number, ValueRange) {
    Index row = e.multiplyAdd(number, size, Index::constant(0));
    for (const Tiles &tiles : tileWithRemainder(run.count, size))
      e.loop(tiles.count, {}, [&](Index number, ValueRange) {
        body(row, e.multiplyAdd(number, size, Index::constant(tiles.base)),
             tiles.size);
        return SmallVector<Value>();
      });
    return SmallVector<Value>();
  });
  return numRows % size;
}

void AttentionTiles::pack(const AttentionTensor &tensor, AttentionPoint at,
                          unsigned rowDim, Index firstRow, int64_t numRows,
                          unsigned laneDim, LaneRun run, const LaneRows &rows,
                          double scale) {
  auto multiply = [&](Value value) -> Value {
    if (scale == 1)
      return value;
    return arith::MulFOp::create(e.b, e.loc, value,
                                 e.broadcast(constant(scale)));
  };
  int64_t rest = numRows, size = e.target.lanes;
  if (isTransposed(tensor, rowDim, run))
    rest = forSquares(numRows, run, [&](Index row, Index lane, int64_t count) {
      llvm::SaveAndRestore saved(e.width, size);
      LaneRun along{e.multiplyAdd(row, 1, firstRow), size, size};
      SmallVector<Value> square;
      for (int64_t i = 0; i != size; ++i) {
        if (i >= count) {
          square.push_back(e.broadcast(constant(0)));
          continue;
        }
        Index from = e.multiplyAdd(lane.plus(i), 1, run.first);
        square.push_back(multiply(e.broadcast(readLanes(
            tensor, move(attention, at, laneDim, from), rowDim, along))));
      }
      for (auto [i, vector] : llvm::enumerate(e.transpose(square)))
        storeRow(vector, rows, row.plus(i), lane);
    });
  if (!rest)
    return;
  llvm::SaveAndRestore saved(e.width, run.width);
  e.loop(rest, {}, [&](Index number, ValueRange) {
    Index row = number.plus(numRows - rest);
    Index from = e.multiplyAdd(row, 1, firstRow);
    Value value = e.broadcast(
        readLanes(tensor, move(attention, at, rowDim, from), laneDim, run));
    storeRow(multiply(value), rows, row);
    return SmallVector<Value>();
  });
}

void AttentionTiles::unpack(const LaneRows &rows, const AttentionTensor &tensor,
                            AttentionPoint at, unsigned rowDim, Index firstRow,
                            int64_t numRows, unsigned laneDim, LaneRun run) {
  int64_t rest = numRows, size = e.target.lanes;
  if (isTransposed(tensor, rowDim, run))
    rest = forSquares(numRows, run, [&](Index row, Index lane, int64_t count) {
      llvm::SaveAndRestore saved(e.width, size);
      LaneRun along{e.multiplyAdd(row, 1, firstRow), size, size};
      SmallVector<Value> square;
      for (int64_t i = 0; i != size; ++i)
        square.push_back(loadRow(rows, row.plus(i), size, lane));
      square = e.transpose(square);
      for (int64_t i = 0; i != count; ++i) {
        Index to = e.multiplyAdd(lane.plus(i), 1, run.first);
        storeLanes(square[i], tensor, move(attention, at, laneDim, to), rowDim,
                   along);
      }
    });
  if (!rest)
    return;
  llvm::SaveAndRestore saved(e.width, run.width);
  e.loop(rest, {}, [&](Index number, ValueRange) {
    Index row = number.plus(numRows - rest);
    Index to = e.multiplyAdd(row, 1, firstRow);
    storeLanes(loadRow(rows, row, run.width), tensor,
               move(attention, at, rowDim, to), laneDim, run);
    return SmallVector<Value>();
  });
}

SmallVector<Value> AttentionTiles::forTiles(
    int64_t rows, int64_t width, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(Index, int64_t, ValueRange)> body) {
  SmallVector<Value> carried(inits);
  for (const Tiles &tiles : tileEvenly(rows, getMaxRows(width))) {
    if (!tiles.count)
      continue;
    carried =
        e.loop(tiles.count, carried, [&](Index number, ValueRange carried) {
          Index first =
              e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
          return body(first, tiles.size, carried);
        });
  }
  return carried;
}

SmallVector<Value> AttentionTiles::forLine(
    View view, Index line, int64_t extent, int64_t size, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(Index, int64_t, std::optional<Index>,
                                          ValueRange)>
        body) {
  if (attention.pattern) {
    const PatternView &blocks = patterns.at({attention.pattern, view});
    auto firstOf = [&](Index block) {
      Index position = Index::of(loadIndex(e, blocks.idx, block));
      return e.multiplyAdd(position, size, Index::constant(0));
    };
    return e.loop(
        loadIndex(e, blocks.ptr, line), loadIndex(e, blocks.ptr, line.plus(1)),
        1, inits, [&](Value block, ValueRange carried) {
          Index next = getNextBlock(e, block, attention.pattern.getType());
          return body(firstOf(Index::of(block)), size, firstOf(next), carried);
        });
  }
  SmallVector<Value> carried(inits);
  for (const Tiles &tiles : tileWithRemainder(extent, size))
    carried =
        e.loop(tiles.count, carried, [&](Index number, ValueRange carried) {
          Index first =
              e.multiplyAdd(number, tiles.size, Index::constant(tiles.base));
          return body(first, tiles.size, std::nullopt, carried);
        });
  return carried;
}

int64_t AttentionTiles::getFeatureLanes(int64_t features) const {
  int64_t vectors = getFeatureWidth(features) / e.target.lanes;
  return e.target.lanes * getDivisor(vectors, e.target.tileVectors());
}

bool AttentionTiles::areRows(const AttentionTensor &tensor, unsigned rowDim,
                             unsigned featureDim) const {
  auto buffer = cast_or_null<MemRefType>(
      e.getBuffer(tensor.tensor) ? e.getBuffer(tensor.tensor).getType()
                                 : Type());
  SmallVector<unsigned> dims = getInnerDims(tensor);
  return buffer && buffer.getLayout().isIdentity() &&
         buffer.getRank() == tensor.map.getNumResults() &&
         buffer.getElementType() == sumType && dims.size() > 1 &&
         dims[0] == featureDim && dims[1] == rowDim &&
         attention.extents[featureDim] % e.target.lanes == 0;
}

LaneRows AttentionTiles::allocateRows(const AttentionTensor &tensor,
                                      unsigned rowDim, int64_t count,
                                      unsigned featureDim) {
  if (areRows(tensor, rowDim, featureDim))
    return {};
  return allocate(count, getFeatureWidth(attention.extents[featureDim]));
}

FeatureRows AttentionTiles::getRows(const AttentionTensor &tensor,
                                    AttentionPoint at, unsigned rowDim,
                                    Index first, int64_t count,
                                    unsigned featureDim,
                                    const LaneRows &memory) {
  if (areRows(tensor, rowDim, featureDim))
    return {&tensor, at, rowDim, featureDim, first, {}};
  int64_t features = attention.extents[featureDim];
  pack(tensor, at, rowDim, first, count, featureDim,
       {Index::constant(0), features, getFeatureWidth(features)}, memory);
  return {nullptr, at, rowDim, featureDim, first, memory};
}

Value AttentionTiles::loadFeatures(const FeatureRows &rows, Index row,
                                   Index lane, int64_t width) {
  if (!rows.tensor)
    return loadRow(rows.packed, row, width, lane);
  Index from = e.multiplyAdd(row, 1, rows.first);
  return readLanes(*rows.tensor, move(attention, rows.at, rows.rowDim, from),
                   rows.featureDim, {lane, width, width});
}

Value AttentionTiles::loadFeature(const FeatureRows &rows, Index row,
                                  Index feature) {
  if (!rows.tensor)
    return e.load(rows.packed.memory, {row, feature});
  Index from = e.multiplyAdd(row, 1, rows.first);
  AttentionPoint at = move(attention, rows.at, rows.rowDim, from);
  return readNumber(*rows.tensor, at.with(feature));
}

void AttentionTiles::prefetch(const AttentionTensor &tensor, AttentionPoint at,
                              unsigned featureDim, int64_t lanes) {
  if (!isAlong(tensor, featureDim))
    return;
  int64_t count = std::min(lanes, attention.extents[featureDim]);
  if (Value output = outputs.lookup(tensor.tensor))
    e.prefetchMemory(output, place(tensor, at), count, /*isWrite=*/true);
  else
    e.prefetch(tensor.tensor, place(tensor, at), count);
}

SmallVector<Value>
AttentionTiles::multiply(ValueRange sums, int64_t summands, int64_t width,
                         llvm::function_ref<Value(Index)> vector,
                         llvm::function_ref<Value(Index, int64_t)> factor) {
  llvm::SaveAndRestore saved(e.width, width);
  return e.loop(summands, sums, [&](Index k, ValueRange carried) {
    SmallVector<Value> sums(carried);
    Value lanes = vector(k);
    for (auto [number, sum] : llvm::enumerate(sums))
      sum = multiplyAdd(e, factor(k, number), lanes, sum);
    return sums;
  });
}

/// 2^n 2^r, where n is the integer next to x / log(2): 2^n is added to the
/// exponent. The product of a power of 2 and what is not normal would take a
/// hundred times as long, and masks fill scores with negative infinity.
Value AttentionTiles::exponentiate(Value x) {
  if (!sumType.isF32())
    return math::ExpOp::create(e.b, e.loc, x);
  auto number = [&](double value) { return e.broadcast(constant(value)); };
  Value y = arith::MulFOp::create(e.b, e.loc, x, number(0x1.715476p0));
  // The exponent of 2^-127 is that of 0. A NaN stays one.
  Value least = number(-127);
  Value isLess =
      arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, y, least);
  y = arith::SelectOp::create(e.b, e.loc, isLess, least, y);
  // The last bits of this sum are n.
  Value shift = number(0x1.8p23);
  Value sum = arith::AddFOp::create(e.b, e.loc, y, shift);
  Value r = arith::SubFOp::create(
      e.b, e.loc, y, arith::SubFOp::create(e.b, e.loc, sum, shift));
  // The relative error of this polynomial in f32 is 1.6e-7 where |r| <= 0.5.
  Value power = number(0.001326472731307149);
  for (double coefficient : {0.009671512991189957, 0.05550733581185341,
                             0.24022242426872253, 0.6931470036506653, 1.0})
    power = multiplyAdd(e, power, r, number(coefficient));
  Type i32 = e.b.getI32Type();
  if (auto vector = dyn_cast<VectorType>(x.getType()))
    i32 = vector.clone(i32);
  TypedAttr places = e.b.getI32IntegerAttr(23);
  if (auto vector = dyn_cast<VectorType>(i32))
    places = DenseElementsAttr::get(vector, Attribute(places));
  Value exponent = arith::ShLIOp::create(
      e.b, e.loc, arith::BitcastOp::create(e.b, e.loc, i32, sum),
      arith::ConstantOp::create(e.b, e.loc, places));
  Value bits = arith::BitcastOp::create(e.b, e.loc, i32, power);
  bits = arith::AddIOp::create(e.b, e.loc, bits, exponent);
  return arith::BitcastOp::create(e.b, e.loc, x.getType(), bits);
}

Value AttentionTiles::getScores(Value products, AttentionPoint at, unsigned dim,
                                LaneRun run) {
  llvm::SaveAndRestore saved(e.width, run.width);
  Value scores = products;
  if (attention.bias)
    scores = arith::AddFOp::create(
        e.b, e.loc, scores,
        e.broadcast(readLanes(attention.bias, at, dim, run)));
  if (attention.mask)
    scores = arith::SelectOp::create(
        e.b, e.loc, e.broadcast(readLanes(attention.mask, at, dim, run)),
        scores, e.broadcast(constant(attention.fill)));
  return scores;
}

Value AttentionTiles::applyFactor(Value value, AttentionPoint at, unsigned dim,
                                  LaneRun run) {
  if (!attention.factor)
    return value;
  llvm::SaveAndRestore saved(e.width, run.width);
  Value factor = e.broadcast(readLanes(attention.factor, at, dim, run));
  return arith::MulFOp::create(e.b, e.loc, value, factor);
}
