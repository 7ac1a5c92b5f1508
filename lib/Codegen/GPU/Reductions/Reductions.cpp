// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that many threads share: each takes some of the terms of a result,
// so that neighbours read neighbouring elements; what they have is combined by
// shuffles and in shared memory, or, where a sum is so long that several blocks
// share it, by a second launch.

#include "bsr/Codegen/GPU/Reductions/Reductions.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Analysis/MemoryReads.h"
#include "bsr/Codegen/Common/ChainPoints.h"
#include "bsr/Codegen/Common/Combine.h"
#include "bsr/Codegen/Common/RowLoops.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr int64_t warp = 32;
/// Threads of a block.
static constexpr int64_t blockThreads = 256;
/// Results beyond which a thread for each is enough, if neighbours read
/// neighbouring elements then.
static constexpr int64_t manyResults = 1 << 16;
/// Terms that a thread should have at least.
static constexpr int64_t fewTerms = 4;

namespace {
/// Which threads sum which terms. Those of one block take `results` results,
/// `segments` threads each; `splits` blocks take the same ones.
struct Division {
  /// `busyBlocks` thread blocks keep the chip busy.
  Division(int64_t numResults, int64_t numTerms, bool areTermsAdjacent,
           int64_t busyBlocks);

  int64_t numResults;
  /// Neighbouring threads have neighbouring terms of one result, not one term
  /// of neighbouring results.
  bool areTermsAdjacent;
  int64_t results, segments, splits = 1;

  int64_t getNumGroups() const { return llvm::divideCeil(numResults, results); }
  /// Values of a result that are combined in shared memory: those of warps, or
  /// of threads.
  int64_t getNumShared() const {
    return areTermsAdjacent ? llvm::divideCeil(segments, warp) : segments;
  }
};
} // namespace

Division::Division(int64_t numResults, int64_t numTerms, bool areTermsAdjacent,
                   int64_t busyBlocks)
    : numResults(numResults), areTermsAdjacent(areTermsAdjacent) {
  if (areTermsAdjacent) {
    segments = warp;
    while (segments < blockThreads && segments * 2 * fewTerms <= numTerms &&
           numResults * segments < busyBlocks * blockThreads)
      segments *= 2;
    results = blockThreads / segments;
    while (results > 1 && results / 2 >= numResults)
      results /= 2;
  } else {
    // 8 floats are a sector of 32 bytes: fewer would waste what is read.
    results = warp;
    while (results > 8 && getNumGroups() < busyBlocks)
      results /= 2;
    segments = blockThreads / results;
    while (segments * results > warp && segments * fewTerms > numTerms)
      segments /= 2;
  }
  int64_t terms = numTerms / segments;
  while (getNumGroups() * splits < busyBlocks &&
         terms / (splits * 2) >= 2 * fewTerms)
    splits *= 2;
}

namespace {
/// A reduction: its loops, outermost first, and how it is divided.
struct Plan {
  SmallVector<unsigned> parallel, reduced;
  SmallVector<int64_t> results, terms;
  Division division;
};
} // namespace

/// The loops of `op` in the order in which the largest tensor that it reads
/// lies in memory; loops that do not go over it are outermost.
static SmallVector<unsigned> getOrder(linalg::GenericOp op,
                                      ArrayRef<int64_t> ranges) {
  SmallVector<int64_t> walk;
  int64_t most = 0;
  auto isLeaf = [](Value value) {
    Operation *producer = value.getDefiningOp();
    return !producer || !isInlinable(producer) ||
           (isa<linalg::GenericOp>(producer) && !isPointwise(producer));
  };
  for (const Read &access : getReads(op, isLeaf)) {
    int64_t size = 1;
    for (int64_t loop : access.at)
      size *= loop < 0 ? 1 : ranges[loop];
    if (size <= most)
      continue;
    most = size;
    walk = access.at;
  }
  SmallVector<unsigned> order;
  for (unsigned loop : llvm::seq(op.getNumLoops()))
    if (!llvm::is_contained(walk, loop))
      order.push_back(loop);
  for (int64_t loop : walk)
    if (loop >= 0 && !llvm::is_contained(order, loop))
      order.push_back(loop);
  return order;
}

