// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a GPU computes in updates, beside the processor: the same bits; and what
// it does for the streams of others. These tests need a driver of NVIDIA's, or
// that of the tests.

#include "Assertions.h"
#include "base/Element.h"
#include "device/CudaDevice.h"
#include "device/Memory.h"
#include "pattern/BlockNorm.h"
#include "support/CudaDriver.h"
#include <cmath>
#include <cstring>

using namespace check;

/// Compares norms of `slots.size()` blocks of `size` elements.
static void compareNorms(sparse_opt::Device &gpu, bsr_norm norm, bsr_type type,
                         const std::vector<char> &values,
                         const std::vector<int32_t> &slots, int64_t size) {
  auto blocks = int64_t(slots.size());
  int64_t valueBytes = int64_t(values.size()), slotBytes = 4 * blocks,
          roomBytes = sparse_opt::Device::normBytes(blocks);
  std::vector<double> there(slots.size()), here(slots.size());
  sparse_opt::Memory area(gpu, valueBytes + slotBytes + roomBytes + 3 * 64,
                          "a test");
  void *data = area.cut(valueBytes), *list = area.cut(slotBytes),
       *room = area.cut(roomBytes);
  gpu.write(data, values.data(), valueBytes);
  gpu.write(list, slots.data(), slotBytes);
  gpu.computeNorms(norm, type, data, static_cast<int32_t *>(list), size, blocks,
                   room, there.data());
  sparse_opt::blockNorms(norm, type, values.data(), slots.data(), size, blocks,
                         here.data());
  for (size_t k = 0; k < slots.size(); ++k) {
    ASSERT_EQ(std::isnan(there[k]), std::isnan(here[k]));
    ASSERT_TRUE(std::isnan(here[k]) || !std::memcmp(&there[k], &here[k], 8));
  }
}

TEST(GPUTest, NormsAreThoseOfTheProcessor) {
  sparse_opt::Device &gpu = sparse_opt::findDevice("cuda");
  Numbers numbers(3);
  const int64_t numSlots = 41;
  // Sizes of less than a round of threads, of whole ones, and ragged ones.
  for (int64_t size : {1, 2, 4, 6, 8, 24, 33, 64, 256, 1023, 4096}) {
    for (bsr_type type : {BSR_F16, BSR_BF16, BSR_F32, BSR_F64}) {
      std::vector<char> values(size_t(numSlots * size * bsr_type_bytes(type)));
      auto fill = [&](int64_t i, double value) {
        sparse_opt::storeElement(type, values.data(), i, value);
      };
      for (int64_t i = 0; i < numSlots * size; ++i)
        fill(i, (double(numbers.below(2000)) - 1000) / 37);
      fill(3 * size, INFINITY);
      fill(5 * size + size - 1, NAN);
      fill(6 * size, NAN);
      fill(7 * size, -0.0);
      // Slots in any order, and not all of them.
      std::vector<int32_t> slots;
      for (int32_t slot = 0; slot < numSlots; ++slot)
        slots.insert(slots.begin() + int64_t(numbers.below(slots.size() + 1)),
                     slot);
      slots.pop_back();
      for (bsr_norm norm : {BSR_L1, BSR_L2, BSR_LINF, BSR_MEAN})
        compareNorms(gpu, norm, type, values, slots, size);
    }
  }
  compareNorms(gpu, BSR_L1, BSR_F32, std::vector<char>(64), {}, 16);
}

TEST(GPUTest, FillsTheSlotsThatAreListed) {
  sparse_opt::Device &gpu = sparse_opt::findDevice("cuda");
  const int64_t numSlots = 9;
  const std::vector<int32_t> slots = {7, 0, 3, 4};
  for (int64_t bytes : {2, 4, 6, 8, 16, 48, 1024, 16384}) {
    std::vector<char> values(size_t(numSlots * bytes)), expected;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = char(i % 100 + 1);
    expected = values;
    int64_t roomBytes = sparse_opt::Device::fillBytes(numSlots);
    sparse_opt::Memory area(gpu, numSlots * bytes + roomBytes + 2 * 64,
                            "a test");
    void *data = area.cut(numSlots * bytes), *room = area.cut(roomBytes);
    gpu.write(data, values.data(), numSlots * bytes);
    for (uint64_t bits : {uint64_t(0), uint64_t(0x8877665544332211)}) {
      for (int32_t slot : slots)
        for (int64_t at = 0; at < bytes; ++at)
          expected[size_t(slot * bytes + at)] = char(bits >> at % 8 * 8);
      gpu.fillSlots(data, bytes, slots.data(), 0, ~bits, room);
      gpu.fillSlots(data, bytes, slots.data(), int64_t(slots.size()), bits,
                    room);
      gpu.read(values.data(), data, numSlots * bytes);
      ASSERT_TRUE(values == expected);
    }
  }
}

TEST(GPUTest, WorkWaitsForStreamsOfOthersAndTheyForIt) {
  sparse_opt::Device &gpu = sparse_opt::findDevice("cuda");
  const sparse_opt::cuda::Driver &driver = sparse_opt::cuda::Driver::get();
  sparse_opt::CurrentContext current =
      static_cast<sparse_opt::CudaDevice &>(gpu).makeCurrent();
  auto addressOf = [](void *memory) {
    return reinterpret_cast<sparse_opt::cuda::Address>(memory);
  };
  const int64_t bytes = 256;
  sparse_opt::Memory area(gpu, 2 * bytes, "a test");
  void *first = area.cut(bytes), *second = area.cut(bytes);
  gpu.zero(first, bytes);
  sparse_opt::cuda::Stream other = nullptr;
  driver.check(
      driver.cuStreamCreate(&other, sparse_opt::cuda::nonBlockingStream),
      "a stream");
  // Theirs, then ours.
  gpu.letWait(other);
  driver.check(driver.cuMemsetD8Async(addressOf(first), 5, bytes, other),
               "a byte");
  gpu.waitFor(other);
  gpu.copy(second, first, bytes);
  std::vector<char> found(bytes);
  gpu.read(found.data(), second, bytes);
  ASSERT_TRUE(found == std::vector<char>(bytes, 5));
  // Ours, then theirs.
  gpu.zero(second, bytes);
  gpu.letWait(other);
  driver.check(driver.cuMemcpyDtoHAsync_v2(found.data(), addressOf(second),
                                           bytes, other),
               "a copy");
  driver.check(driver.cuStreamSynchronize(other), "the GPU to work");
  ASSERT_TRUE(found == std::vector<char>(bytes, 0));
  driver.check(driver.cuStreamDestroy_v2(other), "a stream");
}
