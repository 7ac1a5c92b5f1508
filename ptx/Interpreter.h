// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An interpreter of PTX: a module of text, memory, and launches that check
// every access. docs/ptx-interpreter.md says what it executes and what it
// checks. Every failure is a sparse_opt::Error with one sentence.

#ifndef PTX_INTERPRETER_H
#define PTX_INTERPRETER_H

#include "Counts.h"
#include "Memory.h"
#include "TensorMap.h"
#include "support/Chips.h"
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

using nvidia::Chip;

struct Program;

struct Dim {
  unsigned x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

/// A parameter of an entry, and its place in the bytes of a launch.
struct Parameter {
  std::string name;
  unsigned offset, size;
};

/// What an entry declares.
struct EntryInfo {
  std::string name;
  std::vector<Parameter> parameters;
  unsigned parameterBytes = 0;
  unsigned staticShared = 0;
  unsigned maxRegisters = 0;    ///< .maxnreg; 0 where there is none
  unsigned maxThreads = 0;      ///< .maxntid; 0 where there is none
  Dim requiredBlock{0, 0, 0};   ///< .reqntid; 0 where there is none
  Dim requiredCluster{0, 0, 0}; ///< .reqnctapercluster; 0 where there is none
};

/// Text of PTX, decoded. A copy shares what it holds.
class Module {
public:
  /// Parses and decodes `text`; refuses what the interpreter does not know.
  explicit Module(std::string_view text);

  const std::string &target() const;
  std::vector<EntryInfo> entries() const;
  /// Fails where there is no entry of this name; an empty name stands for the
  /// only one.
  EntryInfo entry(std::string_view name) const;
  /// The address of a variable of the module in `memory`, where the first call,
  /// or the first launch, allocates it.
  uint64_t address(std::string_view variable, Memory &memory) const;

  const Program &program() const { return *held; }

private:
  std::shared_ptr<const Program> held;
};

struct LaunchOptions {
  Dim grid, block, cluster;
  unsigned dynamicShared = 0;
  /// Bytes by which shared memory begins behind a multiple of 1024, as it may:
  /// a multiple of the alignment of each of its variables, and of 16.
  unsigned sharedOffset = 0;
  std::vector<uint8_t> parameters;
  const Chip *chip = nullptr; ///< null: the chip of the module's target
  /// Of the processor; 0: PTX_RUN_THREADS of the environment, or one a core.
  unsigned threads = 0;
  unsigned registers = 0; ///< a thread, as ptxas would say; 0: unknown
  uint64_t limit = uint64_t(1) << 32; ///< warp instructions of one block
  /// The thread blocks that run, by their numbers, with all of their clusters,
  /// each once; none: all of the grid.
  std::vector<uint64_t> blocks;
  bool countsBuffers = false;   ///< fills Counts::buffers
  bool findsGlobalRaces = true; ///< those in global memory are errors
  /// mbarrier.try_wait ends when its phase does, and counts once, as if a chip
  /// suspended the warp for as long; else it fails at once.
  bool suspendsWaits = false;
};

/// The number of the cluster that has thread block `block`.
uint64_t clusterOf(uint64_t block, const LaunchOptions &options);

/// Refuses what launch() refuses before it runs anything.
void checkLaunch(const Module &module, std::string_view entry,
                 const LaunchOptions &options);

/// Runs an entry on thread blocks, and checks every access.
Counts launch(const Module &module, std::string_view entry,
              const LaunchOptions &options, Memory &memory);

} // namespace ptx

#endif // PTX_INTERPRETER_H
