// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an interpreted program computes with. Knows nothing of LLVM.

#ifndef BSR_INTERPRETER_NUMBERS_H
#define BSR_INTERPRETER_NUMBERS_H

#include <cstdint>
#include <vector>

namespace mlir::bsr::interpreter {

/// An element of any type. Floats are doubles, whatever their type: nothing is
/// rounded. Integers are extended from their type's width by their sign, those
/// of one bit are 0 or 1.
union Number {
  double real;
  int64_t integer;
};

inline Number fromReal(double real) {
  Number number;
  number.real = real;
  return number;
}

inline Number fromInteger(int64_t integer) {
  Number number;
  number.integer = integer;
  return number;
}

/// A tensor, row-major.
struct Array {
  std::vector<int64_t> shape;
  std::vector<Number> elements;
};

} // namespace mlir::bsr::interpreter

#endif // BSR_INTERPRETER_NUMBERS_H