/// The plan of `root`, if several threads should share each of its results.
static std::optional<Plan> getPlan(Operation *root) {
  auto op = dyn_cast<linalg::GenericOp>(root);
  if (!op || op.getNumReductionLoops() == 0)
    return std::nullopt;
  for (unsigned result : llvm::seq(op->getNumResults()))
    if (!getCombiner(op, result))
      return std::nullopt;
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  SmallVector<unsigned> parallel, reduced;
  bool areTermsAdjacent = false;
  for (unsigned loop : getOrder(op, ranges)) {
    if (ranges[loop] == 1)
      continue;
    areTermsAdjacent = kinds[loop] == utils::IteratorType::reduction;
    (areTermsAdjacent ? reduced : parallel).push_back(loop);
  }
  auto getExtents = [&](ArrayRef<unsigned> loops) {
    return llvm::map_to_vector(loops,
                               [&](unsigned loop) { return ranges[loop]; });
  };
  SmallVector<int64_t> results = getExtents(parallel);
  SmallVector<int64_t> terms = getExtents(reduced);
  int64_t numResults = llvm::product_of(results),
          numTerms = llvm::product_of(terms);
  if (numTerms < warp || numResults == 0 ||
      (numResults >= manyResults && !areTermsAdjacent))
    return std::nullopt;
  int64_t busyBlocks = getBusyBlocks(getChip(op));
  // Products of matrices read what their results share.
  if (linalg::isaContractionOpInterface(op) &&
      numResults >= busyBlocks * blockThreads)
    return std::nullopt;
  return Plan{parallel, reduced, results, terms,
              Division(numResults, numTerms, areTermsAdjacent, busyBlocks)};
}

Value bsr::gpu::shuffle(Evaluator &e, Value value, int64_t distance,
                        mlir::gpu::ShuffleMode mode) {
  OpBuilder &b = e.b;
  Type type = value.getType(), word = b.getI32Type();
  unsigned bits = type.getIntOrFloatBitWidth();
  if (bits == 32)
    return mlir::gpu::ShuffleOp::create(b, e.loc, value, distance, warp, mode)
        .getShuffleResult();
  Type integer = b.getIntegerType(bits);
  if (type != integer)
    value = arith::BitcastOp::create(b, e.loc, integer, value);
  if (bits < 32) {
    value = arith::ExtUIOp::create(b, e.loc, word, value);
    value = shuffle(e, value, distance, mode);
    value = arith::TruncIOp::create(b, e.loc, integer, value);
  } else {
    assert(bits == 64 && "expected numbers of at most 64 bits");
    Value half =
        arith::ConstantOp::create(b, e.loc, b.getIntegerAttr(integer, 32));
    Value high = arith::ShRUIOp::create(b, e.loc, value, half);
    auto move = [&](Value bits) -> Value {
      bits = arith::TruncIOp::create(b, e.loc, word, bits);
      bits = shuffle(e, bits, distance, mode);
      return arith::ExtUIOp::create(b, e.loc, integer, bits);
    };
    Value low = move(value);
    high = arith::ShLIOp::create(b, e.loc, move(high), half);
    value = arith::OrIOp::create(b, e.loc, low, high);
  }
  return type == integer ? value
                         : arith::BitcastOp::create(b, e.loc, type, value);
}

namespace {
/// A launch that takes reductions.
class SharedReduction {
public:
  SharedReduction(Evaluator &e, const Division &division, TypeRange types)
      : e(e), division(division), types(types) {}

  /// Combines what two threads have.
  using Combine =
      llvm::function_ref<SmallVector<Value>(ValueRange, ValueRange)>;
  /// What a thread has of result `n`: of its terms `first`, `first` + `step`
  /// and so on.
  using TakeTerms = llvm::function_ref<SmallVector<Value>(Index n, Index first,
                                                          int64_t step)>;
  /// Stores what split `split` of result `n` comes to, in all its threads.
  using Finish = llvm::function_ref<void(Index n, Index split, ValueRange)>;

  void emit(TakeTerms takeTerms, Combine combine, Finish finish);

private:
  void store(ValueRange values, Index number, Index result);
  SmallVector<Value> load(Index number, Index result);
  void ifTrue(Value condition, llvm::function_ref<void()> body);

