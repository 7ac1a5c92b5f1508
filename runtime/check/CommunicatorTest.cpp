// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Means over processes: threads stand for them.

#include "comm/Communicator.h"
#include "Assertions.h"
#include "base/Element.h"
#include "support/Error.h"
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

using namespace check;
using namespace sparse_opt;

namespace {
/// What the threads of a test share: messages that were sent and not received,
/// by sender, receiver and tag.
struct Team {
  std::mutex mutex;
  std::map<std::array<int32_t, 3>, std::deque<std::vector<char>>> messages;
};

/// One rank's part of a team.
struct Member : bsr_transport {
  Member(Team &team, int32_t rank, int32_t size)
      : bsr_transport{BSR_TRANSPORT_VERSION,
                      rank,
                      size,
                      "threads",
                      int64_t(1) << 40,
                      send,
                      receive,
                      test,
                      describe,
                      close,
                      abort},
        team(team) {}

  struct Receive {
    std::array<int32_t, 3> key;
    void *data;
    int64_t bytes;
  };

  static Member &of(const bsr_transport *self) {
    return *static_cast<Member *>(const_cast<bsr_transport *>(self));
  }
  static int send(const bsr_transport *self, const void *data, int64_t bytes,
                  int32_t to, int32_t tag, bsr_message *message) {
    Member &member = of(self);
    if (member.fails && tag == 0)
      return 7;
    message->handle = -1;
    if (member.isSilent)
      return 0;
    std::lock_guard<std::mutex> lock(member.team.mutex);
    auto *bytesOf = static_cast<const char *>(data);
    member.team.messages[{self->rank, to, tag}].emplace_back(bytesOf,
                                                             bytesOf + bytes);
    member.largest = std::max(member.largest, bytes);
    return 0;
  }
  static int receive(const bsr_transport *self, void *data, int64_t bytes,
                     int32_t from, int32_t tag, bsr_message *message) {
    Member &member = of(self);
    message->handle = int64_t(member.receives.size());
    member.receives.push_back({{from, self->rank, tag}, data, bytes});
    return 0;
  }
  static int test(const bsr_transport *self, bsr_message *message,
                  int32_t *isDone) {
    Member &member = of(self);
    *isDone = message->handle < 0;
    if (*isDone)
      return 0;
    const Receive &receive = member.receives[size_t(message->handle)];
    std::lock_guard<std::mutex> lock(member.team.mutex);
    auto &waiting = member.team.messages[receive.key];
    if (waiting.empty())
      return 0;
    if (int64_t(waiting.front().size()) != receive.bytes) {
      ADD_FAILURE() << "expected a message of " << receive.bytes
                    << " bytes, but got " << waiting.front().size();
      return 8;
    }
    std::copy(waiting.front().begin(), waiting.front().end(),
              static_cast<char *>(receive.data));
    waiting.pop_front();
    *isDone = 1;
    return 0;
  }
  static void describe(const bsr_transport *, int code, char *text,
                       int64_t bytes) {
    std::snprintf(text, size_t(bytes), "code %d", code);
  }
  static int close(const bsr_transport *self) {
    return of(self).failsToClose ? 7 : 0;
  }
  static void abort(const bsr_transport *, int) {}

  Team &team;
  std::vector<Receive> receives;
  int64_t largest = 0; // bytes of a message
  std::atomic<bool> fails = false, isSilent = false;
  bool failsToClose = false;
};
} // namespace

