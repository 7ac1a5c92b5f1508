// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops over the elements of an operation.

#include "bsr/Codegen/Common/Nests.h"
#include "AttentionLoops.h"
#include "bsr/Codegen/Common/GroupLoops.h"
#include "bsr/Codegen/Common/RowLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;

/// Element-wise operations and reductions: a loop for each parallel dimension,
/// in the order in which results lie in memory, and for each reduced one
/// inside.
static void emitGeneric(Evaluator &e, linalg::GenericOp op,
                        const DenseMap<Value, Value> &outputs) {
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<unsigned> parallel, reduced;
  for (auto [dim, kind] : llvm::enumerate(op.getIteratorTypesArray()))
    (kind == utils::IteratorType::reduction ? reduced : parallel)
        .push_back(dim);
  AffineMap written = op.getIndexingMapMatchingResult(op->getResult(0));
  llvm::sort(parallel, [&](unsigned x, unsigned y) {
    auto getPlace = [&](unsigned dim) {
      AffineExpr expr = getAffineDimExpr(dim, op.getContext());
      return std::pair(written.getResultPosition(expr).value_or(0), dim);
    };
    return getPlace(x) < getPlace(y);
  });
  auto getExtents = [&](ArrayRef<unsigned> dims) {
    return llvm::map_to_vector(dims, [&](unsigned dim) { return ranges[dim]; });
  };
  auto setLoops = [](ArrayRef<unsigned> dims, ArrayRef<Index> ivs,
                     SmallVector<Index> &loops) {
    for (auto [dim, iv] : llvm::zip_equal(dims, ivs))
      loops[dim] = iv;
  };
  e.forEach(getExtents(parallel), [&](ArrayRef<Index> ivs) {
    SmallVector<Index> loops(ranges.size(), Index::constant(0));
    setLoops(parallel, ivs, loops);
    auto getPlace = [&](OpResult result) {
      return applyMap(op.getIndexingMapMatchingResult(result), loops);
    };
    SmallVector<Value> values;
    if (reduced.empty()) {
      values = e.evaluate(op, loops);
    } else {
      for (OpResult result : op->getResults())
        values.push_back(e.read(op.getDpsInits()[result.getResultNumber()],
                                getPlace(result)));
      values = e.nest(getExtents(reduced), values,
                      [&](ArrayRef<Index> ivs, ValueRange accumulators) {
                        SmallVector<Index> point(loops);
                        setLoops(reduced, ivs, point);
                        return e.evaluate(op, point, accumulators);
                      });
    }
    for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
      if (Value output = outputs.lookup(result))
        e.store(value, output, getPlace(result));
  });
}

/// The extents of `activations` but that of its features.
static SmallVector<int64_t> getTokens(Type activations, int64_t featureDim) {
  SmallVector<int64_t> extents(cast<RankedTensorType>(activations).getShape());
  extents.erase(extents.begin() + featureDim);
  return extents;
}

/// `place` at point `batch` of the leading dimensions.
static SmallVector<Index> addBatch(ArrayRef<Index> batch,
                                   ArrayRef<Index> place) {
  SmallVector<Index> result(batch);
  llvm::append_range(result, place);
  return result;
}

/// The extents of the `number` leading dimensions of `tensor`.
static ArrayRef<int64_t> getBatch(Value tensor, int64_t number) {
  return cast<RankedTensorType>(tensor.getType()).getShape().take_front(number);
}

static void emitSpMM(Evaluator &e, SpMMOp op, Value output,
                     const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  View lines = *getLineView(op);
  const PatternView &view = patterns.at({op.getPattern(), lines});
  int64_t outBlock = pattern.getBlockExtent(lines);
  int64_t inBlock = pattern.getBlockExtent(getOther(lines));
  int64_t featureDim = op.getFeatureDim();
  Type sumType = getSumType(e.b, {op.getValues().getType(), op.getX().getType(),
                                  op.getY().getType()});
  SmallVector<int64_t> extents{pattern.getNumLines(lines), outBlock};
  llvm::append_range(extents, getTokens(op.getY().getType(), featureDim));
  e.forEach(extents, [&](ArrayRef<Index> at) {
    ArrayRef<Index> tokens = at.drop_front(2);
    Index feature = e.multiplyAdd(at[0], outBlock, at[1]);
    Value start = op.getBias()
                      ? e.convert(e.read(op.getBias(), feature), sumType)
                      : getZeros(e, sumType, 1).front();
    auto addBlock = [&](Index slot, Index position, ValueRange sum) {
      return e.loop(inBlock, sum, [&](Index k, ValueRange sum) {
        SmallVector<Index> entry{slot, k, at[1]};
        if (op.getTranspose())
          std::swap(entry[1], entry[2]);
        Index from = e.multiplyAdd(position, inBlock, k);
        Value w =
            e.read(op.getValues(),
                   addBatch(tokens.take_front(op.getNumBatchDims()), entry));
        Value x = e.read(op.getX(), addFeature(tokens, featureDim, from));
        return SmallVector<Value>{multiplyAdd(e, w, x, sum.front())};
      });
    };
    Value sum = forBlocks(e, view, at[0], start, addBlock).front();
    Value y = e.convert(sum, op.getY().getType().getElementType());
    e.store(y, output, addFeature(tokens, featureDim, feature));
  });
}

