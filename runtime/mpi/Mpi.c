// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transport over MPI: the one file of the project that is compiled for an
// implementation of it. MPI-3 is enough.

#include "Transport.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static MPI_Comm world;

static int allToAll(const void *send, void *receive, int64_t bytes) {
  return MPI_Alltoall(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE,
                      world);
}

static int allGather(const void *send, void *receive, int64_t bytes) {
  return MPI_Allgather(send, (int)bytes, MPI_BYTE, receive, (int)bytes,
                       MPI_BYTE, world);
}

static int broadcast(void *data, int64_t bytes, int32_t root) {
  return MPI_Bcast(data, (int)bytes, MPI_BYTE, root, world);
}

static void describe(int code, char *text, int64_t bytes) {
  char words[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code, words, &length);
  snprintf(text, (size_t)bytes, "%s", words);
}

static int closeTransport(void) {
  int code = MPI_Barrier(world);
  return code ? code : MPI_Finalize();
}

static void abortRun(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

__attribute__((visibility("default"))) const bsr_transport *
bsr_transport_open(char *error, int64_t bytes) {
  static bsr_transport transport = {
      .version = BSR_TRANSPORT_VERSION,
      .all_to_all = allToAll,
      .all_gather = allGather,
      .broadcast = broadcast,
      .describe = describe,
      .close = closeTransport,
      .abort = abortRun,
  };
  static char name[MPI_MAX_LIBRARY_VERSION_STRING];
  int provided, length, rank, size;
  // Only the thread that runs the step calls.
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) ||
      MPI_Comm_dup(MPI_COMM_WORLD, &world) ||
      MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN) ||
      MPI_Comm_rank(world, &rank) || MPI_Comm_size(world, &size) ||
      MPI_Get_library_version(name, &length)) {
    snprintf(error, (size_t)bytes, "MPI does not start");
    return NULL;
  }
  name[strcspn(name, ",\n")] = '\0';
  transport.name = name;
  transport.rank = rank;
  transport.size = size;
  return &transport;
}
