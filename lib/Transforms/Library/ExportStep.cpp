// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a lowered step its C entry point and hides everything else.

#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Library/Passes.h"
#include "bsr/step.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPORTSTEP
#include "bsr/Transforms/Library/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if `step` takes a flag that says whether to compute scores, before its
/// arena.
static bool hasFlag(ArrayRef<Type> types) {
  return types.size() > 1 && types[types.size() - 2].isInteger(1);
}

/// The address of a field of `bsr_context` at `context`.
static Value getField(OpBuilder &b, Location loc, Value context,
                      size_t offset) {
  return LLVM::GEPOp::create(b, loc, context.getType(), b.getI8Type(), context,
                             ArrayRef<LLVM::GEPArg>(int32_t(offset)));
}

/// Writes into `entry` what `bsr_check_context` (bsr/step.h) does. The builder
/// is then where the context is that of the step, on the host.
static void emitContextCheck(OpBuilder &b, LLVM::LLVMFuncOp entry) {
  Location loc = entry.getLoc();
  Type i32 = b.getI32Type();
  Value context = entry.getArgument(0);
  auto constant = [&](int32_t value) -> Value {
    return LLVM::ConstantOp::create(b, loc, i32, b.getI32IntegerAttr(value));
  };
  Block *checks = b.getInsertionBlock();
  Block *refuse = b.createBlock(&entry.getBody(), entry.getBody().end(),
                                {i32, i32}, {loc, loc});
  LLVM::StoreOp::create(
      b, loc, refuse->getArgument(1),
      getField(b, loc, context, offsetof(bsr_context, error)));
  LLVM::ReturnOp::create(b, loc, refuse->getArgument(0));

  b.setInsertionPointToEnd(checks);
  auto require = [&](size_t offset, int32_t expected, bsr_step_status status) {
    Value got =
        LLVM::LoadOp::create(b, loc, i32, getField(b, loc, context, offset));
    Value known = constant(expected);
    Value isKnown =
        LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::eq, got, known);
    Value refusal[] = {constant(status), known};
    Block *next = b.getInsertionBlock()->splitBlock(b.getInsertionPoint());
    LLVM::CondBrOp::create(b, loc, isKnown, next, refuse, refusal);
    b.setInsertionPointToEnd(next);
  };
  require(offsetof(bsr_context, version), BSR_CONTEXT_VERSION,
          BSR_STEP_OTHER_VERSION);
  require(offsetof(bsr_context, device), BSR_HOST, BSR_STEP_OTHER_DEVICE);
}

/// The address of buffer `index` of `buffers`.
static Value loadAddress(OpBuilder &b, Location loc, Value buffers,
                         unsigned index) {
  Type ptr = buffers.getType();
  Value at = LLVM::GEPOp::create(b, loc, ptr, ptr, buffers,
                                 ArrayRef<LLVM::GEPArg>(int32_t(index)));
  return LLVM::LoadOp::create(b, loc, ptr, at);
}

/// Replaces the fields of descriptors, made of addresses and constants, by what
/// they were made of, and removes what nothing reads then: for each argument,
/// its shape and strides.
static void foldDescriptors(LLVM::LLVMFuncOp step) {
  step.walk([](LLVM::ExtractValueOp field) {
    SmallVector<OpFoldResult> folded;
    if (succeeded(field->fold(folded)) && !folded.empty())
      field.replaceAllUsesWith(cast<Value>(folded.front()));
  });
  step.walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
    if (isOpTriviallyDead(op))
      op->erase();
  });
}

/// Lets `step`, which takes the addresses of `numBuffers` buffers, take an
/// array of them instead. Calls load what they are given right before: of
/// thousands of addresses that lived from the start, instruction selection and
/// register allocation would take quadratic time.
static void takeArray(LLVM::LLVMFuncOp step, unsigned numBuffers) {
  Block &body = step.getBody().front();
  OpBuilder b(step->getContext());
  Location loc = step.getLoc();
  Type ptr = LLVM::LLVMPointerType::get(b.getContext());
  Value buffers = body.insertArgument(numBuffers, ptr, loc);
  for (unsigned i : llvm::seq(numBuffers)) {
    // By the call that reads it, or null: at the start.
    DenseMap<Operation *, Value> loaded;
    for (OpOperand &use :
         llvm::make_early_inc_range(body.getArgument(i).getUses())) {
      auto call = dyn_cast<LLVM::CallOp>(use.getOwner());
      Value &address = loaded[call];
      if (!address) {
        if (call)
          b.setInsertionPoint(call);
        else
          b.setInsertionPointToStart(&body);
        address = loadAddress(b, loc, buffers, i);
      }
      use.set(address);
    }
  }
  body.eraseArguments(0, numBuffers);
  LLVM::LLVMFunctionType type = step.getFunctionType();
  step.setFunctionType(type.clone(llvm::to_vector(body.getArgumentTypes()),
                                  type.getReturnTypes()));
  step.removeArgAttrsAttr();
}

