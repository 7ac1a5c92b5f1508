// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs kernels on the first NVIDIA GPU, over the driver that is loaded when one
// is asked for.

#ifndef PTX_DEVICE_H
#define PTX_DEVICE_H

#include "Arguments.h"
#include "Interpreter.h"
#include <memory>
#include <string>
#include <vector>

namespace ptx {

class Device {
public:
  /// Fails where there is no driver or no GPU.
  Device();
  ~Device();

  /// The GPU's name, its version as `sm_90`, and that of the CUDA which the
  /// driver knows.
  std::string name() const;

  /// Compiles the text of a module; fails with what the driver says of it.
  void load(const std::string &text);

  /// Runs an entry of the loaded module `repeat` times. Buffers begin with what
  /// they have in `memory`, bytes without a value as 0xff, and are written back
  /// there afterwards, where every byte has a value then.
  void run(const EntryInfo &info, const LaunchOptions &options,
           const std::vector<Argument> &arguments, unsigned repeat,
           Memory &memory);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace ptx

#endif // PTX_DEVICE_H
