// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the threads of a block do together, written out thread by thread.

#include "bsr/Codegen/GPU/Core/BlockBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

static constexpr unsigned globalSpace = 1, sharedSpace = 3;

/// Kernels are emitted for buffers of fewer than 2^31 elements. Known to LLVM,
/// the constant part of an address becomes the offset of its instruction.
static constexpr auto noOverflow = arith::IntegerOverflowFlags::nsw;

/// The pointer to the first element of `memref`, whose kernel counts in 32
/// bits.
/// (`memref.extract_aligned_pointer_as_index` would cut it to 32 bits.)
static Value extractPointer(OpBuilder &b, Location loc, Value memref,
                            unsigned space) {
  auto type = cast<MemRefType>(memref.getType());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), space);
  SmallVector<Type> fields{pointer, pointer, b.getI32Type()};
  if (int64_t rank = type.getRank())
    fields.append(2, LLVM::LLVMArrayType::get(b.getI32Type(), rank));
  Type descriptor = LLVM::LLVMStructType::getLiteral(b.getContext(), fields);
  Value whole = UnrealizedConversionCastOp::create(b, loc, descriptor, memref)
                    .getResult(0);
  return LLVM::ExtractValueOp::create(b, loc, whole, 1);
}

void BlockBuilder::launch(OpBuilder &b, Location loc,
                          std::array<int64_t, 2> grid, int64_t threads,
                          int64_t sharedBytes,
                          llvm::function_ref<void(BlockBuilder &)> body,
                          std::array<int64_t, 2> cluster) {
  auto index = [&](int64_t value) {
    return arith::ConstantIndexOp::create(b, loc, value).getResult();
  };
  Value one = index(1);
  std::array<Value, 3> blocks;
  if (cluster[0] * cluster[1] != 1)
    blocks = {index(cluster[0]), index(cluster[1]), one};
  auto launch = mlir::gpu::LaunchOp::create(
      b, loc, index(grid[0]), index(grid[1]), one, index(threads), one, one,
      arith::ConstantIntOp::create(b, loc, sharedBytes, 32),
      /*asyncTokenType=*/Type(), /*asyncDependencies=*/{},
      /*workgroupAttributions=*/{}, /*privateAttributions=*/{}, blocks[0],
      blocks[1], blocks[2]);
  // The builder leaves out the positions in the cluster and its extents.
  for (int64_t i = 0; blocks[0] && i != 6; ++i)
    launch.getBody().front().addArgument(b.getIndexType(), loc);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&launch.getBody().front());
  Operation *last = mlir::gpu::TerminatorOp::create(b, loc);
  b.setInsertionPoint(last);
  BlockBuilder builder(b, loc);
  auto number = [&](Value id) {
    return arith::IndexCastOp::create(b, loc, b.getI32Type(), id).getResult();
  };
  builder.thread = number(launch.getThreadIds().x);
  builder.block = {number(launch.getBlockIds().x),
                   number(launch.getBlockIds().y)};
  builder.lane = builder.rem(builder.thread, warpThreads);
  builder.warp = builder.div(builder.thread, warpThreads);
  auto space = mlir::gpu::AddressSpaceAttr::get(
      b.getContext(), mlir::gpu::AddressSpace::Workgroup);
  auto bytes = MemRefType::get(ShapedType::kDynamic, b.getI8Type(),
                               MemRefLayoutAttrInterface(), space);
  builder.shared = extractPointer(
      b, loc, mlir::gpu::DynamicSharedMemoryOp::create(b, loc, bytes),
      sharedSpace);
  body(builder);
}

Value BlockBuilder::constant(int64_t value) {
  return arith::ConstantIntOp::create(b, loc, value, 32);
}

SmallVector<Value> BlockBuilder::zeros(int64_t count) {
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(b.getF32Type()));
  return SmallVector<Value>(count, zero);
}

Value BlockBuilder::add(Value x, Value y) {
  return b.createOrFold<arith::AddIOp>(loc, x, y, noOverflow);
}

Value BlockBuilder::sub(Value x, Value y) {
  return b.createOrFold<arith::SubIOp>(loc, x, y, noOverflow);
}

Value BlockBuilder::mul(Value x, int64_t y) {
  return b.createOrFold<arith::MulIOp>(loc, x, constant(y), noOverflow);
}

Value BlockBuilder::div(Value x, int64_t y) {
  return b.createOrFold<arith::DivUIOp>(loc, x, constant(y));
}

Value BlockBuilder::rem(Value x, int64_t y) {
  return b.createOrFold<arith::RemUIOp>(loc, x, constant(y));
}

Value BlockBuilder::bitAnd(Value x, Value y) {
  return b.createOrFold<arith::AndIOp>(loc, x, y);
}

Value BlockBuilder::bitOr(Value x, Value y) {
  return b.createOrFold<arith::OrIOp>(loc, x, y);
}

Value BlockBuilder::bitXor(Value x, Value y) {
  return b.createOrFold<arith::XOrIOp>(loc, x, y);
}

Value BlockBuilder::shiftLeft(Value x, Value y) {
  return b.createOrFold<arith::ShLIOp>(loc, x, y);
}

