// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for element-wise operations and reductions, contractions included.

#include "bsr/Codegen/CPU/Kernels.h"
#include "LaneSums.h"
#include "SummedWindows.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Work items above which loops are kept inside of them.
static constexpr int64_t maxItems = 64;
/// Elements of a work item that divides lanes.
static constexpr int64_t itemElements = 2048;

namespace {
/// The parallel part of a nest: loops over `dims`, in steps of `tiles`, and
/// lanes.
struct Space {
  SmallVector<unsigned> dims;
  SmallVector<int64_t> tiles;
  SmallVector<int64_t> extents;
  std::optional<unsigned> lanes;
  int64_t laneExtent = 1;
  int64_t width = 1;
};
} // namespace

/// True if `memref` holds `tensor` in panels.
static bool isCut(Value memref, Value tensor) {
  return memref && cast<MemRefType>(memref.getType()).getRank() >
                       cast<RankedTensorType>(tensor.getType()).getRank();
}

/// Makes the panels of the lanes a loop of `space`, outside of the rows, if a
/// buffer of `op` with these lanes is cut in panels: a panel is one run of
/// memory.
static void cutLanes(Emitter &e, Space &space, linalg::GenericOp op,
                     const DenseMap<Value, Value> &outputs) {
  if (!e.panel || !space.lanes || space.laneExtent % e.panel ||
      space.laneExtent == e.panel)
    return;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  auto hasLanes = [&](AffineMap map) {
    return map.getNumResults() &&
           map.getResults().back().isFunctionOfDim(*space.lanes);
  };
  bool cut = false;
  for (OpOperand *input : op.getDpsInputOperands())
    cut |= isCut(e.getBuffer(input->get()), input->get()) &&
           hasLanes(maps[input->getOperandNumber()]);
  for (OpResult result : op->getResults())
    cut |= isCut(outputs.lookup(result), result) &&
           hasLanes(maps[op.getNumDpsInputs() + result.getResultNumber()]);
  if (!cut)
    return;
  size_t place = space.dims.empty() ? 0 : space.dims.size() - 1;
  space.dims.insert(space.dims.begin() + place, *space.lanes);
  space.tiles.insert(space.tiles.begin() + place, e.panel);
  space.extents.insert(space.extents.begin() + place, space.laneExtent);
  space.laneExtent = e.panel;
  space.width = std::min(space.width, e.panel);
}

/// Emits `body` at every point of `space`: the leading dimensions in parallel,
/// enough of them for every thread, the rest in loops, lanes innermost. If
/// there are few points, the lanes are divided among threads too.
static void emitSpace(Emitter &e, const Space &space, unsigned numLoops,
                      llvm::function_ref<void(SmallVector<Index>)> body) {
  SmallVector<int64_t> counts;
  for (auto [extent, tile] : llvm::zip_equal(space.extents, space.tiles))
    counts.push_back(extent / tile);
  unsigned split = 0;
  int64_t items = 1;
  while (split != counts.size() && items < maxItems)
    items *= counts[split++];

  auto inner = [&](ArrayRef<Index> outer, Value low, int64_t laneExtent) {
    e.nest(ArrayRef(counts).drop_front(split), {},
           [&](ArrayRef<Index> ivs, ValueRange) {
             SmallVector<Index> loops(numLoops, Index::constant(0));
             for (auto [number, dim] : llvm::enumerate(space.dims)) {
               Index iv = number < split ? outer[number] : ivs[number - split];
               loops[dim] =
                   e.multiplyAdd(iv, space.tiles[number], Index::constant(0));
             }
             if (!space.lanes) {
               body(loops);
             } else {
               Index panel = loops[*space.lanes];
               Value first = panel.isConstant() ? low : e.materialize(panel);
               e.forLanes(first, laneExtent, space.width, [&](Index lane) {
                 SmallVector<Index> at(loops);
                 at[*space.lanes] = lane;
                 body(at);
               });
             }
             return SmallVector<Value>();
           });
  };

  int64_t perPoint = 1;
  for (int64_t count : ArrayRef(counts).drop_front(split))
    perPoint *= count;
  int64_t chunk =
      llvm::alignTo(std::max<int64_t>(itemElements / perPoint, 1), space.width);
  bool isDivided = space.lanes && items < minItems / 2 &&
                   !llvm::is_contained(space.dims, *space.lanes);
  int64_t chunks = isDivided ? space.laneExtent / chunk : 0;
  ArrayRef<int64_t> outer = ArrayRef(counts).take_front(split);
  if (chunks < 2) {
    e.forall(outer, [&](ArrayRef<Index> at) {
      inner(at, e.constant(0), space.laneExtent);
    });
    return;
  }
  SmallVector<int64_t> divided(outer);
  divided.push_back(chunks);
  e.forall(divided, [&](ArrayRef<Index> at) {
    Index low = e.multiplyAdd(at.back(), chunk, Index::constant(0));
    inner(at.drop_back(), e.materialize(low), chunk);
  });
  int64_t rest = space.laneExtent - chunks * chunk;
  if (rest)
    e.forall(outer, [&](ArrayRef<Index> at) {
      inner(at, e.constant(chunks * chunk), rest);
    });
}

