// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the host's part of a step for a GPU, which is launches of kernels and
// nothing else, so that the runtime needs no code of it.

#include "LaunchList.h"
#include "bsr/Analysis/Plans.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::bsr;
namespace json = llvm::json;

/// The number that `value` is, at most 2^31 - 1.
static FailureOr<int64_t> getNumber(Operation *launch, Value value) {
  std::optional<int64_t> number = getConstantIntValue(value);
  if (number && *number >= 0 && *number <= INT32_MAX)
    return *number;
  return launch->emitError(
             "expected extents and numbers of a launch that are known when "
             "the step is compiled, from 0 to 2^31 - 1, but got a value of ")
         << value.getType();
}

static FailureOr<json::Array> getNumbers(Operation *launch,
                                         gpu::KernelDim3 extents) {
  json::Array numbers;
  for (Value extent : {extents.x, extents.y, extents.z}) {
    FailureOr<int64_t> number = getNumber(launch, extent);
    if (failed(number))
      return failure();
    numbers.push_back(*number);
  }
  return numbers;
}

/// The memory that `value`, an operand of `launch`, is or is a part of: a
/// buffer of the step, or a place in its arena. Kernels know offsets and
/// strides of parts of a buffer.
static FailureOr<json::Object> getMemory(Operation *launch, Value value) {
  while (auto view = value.getDefiningOp<ViewLikeOpInterface>()) {
    auto part = dyn_cast<memref::ViewOp>(*view);
    if (!part) {
      value = view.getViewSource();
      continue;
    }
    auto arena = dyn_cast<BlockArgument>(part.getSource());
    std::optional<int64_t> offset = getConstantIntValue(part.getByteShift());
    if (arena && offset &&
        arena.getArgNumber() == arena.getOwner()->getNumArguments() - 1)
      return json::Object{{"arena", *offset}};
    break;
  }
  if (auto argument = dyn_cast<BlockArgument>(value))
    return json::Object{{"buffer", int64_t(argument.getArgNumber())}};
  return launch->emitError("expected arguments of the step or parts of its "
                           "arena as what a kernel works on, but got '")
         << value.getDefiningOp()->getName() << "'";
}

/// The map of a matrix in memory that tensor copies read by.
static FailureOr<json::Object> getMap(Operation *launch,
                                      nvgpu::TmaCreateDescriptorOp op) {
  FailureOr<json::Object> memory = getMemory(launch, op.getTensor());
  if (failed(memory))
    return failure();
  auto matrix = op.getTensor().getDefiningOp<memref::CastOp>();
  auto type = matrix ? dyn_cast<MemRefType>(matrix.getSource().getType())
                     : MemRefType();
  if (!type || !type.hasStaticShape())
    return op.emitError("expected the map of a matrix of known extents, but "
                        "got one of ")
           << op.getTensor().getType();
  auto map = op.getType();
  std::string element;
  llvm::raw_string_ostream(element) << type.getElementType();
  int64_t swizzle = 0;
  switch (map.getSwizzle()) {
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_NONE:
    break;
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_32B:
    swizzle = 32;
    break;
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_64B:
    swizzle = 64;
    break;
  case nvgpu::TensorMapSwizzleKind::SWIZZLE_128B:
    swizzle = 128;
    break;
  }
  json::Object described = std::move(*memory);
  described["map"] =
      json::Object{{"type", element},
                   {"shape", json::Array(type.getShape())},
                   {"box", json::Array(map.getTensor().getShape())},
                   {"swizzle", swizzle}};
  return described;
}

static FailureOr<json::Object> getArgument(Operation *launch, Value operand) {
  if (isa<MemRefType>(operand.getType()))
    return getMemory(launch, operand);
  if (auto cast = operand.getDefiningOp<UnrealizedConversionCastOp>())
    if (auto map =
            cast.getOperand(0).getDefiningOp<nvgpu::TmaCreateDescriptorOp>())
      return getMap(launch, map);
  if (!operand.getType().isIndex())
    return launch->emitError("expected memory, maps and indices as arguments "
                             "of a kernel, but got ")
           << operand.getType();
  FailureOr<int64_t> number = getNumber(launch, operand);
  if (failed(number))
    return failure();
  return json::Object{{"number", *number}};
}

/// What the manifest says of `op`, which runs whenever `when` is.
static FailureOr<json::Object> getLaunch(gpu::LaunchFuncOp op, StringRef when) {
  FailureOr<json::Array> grid = getNumbers(op, op.getGridSizeOperandValues());
  FailureOr<json::Array> block = getNumbers(op, op.getBlockSizeOperandValues());
  if (failed(grid) || failed(block))
    return failure();
  json::Object launch{{"kernel", op.getKernelName().getValue()},
                      {"when", when},
                      {"grid", std::move(*grid)},
                      {"block", std::move(*block)}};
  if (op.hasClusterSize()) {
    FailureOr<json::Array> cluster =
        getNumbers(op, op.getClusterSizeOperandValues());
    if (failed(cluster))
      return failure();
    launch["cluster"] = std::move(*cluster);
  }
  if (Value shared = op.getDynamicSharedMemorySize()) {
    FailureOr<int64_t> bytes = getNumber(op, shared);
    if (failed(bytes))
      return failure();
    launch["shared"] = *bytes;
  }
  json::Array arguments;
  for (Value operand : op.getKernelOperands()) {
    FailureOr<json::Object> argument = getArgument(op, operand);
    if (failed(argument))
      return failure();
    arguments.push_back(std::move(*argument));
  }
  launch["arguments"] = std::move(arguments);
  return launch;
}

/// Adds the launches of `function`. What stands in a branch computes scores.
static LogicalResult addLaunches(func::FuncOp function, StringRef when,
                                 json::Array &launches) {
  WalkResult result = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto launch = dyn_cast<gpu::LaunchFuncOp>(op)) {
      bool isBranch = launch->getParentOp() != function;
      FailureOr<json::Object> described =
          getLaunch(launch, isBranch ? "scores" : when);
      if (failed(described))
        return WalkResult::interrupt();
      launches.push_back(std::move(*described));
      return WalkResult::advance();
    }
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      auto flag = dyn_cast<BlockArgument>(branch.getCondition());
      if (flag && !branch.elseBlock())
        return WalkResult::advance();
    } else if (isa<func::FuncOp>(op) || op->hasTrait<OpTrait::IsTerminator>() ||
               isMemoryEffectFree(op) ||
               isa<nvgpu::TmaCreateDescriptorOp>(op)) {
      return WalkResult::advance();
    }
    op->emitError("expected a step for a GPU to launch kernels and nothing "
                  "else, but got '")
        << op->getName() << "'";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

FailureOr<json::Array> bsr::getLaunches(func::FuncOp step) {
  json::Array launches;
  func::FuncOp plans = getPlans(step);
  if (plans && failed(addLaunches(plans, "pattern", launches)))
    return failure();
  if (failed(addLaunches(step, "step", launches)))
    return failure();
  return launches;
}

int64_t bsr::getPlanBytes(func::FuncOp step) {
  int64_t bytes = 0;
  DataLayout layout = DataLayout::closest(step);
  if (func::FuncOp plans = getPlans(step))
    plans.walk([&](memref::ViewOp part) {
      MemRefType type = part.getType();
      int64_t size = type.getNumElements() *
                     layout.getTypeSize(type.getElementType()).getFixedValue();
      if (auto offset = getConstantIntValue(part.getByteShift()))
        bytes = std::max(bytes, *offset + size);
    });
  // What is not of plans begins at the next line of memory.
  return llvm::alignTo(bytes, 64);
}
