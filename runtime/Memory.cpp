// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes memory from the system.

#include "Memory.h"
#include "Status.h"
#include <algorithm>
#include <cassert>
#include <sys/mman.h>
#include <utility>

using namespace bsr;

static thread_local int64_t areas = 0;

int64_t Memory::areasTaken() { return areas; }

Memory::Memory(int64_t bytes, const char *purpose)
    : size(std::max<int64_t>(bytes, 1)) {
  void *area = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED)
    fail(BSR_OUT_OF_MEMORY, "expected ", bytes, " bytes of memory for ",
         purpose, ", but got none");
  // Large pages spare address translations; a system without them refuses.
  (void)madvise(area, size, MADV_HUGEPAGE);
  start = static_cast<char *>(area);
  ++areas;
}

Memory &Memory::operator=(Memory &&other) noexcept {
  std::swap(start, other.start);
  std::swap(size, other.size);
  std::swap(used, other.used);
  return *this;
}

Memory::~Memory() {
  if (start)
    munmap(start, size);
}

void *Memory::cut(int64_t bytes) {
  assert(used + partBytes(bytes) <= partBytes(size) && "area too small");
  return start + std::exchange(used, used + partBytes(bytes));
}
