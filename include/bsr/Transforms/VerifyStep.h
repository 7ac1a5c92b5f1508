// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is checked of a step before passes rely on it.

#ifndef BSR_TRANSFORMS_VERIFYSTEP_H
#define BSR_TRANSFORMS_VERIFYSTEP_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::bsr {

/// The return of `func`. Reports if `func` is not one block that ends in one.
FailureOr<func::ReturnOp> getReturn(func::FuncOp func);

/// Checks what every pass relies on of `step`, a program on tensors: it is
/// public, has one block that ends in a return, its arguments are tensors of
/// static shape, with elements of a type that the runtime knows, or patterns,
/// and its results such tensors. Reports if not.
LogicalResult verifySignature(func::FuncOp step);

/// The pass `bsr-verify-step`, the contract at the beginning of a pipeline:
/// fails if a module is not a step that the pipelines can lower. The module is
/// functions, and one of them the step (`getStep`, `verifySignature`), the only
/// public one. Operations are of dialects that the pipelines lower, work on
/// buffers if they work on tensors, and make tensors that have elements. What
/// the step calls has a body that is one block, too, and does not call itself.
/// What breaks this is reported where it stands: an argument at its own
/// location.
std::unique_ptr<Pass> createVerifyStep();

/// The pass `bsr-drop-signs`, which makes unsigned integers signless, bit for
/// bit. What JAX's programs lower to has arguments of them (the keys of random
/// numbers), with casts to the signless integers that `arith` computes with.
/// The operations know what they do (`arith.divui`), and bufferization does not
/// know the casts. What is unsigned for the caller carries `bsr.unsigned`: the
/// manifest says so.
std::unique_ptr<Pass> createDropSigns();

/// Registers both passes.
void registerStepPasses();

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_VERIFYSTEP_H
