// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The processes that train together.

#include "Ranks.h"
#include "Session.h"
#include "StopSignal.h"
#include "support/Error.h"
#include "support/Hash.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace sparse_opt;
using namespace sparse_opt::train;

/// How many processes the environment says that there are: what the starters of
/// Open MPI, MPICH and those like it, and Slurm set; 0 if it says nothing.
static int startedProcesses() {
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char *value = std::getenv(name))
      return std::atoi(value);
  // Slurm's own interface to MPI.
  if (std::getenv("PMIX_RANK"))
    if (const char *value = std::getenv("SLURM_NTASKS"))
      return std::atoi(value);
  return 0;
}

/// The rank that the environment says, or 0.
static int startedRank() {
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char *value = std::getenv(name))
      return std::atoi(value);
  return 0;
}

static std::string lateSentence;

/// An MPI waits for processes that do not start, or that stop while they do, as
/// long as they like. Ends this one in `seconds` seconds, unless `alarm(0)` is
/// called before.
static void limitStart(int seconds) {
  lateSentence = "error: expected MPI to start all processes in " +
                 std::to_string(seconds) +
                 " s (BSR_COMMUNICATION_TIMEOUT), but got no answer\n";
  std::signal(SIGALRM, [](int) {
    _exit(write(STDERR_FILENO, lateSentence.data(), lateSentence.size()) < 0
              ? 2
              : 1);
  });
  alarm(unsigned(seconds));
}

static void check(bsr_status status) {
  if (status != BSR_OK)
    fail(bsr_last_error());
}

Ranks::Ranks() {
  int started = startedProcesses();
  if (!started)
    return;
  bsr_communicator *opened;
  // What is no number, the runtime refuses.
  const char *limit = std::getenv("BSR_COMMUNICATION_TIMEOUT");
  limitStart(std::max(limit ? std::atoi(limit) : 45, 0));
  bsr_status status = bsr_communicator_open("mpi", &opened);
  alarm(0);
  if (status != BSR_OK) {
    // Only the environment knows of the other ranks yet: rank 0 tells them.
    if (startedRank() > 0) {
      sleep(2);
      std::_Exit(1);
    }
    check(status);
  }
  communicator.reset(opened);
  if (size() != started)
    fail("expected ", started, " processes, as the environment says, but got ",
         size(), " of the MPI that libbsr_mpi.so was built for");
  if (!isFirst() && !std::freopen("/dev/null", "w", stdout))
    fail("expected to write to /dev/null, but got an error");
}

void Ranks::join(Session &session) const {
  session.communicate(communicator.get());
}

void Ranks::wait() const { requireSame({}, {}); }

std::string Ranks::broadcast(std::string text, int64_t root) const {
  if (size() == 1)
    return text;
  uint64_t bytes = text.size();
  check(bsr_communicator_broadcast(communicator.get(), &bytes, sizeof bytes,
                                   int32_t(root)));
  text.resize(bytes);
  if (bytes)
    check(bsr_communicator_broadcast(communicator.get(), text.data(),
                                     int64_t(bytes), int32_t(root)));
  return text;
}

void Ranks::requireSame(const std::vector<std::string> &names,
                        const std::vector<uint64_t> &hashes,
                        int64_t stages) const {
  if (size() == 1)
    return;
  // One at least: gathering is also waiting. Stages have as many as they have.
  size_t most = hashes.size();
  if (stages > 1)
    for (int64_t number : gather(int64_t(hashes.size())))
      most = std::max(most, size_t(number));
  std::vector<uint64_t> own = hashes;
  own.resize(most + 1);
  std::vector<uint64_t> all(own.size() * size_t(size()));
  check(bsr_communicator_gather(communicator.get(), own.data(),
                                int64_t(own.size() * sizeof(uint64_t)),
                                all.data()));
  for (size_t i = 0; i < most; ++i)
    for (size_t rank = size_t(stages); rank < size_t(size()); ++rank) {
      size_t first = rank % size_t(stages);
      bool isOwn = int64_t(first) == this->rank() % stages && i < names.size();
      if (all[rank * own.size() + i] != all[first * own.size() + i])
        fail("expected rank ", rank, " to have the ",
             isOwn ? names[i] : "state of the stage", " of rank ", first,
             ", but got another");
    }
}

