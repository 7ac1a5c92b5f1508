// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves the calls of a lowered step into functions of bounded size.

#include "bsr/Transforms/Library/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRDIVIDESTEP
#include "bsr/Transforms/Library/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

/// Whether `op` costs nothing to do again wherever its value is read.
static bool isAddress(Operation *op) {
  return isa<LLVM::GEPOp, LLVM::ConstantOp, LLVM::AddressOfOp, LLVM::ZeroOp,
             LLVM::PoisonOp, LLVM::UndefOp>(op);
}

/// Whether `op` is a call that only writes memory.
static bool isLaunch(Operation *op) {
  return isa<LLVM::CallOp>(op) && op->use_empty();
}

/// The call in front of which `op` loads what it alone is given, with nothing
/// but other loads and addresses between, or null.
static Operation *getOnlyReader(Operation *op) {
  if (!isa<LLVM::LoadOp>(op) || op->use_empty() ||
      !llvm::all_equal(op->getUsers()))
    return nullptr;
  Operation *reader = *op->user_begin();
  if (!isLaunch(reader) || reader->getBlock() != op->getBlock())
    return nullptr;
  Operation *next = op->getNextNode();
  while (isAddress(next) || isa<LLVM::LoadOp>(next))
    next = next->getNextNode();
  return next == reader ? reader : nullptr;
}

namespace {
/// A function that makes some of the calls of a step.
class Part {
public:
  explicit Part(LLVM::LLVMFuncOp step)
      : step(step), b(step->getContext()), body(new Block) {
    b.setInsertionPointToEnd(body);
  }

  /// Makes `calls` and the loads in front of them, which go from the step.
  void take(ArrayRef<Operation *> calls, SymbolTable &symbols) {
    for (Operation *op : calls) {
      for (Value operand : op->getOperands())
        provide(operand);
      b.clone(*op, values);
    }
    Location loc = step.getLoc();
    LLVM::ReturnOp::create(b, loc, ValueRange());

    Type none = LLVM::LLVMVoidType::get(b.getContext());
    b.setInsertionPoint(step);
    auto func = LLVM::LLVMFuncOp::create(
        b, loc, (step.getName() + "_part").str(),
        LLVM::LLVMFunctionType::get(none,
                                    llvm::to_vector(body->getArgumentTypes())),
        LLVM::Linkage::Internal);
    func.setNoInline(true);
    func.getBody().push_back(body);
    symbols.insert(func);
    b.setInsertionPoint(calls.back());
    LLVM::CallOp::create(b, loc, func, taken);
    for (Operation *op : llvm::reverse(calls))
      op->erase();
  }

private:
  /// Makes `value` known in the function: an address is computed in it,
  /// anything else becomes an argument.
  void provide(Value value) {
    if (values.contains(value))
      return;
    Operation *op = value.getDefiningOp();
    if (!op || !isAddress(op)) {
      values.map(value, body->addArgument(value.getType(), value.getLoc()));
      taken.push_back(value);
      return;
    }
    for (Value operand : op->getOperands())
      provide(operand);
    b.clone(*op, values);
  }

  LLVM::LLVMFuncOp step;
  OpBuilder b;
  Block *body; // the function's, in the end
  IRMapping values;
  SmallVector<Value> taken; // the step's values that are the arguments
};

struct DivideStep : bsr::impl::BSRDivideStepBase<DivideStep> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto func : llvm::to_vector(getOperation().getOps<LLVM::LLVMFuncOp>()))
      for (Block &block : func)
        divide(func, block, symbols);
  }

  /// Moves each `maxCalls` calls of `block` that follow one another.
  void divide(LLVM::LLVMFuncOp step, Block &block, SymbolTable &symbols) {
    SmallVector<Operation *> calls; // and their loads
    unsigned numCalls = 0;
    auto end = [&] {
      if (numCalls == maxCalls)
        Part(step).take(calls, symbols);
      calls.clear();
      numCalls = 0;
    };
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (isLaunch(&op)) {
        calls.push_back(&op);
        if (++numCalls == maxCalls)
          end();
      } else if (getOnlyReader(&op)) {
        calls.push_back(&op);
      } else if (!isAddress(&op)) {
        end();
      }
    }
  }
};
} // namespace
