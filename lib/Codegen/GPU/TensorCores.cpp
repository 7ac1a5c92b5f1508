// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels on tensor cores share: shapes of fragments, rows in shared
// memory.

#include "TensorCores.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<Activations> Activations::match(Value tensor,
                                              int64_t featureDim) {
  auto type = cast<RankedTensorType>(tensor.getType());
  int64_t rank = type.getRank();
  // What is computed where it is used is not in memory. Offsets have 32 bits,
  // and rows begin at multiples of 16 bytes.
  if (!isa<BlockArgument>(tensor) || featureDim != rank - 2 ||
      type.getNumElements() > INT32_MAX ||
      type.getDimSize(rank - 1) % copiedElements)
    return std::nullopt;
  Activations result;
  result.tokens = type.getDimSize(rank - 1);
  result.features = type.getDimSize(rank - 2);
  for (int64_t extent : type.getShape().drop_back(2))
    result.batches *= extent;
  return result;
}

Value bsr::getMatrixRow(BlockBuilder &b, int64_t pitch, bool rowsLast) {
  Value within = b.rem(b.lane, 8);
  Value second = b.rem(b.div(b.lane, 8), 2), fourth = b.div(b.lane, 16);
  Value row = b.multiplyAdd(rowsLast ? fourth : second, 8, within);
  Value column = b.mul(rowsLast ? second : fourth, 8);
  return b.multiplyAdd(row, pitch, b.mul(column, elementBytes));
}

Value bsr::createPairs(OpBuilder &b, Location loc, Value memref,
                       ArrayRef<int64_t> sizes) {
  SmallVector<int64_t> shape(sizes);
  shape.push_back(2);
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t dim = shape.size() - 1; dim != 0; --dim)
    strides[dim - 1] = strides[dim] * shape[dim];
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  return memref::ReinterpretCastOp::create(
      b, loc, MemRefType::get(shape, element), memref, /*offset=*/0, shape,
      strides);
}

void bsr::storePair(BlockBuilder &b, ValueRange sums, Value memref,
                    ValueRange at) {
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  Value pair = vector::FromElementsOp::create(
      b.b, b.loc, VectorType::get(2, b.b.getF32Type()), sums);
  if (!type.isF32())
    pair = arith::TruncFOp::create(b.b, b.loc, VectorType::get(2, type), pair);
  SmallVector<Value> first(at);
  first.push_back(b.constant(0));
  b.store(pair, memref, first);
}
