// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What reaches the other processes of a run: means in a fixed order, which are
// taken while the step goes on.

#ifndef BSR_RUNTIME_COMM_COMMUNICATOR_H
#define BSR_RUNTIME_COMM_COMMUNICATOR_H

#include "Exchange.h"
#include "bsr/runtime.h"
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sparse_opt {

inline int64_t nanoseconds(Exchange::Clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

/// The functions that steps call, and what callers of the runtime do with the
/// other processes. Its address is that of a `bsr_communicator`.
///
/// With several processes, a thread of its own does everything in the order in
/// which it was asked for: messages make progress while kernels run, of any
/// length, and an MPI has to know only one thread at a time. It sleeps while
/// others are late.
class Communicator : public bsr_communicator {
public:
  explicit Communicator(
      const bsr_transport &transport,
      std::chrono::milliseconds limit = std::chrono::milliseconds(0),
      int64_t segmentBytes = mostSegmentBytes);
  ~Communicator();

  /// Opens the transport `kind`, "mpi".
  static std::unique_ptr<Communicator> open(const std::string &kind);

  int32_t rank() const { return transport.rank; }
  int32_t size() const { return transport.size; }
  /// Of those that take means with this process, which of them it is, and how
  /// many they are.
  int32_t member() const { return exchange ? int32_t(group.own) : 0; }
  int32_t numMembers() const {
    return exchange ? int32_t(group.ranks.size()) : 1;
  }

  /// From now on rank r runs stage r % `stages` of a step: it takes means over
  /// the ranks of the same stage, and sends to stages of the same r / `stages`.
  /// `stages` divides the size.
  void setStages(int32_t stages);

  /// The methods behind `start_reduce`, `wait_reduce` and `all_reduce`. Large
  /// parts are sent from where they lie, small ones one behind the other. A
  /// segment of at most `segmentBytes` bytes of that is cut in a chunk for each
  /// rank, which gets it from all ranks, adds in the order of the ranks, and
  /// sends the mean to all: a rank sends 2 (n - 1) / n of the bytes, and no sum
  /// depends on when something arrives, or on what it is sent with.
  int64_t start(const bsr_part *parts, int64_t numParts, bsr_type type);
  void wait(int64_t ticket);
  void reduce(void *data, int64_t count, bsr_type type);

  /// The methods behind `send` and `receive`; ranks are stages, if there are
  /// any. What is sent is copied, and leaves while the step goes on.
  void send(const void *data, int64_t bytes, int32_t to);
  void receive(void *data, int64_t bytes, int32_t from);

  /// The methods behind `shard` and `unshard`, of those that take means with
  /// this process.
  void shard(const void *whole, int64_t wholeBytes, void *shard,
             int64_t shardBytes) const;
  void unshard(const void *shard, int64_t shardBytes, void *whole,
               int64_t wholeBytes);
  /// The same, but only the first of them gets what is whole; others pass null.
  void collect(const void *shard, int64_t shardBytes, void *whole,
               int64_t wholeBytes);

  void broadcast(void *data, int64_t bytes, int32_t root);
  void gather(const void *data, int64_t bytes, void *all);

  void close();
  void abort(int32_t status);

  /// Throws what failed while a step ran.
  void requireIntact() const;

  bsr_communicator_counters counters() const;
  /// Begins to keep what was reduced when, and forgets what was kept.
  void trace();
  std::vector<bsr_reduction_event> events() const;

  static constexpr int64_t mostSegmentBytes = int64_t(1) << 24;
  /// Parts of fewer bytes take longer to start than to copy.
  static constexpr int64_t largePartBytes = int64_t(1) << 20;

private:
  using Clock = Exchange::Clock;
  using Job = std::function<void()>;

  void check(int code) const;
  /// Does `job` on the thread, or here if there is none; a number for `wait`.
  int64_t post(Job job);
  void run(Job job);
  void work();
  void finish();
  void reduceSegment(char *data, int64_t count, bsr_type type);
  void reduceParts(const std::vector<bsr_part> &parts, bsr_type type);
  /// Of the shard of `member` what none before it has, for shards overlap at
  /// the end: of the segment `at` bytes behind the shard's begin.
  Exchange::Span ownSpan(int32_t member, int64_t shardBytes, int64_t wholeBytes,
                         int64_t at) const;
  /// Whether there are several processes. The step goes on if not, and nothing
  /// it computes counts.
  bool hasStages();

  const bsr_transport &transport;
  const int64_t segmentBytes;
  std::unique_ptr<Exchange> exchange; // of several processes
  /// The ranks that take means with this process, and that of its stage 0.
  Exchange::Group group;
  int32_t firstStage = 0;
  std::vector<char> received, together;

  mutable std::mutex mutex; // of all below
  std::condition_variable posted, done;
  std::deque<Job> jobs;
  int64_t numPosted = 0, numDone = 0;
  bool isOver = false;
  std::string failure; // nothing is done any more
  bsr_communicator_counters counted = {};
  bool isTraced = false;
  std::vector<bsr_reduction_event> kept;

  std::thread thread; // the last: it uses all of these
};

} // namespace sparse_opt

#endif // BSR_RUNTIME_COMM_COMMUNICATOR_H
