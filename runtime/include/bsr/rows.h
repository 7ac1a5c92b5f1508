// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C interface of compiled functions of rows, such as the layers of
// frameworks: called on the caller's memory, of which nothing is kept.

#ifndef BSR_ROWS_H
#define BSR_ROWS_H

#include "bsr/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A function as a library computes it for `rows` rows at once.
typedef struct bsr_row_function {
  int64_t rows;
  /// `bsr_step_run` (step.h), or null for a library that is not loaded yet.
  int32_t (*run)(bsr_context *context, void *const *buffers, void *arena);
  int64_t arena_bytes; // of the manifest
} bsr_row_function;

/// What a buffer is to a function.
typedef struct bsr_row_buffer {
  int64_t row_bytes; // of a row, where it has one for each of the function's;
                     // or else 0: all rows share it, as they do weights
  int64_t offset;    // bytes from the address on
  int32_t address;   // of which of the caller's addresses it is a part
  int32_t is_result; // whether its rows are written, and not read
} bsr_row_buffer;

/// One function for numbers of rows, the most first, and the buffers of each,
/// in their order.
typedef struct bsr_row_kernel {
  const bsr_row_function *functions;
  int64_t num_functions;
  const bsr_row_buffer *buffers;
  int64_t num_buffers;
  int64_t num_addresses; // that a call gives
} bsr_row_kernel;

/// Computes a function of any number of rows in parts: as many of the most rows
/// as there are, then fewer; the last part, for more rows than are left, reads
/// zeros for those that are missing, and what it writes there is gone.
///
/// The rows of a buffer lie behind each other; a buffer that all rows share is
/// aligned to 64 bytes. A function may add to what all rows share.
///
/// If a part needs a function that is null, nothing is computed, and `missing`
/// is its index; else -1. Any number of threads may call at once.
BSR_API bsr_status bsr_run_rows(const bsr_row_kernel *kernel,
                                void *const *addresses, int64_t rows,
                                int64_t *missing);

/// A function of rows that was compiled for a GPU (sparse-compile
/// --target=sm_90a), loaded there.
typedef struct bsr_gpu_function bsr_gpu_function;

/// Loads `step` into the primary context of GPU `device`, "cuda" or "cuda:1";
/// the step may be unloaded then. Not while a stream is captured. Here and
/// below, the calling thread keeps the context that it has.
BSR_API bsr_status bsr_gpu_function_load(const char *device,
                                         const bsr_step *step,
                                         bsr_gpu_function **function);

/// Waits for the GPU and gives the function back; null is none. Graphs that
/// recorded it are not to be launched any more.
BSR_API void bsr_gpu_function_unload(bsr_gpu_function *function);

/// How many bytes of the GPU's memory the function's plans take: what it
/// computes of patterns alone, and keeps from call to call.
BSR_API int64_t bsr_gpu_function_plan_bytes(const bsr_gpu_function *function);

/// A function as a GPU computes it for `rows` rows at once.
typedef struct bsr_gpu_row_function {
  int64_t rows;
  const bsr_gpu_function *function; // or null, if it is not loaded yet
  void *plans;       // memory of the GPU for its plans, aligned to 64 bytes, of
                     // one set of patterns and one stream
  int32_t has_plans; // whether these are there: 0 in front of the first call,
                     // and when patterns have changed; a call makes them, and
                     // writes 1
} bsr_gpu_row_function;

/// As `bsr_row_kernel`, of functions on one GPU.
typedef struct bsr_gpu_row_kernel {
  bsr_gpu_row_function *functions;
  int64_t num_functions;
  const bsr_row_buffer *buffers;
  int64_t num_buffers;
  int64_t num_addresses;
} bsr_gpu_row_kernel;

/// Launches what `bsr_run_rows` computes on `stream`, a CUstream of the
/// functions' GPU, or null for its default stream, and returns. Addresses are
/// of the GPU's memory, which has to stay until the stream has got there.
///
/// `work` is memory of the GPU that the call may overwrite, aligned to 64
/// bytes, and `*work_bytes` its size. If it is too little, nothing is launched,
/// and `*work_bytes` becomes what is needed; so it does else.
///
/// All goes through `stream` by itself: if it is captured, the graph has the
/// launches and copies, and makes the plans too, so that one that is launched
/// when a pattern has changed in place is right. One thread at a time may call
/// with a kernel.
BSR_API bsr_status bsr_launch_rows(const bsr_gpu_row_kernel *kernel,
                                   void *const *addresses, int64_t rows,
                                   void *work, int64_t *work_bytes,
                                   void *stream, int64_t *missing);

#ifdef __cplusplus
}
#endif

#endif // BSR_ROWS_H
