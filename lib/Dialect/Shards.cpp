// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations on tensors of which each process of a run has a share.

#include "bsr/Dialect/Shards.h"
#include "bsr/Dialect/Attributes.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::bsr;

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRShards.cpp.inc"

std::optional<unsigned> bsr::getShardDim(ArrayRef<int64_t> shape) {
  const auto *dim = llvm::find_if(shape, [](int64_t size) { return size > 1; });
  if (dim == shape.end())
    return std::nullopt;
  return dim - shape.begin();
}

SmallVector<int64_t> bsr::getShardShape(ArrayRef<int64_t> shape,
                                        int64_t processes) {
  SmallVector<int64_t> shard(shape);
  int64_t &size = shard[*getShardDim(shape)];
  size = llvm::divideCeilSigned(size, processes);
  return shard;
}

DenseI64ArrayAttr bsr::getWholeShape(FunctionOpInterface step, unsigned arg) {
  DictionaryAttr shapes = attrs::wholeShapes.get(step);
  auto name = attrs::name.ofArg(step, arg), role = attrs::role.ofArg(step, arg);
  if (!shapes || !name || !role || role != "state")
    return nullptr;
  return shapes.getAs<DenseI64ArrayAttr>(name.getValue());
}

/// Checks that `shard` is the type of a shard of `whole` for some number of
/// processes, and that `result` is of type `expected`, or missing where the
/// others are buffers.
static LogicalResult verifyShard(Operation *op, ShapedType shard,
                                 ShapedType whole, Type result, Type expected) {
  bool isBuffer = isa<MemRefType>(whole);
  if (isa<MemRefType>(shard) != isBuffer)
    return op->emitOpError("expected two tensors or two buffers, but got ")
           << shard << " and " << whole;
  for (ShapedType type : {shard, whole})
    if (auto buffer = dyn_cast<MemRefType>(type);
        buffer && !buffer.getLayout().isIdentity())
      return op->emitOpError("expected a row-major buffer, but got ") << buffer;
  if (isBuffer ? bool(result) : result != expected)
    return op->emitOpError("expected ")
           << (isBuffer ? "no result of buffers" : "a result as its operands")
           << ", but got " << result;
  std::optional<unsigned> dim = getShardDim(whole.getShape());
  auto isRow = [&](ArrayRef<int64_t> shape) {
    SmallVector<int64_t> row(shape);
    row[*dim] = 1;
    return row;
  };
  if (!dim || shard.getElementType() != whole.getElementType() ||
      shard.getRank() != whole.getRank() ||
      isRow(shard.getShape()) != isRow(whole.getShape()) ||
      shard.getDimSize(*dim) > whole.getDimSize(*dim))
    return op->emitOpError("expected rows of ")
           << whole << ", but got " << shard;
  return success();
}

LogicalResult ShardOp::verify() {
  auto whole = cast<ShapedType>(getWhole().getType());
  Value mine = getBuffer() ? Value(getBuffer()) : Value(getResult());
  if (!mine || (getBuffer() && getResult()))
    return emitOpError("expected a buffer or a result, but got ")
           << (mine ? "both" : "none");
  return verifyShard(*this, cast<ShapedType>(mine.getType()), whole,
                     getResult() ? getResult().getType() : Type(),
                     mine.getType());
}

void ShardOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (!getBuffer())
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &getWholeMutable());
  for (OpOperand &buffer : getBufferMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &buffer);
}

LogicalResult UnshardOp::verify() {
  auto whole = cast<ShapedType>(getWhole().getType());
  return verifyShard(*this, cast<ShapedType>(getShard().getType()), whole,
                     getResult() ? getResult().getType() : Type(), whole);
}

void UnshardOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (!isa<MemRefType>(getWhole().getType()))
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &getShardMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getWholeMutable());
}
