// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that buffers of a step lie in, and how bytes get in and out of it.

#ifndef BSR_RUNTIME_DEVICE_H
#define BSR_RUNTIME_DEVICE_H

#include "bsr/step.h"
#include <cstddef>
#include <cstdint>
#include <string>

namespace bsr {

/// A device. Addresses are of its memory unless they are called the caller's;
/// only where `isHost` holds may the processor touch them. Calls return when
/// their work is done, and may come from several threads, of one session each.
/// Sizes are in bytes; nothing is done for 0.
class Device {
public:
  virtual ~Device() = default;

  /// The number by which a step knows it, a `bsr_device`.
  virtual int32_t number() const = 0;

  /// Whether its memory is the processor's own.
  virtual bool isHost() const = 0;

  /// Takes memory of zeros, aligned to 64 bytes; null if there is none.
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
};

/// The processor and its memory.
Device &hostDevice();

/// The device that callers name `name`: "cpu" is the host. Fails for another
/// one.
Device &findDevice(const std::string &name);

} // namespace bsr

#endif // BSR_RUNTIME_DEVICE_H
