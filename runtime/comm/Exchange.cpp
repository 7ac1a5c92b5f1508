// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between the processes of a run.

#include "Exchange.h"
#include "base/Status.h"
#include <algorithm>
#include <thread>

using namespace sparse_opt;
using namespace std::chrono_literals;

/// Messages of the two kinds pass each other.
enum : int32_t { dataTag, heartbeatTag };
/// The content of a heartbeat.
enum : char { lives = 1, leaves = 2 };

Exchange::Exchange(const bsr_transport &transport,
                   std::chrono::milliseconds limit)
    : transport(transport), limit(limit),
      period(limit.count() ? std::max(limit / 4, 1ms) : 10000ms),
      peers(size_t(transport.size)) {
  for (int32_t rank = 0; rank < transport.size; ++rank) {
    Peer &peer = peers[size_t(rank)];
    peer.seen = Clock::now();
    peer.out.isDone = true;
    if (rank != transport.rank)
      peer.in = receive(&peer.heard, 1, rank, heartbeatTag);
  }
}

void Exchange::check(int code) const {
  if (!code)
    return;
  char words[256] = "";
  transport.describe(&transport, code, words, sizeof words);
  fail(BSR_COMMUNICATION_ERROR, "expected to reach all ", transport.size,
       " processes from rank ", transport.rank, ", but got: ", words);
}

Exchange::Message Exchange::send(const char *data, int64_t bytes, int32_t to,
                                 int32_t tag) {
  Message message = {{}, to, /*isReceived=*/false};
  check(transport.send(&transport, data, bytes, to, tag, &message.message));
  return message;
}

Exchange::Message Exchange::receive(char *data, int64_t bytes, int32_t from,
                                    int32_t tag) {
  Message message = {{}, from, /*isReceived=*/true};
  check(
      transport.receive(&transport, data, bytes, from, tag, &message.message));
  return message;
}

bool Exchange::test(Message &message) {
  if (message.isDone)
    return true;
  int32_t isDone = 0;
  check(transport.test(&transport, &message.message, &isDone));
  message.isDone = isDone;
  if (isDone && message.isReceived)
    peers[size_t(message.rank)].seen = Clock::now();
  return isDone;
}

void Exchange::requireAlive(int32_t rank, bool untilItLeaves) const {
  const Peer &peer = peers[size_t(rank)];
  auto now = Clock::now();
  if (peer.hasLeft) {
    // What it sent before may still arrive.
    if (!untilItLeaves && now - peer.left > 1s)
      fail(BSR_COMMUNICATION_ERROR, "expected rank ", rank,
           " to take part, but got word that it left");
    return;
  }
  if (limit.count() && now - peer.seen > limit)
    fail(BSR_COMMUNICATION_ERROR, "expected a sign of life from rank ", rank,
         " every ", limit.count() * 1e-3,
         " s (BSR_COMMUNICATION_TIMEOUT), but got none");
}

void Exchange::pause(Clock::time_point last) const {
  if (isStopped)
    fail(BSR_COMMUNICATION_ERROR, "expected to go on, but got stopped");
  auto idle = Clock::now() - last;
  if (idle < 20us)
    return std::this_thread::yield();
  // Not much longer than it took anyway.
  std::this_thread::sleep_for(std::min<Clock::duration>(idle / 8, 500us));
}

void Exchange::wait(std::vector<Message> &messages) {
  auto last = Clock::now();
  while (true) {
    bool isProgress = false;
    int32_t pending = -1;
    for (Message &message : messages)
      if (!message.isDone) {
        if (test(message))
          isProgress = true;
        else
          pending = message.rank;
      }
    if (pending < 0)
      return;
    push();
    sendHeartbeats();
    for (Message &message : messages)
      if (!message.isDone)
        requireAlive(message.rank);
    if (isProgress)
      last = Clock::now();
    pause(last);
  }
}

void Exchange::tell(int32_t rank, char what) {
  Peer &peer = peers[size_t(rank)];
  peer.told = what;
  peer.out = send(&peer.told, 1, rank, heartbeatTag);
}

void Exchange::sendHeartbeats() {
  auto now = Clock::now();
  if (now < nextLook)
    return;
  nextLook = now + std::min<Clock::duration>(period / 4, 10ms);
  bool isDue = now >= nextHeartbeat;
  if (isDue)
    nextHeartbeat = now + period;
  for (int32_t rank = 0; rank < transport.size; ++rank) {
    if (rank == transport.rank)
      continue;
    Peer &peer = peers[size_t(rank)];
    while (!peer.hasLeft && test(peer.in)) {
      peer.hasLeft = peer.heard == leaves;
      peer.left = now;
      if (!peer.hasLeft)
        peer.in = receive(&peer.heard, 1, rank, heartbeatTag);
    }
    // No further heartbeat is sent while the last one is pending.
    if (test(peer.out) && isDue && !peer.hasLeft)
      tell(rank, lives);
  }
}