/// Calls `body(communicator, member)` as each of `size` ranks; a failure of one
/// ends the test.
template <typename Body>
static void runTeam(int size, Body body,
                    std::chrono::milliseconds limit = std::chrono::seconds(60),
                    int64_t segmentBytes = Communicator::mostSegmentBytes) {
  Team shared;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Member member(shared, rank, size);
      Communicator communicator(member, limit, segmentBytes);
      try {
        body(communicator, member);
        if (!member.fails && !member.isSilent)
          communicator.close();
      } catch (const testing::AssertionException &) {
        // It is told where it was thrown.
      } catch (const std::exception &error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  ASSERT_FALSE(testing::Test::HasFailure()) << "a rank failed";
}

/// The sentence that `communicator` keeps, or "".
static std::string failureOf(const Communicator &communicator) {
  try {
    communicator.requireIntact();
  } catch (const Error &error) {
    return error.sentence;
  }
  return "";
}

/// Element `i` that `rank` has.
static double elementOf(int32_t rank, int64_t i) {
  return std::sin(double(i * 7 + rank * 13)) * (1 + rank);
}

static double elementAt(bsr_type type, const void *data, int64_t i) {
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
    sum += elementAt(type, element, 0);
    if (type != BSR_F64)
      sum = float(sum);
  }
  sum /= size;
  storeElement(type, element, 0, type == BSR_F64 ? sum : float(sum));
  return elementAt(type, element, 0);
}

TEST(CommunicatorTest, TakesMeansInTheOrderOfRanks) {
  for (int size : {1, 2, 3, 4})
    for (bsr_type type : {BSR_F16, BSR_BF16, BSR_F32, BSR_F64})
      // No element, fewer than ranks, a number that ranks do not divide.
      for (int64_t count : {0, 1, 2, 1000, 1001})
        runTeam(size, [&](Communicator &communicator, Member &) {
          std::vector<char> data(size_t(count * bsr_type_bytes(type)) + 8, 'x');
          for (int64_t i = 0; i < count; ++i)
            storeElement(type, data.data(), i,
                         elementOf(communicator.rank(), i));
          communicator.all_reduce(&communicator, data.data(), count, type);
          for (int64_t i = 0; i < count; ++i)
            ASSERT_EQ(elementAt(type, data.data(), i), meanOf(type, size, i));
          ASSERT_EQ(std::string(data.end() - 8, data.end()),
                    std::string(8, 'x'));
          ASSERT_EQ(communicator.counters().bytes_reduced,
                    count * bsr_type_bytes(type));
        });
}

TEST(CommunicatorTest, TakesMeansOfBuckets) {
  // What lies in a bucket together has the bits that it has alone, wherever the
  // segments end: of 24 bytes here, or of 16 MiB.
  const int64_t counts[] = {5, 0, 1, 1000, 3, 17};
  for (int size : {1, 2, 3, 4})
    for (bsr_type type : {BSR_F16, BSR_BF16, BSR_F32, BSR_F64})
      for (int64_t segmentBytes : {int64_t(24), Communicator::mostSegmentBytes})
        runTeam(
            size,
            [&](Communicator &communicator, Member &) {
              communicator.trace();
              std::vector<std::vector<char>> data;
              std::vector<bsr_part> parts;
              int64_t bytes = 0;
              for (int64_t count : counts) {
                data.emplace_back(size_t(count * bsr_type_bytes(type)) + 1);
                for (int64_t i = 0; i < count; ++i)
                  storeElement(type, data.back().data(), i,
                               elementOf(communicator.rank(), i + bytes));
                bytes += count * bsr_type_bytes(type);
              }
              for (size_t i = 0; i < data.size(); ++i)
                parts.push_back({data[i].data(), counts[i]});
              // Two buckets at once, waited for in the other order.
              int64_t first = communicator.start_reduce(&communicator,
                                                        parts.data(), 2, type);
              int64_t second = communicator.start_reduce(
                  &communicator, parts.data() + 2, 4, type);
              parts.clear();
              communicator.wait_reduce(&communicator, second);
              communicator.wait_reduce(&communicator, first);
              int64_t at = 0;
              for (size_t part = 0; part < data.size(); ++part) {
                for (int64_t i = 0; i < counts[part]; ++i)
                  ASSERT_EQ(elementAt(type, data[part].data(), i),
                            meanOf(type, size, i + at));
                at += counts[part] * bsr_type_bytes(type);
              }
              bsr_communicator_counters counters = communicator.counters();
              ASSERT_EQ(counters.buckets, int64_t(2));
              ASSERT_EQ(counters.reductions, int64_t(6));
              ASSERT_EQ(counters.bytes_reduced, bytes);
              std::vector<bsr_reduction_event> events = communicator.events();
              ASSERT_EQ(int64_t(events.size()), int64_t(size > 1 ? 2 : 0));
              for (const bsr_reduction_event &event : events)
                ASSERT_TRUE(event.asked <= event.began &&
                            event.began <= event.ended);
            },
            std::chrono::seconds(60), segmentBytes);
}

