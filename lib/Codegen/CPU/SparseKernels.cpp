// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for the products and the other operations of the dialect.

#include "SparseKernels.h"
#include "bsr/Analysis/Windows.h"
#include "bsr/Codegen/Common/RowLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

void cpu::forLines(Emitter &e, const PatternView &view, int64_t lines,
                   int64_t parts, Index part,
                   llvm::function_ref<void(Index)> body, int64_t together) {
  if (parts == lines)
    return body(part);
  if (parts == 1) {
    e.loop(lines, {}, [&](Index line, ValueRange) {
      body(line);
      return SmallVector<Value>();
    });
    return;
  }
  auto work = [&](Value line) -> Value {
    Index first = e.multiplyAdd(Index::of(line), together, Index::constant(0));
    return arith::AddIOp::create(e.b, e.loc, loadIndex(e, view.ptr, first),
                                 line);
  };
  Value total = work(e.constant(lines));
  // The first line that has at least a share of `number` parts before it.
  auto find = [&](Index number) {
    Value goal =
        arith::MulIOp::create(e.b, e.loc, total, e.materialize(number));
    goal = arith::DivUIOp::create(e.b, e.loc, goal, e.constant(parts));
    return e.loop(
        llvm::Log2_64_Ceil(lines + 1), {e.constant(0), e.constant(lines)},
        [&](Index, ValueRange range) {
          Value sum = arith::AddIOp::create(e.b, e.loc, range[0], range[1]);
          Value middle = arith::DivUIOp::create(e.b, e.loc, sum, e.constant(2));
          Value above =
              arith::AddIOp::create(e.b, e.loc, middle, e.constant(1));
          Value less = arith::CmpIOp::create(
              e.b, e.loc, arith::CmpIPredicate::ult, work(middle), goal);
          return SmallVector<Value>{
              arith::SelectOp::create(e.b, e.loc, less, above, range[0]),
              arith::SelectOp::create(e.b, e.loc, less, range[1], middle)};
        })[0];
  };
  Value first = find(part), end = find(part.plus(1));
  e.loop(first, end, 1, {}, [&](Value line, ValueRange) {
    body(Index::of(line));
    return SmallVector<Value>();
  });
}

int64_t cpu::getParts(int64_t lines, int64_t others) {
  return std::min<int64_t>(lines, llvm::divideCeil(minItems, others));
}

/// A work item is a line of blocks of the dense matrix: background, then
/// blocks.
static void emitToDense(Emitter &e, ToDenseOp op, Value output,
                        const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  bool transpose = op.getTranspose();
  View walked = getView(transpose);
  const PatternView &view = patterns.at({op.getPattern(), walked});
  int64_t lines = pattern.getNumLines(walked);
  int64_t height = pattern.getBlockExtent(walked);
  int64_t length = pattern.getBlockExtent(getOther(walked));
  RankedTensorType type = op.getDense().getType();
  e.forall(lines, [&](ArrayRef<Index> item) {
    Index line = item.front();
    Value background =
        op.getBackground()
            ? e.read(op.getBackground(), {})
            : arith::ConstantOp::create(e.b, e.loc,
                                        e.b.getZeroAttr(type.getElementType()));
    auto rowOf = [&](Index i) { return e.multiplyAdd(line, height, i); };
    e.loop(height, {}, [&](Index i, ValueRange) {
      e.forLanes(e.constant(0), type.getDimSize(1), e.target.lanes,
                 [&](Index j) {
                   e.store(background, output, {rowOf(i), j});
                 });
      return SmallVector<Value>();
    });
    forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
      e.nest({height, length}, {}, [&](ArrayRef<Index> at, ValueRange) {
        SmallVector<Index> entry{slot, at[0], at[1]};
        if (transpose)
          std::swap(entry[1], entry[2]);
        e.store(e.read(op.getValues(), entry), output,
                {rowOf(at[0]), e.multiplyAdd(position, length, at[1])});
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  });
}

/// A work item is a block row.
static void emitSample(Emitter &e, SampleOp op, Value output,
                       const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), View::Rows});
  e.forall(pattern.getGridRows(), [&](ArrayRef<Index> item) {
    forBlocks(
        e, view, item.front(), {}, [&](Index slot, Index position, ValueRange) {
          e.nest(
              {pattern.getBlockRows(), pattern.getBlockCols()}, {},
              [&](ArrayRef<Index> at, ValueRange) {
                SmallVector<Index> entry{
                    e.multiplyAdd(item.front(), pattern.getBlockRows(), at[0]),
                    e.multiplyAdd(position, pattern.getBlockCols(), at[1])};
                if (op.getTranspose())
                  std::swap(entry[0], entry[1]);
                e.store(e.read(op.getDense(), entry), output,
                        {slot, at[0], at[1]});
                return SmallVector<Value>();
              });
          return SmallVector<Value>();
        });
  });
}

