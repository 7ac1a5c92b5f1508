// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's session as an object: errors are exceptions, memory is freed.

#ifndef BSR_TOOLS_SPARSETRAIN_SESSION_H
#define BSR_TOOLS_SPARSETRAIN_SESSION_H

#include "bsr/runtime.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sparse_opt::train {

/// A buffer of the step.
struct Buffer {
  int64_t index; // among all of the step
  std::string name, role;
  bsr_type type;
  std::vector<int64_t> shape;
  int64_t elements;
  bool carried;
  int64_t wholeElements; // of what several processes have a share of
  std::string init;      // rule of its first values, or ""

  bool isShard() const { return elements != wholeElements; }
};

/// A compiled step and the memory of one run. See bsr/runtime.h for what the
/// calls do; here a failure throws `Error`.
class Session {
public:
  /// A session of the step in the library `path`, on `device` as
  /// bsr_session_create names it.
  Session(const std::string &path, const std::string &device, uint64_t seed);
  /// A session of the step in the library `path` that trains the state of
  /// `source`, which outlives it. What is of the state, the source reads,
  /// writes, updates and saves.
  Session(const std::string &path, Session &source);

  /// What steps for `device` are compiled for, "cpu" or a GPU's chip.
  static std::string targetOf(const std::string &device);

  const bsr_step *step() const { return loaded.get(); }
  /// The arguments and results of the step: all but index buffers; those of one
  /// micro-batch stand for those of all.
  const std::vector<Buffer> &buffers() const { return all; }
  /// The first buffer of this name, or null.
  const Buffer *find(const std::string &name) const;
  /// The first buffer with this role, or null.
  const Buffer *findRole(const std::string &role) const;

  /// The micro-batches that a run goes through.
  int64_t microBatches() const { return bsr_step_micro_batches(loaded.get()); }
  /// From now on, what is written to a buffer that differs from micro-batch to
  /// micro-batch goes to that of `microBatch`, counted from 0.
  void select(int64_t microBatch) { selected = microBatch; }

  /// Copies all of a buffer to `data`, and from there.
  void read(const Buffer &buffer, void *data) const;
  void write(const Buffer &buffer, const void *data);
  /// Pattern `index` as it stands.
  bsr_pattern_view pattern(int64_t index) const;
  bsr_pattern_statistics statistics(int64_t pattern) const;

  /// Takes means over the processes of `communicator`; null: this one alone.
  void communicate(bsr_communicator *communicator);

  void initialize();
  void makePattern(int64_t index, int64_t blocks);
  void readPattern(int64_t index, const std::string &path);
  void setPattern(int64_t index, const bsr_pattern_view &view);
  void takeLargest(int64_t index, int64_t blocks, bsr_norm norm, bsr_type type,
                   const std::string &dense);
  /// Scales the first values of a weight for the fan-in that is stored.
  void scaleFanIn(int64_t index, bsr_fan_in fanIn);
  /// Says what blocks begin with that updates of the pattern regrow.
  void setNewBlocks(int64_t index, const bsr_new_blocks &start);
  void run();
  void runScores();
  /// Sums the scores of such a run with those of runs before: of each pattern
  /// of how many steps.
  void sumScores(const std::vector<int32_t> &steps);
  /// The floating-point operations of such a run; -1 if nothing tells.
  int64_t flops(bool scores) const {
    return bsr_session_flops(session.get(), scores);
  }
  void snapshot();
  void restore();
  /// One update for each pattern.
  void update(const std::vector<bsr_pattern_update> &updates);
  /// Whether runs that only add up gradients leave results of this process
  /// alone.
  bool accumulates() const { return bsr_step_accumulates(loaded.get()); }
  /// Whether processes have shares of the state: they save it together.
  bool isSharded() const { return bsr_step_sharded(loaded.get()); }
  /// An empty `path` is that of a process that has only its share to give.
  void save(const std::string &path, const std::string &metadata) const;
  /// Returns why the file is no checkpoint of this step, and "" if it is one
  /// and was loaded.
  std::string load(const std::string &path);
  std::string metadata() const;
  /// What tells the step from that of the checkpoint; "" if nothing does.
  std::string stepDifference() const;
  bsr_counters counters() const;

private:
  /// Loads the step in the library `path`.
  void open(const std::string &path);
  /// Lists the buffers of the step.
  void listBuffers();
  /// Whether buffer `index` is that of a micro-batch behind the first.
  bool addToMicroBatch(int64_t index, const std::string &name);

  struct Release {
    void operator()(bsr_step *step) const { bsr_step_unload(step); }
    void operator()(bsr_session *session) const {
      bsr_session_destroy(session);
    }
  };

  std::unique_ptr<bsr_step, Release> loaded;
  std::unique_ptr<bsr_session, Release> session;
  std::vector<Buffer> all;
  int64_t selected = 0;
  /// Of micro-batches behind the first: their buffers by those of the first.
  std::vector<std::map<int64_t, int64_t>> others;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_SESSION_H
