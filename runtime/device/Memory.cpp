// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes memory of a device.

#include "Memory.h"
#include "base/Status.h"
#include <algorithm>
#include <cassert>
#include <utility>

using namespace sparse_opt;

static thread_local int64_t areas = 0;

int64_t Memory::areasTaken() { return areas; }

static std::string explain(const std::string &more) {
  return more.empty() ? "" : ": " + more;
}

Memory::Memory(Device &device, int64_t bytes, const char *purpose)
    : device(&device), size(std::max<int64_t>(bytes, 1)) {
  start = static_cast<char *>(device.allocate(size));
  if (!start)
    fail(BSR_OUT_OF_MEMORY, "expected ", bytes, " bytes of memory for ",
         purpose, ", but got none", explain(device.describeMemory()));
  ++areas;
}

Memory &Memory::operator=(Memory &&other) noexcept {
  std::swap(device, other.device);
  std::swap(start, other.start);
  std::swap(size, other.size);
  std::swap(used, other.used);
  return *this;
}

Memory::~Memory() {
  if (start)
    device->free(start, size);
}

void *Memory::cut(int64_t bytes) {
  assert(used + partBytes(bytes) <= partBytes(size) && "area too small");
  return start + std::exchange(used, used + partBytes(bytes));
}
