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

#ifdef __cplusplus
}
#endif

#endif // BSR_ROWS_H
