// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns the parallel loops and the launches of kernels into functions of a GPU
// and calls of them.

#include "bsr/Codegen/GPU/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Utils/GPUUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSROUTLINELAUNCHES
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Threads of a block: a multiple of a warp, of which an SM holds 16.
static constexpr int64_t blockThreads = 128;

/// Makes what `step` copies from buffer to buffer parallel loops.
static void copyInLoops(func::FuncOp step) {
  step.walk([](memref::CopyOp copy) {
    auto type = cast<MemRefType>(copy.getSource().getType());
    if (!type.hasStaticShape())
      return;
    OpBuilder b(copy);
    SmallVector<OpFoldResult> extents =
        getAsIndexOpFoldResult(b.getContext(), type.getShape());
    if (extents.empty())
      extents.push_back(b.getIndexAttr(1));
    auto loop = scf::ForallOp::create(b, copy.getLoc(), extents, ValueRange(),
                                      std::nullopt);
    b.setInsertionPointToStart(loop.getBody());
    auto at = ValueRange(loop.getInductionVars()).take_front(type.getRank());
    Value element =
        memref::LoadOp::create(b, copy.getLoc(), copy.getSource(), at);
    memref::StoreOp::create(b, copy.getLoc(), element, copy.getTarget(), at);
    copy.erase();
  });
}