/// True if elements along loop `dim` of an operand with `map` and `shape` lie
/// side by side; nothing if the operand does not depend on `dim`.
static std::optional<bool> isAdjacent(AffineMap map, ArrayRef<int64_t> shape,
                                      unsigned dim) {
  bool trailing = true;
  for (auto [expr, extent] :
       llvm::reverse(llvm::zip_equal(map.getResults(), shape))) {
    if (expr.isFunctionOfDim(dim))
      return trailing;
    trailing &= extent == 1;
  }
  return std::nullopt;
}

/// The loop to run lanes along: the one with the fewest operands that are not
/// adjacent along it; the results' last one if equal. `isCandidate` filters.
static std::optional<unsigned>
chooseLanes(linalg::GenericOp op,
            llvm::function_ref<bool(unsigned)> isCandidate) {
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<std::optional<unsigned>> results = getResultLoops(op);
  std::optional<unsigned> best;
  std::tuple<double, int64_t, int64_t> bestCost;
  for (unsigned dim = 0; dim != ranges.size(); ++dim) {
    if (ranges[dim] == 1 || !isCandidate(dim))
      continue;
    double strided = 0;
    for (OpOperand &operand : op->getOpOperands()) {
      auto type = dyn_cast<RankedTensorType>(operand.get().getType());
      if (!type)
        continue;
      std::optional<bool> adjacent =
          isAdjacent(maps[operand.getOperandNumber()], type.getShape(), dim);
      if (adjacent && !*adjacent)
        strided +=
            op.isDpsInit(&operand) && op.getNumReductionLoops() ? 0.5 : 1;
    }
    // Short lanes last; then the innermost loop of the results.
    int64_t position = -1;
    for (auto [number, loop] : llvm::enumerate(results))
      if (loop == dim)
        position = number;
    std::tuple<double, int64_t, int64_t> cost{strided, ranges[dim] < 4,
                                              -position};
    if (!best || cost < bestCost) {
      best = dim;
      bestCost = cost;
    }
  }
  return best;
}

/// The most operations of a point for which points are unrolled.
static constexpr int64_t maxUnrolled = 16;

/// The loop of `op` that result 0 has at `position`.
static unsigned getLoop(linalg::GenericOp op, unsigned position) {
  AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs()];
  return cast<AffineDimExpr>(map.getResult(position)).getPosition();
}

/// True if vectors along loop `lanes` of `op` go across the elements of
/// `operand`, which lie side by side along loop `across`.
static bool isCrossed(OpOperand *operand, unsigned lanes, unsigned across) {
  auto op = cast<linalg::GenericOp>(operand->getOwner());
  auto type = dyn_cast<RankedTensorType>(operand->get().getType());
  if (!type || !type.getElementType().isIntOrFloat() ||
      type.getElementTypeBitWidth() < 8)
    return false;
  AffineMap map = op.getMatchingIndexingMap(operand);
  auto isFalse = [](std::optional<bool> known) { return known && !*known; };
  return map.isProjectedPermutation(/*allowZeroInResults=*/true) &&
         isFalse(isAdjacent(map, type.getShape(), lanes)) &&
         isAdjacent(map, type.getShape(), across).value_or(false);
}

