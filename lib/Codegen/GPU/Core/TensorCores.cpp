// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels on tensor cores share: shapes of fragments, rows in shared
// memory.

#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "bsr/Analysis/Kernels.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

void CopiedPiece::forPasses(BlockBuilder &b, int64_t rows,
                            llvm::function_ref<void(int64_t)> copy) const {
  auto copyAll = [&] {
    for (int64_t first = 0; first < rows; first += passRows)
      copy(first);
  };
  // Of fewer rows than a pass has, some threads copy nothing.
  if (passRows <= rows)
    copyAll();
  else
    b.when(b.less(row, b.constant(rows)), copyAll);
}

CopiedPiece bsr::gpu::getCopiedPiece(BlockBuilder &b, Value thread,
                                     int64_t threads, int64_t perRow,
                                     int64_t pitch) {
  Value row = b.div(thread, perRow), piece = b.rem(thread, perRow);
  int64_t passRows = threads / perRow;
  if (perRow >= 8)
    return {row, piece, passRows};
  // Of 8 rows, those that 8 threads copy are `apart`.
  int64_t together = 8 / perRow;
  int64_t apart = std::max<int64_t>(
      1, perRow >> llvm::countr_zero<uint64_t>(pitch / copiedBytes));
  Value turn = b.rem(b.div(row, together), perRow);
  Value place = b.multiplyAdd(b.rem(row, together), apart, b.rem(turn, apart));
  place = b.multiplyAdd(b.div(turn, apart), apart * together, place);
  return {b.multiplyAdd(b.div(row, 8), 8, place), piece, passRows};
}

bool bsr::gpu::isLoaded(Value tensor) {
  Operation *op = tensor.getDefiningOp();
  if (!op)
    return true;
  if (isa<ClusterOp>(op->getParentOp()))
    return false;
  // In a step, an element-wise operation may be computed where it is used if it
  // costs nothing there.
  if (isPointwise(op))
    return llvm::any_of(
        cast<linalg::GenericOp>(op).getBody()->without_terminator(),
        [](Operation &inner) {
          return !isa<arith::ConstantOp, linalg::IndexOp>(inner);
        });
  return isa<linalg::GenericOp>(op) || !isInlinable(op);
}

std::optional<Activations> Activations::match(Value tensor,
                                              int64_t featureDim) {
  auto type = cast<RankedTensorType>(tensor.getType());
  int64_t rank = type.getRank();
  // Offsets have 32 bits, and rows begin at multiples of 16 bytes.
  if (!isLoaded(skipReshapes(tensor)) || featureDim != rank - 2 ||
      type.getNumElements() > INT32_MAX ||
      type.getDimSize(rank - 1) * type.getElementTypeBitWidth() % 128)
    return std::nullopt;
  Activations result;
  result.tokens = type.getDimSize(rank - 1);
  result.features = type.getDimSize(rank - 2);
  for (int64_t extent : type.getShape().drop_back(2))
    result.batches *= extent;
  return result;
}

StepTokens bsr::gpu::getStepTokens(BlockBuilder &b, const Activations &x,
                                   int64_t tokens, Value step) {
  Value batch = b.constant(0);
  if (x.batches != 1) {
    int64_t ofBatch = llvm::divideCeil(x.tokens, tokens);
    batch = b.div(step, ofBatch);
    step = b.rem(step, ofBatch);
  }
  return {batch, b.mul(step, tokens)};
}

CopiedTokens bsr::gpu::getCopiedTokens(BlockBuilder &b, const Activations &x,
                                       int64_t tokens, Value step,
                                       Value offset) {
  auto [batch, begin] = getStepTokens(b, x, tokens, step);
  CopiedTokens copied{batch, b.add(begin, offset), /*bytes=*/Value()};
  if (x.tokens % tokens) {
    Value isInside = b.less(copied.first, b.constant(x.tokens));
    copied.bytes = b.select(isInside, b.constant(copiedBytes), b.constant(0));
    copied.first = b.select(isInside, copied.first, b.constant(0));
  }
  return copied;
}

/// The lane's row of four 8x8 matrices, and which 8 columns it is in.
static std::pair<Value, Value> getMatrixPlace(BlockBuilder &b, bool rowsLast) {
  Value within = b.rem(b.lane, 8);
  Value second = b.rem(b.div(b.lane, 8), 2), fourth = b.div(b.lane, 16);
  return {b.multiplyAdd(rowsLast ? fourth : second, 8, within),
          rowsLast ? second : fourth};
}

Value bsr::gpu::getMatrixRow(BlockBuilder &b, int64_t pitch, bool rowsLast) {
  auto [row, column] = getMatrixPlace(b, rowsLast);
  return b.multiplyAdd(row, pitch, b.mul(column, copiedBytes));
}

