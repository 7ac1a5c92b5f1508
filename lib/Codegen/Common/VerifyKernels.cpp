// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fails if a kernel allocates or the iterations of a parallel loop may race.

#include "bsr/Analysis/Iterations.h"
#include "bsr/Codegen/Common/Passes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
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

/// Checks that no two iterations of `loop` touch an element that one of them
/// writes.
static LogicalResult verifyLoop(scf::ForallOp loop,
                                const PatternArrays &arrays) {
  Iterations iterations(loop, arrays);
  llvm::MapVector<Value, SmallVector<MemoryAccess>> accesses;
  WalkResult result = loop.getBody()->walk([&](Operation *op) {
    if (std::optional<MemoryAccess> access = iterations.getAccess(op)) {
      auto buffer = cast<MemrefValue>(access->buffer);
      accesses[memref::skipViewLikeOps(buffer)].push_back(*access);
      return WalkResult::advance();
    }
    if (isa<scf::InParallelOp, memref::AllocaOp, memref::PrefetchOp>(op) ||
        op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
        isMemoryEffectFree(op))
      return WalkResult::advance();
    op->emitError("expected a parallel loop to touch memory by loads and "
                  "stores, but got '")
        << op->getName() << "'";
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted())
    return failure();

  for (auto &[buffer, uses] : accesses) {
    const MemoryAccess *store =
        llvm::find_if(uses, [](const MemoryAccess &access) {
          return isa<memref::StoreOp, vector::StoreOp>(access.op);
        });
    // What an iteration makes for itself no other one sees.
    if (store == uses.end() || buffer.getDefiningOp<memref::AllocaOp>())
      continue;
    Value view = uses.front().buffer;
    bool isOneView = llvm::all_of(uses, [&](const MemoryAccess &access) {
      return access.buffer == view;
    });
    if (!isOneView || !loop.isDefinedOutsideOfLoop(view) ||
        !isInjective(cast<MemRefType>(view.getType())) ||
        !iterations.areApart(uses)) {
      InFlightDiagnostic diagnostic =
          store->op->emitError("expected iterations of a parallel loop to "
                               "write different elements, but got a store "
                               "whose indices do not tell them apart");
      diagnostic.attachNote(loop.getLoc()) << "this is the loop";
      return diagnostic;
    }
  }
  return success();
}

/// Checks that nothing in `kernel` allocates but the stack, as much as is known
/// when it is compiled.
static LogicalResult verifyAllocations(func::FuncOp kernel) {
  WalkResult result = kernel.walk([](Operation *op) {
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
      WalkResult result = kernel.walk([&](scf::ForallOp loop) {
        return failed(verifyLoop(loop, arrays)) ? WalkResult::interrupt()
                                                : WalkResult::advance();
      });
      if (result.wasInterrupted() || failed(verifyAllocations(kernel)))
        return signalPassFailure();
    }
  }
};
} // namespace