Value BlockBuilder::shiftRight(Value x, Value y) {
  return b.createOrFold<arith::ShRUIOp>(loc, x, y);
}

Value BlockBuilder::min(Value x, Value y) {
  return b.createOrFold<arith::MinSIOp>(loc, x, y);
}

Value BlockBuilder::max(Value x, Value y) {
  return b.createOrFold<arith::MaxSIOp>(loc, x, y);
}

Value BlockBuilder::less(Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y);
}

Value BlockBuilder::equal(Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, x, y);
}

Value BlockBuilder::select(Value condition, Value x, Value y) {
  return b.createOrFold<arith::SelectOp>(loc, condition, x, y);
}

Value BlockBuilder::countOnes(Value x) {
  return math::CtPopOp::create(b, loc, x);
}

Value BlockBuilder::countTrailingZeros(Value x) {
  return LLVM::CountTrailingZerosOp::create(b, loc, x.getType(), x,
                                            /*is_zero_poison=*/true);
}

SmallVector<Value> BlockBuilder::loop(
    Value low, Value high, int64_t step, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  auto loop = scf::ForOp::create(b, loc, low, high, constant(step), carried);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next =
      body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!carried.empty())
    scf::YieldOp::create(b, loc, next);
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> BlockBuilder::unroll(
    int64_t count, int64_t together, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(Value, int64_t, ValueRange)> body) {
  auto emit = [&](Value first, ValueRange carried) {
    SmallVector<Value> next(carried);
    for (int64_t i = 0; i != together; ++i)
      next = body(first, i, next);
    return next;
  };
  if (together == count)
    return emit(constant(0), carried);
  return loop(constant(0), constant(count), together, carried, emit);
}

void BlockBuilder::assume(Value condition) {
  LLVM::AssumeOp::create(b, loc, condition);
}

void BlockBuilder::when(Value condition, llvm::function_ref<void()> body) {
  auto guarded = scf::IfOp::create(b, loc, condition);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(guarded.thenBlock()->getTerminator());
  body();
}

SmallVector<Value>
BlockBuilder::when(Value condition, ValueRange otherwise,
                   llvm::function_ref<SmallVector<Value>()> body) {
  auto choice = scf::IfOp::create(b, loc, otherwise.getTypes(), condition,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(b, loc, body());
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, loc, otherwise);
  return SmallVector<Value>(choice.getResults());
}

Value BlockBuilder::getPointer(Value memref) {
  Type global = LLVM::LLVMPointerType::get(b.getContext(), globalSpace);
  return LLVM::AddrSpaceCastOp::create(
      b, loc, global, extractPointer(b, loc, memref, /*space=*/0));
}

Value BlockBuilder::at(Value pointer, Value offset, Type type) {
  APInt number;
  if (matchPattern(offset, m_ConstantInt(&number)))
    return LLVM::GEPOp::create(b, loc, pointer.getType(), type, pointer,
                               LLVM::GEPArg(number.getSExtValue()));
  return LLVM::GEPOp::create(b, loc, pointer.getType(), type, pointer, offset);
}

Value BlockBuilder::atFar(Value pointer, Value index, int64_t stride,
                          Type type) {
  Type i64 = b.getI64Type();
  Value wide = arith::ExtUIOp::create(b, loc, i64, index);
  Value factor = arith::ConstantIntOp::create(b, loc, stride, 64);
  Value offset = arith::MulIOp::create(b, loc, wide, factor);
  return LLVM::GEPOp::create(b, loc, pointer.getType(), type, pointer, offset);
}

Value BlockBuilder::at(Value offset) {
  return at(shared, offset, b.getI8Type());
}

Value BlockBuilder::load(Value pointer, Type type) {
  return LLVM::LoadOp::create(b, loc, type, pointer);
}

SmallVector<Value> BlockBuilder::loadIntegers(Value pointer, int64_t count) {
  // A load is of at most 16 bytes.
  constexpr int64_t most = 4;
  SmallVector<Value> result;
  for (int64_t first = 0; first != count; first += std::min(most, count)) {
    int64_t length = std::min(most, count);
    Type type = b.getI32Type();
    if (length != 1)
      type = VectorType::get(length, type);
    Value loaded =
        LLVM::LoadOp::create(b, loc, type, at(pointer, first, b.getI32Type()),
                             /*alignment=*/4 * length);
    if (length == 1) {
      result.push_back(loaded);
      continue;
    }
    for (int64_t i = 0; i != length; ++i)
      result.push_back(
          LLVM::ExtractElementOp::create(b, loc, loaded, constant(i)));
  }
  return result;
}

SmallVector<Value> BlockBuilder::loadFloats(Value pointer, Type type,
                                            int64_t count) {
  int64_t bytes = count * type.getIntOrFloatBitWidth() / 8;
  Type loadedType = count == 1 ? type : VectorType::get(count, type);
  Value loaded = LLVM::LoadOp::create(b, loc, loadedType, pointer,
                                      /*alignment=*/bytes);
  SmallVector<Value> result;
  for (int64_t i = 0; i != count; ++i) {
    Value number = count == 1 ? loaded
                              : LLVM::ExtractElementOp::create(b, loc, loaded,
                                                               constant(i));
    if (!type.isF32())
      number = arith::ExtFOp::create(b, loc, b.getF32Type(), number);
    result.push_back(number);
  }
  return result;
}

