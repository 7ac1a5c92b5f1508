// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls the communicator for means over processes.

#include "CommunicatorCalls.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Shards.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "bsr/step.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "support/ElementType.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLOWERREDUCTIONS
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The number of `element`, a `bsr_type`: files number types as well.
static int32_t getRuntimeType(Type element) {
  using sparse_opt::ElementType;
  if (element.isF16())
    return int32_t(ElementType::F16);
  if (element.isBF16())
    return int32_t(ElementType::BF16);
  return int32_t(element.isF32() ? ElementType::F32 : ElementType::F64);
}

namespace {
/// Makes calls of the communicator of one step.
class Lowering {
public:
  /// `isThere` tells whether there is a communicator. Buckets have at most
  /// `mostParts` buffers; all share the room for these: the communicator copies
  /// them.
  Lowering(OpBuilder &b, Location loc, CommunicatorCalls &calls, Value isThere,
           size_t mostParts)
      : b(b), calls(calls), isThere(isThere), i32(b.getI32Type()),
        i64(b.getI64Type()) {
    static_assert(sizeof(bsr_part) == 16 && offsetof(bsr_part, count) == 8);
    Type ptr = calls.getCommunicator().getType();
    part = LLVM::LLVMStructType::getLiteral(b.getContext(), {ptr, i64});
    if (mostParts)
      parts = LLVM::AllocaOp::create(b, loc, ptr, part,
                                     calls.getConstant(loc, i64, mostParts));
  }

  void lower(AllReduceOp op);
  void lower(StartReduceOp op);
  void lower(WaitReduceOp op);
  void lower(ShardOp op);
  void lower(UnshardOp op);

private:
  Value getCount(Location loc, Value buffer) {
    return calls.getConstant(
        loc, i64, cast<MemRefType>(buffer.getType()).getNumElements());
  }
  Value getType(Location loc, Value buffer) {
    return calls.getConstant(
        loc, i32, getRuntimeType(getElementTypeOrSelf(buffer.getType())));
  }
  /// Calls the function whose address is `offset` bytes in the communicator
  /// with `arguments` that are made there, if there is one, in the place of
  /// `op`.
  void replaceByCall(Operation *op, size_t offset,
                     function_ref<SmallVector<Value>(Location)> arguments);
  /// The same of a function that copies from one buffer to another.
  void replaceByCopy(Operation *op, size_t offset, Value from, Value to);

  OpBuilder &b;
  CommunicatorCalls &calls;
  Value isThere, parts;
  Type i32, i64, part;
};
} // namespace

void Lowering::replaceByCall(
    Operation *op, size_t offset,
    function_ref<SmallVector<Value>(Location)> arguments) {
  Location loc = op->getLoc();
  b.setInsertionPoint(op);
  auto guard = scf::IfOp::create(b, loc, isThere);
  b.setInsertionPointToStart(guard.thenBlock());
  calls.call(loc, offset, arguments(loc));
  op->erase();
}

void Lowering::replaceByCopy(Operation *op, size_t offset, Value from,
                             Value to) {
  replaceByCall(op, offset, [&](Location loc) -> SmallVector<Value> {
    return {calls.getAddress(loc, from), calls.getBytes(loc, from),
            calls.getAddress(loc, to), calls.getBytes(loc, to)};
  });
}

void Lowering::lower(AllReduceOp op) {
  Value data = op.getData();
  replaceByCall(op, offsetof(bsr_communicator, all_reduce),
                [&](Location loc) -> SmallVector<Value> {
                  return {calls.getAddress(loc, data), getCount(loc, data),
                          getType(loc, data)};
                });
}

void Lowering::lower(WaitReduceOp op) {
  replaceByCall(
      op, offsetof(bsr_communicator, wait_reduce),
      [&](Location) -> SmallVector<Value> { return {op.getTicket()}; });
}

void Lowering::lower(ShardOp op) {
  replaceByCopy(op, offsetof(bsr_communicator, shard), op.getWhole(),
                op.getBuffer());
}

void Lowering::lower(UnshardOp op) {
  replaceByCopy(op, offsetof(bsr_communicator, unshard), op.getShard(),
                op.getWhole());
}

void Lowering::lower(StartReduceOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto guard = scf::IfOp::create(b, loc, i64, isThere, /*withElseRegion=*/true);
  b.setInsertionPointToStart(guard.thenBlock());
  for (auto [number, buffer] : llvm::enumerate(op.getData())) {
    Value fields[] = {calls.getAddress(loc, buffer), getCount(loc, buffer)};
    for (auto [field, value] : llvm::enumerate(fields)) {
      Value at = LLVM::GEPOp::create(
          b, loc, parts.getType(), part, parts,
          ArrayRef<LLVM::GEPArg>{int32_t(number), int32_t(field)});
      LLVM::StoreOp::create(b, loc, value, at);
    }
  }
  Value numParts = calls.getConstant(loc, i64, op.getData().size());
  auto ticket =
      calls.call(loc, offsetof(bsr_communicator, start_reduce), i64,
                 {parts, numParts, getType(loc, op.getData().front())});
  scf::YieldOp::create(b, loc, ticket.getResults());
  b.setInsertionPointToStart(guard.elseBlock());
  scf::YieldOp::create(b, loc, ValueRange(calls.getConstant(loc, i64, 0)));
  op.getTicket().replaceAllUsesWith(guard.getResult(0));
  op.erase();
}

namespace {
struct LowerReductions
    : mlir::bsr::impl::BSRLowerReductionsBase<LowerReductions> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(lowerIn(func)))
        return signalPassFailure();
  }

  LogicalResult lowerIn(func::FuncOp func) {
    SmallVector<Operation *> reductions;
    func.walk([&](Operation *op) {
      if (isa<AllReduceOp, StartReduceOp, WaitReduceOp, ShardOp, UnshardOp>(op))
        reductions.push_back(op);
    });
    for (Operation *op : reductions)
      for (Type type : op->getOperandTypes())
        if (isa<TensorType>(type))
          return op->emitError("expected a buffer, but got ")
                 << type << ": bufferize it first";
    if (!attrs::communicates.isOn(func)) {
      if (!reductions.empty())
        return reductions.front()->emitError(
            "expected a step with bsr.communicates around it, but got none");
      return success();
    }
    OpBuilder b(func.getBody());
    Location loc = func.getLoc();
    Type ptr = LLVM::LLVMPointerType::get(b.getContext());
    if (failed(func.insertArgument(func.getNumArguments(), ptr, {}, loc)))
      return failure();
    CommunicatorCalls calls(b, loc, func.getArguments().back());
    Value null = LLVM::ZeroOp::create(b, loc, ptr);
    Value isThere = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne,
                                         calls.getCommunicator(), null);
    size_t most = 0;
    for (Operation *op : reductions)
      if (isa<StartReduceOp>(op))
        most = std::max<size_t>(most, op->getNumOperands());
    Lowering lowering(b, loc, calls, isThere, most);
    for (Operation *op : reductions)
      TypeSwitch<Operation *>(op)
          .Case<AllReduceOp, StartReduceOp, WaitReduceOp, ShardOp, UnshardOp>(
              [&](auto op) { lowering.lower(op); });
    return success();
  }
};
} // namespace
