// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TensorMap.h"
#include "support/Error.h"
#include <cstring>

using namespace ptx;

// No pointer of a program begins with it, so that other bytes are refused.
static constexpr uint64_t mark = 0x50616d546e547850;

EncodedTensorMap ptx::encode(const TensorMap &map) {
  // The rules are those of cuTensorMapEncodeTiled, in the CUDA driver's manual.
  if (map.dimensions < 1 || map.dimensions > 5)
    sparse_opt::fail("expected a tensor of 1 to 5 dimensions, but got ",
                     map.dimensions);
  if (map.elementBytes != 1 && map.elementBytes != 2 && map.elementBytes != 4 &&
      map.elementBytes != 8)
    sparse_opt::fail("expected elements of 1, 2, 4 or 8 bytes, but got ",
                     map.elementBytes);
  if (map.address % 16)
    sparse_opt::fail("expected a tensor at a multiple of 16 bytes, but got ",
                     map.address);
  for (unsigned i = 0; i < map.dimensions; ++i) {
    if (map.size[i] == 0 || map.size[i] > uint64_t(1) << 32)
      sparse_opt::fail("expected a size of 1 to 2^32, but got ", map.size[i]);
    if (map.box[i] == 0 || map.box[i] > 256)
      sparse_opt::fail(
          "expected a box of 1 to 256 elements a dimension, but got ",
          map.box[i]);
    if (i && (map.stride[i - 1] % 16 || map.stride[i - 1] >= uint64_t(1) << 40))
      sparse_opt::fail(
          "expected strides that are multiples of 16 bytes, but got ",
          map.stride[i - 1]);
  }
  unsigned row = map.box[0] * map.elementBytes,
           widest = 16u << unsigned(map.swizzle);
  if (row % 16)
    sparse_opt::fail(
        "expected rows of a box that are multiples of 16 bytes, but got ", row);
  if (map.swizzle != Swizzle::None && row > widest)
    sparse_opt::fail("expected rows of a box of at most ", widest,
                     " bytes for this swizzle, but got ", row);
  // No chip has more shared memory.
  constexpr uint64_t largest = 256 * 1024;
  uint64_t box = row;
  for (unsigned i = 1; i < map.dimensions; ++i)
    box *= map.box[i];
  if (box > largest)
    sparse_opt::fail("expected a box of at most ", largest, " bytes, but got ",
                     box);
  EncodedTensorMap bytes{};
  std::memcpy(&bytes[0], &mark, 8);
  std::memcpy(&bytes[8], &map.address, 8);
  std::memcpy(&bytes[16], map.size.data(), 40);
  std::memcpy(&bytes[56], map.stride.data(), 32);
  std::memcpy(&bytes[88], map.box.data(), 20);
  bytes[108] = uint8_t(map.dimensions);
  bytes[109] = uint8_t(map.elementBytes);
  bytes[110] = uint8_t(map.swizzle);
  return bytes;
}

TensorMap ptx::decodeTensorMap(const uint8_t *bytes) {
  uint64_t found;
  std::memcpy(&found, bytes, 8);
  if (found != mark)
    sparse_opt::fail(
        "expected a tensor map that encode() made, but got other bytes");
  TensorMap map;
  std::memcpy(&map.address, bytes + 8, 8);
  std::memcpy(map.size.data(), bytes + 16, 40);
  std::memcpy(map.stride.data(), bytes + 56, 32);
  std::memcpy(map.box.data(), bytes + 88, 20);
  map.dimensions = bytes[108];
  map.elementBytes = bytes[109];
  map.swizzle = Swizzle(bytes[110]);
  encode(map); // a program may have changed the bytes
  return map;
}
