// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls the communicator for means over processes.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
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
  using ::bsr::ElementType;
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
  Lowering(OpBuilder &b, Value communicator, Value isThere)
      : b(b), communicator(communicator), isThere(isThere),
        ptr(communicator.getType()), i32(b.getI32Type()), i64(b.getI64Type()),
        part(LLVM::LLVMStructType::getLiteral(b.getContext(), {ptr, i64})) {}

  /// Makes room for the parts of a bucket of at most `most` buffers, which all
  /// buckets share: the communicator copies them.
  void makeParts(Location loc, size_t most) {
    static_assert(sizeof(bsr_part) == 16 && offsetof(bsr_part, count) == 8);
    parts =
        LLVM::AllocaOp::create(b, loc, ptr, part, getConstant(loc, i64, most));
  }

  void lower(AllReduceOp op);
  void lower(StartReduceOp op);
  void lower(WaitReduceOp op);

private:
  Value getConstant(Location loc, Type type, int64_t value) {
    return LLVM::ConstantOp::create(b, loc, type,
                                    b.getIntegerAttr(type, value));
  }

  /// The address of the elements of `buffer`, and their number.
  std::pair<Value, Value> getElements(Location loc, Value buffer) {
    Value at = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, buffer);
    Value address = arith::IndexCastOp::create(b, loc, i64, at);
    Value data = LLVM::IntToPtrOp::create(b, loc, ptr, address);
    int64_t count = cast<MemRefType>(buffer.getType()).getNumElements();
    return {data, getConstant(loc, i64, count)};
  }

  Value getType(Location loc, Value buffer) {
    return getConstant(loc, i32,
                       getRuntimeType(getElementTypeOrSelf(buffer.getType())));
  }

  /// Calls the function whose address is `offset` bytes in the communicator.
  LLVM::CallOp call(Location loc, size_t offset, Type result,
                    ArrayRef<Value> arguments) {
    Value field = communicator;
    if (offset)
      field = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), communicator,
                                  ArrayRef<LLVM::GEPArg>(int32_t(offset)));
    SmallVector<Value> operands = {LLVM::LoadOp::create(b, loc, ptr, field),
                                   communicator};
    llvm::append_range(operands, arguments);
    auto signature = LLVM::LLVMFunctionType::get(
        result, llvm::to_vector(ValueRange(operands).drop_front().getTypes()));
    return LLVM::CallOp::create(b, loc, signature, operands);
  }

  OpBuilder &b;
  Value communicator, isThere, parts;
  Type ptr, i32, i64, part;
};
} // namespace

void Lowering::lower(AllReduceOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto guard = scf::IfOp::create(b, loc, isThere);
  b.setInsertionPointToStart(guard.thenBlock());
  auto [data, count] = getElements(loc, op.getData());
  call(loc, offsetof(bsr_communicator, all_reduce),
       LLVM::LLVMVoidType::get(b.getContext()),
       {data, count, getType(loc, op.getData())});
  op.erase();
}

void Lowering::lower(StartReduceOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto guard = scf::IfOp::create(b, loc, i64, isThere, /*withElseRegion=*/true);
  b.setInsertionPointToStart(guard.thenBlock());
  for (auto [number, buffer] : llvm::enumerate(op.getData())) {
    auto [data, count] = getElements(loc, buffer);
    Value fields[] = {data, count};
    for (auto [field, value] : llvm::enumerate(fields)) {
      Value at = LLVM::GEPOp::create(
          b, loc, ptr, part, parts,
          ArrayRef<LLVM::GEPArg>{int32_t(number), int32_t(field)});
      LLVM::StoreOp::create(b, loc, value, at);
    }
  }
  Value numParts = getConstant(loc, i64, op.getData().size());
  auto ticket = call(loc, offsetof(bsr_communicator, start_reduce), i64,
                     {parts, numParts, getType(loc, op.getData().front())});
  scf::YieldOp::create(b, loc, ticket.getResults());
  b.setInsertionPointToStart(guard.elseBlock());
  scf::YieldOp::create(b, loc, ValueRange(getConstant(loc, i64, 0)));
  op.getTicket().replaceAllUsesWith(guard.getResult(0));
  op.erase();
}

void Lowering::lower(WaitReduceOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto guard = scf::IfOp::create(b, loc, isThere);
  b.setInsertionPointToStart(guard.thenBlock());
  call(loc, offsetof(bsr_communicator, wait_reduce),
       LLVM::LLVMVoidType::get(b.getContext()), {op.getTicket()});
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
      if (isa<AllReduceOp, StartReduceOp, WaitReduceOp>(op))
        reductions.push_back(op);
    });
    for (Operation *op : reductions)
      if (auto reduction = dyn_cast<AllReduceOp>(op);
          reduction && !isa<MemRefType>(reduction.getData().getType()))
        return op->emitError("expected a buffer, but got ")
               << reduction.getData().getType() << ": bufferize it first";
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
    Value field = LLVM::GEPOp::create(
        b, loc, ptr, b.getI8Type(), func.getArguments().back(),
        ArrayRef<LLVM::GEPArg>(int32_t(offsetof(bsr_context, communicator))));
    Value communicator = LLVM::LoadOp::create(b, loc, ptr, field);
    Value null = LLVM::ZeroOp::create(b, loc, ptr);
    Value isThere = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne,
                                         communicator, null);
    Lowering lowering(b, communicator, isThere);
    size_t most = 0;
    for (Operation *op : reductions)
      if (isa<StartReduceOp>(op))
        most = std::max<size_t>(most, op->getNumOperands());
    if (most)
      lowering.makeParts(loc, most);
    for (Operation *op : reductions)
      if (auto start = dyn_cast<StartReduceOp>(op))
        lowering.lower(start);
    for (Operation *op : reductions)
      TypeSwitch<Operation *>(op).Case<AllReduceOp, WaitReduceOp>(
          [&](auto op) { lowering.lower(op); });
    return success();
  }
};
} // namespace
