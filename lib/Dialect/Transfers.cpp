// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations by which stages of a step exchange tensors.

#include "bsr/Dialect/Transfers.h"

using namespace mlir;
using namespace mlir::bsr;

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRTransfers.cpp.inc"

namespace {
/// What all transfers touch, so that they stay in their order.
struct TransferResource : SideEffects::Resource::Base<TransferResource> {
  StringRef getName() final { return "bsr.transfers"; }
};
} // namespace

/// Checks that `type`, if it is a buffer, lies in one piece.
static LogicalResult verifyBuffer(Operation *op, Type type) {
  auto buffer = dyn_cast<MemRefType>(type);
  if (buffer && !buffer.getLayout().isIdentity())
    return op->emitOpError("expected a row-major buffer, but got ") << buffer;
  return success();
}

LogicalResult SendOp::verify() {
  return verifyBuffer(*this, getData().getType());
}

void SendOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (isa<MemRefType>(getData().getType()))
    effects.emplace_back(MemoryEffects::Read::get(), &getDataMutable());
  effects.emplace_back(MemoryEffects::Write::get(), TransferResource::get());
}

LogicalResult ReceiveOp::verify() {
  if (bool(getBuffer()) == bool(getResult()))
    return emitOpError("expected a buffer or a result, but got ")
           << (getBuffer() ? "both" : "none");
  return getBuffer() ? verifyBuffer(*this, getBuffer().getType()) : success();
}

void ReceiveOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  for (OpOperand &buffer : getBufferMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &buffer);
  effects.emplace_back(MemoryEffects::Write::get(), TransferResource::get());
}