MatrixRows MatrixRows::getPadded(BlockBuilder &b, const Fragments &fragments,
                                 int64_t pitch, bool isInnerLast, bool isLeft) {
  MatrixRows rows;
  rows.elementBytes = fragments.elementBytes;
  rows.pitch = pitch;
  rows.offsets = {fragments.getLanePlace(b, pitch, isInnerLast, isLeft)};
  return rows;
}

MatrixRows MatrixRows::getSwizzled(BlockBuilder &b, int64_t rowBytes,
                                   int64_t partBytes, bool rowsLast) {
  // 128 bytes follow each other as they are; the next 128 have the bits of
  // their number flipped in those of each 16 bytes.
  constexpr int64_t lineBytes = 128;
  MatrixRows rows;
  rows.elementBytes = bsr::gpu::elementBytes;
  rows.pitch = rowBytes;
  rows.partBytes = partBytes;
  auto [row, half] = getMatrixPlace(b, rowsLast);
  Value flipped =
      b.rem(b.div(b.mul(row, rowBytes), lineBytes), rowBytes / copiedBytes);
  Value begin = b.mul(row, rowBytes);
  for (int64_t piece = 0; piece != rowBytes / copiedBytes; piece += 2) {
    Value number = b.bitXor(b.add(half, piece), flipped);
    rows.offsets.push_back(b.multiplyAdd(number, copiedBytes, begin));
    rows.steps.push_back(b.sub(rows.offsets.back(), rows.getFirst()));
  }
  return rows;
}

Value MatrixRows::at(BlockBuilder &b, Value first, int64_t row,
                     int64_t column) const {
  Type i8 = b.b.getI8Type();
  int64_t bytes = column * elementBytes;
  if (steps.empty())
    return b.at(first, row * pitch + bytes, i8);
  int64_t piece = bytes % pitch / (2 * copiedBytes);
  if (piece != 0)
    first = b.at(first, steps[piece], i8);
  return b.at(first, row * pitch + bytes / pitch * partBytes, i8);
}

/// Registers of a fragment of the left operand; one of the right has half.
static constexpr int64_t fragmentRegisters = 4;
/// Inner numbers of a fragment of tf32.
static constexpr int64_t tf32Depth = 8;

int64_t Fragments::getPitch(int64_t length, int64_t elementBytes,
                            bool isInnerLast) {
  constexpr int64_t wordBytes = 4;
  // Lanes load words: 8 neighbours of each of 4 rows.
  if (elementBytes == wordBytes && !isInnerLast)
    return (length + 8) * wordBytes;
  // Of each of 8 rows they load 16 bytes, which an odd multiple of 16 is apart.
  int64_t bytes = length * elementBytes;
  return bytes == copiedBytes ? bytes : bytes + copiedBytes;
}

Value Fragments::getLanePlace(BlockBuilder &b, int64_t pitch, bool isInnerLast,
                              bool isLeft) const {
  // Matrices of `ldmatrix` are 16 bytes wide: those of f32 have 4 inner
  // numbers.
  if (!type.isF32() || isInnerLast)
    return getMatrixRow(b, pitch, /*rowsLast=*/isLeft != isInnerLast);
  return b.multiplyAdd(b.rem(b.lane, 4), pitch,
                       b.mul(b.div(b.lane, 4), elementBytes));
}

SmallVector<Value, 8> Fragments::load(BlockBuilder &b, Value pointer,
                                      int64_t pitch, bool isInnerLast,
                                      bool isLeft) const {
  SmallVector<Value, 8> registers;
  Type i8 = b.b.getI8Type(), f32 = b.b.getF32Type();
  if (!type.isF32()) {
    llvm::append_range(registers,
                       b.loadMatrices(pointer, /*transpose=*/!isInnerLast));
    return registers;
  }
  for (int64_t inner = 0; inner != fragmentRows; inner += tf32Depth) {
    if (isInnerLast) {
      Value matrices = b.at(pointer, inner * elementBytes, i8);
      for (Value word : b.loadMatrices(matrices, /*transpose=*/false))
        registers.push_back(
            b.roundToTF32(LLVM::BitcastOp::create(b.b, b.loc, f32, word)));
      continue;
    }
    // What `ldmatrix` does not transpose: 8 of its own numbers are apart, or 4
    // inner ones.
    for (int64_t i = 0; i != fragmentRegisters; ++i) {
      int64_t own = (isLeft ? i % 2 : i / 2) * 8;
      int64_t row = inner + (isLeft ? i / 2 : i % 2) * 4;
      Value word = b.at(pointer, row * pitch + own * elementBytes, i8);
      registers.push_back(b.roundToTF32(b.load(word, f32)));
    }
  }
  return registers;
}

