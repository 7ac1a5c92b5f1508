// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modules, which are texts of PTX, and their functions.

#include "State.h"
#include "ptx/Program.h"
#include <algorithm>
#include <cstring>

using namespace sparse_opt::cuda;

namespace {
/// The buffer that a caller gives for the errors of the compiler.
struct Log {
  char *text = nullptr;
  void **bytes = nullptr; ///< its size, and then what of it is used

  void write(const std::string &sentence) const {
    size_t size = bytes ? reinterpret_cast<size_t>(*bytes) : 0, used = 0;
    if (text && size) {
      used = std::min(sentence.size(), size - 1);
      std::memcpy(text, sentence.data(), used);
      text[used++] = '\0';
    }
    if (bytes)
      *bytes = reinterpret_cast<void *>(used);
  }
};
} // namespace

static Result readOptions(unsigned count, JitOption *options, void **values,
                          Log &log) {
  if (count && (!options || !values))
    return InvalidValue;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == ErrorLog)
      log.text = static_cast<char *>(values[i]);
    else if (options[i] == ErrorLogBytes)
      log.bytes = &values[i];
    else
      return NotSupported;
  return Success;
}

Result cuModuleLoadDataEx(LoadedModule *module, const void *image,
                          unsigned count, JitOption *options, void **values) {
  return inContext([&] {
    Log log;
    if (!module || !image)
      return InvalidValue;
    if (Result result = readOptions(count, options, values, log))
      return result;
    // Machine code is of no use to an interpreter of PTX.
    if (std::memcmp(image,
                    "\x7f"
                    "ELF",
                    4) == 0)
      return NoBinaryForGpu;
    try {
      auto made = std::make_unique<ModuleState>(
          ModuleState{ptx::Module(static_cast<const char *>(image)), {}});
      const std::string &target = made->module.target();
      if (!nvidia::runsOn(*nvidia::findChip(target), chip()))
        sparse_opt::fail("expected a target that runs on ", chip().name,
                         ", but got ", target);
      *module = made.get();
      state().modules[*module] = std::move(made);
      log.write("");
      return Success;
    } catch (const sparse_opt::Error &error) {
      log.write(error.sentence);
      return InvalidPtx;
    }
  });
}

Result cuModuleUnload(LoadedModule module) {
  return inContext([&] {
    auto found = state().modules.find(module);
    if (found == state().modules.end())
      return InvalidHandle;
    Result result = finish();
    // The variables of a module end with it.
    uint64_t number = module->module.program().number;
    auto &variables = state().memory.variables;
    for (auto it = variables.begin(); it != variables.end();)
      if (it->first.first == number) {
        state().memory.release(it->second);
        it = variables.erase(it);
      } else {
        ++it;
      }
    state().modules.erase(found);
    return result;
  });
}

Result cuModuleGetFunction(Function *function, LoadedModule module,
                           const char *name) {
  return inContext([&] {
    if (!function || !name)
      return InvalidValue;
    auto found = state().modules.find(module);
    if (found == state().modules.end())
      return InvalidHandle;
    for (const ptx::EntryInfo &info : module->module.entries()) {
      if (info.name != name)
        continue;
      auto &made = module->functions[name];
      if (!made)
        made = std::make_unique<FunctionState>(
            FunctionState{module, info, 48 * 1024 - info.staticShared});
      *function = made.get();
      return Success;
    }
    return NotFound;
  });
}