  Evaluator &e;
  const Division &division;
  TypeRange types;
  /// Shared memory, for each type the values of all results.
  SmallVector<Value> shared;
};
} // namespace

void SharedReduction::store(ValueRange values, Index number, Index result) {
  Index at = e.multiplyAdd(number, division.results, result);
  for (auto [value, memory] : llvm::zip_equal(values, shared))
    memref::StoreOp::create(e.b, e.loc, value, memory, e.materialize(at));
}

SmallVector<Value> SharedReduction::load(Index number, Index result) {
  Index at = e.multiplyAdd(number, division.results, result);
  return llvm::map_to_vector(shared, [&](Value memory) -> Value {
    return memref::LoadOp::create(e.b, e.loc, memory, e.materialize(at));
  });
}

void SharedReduction::ifTrue(Value condition, llvm::function_ref<void()> body) {
  if (!condition)
    return body();
  auto guard = scf::IfOp::create(e.b, e.loc, condition);
  e.scope([&] {
    e.b.setInsertionPointToStart(guard.thenBlock());
    body();
  });
}

void SharedReduction::emit(TakeTerms takeTerms, Combine combine,
                           Finish finish) {
  OpBuilder &b = e.b;
  int64_t results = division.results, segments = division.segments;
  int64_t numShared = division.getNumShared();
  SmallVector<Type> attributions;
  if (numShared > 1)
    for (Type type : types)
      attributions.push_back(MemRefType::get(
          {numShared * results}, type, AffineMap(),
          mlir::gpu::AddressSpaceAttr::get(
              b.getContext(), mlir::gpu::AddressSpace::Workgroup)));
  Value one = e.constant(1);
  auto launch = mlir::gpu::LaunchOp::create(
      b, e.loc, e.constant(division.getNumGroups()),
      e.constant(division.splits), one, e.constant(results * segments), one,
      one,
      /*dynamicSharedMemorySize=*/Value(), /*asyncTokenType=*/Type(),
      /*asyncDependencies=*/ValueRange(), attributions);
  llvm::append_range(shared, launch.getWorkgroupAttributions());
  e.scope([&] {
    b.setInsertionPointToStart(&launch.getBody().front());
    mlir::gpu::TerminatorOp::create(b, e.loc);
    b.setInsertionPointToStart(&launch.getBody().front());
    Index thread = Index::of(launch.getThreadIds().x);
    Index group = Index::of(launch.getBlockIds().x);
    Index split = Index::constant(0);
    if (division.splits > 1)
      split = Index::of(launch.getBlockIds().y);
    Index result = Index::constant(0), segment = thread;
    if (division.areTermsAdjacent && results != 1)
      std::tie(result, segment) = e.split(thread, segments);
    else if (results != 1)
      std::tie(segment, result) = e.split(thread, results);
    Index n = e.multiplyAdd(group, results, result);
    // All threads come to barriers: those beyond the last result take it again.
    Value isInside;
    Index taken = n;
    if (division.numResults % results) {
      Value number = e.materialize(n);
      isInside = arith::CmpIOp::create(b, e.loc, arith::CmpIPredicate::ult,
                                       number, e.constant(division.numResults));
      taken = Index::of(arith::MinUIOp::create(
          b, e.loc, number, e.constant(division.numResults - 1)));
    }
    SmallVector<Value> values =
        takeTerms(taken, e.multiplyAdd(split, segments, segment),
                  segments * division.splits);
    Value isFirst = e.areZero(segment);
    if (division.areTermsAdjacent) {
      for (int64_t distance = std::min(warp, segments) / 2; distance;
           distance /= 2) {
        SmallVector<Value> others = llvm::map_to_vector(values, [&](Value v) {
          return shuffle(e, v, distance, mlir::gpu::ShuffleMode::DOWN);
        });
        values = combine(values, others);
      }
      if (numShared > 1) {
        auto [number, lane] = e.split(segment, warp);
        ifTrue(e.areZero(lane),
               [&, number = number] { store(values, number, result); });
      }
    } else if (numShared > 1) {
      store(values, segment, result);
    }
    if (numShared > 1)
      mlir::gpu::BarrierOp::create(b, e.loc);
    if (isInside)
      isFirst =
          isFirst
              ? arith::AndIOp::create(b, e.loc, isFirst, isInside).getResult()
              : isInside;
    ifTrue(isFirst, [&] {
      if (numShared > 1)
        values = e.loop(e.constant(1), e.constant(numShared), 1, values,
                        [&](Value number, ValueRange sums) {
                          return combine(sums, load(Index::of(number), result));
                        });
      finish(n, split, values);
    });
  });
}

