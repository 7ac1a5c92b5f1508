// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The devices that there are.

#include "Device.h"
#include "Status.h"

using namespace bsr;

Device &bsr::findDevice(const std::string &name) {
  if (name == "cpu")
    return hostDevice();
  fail(BSR_INVALID_ARGUMENT, "expected device 'cpu', but got '", name, "'");
}
