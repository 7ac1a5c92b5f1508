// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops: one element after the other.

#include "bsr/Codegen/Scalar/Nests.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;

/// Element-wise operations and reductions: a loop for each parallel dimension,
/// and for each reduced one inside.
static void emitGeneric(Evaluator &e, linalg::GenericOp op,
                        const DenseMap<Value, Value> &outputs) {
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  SmallVector<unsigned> parallel, reduced;
  for (auto [dim, kind] : llvm::enumerate(op.getIteratorTypesArray()))
    (kind == utils::IteratorType::reduction ? reduced : parallel)
        .push_back(dim);
  auto getExtents = [&](ArrayRef<unsigned> dims) {
    return llvm::map_to_vector(dims, [&](unsigned dim) { return ranges[dim]; });
  };
  auto setLoops = [](ArrayRef<unsigned> dims, ArrayRef<Index> ivs,
                     SmallVector<Index> &loops) {
    for (auto [dim, iv] : llvm::zip_equal(dims, ivs))
      loops[dim] = iv;
  };
  e.nest(getExtents(parallel), {}, [&](ArrayRef<Index> ivs, ValueRange) {
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
    return SmallVector<Value>();
  });
}

/// `tokens`, the place in all other dimensions, with `feature`.
static SmallVector<Index> addFeature(ArrayRef<Index> tokens, int64_t dim,
                                     Index feature) {
  SmallVector<Index> place(tokens);
  place.insert(place.begin() + dim, feature);
  return place;
}

/// A loop for each dimension of `activations` but its features.
static SmallVector<Value> forTokens(
    Evaluator &e, Type activations, int64_t featureDim, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Index>, ValueRange)> body) {
  SmallVector<int64_t> extents(cast<RankedTensorType>(activations).getShape());
  extents.erase(extents.begin() + featureDim);
  return e.nest(extents, inits, body);
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
  forTokens(
      e, op.getY().getType(), featureDim, {},
      [&](ArrayRef<Index> tokens, ValueRange) {
        return e.nest(
            {pattern.getNumLines(lines), outBlock}, {},
            [&](ArrayRef<Index> at, ValueRange) {
              Index feature = e.multiplyAdd(at[0], outBlock, at[1]);
              Value start =
                  op.getBias()
                      ? e.convert(e.read(op.getBias(), feature), sumType)
                      : getZeros(e, sumType, 1).front();
              auto addBlock = [&](Index slot, Index position, ValueRange sum) {
                return e.loop(inBlock, sum, [&](Index k, ValueRange sum) {
                  SmallVector<Index> entry{slot, k, at[1]};
                  if (op.getTranspose())
                    std::swap(entry[1], entry[2]);
                  Index from = e.multiplyAdd(position, inBlock, k);
                  Value w = e.read(op.getValues(), entry);
                  Value x =
                      e.read(op.getX(), addFeature(tokens, featureDim, from));
                  return SmallVector<Value>{multiplyAdd(e, w, x, sum.front())};
                });
              };
              Value sum = forBlocks(e, view, at[0], start, addBlock).front();
              e.store(e.convert(sum, op.getY().getType().getElementType()),
                      output, addFeature(tokens, featureDim, feature));
              return SmallVector<Value>();
            });
      });
}

/// The sum over tokens of `a` at feature `row` times `b` at feature `col`.
static Value emitDot(Evaluator &e, Value a, Index row, Value b, Index col,
                     int64_t featureDim, Type sumType) {
  return forTokens(e, a.getType(), featureDim, getZeros(e, sumType, 1),
                   [&](ArrayRef<Index> tokens, ValueRange sum) {
                     Value x = e.read(a, addFeature(tokens, featureDim, row));
                     Value y = e.read(b, addFeature(tokens, featureDim, col));
                     return SmallVector<Value>{
                         multiplyAdd(e, x, y, sum.front())};
                   })
      .front();
}

/// Calls `body` for every block of every line of `view`: the line, the slot and
/// the position along the line.
static void forAllBlocks(Evaluator &e, const PatternView &view, int64_t lines,
                         llvm::function_ref<void(Index, Index, Index)> body) {
  e.loop(lines, {}, [&](Index line, ValueRange) {
    return forBlocks(e, view, line, {},
                     [&](Index slot, Index position, ValueRange) {
                       body(line, slot, position);
                       return SmallVector<Value>();
                     });
  });
}

/// Calls `body` for every point of `extents`.
static void forPoints(Evaluator &e, ArrayRef<int64_t> extents,
                      llvm::function_ref<void(ArrayRef<Index>)> body) {
  e.nest(extents, {}, [&](ArrayRef<Index> at, ValueRange) {
    body(at);
    return SmallVector<Value>();
  });
}

/// Calls `body` for every entry of every block, by rows: its slot, its place in
/// the block and in the matrix.
static void forEntries(
    Evaluator &e, PatternType pattern, const PatternView &view,
    llvm::function_ref<void(Index, ArrayRef<Index>, ArrayRef<Index>)> body) {
  int64_t rows = pattern.getBlockRows(), cols = pattern.getBlockCols();
  forAllBlocks(e, view, pattern.getGridRows(),
               [&](Index line, Index slot, Index position) {
                 forPoints(e, {rows, cols}, [&](ArrayRef<Index> at) {
                   body(slot, at,
                        {e.multiplyAdd(line, rows, at[0]),
                         e.multiplyAdd(position, cols, at[1])});
                 });
               });
}

