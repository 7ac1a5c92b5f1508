// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fails if a kernel allocates or the iterations of a parallel loop, or the
// blocks of a launch, may race.

#include "bsr/Analysis/Iterations.h"
#include "bsr/Codegen/Common/Passes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRVERIFYKERNELS
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if different indices of a buffer of type `type` are different elements.
static bool isInjective(MemRefType type) {
  if (type.getLayout().isIdentity())
    return true;
  SmallVector<std::pair<int64_t, int64_t>> dims;
  for (auto [stride, extent] :
       llvm::zip_equal(type.getStridesAndOffset().first, type.getShape()))
    if (extent != 1)
      dims.push_back({stride, extent});
  llvm::sort(dims);
  int64_t span = 1;
  for (auto [stride, extent] : dims) {
    if (stride < span)
      return false;
    span += stride * (extent - 1);
  }
  return true;
}

/// True if `buffer` lies in memory that only the threads of one block share.
static bool isOfBlock(Value buffer) {
  return gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(
      cast<MemRefType>(buffer.getType()));
}

/// True if `pointer` points to memory of a thread block, or of a cluster.
static bool isShared(Type pointer) {
  unsigned space = cast<LLVM::LLVMPointerType>(pointer).getAddressSpace();
  return llvm::is_contained(
      {NVVM::NVVMMemorySpace::Shared, NVVM::NVVMMemorySpace::SharedCluster},
      static_cast<NVVM::NVVMMemorySpace>(space));
}

/// The buffer that copies by tensor map `map` read.
static Value getMapped(Value map) {
  auto pointer = map.getDefiningOp<UnrealizedConversionCastOp>();
  auto descriptor =
      pointer
          ? pointer.getOperand(0).getDefiningOp<nvgpu::TmaCreateDescriptorOp>()
          : nullptr;
  auto unranked = descriptor
                      ? descriptor.getTensor().getDefiningOp<memref::CastOp>()
                      : nullptr;
  return unranked ? unranked.getSource() : Value();
}

/// The buffer whose address `op` takes: what has an address may read anything.
static Value getAddressed(Operation *op) {
  if (auto address = dyn_cast<memref::ExtractAlignedPointerAsIndexOp>(op))
    return address.getSource();
  if (isa<UnrealizedConversionCastOp>(op) && op->getNumOperands() == 1 &&
      isa<MemRefType>(op->getOperand(0).getType()))
    return op->getOperand(0);
  if (auto copy = dyn_cast<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp>(op))
    return getMapped(copy.getTmaDescriptor());
  return Value();
}

/// True if `op`, an instruction of a GPU, writes no memory that blocks share:
/// it gets no address there, or only reads from it.
static bool isOfThreads(Operation *op) {
  StringRef dialect = op->getName().getDialectNamespace();
  if (dialect == gpu::GPUDialect::getDialectNamespace())
    return llvm::none_of(op->getOperandTypes(), llvm::IsaPred<MemRefType>);
  if (isa<NVVM::CpAsyncOp, LLVM::LoadOp, LLVM::AssumeOp>(op))
    return true;
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return isShared(store.getAddr().getType());
  // An instruction of no text gives values registers, and does nothing.
  if (auto instruction = dyn_cast<LLVM::InlineAsmOp>(op))
    return instruction.getAsmString().empty();
  return dialect == NVVM::NVVMDialect::getDialectNamespace() &&
         !isa<NVVM::InlinePtxOp>(op) &&
         llvm::all_of(op->getOperandTypes(), [](Type type) {
           return !isa<LLVM::LLVMPointerType>(type) || isShared(type);
         });
}

