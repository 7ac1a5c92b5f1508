// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of attention on tensor cores.
//
// Probabilities are computed again from what is known of the rows (Dao,
// "FlashAttention-2", ICLR 2024). What a warp has of a tile of scores goes from
// registers to the products that it is part of: for the gradients of keys and
// values its rows are keys, for those of queries they are queries, and scores
// are computed twice. So no thread block adds to the sums of another one.

#include "AttentionKernels.h"
#include "AttentionThreadBlock.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Stages of what a thread block goes through.
static constexpr int64_t numStages = 2;

namespace {
/// What is known of a row.
enum Statistic { Maximum, LogSum, Mean, numStatistics };

/// How one of the launches cuts an attention: a thread block has tokens of
/// one side, of which two matrices stay in shared memory, and goes through
/// those of the other side.
struct GradientTile {
  static GradientTile get(const AttentionOperands &operands, bool hasKeys);

  bool areHeld() const {
    constexpr int64_t mostHeld = 128;
    return own[0].matrix->getPaddedFeatures() +
               own[1].matrix->getPaddedFeatures() <=
           mostHeld;
  }
  int64_t getOwnBytes() const { return own[0].getBytes() + own[1].getBytes(); }
  int64_t getStatisticsBytes() const {
    return hasKeys ? numStatistics * other[0].tokens * int64_t(sizeof(float))
                   : 0;
  }
  int64_t getStageBytes() const {
    return other[0].getBytes() + other[1].getBytes() + getStatisticsBytes();
  }
  int64_t getSharedBytes() const {
    return getOwnBytes() + numStages * getStageBytes();
  }

  bool hasKeys;
  /// Queries and the gradients of what they gave, or keys and values.
  std::array<AttentionTile, 2> own, other;
};

/// What a thread does.
class GradientEmitter {
public:
  GradientEmitter(const AttentionOperands &operands, const GradientTile &tile,
                  ArrayRef<AttentionResult> results, Value statistics,
                  KernelBody &kernel, BlockBuilder &b)
      : block(operands, kernel, b,
              tile.hasKeys ? operands.attention.getKeyDim()
                           : operands.attention.getQueryDim(),
              tile.own[0].tokens, tile.other[0].tokens),
        b(b), attention(operands.attention), tile(tile), results(results),
        statistics(statistics) {}

  LogicalResult emit();

private:
  /// Where statistic `statistic` of query `query` is, in elements.
  Value getPlace(Value statistic, Value query);
  void copyTile(Value first, Value to);
  SmallVector<Value> addTile(Value first, Value stage, ValueRange carried);
  /// Statistics of a score: those of its row, or, where rows are keys, of its
  /// column in a stage.
  std::array<SmallVector<Value>, numStatistics> loadStatistics(Value stage);

  AttentionThreadBlock block;
  BlockBuilder &b;
  const Attention &attention;
  const GradientTile &tile;
  ArrayRef<AttentionResult> results;
  Value statistics;
  std::array<LeftFragments, 2> own;
  /// Of the lane's rows, where these are queries.
  std::array<SmallVector<Value>, numStatistics> ofRows;
};
} // namespace

GradientTile GradientTile::get(const AttentionOperands &operands,
                               bool hasKeys) {
  auto getTiles = [&](bool areKeys, int64_t tokens) {
    return areKeys ? std::array{AttentionTile{&operands.k, tokens},
                                AttentionTile{&operands.v, tokens}}
                   : std::array{AttentionTile{&operands.q, tokens},
                                AttentionTile{&*operands.dy, tokens}};
  };
  int64_t rows = hasKeys ? operands.keyTile : operands.queryTile;
  int64_t cols = hasKeys ? operands.queryTile : operands.keyTile;
  GradientTile tile{hasKeys, getTiles(hasKeys, rows), {}};
  // Sums and left operands leave registers for so many columns: of each a lane
  // has half a score, half a gradient, and what is added to scores or masks
  // them.
  constexpr int64_t mostNumbers = 160;
  int64_t features = tile.own[0].matrix->getPaddedFeatures();
  int64_t both = features + tile.own[1].matrix->getPaddedFeatures();
  int64_t numbers = (hasKeys ? both : features) / 2;
  if (tile.areHeld())
    numbers += both / 4;
  int64_t halves =
      2 + (operands.attention.bias ? 1 : 0) + (operands.attention.mask ? 1 : 0);
  while (cols > fragmentRows && numbers + cols * halves / 2 > mostNumbers)
    cols /= 2;
  tile.other = getTiles(!hasKeys, cols);
  return tile;
}

