// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a step measure the time of each of its kernels.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Shards.h"
#include "bsr/Transforms/Library/Passes.h"
#include "bsr/step.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRTIMELAUNCHES
#include "bsr/Transforms/Library/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Linux's number of the clock that never jumps.
static constexpr int64_t monotonicClock = 1;

/// What the manifest says of a kernel: bytes and types of the buffers of
/// `call`, which have `types`, and what `bsr-cluster` left on `kernel`.
static SmallVector<NamedAttribute> describe(Operation *call, TypeRange types,
                                            Operation *kernel) {
  Builder b(call->getContext());
  DataLayout layout = DataLayout::closest(call);
  int64_t bytes = 0;
  std::string operands;
  llvm::raw_string_ostream os(operands);
  for (Type type : types) {
    auto buffer = dyn_cast<MemRefType>(type);
    if (!buffer)
      continue;
    bytes += buffer.getNumElements() *
             layout.getTypeSize(buffer.getElementType()).getFixedValue();
    os << (operands.empty() ? "" : " ");
    for (int64_t extent : buffer.getShape())
      os << extent << "x";
    os << buffer.getElementType();
  }
  SmallVector<NamedAttribute> attrs{
      b.getNamedAttr("bytes", b.getI64IntegerAttr(bytes)),
      b.getNamedAttr("operands", b.getStringAttr(operands))};
  if (Attribute flops = attrs::flops.get(kernel))
    attrs.push_back(b.getNamedAttr("flops", flops));
  return attrs;
}

namespace {
/// What a kernel computes, and what of that one thread does after the other
/// however many there are: in units of an operation of its body.
struct WorkAndSpan {
  double work = 0, span = 0;
};
} // namespace

/// The iterations that a loop counts as whose bounds are data.
static constexpr int64_t unknownIterations = 16;

/// Of the operations in `block`.
static WorkAndSpan getWorkAndSpan(Block &block) {
  WorkAndSpan sum;
  for (Operation &op : block) {
    WorkAndSpan own{1, 1};
    for (Region &region : op.getRegions())
      for (Block &body : region) {
        WorkAndSpan inner = getWorkAndSpan(body);
        own.work += inner.work, own.span += inner.span;
      }
    double iterations = 1;
    if (auto loop = dyn_cast<scf::ForOp>(op))
      iterations = loop.getStaticTripCount()
                       .value_or(APInt(64, unknownIterations))
                       .getZExtValue();
    else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
      for (int64_t extent : linalgOp.getStaticLoopRanges())
        iterations *=
            ShapedType::isDynamic(extent) ? unknownIterations : extent;
    if (auto forall = dyn_cast<scf::ForallOp>(op))
      for (OpFoldResult extent : forall.getMixedUpperBound())
        own.work *= getConstantIntValue(extent).value_or(unknownIterations);
    sum.work += own.work * iterations;
    sum.span += own.span * iterations;
  }
  return sum;
}

/// The work items of `kernel` that threads share: those of its parallel loop,
/// of several their mean by what is in them, the parallelism of Brent's bound;
/// nothing for a body that is elsewhere.
static std::optional<int64_t> getWorkItems(func::FuncOp kernel) {
  if (kernel.isExternal())
    return std::nullopt;
  auto [work, span] = getWorkAndSpan(kernel.front());
  return std::max<int64_t>(1, std::llround(work / span));
}

namespace {
struct TimeLaunches : bsr::impl::BSRTimeLaunchesBase<TimeLaunches> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<func::FuncOp> step = getStep(module);
    if (failed(step) || failed(getReturn(*step)))
      return signalPassFailure();
    SymbolTable symbols(module);
    OpBuilder b(module.getBodyRegion());

    // The step's own timer is the first.
    getTimer(step->getName(), "other");
    if (!getTarget(module).getLaunchChip().empty())
      return listLaunches(*step, symbols);
    SmallVector<std::pair<Operation *, unsigned>> events;
    step->walk([&](Operation *op) {
      if (std::optional<unsigned> timer = getTimer(op, symbols))
        events.emplace_back(op, *timer);
    });
    func::FuncOp event = emitTraceEvent(b, step->getLoc());
    symbols.insert(event);

