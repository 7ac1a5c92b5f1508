// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops for look-ups of rows by index and their gradients.

#include "bsr/Codegen/Common/RowLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;

SmallVector<Index> bsr::addFeature(ArrayRef<Index> tokens, int64_t dim,
                                   Index feature) {
  SmallVector<Index> place(tokens);
  place.insert(place.begin() + dim, feature);
  return place;
}

/// Row `row` of a block, and `feature` of that row: an entry of the block.
static SmallVector<Index> getEntry(Index row, Index feature, bool transpose) {
  return transpose ? SmallVector<Index>{feature, row}
                   : SmallVector<Index>{row, feature};
}

RowTokens RowTokens::of(Evaluator &e, ScatterRowsOp op, Value links) {
  return RowTokens(e, op.getIndices(), op.getNumRows(), links);
}

RowTokens RowTokens::of(Evaluator &e, ScoreRowsOp op, Value links) {
  return RowTokens(e, op.getIndices(), op.getNumRows(), links);
}

MemRefType RowTokens::getType(Value indices, int64_t numRows) {
  auto type = cast<RankedTensorType>(indices.getType());
  return MemRefType::get(numRows + type.getNumElements(),
                         IntegerType::get(indices.getContext(), 32));
}

SmallVector<Index> RowTokens::getPlace(Index number) {
  SmallVector<Index> place(shape.size(), Index::constant(0));
  for (int64_t dim = shape.size() - 1; dim > 0; --dim)
    std::tie(number, place[dim]) = e.split(number, shape[dim]);
  if (!place.empty())
    place.front() = number;
  return place;
}

Value RowTokens::readLink(Index item) { return loadIndex(e, links, item); }

void RowTokens::emitLinks() {
  auto store = [&](Value token, Value item) {
    Value link =
        arith::IndexCastOp::create(e.b, e.loc, e.b.getI32Type(), token);
    memref::StoreOp::create(e.b, e.loc, link, links, item);
  };
  e.loop(numRows, {}, [&](Index row, ValueRange) {
    store(e.constant(numTokens), e.materialize(row));
    return SmallVector<Value>();
  });
  // What is found last is the first of its row: tokens backwards.
  e.loop(numTokens, {}, [&](Index number, ValueRange) {
    Value token = arith::SubIOp::create(e.b, e.loc, e.constant(numTokens - 1),
                                        e.materialize(number));
    Value row =
        arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                   e.read(indices, getPlace(Index::of(token))));
    // Unsigned: a negative index is too large as well.
    Value isRow = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult,
                                        row, e.constant(numRows));
    auto guard = scf::IfOp::create(e.b, e.loc, isRow);
    e.scope([&] {
      e.b.setInsertionPointToStart(guard.thenBlock());
      Value item = e.materialize(
          e.multiplyAdd(Index::of(token), 1, Index::constant(numRows)));
      store(readLink(Index::of(row)), item);
      store(token, row);
    });
    return SmallVector<Value>();
  });
}

Value RowTokens::getFirst(Index row) {
  return links ? readLink(row) : e.constant(0);
}

