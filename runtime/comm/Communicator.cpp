// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What processes of a run do together, in the order in which it was asked for.

#include "Communicator.h"
#include "base/Manifest.h"
#include "base/Status.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

using namespace sparse_opt;

static Communicator &get(bsr_communicator *self) {
  return *static_cast<Communicator *>(self);
}

static void allReduce(bsr_communicator *self, void *data, int64_t count,
                      int32_t type) {
  get(self).reduce(data, count, bsr_type(type));
}

static int64_t startReduce(bsr_communicator *self, const bsr_part *parts,
                           int64_t numParts, int32_t type) {
  return get(self).start(parts, numParts, bsr_type(type));
}

static void waitReduce(bsr_communicator *self, int64_t ticket) {
  get(self).wait(ticket);
}

static void send(bsr_communicator *self, const void *data, int64_t bytes,
                 int32_t to) {
  get(self).send(data, bytes, to);
}

static void receive(bsr_communicator *self, void *data, int64_t bytes,
                    int32_t from) {
  get(self).receive(data, bytes, from);
}

static void shard(bsr_communicator *self, const void *whole, int64_t wholeBytes,
                  void *shard, int64_t shardBytes) {
  get(self).shard(whole, wholeBytes, shard, shardBytes);
}

static void unshard(bsr_communicator *self, const void *shard,
                    int64_t shardBytes, void *whole, int64_t wholeBytes) {
  get(self).unshard(shard, shardBytes, whole, wholeBytes);
}

Communicator::Communicator(const bsr_transport &transport,
                           std::chrono::milliseconds limit,
                           int64_t segmentBytes)
    : bsr_communicator{allReduce, startReduce, waitReduce, ::send,
                       ::receive, ::shard,     ::unshard},
      transport(transport),
      segmentBytes(std::min(segmentBytes, transport.most_bytes)) {
  if (size() == 1)
    return;
  exchange = std::make_unique<Exchange>(transport, limit);
  group = exchange->everybody();
  thread = std::thread([this] { work(); });
}

void Communicator::setStages(int32_t stages) {
  if (!exchange)
    return;
  firstStage = rank() / stages * stages;
  group = {{}, size_t(rank() / stages)};
  for (int32_t other = rank() % stages; other < size(); other += stages)
    group.ranks.push_back(other);
}

Communicator::~Communicator() { finish(); }

void Communicator::finish() {
  if (!thread.joinable())
    return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    isOver = true;
  }
  exchange->stop();
  posted.notify_all();
  thread.join();
}

void Communicator::check(int code) const {
  if (!code)
    return;
  char words[256] = "";
  transport.describe(&transport, code, words, sizeof words);
  fail(BSR_COMMUNICATION_ERROR, "expected to leave the other processes of ",
       "rank ", rank(), ", but got: ", words);
}

void Communicator::requireIntact() const {
  std::lock_guard<std::mutex> lock(mutex);
  if (!failure.empty())
    fail(BSR_COMMUNICATION_ERROR, failure);
}

bsr_communicator_counters Communicator::counters() const {
  std::lock_guard<std::mutex> lock(mutex);
  return counted;
}

void Communicator::trace() {
  std::lock_guard<std::mutex> lock(mutex);
  isTraced = true;
  kept.clear();
}

std::vector<bsr_reduction_event> Communicator::events() const {
  std::lock_guard<std::mutex> lock(mutex);
  return kept;
}

/// The communication thread: runs posted jobs, and sends heartbeats.
void Communicator::work() {
  auto attempt = [&](const Job &job) {
    bsr_status status = guarded(job);
    std::lock_guard<std::mutex> lock(mutex);
    if (status != BSR_OK && failure.empty())
      failure = bsr_last_error();
  };
  bool isPushing = false;
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    // What was posted leaves with the help of both sides.
    std::chrono::microseconds pause = exchange->heartbeatPeriod() / 4;
    if (isPushing)
      pause = std::min(pause, std::chrono::microseconds(200));
    bool isWoken =
        posted.wait_for(lock, pause, [&] { return isOver || !jobs.empty(); });
    if (isOver)
      return;
    Job job = [&] {
      exchange->sendHeartbeats();
      isPushing = exchange->push();
    };
    if (isWoken) {
      job = std::move(jobs.front());
      jobs.pop_front();
      isPushing = true;
    }
    bool isIntact = failure.empty();
    lock.unlock();
    if (isIntact)
      attempt(job);
    lock.lock();
    if (isWoken) {
      ++numDone;
      done.notify_all();
    }
  }
}

