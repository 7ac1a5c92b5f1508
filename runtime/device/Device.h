// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that buffers of a step lie in, and how bytes get in and out of it.

#ifndef BSR_RUNTIME_DEVICE_DEVICE_H
#define BSR_RUNTIME_DEVICE_DEVICE_H

#include "bsr/runtime.h"
#include "bsr/step.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct bsr_step;

namespace sparse_opt {

/// A step on a device that runs no code of the host's: its kernels, and what
/// they are launched on.
class Program {
public:
  virtual ~Program() = default;

  /// Starts a run of the step, with scores of blocks or without, after what
  /// the device was given before. If `patternsChanged`, index arrays are others
  /// than in the run before.
  virtual void run(bool scores, bool patternsChanged) = 0;
};

/// A device. Addresses are of its memory unless they are called the caller's;
/// only where `isHost` holds may the processor touch them. The device works in
/// the order of the calls. They return when they are done with the caller's
/// memory, and may come from several threads. Sizes are in bytes; nothing is
/// done for 0.
class Device {
public:
  virtual ~Device() = default;

  /// The number by which a step knows it, a `bsr_device`.
  virtual int32_t number() const = 0;

  /// The name that callers know it by.
  virtual std::string name() const = 0;

  /// What steps for it are compiled for, as sparse-compile --target takes it.
  virtual const std::string &target() const = 0;

  /// Whether its memory is the processor's own.
  virtual bool isHost() const = 0;

  /// Takes memory aligned to 64 bytes, on the host of zeros, else of anything;
  /// null if there is none.
  virtual void *allocate(int64_t bytes) = 0;

  /// Gives back what `allocate` took.
  virtual void free(void *memory, int64_t bytes) = 0;

  /// Copies from the device to the caller, and from the caller to the device.
  virtual void read(void *callers, const void *memory, int64_t bytes) = 0;
  virtual void write(void *memory, const void *callers, int64_t bytes) = 0;

  /// Copies from one place of the device to another that it does not overlap.
  virtual void copy(void *to, const void *from, int64_t bytes) = 0;

  /// Fills with zeros.
  virtual void zero(void *memory, int64_t bytes) = 0;

  /// Writes to the caller's `norms` for each of `blocks` blocks what
  /// `blockNorms` does: block k is the `size` elements in slot `slots[k]` of
  /// `values`. `room` is memory for `normBytes(blocks)`, which is overwritten.
  virtual void computeNorms(bsr_norm norm, bsr_type type, const void *values,
                            const int32_t *slots, int64_t size, int64_t blocks,
                            void *room, double *norms) = 0;

  /// Has the device run kernel `name` of those that update patterns
  /// (support/PatternKernels.h) on `table`, with x by y blocks of so many
  /// threads; nothing is done for none. Not for the host.
  virtual void runPatternKernel(const std::string &name, int64_t x, int64_t y,
                                unsigned threads, const void *table) = 0;

  /// Fills the `bytes` bytes of each of `count` slots of `values`, which the
  /// caller's `slots` lists, with the eight bytes of `bits`, again and again.
  /// `room` is memory for `fillBytes(count)`.
  virtual void fillSlots(void *values, int64_t bytes, const int32_t *slots,
                         int64_t count, uint64_t bits, void *room) = 0;

  static constexpr int64_t roomForRows = 512;
  static constexpr int64_t normBytes(int64_t blocks) {
    return roomForRows + blocks * int64_t(sizeof(double));
  }
  static constexpr int64_t fillBytes(int64_t count) {
    return roomForRows + count * int64_t(sizeof(int32_t));
  }

  /// The number of a GPU; -1 of what is none.
  virtual int32_t gpu() const { return -1; }

  /// Has what comes next wait for what was given to `stream`, a CUstream,
  /// before; and the other way round.
  virtual void waitFor(void *stream) { (void)stream; }
  virtual void letWait(void *stream) { (void)stream; }

  /// What can be said of its memory where there is too little, or "".
  virtual std::string describeMemory() { return ""; }

  /// Makes a program of `step`, which is compiled for a GPU, on these buffers
  /// and this arena. Fails if the device is none that can run it.
  virtual std::unique_ptr<Program> load(const bsr_step &step,
                                        void *const *buffers, void *arena) = 0;
};

/// The processor and its memory.
Device &hostDevice();

/// GPU `ordinal` of NVIDIA's. Fails without a driver or such a GPU.
Device &cudaDevice(int ordinal);

/// The device that callers name `name`: "cpu" is the host, "cuda" and "cuda:0"
/// the first GPU. Fails for another one.
Device &findDevice(const std::string &name);

} // namespace sparse_opt

#endif // BSR_RUNTIME_DEVICE_DEVICE_H
