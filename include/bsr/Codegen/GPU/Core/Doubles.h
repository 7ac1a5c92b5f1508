// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that are computed in f64.

#ifndef BSR_CODEGEN_GPU_CORE_DOUBLES_H
#define BSR_CODEGEN_GPU_CORE_DOUBLES_H

#include "bsr/Codegen/Common/NumberBuilder.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace mlir::bsr::gpu {

/// Operations on a number of f64 and on its bits.
class Doubles : public NumberBuilder {
public:
  /// Writes before `op`.
  explicit Doubles(Operation *op)
      : NumberBuilder(op, Float64Type::get(op->getContext())) {}
  using NumberBuilder::compare;
  using NumberBuilder::select;

  Value compare(arith::CmpFPredicate predicate, Value x, double y) {
    return compare(predicate, x, f64(y));
  }
  Value both(Value x, Value y) { return arith::AndIOp::create(*this, x, y); }
  Value select(Value condition, double x, Value y) {
    return select(condition, f64(x), y);
  }
  /// The sum of `coefficients[i] x^i`.
  Value polynomial(Value x, ArrayRef<double> coefficients) {
    Value sum = f64(coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      sum = math::FmaOp::create(*this, sum, x, f64(coefficient));
    return sum;
  }
  /// What `compute` makes of the operands of `op` in f64, rounded to the type
  /// of its result: of a number or of each lane of a vector. Null if `op` is of
  /// anything but f32, and f64 where `compute` is as exact as that.
  Value expand(Operation *op, llvm::function_ref<Value(ValueRange)> compute,
               bool isForF64 = false) {
    Type type = op->getResult(0).getType();
    Type element = getElementTypeOrSelf(type);
    auto vector = dyn_cast<VectorType>(type);
    bool isF64 = element.isF64() && isForF64;
    if ((!element.isF32() && !isF64) || (vector && vector.getRank() != 1))
      return nullptr;
    auto getLane = [&](int64_t lane) -> Value {
      SmallVector<Value> operands;
      for (Value operand : op->getOperands()) {
        Value number =
            vector ? vector::ExtractOp::create(*this, operand, lane).getResult()
                   : operand;
        if (!isF64)
          number = arith::ExtFOp::create(*this, getF64Type(), number);
        operands.push_back(number);
      }
      Value result = compute(operands);
      return isF64 ? result : arith::TruncFOp::create(*this, element, result);
    };
    if (!vector)
      return getLane(0);
    SmallVector<Value> lanes;
    for (int64_t lane : llvm::seq(vector.getNumElements()))
      lanes.push_back(getLane(lane));
    return vector::FromElementsOp::create(*this, vector, lanes);
  }
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_DOUBLES_H
