// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a compiled step says of itself: docs/manifest.md.

#ifndef BSR_RUNTIME_BASE_MANIFEST_H
#define BSR_RUNTIME_BASE_MANIFEST_H

#include "bsr/runtime.h"
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sparse_opt {

struct Buffer {
  std::string name;
  std::string role;
  std::string init;
  std::vector<int64_t> shape;
  bsr_kind kind;
  bsr_type type;
  bool carried;
  int32_t pattern; // or -1
  int64_t elements;
  int64_t bytes;
  std::vector<int64_t> whole; // of a shard: the shape of what it is a part of;
                              // else `shape`
  int64_t wholeBytes;
  int64_t arenaOffset; // of scores, where in the arena they lie
};

/// Whether the buffer is of a training's state, which checkpoints hold: what
/// the step changes, and parameters and state that it leaves as they are.
inline bool isKept(const Buffer &buffer) {
  bool isArgument = buffer.kind == BSR_DENSE || buffer.kind == BSR_VALUES;
  return buffer.carried ||
         (isArgument && (buffer.role == "param" || buffer.role == "state"));
}

/// Whether the buffer holds the share of one of several processes.
inline bool isShard(const Buffer &buffer) {
  return buffer.bytes != buffer.wholeBytes;
}

/// Where the share of `bytes` bytes of process `rank` begins in `wholeBytes`
/// bytes: bsr.shard of the dialect.
inline int64_t shardOffset(int64_t rank, int64_t bytes, int64_t wholeBytes) {
  return std::min(rank * bytes, wholeBytes - bytes);
}

/// The index buffers of a pattern, in the order of their kinds.
inline bool isIndices(bsr_kind kind) {
  return kind >= BSR_ROW_PTR && kind <= BSR_SLOT_T;
}
inline constexpr bsr_kind indexKinds[] = {BSR_ROW_PTR, BSR_COL_IDX, BSR_SLOT,
                                          BSR_COL_PTR, BSR_ROW_IDX, BSR_SLOT_T};

/// The tensors of a pattern's history in a checkpoint, and of summed scores.
inline constexpr const char *everTensor = "ever", *newestTensor = "newest",
                            *scoresTensor = "scores";

struct Pattern {
  std::string name;
  int64_t rows, cols;
  int64_t extents;              // of the array that the weight is, added up
  int64_t blockRows, blockCols; // of one block
  int64_t slots;
  double density;
  bool isStatic;
  int32_t weight;
  int32_t indices[6];          // buffers, in the order of indexKinds
  std::vector<int32_t> values; // buffers whose slots the pattern assigns
  int32_t scores = -1;         // buffer of the scores of blocks, or -1
  int64_t flops;               // of a run, for one block
  std::vector<int32_t>
      arrays[6]; // a static pattern, in the order of indexKinds

  int64_t gridRows() const { return rows / blockRows; }
  int64_t gridCols() const { return cols / blockCols; }
  int64_t allBlocks() const { return gridRows() * gridCols(); }
  int64_t mostBlocks() const { return std::min(slots, allBlocks()); }

  /// Where the tensors of this pattern, its row view and its history, stand in
  /// a checkpoint.
  std::string tensorName(bsr_kind kind) const {
    return tensorName(bsr_kind_name(kind));
  }
  std::string tensorName(const char *what) const {
    return name + ".bsr." + what;
  }
};

/// A row of the table of timers.
struct Timer {
  std::string kernel, kind, operands;
  int64_t flops, bytes; // of one launch
  int64_t items;        // that threads share; 0: not known
};

/// An argument of a kernel of a GPU.
struct LaunchArgument {
  enum Kind { Buffer, Arena, Number };
  /// The map of a matrix in row-major order by which boxes of it are copied.
  struct Map {
    bsr_type type;
    std::vector<int64_t> shape, box;
    int64_t swizzle; // bytes: 0, 32, 64 or 128
  };
  Kind kind;
  int64_t value;          // a buffer's index, bytes into the arena, or itself
  std::optional<Map> map; // instead of the address
};

/// A launch of a kernel of a GPU.
struct Launch {
  enum When { Pattern, Step, Scores }; // as `launchTimes` has them
  std::string kernel;
  When when;
  std::array<unsigned, 3> grid, block, cluster; // a cluster of one: none
  int64_t sharedBytes;
  std::vector<LaunchArgument> arguments;
};

/// What the manifest of a step says, checked.
struct Manifest {
  std::string name;
  std::string targetCpu;
  std::vector<std::string> targetFeatures; // what the code needs
  std::string code;        // the code's hash, 16 digits, or "" if not known
  std::string compilation; // how the code was made: a JSON object
  uint64_t interfaceHash;  // of all that the code does not depend on
  int64_t arenaBytes;
  std::string scoreNorm; // "" for a step without scores
  bool communicates = false;
  int64_t sharded = 0; // among how many processes, or 0
  /// The buffer that tells, by 0, that a run takes no means over processes; -1
  /// if all runs do.
  int64_t applyBuffer = -1;
  int64_t stage = 0, stages = 0; // none if it is no stage
  bool replicas = false;         // several processes may run a stage
  int64_t microBatches = 1;      // that a run goes through
  std::vector<Buffer> buffers;
  std::vector<Pattern> patterns;
  std::map<std::string, int64_t> products;
  int64_t leftDense;
  /// Of a run: of products without a pattern, and of scores of blocks; none if
  /// the compiler did not count.
  struct Flops {
    int64_t dense, scores;
  };
  std::optional<Flops> flops;
  std::vector<Timer> timers;
  std::string chip; // of the GPU that the step is for, or ""
  std::vector<Launch> launches;
  int64_t planBytes = 0; // that the arena's start keeps from run to run
};

} // namespace sparse_opt

#endif // BSR_RUNTIME_BASE_MANIFEST_H
