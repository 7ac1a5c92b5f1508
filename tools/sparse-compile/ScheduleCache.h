// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What --tune has found before, on disk.

#ifndef BSR_TOOLS_SPARSE_COMPILE_SCHEDULECACHE_H
#define BSR_TOOLS_SPARSE_COMPILE_SCHEDULECACHE_H

#include "KernelStep.h"
#include "llvm/Support/Error.h"
#include <string>

namespace mlir::bsr {

/// What was found for a kernel.
struct TunedWay {
  Way way;
  /// What a launch takes as the compiler chooses, and as tuned.
  double ownNanoseconds = 0, nanoseconds = 0;
};

/// Files of schedules, one a kernel, in the folder in which Python keeps what
/// it compiles: `$SPARSE_OPT_CACHE`, or `sparse-opt` in `$XDG_CACHE_HOME` or
/// `~/.cache`. Several processes may use it at once. Where they exceed
/// `$SPARSE_OPT_CACHE_BYTES` (1 GiB), those go that were not used for longest.
class ScheduleCache {
public:
  /// `key`: all that a choice depends on beside the kernel.
  static llvm::Expected<ScheduleCache> create(std::string key);

  /// What the file of `kernel` says; nothing if there is none. A file that says
  /// nothing that there is a kernel for is warned of.
  std::optional<TunedWay> find(TunedKernel &kernel) const;
  /// Writes it; warns if that is not possible.
  void store(TunedKernel &kernel, const TunedWay &found) const;

private:
  std::string getPath(TunedKernel &kernel) const;
  void shrink(StringRef keep) const;

  std::string key, folder;
  uint64_t mostBytes = uint64_t(1) << 30;
};

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_SCHEDULECACHE_H
