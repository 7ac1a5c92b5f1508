// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for products of two dense tensors: attention, the language-model
// head, weights without a pattern.

#include "Kernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;

/// Steps of a reduction that a register tile takes in a row.
static constexpr int64_t unrollFactor = 4;
/// Summands of a tile of sums across lanes, so that its rows stay in the
/// first-level cache: 6 rows of 4 KiB.
static constexpr int64_t maxDotLength = 1024;

namespace {
/// A product `c[m..., n...] += a[m..., k...] * b[n..., k...]`, with batch
/// dimensions in all three, and how its loops are run. With `dot`, lanes run
/// along `lanes`, one of k, and are summed up last; else along the last
/// dimension of c, which is one of operand number `vectors`, and elements of
/// the other operand are broadcast.
struct Contraction {
  static std::optional<Contraction> match(linalg::GenericOp op);
  /// Takes vectors along columns instead of `dot`, if that is worth the
  /// transposition of squares of `size` elements.
  void transpose(int64_t size);

  bool isIn(unsigned operand, unsigned dim) const {
    return maps[operand].isFunctionOfDim(dim);
  }

  linalg::GenericOp op;
  Value init;
  SmallVector<AffineMap> maps;
  SmallVector<int64_t> ranges;
  bool dot = false;
  unsigned lanes = 0, vectors = 1;
  /// One of k that is last in operand `vectors` instead of the lanes.
  std::optional<unsigned> across;
  /// The dimensions that register tiles take several points of: `row` of m, and
  /// `col` of n where lanes are summed up.
  std::optional<unsigned> row, col;
  /// Loops outside of tiles: parallel ones, those that sweep what a tile of
  /// columns has loaded, and the reduced ones but `lanes`.
  SmallVector<unsigned> outer, swept, reduced;
};

} // namespace

/// True if elements along `dim` of a value with `map` and `shape` lie side by
/// side.
static bool isLast(AffineMap map, ArrayRef<int64_t> shape, unsigned dim) {
  for (auto [expr, extent] :
       llvm::reverse(llvm::zip_equal(map.getResults(), shape))) {
    if (expr.isFunctionOfDim(dim))
      return true;
    if (extent != 1)
      return false;
  }
  return false;
}

std::optional<Contraction> Contraction::match(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      op.getNumReductionLoops() == 0 || !isSum(op))
    return std::nullopt;
  Contraction result;
  result.op = op;
  result.init = op.getDpsInits()[0];
  result.maps = op.getIndexingMapsArray();
  result.ranges = op.getStaticLoopRanges();
  SmallVector<ArrayRef<int64_t>> shapes;
  for (Value operand : op->getOperands()) {
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    if (!type)
      return std::nullopt;
    shapes.push_back(type.getShape());
  }
  SmallVector<unsigned> parallel;
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  auto isIn = [&](unsigned operand, unsigned dim) {
    return result.isIn(operand, dim);
  };
  for (unsigned dim = 0; dim != kinds.size(); ++dim) {
    bool isReduced = kinds[dim] == utils::IteratorType::reduction;
    if (isReduced ? !isIn(0, dim) || !isIn(1, dim) : !isIn(2, dim))
      return std::nullopt;
    (isReduced ? result.reduced : parallel).push_back(dim);
  }
  // Lanes: along a dimension that is last in the result and in one operand, and
  // not in the other; else along a reduced one that is last in both.
  std::optional<unsigned> lanes;
  for (unsigned dim : parallel)
    for (unsigned operand : {1u, 0u})
      if (!lanes && result.ranges[dim] >= 4 &&
          isLast(result.maps[2], shapes[2], dim) &&
          isLast(result.maps[operand], shapes[operand], dim) &&
          !isIn(1 - operand, dim)) {
        lanes = dim;
        result.vectors = operand;
      }
  if (!lanes) {
    for (unsigned dim : result.reduced)
      if (!lanes && result.ranges[dim] >= 4 &&
          isLast(result.maps[0], shapes[0], dim) &&
          isLast(result.maps[1], shapes[1], dim))
        lanes = dim;
    if (!lanes)
      return std::nullopt;
    result.dot = true;
    llvm::erase(result.reduced, *lanes);
    // Columns lie side by side in the result.
    for (unsigned dim : parallel)
      if (isLast(result.maps[2], shapes[2], dim) &&
          isIn(0, dim) != isIn(1, dim)) {
        result.col = dim;
        result.vectors = isIn(1, dim);
      }
    if (!result.col)
      return std::nullopt;
  }
  result.lanes = *lanes;
  for (unsigned dim : parallel) {
    if (dim == lanes || dim == result.col)
      continue;
    bool isRow = isIn(1 - result.vectors, dim) && !isIn(result.vectors, dim);
    (isRow ? result.swept : result.outer).push_back(dim);
  }
  for (unsigned dim : result.swept)
    if (!result.row || result.ranges[dim] >= result.ranges[*result.row])
      result.row = dim;
  if (result.row)
    llvm::erase(result.swept, *result.row);
  return result;
}

