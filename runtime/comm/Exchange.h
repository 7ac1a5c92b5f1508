// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What all processes of a run do together with messages, and how they find that
// one of them is gone.

#ifndef BSR_RUNTIME_COMM_EXCHANGE_H
#define BSR_RUNTIME_COMM_EXCHANGE_H

#include "Transport.h"
#include <atomic>
#include <chrono>
#include <deque>
#include <vector>

namespace sparse_opt {

/// Messages over a transport. One thread calls it. All ranks call the functions
/// below in the same order, but for `sendHeartbeats` and those that say
/// otherwise. They wait without keeping a core busy, and fail with a sentence
/// that names a rank from which nothing was heard for `limit`, or which left.
class Exchange {
public:
  using Clock = std::chrono::steady_clock;

  /// Without a `limit`, 0, it waits for ever.
  Exchange(const bsr_transport &transport, std::chrono::milliseconds limit);

  /// Ranks that do something together, rising, and which of them this one is.
  struct Group {
    std::vector<int32_t> ranks;
    size_t own;
  };
  Group everybody() const;
  /// A part of an array of bytes.
  struct Span {
    int64_t begin, bytes;
  };
  /// Span i of `data` goes to rank i of `group`; what that one sends comes to
  /// `receive`, i times as far as this rank's span is long.
  void allToAllSpans(const char *data, const std::vector<Span> &spans,
                     char *receive, const Group &group);
  /// What rank i of `group` has in span i of `data` comes to the same place at
  /// all of it.
  void allGatherSpans(char *data, const std::vector<Span> &spans,
                      const Group &group);
  /// `bytes` bytes of `data` of rank `root` come to all ranks, along a tree.
  void broadcast(char *data, int64_t bytes, int32_t root);

  /// `bytes` bytes of `data` go to rank `to`, which receives them from this
  /// one: only these two call.
  void sendTo(const char *data, int64_t bytes, int32_t to);
  void receiveFrom(char *data, int64_t bytes, int32_t from);
  /// `data` goes to rank `to` while this one does something else, as long as it
  /// waits or calls `push`.
  void post(std::vector<char> data, int32_t to);
  /// True if something that was posted has not left yet.
  bool push();

  /// Sends heartbeats that are due to the other ranks, and receives theirs. An
  /// idle thread calls it at least every `heartbeatPeriod`.
  void sendHeartbeats();
  std::chrono::milliseconds heartbeatPeriod() const { return period; }

  /// Tells all others that no message will come, and waits until they all did.
  void leave();
  /// A goodbye to the ranks that listen, after a failure; never blocks.
  void giveUp();

  /// Makes what waits fail. Any thread may call it.
  void stop() { isStopped = true; }

private:
  struct Message {
    bsr_message message;
    int32_t rank;
    bool isReceived; // and not sent
    bool isDone = false;
  };
  /// What is known of another rank.
  struct Peer {
    Clock::time_point seen;
    char heard = 0, told = 0; // of a heartbeat on its way
    Message in, out;
    bool hasLeft = false;
    Clock::time_point left;
  };

  void check(int code) const;
  Message send(const char *data, int64_t bytes, int32_t to, int32_t tag);
  Message receive(char *data, int64_t bytes, int32_t from, int32_t tag);
  /// Whether `message` is done.
  bool test(Message &message);
  void wait(std::vector<Message> &messages);
  /// Waits, longer the longer nothing happened since `last`.
  void pause(Clock::time_point last) const;
  void requireAlive(int32_t rank, bool untilItLeaves = false) const;
  void tell(int32_t rank, char what);

  /// What is on its way to another rank, and its memory.
  struct Posted {
    std::vector<char> data;
    Message message;
  };

  const bsr_transport &transport;
  const std::chrono::milliseconds limit, period;
  std::deque<Posted> posted;
  std::vector<Peer> peers; // of all ranks, this one's unused
  Clock::time_point nextHeartbeat, nextLook;
  std::atomic<bool> isStopped = false;
};

} // namespace sparse_opt

#endif // BSR_RUNTIME_COMM_EXCHANGE_H