/// Writes `name(context, buffers, arena)`, which checks the context and calls
/// `step(buffers, flag, arena, context)`, without `flag` if the step takes
/// none, and without `context` unless it `communicates`.
static void emitEntry(LLVM::LLVMFuncOp step, StringRef name,
                      std::optional<bool> flag, bool communicates) {
  OpBuilder b(step->getContext());
  b.setInsertionPointAfter(step);
  Location loc = step.getLoc();
  Type ptr = LLVM::LLVMPointerType::get(b.getContext());
  auto entry = LLVM::LLVMFuncOp::create(
      b, loc, name,
      LLVM::LLVMFunctionType::get(b.getI32Type(), {ptr, ptr, ptr}));
  b.setInsertionPointToStart(entry.addEntryBlock(b));
  emitContextCheck(b, entry);
  SmallVector<Value> arguments = {entry.getArgument(1)};
  if (flag)
    arguments.push_back(
        LLVM::ConstantOp::create(b, loc, b.getI1Type(), b.getBoolAttr(*flag)));
  arguments.push_back(entry.getArgument(2));
  if (communicates)
    arguments.push_back(entry.getArgument(0));
  LLVM::CallOp::create(b, loc, step, arguments);
  Value ran = LLVM::ConstantOp::create(b, loc, b.getI32Type(),
                                       b.getI32IntegerAttr(BSR_STEP_RAN));
  LLVM::ReturnOp::create(b, loc, ran);
}

/// `attrs` without those of this project's dialect.
static SmallVector<NamedAttribute> filter(DictionaryAttr attrs) {
  return llvm::filter_to_vector(attrs, [](NamedAttribute attr) {
    return !isa_and_present<BSRDialect>(attr.getNameDialect());
  });
}

/// Removes what the project says about `func`: the manifest has it now.
static void removeAttributes(LLVM::LLVMFuncOp func) {
  func->setDiscardableAttrs(filter(func->getDiscardableAttrDictionary()));
  SmallVector<DictionaryAttr> all;
  func.getAllArgAttrs(all);
  for (DictionaryAttr &attrs : all)
    attrs = DictionaryAttr::get(func.getContext(), filter(attrs));
  func.setAllArgAttrs(all);
}

namespace {
struct ExportStep : bsr::impl::BSRExportStepBase<ExportStep> {
  using Base::Base;

  void runOnOperation() override {
    attrs::target.remove(getOperation());
    LLVM::LLVMFuncOp step;
    bool communicates = false;
    for (auto func : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      if (func.isExternal())
        continue;
      func.setLinkage(LLVM::Linkage::Internal);
      // A kernel stays a function: many layers call it.
      func.setNoInline(true);
      if (attrs::arenaBytes.isOn(func)) {
        step = func;
        communicates = attrs::communicates.isOn(func);
      }
      removeAttributes(func);
    }
    if (!step) {
      getOperation().emitError(
          "expected a function with bsr.arena_bytes, but got none");
      return signalPassFailure();
    }
    ArrayRef<Type> types = step.getArgumentTypes();
    if (communicates)
      types = types.drop_back(!types.empty());
    if (types.empty() || !isa<LLVM::LLVMPointerType>(types.back())) {
      step.emitError("expected a step whose last argument is its arena, but "
                     "got @")
          << step.getName();
      return signalPassFailure();
    }
    bool isFlagged = hasFlag(types);
    foldDescriptors(step);
    takeArray(step, types.size() - (isFlagged ? 2 : 1));
    emitEntry(step, "bsr_step_run",
              isFlagged ? std::optional(false) : std::nullopt, communicates);
    if (isFlagged)
      emitEntry(step, "bsr_step_run_scores", true, communicates);
  }
};
} // namespace
