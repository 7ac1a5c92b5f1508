// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A GPU of NVIDIA's as a device.

#ifndef BSR_RUNTIME_DEVICE_CUDADEVICE_H
#define BSR_RUNTIME_DEVICE_CUDADEVICE_H

#include "Device.h"
#include "support/CudaDriver.h"
#include <mutex>

namespace sparse_opt {

/// Makes a context that of the calling thread, which then has the one back that
/// it had: other users of CUDA in it go by that.
class CurrentContext {
public:
  /// Fails if the thread cannot have it and it `isRequired`.
  CurrentContext(cuda::Context context, bool isRequired) {
    cuda::Result result = driver.cuCtxGetCurrent(&before);
    isOther = result == cuda::Success && before != context;
    if (isOther)
      result = driver.cuCtxSetCurrent(context);
    isThere = result == cuda::Success;
    if (isRequired)
      driver.check(result, "a context of the GPU");
  }
  CurrentContext(const CurrentContext &) = delete;
  ~CurrentContext() {
    if (isOther)
      driver.cuCtxSetCurrent(before);
  }

  bool isThere; // else the GPU was lost

private:
  const cuda::Driver &driver = cuda::Driver::get();
  cuda::Context before = nullptr;
  bool isOther = false;
};

class CudaDevice : public Device {
public:
  /// GPU `ordinal`. Fails without a driver or such a GPU, and for one that no
  /// step can be compiled for.
  explicit CudaDevice(int ordinal);

  int32_t number() const override { return BSR_CUDA; }
  std::string name() const override {
    return "cuda:" + std::to_string(ordinal);
  }
  const std::string &target() const override { return compileTarget; }
  bool isHost() const override { return false; }

  void *allocate(int64_t bytes) override;
  void free(void *memory, int64_t bytes) override;
  void read(void *callers, const void *memory, int64_t bytes) override;
  void write(void *memory, const void *callers, int64_t bytes) override;
  void copy(void *to, const void *from, int64_t bytes) override;
  void zero(void *memory, int64_t bytes) override;
  void computeNorms(bsr_norm norm, bsr_type type, const void *values,
                    const int32_t *slots, int64_t size, int64_t blocks,
                    void *room, double *norms) override;
  void fillSlots(void *values, int64_t bytes, const int32_t *slots,
                 int64_t count, uint64_t bits, void *room) override;
  void runPatternKernel(const std::string &name, int64_t x, int64_t y,
                        unsigned threads, const void *table) override;
  int32_t gpu() const override { return ordinal; }
  void waitFor(void *stream) override;
  void letWait(void *stream) override;
  std::string describeMemory() override;
  std::unique_ptr<Program> load(const bsr_step &step, void *const *buffers,
                                void *arena) override;

  /// Makes the GPU's context that of the calling thread, as long as what it
  /// returns lives.
  [[nodiscard]] CurrentContext makeCurrent() const {
    return {context, /*isRequired=*/true};
  }
  /// The same where nothing may fail; the GPU may be lost.
  [[nodiscard]] CurrentContext tryCurrent() const {
    return {context, /*isRequired=*/false};
  }
  /// What the GPU is, with its chip and the version of CUDA.
  std::string describe() const { return driver.describe(device); }

  const cuda::Driver &driver = cuda::Driver::get();
  cuda::Stream stream = nullptr; // of all its work

private:
  /// Pinned memory of the host, out of which the GPU copies while the caller
  /// goes on.
  struct Stage {
    static constexpr int64_t size = 1 << 20;
    char *memory = nullptr;
    int64_t used = 0;
    cuda::Event read = nullptr; // the GPU has read all of it
  };

  /// Has what comes next in `later` wait for what came before in `earlier`.
  void order(cuda::Stream earlier, cuda::Stream later);

  /// A stage with room for `bytes`; null for more than a stage has.
  Stage *findRoom(int64_t bytes);
  /// Waits for all work.
  void wait() const;

  int ordinal;
  cuda::Ordinal device = 0;
  cuda::Context context = nullptr;
  std::string compileTarget;
  std::mutex mutex; // of what is below
  cuda::Event reached = nullptr;
  cuda::LoadedModule updates = nullptr; // its kernels, when an update came
  Stage stages[4];
  int current = 0;
};

} // namespace sparse_opt

#endif // BSR_RUNTIME_DEVICE_CUDADEVICE_H
