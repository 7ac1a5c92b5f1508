// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for products of two dense tensors: attention, the language-model
// head, weights without a pattern.

#include "Contractions.h"
#include "SparseKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Summands of a tile of sums across lanes, so that its rows stay in the
/// first-level cache: 6 rows of 4 KiB.
static constexpr int64_t maxDotLength = 1024;

bool Contraction::isLast(unsigned operand, unsigned dim) const {
  auto type = cast<RankedTensorType>(op->getOperand(operand).getType());
  for (auto [expr, extent] : llvm::reverse(
           llvm::zip_equal(maps[operand].getResults(), type.getShape()))) {
    if (expr.isFunctionOfDim(dim))
      return true;
    if (extent != 1)
      return false;
  }
  return false;
}

Type Contraction::getFactorType(unsigned operand) const {
  BlockArgument element = op.getBody()->getArgument(operand);
  auto widened = element.hasOneUse()
                     ? dyn_cast<arith::ExtFOp>(*element.user_begin())
                     : arith::ExtFOp();
  return widened ? widened.getType() : element.getType();
}

bool Contraction::isProductOfBF16() const {
  Block *body = op.getBody();
  auto isFactor = [&](Value value, unsigned operand) {
    auto widened = value.getDefiningOp<arith::ExtFOp>();
    return widened && widened.getIn() == body->getArgument(operand) &&
           widened.getIn().getType().isBF16() && widened.getType().isF32();
  };
  auto sum =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  bool isLeft = sum.getLhs() == body->getArgument(2);
  if (!isLeft && sum.getRhs() != body->getArgument(2))
    return false;
  auto product =
      (isLeft ? sum.getRhs() : sum.getLhs()).getDefiningOp<arith::MulFOp>();
  return product &&
         ((isFactor(product.getLhs(), 0) && isFactor(product.getRhs(), 1)) ||
          (isFactor(product.getLhs(), 1) && isFactor(product.getRhs(), 0)));
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
  if (!llvm::all_of(op->getOperandTypes(), llvm::IsaPred<RankedTensorType>))
    return std::nullopt;
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
      if (!lanes && result.ranges[dim] >= 4 && result.isLast(2, dim) &&
          result.isLast(operand, dim) && !isIn(1 - operand, dim)) {
        lanes = dim;
        result.vectors = operand;
      }
  if (!lanes) {
    for (unsigned dim : result.reduced)
      if (!lanes && result.ranges[dim] >= 4 && result.isLast(0, dim) &&
          result.isLast(1, dim))
        lanes = dim;
    if (!lanes)
      return std::nullopt;
    result.dot = true;
    llvm::erase(result.reduced, *lanes);
    // Columns lie side by side in the result.
    for (unsigned dim : parallel)
      if (result.isLast(2, dim) && isIn(0, dim) != isIn(1, dim)) {
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
    (isRow ? result.inner : result.outer).push_back(dim);
  }
  for (unsigned dim : result.inner)
    if (!result.row || result.ranges[dim] >= result.ranges[*result.row])
      result.row = dim;
  if (result.row)
    llvm::erase(result.inner, *result.row);
  return result;
}

void Contraction::transpose(int64_t size) {
  int64_t numRows = (row ? ranges[*row] : 1) * getSize(inner);
  int64_t others = getSize(reduced);
  // What is left of squares is gathered.
  bool isWhole = ranges[lanes] % size == 0 || ranges[lanes] >= 4 * size;
  if (!dot || others > 32 || !isWhole || ranges[*col] < size ||
      numRows < 4 * CPUTarget::tileRows)
    return;
  dot = false;
  across = lanes;
  reduced.push_back(lanes);
  lanes = *col;
  col.reset();
}

void cpu::forPoints(Emitter &e, const Contraction &contraction,
                    ArrayRef<unsigned> dims, ArrayRef<Index> at,
                    llvm::function_ref<void(ArrayRef<Index>)> body) {
  e.nest(contraction.getExtents(dims), {},
         [&](ArrayRef<Index> ivs, ValueRange) {
           SmallVector<Index> point(at);
           for (auto [dim, iv] : llvm::zip_equal(dims, ivs))
             point[dim] = iv;
           body(point);
           return SmallVector<Value>();
         });
}

/// A work item is a block of columns. A tile of them stays in the first-level
/// cache while all rows sweep over it.
static void emitDotProduct(Emitter &e, const Contraction &c, Value output) {
  int64_t rowTile = c.row ? e.target.tileVectors() : 1;
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
    for (const Tiles &vectors : getVectors(laneExtent, e.target.lanes)) {
      int64_t done = vectors.base, size = vectors.size, count = vectors.count;
      llvm::SaveAndRestore width(e.width, size);
      int64_t unroll = getDivisor(count, e.target.panel() / size);
      SmallVector<Value> zeros(numSums,
                               e.broadcast(arith::ConstantOp::create(
                                   e.b, e.loc, e.b.getZeroAttr(type))));
      SmallVector<int64_t> extents = c.getExtents(inside);
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
    }
    llvm::SaveAndRestore width(e.width, cols.size);
    for (int64_t i = 0; i != rows.size; ++i) {
      SmallVector<Index> loops(points[i * cols.size]);
      loops[*c.col].lanes = cols.size > 1;
      Value sum =
          cols.size > 1
              ? vector::ExtractStridedSliceOp::create(
                    e.b, e.loc, total, i * cols.size, cols.size, 1)
                    .getResult()
              : vector::ExtractOp::create(e.b, e.loc, total, i).getResult();
      Value init = e.broadcast(e.read(c.init, c.getPlace(loops)));
      if (isFirst)
        init = arith::SelectOp::create(e.b, e.loc, isFirst, init,
                                       e.load(output, c.getPlace(loops)));
      Value all = arith::AddFOp::create(e.b, e.loc, init, sum);
      e.store(all, output, c.getPlace(loops));
    }
  };

  for (const Tiles &cols :
       tileWithRemainder(c.ranges[*c.col], CPUTarget::dotCols)) {
    SmallVector<int64_t> extents = c.getExtents(c.outer);
    int64_t others = 1;
    for (int64_t extent : extents)
      others *= extent;
    int64_t blocks =
        std::min<int64_t>(cols.count, llvm::divideCeil(minItems, others));
    int64_t perBlock = llvm::divideCeil(cols.count, blocks);
    extents.push_back(blocks);
    e.forall(extents, [&](ArrayRef<Index> item) {
      SmallVector<Index> at(c.ranges.size(), Index::constant(0));
      for (auto [dim, iv] : llvm::zip_equal(c.outer, item.drop_back()))
        at[dim] = iv;
      Index low = e.multiplyAdd(item.back(), perBlock, Index::constant(0));
      Value end = e.materialize(low.plus(perBlock));
      Value high =
          arith::MinUIOp::create(e.b, e.loc, end, e.constant(cols.count));
      forPoints(e, c, rounds, at, [&](ArrayRef<Index> at) {
        Value isFirst = e.areZero(
            llvm::map_to_vector(rounds, [&](unsigned dim) { return at[dim]; }));
        e.loop(e.materialize(low), high, 1, {}, [&](Value tile, ValueRange) {
          SmallVector<Index> point(at);
          point[*c.col] = e.multiplyAdd(Index::of(tile), cols.size,
                                        Index::constant(cols.base));
          forPoints(e, c, c.inner, point, [&](ArrayRef<Index> at) {
            for (const Tiles &rows : tileWithRemainder(rowExtent, rowTile))
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

bool cpu::acceptsEpilogue(Operation *op) {
  if (auto spmm = dyn_cast<SpMMOp>(op))
    return spmm.getNumBatchDims() == 0 &&
           Activations(spmm.getY().getType().getShape(), spmm.getFeatureDim())
               .hasLanes;
  auto generic = dyn_cast<linalg::GenericOp>(op);
  std::optional<Contraction> product =
      generic && canCompute(op) ? Contraction::match(generic) : std::nullopt;
  return product && !product->dot &&
         product->maps[2].isProjectedPermutation() &&
         product->maps[2].getResults().back() ==
             getAffineDimExpr(product->lanes, op->getContext());
}

SmallVector<MemRefType> cpu::getContractionMemory(Operation *op,
                                                  CPUTarget target) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  std::optional<Contraction> contraction =
      generic && !isPointwise(op) ? Contraction::match(generic) : std::nullopt;
  if (!contraction)
    return {};
  contraction->transpose(target.lanes);
  MemRefType type = getRowMemory(*contraction, target);
  return type ? SmallVector<MemRefType>{type} : SmallVector<MemRefType>();
}

bool cpu::emitContraction(Emitter &e, linalg::GenericOp op,
                          const DenseMap<Value, Value> &outputs,
                          Epilogue epilogue, ValueRange memory) {
  std::optional<Contraction> contraction = Contraction::match(op);
  Value output = outputs.lookup(op->getResult(0));
  if (!contraction || !output)
    return false;
  contraction->transpose(e.target.lanes);
  if (contraction->dot)
    emitDotProduct(e, *contraction, output);
  else
    emitBroadcastProduct(e, *contraction, output, epilogue,
                         memory.empty() ? Value() : memory.front());
  return true;
}