void BlockBuilder::storeShared(Value value, Value pointer, int64_t bytes) {
  LLVM::StoreOp::create(b, loc, value, pointer, /*alignment=*/bytes);
}

SmallVector<Value> BlockBuilder::toIndices(ValueRange at) {
  return llvm::map_to_vector(at, [&](Value number) -> Value {
    return b.createOrFold<arith::IndexCastOp>(loc, b.getIndexType(), number);
  });
}

Value BlockBuilder::load(Value memref, ValueRange at) {
  return memref::LoadOp::create(b, loc, memref, toIndices(at));
}

void BlockBuilder::store(Value value, Value memref, ValueRange at) {
  auto type = dyn_cast<VectorType>(value.getType());
  if (!type) {
    memref::StoreOp::create(b, loc, value, memref, toIndices(at));
    return;
  }
  // Without an alignment, elements are stored one by one.
  int64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
  vector::StoreOp::create(b, loc, value, memref, toIndices(at),
                          /*nontemporal=*/false, llvm::MaybeAlign(bytes));
}

Value BlockBuilder::exchange(Value value, int64_t mask) {
  return mlir::gpu::ShuffleOp::create(b, loc, value, constant(mask),
                                      constant(warpThreads),
                                      mlir::gpu::ShuffleMode::XOR)
      .getShuffleResult();
}

void BlockBuilder::barrier() { mlir::gpu::BarrierOp::create(b, loc); }

void BlockBuilder::setRegisters(int64_t count, bool isMore) {
  NVVM::SetMaxRegisterOp::create(
      b, loc, b.getI32IntegerAttr(int32_t(count)),
      NVVM::SetMaxRegisterActionAttr::get(
          b.getContext(), isMore ? NVVM::SetMaxRegisterAction::increase
                                 : NVVM::SetMaxRegisterAction::decrease));
}

void BlockBuilder::copyAsync(Value shared, Value global, Value size,
                             int64_t bytes) {
  // Copies of 16 bytes pass by the first-level cache.
  auto cache = bytes == 16 ? NVVM::LoadCacheModifierKind::CG
                           : NVVM::LoadCacheModifierKind::CA;
  NVVM::CpAsyncOp::create(b, loc, shared, global, bytes, cache, size);
}

void BlockBuilder::commitCopies() {
  NVVM::CpAsyncCommitGroupOp::create(b, loc);
}

void BlockBuilder::waitForCopies(int64_t groups) {
  NVVM::CpAsyncWaitGroupOp::create(b, loc, b.getI32IntegerAttr(groups));
}

SmallVector<Value, 4> BlockBuilder::loadMatrices(Value shared, bool transpose) {
  MLIRContext *context = b.getContext();
  Type registers = LLVM::LLVMStructType::getLiteral(
      context, SmallVector<Type>(4, b.getI32Type()));
  Value loaded = NVVM::LdMatrixOp::create(
      b, loc, registers, shared, /*num=*/4,
      transpose ? NVVM::MMALayout::col : NVVM::MMALayout::row,
      NVVM::LdStMatrixShapeAttr::get(context, 8, 8),
      NVVM::LdStMatrixEltType::B16);
  SmallVector<Value, 4> result;
  for (int64_t i = 0; i != 4; ++i)
    result.push_back(LLVM::ExtractValueOp::create(b, loc, loaded, i));
  return result;
}

Value BlockBuilder::roundToTF32(Value value) {
  return NVVM::ConvertFloatToTF32Op::create(b, loc, b.getI32Type(), value,
                                            NVVM::FPRoundingMode::RNA);
}

SmallVector<Value, 4> BlockBuilder::multiply(Type type, ArrayRef<Value> lhs,
                                             ArrayRef<Value> rhs,
                                             ArrayRef<Value> sums) {
  SmallVector<Value> a(lhs), c(rhs);
  NVVM::MMATypes kind =
      type.isF32() ? NVVM::MMATypes::tf32 : NVVM::MMATypes::bf16;
  int64_t depth = type.isF32() ? 8 : 16;
  if (type.isF16()) {
    kind = NVVM::MMATypes::f16;
    for (SmallVector<Value> *fragment : {&a, &c})
      for (Value &word : *fragment)
        word = LLVM::BitcastOp::create(b, loc, VectorType::get(2, type), word);
  }
  Type registers = LLVM::LLVMStructType::getLiteral(
      b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  Value product = NVVM::MmaOp::create(
      b, loc, registers, a, c, sums, /*shape=*/{16, 8, depth},
      /*b1Op=*/std::nullopt, /*intOverflow=*/std::nullopt,
      std::array{kind, kind},
      std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
  SmallVector<Value, 4> result;
  for (int64_t i = 0; i != 4; ++i)
    result.push_back(LLVM::ExtractValueOp::create(b, loc, product, i));
  return result;
}
