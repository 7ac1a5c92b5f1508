// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Means over processes: threads stand for them.

#include "Check.h"
#include "Communicator.h"
#include "Element.h"
#include "support/Error.h"
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

using namespace check;
using namespace bsr;

namespace {
/// What the threads of a case share: the places of what each gives, and a
/// barrier.
struct Team {
  explicit Team(int size) : size(size), given(size_t(size)) {}

  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    int64_t round = rounds;
    if (++arrived == size) {
      arrived = 0;
      ++rounds;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return rounds != round; });
  }

  const int size;
  std::vector<const void *> given;
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  int64_t rounds = 0;
};
} // namespace

static thread_local Team *team;
static thread_local int32_t ownRank;
static thread_local int callsUntilFailure = -1;

/// Copies `bytes` bytes of what each rank gave, from `offset` on.
static int collect(const void *send, void *receive, int64_t bytes,
                   int64_t offset) {
  if (callsUntilFailure == 0)
    return 7;
  --callsUntilFailure;
  team->given[size_t(ownRank)] = send;
  team->wait();
  for (int rank = 0; rank < team->size; ++rank)
    std::memcpy(static_cast<char *>(receive) + rank * bytes,
                static_cast<const char *>(team->given[size_t(rank)]) + offset,
                size_t(bytes));
  team->wait();
  return 0;
}

static int allToAll(const void *send, void *receive, int64_t bytes) {
  return collect(send, receive, bytes, ownRank * bytes);
}

static int allGather(const void *send, void *receive, int64_t bytes) {
  return collect(send, receive, bytes, 0);
}

static int broadcast(void *data, int64_t bytes, int32_t root) {
  std::vector<char> all(size_t(bytes * team->size));
  int code = collect(data, all.data(), bytes, 0);
  std::memcpy(data, all.data() + root * bytes, size_t(bytes));
  return code;
}

static void describe(int code, char *text, int64_t bytes) {
  std::snprintf(text, size_t(bytes), "code %d", code);
}

/// Calls `body(communicator)` as each of `size` ranks, and rethrows a failure.
template <typename Body>
static void runTeam(int size, Body body) {
  Team shared(size);
  std::vector<std::string> failures{size_t(size)};
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      team = &shared;
      ownRank = rank;
      callsUntilFailure = -1;
      bsr_transport transport = {};
      transport.rank = rank;
      transport.size = size;
      transport.all_to_all = allToAll;
      transport.all_gather = allGather;
      transport.broadcast = broadcast;
      transport.describe = describe;
      Communicator communicator(transport);
      try {
        body(communicator);
      } catch (const Failure &failure) {
        failures[size_t(rank)] = failure.text;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &failure : failures)
    if (!failure.empty())
      throw Failure{failure};
}

/// Element `i` that `rank` has.
static double elementOf(int32_t rank, int64_t i) {
  return std::sin(double(i * 7 + rank * 13)) * (1 + rank);
}

static double read(bsr_type type, const void *data, int64_t i) {
  switch (type) {
  case BSR_F16:
    return toDouble(static_cast<const Half *>(data)[i]);
  case BSR_BF16:
    return toDouble(static_cast<const BFloat *>(data)[i]);
  case BSR_F32:
    return static_cast<const float *>(data)[i];
  default:
    return static_cast<const double *>(data)[i];
  }
}

/// The mean of element `i`: added in the order of the ranks, in f64 for f64
/// and else in f32, and rounded once more.
static double meanOf(bsr_type type, int size, int64_t i) {
  char element[8];
  double sum = 0;
  for (int32_t rank = 0; rank < size; ++rank) {
    storeElement(type, element, 0, elementOf(rank, i));
    sum += read(type, element, 0);
    if (type != BSR_F64)
      sum = float(sum);
  }
  sum /= size;
  storeElement(type, element, 0, type == BSR_F64 ? sum : float(sum));
  return read(type, element, 0);
}

CASE(communicator_takes_means_in_the_order_of_ranks) {
  for (int size : {1, 2, 3, 4})
    for (bsr_type type : {BSR_F16, BSR_BF16, BSR_F32, BSR_F64})
      // No element, fewer than ranks, a number that ranks do not divide.
      for (int64_t count : {0, 1, 2, 1000, 1001})
        runTeam(size, [&](Communicator &communicator) {
          std::vector<char> data(size_t(count * bsr_type_bytes(type)) + 8, 'x');
          for (int64_t i = 0; i < count; ++i)
            storeElement(type, data.data(), i,
                         elementOf(communicator.rank(), i));
          communicator.all_reduce(&communicator, data.data(), count, type);
          for (int64_t i = 0; i < count; ++i)
            requireEqual(read(type, data.data(), i), meanOf(type, size, i),
                         "a mean", __FILE__, __LINE__);
          requireEqual(std::string(data.end() - 8, data.end()),
                       std::string(8, 'x'), "what is behind", __FILE__,
                       __LINE__);
          requireEqual(communicator.counters.bytes_reduced,
                       count * bsr_type_bytes(type), "bytes", __FILE__,
                       __LINE__);
        });
}

CASE(communicator_cuts_what_is_long) {
  // Two segments and a part of one.
  int64_t count = 2 * Communicator::segmentBytes / 4 + 5;
  runTeam(3, [&](Communicator &communicator) {
    std::vector<float> data(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      data[size_t(i)] = float(i % 1000 + communicator.rank());
    communicator.all_reduce(&communicator, data.data(), count, BSR_F32);
    for (int64_t i = 0; i < count; ++i)
      if (data[size_t(i)] != float(i % 1000 + 1))
        requireEqual(data[size_t(i)], float(i % 1000 + 1), "a mean", __FILE__,
                     __LINE__);
    std::string text = "of rank " + std::to_string(communicator.rank());
    communicator.broadcast(text.data(), int64_t(text.size()), 2);
    requireEqual(text, std::string("of rank 2"), "the text", __FILE__,
                 __LINE__);
  });
}

CASE(communicator_keeps_what_failed) {
  runTeam(2, [&](Communicator &communicator) {
    callsUntilFailure = 0;
    float data = 1;
    communicator.all_reduce(&communicator, &data, 1, BSR_F32);
    requireEqual(data, 1.0f, "the number", __FILE__, __LINE__);
    std::string sentence;
    try {
      communicator.requireIntact();
    } catch (const Error &error) {
      sentence = error.sentence;
    }
    requireEqual(sentence,
                 "expected to reach all 2 processes from rank " +
                     std::to_string(communicator.rank()) + ", but got: code 7",
                 "the error", __FILE__, __LINE__);
  });
}

CASE(communicator_refuses_what_is_none) {
  bsr_communicator *communicator = nullptr;
  requireFails(
      bsr_communicator_open("pigeons", &communicator), BSR_INVALID_ARGUMENT,
      "expected communicator mpi, but got 'pigeons'", __FILE__, __LINE__);
  requireFails(
      bsr_communicator_broadcast(nullptr, &communicator, 1, 0),
      BSR_INVALID_ARGUMENT,
      "expected argument 'communicator' to point somewhere, but got null",
      __FILE__, __LINE__);
}

CASE(session_of_several_processes_needs_a_step_for_them) {
  runTeam(2, [&](Communicator &communicator) {
    Step step = loadFake();
    Session session = start(step);
    requireFails(bsr_session_communicate(session.get(), &communicator),
                 BSR_INVALID_STEP,
                 "expected a step that was compiled with --data-parallel for 2 "
                 "processes, but got 'fake'",
                 __FILE__, __LINE__);
    requireOk(bsr_session_communicate(session.get(), nullptr), __FILE__,
              __LINE__);
  });
}
