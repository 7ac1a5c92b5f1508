// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One area of zeroed memory of a device, cut into aligned parts.

#ifndef BSR_RUNTIME_DEVICE_MEMORY_H
#define BSR_RUNTIME_DEVICE_MEMORY_H

#include "Device.h"

namespace sparse_opt {

/// Memory of a device, zero until it is written. The only way in which a
/// session takes memory for its data, so that `areasTaken` counts all of it.
class Memory {
public:
  Memory() = default;

  /// Takes `bytes` of memory of `device` for what `purpose` names.
  Memory(Device &device, int64_t bytes, const char *purpose);
  Memory(const Memory &) = delete;
  Memory &operator=(Memory &&other) noexcept;
  ~Memory();

  /// Cuts the next part off: `bytes` at an address that is a multiple of 64.
  void *cut(int64_t bytes);

  /// What `cut` takes of an area for a part of `bytes`.
  static int64_t partBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  int64_t bytes() const { return size; }

  /// How many areas this thread has taken.
  static int64_t areasTaken();

private:
  Device *device = nullptr;
  char *start = nullptr;
  int64_t size = 0;
  int64_t used = 0;
};

} // namespace sparse_opt

#endif // BSR_RUNTIME_DEVICE_MEMORY_H