/// Queries in memory for statistics: whole tiles.
static int64_t getPaddedQueries(const AttentionOperands &operands) {
  return llvm::alignTo(operands.attention.getQueries(), operands.queryTile);
}

Value GradientEmitter::getPlace(Value statistic, Value query) {
  int64_t padded = getPaddedQueries(block.operands);
  Value row = b.multiplyAdd(statistic, block.operands.batches, block.batch);
  return b.multiplyAdd(row, padded, query);
}

void GradientEmitter::copyTile(Value first, Value to) {
  for (const AttentionTile &operand : tile.other) {
    block.copy(operand, first, to);
    to = b.add(to, operand.getBytes());
  }
  if (!tile.hasKeys)
    return;
  Type f32 = b.b.getF32Type();
  int64_t queries = tile.other[0].tokens;
  PieceCopy copy{f32, /*rows=*/numStatistics, /*length=*/queries,
                 /*copied=*/copiedBytes / int64_t(sizeof(float)),
                 /*pitch=*/queries * int64_t(sizeof(float))};
  copy.emit(b, blockThreads, b.getPointer(statistics), to,
            [&](Value statistic, Value query) -> PieceCopy::Source {
              return {getPlace(statistic, b.add(first, query)),
                      /*isInside=*/Value()};
            });
}

std::array<SmallVector<Value>, numStatistics>
GradientEmitter::loadStatistics(Value stage) {
  std::array<SmallVector<Value>, numStatistics> loaded;
  Type f32 = b.b.getF32Type();
  int64_t cols = tile.other[0].tokens;
  Value begin =
      b.add(stage, tile.other[0].getBytes() + tile.other[1].getBytes());
  for (int64_t statistic = 0; statistic != numStatistics; ++statistic)
    for (int64_t j = 0; j != block.getNumColumns(); j += 2) {
      Value number = b.add(block.getColumn(j), statistic * cols);
      Value from = b.at(b.multiplyAdd(number, sizeof(float), begin));
      llvm::append_range(loaded[statistic], b.loadFloats(from, f32, 2));
    }
  return loaded;
}

SmallVector<Value> GradientEmitter::addTile(Value first, Value stage,
                                            ValueRange carried) {
  Value second = b.add(stage, tile.other[0].getBytes());
  FragmentSums products = own[0].multiply(tile.other[0], stage);
  AttentionThreadBlock::Scores scores = block.getScores(products, first);
  FragmentSums gradients = own[1].multiply(tile.other[1], second);
  auto known = tile.hasKeys ? loadStatistics(stage) : ofRows;
  // Queries beyond the last one have probabilities of 0; gradients of keys
  // beyond the last one are arbitrary, and replaced by 0.
  SmallVector<Value> isColumn(block.getNumColumns());
  if (!tile.hasKeys)
    isColumn = block.areColumns(first);
  Value zero = block.constant(0);
  for (int64_t j = 0; j != block.getNumColumns(); ++j)
    for (int64_t i = 0; i != 2; ++i) {
      int64_t sum = AttentionThreadBlock::getSum(i, j),
              query = tile.hasKeys ? j : i;
      // One after the other: the sum of both is as coarse as the maximum.
      Value x = block.sub(scores.x[sum], known[Maximum][query]);
      Value p = block.exp(block.sub(x, known[LogSum][query]));
      Value g = block.mul(p, block.sub(gradients[sum], known[Mean][query]));
      if (attention.mask)
        g = b.select(scores.isLive[sum], g, zero);
      if (isColumn[j])
        g = b.select(isColumn[j], g, zero);
      scores.x[sum] = p;
      gradients[sum] = g;
    }
  // Of the first matrix of `own`, and then, if these are keys, of values.
  int64_t numFirst = tile.own[0].matrix->getPaddedFeatures() / fragmentCols * 4;
  SmallVector<Value> next =
      addProducts(b, block.operands.type, carried.take_front(numFirst),
                  gradients, tile.other[0], stage);
  if (tile.hasKeys)
    llvm::append_range(next, addProducts(b, block.operands.type,
                                         carried.drop_front(numFirst), scores.x,
                                         tile.other[1], second));
  return next;
}

