// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elements of arrays in memory and in files. Knows nothing of LLVM.

#ifndef BSR_TOOLS_SPARSERUN_ELEMENTS_H
#define BSR_TOOLS_SPARSERUN_ELEMENTS_H

#include "bsr/Interpreter/Numbers.h"
#include "support/Element.h"
#include "support/ElementType.h"

#include <cstring>
#include <string_view>

namespace tools {

using mlir::bsr::interpreter::fromInteger;
using mlir::bsr::interpreter::fromReal;
using mlir::bsr::interpreter::Number;

/// Element `index` of little-endian `data`.
template <typename T>
T getElement(std::string_view data, size_t index) {
  T element;
  std::memcpy(&element, data.data() + index * sizeof(T), sizeof(T));
  return element;
}

/// What the program computes with for element `index` of `data`.
inline Number getNumber(sparse_opt::ElementType type, std::string_view data,
                        size_t index) {
  using sparse_opt::ElementType;
  switch (type) {
  case ElementType::F16:
    return fromReal(
        sparse_opt::toDouble(getElement<sparse_opt::Half>(data, index)));
  case ElementType::BF16:
    return fromReal(
        sparse_opt::toDouble(getElement<sparse_opt::BFloat>(data, index)));
  case ElementType::F32:
    return fromReal(getElement<float>(data, index));
  case ElementType::F64:
    return fromReal(getElement<double>(data, index));
  case ElementType::I1:
    return fromInteger(getElement<uint8_t>(data, index) != 0);
  case ElementType::I8:
    return fromInteger(getElement<int8_t>(data, index));
  case ElementType::I32:
    return fromInteger(getElement<int32_t>(data, index));
  case ElementType::I64:
    return fromInteger(getElement<int64_t>(data, index));
  case ElementType::UI8:
    return fromInteger(getElement<uint8_t>(data, index));
  case ElementType::UI32:
    return fromInteger(getElement<uint32_t>(data, index));
  case ElementType::UI64:
    return fromInteger(getElement<int64_t>(data, index));
  }
  __builtin_unreachable();
}

} // namespace tools

#endif // BSR_TOOLS_SPARSERUN_ELEMENTS_H
