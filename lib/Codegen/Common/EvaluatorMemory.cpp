// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is loaded from buffers and stored to them, lane by lane or together.

#include "bsr/Codegen/Common/Evaluator.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;

SmallVector<Index> Evaluator::place(Value memref, ArrayRef<Index> at) {
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<Index> result(at);
  if (type.getRank() == static_cast<int64_t>(at.size()))
    return result;
  auto [number, within] = split(result.pop_back_val(), type.getShape().back());
  result.insert(result.end() - 1, number);
  result.push_back(within);
  return result;
}

bool Evaluator::areAdjacent(Value memref, ArrayRef<Index> at) const {
  auto type = cast<MemRefType>(memref.getType());
  if (type.getElementType().isInteger(1) && !hasVectorsOfI1())
    return false;
  bool isCut = type.getRank() != static_cast<int64_t>(at.size());
  ArrayRef<int64_t> shape = type.getShape();
  if (isCut && at.back().lanes)
    // Lanes stay within a panel.
    return llvm::none_of(at.drop_back(), [](Index i) { return i.lanes; }) &&
           shape.back() % width == 0 && at.back().align % width == 0;
  if (isCut)
    return false;
  if (llvm::count_if(at, [](Index i) { return i.lanes; }) != 1)
    return false;
  SmallVector<int64_t> strides = type.getStridesAndOffset().first;
  return llvm::all_of(llvm::zip_equal(at, strides), [](auto it) {
    auto [index, stride] = it;
    return !index.lanes || stride == 1;
  });
}

static bool hasLanes(ArrayRef<Index> at) {
  return llvm::any_of(at, [](Index i) { return i.lanes; });
}

/// `at` without lanes, at lane number `lane`.
static SmallVector<Index> atLane(ArrayRef<Index> at, int64_t lane) {
  return llvm::map_to_vector(
      at, [&](Index i) { return i.lanes ? i.scalar().plus(lane) : i; });
}

Value Evaluator::load(Value memref, ArrayRef<Index> at) {
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  auto indices = [&](ArrayRef<Index> at) {
    return llvm::map_to_vector(place(memref, at),
                               [&](Index i) { return materialize(i); });
  };
  if (!hasLanes(at))
    return memref::LoadOp::create(b, loc, memref, indices(at));
  if (areAdjacent(memref, at)) {
    auto load = vector::LoadOp::create(b, loc, VectorType::get({width}, type),
                                       memref, indices(at));
    load.setAlignment(getAlignment(memref, at));
    return load;
  }
  SmallVector<Value> elements;
  for (int64_t lane = 0; lane != width; ++lane)
    elements.push_back(
        memref::LoadOp::create(b, loc, memref, indices(atLane(at, lane))));
  return vector::FromElementsOp::create(b, loc, VectorType::get({width}, type),
                                        elements);
}

void Evaluator::store(Value value, Value memref, ArrayRef<Index> at) {
  auto indices = [&](ArrayRef<Index> at) {
    return llvm::map_to_vector(place(memref, at),
                               [&](Index i) { return materialize(i); });
  };
  if (!hasLanes(at)) {
    memref::StoreOp::create(b, loc, value, memref, indices(at));
    return;
  }
  value = broadcast(value);
  if (areAdjacent(memref, at)) {
    vector::StoreOp::create(b, loc, value, memref, indices(at))
        .setAlignment(getAlignment(memref, at));
    return;
  }
  for (int64_t lane = 0; lane != width; ++lane) {
    Value element = vector::ExtractOp::create(b, loc, value, lane);
    memref::StoreOp::create(b, loc, element, memref, indices(atLane(at, lane)));
  }
}

Value Evaluator::readPerLane(Value tensor, ArrayRef<Index> at) {
  SmallVector<Value> elements;
  int64_t lanes = width;
  for (int64_t lane = 0; lane != lanes; ++lane) {
    llvm::SaveAndRestore scalar(width, int64_t(1));
    elements.push_back(read(tensor, atLane(at, lane)));
  }
  return vector::FromElementsOp::create(
      b, loc, VectorType::get({lanes}, elements.front().getType()), elements);
}
