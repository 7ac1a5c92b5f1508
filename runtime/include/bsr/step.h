// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C interface of a compiled step: what its library exports, and what the
// caller of its entry point hands over. The compiler, the runtime and steps
// written by hand share this header.

#ifndef BSR_STEP_H
#define BSR_STEP_H

#include <stdint.h>

// The library of a step exports:
//   const uint32_t bsr_step_abi_version: BSR_STEP_ABI_VERSION;
//   const char bsr_step_manifest[]: JSON text (docs/manifest.md);
// of a step for processors:
//   int32_t bsr_step_run(bsr_context *context, void *const *buffers,
//                        void *arena): runs the step once;
//   int32_t bsr_step_run_scores(...): the same with scores of blocks, if the
//     manifest has "score_norm";
//   int64_t bsr_step_timers[][2]: nanoseconds and launches, if it has "timers";
//   int64_t bsr_step_trace_events[1 + BSR_STEP_TRACE_EVENTS][2], if it has
//     timers, or not: the number of events, and of the last ones, event n in
//     row 1 + n % BSR_STEP_TRACE_EVENTS, the timer that each counted for and
//     when it ended, in nanoseconds of CLOCK_MONOTONIC. A run begins with one
//     of the number of timers.
// of a step for a GPU, whose manifest has "launches":
//   const char bsr_step_ptx[]: the kernels in PTX, text that ends in a zero.
//
// `buffers` holds the addresses of the manifest's buffers in its order, and
// `arena` is memory of "arena_bytes" bytes. All are aligned to 64 bytes and
// are memory of the context's device. The entry returns a `bsr_step_status`;
// with another than BSR_STEP_RAN it has touched neither buffers nor arena.

#ifdef __cplusplus
extern "C" {
#endif

/// The version of what is above.
#define BSR_STEP_ABI_VERSION 1

/// The events that a step with timers keeps.
#define BSR_STEP_TRACE_EVENTS 65536

/// The version of `bsr_context`.
#define BSR_CONTEXT_VERSION 1

/// Whose memory buffers are, and what runs the kernels.
typedef enum bsr_device {
  BSR_HOST = 0, // the processor that the caller runs on
  BSR_CUDA = 1  // a GPU of NVIDIA's; the runtime launches the kernels
} bsr_device;

/// A part of a bucket: `count` elements at `data`.
typedef struct bsr_part {
  void *data;
  int64_t count;
} bsr_part;

/// What reaches the other processes of a run, which all run the same step at
/// the same time. Fields are added behind those here.
typedef struct bsr_communicator bsr_communicator;
struct bsr_communicator {
  /// Replaces each of `count` elements at `data`, of the `bsr_type` (runtime.h)
  /// `type`, by the mean of those that all processes call it with. Only of
  /// floating-point types. Errors are kept, and reported when the step
  /// returns.
  void (*all_reduce)(bsr_communicator *self, void *data, int64_t count,
                     int32_t type);
  /// Starts the same with `num_parts` parts of one type, and returns a number
  /// for `wait_reduce`. The elements may not be accessed until then.
  int64_t (*start_reduce)(bsr_communicator *self, const bsr_part *parts,
                          int64_t num_parts, int32_t type);
  /// Waits for what `ticket`, which `start_reduce` returned, stands for.
  void (*wait_reduce)(bsr_communicator *self, int64_t ticket);
  /// Sends `bytes` bytes of `data` to the process of stage `to`, or receives
  /// them from that of stage `from`. Each send has a receive there, and those
  /// from one stage to another are in one order. A send does not block, and
  /// `data` may change when it returns; a receive waits for its send. Errors
  /// are kept.
  void (*send)(bsr_communicator *self, const void *data, int64_t bytes,
               int32_t to);
  void (*receive)(bsr_communicator *self, void *data, int64_t bytes,
                  int32_t from);
  /// Copies from the `whole_bytes` bytes of `whole` those that are this
  /// process's shard, of `shard_bytes`: of rank r, or of the r-th process of
  /// its stage, those behind the lesser of r * shard_bytes and whole_bytes -
  /// shard_bytes.
  void (*shard)(bsr_communicator *self, const void *whole, int64_t whole_bytes,
                void *shard, int64_t shard_bytes);
  /// Writes to `whole` the shards of all these processes, of which this one's
  /// is `shard`. Where they overlap they are the same. What fails is kept.
  void (*unshard)(bsr_communicator *self, const void *shard,
                  int64_t shard_bytes, void *whole, int64_t whole_bytes);
};

/// What a run of a step depends on beside its buffers. The caller owns it, and
/// no two runs have one at the same time. Fields are added behind those here.
typedef struct bsr_context {
  int32_t version; // BSR_CONTEXT_VERSION. The caller writes it; the step
                   // reads it first, and nothing else if it is another one
                   // than the step was compiled for.
  int32_t device;  // bsr_device. The caller writes it; the step reads it.
  bsr_communicator *communicator; // Null for a run of one process. The caller
                                  // writes it; a step reads it if its manifest
                                  // has "communicates".
  int32_t error; // What the step was compiled for, where it finds another
                 // version or device. The step writes it, and only then;
                 // the caller reads it.
} bsr_context;

/// How a run ended.
typedef enum bsr_step_status {
  BSR_STEP_RAN = 0,
  BSR_STEP_OTHER_VERSION = 1, // of the context
  BSR_STEP_OTHER_DEVICE = 2
} bsr_step_status;

/// What every entry point does first: returns BSR_STEP_RAN if a step that was
/// compiled for `version` and `device` can run in `context`, or else its
/// status, and sets the context's error.
static inline int32_t bsr_check_context(bsr_context *context, int32_t version,
                                        int32_t device) {
  if (context->version != version) {
    context->error = version;
    return BSR_STEP_OTHER_VERSION;
  }
  if (context->device != device) {
    context->error = device;
    return BSR_STEP_OTHER_DEVICE;
  }
  return BSR_STEP_RAN;
}

#ifdef __cplusplus
}
#endif

#endif // BSR_STEP_H
