// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of the device, copies that wait for launches, and tensor maps.

#include "State.h"
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace sparse_opt::cuda;

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
    // Numbers of all types that no kernel computes.
    std::vector<unsigned char> ones(bytes, 0xff);
    state().memory.write(*address, ones.data(), bytes);
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

/// Lets `stream` do `work` on these bytes of the device, called by `name`.
static Result enqueueOn(Stream stream, Address address, size_t bytes, Work work,
                        const char *name = __builtin_FUNCTION()) {
  return inContext(
      [&] {
        StreamState *found = findStream(stream);
        if (!found)
          return InvalidHandle;
        if (!bytes)
          return Success;
        if (!isInside(address, bytes))
          return InvalidValue;
        enqueue(*found, std::move(work));
        return Success;
      },
      name);
}

// The caller's bytes are read and written late, too, as a GPU does from pinned
// memory.

Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes,
                            Stream stream) {
  if (bytes && !from)
    return InvalidValue;
  return enqueueOn(stream, to, bytes,
                   [=] { state().memory.write(to, from, bytes); });
}

Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes,
                            Stream stream) {
  if (bytes && !to)
    return InvalidValue;
  return enqueueOn(stream, from, bytes,
                   [=] { state().memory.readAny(from, to, bytes); });
}

Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes,
                            Stream stream) {
  return enqueueOn(stream, to, bytes, [=] {
    if (!isInside(from, bytes))
      sparse_opt::fail(
          "expected bytes to copy inside of an allocation, but got ", bytes,
          " others");
    std::vector<char> copy(bytes);
    state().memory.readAny(from, copy.data(), bytes);
    state().memory.write(to, copy.data(), bytes);
  });
}

Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes,
                       Stream stream) {
  return enqueueOn(stream, to, bytes, [=] {
    std::vector<unsigned char> filled(bytes, value);
    state().memory.write(to, filled.data(), bytes);
  });
}

/// Waits for the null stream after `enqueued` was enqueued there.
static Result wait(Result enqueued) {
  return enqueued ? enqueued : cuStreamSynchronize(nullptr);
}

Result cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
  return wait(cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr));
}

Result cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
  return wait(cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr));
}

Result cuMemGetInfo_v2(size_t *free, size_t *total) {
  return inContext([&] {
    if (!free || !total)
      return InvalidValue;
    *total = capacity();
    *free = capacity() - state().used;
    return Success;
  });
}

Result cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  return inContext([&] {
    if (!memory || !bytes)
      return InvalidValue;
    if (flags)
      return NotSupported;
    std::unique_ptr<char[]> made(new char[bytes]);
    *memory = made.get();
    state().pinned[*memory] = std::move(made);
    return Success;
  });
}

Result cuMemFreeHost(void *memory) {
  return inContext([&] {
    auto found = state().pinned.find(memory);
    if (found == state().pinned.end())
      return InvalidValue;
    Result result = finish();
    state().pinned.erase(found);
    return result;
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
    if (interleave || fill || swizzle < 0 || swizzle > 3 || !bytesOf(type))
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