void Contraction::transpose(int64_t size) {
  int64_t numRows = row ? ranges[*row] : 1;
  for (unsigned dim : swept)
    numRows *= ranges[dim];
  int64_t others = 1;
  for (unsigned dim : reduced)
    others *= ranges[dim];
  if (!dot || others > 32 || ranges[lanes] % size || ranges[*col] < size ||
      numRows < 4 * Registers::tileRows)
    return;
  dot = false;
  across = lanes;
  reduced.push_back(lanes);
  lanes = *col;
  col.reset();
}

namespace {
/// Emits the loops of one contraction.
class ContractionEmitter {
public:
  ContractionEmitter(Emitter &emitter, const Contraction &contraction,
                     Value output)
      : e(emitter), c(contraction), output(output) {}

  void emit() { c.dot ? emitDot() : emitBroadcast(); }

private:
  void emitBroadcast();
  void emitDot();
  /// Where vectors lie that are loaded again and again: the chunk of summands
  /// from `from` on, side by side.
  struct Strip {
    Value memory, from;
    /// The reduced loops, the last of which takes `length` steps a chunk.
    ArrayRef<unsigned> dims;
    int64_t length;
  };
  Value getVectors() { return c.op->getOperand(c.vectors); }
  SmallVector<Index> getPlace(const Strip &strip, ArrayRef<Index> steps);
  bool isScattered();
  void pack(const Strip &strip, ArrayRef<Index> at, Value count);
  void forPoints(ArrayRef<unsigned> dims, ArrayRef<Index> at,
                 llvm::function_ref<void(ArrayRef<Index>)> body);
  SmallVector<int64_t> getExtents(ArrayRef<unsigned> dims) const {
    return llvm::map_to_vector(dims,
                               [&](unsigned dim) { return c.ranges[dim]; });
  }
  SmallVector<Index> getPlace(ArrayRef<Index> at) const {
    return applyMap(c.maps[2], at);
  }

  Emitter &e;
  const Contraction &c;
  Value output;
};
} // namespace

/// Nested loops over `dims`, at the point `at` of the others.
void ContractionEmitter::forPoints(
    ArrayRef<unsigned> dims, ArrayRef<Index> at,
    llvm::function_ref<void(ArrayRef<Index>)> body) {
  e.nest(getExtents(dims), {}, [&](ArrayRef<Index> ivs, ValueRange) {
    SmallVector<Index> point(at);
    for (auto [dim, iv] : llvm::zip_equal(dims, ivs))
      point[dim] = iv;
    body(point);
    return SmallVector<Value>();
  });
}

/// The place of a vector, `steps` of the reduced loops from the first one.
SmallVector<Index> ContractionEmitter::getPlace(const Strip &strip,
                                                ArrayRef<Index> steps) {
  Index number = Index::constant(0);
  for (auto [dim, step] : llvm::zip_equal(strip.dims, steps))
    number = e.multiplyAdd(
        number, dim == strip.dims.back() ? strip.length : c.ranges[dim], step);
  SmallVector<Index> place{number, Index::constant(0)};
  place.back().lanes = e.width > 1;
  return place;
}