/// Rows are cleared first, each in one go; then a work item is some features
/// side by side.
static void emitVectorScatterAdd(Emitter &e, ScatterAddOp op, Value output) {
  RankedTensorType rows = op.getRows().getType();
  int64_t features = rows.getDimSize(1);
  int64_t chunk = std::min<int64_t>(2 * e.target.lanes,
                                    llvm::bit_floor<uint64_t>(features));
  e.forall(rows.getDimSize(0), [&](ArrayRef<Index> row) {
    emitClearedRow(e, op, output, row.front(), [&](auto body) {
      e.forLanes(e.constant(0), features, chunk, body);
    });
  });
  auto emitChunk = [&](Value low, int64_t extent) {
    emitAddedUpdates(e, op, output,
                     [&](auto body) { e.forLanes(low, extent, chunk, body); });
  };
  e.forall(features / chunk, [&](ArrayRef<Index> item) {
    Index low = e.multiplyAdd(item.front(), chunk, Index::constant(0));
    emitChunk(e.materialize(low), chunk);
  });
  if (features % chunk)
    emitChunk(e.constant(features - features % chunk), features % chunk);
}

/// `tensor` at the point of its leading dimensions at which these have `at`:
/// views of it in front of `b`, of one matrix.
static Value createPoint(OpBuilder &b, Location loc, Value tensor,
                         ValueRange at) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<OpFoldResult> offsets(at), sizes(at.size(), b.getIndexAttr(1));
  SmallVector<OpFoldResult> strides(type.getRank(), b.getIndexAttr(1));
  offsets.resize(type.getRank(), b.getIndexAttr(0));
  for (int64_t extent : type.getShape().drop_front(at.size()))
    sizes.push_back(b.getIndexAttr(extent));
  Value slice =
      tensor::ExtractSliceOp::create(b, loc, tensor, offsets, sizes, strides);
  SmallVector<ReassociationIndices> groups(type.getRank() - at.size());
  for (int64_t dim : llvm::seq(type.getRank()))
    groups[std::max<int64_t>(0, dim - static_cast<int64_t>(at.size()))]
        .push_back(dim);
  return tensor::CollapseShapeOp::create(b, loc, slice, groups);
}

/// The buffer of one point of the leading dimensions of `buffer`.
static Value createPoint(Emitter &e, Value buffer, ArrayRef<Value> at) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<OpFoldResult> offsets(at.begin(), at.end());
  SmallVector<OpFoldResult> sizes(at.size(), e.b.getIndexAttr(1));
  SmallVector<OpFoldResult> strides(type.getRank(), e.b.getIndexAttr(1));
  offsets.resize(type.getRank(), e.b.getIndexAttr(0));
  ArrayRef<int64_t> shape = type.getShape().drop_front(at.size());
  for (int64_t extent : shape)
    sizes.push_back(e.b.getIndexAttr(extent));
  MemRefType result = memref::SubViewOp::inferRankReducedResultType(
      shape, type, offsets, sizes, strides);
  return memref::SubViewOp::create(e.b, e.loc, result, buffer, offsets, sizes,
                                   strides);
}

