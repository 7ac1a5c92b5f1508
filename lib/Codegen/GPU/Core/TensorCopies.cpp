// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of boxes of a tensor to the shared memory of one or several thread
// blocks, which the tensor memory accelerator makes.

#include "bsr/Codegen/GPU/Core/TensorCopies.h"
#include "bsr/Codegen/GPU/Core/Mbarriers.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

Value bsr::gpu::createTensorMap(OpBuilder &b, Location loc, Value memref,
                                int64_t columns, std::array<int64_t, 2> box) {
  auto type = cast<MemRefType>(memref.getType());
  Type element = type.getElementType();
  int64_t rows = type.getNumElements() / columns;
  Value matrix = memref::ReinterpretCastOp::create(
      b, loc, MemRefType::get({rows, columns}, element), memref, /*offset=*/0,
      ArrayRef<int64_t>{rows, columns}, ArrayRef<int64_t>{columns, 1});
  Value unranked = memref::CastOp::create(
      b, loc, UnrankedMemRefType::get(element, /*memorySpace=*/0), matrix);
  using Swizzle = nvgpu::TensorMapSwizzleKind;
  int64_t width = box[1] * element.getIntOrFloatBitWidth() / 8;
  Swizzle swizzle = width == 128  ? Swizzle::SWIZZLE_128B
                    : width == 64 ? Swizzle::SWIZZLE_64B
                                  : Swizzle::SWIZZLE_32B;
  constexpr int64_t sharedSpace = 3;
  auto mapType = nvgpu::TensorMapDescriptorType::get(
      b.getContext(),
      MemRefType::get(box, element, MemRefLayoutAttrInterface(),
                      b.getI64IntegerAttr(sharedSpace)),
      swizzle, nvgpu::TensorMapL2PromoKind::L2PROMO_128B,
      nvgpu::TensorMapOOBKind::OOB_ZERO,
      nvgpu::TensorMapInterleaveKind::INTERLEAVE_NONE);
  SmallVector<Value> extents;
  for (int64_t extent : box)
    extents.push_back(arith::ConstantIndexOp::create(b, loc, extent));
  Value map =
      nvgpu::TmaCreateDescriptorOp::create(b, loc, mapType, unranked, extents);
  return UnrealizedConversionCastOp::create(
             b, loc, LLVM::LLVMPointerType::get(b.getContext()), map)
      .getResult(0);
}

void bsr::gpu::copyBox(BlockBuilder &b, Value shared, Value map, Value row,
                       Value column, Value barrier, Value blocks) {
  Type pointer = LLVM::LLVMPointerType::get(b.b.getContext(), clusterSpace);
  Value to = LLVM::AddrSpaceCastOp::create(b.b, b.loc, pointer, shared);
  if (blocks)
    blocks = arith::TruncIOp::create(b.b, b.loc, b.b.getI16Type(), blocks);
  NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
      b.b, b.loc, to, map, /*coordinates=*/ValueRange{column, row}, barrier,
      /*im2colOffsets=*/ValueRange(), blocks, /*l2CacheHint=*/Value(),
      NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false,
      /*group=*/NVVM::CTAGroupKindAttr(), /*predicate=*/Value());
}

ActivationBoxes ActivationBoxes::create(OpBuilder &b, const KernelBody &kernel,
                                        Value operand, const Activations &x,
                                        std::array<int64_t, 2> box) {
  Value buffer = kernel.inputs.lookup(skipReshapes(operand));
  return {createTensorMap(b, kernel.loc, buffer, x.tokens, box), x.features};
}

void ActivationBoxes::copy(BlockBuilder &b, Value shared, const Begin &from,
                           Value barrier, Value blocks) const {
  Value row = b.add(from.feature, b.mul(from.batch, features));
  copyBox(b, shared, map, row, from.token, barrier, blocks);
}