void Exchange::leave() {
  std::vector<bool> isTold(peers.size());
  auto last = Clock::now();
  while (true) {
    nextLook = {};
    // From here on heartbeats are sent below only.
    nextHeartbeat = Clock::time_point::max();
    sendHeartbeats();
    bool isOver = !push();
    for (int32_t rank = 0; rank < transport.size; ++rank) {
      if (rank == transport.rank)
        continue;
      Peer &peer = peers[size_t(rank)];
      if (!test(peer.out)) {
        isOver = false;
      } else if (!isTold[size_t(rank)]) {
        tell(rank, leaves);
        isTold[size_t(rank)] = true;
        isOver = false;
      }
      isOver &= peer.hasLeft;
      requireAlive(rank, /*untilItLeaves=*/true);
    }
    if (isOver)
      return;
    pause(last);
  }
}

void Exchange::giveUp() {
  auto begin = Clock::now();
  std::vector<bool> isTold(peers.size());
  // A goodbye leaves at once, or the rank that it is for is gone.
  for (bool isOver = false; !isOver && Clock::now() - begin < 1s;
       std::this_thread::sleep_for(1ms)) {
    isOver = true;
    for (int32_t rank = 0; rank < transport.size; ++rank) {
      if (rank == transport.rank)
        continue;
      if (!test(peers[size_t(rank)].out)) {
        isOver = false;
      } else if (!isTold[size_t(rank)]) {
        tell(rank, leaves);
        isTold[size_t(rank)] = true;
        isOver = false;
      }
    }
  }
}

void Exchange::sendTo(const char *data, int64_t bytes, int32_t to) {
  std::vector<Message> messages{send(data, bytes, to, dataTag)};
  wait(messages);
}

void Exchange::receiveFrom(char *data, int64_t bytes, int32_t from) {
  std::vector<Message> messages{receive(data, bytes, from, dataTag)};
  wait(messages);
}

void Exchange::post(std::vector<char> data, int32_t to) {
  posted.push_back({std::move(data), {}});
  Posted &last = posted.back();
  last.message = send(last.data.data(), int64_t(last.data.size()), to, dataTag);
}

bool Exchange::push() {
  for (Posted &each : posted)
    test(each.message);
  while (!posted.empty() && posted.front().message.isDone)
    posted.pop_front();
  return !posted.empty();
}

Exchange::Group Exchange::everybody() const {
  Group group{{}, size_t(transport.rank)};
  for (int32_t rank = 0; rank < transport.size; ++rank)
    group.ranks.push_back(rank);
  return group;
}

void Exchange::allToAllSpans(const char *data, const std::vector<Span> &spans,
                             char *received, const Group &group) {
  std::vector<Message> messages;
  size_t size = group.ranks.size();
  Span own = spans[group.own];
  for (size_t step = 1; own.bytes && step < size; ++step) {
    // Each rank begins with another.
    size_t from = (group.own + size - step) % size;
    messages.push_back(receive(received + int64_t(from) * own.bytes, own.bytes,
                               group.ranks[from], dataTag));
  }
  for (size_t step = 1; step < size; ++step) {
    size_t to = (group.own + step) % size;
    if (Span span = spans[to]; span.bytes)
      messages.push_back(
          send(data + span.begin, span.bytes, group.ranks[to], dataTag));
  }
  std::copy_n(data + own.begin, own.bytes,
              received + int64_t(group.own) * own.bytes);
  wait(messages);
}

void Exchange::allGatherSpans(char *data, const std::vector<Span> &spans,
                              const Group &group) {
  std::vector<Message> messages;
  size_t size = group.ranks.size();
  for (size_t step = 1; step < size; ++step) {
    size_t from = (group.own + size - step) % size;
    if (Span span = spans[from]; span.bytes)
      messages.push_back(
          receive(data + span.begin, span.bytes, group.ranks[from], dataTag));
  }
  Span own = spans[group.own];
  for (size_t step = 1; own.bytes && step < size; ++step)
    messages.push_back(send(data + own.begin, own.bytes,
                            group.ranks[(group.own + step) % size], dataTag));
  wait(messages);
}

void Exchange::broadcast(char *data, int64_t bytes, int32_t root) {
  // A binomial tree over ranks counted from the root: which ranks have the data
  // after `reach` ranks do gives it to the one `reach` further.
  int32_t own = (transport.rank + transport.size - root) % transport.size;
  for (int32_t reach = 1; reach < transport.size; reach *= 2) {
    std::vector<Message> messages;
    auto rankOf = [&](int32_t place) {
      return (place + root) % transport.size;
    };
    if (own < reach && own + reach < transport.size)
      messages.push_back(send(data, bytes, rankOf(own + reach), dataTag));
    else if (own >= reach && own < 2 * reach)
      messages.push_back(receive(data, bytes, rankOf(own - reach), dataTag));
    wait(messages);
  }
}