/// Calls `emitOne` for the product `op` of one point of its batch, in a loop
/// over them: a product of views of `batched`, the operands with a batch, into
/// a part of `output`. Work items are those of one product.
template <typename OpTy>
static void emitBatch(Emitter &e, OpTy op, ArrayRef<Value> batched,
                      Value output,
                      llvm::function_ref<void(OpTy, Value)> emitOne) {
  ArrayRef<int64_t> batch =
      op.getValues().getType().getShape().take_front(op.getNumBatchDims());
  if (batch.empty())
    return emitOne(op, output);
  e.nest(batch, {}, [&](ArrayRef<Index> point, ValueRange) {
    e.scope([&] {
      SmallVector<Value> at = llvm::map_to_vector(
          point, [&](Index index) { return e.materialize(index); });
      // The offsets of the views are values of the kernel already.
      for (Value offset : at)
        e.setBuffer(offset, offset);
      OpBuilder b(op);
      IRMapping views;
      // Both operands may be one.
      llvm::SmallSetVector<Value, 2> operands(batched.begin(), batched.end());
      for (Value operand : operands)
        views.map(operand, createPoint(b, e.loc, operand, at));
      auto product = cast<OpTy>(b.clone(*op, views));
      product.setFeatureDim(op.getFeatureDim() - at.size());
      auto type = cast<RankedTensorType>(op->getResult(0).getType());
      product->getResult(0).setType(
          type.clone(type.getShape().drop_front(at.size())));
      emitOne(product, createPoint(e, output, at));
      product->erase();
      for (Value operand : operands) {
        Operation *view = views.lookup(operand).getDefiningOp();
        Operation *slice = view->getOperand(0).getDefiningOp();
        view->erase();
        slice->erase();
      }
    });
    return SmallVector<Value>();
  });
}

std::optional<View> cpu::getWalkedView(Operation *op, CPUTarget target) {
  if (auto sddmm = dyn_cast<SDDMMOp>(op))
    return getWalkedView(sddmm, *getSchedule(op, target).walk, target);
  std::optional<View> lines = getLineView(op);
  bool isScattered = isa<SpMMOp>(op) && !areSummedUp(op) &&
                     getSchedule(op, target).walk == Walk::Scatter;
  return isScattered ? getOther(*lines) : lines;
}

void cpu::emitSparse(Emitter &e, Operation *op, Value output,
                     const PatternViews &patterns) {
  TypeSwitch<Operation *>(op)
      .Case([&](SpMMOp op) {
        emitBatch<SpMMOp>(e, op, {op.getValues(), op.getX()}, output,
                          [&](SpMMOp product, Value part) {
                            if (op.getNumBatchDims())
                              emitGatheredSpMM(e, {product, part, patterns},
                                               getSchedule(op, e.target));
                            else
                              emitSpMM(e, product, part, patterns);
                          });
      })
      .Case([&](SDDMMOp op) {
        emitBatch<SDDMMOp>(e, op, {op.getA(), op.getB()}, output,
                           [&](SDDMMOp product, Value part) {
                             emitSDDMM(e, product, part, patterns,
                                       *getSchedule(op, e.target).walk);
                           });
      })
      .Case([&](BlockScoresOp op) { emitBlockScores(e, op, output); })
      .Case([&](ToDenseOp op) { emitToDense(e, op, output, patterns); })
      .Case([&](SampleOp op) { emitSample(e, op, output, patterns); })
      .Case([&](SampleVecOp op) { emitSampleVec(e, op, output, patterns); })
      .Case([&](ReduceVecOp op) { emitReduceVec(e, op, output, patterns); })
      .Case([&](LiveOp op) { emitLive(e, op, output, patterns); })
      .Case([&](NumAbsentOp op) { emitNumAbsent(e, op, output, patterns); })
      .Case([&](ScatterAddOp op) { emitVectorScatterAdd(e, op, output); });
}
