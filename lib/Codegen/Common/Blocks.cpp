// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels of every target share that go through the blocks of a pattern.

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Codegen/Common/NumberBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<View> bsr::getLineView(Operation *op) {
  auto kernel = dyn_cast<KernelOpInterface>(op);
  return kernel ? kernel.getLineView() : std::nullopt;
}

Type bsr::getSumType(OpBuilder &b, TypeRange types) {
  bool isDouble = llvm::any_of(
      types, [](Type t) { return getElementTypeOrSelf(t).isF64(); });
  return isDouble ? b.getF64Type() : b.getF32Type();
}

Value bsr::loadIndex(Evaluator &e, Value array, Index at) {
  Value value = memref::LoadOp::create(e.b, e.loc, array, e.materialize(at));
  return arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), value);
}

Index bsr::getNextBlock(Evaluator &e, Value block, PatternType pattern,
                        int64_t ahead) {
  return Index::of(arith::MinUIOp::create(
      e.b, e.loc, e.materialize(Index::of(block).plus(ahead)),
      e.constant(pattern.getSlots() - 1)));
}

SmallVector<Value> bsr::forBlocks(
    Evaluator &e, const PatternView &view, Index line, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(Index, Index, ValueRange)> body) {
  Value low = loadIndex(e, view.ptr, line);
  Value high = loadIndex(e, view.ptr, line.plus(1));
  return e.loop(low, high, 1, inits, [&](Value k, ValueRange carried) {
    Index slot = Index::of(loadIndex(e, view.slot, Index::of(k)));
    Index position = Index::of(loadIndex(e, view.idx, Index::of(k)));
    return body(slot, position, carried);
  });
}

Value bsr::multiplyAdd(Evaluator &e, Value a, Value c, Value sum) {
  Type type = getElementTypeOrSelf(sum.getType());
  a = e.broadcast(e.convert(a, type));
  c = e.broadcast(e.convert(c, type));
  return createMultiplyAdd(e.b, e.loc, a, c, sum);
}

SmallVector<Value> bsr::getZeros(Evaluator &e, Type type, int64_t count) {
  Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(type));
  return SmallVector<Value>(count, e.broadcast(zero));
}

Value bsr::addBackground(Evaluator &e, Value sum, Value background,
                         const PatternView &view, Index line, int64_t length,
                         int64_t blockLength) {
  Type type = getElementTypeOrSelf(sum.getType());
  Value end = loadIndex(e, view.ptr, line.plus(1));
  Value blocks =
      arith::SubIOp::create(e.b, e.loc, end, loadIndex(e, view.ptr, line));
  Value present =
      arith::MulIOp::create(e.b, e.loc, blocks, e.constant(blockLength));
  Value absent = arith::SubIOp::create(e.b, e.loc, e.constant(length), present);
  Value none = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq,
                                     absent, e.constant(0));
  Value count = arith::SIToFPOp::create(
      e.b, e.loc, type,
      arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), absent));
  Value all = multiplyAdd(e, count, background, sum);
  return arith::SelectOp::create(e.b, e.loc, none, sum, all);
}

Value bsr::getVecStart(Evaluator &e, ReduceVecOp op, Type type) {
  if (!op.getMax())
    return getZeros(e, type, 1).front();
  const llvm::fltSemantics &semantics =
      cast<FloatType>(type).getFloatSemantics();
  return e.broadcast(arith::ConstantOp::create(
      e.b, e.loc,
      FloatAttr::get(type, APFloat::getInf(semantics, /*Negative=*/true))));
}

Value bsr::addToVec(Evaluator &e, ReduceVecOp op, Value sum, Value element) {
  if (op.getMax())
    return arith::MaximumFOp::create(e.b, e.loc, sum, element);
  return arith::AddFOp::create(e.b, e.loc, sum, element);
}

Value bsr::addToNorm(Evaluator &e, Norm kind, Value norm, Value element) {
  if (kind == Norm::L2)
    return multiplyAdd(e, element, element, norm);
  Value size = math::AbsFOp::create(e.b, e.loc, element);
  if (kind == Norm::L1)
    return arith::AddFOp::create(e.b, e.loc, norm, size);
  return arith::MaximumFOp::create(e.b, e.loc, norm, size);
}

Value bsr::finishNorm(Evaluator &e, Norm kind, Value norm) {
  if (kind == Norm::L2)
    norm = math::SqrtOp::create(e.b, e.loc, norm);
  return e.convert(norm, e.b.getF32Type());
}

void bsr::emitLive(Evaluator &e, LiveOp op, Value output,
                   const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), View::Rows});
  auto constant = [&](bool value) {
    return arith::ConstantOp::create(e.b, e.loc, e.b.getBoolAttr(value));
  };
  e.forEach(pattern.getSlots(), [&](ArrayRef<Index> slot) {
    e.store(constant(false), output, slot);
  });
  e.forEach(pattern.getGridRows(), [&](ArrayRef<Index> line) {
    forBlocks(e, view, line.front(), {}, [&](Index slot, Index, ValueRange) {
      e.store(constant(true), output, slot);
      return SmallVector<Value>();
    });
  });
}

void bsr::emitNumAbsent(Evaluator &e, NumAbsentOp op, Value output,
                        const PatternViews &patterns) {
  PatternType pattern = op.getPattern().getType();
  const PatternView &view = patterns.at({op.getPattern(), View::Rows});
  e.forEach({}, [&](ArrayRef<Index>) {
    Value blocks =
        loadIndex(e, view.ptr, Index::constant(pattern.getGridRows()));
    Value stored = arith::MulIOp::create(
        e.b, e.loc, blocks,
        e.constant(pattern.getBlockRows() * pattern.getBlockCols()));
    Value absent = arith::SubIOp::create(
        e.b, e.loc, e.constant(pattern.getRows() * pattern.getCols()), stored);
    Value integer =
        arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), absent);
    Value count = arith::SIToFPOp::create(
        e.b, e.loc, op.getCount().getType().getElementType(), integer);
    e.store(count, output, {});
  });
}
