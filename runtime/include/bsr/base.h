// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What all of the C interface of the host runtime is made of: its conventions,
// errors, handles and types of elements. A part of bsr/runtime.h, which
// includes it.

#ifndef BSR_BASE_H
#define BSR_BASE_H

#include <stdint.h>

// Conventions
//
// Errors: every function that can fail returns a `bsr_status`. On failure it
// changes nothing that its arguments refer to, writes none of its outputs, and
// `bsr_last_error` says in one sentence what was expected and what was found.
// Functions that return something else cannot fail: null, for a handle or a
// name, has no text (""), no things (0), no index (-1) and no memory (null).
//
// Ownership: a handle is released once, by the function that its creator names,
// and outlives everything read through it; a handle that was released is no
// argument any more. A session holds its step: either may be released first.
// Strings and arrays that a function returns belong to the handle they were
// read from, and are never freed by the caller. Arguments are copied: none
// needs to outlive its call.
//
// Threads: a step may be shared by threads. A session is used by one thread at
// a time; sessions are independent. `bsr_last_error` is per thread.
//
// Indices count from 0. Sizes are in elements unless the name says bytes. A
// matrix [rows, cols] in blocks [block_rows, block_cols] has
// rows / block_rows block rows and cols / block_cols block columns; a block is
// named by its (block row, block column), and ordered row by row.
//
// Random numbers come from Philox 4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011) with the seed as the key and the
// purpose as the counter. No number depends on a thread, on the order of calls,
// or on the platform: the runtime calls no transcendental function of libm.

#ifdef __cplusplus
extern "C" {
#endif

#define BSR_API __attribute__((visibility("default")))

/// Version of this interface. It rises where functions are added; where one is
/// changed or taken away, the number in the library's name rises too.
#define BSR_RUNTIME_VERSION 1

/// The version of the library that is running.
BSR_API uint32_t bsr_runtime_version(void);

typedef enum bsr_status {
  BSR_OK = 0,
  BSR_INVALID_ARGUMENT = 1, // a null pointer, an index or a number out of range
  BSR_INVALID_STEP = 2,     // not a compiled step, or one of another version
  BSR_INVALID_PATTERN = 3,  // a pattern that breaks an invariant
  BSR_INVALID_CHECKPOINT = 4, // damaged, foreign, or of another model
  BSR_NOT_A_NUMBER = 5, // a weight or a score is NaN where blocks are ranked
  BSR_OUT_OF_MEMORY = 6,
  BSR_IO_ERROR = 7,     // the system refused to open, read or write a file
  BSR_DEVICE_ERROR = 8, // no GPU or driver, or one that failed: its memory may
                        // hold anything, and no session on it goes on
  BSR_COMMUNICATION_ERROR = 9 // no MPI, or a process that is not reached: no
                              // process of the run goes on
} bsr_status;

/// The sentence of this thread's last failure; "" before the first. Valid until
/// this thread's next failure.
BSR_API const char *bsr_last_error(void);

/// A training step in a shared library, and its manifest. Immutable.
typedef struct bsr_step bsr_step;

/// The buffers, patterns and counters of one run of a step.
typedef struct bsr_session bsr_session;

typedef enum bsr_type {
  BSR_F16 = 0,
  BSR_BF16 = 1,
  BSR_F32 = 2,
  BSR_F64 = 3,
  BSR_I1 = 4, // one byte, 0 or 1
  BSR_I8 = 5,
  BSR_I32 = 6,
  BSR_I64 = 7,
  BSR_UI8 = 8, // for the caller; compiled code knows no signs
  BSR_UI32 = 9,
  BSR_UI64 = 10
} bsr_type;

#ifdef __cplusplus
}
#endif

#endif // BSR_BASE_H
