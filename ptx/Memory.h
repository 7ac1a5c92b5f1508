// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Global memory: allocations, which bytes of them were written, and which warp
// touched them in the launch that runs.

#ifndef PTX_MEMORY_H
#define PTX_MEMORY_H

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ptx {

// Of at least one byte; the first throws std::bad_alloc.
void *mapZeros(size_t bytes);
void unmapZeros(void *begin, size_t bytes);

/// Which warp touched a granule of global memory in a launch
/// (GlobalAccess.cpp).
struct Shadow {
  std::atomic<uint64_t> blocks{0};  ///< launch, writing and reading block
  std::atomic<uint64_t> threads{0}; ///< writing and reading thread, and when
};

/// Zeros, straight from the system: untouched pages take no memory
/// and no time, whatever malloc fills memory with.
template <typename T>
class Zeros {
public:
  Zeros() = default;
  explicit Zeros(size_t count)
      : begin(static_cast<T *>(mapZeros(count * sizeof(T)))),
        bytes(count * sizeof(T)) {}
  Zeros(Zeros &&other) { *this = std::move(other); }
  Zeros &operator=(Zeros &&other) {
    std::swap(begin, other.begin);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Zeros() { unmapZeros(begin, bytes); }
  explicit operator bool() const { return begin; }
  T &operator[](size_t index) const { return begin[index]; }
  T *get() const { return begin; }

private:
  T *begin = nullptr;
  size_t bytes = 0;
};

struct Allocation {
  uint64_t address, size;
  uint32_t number; ///< from 0, in the order in which they were made
  bool isDefined;  ///< every byte has a value
  Zeros<uint8_t> bytes;
  Zeros<uint8_t> written; ///< 1 for each byte with a value
  Zeros<Shadow> shadow;   ///< by granules; made by the first launch
};

/// Memory of a device. Bytes of an allocation have no value before the first
/// write.
class Memory {
public:
  /// An address that is a multiple of 256; no two allocations are neighbours.
  uint64_t allocate(uint64_t size);
  /// The same, with 0 in every byte; untouched pages take no memory.
  uint64_t allocateZeros(uint64_t size);
  /// Frees what allocate() returned.
  void release(uint64_t address);
  void write(uint64_t address, const void *from, uint64_t size);
  /// Reads bytes that have a value.
  void read(uint64_t address, void *to, uint64_t size) const;
  /// The same, but bytes without a value are 0xff.
  void readAny(uint64_t address, void *to, uint64_t size) const;

  /// The allocation that has the address, or null.
  Allocation *find(uint64_t address) const;

  /// Makes the shadow of every allocation ready for a launch. A granule has
  /// 1 << `shift` bytes.
  void beginLaunch(unsigned shift);
  uint64_t launchNumber() const { return launches; }
  unsigned granuleShift() const { return shift; }

  /// The addresses of modules' variables, by the program's number and name.
  std::map<std::pair<uint64_t, std::string>, uint64_t> variables;

private:
  Allocation &make(uint64_t size);
  Allocation &owner(uint64_t address, uint64_t size) const;

  std::vector<std::unique_ptr<Allocation>> allocations; // by address
  uint64_t next = uint64_t(0x7f) << 32;
  uint32_t numMade = 0;
  uint64_t launches = 0;
  unsigned shift = 2;
};

} // namespace ptx

#endif // PTX_MEMORY_H