int64_t Communicator::post(Job job) {
  if (!exchange) {
    job();
    return 0;
  }
  std::lock_guard<std::mutex> lock(mutex);
  jobs.push_back(std::move(job));
  posted.notify_one();
  return ++numPosted;
}

void Communicator::wait(int64_t ticket) {
  if (!exchange)
    return;
  auto start = Clock::now();
  std::unique_lock<std::mutex> lock(mutex);
  done.wait(lock, [&] { return numDone >= ticket; });
  counted.waited_nanoseconds += nanoseconds(Clock::now()) - nanoseconds(start);
}

void Communicator::run(Job job) {
  // What is waited for here is no reduction.
  int64_t ticket = post(std::move(job));
  if (exchange) {
    std::unique_lock<std::mutex> lock(mutex);
    done.wait(lock, [&] { return numDone >= ticket; });
  }
  requireIntact();
}

bool Communicator::hasStages() {
  if (!exchange) {
    std::lock_guard<std::mutex> lock(mutex);
    failure = "expected a process for each stage, but got one process";
  }
  return exchange != nullptr;
}

void Communicator::send(const void *data, int64_t bytes, int32_t to) {
  if (!hasStages())
    return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    counted.bytes_sent += bytes;
  }
  const auto *first = static_cast<const char *>(data);
  for (int64_t at = 0; at < bytes; at += segmentBytes) {
    std::vector<char> copy(first + at,
                           first + std::min(at + segmentBytes, bytes));
    post([this, to, copy = std::move(copy)]() mutable {
      exchange->post(std::move(copy), firstStage + to);
    });
  }
}

void Communicator::receive(void *data, int64_t bytes, int32_t from) {
  if (!hasStages())
    return;
  wait(post([=] {
    for (int64_t at = 0; at < bytes; at += segmentBytes)
      exchange->receiveFrom(static_cast<char *>(data) + at,
                            std::min(segmentBytes, bytes - at),
                            firstStage + from);
  }));
}

Exchange::Span Communicator::ownSpan(int32_t member, int64_t shardBytes,
                                     int64_t wholeBytes, int64_t at) const {
  int64_t begin = std::min(member * shardBytes + at, wholeBytes);
  int64_t end =
      std::min(member * shardBytes + std::min(at + segmentBytes, shardBytes),
               wholeBytes);
  return {begin, std::max<int64_t>(end - begin, 0)};
}

void Communicator::shard(const void *whole, int64_t wholeBytes, void *shard,
                         int64_t shardBytes) const {
  std::memcpy(shard,
              static_cast<const char *>(whole) +
                  shardOffset(member(), shardBytes, wholeBytes),
              size_t(shardBytes));
}

void Communicator::unshard(const void *shard, int64_t shardBytes, void *whole,
                           int64_t wholeBytes) {
  auto *data = static_cast<char *>(whole);
  std::memcpy(data + shardOffset(member(), shardBytes, wholeBytes), shard,
              size_t(shardBytes));
  if (!exchange)
    return;
  wait(post([=] {
    auto began = Clock::now();
    int64_t bytesSent = 0;
    std::vector<Exchange::Span> spans(group.ranks.size());
    for (int64_t at = 0; at < shardBytes; at += segmentBytes) {
      for (int32_t other = 0; other < numMembers(); ++other)
        spans[size_t(other)] = ownSpan(other, shardBytes, wholeBytes, at);
      exchange->allGatherSpans(data, spans, group);
      bytesSent += (numMembers() - 1) * spans[group.own].bytes;
    }
    std::lock_guard<std::mutex> lock(mutex);
    counted.bytes_sent += bytesSent;
    counted.nanoseconds += nanoseconds(Clock::now()) - nanoseconds(began);
  }));
}