void Fragments::multiplyAdd(BlockBuilder &b, ArrayRef<Value> left,
                            ArrayRef<Value> right, int64_t half,
                            MutableArrayRef<Value> sum) const {
  constexpr int64_t halfRegisters = fragmentRegisters / 2;
  for (size_t first = 0; first != left.size(); first += fragmentRegisters)
    llvm::copy(
        b.multiply(type, left.slice(first, fragmentRegisters),
                   right.slice(first + half * halfRegisters, halfRegisters),
                   sum),
        sum.begin());
}

Value bsr::gpu::createView(OpBuilder &b, Location loc, Value memref,
                           ArrayRef<int64_t> sizes) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  SmallVector<int64_t> strides(sizes.size(), 1);
  for (int64_t dim = sizes.size() - 1; dim > 0; --dim)
    strides[dim - 1] = strides[dim] * sizes[dim];
  return memref::ReinterpretCastOp::create(
      b, loc, MemRefType::get(sizes, element), memref, /*offset=*/0, sizes,
      strides);
}

StoredRows bsr::gpu::createRows(OpBuilder &b, Location loc, Value memref,
                                ArrayRef<int64_t> sizes, int64_t columns,
                                int64_t length) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  if (!length)
    length = 64 / element.getIntOrFloatBitWidth();
  SmallVector<int64_t> shape(sizes);
  shape.append({columns / length, length});
  return {createView(b, loc, memref, shape), columns, length};
}

Value bsr::gpu::packPair(BlockBuilder &b, ValueRange sums, Type type) {
  Value pair = vector::FromElementsOp::create(
      b.b, b.loc, VectorType::get(2, b.b.getF32Type()), sums);
  pair = arith::TruncFOp::create(b.b, b.loc, VectorType::get(2, type), pair);
  return LLVM::BitcastOp::create(b.b, b.loc, b.b.getI32Type(), pair);
}

void bsr::gpu::storeVector(BlockBuilder &b, ValueRange sums,
                           const StoredRows &rows, ValueRange row, Value column,
                           bool isRagged) {
  Type type = cast<MemRefType>(rows.vectors.getType()).getElementType();
  Value vector = vector::FromElementsOp::create(
      b.b, b.loc, VectorType::get(rows.length, b.b.getF32Type()), sums);
  if (!type.isF32())
    vector = arith::TruncFOp::create(
        b.b, b.loc, VectorType::get(rows.length, type), vector);
  Value number = b.div(column, rows.length);
  SmallVector<Value> at(row);
  at.append({number, b.constant(0)});
  auto store = [&] { b.store(vector, rows.vectors, at); };
  if (!isRagged)
    return store();
  b.when(b.less(number, b.constant(rows.columns / rows.length)), store);
}

/// Stores the row of the lane in two neighbouring fragments, the two sums of
/// each of which are `first` and `second`.
static void storePair(BlockBuilder &b, ValueRange first, ValueRange second,
                      const StoredRows &rows, ValueRange row, Value column,
                      bool isRagged) {
  Type type = cast<MemRefType>(rows.vectors.getType()).getElementType();
  auto store = [&](Value vector, Value number) {
    SmallVector<Value> at(row);
    at.append({number, b.constant(0)});
    auto body = [&] { b.store(vector, rows.vectors, at); };
    if (!isRagged)
      return body();
    b.when(b.less(number, b.constant(rows.columns / rows.length)), body);
  };
  Value inRow = b.rem(b.lane, 4);
  if (type.isF32()) {
    Value number = b.add(b.div(column, 2), inRow);
    for (ValueRange sums : {first, second}) {
      store(vector::FromElementsOp::create(b.b, b.loc, VectorType::get(2, type),
                                           sums),
            number);
      number = b.add(number, fragmentCols / 2);
    }
    return;
  }
  // Of two neighbouring lanes, one gets four columns of the first fragment, and
  // the other one of the second.
  Value left = packPair(b, first, type), right = packPair(b, second, type);
  Value isSecond = b.equal(b.rem(b.lane, 2), b.constant(1));
  Value other = b.exchange(b.select(isSecond, left, right), 1);
  Value words = vector::FromElementsOp::create(
      b.b, b.loc, VectorType::get(2, b.b.getI32Type()),
      ValueRange{b.select(isSecond, other, left),
                 b.select(isSecond, right, other)});
  Value quad =
      LLVM::BitcastOp::create(b.b, b.loc, VectorType::get(4, type), words);
  Value number =
      b.multiplyAdd(b.rem(b.lane, 2), fragmentCols / 4, b.div(column, 4));
  store(quad, b.add(number, b.div(inRow, 2)));
}

void bsr::gpu::storeRow(BlockBuilder &b, ValueRange sums,
                        const StoredRows &rows, ValueRange row, Value column,
                        bool isRagged) {
  for (size_t first = 0; first != sums.size(); first += 4) {
    storePair(b, sums.slice(first, 2), sums.slice(first + 2, 2), rows, row,
              column, isRagged);
    column = b.add(column, 2 * fragmentCols);
  }
}