static void emitSDDMM(Evaluator &e, SDDMMOp op, Value output,
                      const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  Type outType = op.getValues().getType().getElementType();
  Type sumType =
      getSumType(e.b, {op.getA().getType(), op.getB().getType(), outType});
  forEntries(e, pattern, patterns.at({op.getPattern(), View::Rows}),
             [&](Index slot, ArrayRef<Index> at, ArrayRef<Index> place) {
               Value sum = emitDot(e, op.getA(), place[0], op.getB(), place[1],
                                   op.getFeatureDim(), sumType);
               e.store(e.convert(sum, outType), output, {slot, at[0], at[1]});
             });
}

static void emitSample(Evaluator &e, SampleOp op, Value output,
                       const PatternViews &patterns) {
  forEntries(
      e, op.getPattern().getType(), patterns.at({op.getPattern(), View::Rows}),
      [&](Index slot, ArrayRef<Index> at, ArrayRef<Index> place) {
        SmallVector<Index> from(place);
        if (op.getTranspose())
          std::swap(from[0], from[1]);
        e.store(e.read(op.getDense(), from), output, {slot, at[0], at[1]});
      });
}

static void emitSampleVec(Evaluator &e, SampleVecOp op, Value output,
                          const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  bool alongCols = op.getDim() == 1;
  int64_t extent = alongCols ? pattern.getBlockCols() : pattern.getBlockRows();
  forAllBlocks(
      e, patterns.at({op.getPattern(), View::Rows}), pattern.getGridRows(),
      [&](Index line, Index slot, Index position) {
        Index number = alongCols ? position : line;
        forPoints(e, extent, [&](ArrayRef<Index> at) {
          SmallVector<Index> place{slot, at[0], Index::constant(0)};
          if (alongCols)
            std::swap(place[1], place[2]);
          e.store(e.read(op.getVec(), e.multiplyAdd(number, extent, at[0])),
                  output, place);
        });
      });
}

static void emitBlockScores(Evaluator &e, BlockScoresOp op, Value output) {
  ArrayRef<int64_t> grid = op.getScores().getType().getShape();
  int64_t rows = op.getBlockRows(), cols = op.getBlockCols();
  Type sumType = getSumType(e.b, {op.getA().getType(), op.getB().getType()});
  e.nest(grid, {}, [&](ArrayRef<Index> block, ValueRange) {
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
    return SmallVector<Value>();
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
  forPoints(e, type.getShape(), [&](ArrayRef<Index> at) {
    Value background = op.getBackground()
                           ? e.read(op.getBackground(), {})
                           : getZeros(e, type.getElementType(), 1).front();
    e.store(background, output, at);
  });
  forAllBlocks(e, patterns.at({op.getPattern(), lines}),
               pattern.getNumLines(lines),
               [&](Index line, Index slot, Index position) {
                 forPoints(e, {height, length}, [&](ArrayRef<Index> at) {
                   SmallVector<Index> entry{slot, at[0], at[1]};
                   if (op.getTranspose())
                     std::swap(entry[1], entry[2]);
                   e.store(e.read(op.getValues(), entry), output,
                           {e.multiplyAdd(line, height, at[0]),
                            e.multiplyAdd(position, length, at[1])});
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
  e.nest({pattern.getNumLines(lines), height}, {},
         [&](ArrayRef<Index> at, ValueRange) {
           auto addBlock = [&](Index slot, Index, ValueRange sum) {
             return e.loop(length, sum, [&](Index k, ValueRange sum) {
               SmallVector<Index> entry{slot, at[1], k};
               if (alongCols)
                 std::swap(entry[1], entry[2]);
               Value value = e.convert(e.read(op.getValues(), entry), sumType);
               return SmallVector<Value>{
                   arith::AddFOp::create(e.b, e.loc, sum.front(), value)};
             });
           };
           Value sum =
               forBlocks(e, view, at[0], getZeros(e, sumType, 1), addBlock)
                   .front();
           if (op.getBackground())
             sum = addBackground(
                 e, sum, e.read(op.getBackground(), {}), view, at[0],
                 alongCols ? pattern.getRows() : pattern.getCols(), length);
           e.store(e.convert(sum, op.getVec().getType().getElementType()),
                   output, e.multiplyAdd(at[0], height, at[1]));
           return SmallVector<Value>();
         });
}

/// Zeros everywhere, then each update in its order.
static void emitScatterAdd(Evaluator &e, ScatterAddOp op, Value output) {
  RankedTensorType rows = op.getRows().getType();
  int64_t features = rows.getDimSize(1);
  forPoints(e, rows.getShape(), [&](ArrayRef<Index> at) {
    e.store(getZeros(e, rows.getElementType(), 1).front(), output, at);
  });
  forTokens(e, op.getUpdates().getType(), op.getFeatureDim(), {},
            [&](ArrayRef<Index> tokens, ValueRange) {
              Value row =
                  arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                             e.read(op.getIndices(), tokens));
              // Unsigned: a negative index is too large as well.
              Value inside =
                  arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult,
                                        row, e.constant(rows.getDimSize(0)));
              auto guard = scf::IfOp::create(e.b, e.loc, inside);
              e.scope([&] {
                e.b.setInsertionPointToStart(guard.thenBlock());
                e.loop(features, {}, [&](Index feature, ValueRange) {
                  Value update =
                      e.read(op.getUpdates(),
                             addFeature(tokens, op.getFeatureDim(), feature));
                  SmallVector<Index> place{Index::of(row), feature};
                  Value sum = e.load(output, place);
                  e.store(arith::AddFOp::create(e.b, e.loc, sum, update),
                          output, place);
                  return SmallVector<Value>();
                });
              });
              return SmallVector<Value>();
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
      .Case([&](ScatterAddOp op) { emitScatterAdd(e, op, output); });
}
