// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transport over MPI: the one file of the project that is compiled for an
// implementation of it. MPI-3 is enough.

#include "Transport.h"
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_Comm world;
static int isOwner; // of MPI itself, which another may have started

_Static_assert(sizeof(MPI_Request) <= sizeof(bsr_message),
               "a request is a number or an address");

static void keep(MPI_Request request, bsr_message *message) {
  memcpy(message, &request, sizeof request);
}

static int sendBytes(const bsr_transport *self, const void *data, int64_t bytes,
                     int32_t to, int32_t tag, bsr_message *message) {
  if (bytes > self->most_bytes)
    return MPI_ERR_COUNT;
  MPI_Request request;
  int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, world, &request);
  keep(request, message);
  return code;
}

static int receiveBytes(const bsr_transport *self, void *data, int64_t bytes,
                        int32_t from, int32_t tag, bsr_message *message) {
  if (bytes > self->most_bytes)
    return MPI_ERR_COUNT;
  MPI_Request request;
  int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, world, &request);
  keep(request, message);
  return code;
}

static int testMessage(const bsr_transport *self, bsr_message *message,
                       int32_t *isDone) {
  (void)self;
  MPI_Request request;
  memcpy(&request, message, sizeof request);
  int done = 0;
  int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  *isDone = done;
  keep(request, message);
  return code;
}

static void describe(const bsr_transport *self, int code, char *text,
                     int64_t bytes) {
  (void)self;
  char words[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code, words, &length);
  snprintf(text, (size_t)bytes, "%s", words);
}

static int closeTransport(const bsr_transport *self) {
  (void)self;
  if (isOwner)
    return MPI_Finalize();
  int isOver;
  int code = MPI_Finalized(&isOver);
  return code || isOver ? code : MPI_Comm_free(&world);
}

static void abortRun(const bsr_transport *self, int status) {
  (void)self;
  MPI_Abort(MPI_COMM_WORLD, status);
}

/// Starts MPI, unless another part of the process has; a sentence if it does
/// not.
static const char *startMPI(void) {
  // One thread calls at a time, but the one that sends is not the first.
  int isThere, provided;
  if (MPI_Initialized(&isThere))
    return "MPI does not start";
  isOwner = !isThere;
  if (isOwner) {
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) ||
        provided < MPI_THREAD_SERIALIZED)
      return "MPI does not start with MPI_THREAD_SERIALIZED";
    return NULL;
  }
  // The thread that started it goes on calling it.
  if (MPI_Query_thread(&provided) || provided < MPI_THREAD_MULTIPLE)
    return "MPI was started without MPI_THREAD_MULTIPLE";
  return NULL;
}

/// MPI-3 counts in `int`. BSR_MPI_MESSAGE_BYTES lowers that, for tests of what
/// is longer; 0 if it is no such number.
static int64_t readMostBytes(void) {
  const char *text = getenv("BSR_MPI_MESSAGE_BYTES");
  if (!text)
    return INT_MAX;
  char *end;
  long long bytes = strtoll(text, &end, 10);
  return end == text || *end || bytes < 8 || bytes > INT_MAX ? 0 : bytes;
}

__attribute__((visibility("default"))) const bsr_transport *
bsr_transport_open(char *error, int64_t bytes) {
  static bsr_transport transport = {
      .version = BSR_TRANSPORT_VERSION,
      .send = sendBytes,
      .receive = receiveBytes,
      .test = testMessage,
      .describe = describe,
      .close = closeTransport,
      .abort = abortRun,
  };
  static char name[MPI_MAX_LIBRARY_VERSION_STRING];
  int length, rank, size;
  int64_t mostBytes = readMostBytes();
  if (!mostBytes) {
    snprintf(error, (size_t)bytes,
             "BSR_MPI_MESSAGE_BYTES of '%s', which is no number from 8 to %d",
             getenv("BSR_MPI_MESSAGE_BYTES"), INT_MAX);
    return NULL;
  }
  const char *reason = startMPI();
  if (!reason && (MPI_Comm_dup(MPI_COMM_WORLD, &world) ||
                  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN) ||
                  MPI_Comm_rank(world, &rank) || MPI_Comm_size(world, &size) ||
                  MPI_Get_library_version(name, &length)))
    reason = "MPI does not start";
  if (reason) {
    snprintf(error, (size_t)bytes, "%s", reason);
    return NULL;
  }
  name[strcspn(name, ",\n")] = '\0';
  transport.name = name;
  transport.rank = rank;
  transport.size = size;
  transport.most_bytes = mostBytes;
  return &transport;
}
