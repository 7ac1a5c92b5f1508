// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A libcuda.so.1 whose GPU is the PTX interpreter: what it holds. Errors are
// those of CUDA; what CUDA has and this driver has not is NotSupported. What
// the interpreter says of a failure goes to stderr.
//
// FAKE_DRIVER_DEVICES=0 is a machine without a GPU, and FAKE_DRIVER_MEMORY the
// bytes of the GPU's memory (4 GiB).

#ifndef PTX_FAKEDRIVER_STATE_H
#define PTX_FAKEDRIVER_STATE_H

#include "CudaDriver.h"
#include "Interpreter.h"
#include "support/Error.h"
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#define FAKE_DECLARE(name, ...)                                                \
  extern "C" __attribute__((visibility("default")))                            \
  ptx::cuda::Result name(__VA_ARGS__);
PTX_CUDA_FUNCTIONS(FAKE_DECLARE)
#undef FAKE_DECLARE

namespace ptx::cuda {

struct FunctionState {
  const ModuleState *module;
  EntryInfo info;
  unsigned maxDynamicShared;
  bool isLargeClusterAllowed = false;
};

struct ModuleState {
  Module module;
  std::map<std::string, std::unique_ptr<FunctionState>> functions;
};

struct ContextState {};

/// A launch that runs when somebody waits for it.
struct PendingLaunch {
  Module module;
  std::string entry;
  LaunchOptions options;
};

struct DriverState {
  std::mutex mutex;
  bool isInitialized = false;
  ContextState context;
  unsigned retained = 0; ///< how often the context is; 0: there is none
  uint64_t used = 0;     ///< bytes of memory
  Memory memory;
  std::map<LoadedModule, std::unique_ptr<ModuleState>> modules;
  std::vector<PendingLaunch> pending;
  Result failure = Success; ///< of a launch; the context is lost with it
};

DriverState &state();
/// The chip that the GPU is.
const Chip &chip();
/// Says whether the context is that of this thread.
bool &isCurrent();
/// Runs what is pending; returns the failure of the context.
Result finish();
void report(const std::string &sentence);

/// Runs `body`, which returns a Result, where this thread has a context that
/// is not lost. What the interpreter refuses is an invalid value.
template <typename Body>
Result inContext(Body body) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().isInitialized)
    return NotInitialized;
  if (!isCurrent())
    return InvalidContext;
  if (!state().retained)
    return ContextIsDestroyed;
  if (state().failure)
    return state().failure;
  try {
    return body();
  } catch (const bsr::Error &error) {
    report(error.sentence);
    return InvalidValue;
  } catch (const std::bad_alloc &) {
    return OutOfMemory;
  }
}

} // namespace ptx::cuda

#endif // PTX_FAKEDRIVER_STATE_H
