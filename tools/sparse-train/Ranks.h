// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The processes that train together, as mpirun started them.

#ifndef BSR_TOOLS_SPARSETRAIN_RANKS_H
#define BSR_TOOLS_SPARSETRAIN_RANKS_H

#include "bsr/runtime.h"

#include <memory>
#include <string>
#include <vector>

namespace sparse_opt::train {

class Session;

/// This process among those of a run: rank 0 to `size` - 1. All call the
/// functions below together, in the same order.
class Ranks {
public:
  /// Joins the other processes if the environment says that an MPI started this
  /// one; else it is alone. Only rank 0 prints on the standard output from then
  /// on.
  Ranks();

  int64_t rank() const { return bsr_communicator_rank(communicator.get()); }
  int64_t size() const { return bsr_communicator_size(communicator.get()); }
  bool isFirst() const { return rank() == 0; }
  /// False for a process that no MPI started.
  bool areJoined() const { return communicator != nullptr; }

  /// Has steps of `session` take means over all processes.
  void join(Session &session) const;

  /// Waits for all processes.
  void wait() const;

  /// The text of rank `root`.
  std::string broadcast(std::string text, int64_t root = 0) const;

  /// Fails unless all processes have the same hashes. The sentence has the name
  /// of the first that differs: "expected rank 1 to have the `name` of rank 0,
  /// but got another". Of several `stages`, ranks of one remainder compare
  /// theirs.
  void requireSame(const std::vector<std::string> &names,
                   const std::vector<uint64_t> &hashes,
                   int64_t stages = 1) const;

  /// The means over all processes of each of `numbers`.
  std::vector<double> mean(const std::vector<double> &numbers) const;

  /// What all processes have for `number`, in the order of their ranks.
  std::vector<int64_t> gather(int64_t number) const;

  /// Gives all processes the weights, moments and patterns of rank 0, but for
  /// shares of the state.
  void copyState(Session &session) const;
  /// Fails unless all processes of a stage have the same patterns, and the same
  /// carried buffers, but for shares of the state, if `andBuffers`.
  void requireSameState(const Session &session, bool andBuffers,
                        int64_t stages) const;

  /// What the steps of this process did so far with the others.
  bsr_communicator_counters counters() const;
  /// Begins to keep what was reduced when.
  void trace() const;
  /// What was kept since `trace`, or since this was called.
  std::vector<bsr_reduction_event> takeEvents() const;

  /// Leaves together with all others.
  void leave();

  /// Prints `sentence` and ends all processes.
  [[noreturn]] void end(const char *sentence) const;

private:
  /// Frees nothing: a process that ends without `leave` ends all.
  struct Release {
    void operator()(bsr_communicator *) const {}
  };
  std::unique_ptr<bsr_communicator, Release> communicator;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_RANKS_H