void Communicator::collect(const void *shard, int64_t shardBytes, void *whole,
                           int64_t wholeBytes) {
  int64_t first = shardOffset(member(), shardBytes, wholeBytes);
  if (member() == 0)
    std::memcpy(static_cast<char *>(whole) + first, shard, size_t(shardBytes));
  if (!exchange)
    return;
  run([=] {
    for (int64_t at = 0; at < shardBytes; at += segmentBytes)
      for (int32_t from = 1; from < numMembers(); ++from) {
        Exchange::Span span = ownSpan(from, shardBytes, wholeBytes, at);
        if (!span.bytes)
          continue;
        if (member() == 0)
          exchange->receiveFrom(static_cast<char *>(whole) + span.begin,
                                span.bytes, group.ranks[size_t(from)]);
        else if (member() == from)
          exchange->sendTo(static_cast<const char *>(shard) + span.begin -
                               first,
                           span.bytes, group.ranks[0]);
      }
  });
}

void Communicator::broadcast(void *data, int64_t bytes, int32_t root) {
  if (!exchange)
    return;
  run([=] {
    for (int64_t at = 0; at < bytes; at += segmentBytes)
      exchange->broadcast(static_cast<char *>(data) + at,
                          std::min(segmentBytes, bytes - at), root);
  });
}

void Communicator::gather(const void *data, int64_t bytes, void *all) {
  if (!exchange) {
    std::memcpy(all, data, size_t(bytes));
    return;
  }
  auto *received = static_cast<char *>(all);
  std::copy_n(static_cast<const char *>(data), bytes,
              received + rank() * bytes);
  run([=] {
    std::vector<Exchange::Span> spans(static_cast<size_t>(size()));
    for (int64_t at = 0; at < bytes; at += segmentBytes) {
      for (int32_t rank = 0; rank < size(); ++rank)
        spans[size_t(rank)] = {rank * bytes + at,
                               std::min(segmentBytes, bytes - at)};
      exchange->allGatherSpans(received, spans, exchange->everybody());
    }
  });
}

void Communicator::close() {
  if (exchange) {
    // After a failure the thread does nothing any more.
    bsr_status status = guarded([&] { run([&] { exchange->leave(); }); });
    finish();
    if (status != BSR_OK)
      guarded([&] { exchange->giveUp(); });
    requireIntact();
  }
  check(transport.close(&transport));
}

void Communicator::abort(int32_t status) {
  finish();
  transport.abort(&transport, status);
}

/// The folder of the library or program that this is a part of.
static std::string ownFolder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&allReduce), &info) || !info.dli_fname)
    return ".";
  std::string path = info.dli_fname;
  return path.substr(0, path.find_last_of('/') + 1);
}

/// For how long another process may be silent: BSR_COMMUNICATION_TIMEOUT, in
/// seconds.
static std::chrono::milliseconds readLimit() {
  const char *text = std::getenv("BSR_COMMUNICATION_TIMEOUT");
  if (!text)
    return std::chrono::seconds(45);
  int seconds = -1;
  const char *end = text + std::strlen(text);
  auto [rest, error] = std::from_chars(text, end, seconds);
  if (error != std::errc() || rest != end || seconds < 0)
    fail(BSR_INVALID_ARGUMENT,
         "expected BSR_COMMUNICATION_TIMEOUT to be a number of seconds, or 0 "
         "for none, but got '",
         text, "'");
  return std::chrono::seconds(seconds);
}