/// The position in the results of another loop than the one at `lanes` along
/// which operands of `roots` lie that vectors go across: squares of these are
/// transposed in registers. Nothing if there is none, or if points of `roots`
/// are too much to be unrolled.
static std::optional<unsigned>
findCrossing(Emitter &e, ArrayRef<Operation *> roots, unsigned lanes) {
  int64_t numOps = 0;
  std::optional<unsigned> found;
  for (Operation *root : roots) {
    auto op = cast<linalg::GenericOp>(root);
    numOps += op.getBody()->getOperations().size();
    SmallVector<int64_t> ranges = op.getStaticLoopRanges();
    for (OpOperand *operand : op.getDpsInputOperands()) {
      // What is computed where it is read would be unrolled, too.
      if (isa<RankedTensorType>(operand->get().getType()) &&
          !e.getBuffer(getViewed(operand->get())))
        return std::nullopt;
      for (auto [position, loop] : llvm::enumerate(getResultLoops(op)))
        if (!found && loop && position != lanes &&
            ranges[*loop] % e.target.lanes == 0 &&
            isCrossed(operand, getLoop(op, lanes), *loop))
          found = position;
    }
  }
  return numOps <= maxUnrolled ? found : std::nullopt;
}

/// Reads a square of `operand` at `point`, in vectors along loop `across`, and
/// lets what reads its columns, along loop `lanes`, find them.
static void readSquare(Emitter &e, OpOperand *operand, ArrayRef<Index> point,
                       unsigned lanes, unsigned across) {
  auto op = cast<linalg::GenericOp>(operand->getOwner());
  AffineMap map = op.getMatchingIndexingMap(operand);
  SmallVector<Value> rows;
  for (int64_t lane = 0; lane != e.width; ++lane) {
    SmallVector<Index> from(point);
    from[lanes] = point[lanes].scalar().plus(lane);
    from[across].lanes = true;
    rows.push_back(e.read(operand->get(), applyMap(map, from)));
  }
  for (auto [number, column] : llvm::enumerate(e.transpose(rows))) {
    SmallVector<Index> to(point);
    to[across] = point[across].plus(number);
    e.remember(operand->get(), applyMap(map, to), column);
  }
}

void cpu::emitPointwise(Emitter &e, ArrayRef<Operation *> roots,
                        const DenseMap<Value, Value> &outputs) {
  auto first = cast<linalg::GenericOp>(roots.front());
  SmallVector<int64_t> ranges = first.getStaticLoopRanges();
  SmallVector<std::optional<unsigned>> order = getResultLoops(first);
  Space space;
  space.lanes = chooseLanes(first, [](unsigned) { return true; });
  if (space.lanes) {
    space.laneExtent = ranges[*space.lanes];
    space.width = std::min<int64_t>(
        2 * e.target.lanes, llvm::bit_floor<uint64_t>(space.laneExtent));
  }
  // Where the lanes and squares, if there are any, are in the results.
  std::optional<unsigned> lanes, across;
  if (space.lanes && e.target.lanes > 1 && space.laneExtent >= e.target.lanes) {
    lanes = llvm::find(order, space.lanes) - order.begin();
    across = findCrossing(e, roots, *lanes);
  }
  if (across)
    space.width = e.target.lanes;
  for (auto [position, dim] : llvm::enumerate(order)) {
    if (!dim || dim == space.lanes)
      continue;
    space.dims.push_back(*dim);
    space.tiles.push_back(position == across ? space.width : 1);
    space.extents.push_back(ranges[*dim]);
  }
  cutLanes(e, space, first, outputs);
  emitSpace(e, space, ranges.size(), [&](SmallVector<Index> loops) {
    SmallVector<Index> at =
        applyMap(first.getIndexingMapsArray()[first.getNumDpsInputs()], loops);
    // Everything is computed before anything is written: an output may lie
    // where an input lay.
    SmallVector<std::tuple<Value, Value, SmallVector<Index>>> results;
    auto compute = [&](linalg::GenericOp op, ArrayRef<Index> point) {
      for (OpResult result : op->getResults()) {
        Value output = outputs.lookup(result);
        if (!output)
          continue;
        SmallVector<Index> place =
            applyMap(op.getIndexingMapsArray()[op.getNumDpsInputs() +
                                               result.getResultNumber()],
                     point);
        results.push_back({e.read(result, place), output, place});
      }
    };
    llvm::SmallDenseSet<Value> prefetched;
    for (Operation *root : roots) {
      auto op = cast<linalg::GenericOp>(root);
      SmallVector<Index> point = getLoops(op, 0, at);
      if (!across) {
        e.prefetchInputs(
            op, point,
            [](Index index) {
              return index.lanes ? index.plus(prefetchedBytes / 4) : index;
            },
            prefetched);
        compute(op, point);
        continue;
      }
      unsigned lane = getLoop(op, *lanes), row = getLoop(op, *across);
      if (e.width == e.target.lanes)
        for (OpOperand *operand : op.getDpsInputOperands())
          if (isCrossed(operand, lane, row))
            readSquare(e, operand, point, lane, row);
      for (int64_t number = 0; number != space.width; ++number) {
        SmallVector<Index> each(point);
        each[row] = point[row].plus(number);
        compute(op, each);
      }
    }
    for (const auto &[value, output, place] : results)
      e.store(value, output, place);
  });
}

