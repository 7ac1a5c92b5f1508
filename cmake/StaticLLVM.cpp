// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What LLVM's archives ask for and should not have from elsewhere.

#include "llvm/Plugins/PassPlugin.h"
#include <cstdint>
#include <sys/random.h>

/// The one function of LLVM's that the C library has only since version 2.36.
extern "C" uint32_t arc4random() {
  uint32_t number;
  while (getrandom(&number, sizeof(number), 0) != sizeof(number))
    ;
  return number;
}

/// Polly takes part in link-time optimization, of which there is none here.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", "none", [](llvm::PassBuilder &) {},
          nullptr};
}