TEST(CommunicatorTest, CutsWhatIsLong) {
  // Two segments and a part of one. No message is longer than a chunk of a
  // segment, however long the tensor is: an MPI counts in 32 bits.
  constexpr int64_t segmentBytes = 1 << 16;
  constexpr int64_t count = 2 * segmentBytes / 4 + 5;
  runTeam(
      3,
      [&](Communicator &communicator, Member &member) {
        std::vector<float> data(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i)
          data[size_t(i)] = float(i % 1000 + communicator.rank());
        communicator.all_reduce(&communicator, data.data(), count, BSR_F32);
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(data[size_t(i)], float(i % 1000 + 1));
        std::vector<int16_t> ranks(size_t(segmentBytes) + 1,
                                   int16_t(communicator.rank()));
        std::vector<int16_t> all(3 * ranks.size());
        communicator.gather(ranks.data(), int64_t(2 * ranks.size()),
                            all.data());
        for (size_t i = 0; i < all.size(); ++i)
          ASSERT_EQ(all[i], int16_t(i / ranks.size()));
        for (int32_t root : {0, 1, 2}) {
          std::vector<char> text(size_t(segmentBytes) + 3,
                                 char('a' + communicator.rank()));
          communicator.broadcast(text.data(), int64_t(text.size()), root);
          ASSERT_EQ(std::string(text.begin(), text.end()),
                    std::string(size_t(segmentBytes) + 3, char('a' + root)));
        }
        ASSERT_LE(member.largest, segmentBytes);
      },
      std::chrono::seconds(60), segmentBytes);
}

TEST(CommunicatorTest, KeepsWhatFailed) {
  runTeam(2, [&](Communicator &communicator, Member &member) {
    member.fails = true;
    float data = 1;
    communicator.all_reduce(&communicator, &data, 1, BSR_F32);
    ASSERT_EQ(data, 1.0f);
    ASSERT_EQ(failureOf(communicator),
              "expected to reach all 2 processes from rank " +
                  std::to_string(communicator.rank()) + ", but got: code 7");
  });
}

TEST(CommunicatorTest, TakesMeansOfFloatsAlone) {
  runTeam(2, [&](Communicator &communicator, Member &member) {
    int32_t data = 1;
    communicator.all_reduce(&communicator, &data, 1, BSR_I32);
    member.fails = true; // of no more use
    ASSERT_EQ(failureOf(communicator),
              "expected to reduce elements of f16, bf16, f32 or "
              "f64, but got i32");
  });
}

TEST(CommunicatorTest, OfOneProcessHasNoStages) {
  runTeam(1, [&](Communicator &communicator, Member &member) {
    float data = 1;
    communicator.send(&data, sizeof data, 1);
    member.fails = true; // of no more use
    ASSERT_EQ(failureOf(communicator),
              "expected a process for each stage, but got one "
              "process");
  });
}

TEST(CommunicatorTest, SaysWhyItCannotLeave) {
  Team team;
  Member member(team, 0, 1);
  member.failsToClose = true;
  Communicator communicator(member);
  std::string sentence;
  try {
    communicator.close();
  } catch (const Error &error) {
    sentence = error.sentence;
  }
  ASSERT_EQ(sentence, "expected to leave the other processes of rank 0, "
                      "but got: code 7");
}

TEST(CommunicatorTest, StopsWhereItWaits) {
  using namespace std::chrono_literals;
  // Rank 1 never takes part.
  runTeam(2, [&](Communicator &communicator, Member &member) {
    member.fails = true; // of no more use
    if (communicator.rank() == 1)
      return;
    member.fails = false;
    float data = 1;
    bsr_part part = {&data, 1};
    communicator.start(&part, 1, BSR_F32);
    std::this_thread::sleep_for(200ms); // it waits by now
    member.fails = true;
    communicator.abort(1);
    ASSERT_EQ(failureOf(communicator), "expected to go on, but got stopped");
  });
}