Value RowTokens::addTokens(Index row, Value first, Value sum,
                           llvm::function_ref<Value(ArrayRef<Index>)> body) {
  auto add = [&](Value sum, Index token) -> Value {
    Value update = e.convert(body(getPlace(token)), sum.getType());
    return arith::AddFOp::create(e.b, e.loc, sum, update);
  };
  if (!links) {
    Value wanted = e.materialize(row);
    return e
        .loop(
            numTokens, sum,
            [&](Index token, ValueRange sums) -> SmallVector<Value> {
              Value other =
                  arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                             e.read(indices, getPlace(token)));
              Value isSame = arith::CmpIOp::create(
                  e.b, e.loc, arith::CmpIPredicate::eq, other, wanted);
              return {arith::SelectOp::create(
                  e.b, e.loc, isSame, add(sums.front(), token), sums.front())};
            })
        .front();
  }
  Type types[] = {first.getType(), sum.getType()};
  Location locs[] = {e.loc, e.loc};
  auto loop = scf::WhileOp::create(e.b, e.loc, TypeRange(types),
                                   ValueRange{first, sum});
  e.scope([&] {
    Block *before = e.b.createBlock(&loop.getBefore(), {}, types, locs);
    Value isToken =
        arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult,
                              before->getArgument(0), e.constant(numTokens));
    scf::ConditionOp::create(e.b, e.loc, isToken, before->getArguments());
  });
  e.scope([&] {
    Block *after = e.b.createBlock(&loop.getAfter(), {}, types, locs);
    Index token = Index::of(after->getArgument(0));
    Value next = add(after->getArgument(1), token);
    Value link = readLink(e.multiplyAdd(token, 1, Index::constant(numRows)));
    scf::YieldOp::create(e.b, e.loc, ValueRange{link, next});
  });
  return loop.getResult(1);
}

/// Zeros, and over them the blocks of the line that the index is in.
void bsr::emitGatherRows(Evaluator &e, GatherRowsOp op, Value output,
                         const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  View lines = *getLineView(op);
  const PatternView &view = patterns.at({op.getPattern(), lines});
  int64_t height = pattern.getBlockExtent(lines);
  int64_t length = pattern.getBlockExtent(getOther(lines));
  int64_t featureDim = op.getFeatureDim();
  RankedTensorType rows = op.getRows().getType();
  SmallVector<int64_t> tokens(op.getIndices().getType().getShape());
  // A point of a buffer in panels is a panel and a place in it. Panels divide
  // the last dimension, which may be that of the features.
  auto buffer = cast<MemRefType>(output.getType());
  bool isInPanels =
      buffer.getRank() > rows.getRank() && featureDim != rows.getRank() - 1;
  int64_t panel = isInPanels ? buffer.getShape().back() : 0;
  if (panel) {
    tokens.back() /= panel;
    tokens.push_back(panel);
  }
  e.forEach(tokens, [&](ArrayRef<Index> at) {
    SmallVector<Index> token(at);
    if (panel) {
      Index within = token.pop_back_val();
      token.back() = e.multiplyAdd(token.back(), panel, within);
    }
    e.loop(rows.getDimSize(featureDim), {}, [&](Index feature, ValueRange) {
      Value zero = getZeros(e, rows.getElementType(), 1).front();
      e.store(zero, output, addFeature(token, featureDim, feature));
      return SmallVector<Value>();
    });
    Value row = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                           e.read(op.getIndices(), token));
    // Unsigned: a negative index is too large as well.
    Value isRow =
        arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult, row,
                              e.constant(pattern.getNumLines(lines) * height));
    auto guard = scf::IfOp::create(e.b, e.loc, isRow);
    e.scope([&] {
      e.b.setInsertionPointToStart(guard.thenBlock());
      Index line, within;
      std::tie(line, within) = e.split(Index::of(row), height);
      forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
        return e.loop(length, {}, [&](Index k, ValueRange) {
          SmallVector<Index> entry = getEntry(within, k, op.getTranspose());
          Value value = e.read(op.getValues(), {slot, entry[0], entry[1]});
          Index feature = e.multiplyAdd(position, length, k);
          e.store(value, output, addFeature(token, featureDim, feature));
          return SmallVector<Value>();
        });
      });
    });
  });
}