std::unique_ptr<Communicator> Communicator::open(const std::string &kind) {
  if (kind != "mpi")
    fail(BSR_INVALID_ARGUMENT, "expected communicator mpi, but got '", kind,
         "'");
  std::chrono::milliseconds limit = readLimit();
  std::vector<std::string> paths;
  for (const std::string &folder : {ownFolder(), ownFolder() + "../lib/"}) {
    // What MPICH's mpirun started takes MPICH, if another is there, too.
    if (std::getenv("PMI_RANK") && !std::getenv("OMPI_COMM_WORLD_RANK"))
      paths.push_back(folder + "libbsr_mpi_mpich.so");
    paths.push_back(folder + "libbsr_mpi.so");
  }
  if (const char *path = std::getenv("BSR_MPI_LIBRARY"))
    paths = {path};
  void *library = nullptr;
  std::string reason;
  for (const std::string &path : paths) {
    // Its symbols are global: an MPI loads parts that need them. Never closed.
    if ((library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)))
      break;
    if (const char *error = dlerror(); reason.empty() && error)
      reason = error;
  }
  if (!library)
    fail(BSR_COMMUNICATION_ERROR,
         "expected libbsr_mpi.so, which is built where an MPI is installed, "
         "but got: ",
         reason);
  auto *open = reinterpret_cast<bsr_transport_open_function *>(
      dlsym(library, "bsr_transport_open"));
  char error[256] = "no bsr_transport_open";
  const bsr_transport *transport = open ? open(error, sizeof error) : nullptr;
  if (!transport)
    fail(BSR_COMMUNICATION_ERROR, "expected an MPI, but got: ", error);
  if (transport->version != BSR_TRANSPORT_VERSION)
    fail(BSR_COMMUNICATION_ERROR, "expected libbsr_mpi.so of version ",
         BSR_TRANSPORT_VERSION, ", but got ", transport->version);
  return std::make_unique<Communicator>(*transport, limit);
}

static const Communicator &own(const bsr_communicator *communicator) {
  requireArgument(communicator, "communicator");
  return *static_cast<const Communicator *>(communicator);
}

static Communicator &own(bsr_communicator *communicator) {
  requireArgument(communicator, "communicator");
  return *static_cast<Communicator *>(communicator);
}

bsr_status bsr_communicator_open(const char *kind,
                                 bsr_communicator **communicator) {
  return guarded([&] {
    requireArgument(kind, "kind");
    requireArgument(communicator, "communicator");
    *communicator = Communicator::open(kind).release();
  });
}

bsr_status bsr_communicator_close(bsr_communicator *communicator) {
  if (!communicator)
    return BSR_OK;
  return guarded([&] {
    std::unique_ptr<Communicator> last(&own(communicator));
    last->close();
  });
}

void bsr_communicator_abort(bsr_communicator *communicator, int32_t status) {
  if (communicator)
    own(communicator).abort(status);
}

int32_t bsr_communicator_rank(const bsr_communicator *communicator) {
  return communicator ? own(communicator).rank() : 0;
}

int32_t bsr_communicator_size(const bsr_communicator *communicator) {
  return communicator ? own(communicator).size() : 1;
}

bsr_status bsr_communicator_broadcast(bsr_communicator *communicator,
                                      void *data, int64_t bytes, int32_t root) {
  return guarded([&] {
    Communicator &to = own(communicator);
    requireArgument(data, "data");
    requireIndex(root, to.size(), "ranks");
    to.broadcast(data, bytes, root);
  });
}

bsr_status bsr_communicator_gather(bsr_communicator *communicator,
                                   const void *data, int64_t bytes, void *all) {
  return guarded([&] {
    Communicator &from = own(communicator);
    requireArgument(data, "data");
    requireArgument(all, "all");
    if (bytes < 0 || bytes > Communicator::mostSegmentBytes)
      fail(BSR_INVALID_ARGUMENT, "expected 0 to ",
           Communicator::mostSegmentBytes, " bytes to gather, but got ", bytes);
    from.gather(data, bytes, all);
  });
}

bsr_status bsr_communicator_read_counters(const bsr_communicator *communicator,
                                          bsr_communicator_counters *counters) {
  return guarded([&] {
    requireArgument(counters, "counters");
    *counters = own(communicator).counters();
  });
}

bsr_status bsr_communicator_trace(bsr_communicator *communicator) {
  return guarded([&] { own(communicator).trace(); });
}

bsr_status bsr_communicator_read_events(const bsr_communicator *communicator,
                                        bsr_reduction_event *events,
                                        int64_t most, int64_t *count) {
  return guarded([&] {
    requireArgument(count, "count");
    std::vector<bsr_reduction_event> all = own(communicator).events();
    *count = int64_t(all.size());
    if (events)
      std::copy_n(all.begin(), std::min(most, *count), events);
  });
}