/// Checks that `step` does nothing on the host but call kernels and launch
/// loops.
static LogicalResult verifyHost(func::FuncOp step) {
  WalkResult result = step.walk<WalkOrder::PreOrder>([](Operation *op) {
    if (isa<scf::ForallOp>(op))
      return WalkResult::skip();
    if (isa<func::CallOp, func::FuncOp, func::ReturnOp>(op) ||
        op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
        op->hasTrait<OpTrait::IsTerminator>() ||
        (isMemoryEffectFree(op) && !isa<memref::GetGlobalOp>(op)))
      return WalkResult::advance();
    op->emitError("expected a step for a GPU to touch memory in kernels only, "
                  "but got '")
        << op->getName() << "' outside of them";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// The indices of iteration `number` of a loop nest over `extents`, the last
/// dimension fastest.
static SmallVector<Value> split(OpBuilder &b, Location loc, Value number,
                                ArrayRef<int64_t> extents) {
  SmallVector<Value> indices(extents.size());
  for (int64_t dim = extents.size() - 1; dim > 0; --dim) {
    Value extent = arith::ConstantIndexOp::create(b, loc, extents[dim]);
    indices[dim] = arith::RemUIOp::create(b, loc, number, extent);
    number = arith::DivUIOp::create(b, loc, number, extent);
  }
  indices.front() = number;
  return indices;
}

/// Puts what `kernel` does outside of parallel loops and launches in loops of
/// one iteration.
static LogicalResult wrapRest(func::FuncOp kernel) {
  SmallVector<Operation *> run;
  auto wrap = [&]() -> LogicalResult {
    while (!run.empty() && isMemoryEffectFree(run.back()))
      run.pop_back();
    if (run.empty())
      return success();
    OpBuilder b(run.front());
    SmallVector<OpFoldResult> one{b.getIndexAttr(1)};
    auto loop = scf::ForallOp::create(b, run.front()->getLoc(), one,
                                      ValueRange(), std::nullopt);
    for (Operation *op : run)
      op->moveBefore(loop.getBody()->getTerminator());
    for (Operation *op : run)
      for (Operation *user : op->getUsers())
        if (!loop->isProperAncestor(user))
          return op->emitError("expected a kernel to hand nothing from what "
                               "one thread does to others but by memory, but "
                               "got a use by '")
                 << user->getName() << "'";
    run.clear();
    return success();
  };
  for (Operation &op : llvm::make_early_inc_range(
           kernel.getBody().front().without_terminator()))
    if (isa<scf::ForallOp, gpu::LaunchOp, nvgpu::TmaCreateDescriptorOp>(op)) {
      if (failed(wrap()))
        return failure();
    } else if (!run.empty() || !isMemoryEffectFree(&op)) {
      run.push_back(&op);
    }
  return wrap();
}

/// Replaces `loop` by a launch with a thread for each of its iterations.
static FailureOr<gpu::LaunchOp> createLaunch(scf::ForallOp loop) {
  SmallVector<int64_t> extents;
  int64_t count = 1;
  for (OpFoldResult bound : loop.getMixedUpperBound()) {
    std::optional<int64_t> extent = getConstantIntValue(bound);
    if (!extent || !loop.isNormalized())
      return loop.emitError(
          "expected a parallel loop from 0 to a constant, by 1");
    extents.push_back(*extent);
    count *= *extent;
  }
  // Threads count in 32 bits.
  if (count > INT32_MAX - blockThreads)
    return loop.emitError("expected fewer than 2^31 - 128 iterations, one a "
                          "thread, but got ")
           << count;
  OpBuilder b(loop);
  Location loc = loop.getLoc();
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value blocks = arith::ConstantIndexOp::create(
      b, loc, llvm::divideCeil(count, blockThreads));
  Value threads = arith::ConstantIndexOp::create(b, loc, blockThreads);
  auto launch =
      gpu::LaunchOp::create(b, loc, blocks, one, one, threads, one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  Value first = arith::MulIOp::create(b, loc, launch.getBlockIds().x, threads);
  Value number = arith::AddIOp::create(b, loc, first, launch.getThreadIds().x);
  Operation *last = gpu::TerminatorOp::create(b, loc);
  b.setInsertionPoint(last);
  if (count % blockThreads) {
    Value end = arith::ConstantIndexOp::create(b, loc, count);
    Value isInside =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, number, end);
    auto guard = scf::IfOp::create(b, loc, isInside);
    last = guard.thenBlock()->getTerminator();
    b.setInsertionPoint(last);
  }
  SmallVector<Value> indices = split(b, loc, number, extents);
  Block *body = loop.getBody();
  body->getTerminator()->erase();
  for (auto [iv, index] : llvm::zip_equal(loop.getInductionVars(), indices))
    iv.replaceAllUsesWith(index);
  last->getBlock()->getOperations().splice(last->getIterator(),
                                           body->getOperations());
  loop.erase();
  return launch;
}

/// True if `op` is the same wherever it is computed, on the host too, where
/// tensor maps are made.
static bool isSunk(Operation *op) {
  return isMemoryEffectFree(op) && !isa<UnrealizedConversionCastOp>(op);
}

namespace {
struct OutlineLaunches : bsr::impl::BSROutlineLaunchesBase<OutlineLaunches> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (func.isExternal())
        continue;
      if (!func.isPrivate())
        copyInLoops(func);
      if (failed(func.isPrivate() ? wrapRest(func) : verifyHost(func)))
        return signalPassFailure();
    }
    SmallVector<Operation *> loops;
    getOperation().walk([&](Operation *op) {
      if (isa<scf::ForallOp, gpu::LaunchOp>(op) &&
          isa<func::FuncOp>(op->getParentOp()))
        loops.push_back(op);
    });
    if (loops.empty())
      return;
    OpBuilder b = OpBuilder::atBlockEnd(getOperation().getBody());
    auto chip = dyn_cast<GPUAttr>(getTarget(getOperation()));
    if (!chip) {
      getOperation().emitError("expected the module's target to be a GPU, such "
                               "as #bsr.gpu, but got ")
          << Attribute(getTarget(getOperation()));
      return signalPassFailure();
    }
    auto target = NVVM::NVVMTargetAttr::get(
        &getContext(), /*optLevel=*/3, "nvptx64-nvidia-cuda", chip.getChip(),
        chip.getPTXFeature());
    auto kernels = gpu::GPUModuleOp::create(b, getOperation().getLoc(),
                                            "kernels", b.getArrayAttr(target));
    SymbolTable symbols(getOperation());
    symbols.insert(kernels);
    SymbolTable functions(kernels);
    getOperation()->setAttr(gpu::GPUDialect::getContainerModuleAttrName(),
                            b.getUnitAttr());
    for (Operation *op : loops) {
      auto launch = dyn_cast<gpu::LaunchOp>(op);
      if (!launch) {
        FailureOr<gpu::LaunchOp> created =
            createLaunch(cast<scf::ForallOp>(op));
        if (failed(created))
          return signalPassFailure();
        launch = *created;
      }
      if (failed(outline(launch, symbols, functions)))
        return signalPassFailure();
    }
  }

  LogicalResult outline(gpu::LaunchOp launch, const SymbolTable &host,
                        SymbolTable &functions) {
    auto kernel = launch->getParentOfType<func::FuncOp>();
    if (failed(sinkOperationsIntoLaunchOp(launch, isSunk)))
      return failure();
    SmallVector<Value> operands;
    gpu::GPUFuncOp function =
        outlineKernelFunc(launch, kernel.getName(), operands);
    functions.insert(function);
    // `ptxas` is not to save registers for more thread blocks on a
    // multiprocessor, and spill.
    OpBuilder b(launch);
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      b.getI32IntegerAttr(1));
    // LLVM loads vectors of what the threads of a block share.
    for (unsigned i = 0; i != function.getNumWorkgroupAttributions(); ++i)
      function.setWorkgroupAttributionAttr(
          i, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(16));
    // What is constant goes into the GPU's memory.
    function.walk([&](memref::GetGlobalOp array) {
      StringAttr name = array.getNameAttr().getAttr();
      if (!functions.lookup(name))
        functions.insert(host.lookup<memref::GlobalOp>(name)->clone());
    });
    // Of the coordinates of a thread few are read.
    for (Operation &op : llvm::make_early_inc_range(
             function.getBody().front().without_terminator()))
      if (isOpTriviallyDead(&op))
        op.erase();
    auto call = gpu::LaunchFuncOp::create(
        b, launch.getLoc(), function, launch.getGridSizeOperandValues(),
        launch.getBlockSizeOperandValues(), launch.getDynamicSharedMemorySize(),
        operands,
        /*asyncTokenType=*/Type(), /*asyncDependencies=*/ValueRange(),
        launch.getClusterSizeOperandValues());
    if (StringAttr kind = attrs::kind.get(kernel))
      attrs::kind.set(call, kind);
    if (IntegerAttr flops = attrs::flops.get(kernel))
      attrs::flops.set(call, flops);
    launch.erase();
    ++numLaunches;
    return success();
  }
};
} // namespace