void bsr::emitScatterRows(Evaluator &e, ScatterRowsOp op, Value output,
                          const PatternViews &patterns, RowTokens tokens) {
  PatternType pattern = op.getPattern().getType();
  View lines = *getLineView(op);
  const PatternView &view = patterns.at({op.getPattern(), lines});
  int64_t height = pattern.getBlockExtent(lines);
  int64_t length = pattern.getBlockExtent(getOther(lines));
  Type type = op.getValues().getType().getElementType();
  Type sumType = getSumType(e.b, op.getUpdates().getType());
  e.forEach(
      {pattern.getNumLines(lines), height, length}, [&](ArrayRef<Index> at) {
        Index row = e.multiplyAdd(at[0], height, at[1]);
        Value first = tokens.getFirst(row);
        SmallVector<Index> entry = getEntry(at[1], at[2], op.getTranspose());
        forBlocks(
            e, view, at[0], {}, [&](Index slot, Index position, ValueRange) {
              Index feature = e.multiplyAdd(position, length, at[2]);
              Value sum = tokens.addTokens(
                  row, first, getZeros(e, sumType, 1).front(),
                  [&](ArrayRef<Index> token) {
                    return e.read(
                        op.getUpdates(),
                        addFeature(token, op.getFeatureDim(), feature));
                  });
              e.store(e.convert(sum, type), output, {slot, entry[0], entry[1]});
              return SmallVector<Value>();
            });
      });
}

void bsr::emitScoreRows(Evaluator &e, ScoreRowsOp op, Value output,
                        RowTokens tokens) {
  Type sumType = getSumType(e.b, op.getUpdates().getType());
  SmallVector<int64_t> block{int64_t(op.getBlockRows()),
                             int64_t(op.getBlockCols())};
  unsigned rowDim = op.getTranspose();
  e.forEach(op.getScores().getType().getShape(), [&](ArrayRef<Index> at) {
    auto addRow = [&](Index i, ValueRange norm) {
      Index row = e.multiplyAdd(at[rowDim], block[rowDim], i);
      Value first = tokens.getFirst(row);
      return e.loop(block[1 - rowDim], norm, [&](Index k, ValueRange norm) {
        Index feature = e.multiplyAdd(at[1 - rowDim], block[1 - rowDim], k);
        Value sum = tokens.addTokens(
            row, first, getZeros(e, sumType, 1).front(),
            [&](ArrayRef<Index> token) {
              return e.read(op.getUpdates(),
                            addFeature(token, op.getFeatureDim(), feature));
            });
        return SmallVector<Value>{
            addToNorm(e, op.getNorm(), norm.front(), sum)};
      });
    };
    Value norm = e.loop(block[rowDim], getZeros(e, sumType, 1), addRow).front();
    e.store(finishNorm(e, op.getNorm(), norm), output, at);
  });
}

void bsr::emitClearedRow(Evaluator &e, ScatterAddOp op, Value output, Index row,
                         ForFeatures forFeatures) {
  Value zero = getZeros(e, op.getRows().getType().getElementType(), 1).front();
  forFeatures([&](Index feature) { e.store(zero, output, {row, feature}); });
}

void bsr::emitAddedUpdates(Evaluator &e, ScatterAddOp op, Value output,
                           ForFeatures forFeatures) {
  int64_t numRows = op.getRows().getType().getDimSize(0);
  auto addUpdates = [&](ArrayRef<Index> tokens, ValueRange) {
    Value row = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(),
                                           e.read(op.getIndices(), tokens));
    // Unsigned: a negative index is too large as well.
    Value isInside = arith::CmpIOp::create(
        e.b, e.loc, arith::CmpIPredicate::ult, row, e.constant(numRows));
    auto guard = scf::IfOp::create(e.b, e.loc, isInside);
    e.scope([&] {
      e.b.setInsertionPointToStart(guard.thenBlock());
      forFeatures([&](Index feature) {
        Value update = e.broadcast(e.read(
            op.getUpdates(), addFeature(tokens, op.getFeatureDim(), feature)));
        SmallVector<Index> place{Index::of(row), feature};
        Value sum = e.load(output, place);
        e.store(arith::AddFOp::create(e.b, e.loc, sum, update), output, place);
      });
    });
    return SmallVector<Value>();
  };
  auto indices = cast<RankedTensorType>(op.getIndices().getType());
  e.nest(indices.getShape(), {}, addUpdates);
}
