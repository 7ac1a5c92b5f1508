// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Parser.h"
#include <atomic>

using namespace ptx;

Module::Module(std::string_view text) {
  static std::atomic<uint64_t> programs{0};
  auto made = std::make_shared<Program>();
  made->number = ++programs;
  Parser(text, *made).parseModule();
  held = std::move(made);
}

const std::string &Module::target() const { return held->target; }

std::vector<EntryInfo> Module::entries() const {
  std::vector<EntryInfo> infos;
  for (const Kernel &kernel : held->kernels)
    infos.push_back(kernel.info);
  return infos;
}

const Kernel &Program::kernel(std::string_view name) const {
  for (const Kernel &kernel : kernels)
    if (kernel.info.name == name || (name.empty() && kernels.size() == 1))
      return kernel;
  if (name.empty())
    sparse_opt::fail(
        "expected the name of an entry, but got none, and a module with ",
        kernels.size());
  sparse_opt::fail("expected an entry of the module, but got '", name, "'");
}

EntryInfo Module::entry(std::string_view name) const {
  return held->kernel(name).info;
}

uint64_t Module::address(std::string_view name, Memory &memory) const {
  for (const Variable &variable : held->variables) {
    if (variable.name != name)
      continue;
    auto [it, made] =
        memory.variables.try_emplace({held->number, variable.name}, 0);
    if (made) {
      it->second = memory.allocate(variable.bytes.size());
      // Variables without an initialiser begin as zeros.
      memory.write(it->second, variable.bytes.data(), variable.bytes.size());
    }
    return it->second;
  }
  sparse_opt::fail("expected a variable of the module, but got '", name, "'");
}