TEST(CommunicatorTest, FindsWhoIsSilent) {
  using namespace std::chrono_literals;
  // Rank 2 says nothing any more; rank 1 is late, but lives.
  runTeam(
      3,
      [&](Communicator &communicator, Member &member) {
        if (communicator.rank() == 2)
          member.isSilent = true;
        if (communicator.rank() == 1)
          std::this_thread::sleep_for(100ms);
        float data = 1;
        if (communicator.rank() == 2) {
          std::this_thread::sleep_for(800ms);
          return;
        }
        communicator.all_reduce(&communicator, &data, 1, BSR_F32);
        member.fails = true; // of no more use
        ASSERT_EQ(failureOf(communicator),
                  "expected a sign of life from rank 2 every "
                  "0.2 s (BSR_COMMUNICATION_TIMEOUT), but got "
                  "none");
      },
      200ms);
}

TEST(CommunicatorTest, WaitsForWhoIsLate) {
  using namespace std::chrono_literals;
  runTeam(
      2,
      [&](Communicator &communicator, Member &) {
        if (communicator.rank() == 1)
          std::this_thread::sleep_for(900ms);
        float data = float(communicator.rank());
        communicator.all_reduce(&communicator, &data, 1, BSR_F32);
        ASSERT_EQ(data, 0.5f);
        ASSERT_EQ(failureOf(communicator), "");
      },
      600ms);
}

TEST(CommunicatorTest, FindsWhoLeft) {
  runTeam(3, [&](Communicator &communicator, Member &member) {
    if (communicator.rank() == 1)
      return; // and leaves
    float data = 1;
    communicator.all_reduce(&communicator, &data, 1, BSR_F32);
    ASSERT_EQ(failureOf(communicator),
              "expected rank 1 to take part, but got word that "
              "it left");
    // That this one leaves, too, is what rank 1 waits for.
    bool isTold = false;
    try {
      communicator.close();
    } catch (const Error &) {
      isTold = true;
    }
    ASSERT_TRUE(isTold);
    member.fails = true;
  });
}

TEST(CommunicatorTest, ShardsAndUnshards) {
  // Rows of 3 bytes; shards overlap where the processes of a stage do not
  // divide the rows, and segments end anywhere. Stages have other bytes.
  for (auto [size, stages] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(3, 1), std::pair(4, 1),
        std::pair(4, 2), std::pair(6, 2)})
    for (int64_t rows : {2, 3, 4, 5, 7, 100})
      for (int64_t segmentBytes : {int64_t(5), Communicator::mostSegmentBytes})
        runTeam(
            size,
            [&, stages = stages,
             members = size / stages](Communicator &communicator, Member &) {
              if (stages > 1)
                communicator.setStages(stages);
              int64_t own = (rows + members - 1) / members;
              int64_t first =
                  std::min(communicator.rank() / stages * own, rows - own) * 3;
              std::string whole, shard(size_t(own * 3), 'x');
              char begin = char('a' + communicator.rank() % stages);
              for (int64_t i = 0; i < rows * 3; ++i)
                whole += char(begin + i % 25);
              bsr_communicator &table = communicator;
              table.shard(&table, whole.data(), int64_t(whole.size()),
                          shard.data(), int64_t(shard.size()));
              ASSERT_EQ(shard, whole.substr(size_t(first), shard.size()));
              std::string all(whole.size() + 1, 'x');
              table.unshard(&table, shard.data(), int64_t(shard.size()),
                            all.data(), int64_t(whole.size()));
              communicator.requireIntact();
              ASSERT_EQ(all, whole + 'x');
              std::string kept(whole.size(), 'x');
              bool isFirst = communicator.member() == 0;
              communicator.collect(shard.data(), int64_t(shard.size()),
                                   isFirst ? kept.data() : nullptr,
                                   int64_t(whole.size()));
              ASSERT_EQ(kept, isFirst ? whole : std::string(whole.size(), 'x'));
            },
            std::chrono::seconds(60), segmentBytes);
}

