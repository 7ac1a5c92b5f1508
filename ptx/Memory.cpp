// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Memory.h"
#include "support/Error.h"
#include <algorithm>
#include <cstring>
#include <new>
#include <sys/mman.h>

using namespace ptx;

void *ptx::mapZeros(size_t bytes) {
  void *begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED)
    throw std::bad_alloc();
  return begin;
}

void ptx::unmapZeros(void *begin, size_t bytes) {
  if (begin)
    munmap(begin, bytes);
}

Allocation &Memory::make(uint64_t size) {
  if (size == 0 || size > uint64_t(1) << 36)
    sparse_opt::fail("expected an allocation of 1 byte to 64 GiB, but got ",
                     size, " bytes");
  auto made = std::make_unique<Allocation>();
  made->address = next;
  made->size = size;
  made->number = numMade++;
  made->isDefined = false;
  made->bytes = Zeros<uint8_t>(size);
  made->written = Zeros<uint8_t>(size);
  // A gap of at least 4 KiB: an overrun meets no neighbour.
  next = (next + size + 4096 + 255) & ~uint64_t(255);
  allocations.push_back(std::move(made));
  return *allocations.back();
}

uint64_t Memory::allocate(uint64_t size) {
  Allocation &made = make(size);
  std::memset(made.bytes.get(), 0xff, size);
  return made.address;
}

uint64_t Memory::allocateZeros(uint64_t size) {
  Allocation &made = make(size);
  made.isDefined = true;
  return made.address;
}

void Memory::release(uint64_t address) {
  for (auto it = allocations.begin(); it != allocations.end(); ++it)
    if ((*it)->address == address) {
      allocations.erase(it);
      return;
    }
  sparse_opt::fail("expected the address of an allocation, but got ", address);
}

Allocation *Memory::find(uint64_t address) const {
  auto after = std::upper_bound(
      allocations.begin(), allocations.end(), address,
      [](uint64_t value, const auto &entry) { return value < entry->address; });
  if (after == allocations.begin())
    return nullptr;
  Allocation *found = std::prev(after)->get();
  return address - found->address < found->size ? found : nullptr;
}

Allocation &Memory::owner(uint64_t address, uint64_t size) const {
  Allocation *found = find(address);
  if (!found || size > found->size - (address - found->address))
    sparse_opt::fail("expected an address inside of an allocation, but got ",
                     address, " with ", size, " bytes");
  return *found;
}

void Memory::write(uint64_t address, const void *from, uint64_t size) {
  if (!size)
    return;
  Allocation &to = owner(address, size);
  std::memcpy(&to.bytes[address - to.address], from, size);
  if (!to.isDefined)
    std::memset(&to.written[address - to.address], 1, size);
}

void Memory::readAny(uint64_t address, void *to, uint64_t size) const {
  if (!size)
    return;
  const Allocation &from = owner(address, size);
  std::memcpy(to, &from.bytes[address - from.address], size);
}

void Memory::read(uint64_t address, void *to, uint64_t size) const {
  readAny(address, to, size);
  const Allocation *from = find(address);
  for (uint64_t i = 0; i < size && !from->isDefined; ++i)
    if (!from->written[address - from->address + i])
      sparse_opt::fail("expected every byte to have a value, but got byte ",
                       address - from->address + i, " of an allocation of ",
                       from->size, ", which was never written");
}

void Memory::beginLaunch(unsigned granuleShift) {
  // Granules only become smaller: most launches clear nothing, since a shadow
  // says of which launch it is.
  // Numbers come again after 32767 launches; 0 is that of none.
  bool again = (++launches & 0x7fff) == 0;
  launches += again;
  bool clear = again || granuleShift < shift;
  shift = std::min(shift, granuleShift);
  for (auto &allocation : allocations)
    if (clear || !allocation->shadow)
      allocation->shadow = Zeros<Shadow>(size_t(allocation->size >> shift) + 1);
}
