// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The devices that there are.

#include "Device.h"
#include "base/Status.h"
#include <charconv>
#include <string_view>

using namespace sparse_opt;

Device &sparse_opt::findDevice(const std::string &name) {
  if (name == "cpu")
    return hostDevice();
  constexpr std::string_view cuda = "cuda";
  std::string_view rest = name;
  if (rest == cuda)
    return cudaDevice(0);
  if (rest.substr(0, cuda.size() + 1) == "cuda:") {
    rest.remove_prefix(cuda.size() + 1);
    int ordinal = -1;
    auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), ordinal);
    if (error == std::errc() && end == rest.data() + rest.size() &&
        ordinal >= 0)
      return cudaDevice(ordinal);
  }
  fail(BSR_INVALID_ARGUMENT,
       "expected device 'cpu', 'cuda' or 'cuda:' and a number, but got '", name,
       "'");
}

bsr_status bsr_device_target(const char *device, const char **target) {
  return guarded([&] {
    requireArgument(device, "device");
    requireArgument(target, "target");
    *target = findDevice(device).target().c_str();
  });
}
