// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What reaches the other processes of a run: means in a fixed order, over a
// transport.

#ifndef BSR_RUNTIME_COMMUNICATOR_H
#define BSR_RUNTIME_COMMUNICATOR_H

#include "Transport.h"
#include "bsr/runtime.h"
#include <memory>
#include <string>
#include <vector>

namespace bsr {

/// The functions that steps call, and what callers of the runtime do with the
/// other processes. Its address is that of a `bsr_communicator`.
struct Communicator : bsr_communicator {
  explicit Communicator(const bsr_transport &transport);

  /// Opens the transport `kind`, "mpi".
  static std::unique_ptr<Communicator> open(const std::string &kind);

  int32_t rank() const { return transport.rank; }
  int32_t size() const { return transport.size; }

  /// The method behind `all_reduce`. A segment of at most `segmentBytes` bytes
  /// is cut in a chunk for each rank, which gets it from all ranks, adds in
  /// the order of the ranks, and sends the mean to all: a rank sends
  /// 2 (n - 1) / n of the bytes, and no sum depends on when something arrives.
  void reduce(void *data, int64_t count, bsr_type type);

  void broadcast(void *data, int64_t bytes, int32_t root);
  void gather(const void *data, int64_t bytes, void *all);

  void close() { check(transport.close()); }
  void abort(int32_t status) { transport.abort(status); }

  /// Throws what failed while a step ran.
  void requireIntact() const;

  bsr_communicator_counters counters = {};
  static constexpr int64_t segmentBytes = int64_t(1) << 24;

private:
  void check(int code) const;

  const bsr_transport &transport;
  std::vector<char> sent, received, mine;
  std::string failure; // of a step, which goes on
};

} // namespace bsr

#endif // BSR_RUNTIME_COMMUNICATOR_H