    auto emitCall = [&](unsigned timer) {
      Value number = arith::ConstantIndexOp::create(b, step->getLoc(), timer);
      func::CallOp::create(b, step->getLoc(), event, number);
    };
    // The first event of a run ends in the time since the last run: it counts
    // for a timer of its own, behind those that are listed.
    b.setInsertionPointToStart(&step->front());
    emitCall(timers.size());
    for (auto [op, timer] : events) {
      b.setInsertionPointAfter(op);
      emitCall(timer);
    }
    b.setInsertionPoint(step->front().getTerminator());
    emitCall(0);

    store(*step);
  }

private:
  /// Leaves the timers on `step`.
  void store(func::FuncOp step) {
    Builder b(step.getContext());
    SmallVector<Attribute> list;
    for (auto &[name, attrs] : timers)
      list.push_back(b.getDictionaryAttr(attrs));
    attrs::timers.set(step, b.getArrayAttr(list));
  }

  /// A timer for each kernel that `step` launches on a GPU, or that makes its
  /// plans.
  void listLaunches(func::FuncOp step, const SymbolTable &symbols) {
    auto list = [&](gpu::LaunchFuncOp launch) {
      auto kind = attrs::kind.get(launch);
      getTimer(launch.getKernelName().getValue(),
               kind ? kind.getValue() : "other",
               describe(launch, launch.getKernelOperands().getTypes(), launch));
    };
    if (auto plans =
            symbols.lookup<func::FuncOp>((step.getName() + "_plans").str()))
      plans.walk(list);
    step.walk(list);
    store(step);
  }

  /// The number of timer `name`, a new one if there is none.
  unsigned getTimer(StringRef name, StringRef kind,
                    ArrayRef<NamedAttribute> attrs = {}) {
    auto [known, isNew] = timers.try_emplace(name, attrs);
    if (isNew) {
      Builder b(&getContext());
      known->second.push_back(b.getNamedAttr("kernel", b.getStringAttr(name)));
      known->second.push_back(b.getNamedAttr("kind", b.getStringAttr(kind)));
    }
    return known - timers.begin();
  }

  /// The number of the timer of `op`, or nothing for what is not timed.
  std::optional<unsigned> getTimer(Operation *op, const SymbolTable &symbols) {
    if (isa<memref::CopyOp>(op))
      return getTimer("memref.copy", "copy");
    if (isa<ShardOp>(op))
      return getTimer(op->getName().getStringRef(), "copy");
    // What a step waits for: the rest is hidden behind kernels.
    if (isa<AllReduceOp, StartReduceOp, WaitReduceOp, UnshardOp>(op))
      return getTimer(op->getName().getStringRef(), "communication");
    if (isa<linalg::LinalgOp>(op))
      return getTimer(op->getName().getStringRef(), "other");
    auto call = dyn_cast<func::CallOp>(op);
    if (!call)
      return std::nullopt;
    auto kernel = symbols.lookup<func::FuncOp>(call.getCallee());
    auto kind = attrs::kind.get(kernel);
    SmallVector<NamedAttribute> attrs =
        describe(call, call.getOperandTypes(), kernel);
    if (std::optional<int64_t> items = getWorkItems(kernel))
      attrs.emplace_back("items", Builder(op).getI64IntegerAttr(*items));
    return getTimer(call.getCallee(), kind ? kind.getValue() : "other", attrs);
  }

  /// Writes the table, one row of nanoseconds and launches a timer, the list of
  /// the last events, and the function that adds the time since its last call
  /// to row `timer`, and an event to the list.
  func::FuncOp emitTraceEvent(OpBuilder &b, Location loc) {
    Type i64 = b.getI64Type(), i32 = b.getI32Type();
    auto addGlobal = [&](StringRef name, ArrayRef<int64_t> shape,
                         StringRef visibility) {
      auto type = MemRefType::get(shape, i64);
      memref::GlobalOp::create(
          b, loc, name, b.getStringAttr(visibility), type,
          DenseElementsAttr::get(RankedTensorType::get(shape, i64),
                                 b.getZeroAttr(i64)),
          /*constant=*/false, /*alignment=*/nullptr);
      return type;
    };
    b.setInsertionPointToStart(getOperation().getBody());
    auto table =
        addGlobal("bsr_step_timers", {int64_t(timers.size()) + 1, 2}, "public");
    auto events = addGlobal("bsr_step_trace_events",
                            {BSR_STEP_TRACE_EVENTS + 1, 2}, "public");
    auto time = addGlobal("bsr_trace_time", {2}, "private");
    auto last = addGlobal("bsr_trace_last", {}, "private");
    auto clock = func::FuncOp::create(b, loc, "clock_gettime",
                                      b.getFunctionType({i32, time}, i32));
    clock.setPrivate();
    auto event = func::FuncOp::create(b, loc, "bsr_trace_event",
                                      b.getFunctionType(b.getIndexType(), {}));
    event.setPrivate();
    b.setInsertionPointToStart(event.addEntryBlock());

    auto constant = [&](Type type, int64_t value) -> Value {
      return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, value));
    };
    auto index = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(b, loc, value);
    };
    Value timeBuffer =
        memref::GetGlobalOp::create(b, loc, time, "bsr_trace_time");
    func::CallOp::create(b, loc, clock,
                         ValueRange{constant(i32, monotonicClock), timeBuffer});
    auto load = [&](Value buffer, ValueRange at) -> Value {
      return memref::LoadOp::create(b, loc, buffer, at);
    };
    Value seconds = load(timeBuffer, index(0));
    seconds = arith::MulIOp::create(b, loc, seconds, constant(i64, 1000000000));
    Value now =
        arith::AddIOp::create(b, loc, seconds, load(timeBuffer, index(1)));
    Value lastBuffer =
        memref::GetGlobalOp::create(b, loc, last, "bsr_trace_last");
    Value elapsed =
        arith::SubIOp::create(b, loc, now, load(lastBuffer, ValueRange()));
    memref::StoreOp::create(b, loc, now, lastBuffer, ValueRange());
    Value tableBuffer =
        memref::GetGlobalOp::create(b, loc, table, "bsr_step_timers");
    Value row = event.getArgument(0);
    Value sums[] = {elapsed, constant(i64, 1)};
    for (auto [column, more] : llvm::enumerate(sums)) {
      Value at[] = {row, index(column)};
      Value sum = arith::AddIOp::create(b, loc, load(tableBuffer, at), more);
      memref::StoreOp::create(b, loc, sum, tableBuffer, at);
    }

    // The last ones one by one, behind a row that counts them.
    static_assert(llvm::isPowerOf2_64(BSR_STEP_TRACE_EVENTS));
    Value eventsBuffer =
        memref::GetGlobalOp::create(b, loc, events, "bsr_step_trace_events");
    Value count[] = {index(0), index(0)};
    Value number = load(eventsBuffer, count);
    Value place = arith::AndIOp::create(
        b, loc, number, constant(i64, BSR_STEP_TRACE_EVENTS - 1));
    place = arith::IndexCastOp::create(b, loc, b.getIndexType(), place);
    place = arith::AddIOp::create(b, loc, place, index(1));
    Value kept[] = {arith::IndexCastOp::create(b, loc, i64, row), now};
    for (auto [column, value] : llvm::enumerate(kept)) {
      Value at[] = {place, index(column)};
      memref::StoreOp::create(b, loc, value, eventsBuffer, at);
    }
    number = arith::AddIOp::create(b, loc, number, constant(i64, 1));
    memref::StoreOp::create(b, loc, number, eventsBuffer, count);
    func::ReturnOp::create(b, loc);
    return event;
  }

  /// What the manifest says of each timer, by name.
  llvm::MapVector<StringRef, SmallVector<NamedAttribute>> timers;
};
} // namespace
