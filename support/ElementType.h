// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types that elements of tensors have.

#ifndef BSR_SUPPORT_ELEMENTTYPE_H
#define BSR_SUPPORT_ELEMENTTYPE_H

#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace sparse_opt {

/// The type of an element. The runtime's `bsr_type` has the same numbers.
enum class ElementType {
  F16,
  BF16,
  F32,
  F64,
  I1,
  I8,
  I32,
  I64,
  UI8,
  UI32,
  UI64
};

/// Names and sizes, in the order of `ElementType`.
inline constexpr struct {
  const char *name;            // MLIR's, in manifests
  const char *safetensorsName; // in safetensors files
  int64_t bytes;
} elementTypes[] = {{"f16", "F16", 2},  {"bf16", "BF16", 2}, {"f32", "F32", 4},
                    {"f64", "F64", 8},  {"i1", "BOOL", 1},   {"i8", "I8", 1},
                    {"i32", "I32", 4},  {"i64", "I64", 8},   {"ui8", "U8", 1},
                    {"ui32", "U32", 4}, {"ui64", "U64", 8}};
inline constexpr unsigned numElementTypes = std::size(elementTypes);

inline const char *nameOf(ElementType type) {
  return elementTypes[int(type)].name;
}
inline const char *safetensorsNameOf(ElementType type) {
  return elementTypes[int(type)].safetensorsName;
}
inline int64_t bytesOf(ElementType type) {
  return elementTypes[int(type)].bytes;
}

/// Whether `type` is one of the floating-point types.
inline bool isFloat(ElementType type) { return type <= ElementType::F64; }

/// Whether `type` is one of the unsigned integers.
inline bool isUnsigned(ElementType type) {
  return type == ElementType::I1 || type >= ElementType::UI8;
}

/// The type that `nameOf` gives this name, if there is one.
inline std::optional<ElementType> findElementType(std::string_view name) {
  for (unsigned i = 0; i < numElementTypes; ++i)
    if (elementTypes[i].name == name)
      return ElementType(i);
  return std::nullopt;
}

} // namespace sparse_opt

#endif // BSR_SUPPORT_ELEMENTTYPE_H