TEST(CommunicatorTest, OfStages) {
  // Two replicas of two stages, or three of one: means are those of the same
  // stage, and what is sent goes to another stage of the same replica. Both
  // send before either receives, more than once, and reuse what they sent.
  for (std::pair<int, int> layout :
       {std::pair(4, 2), std::pair(3, 3), std::pair(6, 2)})
    for (int64_t segmentBytes : {int64_t(5), Communicator::mostSegmentBytes})
      runTeam(
          layout.first,
          [&](Communicator &communicator, Member &) {
            bsr_communicator &table = communicator;
            auto [size, stages] = layout;
            communicator.setStages(stages);
            int32_t stage = communicator.rank() % stages;
            int32_t replica = communicator.rank() / stages;
            auto textOf = [&](int32_t from, int32_t number) {
              return "replica " + std::to_string(replica) + " stage " +
                     std::to_string(from) + " message " +
                     std::to_string(number);
            };
            for (int32_t number = 0; number < 3; ++number)
              for (int32_t to = 0; to < stages; ++to) {
                std::string text = textOf(stage, number);
                if (to != stage)
                  table.send(&table, text.data(), int64_t(text.size()), to);
                text.assign(text.size(), 'x');
              }
            double data = communicator.rank();
            table.all_reduce(&table, &data, 1, BSR_F64);
            ASSERT_EQ(data, stage + stages * (size / stages - 1) / 2.0);
            for (int32_t number = 0; number < 3; ++number)
              for (int32_t from = 0; from < stages; ++from) {
                if (from == stage)
                  continue;
                std::string text(textOf(from, number).size(), 'x');
                table.receive(&table, text.data(), int64_t(text.size()), from);
                ASSERT_EQ(text, textOf(from, number));
              }
            communicator.requireIntact();
            // What all do together is not of a stage.
            std::vector<int32_t> ranks(static_cast<size_t>(size));
            int32_t rank = communicator.rank();
            communicator.gather(&rank, sizeof rank, ranks.data());
            for (int32_t i = 0; i < size; ++i)
              ASSERT_EQ(ranks[size_t(i)], i);
          },
          std::chrono::seconds(60), segmentBytes);
}

TEST(CommunicatorTest, RefusesWhatIsNone) {
  bsr_communicator *communicator = nullptr;
  ASSERT_TRUE(fails(bsr_communicator_open("pigeons", &communicator),
                    BSR_INVALID_ARGUMENT,
                    "expected communicator mpi, but got 'pigeons'"));
  ASSERT_TRUE(fails(
      bsr_communicator_broadcast(nullptr, &communicator, 1, 0),
      BSR_INVALID_ARGUMENT,
      "expected argument 'communicator' to point somewhere, but got null"));
}

TEST(CommunicatorTest, GathersWhatFits) {
  Team team;
  Member member(team, 0, 1);
  Communicator communicator(member);
  char data = 0, all = 0;
  ASSERT_TRUE(fails(bsr_communicator_gather(&communicator, &data, -1, &all),
                    BSR_INVALID_ARGUMENT,
                    "expected 0 to 16777216 bytes to gather, but got -1"));
}

TEST(SessionTest, OfStagesNeedsAStepWithMeansForMore) {
  runTeam(4, [&](Communicator &communicator, Member &) {
    Json manifest = fakeManifest();
    manifest["communicates"] = true;
    manifest["stages"] = 2;
    manifest["stage"] = communicator.rank() % 2;
    Step step = load(manifest);
    Session session = start(step);
    ASSERT_TRUE(fails(bsr_session_communicate(session.get(), &communicator),
                      BSR_INVALID_STEP,
                      "expected 2 processes for step 'fake', whose stages were "
                      "compiled without --data-parallel, but got 4"));
  });
}

TEST(SessionTest, OfSeveralProcessesNeedsAStepForThem) {
  runTeam(2, [&](Communicator &communicator, Member &) {
    Step step = loadFake();
    Session session = start(step);
    ASSERT_TRUE(fails(
        bsr_session_communicate(session.get(), &communicator), BSR_INVALID_STEP,
        "expected a step that was compiled with --data-parallel for 2 "
        "processes, but got 'fake'"));
    ASSERT_TRUE(succeeds(bsr_session_communicate(session.get(), nullptr)));
  });
}