SmallVector<Index> bsr::gpu::splitAll(Evaluator &e, Index number,
                                      ArrayRef<int64_t> extents) {
  SmallVector<Index> indices(extents.size());
  for (int64_t dim = extents.size() - 1; dim > 0; --dim)
    std::tie(number, indices[dim]) = e.split(number, extents[dim]);
  if (!indices.empty())
    indices.front() = number;
  return indices;
}

static SmallVector<Value> getNeutral(Evaluator &e, linalg::GenericOp op) {
  return llvm::map_to_vector(
      op->getResults(), [&](OpResult sum) { return createNeutral(e, sum); });
}

/// The point of `op` at which `loops`, of `extents`, are number `number`.
static SmallVector<Index> getPoint(Evaluator &e, linalg::GenericOp op,
                                   ArrayRef<unsigned> loops, Index number,
                                   ArrayRef<int64_t> extents) {
  SmallVector<Index> point(op.getNumLoops(), Index::constant(0));
  for (auto [loop, index] :
       llvm::zip_equal(loops, splitAll(e, number, extents)))
    point[loop] = index;
  return point;
}

static SmallVector<Value> combineAll(Evaluator &e, linalg::GenericOp op,
                                     ValueRange a, ValueRange b) {
  return llvm::map_to_vector(op->getResults(), [&](OpResult sum) {
    unsigned number = sum.getResultNumber();
    return combine(e, sum, a[number], b[number]);
  });
}

/// Stores `values`, the results of `op` at `point` but for what they start
/// from.
static void finish(Evaluator &e, linalg::GenericOp op, ArrayRef<Index> point,
                   ValueRange values, const DenseMap<Value, Value> &outputs) {
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values)) {
    Value output = outputs.lookup(result);
    if (!output)
      continue;
    SmallVector<Index> indices = getPlace(result, point);
    Value start = readInit(e, result, indices);
    e.store(combine(e, result, start, value), output, indices);
  }
}

static SmallVector<Type> getElementTypes(TypeRange types) {
  return llvm::map_to_vector(types,
                             [](Type t) { return getElementTypeOrSelf(t); });
}

/// Emits the launch that adds `partials` of the results of `op`, which `loops`,
/// of `extents`, go over.
static void addAll(Evaluator &e, linalg::GenericOp op, ArrayRef<unsigned> loops,
                   ArrayRef<int64_t> extents, ValueRange partials,
                   const DenseMap<Value, Value> &outputs) {
  ArrayRef<int64_t> shape = cast<MemRefType>(partials[0].getType()).getShape();
  int64_t count = shape[0], numResults = shape[1];
  Division division(numResults, count, /*areTermsAdjacent=*/numResults == 1,
                    getBusyBlocks(getChip(op)));
  division.splits = 1;
  auto add = [&](ValueRange a, ValueRange b) {
    return combineAll(e, op, a, b);
  };
  auto takeTerms = [&](Index n, Index first, int64_t step) {
    return e.loop(e.materialize(first), e.constant(count), step,
                  getNeutral(e, op), [&](Value split, ValueRange sums) {
                    return add(sums,
                               llvm::map_to_vector(partials, [&](Value memory) {
                                 return e.load(memory, {Index::of(split), n});
                               }));
                  });
  };
  SmallVector<Type> types = getElementTypes(op->getResultTypes());
  SharedReduction(e, division, types)
      .emit(takeTerms, add, [&](Index n, Index, ValueRange values) {
        finish(e, op, getPoint(e, op, loops, n, extents), values, outputs);
      });
}

void bsr::gpu::emitSumOfPartials(Evaluator &e, const Chain &chain,
                                 const Chain::Root &root, ValueRange partials,
                                 const DenseMap<Value, Value> &outputs) {
  SmallVector<unsigned> loops;
  SmallVector<int64_t> ranges = root.op.getStaticLoopRanges(), extents;
  for (int64_t loop : chain.getRows(root)) {
    loops.push_back(loop);
    extents.push_back(ranges[loop]);
  }
  addAll(e, root.op, loops, extents, partials, outputs);
}