/// Checks that no two iterations of `loop`, a parallel loop, or blocks of a
/// launch, touch an element that one of them writes.
template <typename LoopOp>
static LogicalResult verifyLoop(LoopOp loop, const PatternArrays &arrays) {
  constexpr bool isLaunch = std::is_same_v<LoopOp, gpu::LaunchOp>;
  Iterations iterations(loop, arrays);
  llvm::MapVector<Value, SmallVector<MemoryAccess>> accesses;
  WalkResult result = loop.getRegion().walk([&](Operation *op) {
    std::optional<MemoryAccess> access = iterations.getAccess(op);
    if (Value buffer = getAddressed(op))
      access = MemoryAccess{
          op,
          buffer,
          SmallVector<Sum>(cast<MemRefType>(buffer.getType()).getRank()),
          {}};
    if (access && !isOfBlock(access->buffer)) {
      auto buffer = cast<MemrefValue>(access->buffer);
      accesses[memref::skipViewLikeOps(buffer)].push_back(*access);
      return WalkResult::advance();
    }
    if (access ||
        isa<scf::InParallelOp, memref::AllocaOp, memref::PrefetchOp,
            amx::TileZeroOp>(op) ||
        op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
        isMemoryEffectFree(op) || isOfThreads(op))
      return WalkResult::advance();
    op->emitError("expected ")
        << (isLaunch ? "a launch" : "a parallel loop")
        << " to touch memory by loads and stores, but got '" << op->getName()
        << "'";
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted())
    return failure();

  for (auto &[buffer, uses] : accesses) {
    const MemoryAccess *store =
        llvm::find_if(uses, [](const MemoryAccess &access) {
          return isa<memref::StoreOp, vector::StoreOp, amx::TileStoreOp>(
              access.op);
        });
    // What an iteration makes for itself no other one sees.
    if (store == uses.end() ||
        isa_and_present<memref::AllocaOp>(buffer.getDefiningOp()))
      continue;
    Value view = uses.front().buffer;
    bool isOneView = llvm::all_of(uses, [&](const MemoryAccess &access) {
      return access.buffer == view;
    });
    if (!isOneView || !iterations.isOutside(view) ||
        !isInjective(cast<MemRefType>(view.getType())) ||
        !iterations.areApart(uses)) {
      InFlightDiagnostic diagnostic =
          store->op->emitError("expected ")
          << (isLaunch ? "blocks of a launch" : "iterations of a parallel loop")
          << " to write different elements, but got a store whose indices do "
             "not tell them apart";
      diagnostic.attachNote(loop.getLoc())
          << "this is the " << (isLaunch ? "launch" : "loop");
      return diagnostic;
    }
  }
  return success();
}

/// Checks that nothing in `kernel` allocates but the stack, as much as is known
/// when it is compiled, and that addresses are taken where it is known what
/// they are for.
static LogicalResult verifyOperations(func::FuncOp kernel) {
  WalkResult result = kernel.walk([](Operation *op) {
    if (getAddressed(op) && !op->getParentOfType<gpu::LaunchOp>()) {
      op->emitError("expected a kernel to take the addresses of buffers in "
                    "launches, but got one outside");
      return WalkResult::interrupt();
    }
    auto alloca = dyn_cast<memref::AllocaOp>(op);
    if (!hasEffect<MemoryEffects::Allocate>(op) ||
        (alloca && alloca.getType().hasStaticShape()))
      return WalkResult::advance();
    op->emitError("expected a kernel that allocates no memory, but got '")
        << op->getName() << "'";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// The arguments of `kernel` that are arrays of a pattern in all `launches`.
static PatternArrays findArrays(func::FuncOp kernel,
                                ArrayRef<LaunchOp> launches) {
  PatternArrays arrays;
  auto getView = [](LaunchOp launch, BlockArgument argument, unsigned result) {
    Value operand = launch->getOperand(argument.getArgNumber());
    auto indices = operand.getDefiningOp<IndicesOp>();
    return indices && indices->getResult(result) == operand ? indices
                                                            : IndicesOp();
  };
  for (BlockArgument pointers : kernel.getArguments()) {
    if (!llvm::all_of(launches, [&](LaunchOp launch) {
          return getView(launch, pointers, 0);
        }))
      continue;
    arrays.pointers.insert(pointers);
    for (BlockArgument slots : kernel.getArguments())
      if (llvm::all_of(launches, [&](LaunchOp launch) {
            return getView(launch, slots, 2) == getView(launch, pointers, 0);
          }))
        arrays.views.insert({pointers, slots});
  }
  return arrays;
}

namespace {
struct VerifyKernels : bsr::impl::BSRVerifyKernelsBase<VerifyKernels> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    llvm::MapVector<func::FuncOp, SmallVector<LaunchOp>> kernels;
    getOperation().walk([&](LaunchOp launch) {
      kernels[symbols.lookup<func::FuncOp>(launch.getKernel())].push_back(
          launch);
    });
    for (auto &[kernel, launches] : kernels) {
      if (!kernel || kernel.isExternal())
        continue;
      PatternArrays arrays = findArrays(kernel, launches);
      WalkResult result = kernel.walk([&](Operation *op) {
        if (auto loop = dyn_cast<scf::ForallOp>(op))
          return WalkResult(verifyLoop(loop, arrays));
        if (auto launch = dyn_cast<gpu::LaunchOp>(op))
          return WalkResult(verifyLoop(launch, arrays));
        return WalkResult::advance();
      });
      if (result.wasInterrupted() || failed(verifyOperations(kernel)))
        return signalPassFailure();
    }
  }
};
} // namespace
