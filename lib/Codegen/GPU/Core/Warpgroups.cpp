// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of matrices in shared memory by the tensor cores of a warpgroup.

#include "bsr/Codegen/GPU/Core/Warpgroups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// The address of something in shared memory, of 32 bits.
static Value getAddress(BlockBuilder &b, Value shared) {
  return LLVM::PtrToIntOp::create(b.b, b.loc, b.b.getI32Type(), shared);
}

Value bsr::gpu::getAlignedBegin(BlockBuilder &b) {
  Value begin = getAddress(b, b.shared);
  return b.bitAnd(b.sub(b.constant(0), begin), b.constant(swizzlePeriod - 1));
}

WarpgroupOperand WarpgroupOperand::at(BlockBuilder &b, int64_t index) const {
  // 16 rows further down, or 32 bytes along them.
  int64_t bytes = isTransposed ? 2 * rowsStride : 2 * warpgroupDepth;
  WarpgroupOperand result = *this;
  result.start = b.at(start, index * bytes, b.b.getI8Type());
  return result;
}

/// The descriptor of an operand of `wgmma` (PTX ISA, "Matrix descriptor
/// format"): its address and its strides in 16 bytes, and how it is swizzled:
/// 1, rows of 128 bytes, 2, of 64, 3, of 32. Of an address it has the 18 bits
/// that lie in a thread block: above them stands which of its cluster that is.
static Value describe(BlockBuilder &b, const WarpgroupOperand &operand) {
  constexpr unsigned addressBits = 18, leadingBit = 16, rowsBit = 32,
                     swizzleBit = 62;
  uint64_t swizzle = 8 - llvm::Log2_64(operand.width);
  uint64_t fields = uint64_t(operand.leadingStride / 16) << leadingBit |
                    uint64_t(operand.rowsStride / 16) << rowsBit |
                    swizzle << swizzleBit;
  Type i64 = b.b.getI64Type();
  Value address = b.bitAnd(getAddress(b, operand.start),
                           b.constant((int64_t(1) << addressBits) - 1));
  Value start = arith::ExtUIOp::create(b.b, b.loc, i64,
                                       b.shiftRight(address, b.constant(4)));
  Value rest = LLVM::ConstantOp::create(
      b.b, b.loc, i64, b.b.getI64IntegerAttr(static_cast<int64_t>(fields)));
  return arith::OrIOp::create(b.b, b.loc, start, rest);
}

Value bsr::gpu::createSums(BlockBuilder &b, int64_t columns,
                           std::array<Value, 2> starts) {
  Type f32 = b.b.getF32Type();
  int64_t count = columns / 2;
  Type type = LLVM::LLVMStructType::getLiteral(b.b.getContext(),
                                               SmallVector<Type>(count, f32));
  // An instruction of no text gives each sum a register of its own here. Values
  // that several have would be copied where they are first used, behind the
  // fence of `wgmma`.
  SmallVector<Value> values;
  std::string outputs, inputs;
  for (int64_t i = 0; i != count; ++i) {
    values.push_back(starts[i / 2 % 2]);
    outputs += "=f,";
    inputs += (i ? "," : "") + std::to_string(i);
  }
  return LLVM::InlineAsmOp::create(
             b.b, b.loc, type, values, /*asm_string=*/"",
             /*constraints=*/outputs + inputs, /*has_side_effects=*/true,
             /*is_align_stack=*/false, LLVM::TailCallKind::None,
             /*asm_dialect=*/LLVM::AsmDialectAttr(),
             /*operand_attrs=*/ArrayAttr())
      .getResult(0);
}

SmallVector<Value> bsr::gpu::unpackSums(BlockBuilder &b, Value sums) {
  size_t count = cast<LLVM::LLVMStructType>(sums.getType()).getBody().size();
  return llvm::map_to_vector(
      llvm::seq<int64_t>(count), [&](int64_t i) -> Value {
        return LLVM::ExtractValueOp::create(b.b, b.loc, sums, i);
      });
}

Value bsr::gpu::packSums(BlockBuilder &b, ValueRange sums) {
  Type type = LLVM::LLVMStructType::getLiteral(
      b.b.getContext(), llvm::to_vector(sums.getTypes()));
  Value packed = LLVM::UndefOp::create(b.b, b.loc, type);
  for (auto [i, sum] : llvm::enumerate(sums))
    packed = LLVM::InsertValueOp::create(b.b, b.loc, packed, sum, i);
  return packed;
}

Value bsr::gpu::multiplyAdd(BlockBuilder &b, Type type,
                            const WarpgroupOperand &lhs,
                            const WarpgroupOperand &rhs, int64_t columns,
                            int64_t count, Value sums) {
  MLIRContext *context = b.b.getContext();
  auto kind = type.isF16() ? NVVM::WGMMATypes::f16 : NVVM::WGMMATypes::bf16;
  auto shape =
      NVVM::MMAShapeAttr::get(context, warpgroupRows, columns, warpgroupDepth);
  constexpr auto one = NVVM::WGMMAScaleIn::one;
  NVVM::WgmmaFenceAlignedOp::create(b.b, b.loc);
  for (int64_t i = 0; i != count; ++i)
    sums = NVVM::WgmmaMmaAsyncOp::create(
        b.b, b.loc, sums.getType(), sums, describe(b, lhs.at(b, i)),
        describe(b, rhs.at(b, i)), shape, kind, kind, NVVM::WGMMATypes::f32,
        NVVM::WGMMAScaleOut::one, one, one,
        lhs.isTransposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
        rhs.isTransposed ? NVVM::MMALayout::row : NVVM::MMALayout::col,
        NVVM::MMAIntOverflowAttr());
  NVVM::WgmmaGroupSyncAlignedOp::create(b.b, b.loc);
  NVVM::WgmmaWaitGroupSyncOp::create(b.b, b.loc, /*group=*/0);
  return sums;
}
