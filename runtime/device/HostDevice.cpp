// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The processor as a device.

#include "Device.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include "step/Step.h"
#include <algorithm>
#include <cassert>
#include <cstring>
#include <sys/mman.h>

using namespace sparse_opt;

namespace {
class HostDevice : public Device {
public:
  int32_t number() const override { return BSR_HOST; }
  std::string name() const override { return "cpu"; }
  const std::string &target() const override {
    static const std::string cpu = "cpu";
    return cpu;
  }
  bool isHost() const override { return true; }

  void *allocate(int64_t bytes) override {
    void *memory = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return nullptr;
    // Large pages spare address translations; a system without them refuses.
    (void)madvise(memory, size_t(bytes), MADV_HUGEPAGE);
    return memory;
  }
  void free(void *memory, int64_t bytes) override {
    munmap(memory, size_t(bytes));
  }

  void read(void *callers, const void *memory, int64_t bytes) override {
    copy(callers, memory, bytes);
  }
  void write(void *memory, const void *callers, int64_t bytes) override {
    copy(memory, callers, bytes);
  }
  void copy(void *to, const void *from, int64_t bytes) override {
    if (bytes)
      std::memcpy(to, from, size_t(bytes));
  }
  void zero(void *memory, int64_t bytes) override {
    std::memset(memory, 0, size_t(bytes));
  }

  void computeNorms(bsr_norm norm, bsr_type type, const void *values,
                    const int32_t *slots, int64_t size, int64_t blocks, void *,
                    double *norms) override {
    blockNorms(norm, type, values, slots, size, blocks, norms);
  }

  void runPatternKernel(const std::string &, int64_t, int64_t, unsigned,
                        const void *) override {
    assert(false && "the host runs no kernels");
  }

  void fillSlots(void *values, int64_t bytes, const int32_t *slots,
                 int64_t count, uint64_t bits, void *) override {
    auto *data = static_cast<char *>(values);
    auto zero = [&](auto size) {
      for (int64_t k = 0; k < count; ++k)
        std::memset(data + slots[k] * bytes, 0, size_t(size));
    };
    if (bits)
      for (int64_t k = 0; k < count; ++k)
        for (int64_t at = 0; at < bytes; at += int64_t(sizeof bits))
          std::memcpy(data + slots[k] * bytes + at, &bits,
                      std::min(sizeof bits, size_t(bytes - at)));
    else if (bytes == sizeof(float)) // a store, where there are most blocks
      zero(std::integral_constant<size_t, sizeof(float)>());
    else
      zero(bytes);
  }

  std::unique_ptr<Program> load(const bsr_step &step, void *const *,
                                void *) override {
    fail(BSR_INVALID_STEP, "expected device 'cuda' for step '",
         step.manifest.name, "', which was compiled for ", step.manifest.chip,
         ", but got 'cpu'");
  }
};
} // namespace

Device &sparse_opt::hostDevice() {
  static HostDevice device;
  return device;
}
