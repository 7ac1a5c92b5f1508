// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types of PTX.

#ifndef PTX_TYPES_H
#define PTX_TYPES_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace ptx {

enum class Type : uint8_t {
  Pred,
  B8,
  B16,
  B32,
  B64,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F16x2,
  BF16x2,
  TF32,
  F32,
  F64,
};

/// The bytes of a value; 0 of a predicate.
constexpr unsigned sizeOf(Type type) {
  constexpr uint8_t sizes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 1,
                               2, 4, 8, 2, 2, 4, 4, 4, 4, 8};
  return sizes[unsigned(type)];
}

constexpr bool isBits(Type type) {
  return type >= Type::B8 && type <= Type::B64;
}
constexpr bool isUnsigned(Type type) {
  return type >= Type::U8 && type <= Type::U64;
}
constexpr bool isSigned(Type type) {
  return type >= Type::S8 && type <= Type::S64;
}
constexpr bool isInteger(Type type) {
  return type >= Type::B8 && type <= Type::S64;
}
constexpr bool isFloat(Type type) { return type >= Type::F16; }

/// The type that a modifier without its dot names, such as `u32`.
inline std::optional<Type> typeNamed(std::string_view name) {
  constexpr std::string_view names[] = {
      "pred", "b8",    "b16",    "b32",  "b64", "u8",  "u16",
      "u32",  "u64",   "s8",     "s16",  "s32", "s64", "f16",
      "bf16", "f16x2", "bf16x2", "tf32", "f32", "f64"};
  for (unsigned i = 0; i < sizeof(names) / sizeof(*names); ++i)
    if (names[i] == name)
      return Type(i);
  return std::nullopt;
}

} // namespace ptx

#endif // PTX_TYPES_H