/// True if the vectors of a chunk do not lie side by side as they are.
bool ContractionEmitter::isScattered() {
  Value buffer = e.getBuffer(getVectors());
  auto type = cast<RankedTensorType>(getVectors().getType());
  return e.hasStack &&
         (!buffer ||
          (cast<MemRefType>(buffer.getType()).getRank() == type.getRank() &&
           type.getShape().back() > e.registers.panel()));
}

/// Fills `strip` with `count` steps of its last loop.
void ContractionEmitter::pack(const Strip &strip, ArrayRef<Index> at,
                              Value count) {
  AffineMap map = c.maps[c.vectors];
  int64_t lanes = e.registers.lanes;
  bool isSquare = c.across && e.width % lanes == 0;
  SmallVector<int64_t> extents = getExtents(strip.dims.drop_back());
  e.nest(extents, {}, [&](ArrayRef<Index> outer, ValueRange) {
    e.loop(e.constant(0), count, isSquare ? lanes : 1, {},
           [&](Value step, ValueRange) {
             SmallVector<Index> steps(outer), point(at);
             steps.push_back(Index::of(step));
             for (auto [dim, iv] : llvm::zip_equal(strip.dims, steps))
               point[dim] = iv;
             Index &last = point[strip.dims.back()];
             last = e.multiplyAdd(Index::of(strip.from), 1, last);
             if (!isSquare) {
               e.store(e.read(getVectors(), applyMap(map, point)), strip.memory,
                       getPlace(strip, steps));
               return SmallVector<Value>();
             }
             // Vectors along the reduced loop, one for each column.
             int64_t width = e.width;
             e.width = lanes;
             last.lanes = true;
             last.align = lanes;
             Index first = point[c.lanes].scalar();
             for (int64_t col = 0; col != width; col += lanes) {
               SmallVector<Value> columns;
               for (int64_t i = 0; i != lanes; ++i) {
                 point[c.lanes] = first.plus(col + i);
                 columns.push_back(e.read(getVectors(), applyMap(map, point)));
               }
               for (auto [i, vector] : llvm::enumerate(e.transpose(columns))) {
                 steps.back() = Index::of(step).plus(i);
                 SmallVector<Index> place = getPlace(strip, steps);
                 place.back().offset = col;
                 e.store(vector, strip.memory, place);
               }
             }
             e.width = width;
             return SmallVector<Value>();
           });
    return SmallVector<Value>();
  });
}

