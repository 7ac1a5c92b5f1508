// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention on tensor cores.
//
// A thread block has up to 64 queries at a point of the batch, 16 a warp,
// and goes through the keys 64 at a time, with running maxima and sums (Dao,
// "FlashAttention-2", ICLR 2024): queries are left operands and stay in
// registers, as do scores, whose powers are left operands of the product with
// values as they are.

#include "AttentionKernels.h"
#include "AttentionThreadBlock.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// The most stages of keys and values, as many thread blocks share a
/// multiprocessor.
static constexpr int64_t mostStages = 3;

namespace {
/// What a thread does.
class ForwardEmitter {
public:
  ForwardEmitter(const AttentionOperands &operands, int64_t stages,
                 const AttentionResult &y, KernelBody &kernel, BlockBuilder &b)
      : block(operands, kernel, b, operands.attention.getQueryDim(),
              operands.queryTile, operands.keyTile),
        b(b), attention(operands.attention), stages(stages),
        y(y), q{&block.operands.q, operands.queryTile},
        k{&block.operands.k, operands.keyTile}, v{&block.operands.v,
                                                  operands.keyTile} {}

  static int64_t getStageBytes(const AttentionOperands &operands) {
    return AttentionTile{&operands.k, operands.keyTile}.getBytes() +
           AttentionTile{&operands.v, operands.keyTile}.getBytes();
  }

  LogicalResult emit();

private:
  /// What is carried from tile to tile: of each of two rows its maximum, and
  /// what the lane has of its sum of powers; then the sums of values.
  SmallVector<Value> addTile(Value first, Value stage, ValueRange carried);
  void finish(ValueRange carried);

  AttentionThreadBlock block;
  BlockBuilder &b;
  const Attention &attention;
  int64_t stages;
  const AttentionResult &y;
  AttentionTile q, k, v;
  LeftFragments queries;
};
} // namespace

/// What a row's numbers are less by: its maximum, or 0 where that is negative
/// infinity, so that no difference is one of infinities.
static Value getBase(AttentionThreadBlock &block, Value largest) {
  BlockBuilder &b = block.b;
  Value isEmpty = arith::CmpFOp::create(b.b, b.loc, arith::CmpFPredicate::OEQ,
                                        largest, block.constant(-INFINITY));
  return b.select(isEmpty, block.constant(0), largest);
}

SmallVector<Value> ForwardEmitter::addTile(Value first, Value stage,
                                           ValueRange carried) {
  auto largerOf = [&](Value x, Value y) -> Value {
    return arith::MaximumFOp::create(b.b, b.loc, x, y);
  };
  FragmentSums x = block.getScores(queries.multiply(k, stage), first).x;
  SmallVector<Value> isKey = block.areColumns(first);
  Value none = block.constant(-INFINITY);
  int64_t columns = block.getNumColumns();
  FragmentSums sums(carried.drop_front(4));
  SmallVector<Value> next;
  SmallVector<Value, 2> totals;
  for (int64_t i = 0; i != 2; ++i) {
    Value largest;
    for (int64_t j = 0; j != columns; ++j) {
      Value &score = x[AttentionThreadBlock::getSum(i, j)];
      if (isKey[j])
        score = b.select(isKey[j], score, none);
      largest = largest ? largerOf(largest, score) : score;
    }
    largest = largerOf(carried[i], block.combineLanes(largest, largerOf));
    Value base = getBase(block, largest);
    Value factor = block.exp(block.sub(carried[i], base));
    Value total = block.mul(carried[2 + i], factor);
    for (int64_t j = 0; j != columns; ++j) {
      Value &score = x[AttentionThreadBlock::getSum(i, j)];
      score = block.exp(block.sub(score, base));
      total = block.add(total, score);
    }
    for (int64_t j = 0; 2 * j != int64_t(sums.size()); ++j) {
      Value &sum = sums[AttentionThreadBlock::getSum(i, j)];
      sum = block.mul(sum, factor);
    }
    next.push_back(largest);
    totals.push_back(total);
  }
  llvm::append_range(next, totals);
  llvm::append_range(next, addProducts(b, block.operands.type, sums, x, v,
                                       b.add(stage, k.getBytes())));
  return next;
}