/// The sum over tokens of `a` at feature `row` times `b` at feature `col`, at
/// point `batch` of the leading dimensions.
static Value emitDot(Evaluator &e, Value a, Index row, Value b, Index col,
                     int64_t featureDim, Type sumType,
                     ArrayRef<Index> batch = {}) {
  SmallVector<int64_t> extents = getTokens(a.getType(), featureDim);
  return e
      .nest(ArrayRef(extents).drop_front(batch.size()), getZeros(e, sumType, 1),
            [&](ArrayRef<Index> at, ValueRange sum) {
              SmallVector<Index> tokens = addBatch(batch, at);
              Value x = e.read(a, addFeature(tokens, featureDim, row));
              Value y = e.read(b, addFeature(tokens, featureDim, col));
              return SmallVector<Value>{multiplyAdd(e, x, y, sum.front())};
            })
      .front();
}

/// Calls `body` for the points of `extents` of every block of `view`: the line,
/// the slot, the position along the line, and the point. Those of one block of
/// each line do not depend on each other.
static void forBlockPoints(
    Evaluator &e, const PatternView &view, int64_t lines,
    ArrayRef<int64_t> extents,
    llvm::function_ref<void(Index, Index, Index, ArrayRef<Index>)> body) {
  SmallVector<int64_t> all(extents);
  all.insert(all.begin(), lines);
  e.forEach(all, [&](ArrayRef<Index> at) {
    forBlocks(e, view, at.front(), {},
              [&](Index slot, Index position, ValueRange) {
                body(at.front(), slot, position, at.drop_front());
                return SmallVector<Value>();
              });
  });
}

/// Calls `body` for every entry of every block, by rows, at each point of
/// `batch`: the place of the entry in values, the point and its place in the
/// matrix.
static void forEntries(
    Evaluator &e, PatternType pattern, const PatternView &view,
    ArrayRef<int64_t> batch,
    llvm::function_ref<void(ArrayRef<Index>, ArrayRef<Index>, ArrayRef<Index>)>
        body) {
  int64_t rows = pattern.getBlockRows(), cols = pattern.getBlockCols();
  SmallVector<int64_t> extents(batch);
  extents.append({rows, cols});
  forBlockPoints(
      e, view, pattern.getGridRows(), extents,
      [&](Index line, Index slot, Index position, ArrayRef<Index> at) {
        ArrayRef<Index> point = at.drop_back(2);
        at = at.take_back(2);
        Index row = e.multiplyAdd(line, rows, at[0]);
        body(addBatch(point, {slot, at[0], at[1]}), point,
             {row, e.multiplyAdd(position, cols, at[1])});
      });
}

static void emitSDDMM(Evaluator &e, SDDMMOp op, Value output,
                      const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  Type outType = op.getValues().getType().getElementType();
  Type sumType =
      getSumType(e.b, {op.getA().getType(), op.getB().getType(), outType});
  forEntries(
      e, pattern, patterns.at({op.getPattern(), View::Rows}),
      getBatch(op.getValues(), op.getNumBatchDims()),
      [&](ArrayRef<Index> entry, ArrayRef<Index> batch, ArrayRef<Index> place) {
        Value sum = emitDot(e, op.getA(), place[0], op.getB(), place[1],
                            op.getFeatureDim(), sumType, batch);
        e.store(e.convert(sum, outType), output, entry);
      });
}

static void emitSample(Evaluator &e, SampleOp op, Value output,
                       const PatternViews &patterns) {
  forEntries(
      e, op.getPattern().getType(), patterns.at({op.getPattern(), View::Rows}),
      /*batch=*/{},
      [&](ArrayRef<Index> entry, ArrayRef<Index>, ArrayRef<Index> place) {
        SmallVector<Index> from(place);
        if (op.getTranspose())
          std::swap(from[0], from[1]);
        e.store(e.read(op.getDense(), from), output, entry);
      });
}