/// A work item is a panel of lanes and a block of rows. It takes so many
/// summands at a time that what the vectors are loaded from stays in the cache
/// while all rows sweep over it; in between the sums are where they end up.
void ContractionEmitter::emitBroadcast() {
  int64_t panel = e.registers.panel();
  int64_t numSummands = 1;
  for (int64_t extent : getExtents(c.reduced))
    numSummands *= extent;
  // Summands: all, or a chunk of the longest reduced dimension.
  SmallVector<unsigned> inside(c.reduced);
  std::optional<unsigned> chunked;
  int64_t chunk = 0, fitting = cacheBytes / (4 * panel);
  if (numSummands > 2 * fitting) {
    for (unsigned dim : c.reduced)
      if (!chunked || c.ranges[dim] >= c.ranges[*chunked])
        chunked = dim;
    if (c.across)
      chunked = c.across;
    llvm::erase(inside, *chunked);
    chunk = std::max<int64_t>(1, fitting * c.ranges[*chunked] / numSummands);
  }
  unsigned last = chunked ? *chunked : inside.pop_back_val();
  int64_t unroll = getDivisor(c.ranges[last], unrollFactor);
  chunk = llvm::alignTo(chunk, c.across ? e.registers.lanes : unroll);
  SmallVector<unsigned> dims(inside);
  dims.push_back(last);
  int64_t length = chunked ? chunk : c.ranges[last];
  // Rows of a block: what they read stays in the second-level cache.
  int64_t rowExtent = c.row ? c.ranges[*c.row] : 1;
  int64_t summands = chunked ? 2 * fitting : numSummands;
  int64_t blockTiles = std::max<int64_t>(1, 8 * cacheBytes / (4 * summands) /
                                                Registers::tileRows);

  auto emitItem = [&](ArrayRef<Index> at, Value low, Value high,
                      const Tiles &rows, Value memory) {
    // At the sums of `rows.size` rows.
    auto emitTile = [&](ArrayRef<Index> at, const Strip &strip, Value count,
                        Value isFirst) {
      SmallVector<SmallVector<Index>> points(rows.size, SmallVector<Index>(at));
      SmallVector<Value> sums;
      for (auto [number, point] : llvm::enumerate(points)) {
        if (c.row)
          point[*c.row] = point[*c.row].plus(number);
        Value init = e.broadcast(e.read(c.init, applyMap(c.maps[2], point)));
        if (isFirst)
          init = arith::SelectOp::create(e.b, e.loc, isFirst, init,
                                         e.load(output, getPlace(point)));
        sums.push_back(init);
      }
      sums = e.nest(
          getExtents(inside), sums, [&](ArrayRef<Index> ivs, ValueRange outer) {
            return e.loop(
                e.constant(0), count, unroll, outer,
                [&](Value iv, ValueRange carried) {
                  SmallVector<Value> next(carried);
                  Index first =
                      e.multiplyAdd(Index::of(strip.from), 1, Index::of(iv));
                  for (int64_t step = 0; step != unroll; ++step)
                    for (auto [number, point] : llvm::enumerate(points)) {
                      SmallVector<Index> loops(point);
                      for (auto [dim, inner] : llvm::zip_equal(inside, ivs))
                        loops[dim] = inner;
                      loops[last] = first.plus(step);
                      if (strip.memory && number == 0) {
                        SmallVector<Index> steps(ivs);
                        steps.push_back(Index::of(iv).plus(step));
                        e.remember(
                            getVectors(), applyMap(c.maps[c.vectors], loops),
                            e.load(strip.memory, getPlace(strip, steps)));
                      }
                      next[number] = e.broadcast(
                          e.evaluate(c.op, loops, next[number]).front());
                    }
                  return next;
                });
          });
      for (auto [sum, point] : llvm::zip_equal(sums, points))
        e.store(sum, output, getPlace(point));
    };
    auto sweep = [&](Value from, Value count, Value isFirst) {
      Strip strip{memory, from, dims, length};
      if (memory)
        pack(strip, at, count);
      forPoints(c.swept, at, [&](ArrayRef<Index> at) {
        e.loop(low, high, 1, {}, [&](Value tile, ValueRange) {
          SmallVector<Index> point(at);
          if (c.row)
            point[*c.row] = e.multiplyAdd(Index::of(tile), rows.size,
                                          Index::constant(rows.base));
          emitTile(point, strip, count, isFirst);
          return SmallVector<Value>();
        });
      });
    };
    Value extent = e.constant(c.ranges[last]);
    if (!chunked)
      return sweep(e.constant(0), extent, {});
    e.loop(e.constant(0), extent, chunk, {}, [&](Value from, ValueRange) {
      Value rest = arith::SubIOp::create(e.b, e.loc, extent, from);
      sweep(from, arith::MinUIOp::create(e.b, e.loc, rest, e.constant(chunk)),
            arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, from,
                                  e.constant(0)));
      return SmallVector<Value>();
    });
  };

  // Vectors that are packed first: so many, each for so many tiles a row.
  int64_t numVectors = length, numSwept = 1;
  for (int64_t extent : getExtents(inside))
    numVectors *= extent;
  for (int64_t extent : getExtents(c.swept))
    numSwept *= extent;
  Type type = getElementTypeOrSelf(getVectors().getType());
  int64_t laneExtent = c.ranges[c.lanes];
  for (const Tiles &lanes : cover(laneExtent, panel)) {
    for (const Tiles &rows : spread(rowExtent, Registers::tileRows)) {
      SmallVector<int64_t> extents = getExtents(c.outer);
      int64_t others = lanes.count;
      for (int64_t extent : extents)
        others *= extent;
      int64_t blocks = llvm::divideCeil(rows.count, blockTiles);
      // What is transposed is for several tiles.
      int64_t most =
          c.across ? std::max<int64_t>(1, rows.count / 4) : rows.count;
      blocks = std::max(
          blocks, std::min<int64_t>(most, llvm::divideCeil(minItems, others)));
      int64_t perBlock = llvm::divideCeil(rows.count, blocks);
      extents.append({blocks, lanes.count});
      emitParallel(e, extents, [&](ArrayRef<Index> item) {
        SmallVector<Index> at(c.ranges.size(), Index::constant(0));
        for (auto [dim, iv] : llvm::zip_equal(c.outer, item.drop_back(2)))
          at[dim] = iv;
        Value memory;
        if (c.across || (perBlock * numSwept >= 4 && isScattered()))
          memory = e.allocate({numVectors, panel}, type);
        Index low =
            e.multiplyAdd(item[item.size() - 2], perBlock, Index::constant(0));
        Value high = arith::MinUIOp::create(e.b, e.loc,
                                            e.materialize(low.plus(perBlock)),
                                            e.constant(rows.count));
        Index lane =
            e.multiplyAdd(item.back(), panel, Index::constant(lanes.base));
        e.forLanes(e.materialize(lane), lanes.size, panel, [&](Index lane) {
          at[c.lanes] = lane;
          emitItem(at, e.materialize(low), high, rows, memory);
        });
      });
    }
  }
}

