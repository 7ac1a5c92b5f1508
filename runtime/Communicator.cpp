// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Means over the processes of a run.

#include "Communicator.h"
#include "Element.h"
#include "Status.h"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>

using namespace bsr;

static void allReduce(bsr_communicator *self, void *data, int64_t count,
                      int32_t type) {
  static_cast<Communicator *>(self)->reduce(data, count, bsr_type(type));
}

Communicator::Communicator(const bsr_transport &transport)
    : bsr_communicator{allReduce}, transport(transport) {}

void Communicator::check(int code) const {
  if (!code)
    return;
  char words[256] = "";
  transport.describe(code, words, sizeof words);
  fail(BSR_COMMUNICATION_ERROR, "expected to reach all ", size(),
       " processes from rank ", rank(), ", but got: ", words);
}

void Communicator::requireIntact() const {
  if (!failure.empty())
    fail(BSR_COMMUNICATION_ERROR, failure);
}

/// Writes the mean of `size` arrays of `count` elements, which lie one after
/// the other at `parts`, to `mean`: sums of `Sum`, in order.
template <typename Element, typename Sum>
static void takeMean(const void *parts, int64_t count, int32_t size,
                     bsr_type type, void *mean) {
  auto *all = static_cast<const Element *>(parts);
  for (int64_t i = 0; i < count; ++i) {
    Sum sum = Sum(toDouble(all[i]));
    for (int32_t rank = 1; rank < size; ++rank)
      sum += Sum(toDouble(all[rank * count + i]));
    sum /= Sum(size);
    if constexpr (std::is_same_v<Element, Sum>)
      static_cast<Element *>(mean)[i] = sum;
    else
      storeElement(type, mean, i, double(sum));
  }
}

static void takeMean(const void *parts, int64_t count, int32_t size,
                     bsr_type type, void *mean) {
  switch (type) {
  case BSR_F16:
    return takeMean<Half, float>(parts, count, size, type, mean);
  case BSR_BF16:
    return takeMean<BFloat, float>(parts, count, size, type, mean);
  case BSR_F32:
    return takeMean<float, float>(parts, count, size, type, mean);
  case BSR_F64:
    return takeMean<double, double>(parts, count, size, type, mean);
  default:
    fail(BSR_INVALID_ARGUMENT,
         "expected to reduce elements of f16, bf16, f32 or f64, but got ",
         bsr_type_name(type));
  }
}

void Communicator::reduce(void *data, int64_t count, bsr_type type) {
  auto start = std::chrono::steady_clock::now();
  // The step goes on, and nothing it computes counts.
  bsr_status status = guarded([&] {
    requireIntact();
    int64_t width = bsr_type_bytes(type);
    counters.bytes_reduced += count * width;
    ++counters.reductions;
    if (size() == 1)
      return;
    int64_t most = std::max<int64_t>(segmentBytes / width, 1);
    for (int64_t at = 0; at < count; at += most) {
      char *segment = static_cast<char *>(data) + at * width;
      int64_t elements = std::min(most, count - at);
      int64_t chunk = (elements + size() - 1) / size();
      int64_t all = chunk * size() * width;
      // The last chunk may be longer than what is left.
      sent.assign(size_t(all), 0);
      std::copy_n(segment, elements * width, sent.data());
      received.resize(size_t(all));
      mine.resize(size_t(chunk * width));
      check(transport.all_to_all(sent.data(), received.data(), chunk * width));
      takeMean(received.data(), chunk, size(), type, mine.data());
      check(transport.all_gather(mine.data(), received.data(), chunk * width));
      std::copy_n(received.data(), elements * width, segment);
      counters.bytes_sent += 2 * (size() - 1) * chunk * width;
    }
  });
  if (status != BSR_OK && failure.empty())
    failure = bsr_last_error();
  counters.nanoseconds +=
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start)
          .count();
}

void Communicator::broadcast(void *data, int64_t bytes, int32_t root) {
  for (int64_t at = 0; at < bytes; at += segmentBytes)
    check(transport.broadcast(static_cast<char *>(data) + at,
                              std::min(segmentBytes, bytes - at), root));
}

void Communicator::gather(const void *data, int64_t bytes, void *all) {
  check(transport.all_gather(data, all, bytes));
}

/// The folder of the library or program that this is a part of.
static std::string ownFolder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&allReduce), &info) || !info.dli_fname)
    return ".";
  std::string path = info.dli_fname;
  return path.substr(0, path.find_last_of('/') + 1);
}

std::unique_ptr<Communicator> Communicator::open(const std::string &kind) {
  if (kind != "mpi")
    fail(BSR_INVALID_ARGUMENT, "expected communicator mpi, but got '", kind,
         "'");
  std::vector<std::string> paths = {ownFolder() + "libbsr_mpi.so",
                                    ownFolder() + "../lib/libbsr_mpi.so"};
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
  return std::make_unique<Communicator>(*transport);
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
    if (bytes < 0 || bytes > Communicator::segmentBytes)
      fail(BSR_INVALID_ARGUMENT, "expected 0 to ", Communicator::segmentBytes,
           " bytes to gather, but got ", bytes);
    from.gather(data, bytes, all);
  });
}

bsr_status bsr_communicator_read_counters(const bsr_communicator *communicator,
                                          bsr_communicator_counters *counters) {
  return guarded([&] {
    requireArgument(counters, "counters");
    *counters = own(communicator).counters;
  });
}