LogicalResult GradientEmitter::emit() {
  std::array<Value, 2> begins{b.constant(0),
                              b.constant(tile.own[0].getBytes())};
  if (attention.pattern && tile.hasKeys) {
    const PatternView &view =
        block.kernel.patterns.at({attention.pattern, View::Columns});
    block.follow(view.ptr, view.idx);
  } else if (attention.pattern) {
    ValueRange lines = block.kernel.plans.lookup(attention.op);
    block.follow(lines[0], lines[1]);
  }
  int64_t features = tile.own[0].matrix->getPaddedFeatures();
  for (auto [operand, begin] : llvm::zip_equal(tile.own, begins))
    block.copy(operand, block.firstRow, begin);
  if (tile.hasKeys)
    features += tile.own[1].matrix->getPaddedFeatures();
  SmallVector<Value> carried(features / fragmentCols * 4, block.constant(0));
  carried = block.runMainloop(
      b.constant(tile.getOwnBytes()), numStages, tile.getStageBytes(), carried,
      [&](Value first, Value to) { copyTile(first, to); },
      [&] {
        for (auto [left, operand, begin] :
             llvm::zip_equal(own, tile.own, begins)) {
          left = LeftFragments(b, block.operands.type, operand, begin);
          if (tile.areHeld())
            left.hold();
        }
        Type f32 = b.b.getF32Type();
        for (int64_t statistic = 0; !tile.hasKeys && statistic != numStatistics;
             ++statistic)
          for (int64_t i = 0; i != 2; ++i)
            ofRows[statistic].push_back(b.load(
                b.at(b.getPointer(statistics),
                     getPlace(b.constant(statistic), block.getRow(i)), f32),
                f32));
      },
      [&](Value first, Value stage, ValueRange carried) {
        return addTile(first, stage, carried);
      });
  Value scale = block.constant(attention.scale);
  int64_t done = 0;
  for (auto [number, result] : llvm::enumerate(results)) {
    int64_t count =
        tile.own[number].matrix->getPaddedFeatures() / fragmentCols * 4;
    if (result)
      block.storeRows(result, ValueRange(carried).slice(done, count),
                      [&, number = number](Value sum, int64_t) {
                        return number == 0 ? block.mul(sum, scale) : sum;
                      });
    done += count;
  }
  return failure(block.hasFailed);
}

namespace {
/// A `bsr.attention_grad` of 16-bit elements, as three launches: what is known
/// of the rows; the gradients of keys and values, by thread blocks that
/// have keys; those of queries, by others that have queries.
class AttentionGradient : public Product {
public:
  explicit AttentionGradient(const AttentionOperands &operands)
      : operands(operands) {}

  /// The lines of queries of the pattern: those of keys are followed.
  std::optional<PatternPlan> getPlan() override;
  /// Of each row its maximum, the logarithm of its sum, and what all gradients
  /// of its scores are less by, `sum(dy * y)`: `[3, batch..., queries]`.
  SmallVector<MemRefType> getScratch() override;
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  LogicalResult emitStatistics(OpBuilder &b, KernelBody &kernel, Value scratch);

  AttentionOperands operands;
};
} // namespace

std::optional<PatternPlan> AttentionGradient::getPlan() {
  const Attention &attention = operands.attention;
  if (!attention.pattern)
    return std::nullopt;
  SmallVector<MemRefType> types;
  for (Type type :
       ArrayRef(attention.pattern.getType().getIndexTypes(View::Rows))
           .take_front(2)) {
    auto tensor = cast<RankedTensorType>(type);
    types.push_back(
        MemRefType::get(tensor.getShape(), tensor.getElementType()));
  }
  auto emit = [types](OpBuilder &b, Location loc, const PatternView &view,
                      ValueRange arrays) {
    GPUEvaluator e(b, loc);
    for (auto [type, from, to] :
         llvm::zip_equal(types, std::array{view.ptr, view.idx}, arrays))
      e.forEach(type.getShape(), [&, from = from, to = to](ArrayRef<Index> at) {
        e.store(e.load(from, at), to, at);
      });
  };
  return PatternPlan{attention.op, attention.pattern, View::Rows,
                     std::move(types), emit};
}

SmallVector<MemRefType> AttentionGradient::getScratch() {
  SmallVector<int64_t> shape{numStatistics};
  llvm::append_range(shape, operands.attention.getBatch());
  shape.push_back(getPaddedQueries(operands));
  return {MemRefType::get(
      shape, Float32Type::get(operands.attention.op->getContext()))};
}