void cpu::emitReduction(Emitter &e, linalg::GenericOp op,
                        const DenseMap<Value, Value> &outputs) {
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  auto isReduced = [&](unsigned dim) {
    return kinds[dim] == utils::IteratorType::reduction;
  };
  bool combines =
      llvm::all_of(llvm::seq(op->getNumResults()), [&](unsigned result) {
        return getCombiner(op, result) != nullptr;
      });

  // Lanes along a parallel loop, or along a reduced one that is summed up last.
  Space space;
  std::optional<unsigned> lanes = chooseLanes(
      op, [&](unsigned dim) { return combines || !isReduced(dim); });
  bool reducedLanes = lanes && isReduced(*lanes);
  for (std::optional<unsigned> dim : getResultLoops(op)) {
    if (!dim || dim == lanes)
      continue;
    space.dims.push_back(*dim);
    space.tiles.push_back(1);
    space.extents.push_back(ranges[*dim]);
  }
  // Several registers: as many sums under way.
  int64_t width = 4 * e.target.lanes;
  if (lanes)
    width = std::min<int64_t>(width, llvm::bit_floor<uint64_t>(ranges[*lanes]));
  if (lanes && !reducedLanes) {
    space.lanes = lanes;
    space.laneExtent = ranges[*lanes];
    space.width = width;
  }
  SmallVector<unsigned> reduced;
  SmallVector<int64_t> extents;
  for (unsigned dim = 0; dim != ranges.size(); ++dim) {
    if (!isReduced(dim) || (reducedLanes && dim == *lanes))
      continue;
    reduced.push_back(dim);
    extents.push_back(ranges[dim]);
  }

  cutLanes(e, space, op, outputs);
  emitSpace(e, space, ranges.size(), [&](SmallVector<Index> loops) {
    auto getPlace = [&](unsigned result) {
      return applyMap(maps[op.getNumDpsInputs() + result], loops);
    };
    auto step = [&](ArrayRef<Index> ivs, std::optional<Index> lane,
                    ValueRange accumulators) {
      SmallVector<Index> at(loops);
      for (auto [dim, iv] : llvm::zip_equal(reduced, ivs))
        at[dim] = iv;
      if (lane)
        at[*lanes] = *lane;
      return llvm::map_to_vector(
          e.evaluate(op, at, accumulators),
          [&](Value value) { return e.broadcast(value); });
    };

    SmallVector<Value> totals;
    for (auto [result, init] : llvm::enumerate(op.getDpsInits()))
      totals.push_back(e.broadcast(e.read(init, getPlace(result))));
    if (!reducedLanes) {
      totals = e.nest(extents, totals,
                      [&](ArrayRef<Index> ivs, ValueRange accumulators) {
                        return step(ivs, std::nullopt, accumulators);
                      });
    } else {
      SmallVector<int64_t> all(extents);
      all.push_back(ranges[*lanes]);
      SmallVector<OpResult> sums(op->getResults());
      totals =
          emitSums(e, all, width, sums, totals,
                   [&](ArrayRef<Index> ivs, ValueRange accumulators) {
                     return step(ivs.drop_back(), ivs.back(), accumulators);
                   });
    }
    for (auto [result, total] : llvm::enumerate(totals))
      if (Value output = outputs.lookup(op->getResult(result)))
        e.store(total, output, getPlace(result));
  });
}

void cpu::emitNest(Emitter &e, ArrayRef<Operation *> roots,
                   const DenseMap<Value, Value> &outputs,
                   const PatternViews &patterns) {
  Operation *op = roots.front();
  if (SummedWindows::get(op))
    emitSummedWindows(e, op, outputs.lookup(op->getResult(0)), patterns);
  else if (isPointwise(op))
    emitPointwise(e, roots, outputs);
  else if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    if (!emitContraction(e, generic, outputs))
      emitReduction(e, generic, outputs);
  } else {
    emitSparse(e, op, outputs.lookup(op->getResult(0)), patterns);
  }
}
