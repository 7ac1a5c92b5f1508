// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of the device, copies that wait for launches, and tensor maps.

#include "State.h"
#include <cstdlib>
#include <cstring>

using namespace ptx::cuda;

static uint64_t capacity() {
  const char *bytes = std::getenv("FAKE_DRIVER_MEMORY");
  return bytes ? std::strtoull(bytes, nullptr, 10) : uint64_t(4) << 30;
}

Result cuMemAlloc_v2(Address *address, size_t bytes) {
  return inContext([&] {
    if (!address || !bytes)
      return InvalidValue;
    if (bytes > capacity() - state().used)
      return OutOfMemory;
    *address = state().memory.allocate(bytes);
    state().used += bytes;
    return Success;
  });
}

Result cuMemFree_v2(Address address) {
  return inContext([&] {
    if (!address)
      return Success;
    const ptx::Allocation *found = state().memory.find(address);
    if (!found || found->address != address)
      return InvalidValue;
    Result result = finish();
    state().used -= found->size;
    state().memory.release(address);
    return result;
  });
}

/// Says whether one allocation has these bytes.
static bool isInside(Address address, size_t bytes) {
  const ptx::Allocation *found = state().memory.find(address);
  return found && bytes <= found->size - (address - found->address);
}

Result cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
  return inContext([&] {
    if (!bytes)
      return Success;
    if (!from || !isInside(to, bytes))
      return InvalidValue;
    if (Result result = finish())
      return result;
    state().memory.write(to, from, bytes);
    return Success;
  });
}

Result cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
  return inContext([&] {
    if (!bytes)
      return Success;
    if (!to || !isInside(from, bytes))
      return InvalidValue;
    if (Result result = finish())
      return result;
    state().memory.readAny(from, to, bytes);
    return Success;
  });
}

/// The bytes of an element; 0 for the types that the interpreter lacks.
static unsigned bytesOf(TensorType type) {
  switch (type) {
  case UInt8:
    return 1;
  case UInt16:
  case Float16:
  case BFloat16:
    return 2;
  case UInt32:
  case Int32:
  case Float32:
    return 4;
  case UInt64:
  case Int64:
  case Float64:
    return 8;
  }
  return 0;
}

Result cuTensorMapEncodeTiled(TensorMapBytes *to, TensorType type,
                              unsigned rank, void *address,
                              const uint64_t *sizes, const uint64_t *strides,
                              const uint32_t *box, const uint32_t *steps,
                              int interleave, int swizzle, int promotion,
                              int fill) {
  return inContext([&] {
    if (!to || reinterpret_cast<uintptr_t>(to) % 64 || !sizes || !box ||
        !steps || (rank > 1 && !strides) || rank < 1 || rank > 5 ||
        promotion < 0 || promotion > 3)
      return InvalidValue;
    if (rank > 3 || interleave || fill || swizzle < 0 || swizzle > 3 ||
        !bytesOf(type))
      return NotSupported;
    ptx::TensorMap map;
    map.address = reinterpret_cast<uint64_t>(address);
    map.dimensions = rank;
    map.elementBytes = bytesOf(type);
    map.swizzle = ptx::Swizzle(swizzle);
    for (unsigned i = 0; i < rank; ++i) {
      map.size[i] = sizes[i];
      map.box[i] = box[i];
      if (i)
        map.stride[i - 1] = strides[i - 1];
      if (steps[i] != 1)
        return NotSupported;
    }
    ptx::EncodedTensorMap bytes = ptx::encode(map);
    std::memcpy(to->bytes, bytes.data(), bytes.size());
    return Success;
  });
}
