// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and effects of reductions over the processes of a run.

#include "bsr/Dialect/BSR.h"

using namespace mlir;
using namespace mlir::bsr;

/// Checks that `op` can take the mean over processes of what has `type`.
static LogicalResult verifyReduced(Operation *op, ShapedType type) {
  Type element = type.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32() &&
      !element.isF64())
    return op->emitOpError("expected elements of type f16, bf16, f32 or f64, "
                           "but got ")
           << element;
  if (auto buffer = dyn_cast<MemRefType>(type);
      buffer && !buffer.getLayout().isIdentity())
    return op->emitOpError("expected a row-major buffer, but got ") << buffer;
  return success();
}

LogicalResult AllReduceOp::verify() {
  auto type = cast<ShapedType>(getData().getType());
  if (failed(verifyReduced(*this, type)))
    return failure();
  if (isa<MemRefType>(type)) {
    if (getResult())
      return emitOpError("expected no result of a buffer, but got ")
             << getResult().getType();
    return success();
  }
  if (!getResult())
    return emitOpError("expected a result of type ")
           << type << ", but got none";
  if (getResult().getType() != type)
    return emitOpError("expected a result of type ")
           << type << ", but got " << getResult().getType();
  return success();
}

void AllReduceOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (!isa<MemRefType>(getData().getType()))
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &getDataMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getDataMutable());
}

//===----------------------------------------------------------------------===//
// StartReduceOp and WaitReduceOp
//===----------------------------------------------------------------------===//

LogicalResult StartReduceOp::verify() {
  if (getData().empty())
    return emitOpError("expected one buffer at least, but got none");
  Type element = getElementTypeOrSelf(getData().front().getType());
  for (Value buffer : getData()) {
    if (failed(verifyReduced(*this, cast<ShapedType>(buffer.getType()))))
      return failure();
    if (Type other = getElementTypeOrSelf(buffer.getType()); other != element)
      return emitOpError("expected buffers of one element type, but got ")
             << element << " and " << other;
  }
  unsigned waits = llvm::count_if(getTicket().getUsers(), [](Operation *user) {
    return isa<WaitReduceOp>(user);
  });
  if (waits != 1)
    return emitOpError("expected one bsr.wait_reduce of its ticket, but got ")
           << waits;
  return success();
}

LogicalResult WaitReduceOp::verify() {
  auto start = getTicket().getDefiningOp<StartReduceOp>();
  if (!start)
    return emitOpError("expected the ticket of a bsr.start_reduce, but got "
                       "another number");
  if (start.getData() != getData())
    return emitOpError(
        "expected the buffers that were started, but got others");
  return success();
}

//===----------------------------------------------------------------------===//
// ScatterAddOp
//===----------------------------------------------------------------------===//