static void emitSampleVec(Evaluator &e, SampleVecOp op, Value output,
                          const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  bool alongCols = op.getDim() == 1;
  int64_t extent = alongCols ? pattern.getBlockCols() : pattern.getBlockRows();
  SmallVector<int64_t> extents(getBatch(op.getVec(), op.getNumBatchDims()));
  extents.push_back(extent);
  forBlockPoints(
      e, patterns.at({op.getPattern(), View::Rows}), pattern.getGridRows(),
      extents, [&](Index line, Index slot, Index position, ArrayRef<Index> at) {
        ArrayRef<Index> batch = at.drop_back();
        Index number = alongCols ? position : line;
        SmallVector<Index> place{slot, at.back(), Index::constant(0)};
        if (alongCols)
          std::swap(place[1], place[2]);
        Value value =
            e.read(op.getVec(),
                   addBatch(batch, e.multiplyAdd(number, extent, at.back())));
        e.store(value, output, addBatch(batch, place));
      });
}

static void emitBlockScores(Evaluator &e, BlockScoresOp op, Value output) {
  ArrayRef<int64_t> grid = op.getScores().getType().getShape();
  int64_t rows = op.getBlockRows(), cols = op.getBlockCols();
  Type sumType = getSumType(e.b, {op.getA().getType(), op.getB().getType()});
  e.forEach(grid, [&](ArrayRef<Index> block) {
    Value norm = e.nest({rows, cols}, getZeros(e, sumType, 1),
                        [&](ArrayRef<Index> at, ValueRange norm) {
                          Index row = e.multiplyAdd(block[0], rows, at[0]);
                          Index col = e.multiplyAdd(block[1], cols, at[1]);
                          Value sum = emitDot(e, op.getA(), row, op.getB(), col,
                                              op.getFeatureDim(), sumType);
                          return SmallVector<Value>{
                              addToNorm(e, op.getNorm(), norm.front(), sum)};
                        })
                     .front();
    e.store(finishNorm(e, op.getNorm(), norm), output, block);
  });
}

/// Background everywhere, then blocks.
static void emitToDense(Evaluator &e, ToDenseOp op, Value output,
                        const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  View lines = *getLineView(op);
  int64_t height = pattern.getBlockExtent(lines);
  int64_t length = pattern.getBlockExtent(getOther(lines));
  RankedTensorType type = op.getDense().getType();
  e.forEach(type.getShape(), [&](ArrayRef<Index> at) {
    Value background = op.getBackground()
                           ? e.read(op.getBackground(), {})
                           : getZeros(e, type.getElementType(), 1).front();
    e.store(background, output, at);
  });
  // A row of the result is one point's: where blocks lie is not known.
  forBlockPoints(
      e, patterns.at({op.getPattern(), lines}), pattern.getNumLines(lines),
      height, [&](Index line, Index slot, Index position, ArrayRef<Index> at) {
        Index row = e.multiplyAdd(line, height, at[0]);
        e.loop(length, {}, [&](Index k, ValueRange) {
          SmallVector<Index> entry{slot, at[0], k};
          if (op.getTranspose())
            std::swap(entry[1], entry[2]);
          Value value = e.read(op.getValues(), entry);
          e.store(value, output, {row, e.multiplyAdd(position, length, k)});
          return SmallVector<Value>();
        });
      });
}

static void emitReduceVec(Evaluator &e, ReduceVecOp op, Value output,
                          const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  View lines = *getLineView(op);
  const PatternView &view = patterns.at({op.getPattern(), lines});
  int64_t height = pattern.getBlockExtent(lines);
  int64_t length = pattern.getBlockExtent(getOther(lines));
  bool alongCols = op.getDim() == 1;
  Type sumType = getSumType(e.b, op.getValues().getType());
  SmallVector<int64_t> extents(getBatch(op.getValues(), op.getNumBatchDims()));
  extents.append({pattern.getNumLines(lines), height});
  e.forEach(extents, [&](ArrayRef<Index> point) {
    ArrayRef<Index> batch = point.drop_back(2), at = point.take_back(2);
    auto addBlock = [&](Index slot, Index, ValueRange sum) {
      return e.loop(length, sum, [&](Index k, ValueRange sum) {
        SmallVector<Index> entry{slot, at[1], k};
        if (alongCols)
          std::swap(entry[1], entry[2]);
        Value value =
            e.convert(e.read(op.getValues(), addBatch(batch, entry)), sumType);
        return SmallVector<Value>{addToVec(e, op, sum.front(), value)};
      });
    };
    Value sum = forBlocks(e, view, at[0], getVecStart(e, op, sumType), addBlock)
                    .front();
    if (op.getBackground())
      sum = addBackground(e, sum, e.read(op.getBackground(), {}), view, at[0],
                          alongCols ? pattern.getRows() : pattern.getCols(),
                          length);
    Value total = e.convert(sum, op.getVec().getType().getElementType());
    e.store(total, output,
            addBatch(batch, e.multiplyAdd(at[0], height, at[1])));
  });
}