void ForwardEmitter::finish(ValueRange carried) {
  SmallVector<Value, 2> totals, factors;
  for (int64_t i = 0; i != 2; ++i) {
    Value total = block.combineLanes(
        carried[2 + i], [&](Value x, Value y) { return block.add(x, y); });
    Value factor = arith::DivFOp::create(b.b, b.loc, block.constant(1), total);
    if (attention.zeroEmpty) {
      Value isEmpty = arith::CmpFOp::create(
          b.b, b.loc, arith::CmpFPredicate::OEQ, total, block.constant(0));
      factor = b.select(isEmpty, block.constant(0), factor);
    }
    totals.push_back(total);
    factors.push_back(factor);
  }
  if (y)
    block.storeRows(y, carried.drop_front(4), [&](Value sum, int64_t i) {
      return block.mul(sum, factors[i]);
    });
  Value lse = block.kernel.outputs.lookup(attention.lse);
  if (!lse)
    return;
  // Of the lanes of a row, the first one stores what is known of it.
  b.when(b.equal(b.rem(b.lane, 4), b.constant(0)), [&] {
    for (int64_t i = 0; i != 2; ++i)
      block.whenRow(i, [&] {
        auto store = [&](LsePart part, Value value) {
          SmallVector<Value> at{b.constant(static_cast<int64_t>(part))};
          llvm::append_range(at, block.batchAt);
          at.push_back(block.getRow(i));
          b.store(value, lse, at);
        };
        store(LsePart::Maximum, carried[i]);
        store(LsePart::LogSum, math::LogOp::create(b.b, b.loc, totals[i]));
      });
  });
}

LogicalResult ForwardEmitter::emit() {
  Value begin = b.constant(0), ring = b.constant(q.getBytes());
  if (attention.pattern) {
    const PatternView &view =
        block.kernel.patterns.at({attention.pattern, View::Rows});
    block.follow(view.ptr, view.idx);
  }
  block.copy(q, block.firstRow, begin);
  Value zero = block.constant(0);
  SmallVector<Value> carried(2, block.constant(-INFINITY));
  carried.append(2 + v.matrix->getPaddedFeatures() / fragmentCols * 4, zero);
  carried = block.runMainloop(
      ring, stages, getStageBytes(block.operands), carried,
      [&](Value first, Value to) {
        block.copy(k, first, to);
        block.copy(v, first, b.add(to, k.getBytes()));
      },
      [&] {
        queries = LeftFragments(b, block.operands.type, q, begin);
        queries.hold();
      },
      [&](Value first, Value stage, ValueRange carried) {
        return addTile(first, stage, carried);
      });
  finish(carried);
  return failure(block.hasFailed);
}

namespace {
/// A `bsr.attention` of 16-bit elements, whose scores stay in registers.
class AttentionForward : public Product {
public:
  AttentionForward(const AttentionOperands &operands, int64_t stages)
      : operands(operands), stages(stages) {}

  SmallVector<MemRefType> getScratch() override { return {}; }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  AttentionOperands operands;
  /// Stages of keys and values.
  int64_t stages;
};
} // namespace

LogicalResult AttentionForward::emit(OpBuilder &b, KernelBody &kernel,
                                     ValueRange) {
  AttentionTile q{&operands.q, operands.queryTile};
  int64_t sharedBytes =
      q.getBytes() + stages * ForwardEmitter::getStageBytes(operands);
  unsigned dim = operands.attention.getQueryDim();
  AttentionResult y = AttentionResult::get(
      b, kernel, operands.attention.y, operands.attention.getValueFeatureDim());
  bool hasFailed = false;
  BlockBuilder::launch(
      b, kernel.loc,
      {operands.getNumTiles(dim, operands.queryTile), operands.batches},
      AttentionThreadBlock::getThreads(operands.queryTile), sharedBytes,
      [&](BlockBuilder &block) {
        hasFailed |=
            failed(ForwardEmitter(operands, stages, y, kernel, block).emit());
      });
  return failure(hasFailed);
}

std::unique_ptr<Product>
bsr::gpu::matchForward(const AttentionOperands &operands, GPUAttr target) {
  constexpr int64_t leastStages = 2;
  AttentionTile q{&operands.q, operands.queryTile};
  int64_t stages = CopyPipeline::getStages(
      findChip(target.getChip())->sharedLimit - q.getBytes(),
      ForwardEmitter::getStageBytes(operands), mostStages);
  if (stages < leastStages)
    return nullptr;
  return std::make_unique<AttentionForward>(operands, stages);
}
