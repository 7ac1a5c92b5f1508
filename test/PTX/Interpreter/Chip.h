// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the chips have that PTX is compiled for.

#ifndef PTX_CHIP_H
#define PTX_CHIP_H

#include <string_view>

namespace ptx {

/// A target of PTX. Sources: CUDA C++ Programming Guide, "Compute
/// Capabilities", table "Technical Specifications per Compute Capability".
struct Chip {
  const char *name;
  unsigned version;   ///< 80, 90, ...
  bool architecture;  ///< the suffix a: instructions of this chip only
  unsigned maxShared; ///< bytes a block, static and dynamic, after opting in
  unsigned maxThreads;
  unsigned maxRegisters;   ///< a thread
  unsigned registersInAll; ///< a block
  unsigned maxCluster;     ///< blocks of a cluster; 1: no clusters
};

/// Null where the name is none of the table.
const Chip *findChip(std::string_view name);

/// The names of the table, separated by commas.
const char *chipNames();

/// Says whether a module for `target` runs on `chip`.
bool runsOn(const Chip &target, const Chip &chip);

} // namespace ptx

#endif // PTX_CHIP_H
