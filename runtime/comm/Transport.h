// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What moves bytes between the processes of a run: the interface of libraries
// that are loaded when a run asks for them (runtime/comm/Mpi.c).

#ifndef BSR_RUNTIME_COMM_TRANSPORT_H
#define BSR_RUNTIME_COMM_TRANSPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The version of what is below.
#define BSR_TRANSPORT_VERSION 1

/// A message that is on its way, as the library has it.
typedef struct bsr_message {
  int64_t handle;
} bsr_message;

/// The functions of a library, which exports `bsr_transport_open`. One thread
/// calls them at a time, not always the same. None of the first three waits.
/// Those that return a number return 0, or a code that `describe` has words
/// for.
typedef struct bsr_transport bsr_transport;
struct bsr_transport {
  int32_t version;
  int32_t rank, size;
  const char *name;   // of the implementation, "Open MPI v4.1.4"
  int64_t most_bytes; // of a message; longer ones are refused
  /// Starts to send `bytes` bytes of `data` to rank `to`, whose
  /// receives from here with the same `tag` get messages in their order.
  /// `data` stays as it is until the message has left.
  int (*send)(const bsr_transport *self, const void *data, int64_t bytes,
              int32_t to, int32_t tag, bsr_message *message);
  /// Starts to receive a message of `bytes` bytes from rank `from`.
  int (*receive)(const bsr_transport *self, void *data, int64_t bytes,
                 int32_t from, int32_t tag, bsr_message *message);
  /// Sets `isDone` to 1 if `message` has left or arrived, or else 0. Not called
  /// again for a message that has.
  int (*test)(const bsr_transport *self, bsr_message *message, int32_t *isDone);
  /// Writes words for `code` to `text`, at most `bytes` with the zero.
  void (*describe)(const bsr_transport *self, int code, char *text,
                   int64_t bytes);
  /// Leaves; the last call, when no message is on its way.
  int (*close)(const bsr_transport *self);
  /// Ends all processes of the run with `status`.
  void (*abort)(const bsr_transport *self, int status);
};

/// The transport, which belongs to the library; null, with the reason in
/// `error`, if it cannot be opened. Called once.
typedef const bsr_transport *bsr_transport_open_function(char *error,
                                                         int64_t bytes);

#ifdef __cplusplus
}
#endif

#endif // BSR_RUNTIME_COMM_TRANSPORT_H
