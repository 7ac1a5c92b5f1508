// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels on tensor cores share: shapes of fragments, rows in shared
// memory.

#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Codegen/GPU/Core/Reshapes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

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

MatrixPosition bsr::gpu::getMatrixPosition(BlockBuilder &b, bool rowsLast) {
  Value within = b.rem(b.lane, 8);
  Value second = b.rem(b.div(b.lane, 8), 2), fourth = b.div(b.lane, 16);
  return {b.multiplyAdd(rowsLast ? fourth : second, 8, within),
          rowsLast ? second : fourth};
}

Value bsr::gpu::getMatrixRow(BlockBuilder &b, int64_t pitch, bool rowsLast) {
  auto [row, column] = getMatrixPosition(b, rowsLast);
  return b.multiplyAdd(row, pitch, b.mul(column, copiedBytes));
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
