// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What moves bytes between the processes of a run: the interface of libraries
// that are loaded when a run asks for them (runtime/mpi/Mpi.c).

#ifndef BSR_RUNTIME_TRANSPORT_H
#define BSR_RUNTIME_TRANSPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The version of what is below.
#define BSR_TRANSPORT_VERSION 1

/// The functions of a library, which exports `bsr_transport_open`. All
/// processes call them in the same order; bytes are at most 2^30. Those that
/// return a number return 0, or a code that `describe` has words for.
typedef struct bsr_transport {
  int32_t version;
  int32_t rank, size;
  const char *name; // of the implementation, "Open MPI v4.1.4"
  /// Bytes r * `bytes` and on of `send` go to rank r; what rank r sends comes
  /// to bytes r * `bytes` and on of `receive`.
  int (*all_to_all)(const void *send, void *receive, int64_t bytes);
  /// `bytes` bytes of `send` come to bytes r * `bytes` of `receive`, of all
  /// ranks r to all ranks.
  int (*all_gather)(const void *send, void *receive, int64_t bytes);
  /// `bytes` bytes of `data` of rank `root` come to all ranks.
  int (*broadcast)(void *data, int64_t bytes, int32_t root);
  /// Writes words for `code` to `text`, at most `bytes` with the zero.
  void (*describe)(int code, char *text, int64_t bytes);
  /// Waits for all processes and leaves; the last call.
  int (*close)(void);
  /// Ends all processes of the run with `status`.
  void (*abort)(int status);
} bsr_transport;

/// The transport, which belongs to the library; null, with the reason in
/// `error`, if it cannot be opened. Called once.
typedef const bsr_transport *bsr_transport_open_function(char *error,
                                                         int64_t bytes);

#ifdef __cplusplus
}
#endif

#endif // BSR_RUNTIME_TRANSPORT_H