void bsr::emitLoops(Evaluator &e, Operation *op,
                    const DenseMap<Value, Value> &outputs,
                    const PatternViews &patterns) {
  Value output = outputs.lookup(op->getResult(0));
  TypeSwitch<Operation *>(op)
      .Case([&](linalg::GenericOp op) { emitGeneric(e, op, outputs); })
      .Case([&](SpMMOp op) { emitSpMM(e, op, output, patterns); })
      .Case([&](SDDMMOp op) { emitSDDMM(e, op, output, patterns); })
      .Case([&](BlockScoresOp op) { emitBlockScores(e, op, output); })
      .Case([&](ToDenseOp op) { emitToDense(e, op, output, patterns); })
      .Case([&](SampleOp op) { emitSample(e, op, output, patterns); })
      .Case([&](SampleVecOp op) { emitSampleVec(e, op, output, patterns); })
      .Case([&](ReduceVecOp op) { emitReduceVec(e, op, output, patterns); })
      .Case([&](LiveOp op) { emitLive(e, op, output, patterns); })
      .Case([&](NumAbsentOp op) { emitNumAbsent(e, op, output, patterns); })
      .Case([&](ScatterAddOp op) {
        RankedTensorType rows = op.getRows().getType();
        e.forEach(rows.getDimSize(1), [&](ArrayRef<Index> at) {
          auto forFeatures = [&](auto body) { body(at.front()); };
          e.loop(rows.getDimSize(0), {}, [&](Index row, ValueRange) {
            emitClearedRow(e, op, output, row, forFeatures);
            return SmallVector<Value>();
          });
          emitAddedUpdates(e, op, output, forFeatures);
        });
      })
      .Case([&](GatherRowsOp op) { emitGatherRows(e, op, output, patterns); })
      .Case([&](ScatterRowsOp op) {
        emitScatterRows(e, op, output, patterns, RowTokens::of(e, op, {}));
      })
      .Case([&](ScoreRowsOp op) {
        emitScoreRows(e, op, output, RowTokens::of(e, op, {}));
      })
      .Case([&](GroupedMatmulOp op) { emitGroupedMatmul(e, op, output); })
      .Case([&](GroupedOuterOp op) { emitGroupedOuter(e, op, output); })
      .Case<AttentionOp, AttentionGradOp>([&](auto op) {
        emitAttentionLoops(e, Attention(op), outputs, patterns);
      });
}

/// True if an operation reads `result`, what a root of a cluster makes, and
/// neither the cluster nor a concatenation has it.
static bool needsScratch(const ClusterPlan &plan, OpResult result) {
  return !result.use_empty() && !plan.pieces.contains(result.getOwner()) &&
         !isa<tensor::ConcatOp>(result.getOwner()) &&
         llvm::none_of(result.getUsers(), llvm::IsaPred<YieldOp>);
}

SmallVector<MemRefType> bsr::getNestScratch(const ClusterPlan &plan) {
  SmallVector<MemRefType> types;
  for (Operation *root : plan.roots)
    for (OpResult result : root->getResults())
      if (needsScratch(plan, result))
        types.push_back(getDenseBufferType(result.getType()));
  return types;
}

static void emitAllLoops(Evaluator &e, ArrayRef<Operation *> nest,
                         const DenseMap<Value, Value> &outputs,
                         const PatternViews &patterns) {
  for (Operation *root : nest)
    emitLoops(e, root, outputs, patterns);
}

LogicalResult bsr::emitNests(Evaluator &e, KernelBody &kernel) {
  return emitNests(e, kernel, emitAllLoops);
}

LogicalResult bsr::emitNests(Evaluator &e, KernelBody &kernel,
                             EmitNest emitNest) {
  for (auto [argument, buffer] : kernel.inputs)
    e.setBuffer(argument, buffer);
  DenseMap<Value, Value> &outputs = kernel.outputs;
  ValueRange scratch = kernel.scratch;
  SmallVector<SmallVector<Operation *>> nests = kernel.plan.nests;
  if (kernel.plan.chain)
    for (Operation *root : kernel.plan.roots)
      nests.push_back({root});
  for (ArrayRef<Operation *> nest : nests) {
    SmallVector<OpResult> results;
    for (Operation *root : nest)
      llvm::append_range(results, root->getResults());
    for (OpResult result : results) {
      if (!needsScratch(kernel.plan, result))
        continue;
      outputs[result] = scratch.front();
      scratch = scratch.drop_front();
    }
    emitNest(e, nest, outputs, kernel.patterns);
    for (Value result : results)
      if (Value buffer = outputs.lookup(result))
        e.setBuffer(result, buffer);
  }
  return failure(e.hasFailed);
}