/// Emits the launch that finds what is known of the rows: of one without
/// anything that has probabilities of 0, and of those behind the last one, what
/// makes them so.
LogicalResult AttentionGradient::emitStatistics(OpBuilder &b,
                                                KernelBody &kernel,
                                                Value scratch) {
  const Attention &attention = operands.attention;
  Location loc = kernel.loc;
  GPUEvaluator e(b, loc);
  for (auto [argument, buffer] : kernel.inputs)
    e.setBuffer(argument, buffer);
  Type f32 = b.getF32Type();
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
  };
  auto emitRow = [&](ArrayRef<Index> item) {
    Index query = item.back();
    Value isNone;
    if (operands.isRagged(attention.getQueryDim(), operands.queryTile)) {
      Value number = e.materialize(query);
      Value last = e.constant(attention.getQueries() - 1);
      isNone = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, number,
                                     last);
      query = Index::of(arith::MinUIOp::create(b, loc, number, last));
    }
    SmallVector<Index> point(item.drop_back());
    auto read = [&](const AttentionTensor &tensor, Index feature) {
      SmallVector<Index> loops(point);
      loops.append({query, Index::constant(0), feature, feature});
      return e.convert(e.read(tensor.tensor, applyMap(tensor.map, loops)), f32);
    };
    auto readLse = [&](LsePart part) {
      SmallVector<Index> at{Index::constant(static_cast<int64_t>(part))};
      llvm::append_range(at, point);
      at.push_back(query);
      return e.read(attention.lse, at);
    };
    std::array<Value, numStatistics> row{readLse(LsePart::Maximum),
                                         readLse(LsePart::LogSum)};
    row[Mean] = e.loop(attention.getValueFeatures(), constant(0),
                       [&](Index feature, ValueRange sum) {
                         return SmallVector<Value>{multiplyAdd(
                             e, read(attention.dy, feature),
                             read(attention.y, feature), sum.front())};
                       })[0];
    if (attention.zeroEmpty) {
      Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ,
                                            row[Maximum], constant(-INFINITY));
      isNone = isNone ? arith::OrIOp::create(b, loc, isNone, isEmpty) : isEmpty;
    }
    std::array<double, numStatistics> none{0, INFINITY, 0};
    for (auto [statistic, value] : llvm::enumerate(row)) {
      if (isNone)
        value = arith::SelectOp::create(b, loc, isNone,
                                        constant(none[statistic]), value);
      SmallVector<Index> at{Index::constant(statistic)};
      llvm::append_range(at, item);
      e.store(value, scratch, at);
    }
  };
  e.forEach(cast<MemRefType>(scratch.getType()).getShape().drop_front(),
            emitRow);
  return failure(e.hasFailed);
}

LogicalResult AttentionGradient::emit(OpBuilder &b, KernelBody &kernel,
                                      ValueRange scratch) {
  const Attention &attention = operands.attention;
  if (failed(emitStatistics(b, kernel, scratch.front())))
    return failure();
  bool hasFailed = false;
  for (bool hasKeys : {true, false}) {
    GradientTile tile = GradientTile::get(operands, hasKeys);
    auto getResult = [&](const AttentionTensor &tensor, unsigned dim) {
      return AttentionResult::get(b, kernel, tensor, dim);
    };
    SmallVector<AttentionResult, 2> results;
    if (hasKeys) {
      results = {getResult(attention.dk, attention.getFeatureDim()),
                 getResult(attention.dv, attention.getValueFeatureDim())};
    } else {
      results = {getResult(attention.dq, attention.getFeatureDim())};
    }
    if (llvm::none_of(results, [](const AttentionResult &result) {
          return bool(result);
        }))
      continue;
    int64_t rows = tile.own[0].tokens;
    unsigned dim = tile.own[0].matrix->tokenDim;
    BlockBuilder::launch(
        b, kernel.loc, {operands.getNumTiles(dim, rows), operands.batches},
        AttentionThreadBlock::getThreads(rows), tile.getSharedBytes(),
        [&](BlockBuilder &block) {
          hasFailed |= failed(GradientEmitter(operands, tile, results,
                                              scratch.front(), kernel, block)
                                  .emit());
        });
  }
  return failure(hasFailed);
}

std::unique_ptr<Product>
bsr::gpu::matchGradient(const AttentionOperands &operands, GPUAttr target) {
  for (bool hasKeys : {false, true})
    if (GradientTile::get(operands, hasKeys).getSharedBytes() >
        findChip(target.getChip())->sharedLimit -
            BlockBuilder::sharedSymbolBytes)
      return nullptr;
  return std::make_unique<AttentionGradient>(operands);
}