/// Emits `op` as `plan` says.
static void emit(Evaluator &e, linalg::GenericOp op, const Plan &plan,
                 const DenseMap<Value, Value> &outputs, ValueRange scratch) {
  auto takeTerms = [&](Index n, Index first, int64_t step) {
    SmallVector<Index> point = getPoint(e, op, plan.parallel, n, plan.results);
    return e.loop(
        e.materialize(first), e.constant(llvm::product_of(plan.terms)), step,
        getNeutral(e, op), [&](Value k, ValueRange sums) {
          SmallVector<Index> inner(point);
          for (auto [loop, index] : llvm::zip_equal(
                   plan.reduced, splitAll(e, Index::of(k), plan.terms)))
            inner[loop] = index;
          return e.evaluate(op, inner, sums);
        });
  };
  auto add = [&](ValueRange a, ValueRange b) {
    return combineAll(e, op, a, b);
  };
  const Division &division = plan.division;
  SmallVector<Type> types = getElementTypes(op->getResultTypes());
  SharedReduction(e, division, types)
      .emit(takeTerms, add, [&](Index n, Index split, ValueRange values) {
        if (division.splits == 1)
          return finish(e, op, getPoint(e, op, plan.parallel, n, plan.results),
                        values, outputs);
        for (auto [value, memory] : llvm::zip_equal(values, scratch))
          e.store(value, memory, {split, n});
      });
  if (division.splits != 1)
    addAll(e, op, plan.parallel, plan.results, scratch, outputs);
}

/// How many threads take the sums of `op` along the lines of its pattern, if
/// several should share each.
static std::optional<Division> getDivision(ReduceVecOp op) {
  if (op.getNumBatchDims() || op.getMax())
    return std::nullopt;
  PatternType pattern = op.getPattern().getType();
  View lines = *getLineView(op);
  int64_t numLines = pattern.getNumLines(lines);
  int64_t length = pattern.getBlockExtent(getOther(lines));
  int64_t numTerms = llvm::divideCeil(pattern.getSlots(), numLines) * length;
  if (numTerms < warp)
    return std::nullopt;
  Division division(numLines * pattern.getBlockExtent(lines), numTerms,
                    /*areTermsAdjacent=*/op.getDim() == 0,
                    getBusyBlocks(getChip(op)));
  division.splits = 1;
  return division;
}

/// Emits the sums of `op` along the lines of its pattern.
static void emit(Evaluator &e, ReduceVecOp op, const Division &division,
                 Value output, const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  View lines = *getLineView(op);
  const PatternView &view = patterns.at({op.getPattern(), lines});
  int64_t height = pattern.getBlockExtent(lines);
  int64_t length = pattern.getBlockExtent(getOther(lines));
  Type type = getSumType(e.b, op.getValues().getType());
  auto add = [&](ValueRange a, ValueRange b) -> SmallVector<Value> {
    return {arith::AddFOp::create(e.b, e.loc, a.front(), b.front())};
  };
  auto takeTerms = [&](Index n, Index first, int64_t step) {
    auto [line, row] = e.split(n, height);
    Value low = loadIndex(e, view.ptr, line);
    Value high = loadIndex(e, view.ptr, line.plus(1));
    Value count = arith::MulIOp::create(
        e.b, e.loc, arith::SubIOp::create(e.b, e.loc, high, low),
        e.constant(length));
    return e.loop(e.materialize(first), count, step, getZeros(e, type, 1),
                  [&, row = row](Value k, ValueRange sum) {
                    auto [block, inBlock] = e.split(Index::of(k), length);
                    Index at = e.multiplyAdd(Index::of(low), 1, block);
                    SmallVector<Index> entry{
                        Index::of(loadIndex(e, view.slot, at)), row, inBlock};
                    if (op.getDim() == 1)
                      std::swap(entry[1], entry[2]);
                    Value value =
                        e.convert(e.read(op.getValues(), entry), type);
                    return add(sum, value);
                  });
  };
  auto finish = [&](Index n, Index, ValueRange values) {
    Value sum = values.front();
    if (op.getBackground())
      sum = addBackground(
          e, sum, e.read(op.getBackground(), {}), view,
          e.split(n, height).first,
          op.getDim() == 1 ? pattern.getRows() : pattern.getCols(), length);
    e.store(e.convert(sum, op.getVec().getType().getElementType()), output, n);
  };
  SharedReduction(e, division, type).emit(takeTerms, add, finish);
}