std::vector<double> Ranks::mean(const std::vector<double> &numbers) const {
  if (size() == 1)
    return numbers;
  std::vector<double> all(numbers.size() * size_t(size())), means;
  check(bsr_communicator_gather(communicator.get(), numbers.data(),
                                int64_t(numbers.size() * sizeof(double)),
                                all.data()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    double sum = 0;
    for (size_t rank = 0; rank < size_t(size()); ++rank)
      sum += all[rank * numbers.size() + i];
    means.push_back(sum / double(size()));
  }
  return means;
}

std::vector<int64_t> Ranks::gather(int64_t number) const {
  std::vector<int64_t> all(static_cast<size_t>(size()), number);
  if (size() > 1)
    check(bsr_communicator_gather(communicator.get(), &number, sizeof number,
                                  all.data()));
  return all;
}

void Ranks::copyState(Session &session) const {
  if (size() == 1)
    return;
  auto broadcast = [&](void *data, size_t bytes) {
    if (bytes)
      check(bsr_communicator_broadcast(communicator.get(), data, int64_t(bytes),
                                       0));
  };
  for (int64_t i = 0; i < bsr_step_num_patterns(session.step()); ++i) {
    bsr_pattern_info info;
    check(bsr_step_pattern(session.step(), i, &info));
    if (info.is_static)
      continue;
    bsr_pattern_view view = session.pattern(i);
    broadcast(&view.blocks, sizeof view.blocks);
    size_t rows = size_t(info.rows / info.block_rows) + 1;
    size_t blocks = size_t(view.blocks);
    bsr_pattern_view own = session.pattern(i);
    std::vector<int32_t> rowPtr(rows), colIdx(blocks), slot(blocks);
    if (isFirst()) {
      rowPtr.assign(own.row_ptr, own.row_ptr + rows);
      colIdx.assign(own.col_idx, own.col_idx + blocks);
      slot.assign(own.slot, own.slot + blocks);
    }
    broadcast(rowPtr.data(), rows * sizeof(int32_t));
    broadcast(colIdx.data(), blocks * sizeof(int32_t));
    broadcast(slot.data(), blocks * sizeof(int32_t));
    if (!isFirst())
      session.setPattern(i, {view.blocks, rowPtr.data(), colIdx.data(),
                             slot.data(), nullptr, nullptr, nullptr});
  }
  std::vector<char> data;
  for (const Buffer &buffer : session.buffers()) {
    if (!buffer.carried || buffer.isShard())
      continue;
    data.resize(size_t(buffer.elements * bsr_type_bytes(buffer.type)));
    session.read(buffer, data.data());
    broadcast(data.data(), data.size());
    if (!isFirst())
      session.write(buffer, data.data());
  }
}

void Ranks::requireSameState(const Session &session, bool andBuffers,
                             int64_t stages) const {
  if (size() == 1)
    return;
  std::vector<std::string> names;
  std::vector<uint64_t> hashes;
  std::string at = " after run " + std::to_string(session.counters().steps);
  for (int64_t i = 0; i < bsr_step_num_patterns(session.step()); ++i) {
    bsr_pattern_info info;
    check(bsr_step_pattern(session.step(), i, &info));
    bsr_pattern_view view = session.pattern(i);
    Hasher hash;
    hash.add(&view.blocks, sizeof view.blocks);
    hash.add(view.row_ptr,
             size_t(info.rows / info.block_rows + 1) * sizeof(int32_t));
    hash.add(view.col_idx, size_t(view.blocks) * sizeof(int32_t));
    hash.add(view.slot, size_t(view.blocks) * sizeof(int32_t));
    names.push_back(std::string("pattern of '") + info.name + "'" + at);
    hashes.push_back(hash.value());
  }
  std::vector<char> data;
  for (const Buffer &buffer : session.buffers()) {
    if (!andBuffers || !buffer.carried || buffer.isShard())
      continue;
    data.resize(size_t(buffer.elements * bsr_type_bytes(buffer.type)));
    session.read(buffer, data.data());
    names.push_back("values of '" + buffer.name + "'" + at);
    hashes.push_back(xxh64({data.data(), data.size()}));
  }
  requireSame(names, hashes, stages);
}

bsr_communicator_counters Ranks::counters() const {
  bsr_communicator_counters counters = {};
  if (communicator)
    check(bsr_communicator_read_counters(communicator.get(), &counters));
  return counters;
}

void Ranks::trace() const {
  if (communicator)
    check(bsr_communicator_trace(communicator.get()));
}

std::vector<bsr_reduction_event> Ranks::takeEvents() const {
  std::vector<bsr_reduction_event> events;
  if (!communicator)
    return events;
  auto read = [&](int64_t most) {
    int64_t count;
    check(bsr_communicator_read_events(communicator.get(), events.data(), most,
                                       &count));
    return count;
  };
  events.resize(size_t(read(0)));
  read(int64_t(events.size()));
  trace();
  return events;
}

void Ranks::leave() { check(bsr_communicator_close(communicator.release())); }

void Ranks::end(const char *sentence) const {
  // What all find, rank 0 tells, and ends the others: by a signal, maybe.
  forgetStopSignals();
  if (!isFirst())
    sleep(2);
  std::fprintf(stderr, "error: %s\n", sentence);
  std::fflush(nullptr);
  if (size() > 1)
    bsr_communicator_abort(communicator.get(), 1);
  std::_Exit(1);
}