/// A work item is a block of columns. A tile of them stays in the first-level
/// cache while all rows sweep over it.
void ContractionEmitter::emitDot() {
  int64_t rowTile = c.row ? e.registers.tileVectors() : 1;
  int64_t rowExtent = c.row ? c.ranges[*c.row] : 1;
  int64_t laneExtent = c.ranges[c.lanes];
  // Long sums: round after round over the leading reduced dimensions.
  SmallVector<unsigned> rounds, inside;
  int64_t length = laneExtent;
  for (unsigned dim : llvm::reverse(c.reduced)) {
    bool fits = rounds.empty() && length * c.ranges[dim] <= maxDotLength;
    SmallVector<unsigned> &list = fits ? inside : rounds;
    list.insert(list.begin(), dim);
    if (fits)
      length *= c.ranges[dim];
  }

  auto emitTile = [&](ArrayRef<Index> at, const Tiles &rows, const Tiles &cols,
                      Value isFirst) {
    int64_t numSums = rows.size * cols.size;
    SmallVector<SmallVector<Index>> points;
    for (int64_t i = 0; i != rows.size; ++i)
      for (int64_t j = 0; j != cols.size; ++j) {
        points.emplace_back(at);
        if (c.row)
          points.back()[*c.row] = at[*c.row].plus(i);
        points.back()[*c.col] = at[*c.col].plus(j);
      }
    Type type = getElementTypeOrSelf(output.getType());
    Value total;
    int64_t done = 0;
    for (int64_t size = std::min<int64_t>(
             e.registers.lanes, llvm::bit_floor<uint64_t>(laneExtent));
         size; size /= 2) {
      int64_t count = (laneExtent - done) / size;
      if (!count)
        continue;
      e.width = size;
      int64_t unroll = getDivisor(count, e.registers.panel() / size);
      SmallVector<Value> zeros(numSums,
                               e.broadcast(arith::ConstantOp::create(
                                   e.b, e.loc, e.b.getZeroAttr(type))));
      SmallVector<int64_t> extents = getExtents(inside);
      extents.push_back(count / unroll);
      SmallVector<Value> sums =
          e.nest(extents, zeros, [&](ArrayRef<Index> ivs, ValueRange carried) {
            SmallVector<Value> next(carried);
            for (int64_t step = 0; step != unroll; ++step) {
              Index lane = e.multiplyAdd(ivs.back(), size * unroll,
                                         Index::constant(done + step * size));
              lane.lanes = size > 1;
              lane.align = size;
              for (auto [sum, point] : llvm::zip_equal(next, points)) {
                SmallVector<Index> loops(point);
                for (auto [dim, iv] : llvm::zip_equal(inside, ivs.drop_back()))
                  loops[dim] = iv;
                loops[c.lanes] = lane;
                sum = e.broadcast(e.evaluate(c.op, loops, sum).front());
              }
            }
            return next;
          });
      Value part = e.sumLanes(sums);
      total = total ? arith::AddFOp::create(e.b, e.loc, total, part) : part;
      done += count * size;
    }
    e.width = cols.size;
    for (int64_t i = 0; i != rows.size; ++i) {
      SmallVector<Index> loops(points[i * cols.size]);
      loops[*c.col].lanes = cols.size > 1;
      Value sum =
          cols.size > 1
              ? vector::ExtractStridedSliceOp::create(
                    e.b, e.loc, total, i * cols.size, cols.size, 1)
                    .getResult()
              : vector::ExtractOp::create(e.b, e.loc, total, i).getResult();
      Value init = e.broadcast(e.read(c.init, getPlace(loops)));
      if (isFirst)
        init = arith::SelectOp::create(e.b, e.loc, isFirst, init,
                                       e.load(output, getPlace(loops)));
      e.store(arith::AddFOp::create(e.b, e.loc, init, sum), output,
              getPlace(loops));
    }
    e.width = 1;
  };

  for (const Tiles &cols : cover(c.ranges[*c.col], Registers::dotCols)) {
    SmallVector<int64_t> extents = getExtents(c.outer);
    int64_t others = 1;
    for (int64_t extent : extents)
      others *= extent;
    int64_t blocks =
        std::min<int64_t>(cols.count, llvm::divideCeil(minItems, others));
    int64_t perBlock = llvm::divideCeil(cols.count, blocks);
    extents.push_back(blocks);
    emitParallel(e, extents, [&](ArrayRef<Index> item) {
      SmallVector<Index> at(c.ranges.size(), Index::constant(0));
      for (auto [dim, iv] : llvm::zip_equal(c.outer, item.drop_back()))
        at[dim] = iv;
      Index low = e.multiplyAdd(item.back(), perBlock, Index::constant(0));
      Value high =
          arith::MinUIOp::create(e.b, e.loc, e.materialize(low.plus(perBlock)),
                                 e.constant(cols.count));
      forPoints(rounds, at, [&](ArrayRef<Index> at) {
        Value isFirst = e.areZero(
            llvm::map_to_vector(rounds, [&](unsigned dim) { return at[dim]; }));
        e.loop(e.materialize(low), high, 1, {}, [&](Value tile, ValueRange) {
          SmallVector<Index> point(at);
          point[*c.col] = e.multiplyAdd(Index::of(tile), cols.size,
                                        Index::constant(cols.base));
          forPoints(c.swept, point, [&](ArrayRef<Index> at) {
            for (const Tiles &rows : cover(rowExtent, rowTile))
              e.loop(rows.count, {}, [&](Index tile, ValueRange) {
                SmallVector<Index> point(at);
                if (c.row)
                  point[*c.row] = e.multiplyAdd(tile, rows.size,
                                                Index::constant(rows.base));
                emitTile(point, rows, cols, isFirst);
                return SmallVector<Value>();
              });
          });
          return SmallVector<Value>();
        });
      });
    });
  }
}

bool bsr::emitContraction(Emitter &e, linalg::GenericOp op,
                          const DenseMap<Value, Value> &outputs) {
  std::optional<Contraction> contraction = Contraction::match(op);
  Value output = outputs.lookup(op->getResult(0));
  if (!contraction || !output)
    return false;
  if (e.hasStack)
    contraction->transpose(e.registers.lanes);
  ContractionEmitter(e, *contraction, output).emit();
  return true;
}