/// Emits the norms of all blocks of a product that is not stored: a thread
/// block has one, of whose entries each takes some.
static void emit(Evaluator &e, BlockScoresOp op, Value output) {
  ArrayRef<int64_t> grid = op.getScores().getType().getShape();
  int64_t rows = op.getBlockRows(), cols = op.getBlockCols();
  int64_t featureDim = op.getFeatureDim();
  Type type = getSumType(e.b, {op.getA().getType(), op.getB().getType()});
  SmallVector<int64_t> tokens(op.getA().getType().getShape());
  tokens.erase(tokens.begin() + featureDim);
  auto read = [&](Value x, ArrayRef<Index> at, Index feature) {
    return e.read(x, addFeature(at, featureDim, feature));
  };
  auto takeTerms = [&](Index n, Index first, int64_t step) {
    auto [blockRow, blockCol] = e.split(n, grid[1]);
    return e.loop(e.materialize(first), e.constant(rows * cols), step,
                  getZeros(e, type, 1),
                  [&, blockRow = blockRow,
                   blockCol = blockCol](Value k, ValueRange norm) {
                    auto [i, j] = e.split(Index::of(k), cols);
                    Index row = e.multiplyAdd(blockRow, rows, i);
                    Index col = e.multiplyAdd(blockCol, cols, j);
                    Value sum =
                        e.nest(tokens, getZeros(e, type, 1),
                               [&](ArrayRef<Index> at, ValueRange sum) {
                                 return SmallVector<Value>{multiplyAdd(
                                     e, read(op.getA(), at, row),
                                     read(op.getB(), at, col), sum.front())};
                               })
                            .front();
                    return SmallVector<Value>{
                        addToNorm(e, op.getNorm(), norm.front(), sum)};
                  });
  };
  auto combineNorms = [&](ValueRange a, ValueRange b) -> SmallVector<Value> {
    if (op.getNorm() == Norm::LInf)
      return {arith::MaximumFOp::create(e.b, e.loc, a.front(), b.front())};
    return {arith::AddFOp::create(e.b, e.loc, a.front(), b.front())};
  };
  auto finish = [&](Index n, Index, ValueRange values) {
    auto [blockRow, blockCol] = e.split(n, grid[1]);
    e.store(finishNorm(e, op.getNorm(), values.front()), output,
            {blockRow, blockCol});
  };
  // A term is a sum itself: one is enough for a thread.
  Division division(llvm::product_of(grid), rows * cols * fewTerms,
                    /*areTermsAdjacent=*/true, getBusyBlocks(getChip(op)));
  division.splits = 1;
  SharedReduction(e, division, type).emit(takeTerms, combineNorms, finish);
}

SmallVector<MemRefType> bsr::gpu::getReductionScratch(Operation *op) {
  SmallVector<MemRefType> types;
  if (std::optional<Plan> plan = getPlan(op); plan && plan->division.splits > 1)
    for (Type type : getElementTypes(op->getResultTypes()))
      types.push_back(MemRefType::get(
          {plan->division.splits, plan->division.numResults}, type));
  return types;
}

bool bsr::gpu::emitReduction(Evaluator &e, Operation *op,
                             const DenseMap<Value, Value> &outputs,
                             const PatternViews &patterns, ValueRange scratch) {
  if (auto sums = dyn_cast<ReduceVecOp>(op)) {
    std::optional<Division> division = getDivision(sums);
    if (division)
      emit(e, sums, *division, outputs.lookup(sums.getVec()), patterns);
    return division.has_value();
  }
  if (auto scores = dyn_cast<BlockScoresOp>(op)) {
    if (scores.getBlockRows() * scores.getBlockCols() < warp)
      return false;
    emit(e, scores, outputs.lookup(scores.getScores()));
    return true;
  }
  std::optional<Plan> plan = getPlan(op);
  if (!plan)
    return false;
  emit(e, cast<linalg::GenericOp>(op), *plan, outputs, scratch);
  return true;
}
