// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The 128 bytes that describe a tensor to cp.async.bulk.tensor. The layout of a
// chip is not public; this one is the interpreter's own.

#ifndef PTX_TENSORMAP_H
#define PTX_TENSORMAP_H

#include <array>
#include <cstdint>

namespace ptx {

enum class Swizzle : uint8_t { None, Bytes32, Bytes64, Bytes128 };

/// A tensor in global memory and the box that one copy moves. Dimension 0 is
/// the one whose elements are neighbours.
struct TensorMap {
  uint64_t address = 0;           ///< a multiple of 16
  unsigned dimensions = 1;        ///< 1 to 5
  unsigned elementBytes = 2;      ///< 1, 2, 4 or 8
  std::array<uint64_t, 5> size{}; ///< in elements
  /// In bytes, of dimensions 1 and up; multiples of 16.
  std::array<uint64_t, 4> stride{};
  std::array<uint32_t, 5> box{}; ///< in elements, each 1 to 256
  Swizzle swizzle = Swizzle::None;
};

using EncodedTensorMap = std::array<uint8_t, 128>;

/// Bytes 0-7 are a mark, 8-15 the address, 16-55 the sizes, 56-87 the strides,
/// 88-107 the box, 108 the number of dimensions, 109 the bytes of an element,
/// 110 the swizzle; all little endian, the rest is 0. Fails where a field
/// breaks a rule of cuTensorMapEncodeTiled.
EncodedTensorMap encode(const TensorMap &map);

/// Undoes encode(); fails where the bytes are none of its.
TensorMap decodeTensorMap(const uint8_t *bytes);

/// Where a byte of a box lies that is at `offset` without swizzle: bits 4 to 6
/// of the shared address are combined with bits 7 to 9 (128 bytes), bits 4 and
/// 5 with 7 and 8 (64), bit 4 with 7 (32).
constexpr uint32_t swizzled(Swizzle swizzle, uint32_t address) {
  constexpr uint32_t masks[] = {0, 1, 3, 7};
  return address ^ ((address >> 7 & masks[unsigned(swizzle)]) << 4);
}

} // namespace ptx

#endif // PTX_TENSORMAP_H
