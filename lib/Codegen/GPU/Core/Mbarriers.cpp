// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Barriers in shared memory, of thread blocks and of clusters.

#include "bsr/Codegen/GPU/Core/Mbarriers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

void bsr::gpu::initBarrier(BlockBuilder &b, Value barrier, int64_t arrivals) {
  NVVM::MBarrierInitOp::create(b.b, b.loc, barrier, b.constant(arrivals),
                               /*predicate=*/Value());
}

void bsr::gpu::publishBarriers(BlockBuilder &b) {
  NVVM::FenceMbarrierInitOp::create(b.b, b.loc);
}

void bsr::gpu::waitForCluster(BlockBuilder &b) {
  NVVM::ClusterArriveOp::create(b.b, b.loc, b.b.getUnitAttr());
  NVVM::ClusterWaitOp::create(b.b, b.loc, b.b.getUnitAttr());
}

void bsr::gpu::expectBytes(BlockBuilder &b, Value barrier, Value bytes) {
  NVVM::MBarrierArriveExpectTxOp::create(b.b, b.loc, /*res=*/Type(), barrier,
                                         bytes, NVVM::MemScopeKind::CTA,
                                         /*relaxed=*/false,
                                         /*predicate=*/Value());
}

// Waits and arrivals order for their own block alone, also where the barrier is
// another's: what they guard are copies of the tensor copy engine, which the
// barrier's phases order, not loads and stores of the other blocks. For the
// scope of a cluster ptxas adds a full memory barrier to each arrival, and an
// invalidation of L1 to each wait.

void bsr::gpu::waitForPhase(BlockBuilder &b, Value barrier, Value parity) {
  auto loop = scf::WhileOp::create(b.b, b.loc, TypeRange(), ValueRange());
  OpBuilder::InsertionGuard guard(b.b);
  b.b.createBlock(&loop.getBefore());
  Value isOver = NVVM::MBarrierTryWaitOp::create(
      b.b, b.loc, b.b.getI1Type(), barrier, parity, /*ticks=*/Value(),
      NVVM::MemScopeKind::CTA);
  Value isTrue = arith::ConstantIntOp::create(b.b, b.loc, 1, 1);
  Value isUnderWay = arith::XOrIOp::create(b.b, b.loc, isOver, isTrue);
  scf::ConditionOp::create(b.b, b.loc, isUnderWay, ValueRange());
  b.b.createBlock(&loop.getAfter());
  scf::YieldOp::create(b.b, b.loc);
}

void bsr::gpu::arriveAt(BlockBuilder &b, Value barrier, Value rank) {
  Type pointer = LLVM::LLVMPointerType::get(b.b.getContext(), clusterSpace);
  Value there = NVVM::MapaOp::create(b.b, b.loc, pointer, barrier, rank);
  NVVM::MBarrierArriveOp::create(b.b, b.loc, /*res=*/Type(), there,
                                 /*count=*/Value(), NVVM::MemScopeKind::CTA);
}
