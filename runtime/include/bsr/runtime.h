// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C interface of the host runtime: loads a compiled training step, owns its
// buffers and patterns, updates the patterns between steps, and saves both.

#ifndef BSR_RUNTIME_H
#define BSR_RUNTIME_H

#include "bsr/base.h"
#include "bsr/patterns.h" // IWYU pragma: export
#include "bsr/sparsity.h" // IWYU pragma: export
#include "bsr/step.h"
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

//===----------------------------------------------------------------------===//
// A compiled step
//===----------------------------------------------------------------------===//

typedef enum bsr_kind {
  BSR_DENSE = 0, // an argument of the step
  BSR_VALUES =
      1, // stored blocks [slots, block_rows, block_cols], in slot order
  BSR_ROW_PTR = 2, // the index views of a pattern, see bsr_pattern_view
  BSR_COL_IDX = 3,
  BSR_SLOT = 4,
  BSR_COL_PTR = 5,
  BSR_ROW_IDX = 6,
  BSR_SLOT_T = 7,
  BSR_OUTPUT = 8, // a result that carries nothing over to the next step
  BSR_SCORES = 9  // a score for each block of a matrix, in the arena: valid
                  // from bsr_session_run_scores to the next run or update
} bsr_kind;

/// Buffer of a step: row-major, contiguous, 64-byte aligned.
typedef struct bsr_buffer_info {
  const char *name; // dotted path, as "state.p.layers.0.f1_w"; a weight and its
                    // pattern share one
  const char *role; // "param", "state", "batch", "lr", "seed", "step",
                    // "pattern", "loss", or ""
  const char *init; // rule of bsr_session_initialize, or ""
  const int64_t *shape;
  int64_t rank;
  int64_t elements;
  int64_t bytes;
  bsr_kind kind;
  bsr_type type;
  int32_t carried; // 1 if a run of the step leaves the next value in the buffer
  int32_t pattern; // index of the pattern of these values or indices, or -1
} bsr_buffer_info;

/// Pattern of a step: which blocks of a matrix are stored.
typedef struct bsr_pattern_info {
  const char *name; // that of the weight
  int64_t rows, cols;
  int64_t extents; // of the array that the weight is in the program, added up:
                   // rows + cols, or of a convolution's, its window's, too
  int64_t block_rows, block_cols;
  int64_t slots;     // blocks that the value buffers have room for
  double density;    // the share of blocks asked for when the step was compiled
  int32_t is_static; // 1 if the pattern is compiled in: it never changes, and
                     // has no index buffers
  int32_t weight;    // index of the buffer whose blocks are ranked
} bsr_pattern_info;

/// Loads the shared library `path`, validates its manifest, and refuses a step
/// whose code needs features that this processor lacks. The caller releases the
/// step with `bsr_step_unload`.
BSR_API bsr_status bsr_step_load(const char *path, bsr_step **step);

/// Releases a step. Null is allowed.
BSR_API void bsr_step_unload(bsr_step *step);

/// The manifest as the library holds it (JSON).
BSR_API const char *bsr_step_manifest_text(const bsr_step *step);

/// Name of the step's function, and the processor it was compiled for.
BSR_API const char *bsr_step_name(const bsr_step *step);
BSR_API const char *bsr_step_target_cpu(const bsr_step *step);

/// The chip of the GPU that the step was compiled for ("sm_90a"), or "" of a
/// step for processors.
BSR_API const char *bsr_step_chip(const bsr_step *step);

/// What steps for `device`, named as in `bsr_session_create`, are compiled for,
/// as sparse-compile --target takes it: "cpu", or a GPU's chip. Fails if there
/// is no such device, or none that steps can be compiled for. The string lives
/// as long as the library.
BSR_API bsr_status bsr_device_target(const char *device, const char **target);

/// 1 if the step takes means over the processes of a run (sparse-compile
/// --data-parallel), or else 0.
BSR_API int32_t bsr_step_communicates(const bsr_step *step);

/// 1 if it takes them only in runs whose argument of role `apply` is not 0, and
/// in those with scores of blocks: in others each process adds up gradients,
/// and results are those of each. Else 0: all runs take them.
BSR_API int32_t bsr_step_accumulates(const bsr_step *step);

/// The number of processes among which moments and sums of gradients are
/// sharded (sparse-compile --shard-state), or 0: of a stage, those that run it.
/// The r-th of them has n rows of the outermost dimension of more than one
/// entry, as many as its buffer has of the d that there are in all: from the
/// lesser of r * n and d - n on.
BSR_API int64_t bsr_step_sharded(const bsr_step *step);

/// The micro-batches that a run goes through (sparse-compile --micro-batches):
/// one, or several, each with buffers of its own for what differs from one to
/// another. Those of micro-batch i, counted from 0, are called as those of the
/// first with "micro<i>." in front. A run counts as one of each.
BSR_API int64_t bsr_step_micro_batches(const bsr_step *step);

/// Sets `shape` to that of which buffer `index` is the share of one process, or
/// to its own; the rank is that of the buffer. It lives as long as the step.
BSR_API bsr_status bsr_step_whole_shape(const bsr_step *step, int64_t index,
                                        const int64_t **shape);

BSR_API int64_t bsr_step_num_buffers(const bsr_step *step);
BSR_API int64_t bsr_step_num_patterns(const bsr_step *step);

/// How many products the step computes of one kind ("spmm", "spmm_transposed",
/// "sddmm", "dense"), or 0 for a kind that its manifest does not list.
BSR_API int64_t bsr_step_num_products(const bsr_step *step, const char *kind);

/// How many products of marked weights were left dense by the compiler.
BSR_API int64_t bsr_step_num_left_dense(const bsr_step *step);

/// Describe buffer or pattern `index`.
BSR_API bsr_status bsr_step_buffer(const bsr_step *step, int64_t index,
                                   bsr_buffer_info *info);
BSR_API bsr_status bsr_step_pattern(const bsr_step *step, int64_t index,
                                    bsr_pattern_info *info);

/// Index of the buffer of this kind and name, of the first one with this role;
/// or -1.
BSR_API int64_t bsr_step_find_buffer(const bsr_step *step, bsr_kind kind,
                                     const char *name);
BSR_API int64_t bsr_step_find_role(const bsr_step *step, const char *role);

/// Name of a type ("bf16") and of a kind ("row_ptr"), bytes of an element;
/// "" and 0 for a number that is none.
BSR_API const char *bsr_type_name(bsr_type type);
BSR_API int64_t bsr_type_bytes(bsr_type type);
BSR_API const char *bsr_kind_name(bsr_kind kind);

/// Where the time of a step that was compiled with timers goes: what one
/// kernel, or one kind of operation that is no kernel, took. Every nanosecond
/// of a run counts for one timer.
typedef struct bsr_timer_info {
  const char *kernel; // the function's name; that of timer 0 is the step's: it
                      // has what comes behind the last kernel, once a run
  const char *kind;   // "spmm", "spmm_transposed", "sddmm", "dense",
                      // "reduction", "elementwise", "gather", "scatter",
                      // "copy", "plan" (of a pattern, on a GPU) or "other"
  const char *operands; // types of the kernel's buffers, as "4x8xf32 8xf32"
  int64_t flops;    // of one launch: its products with all slots in use; or 0
  int64_t bytes;    // of the buffers of one launch, or 0
  int64_t items;    // of work that threads share, a mean over the loops of the
                    // kernel; 0 for what is no kernel, and on a GPU
  int64_t launches; // since the step was loaded or its timers were reset
  int64_t nanoseconds; // of these launches
} bsr_timer_info;

/// How many timers the step has; 0 if it was compiled without.
BSR_API int64_t bsr_step_num_timers(const bsr_step *step);

/// Reads timer `index`. All sessions of a step, in all its users, share its
/// timers; runs of two sessions at the same time spoil them.
BSR_API bsr_status bsr_step_timer(const bsr_step *step, int64_t index,
                                  bsr_timer_info *info);

/// Sets all timers to zero.
BSR_API void bsr_step_reset_timers(const bsr_step *step);

/// When the work of a timer ended, in nanoseconds of CLOCK_MONOTONIC; it began
/// when the event before it ended. A run begins with an event of no timer,
/// whose number is that of all timers.
typedef struct bsr_trace_event {
  int64_t timer, ended;
} bsr_trace_event;

/// Sets `count` to the events since the step was loaded, and copies those from
/// event `first` on, `most` of them, to `events`, which may be null. Fails for
/// events that the step does not keep any more (BSR_STEP_TRACE_EVENTS), and for
/// a step without timers or for a GPU.
BSR_API bsr_status bsr_step_read_trace_events(const bsr_step *step,
                                              int64_t first,
                                              bsr_trace_event *events,
                                              int64_t most, int64_t *count);

//===----------------------------------------------------------------------===//
// A session: one training run's memory
//===----------------------------------------------------------------------===//

/// Allocates every buffer and the arena, once, as one area of zeros in the
/// memory of `device`, which runs the step: "cpu", the processor that the
/// caller runs on, or a GPU of NVIDIA's, "cuda" or "cuda:0", "cuda:1" and so
/// on; another name is BSR_INVALID_ARGUMENT, a GPU that cannot be had or that
/// the step was not compiled for BSR_DEVICE_ERROR or BSR_INVALID_STEP. Every
/// pattern is empty. `seed` keys all random numbers of the session. The caller
/// releases the session with `bsr_session_destroy`.
BSR_API bsr_status bsr_session_create(const bsr_step *step, const char *device,
                                      uint64_t seed, bsr_session **session);

/// Makes a session of `step`, on the same device, that works on the state of
/// `source`, as an evaluation works on that of the training: each of its
/// arguments that has the name of one of `source` which is carried, or of role
/// "param", "state", "buffer" or "constant", is that buffer, and so are the
/// indices of its pattern. Nothing is copied: what the session computes is of
/// the values and the patterns that `source` has then. `source` outlives the
/// session. Fails where a parameter or "state" is missing in `source`, where
/// type, shape or pattern are others there, and where `step` would change what
/// is shared. Such a session can be run, read and written; patterns,
/// initial values and checkpoints are the business of `source`, and an error
/// here.
BSR_API bsr_status bsr_session_share(const bsr_step *step, bsr_session *source,
                                     bsr_session **session);

/// Makes a session of `step` that trains the state of `source`, as the step for
/// batches of another shape does: it shares what `bsr_session_share` does, and
/// changes it. Its runs count as those of `source`, and their scores are those
/// that updates of the patterns of `source` take. On the host it uses the arena
/// of `source`, if that is large enough: only one of both runs at a time. Fails
/// as `bsr_session_share` does, and where one of both steps trains, or scores,
/// what the other does not.
BSR_API bsr_status bsr_session_continue(const bsr_step *step,
                                        bsr_session *source,
                                        bsr_session **session);

/// Releases a session. Null is allowed.
BSR_API void bsr_session_destroy(bsr_session *session);

/// Makes every pattern with `bsr_session_make_pattern(p, BSR_MOST_BLOCKS)`,
/// then fills every buffer that has a rule; the rest is left as it is. This is
/// all that a new run needs. The rules are
///   "zeros", "ones", "constant(c)"; "normal(s)": normally distributed with
///   mean 0 and standard deviation s, for floating-point types.
/// Element e of a normal buffer is s * ppnd16((2 u + 1) / 2^53), where u is the
/// upper 52 bits of the random number keyed by (seed, buffer name, e) and
/// ppnd16 is the normal quantile of Wichura (Algorithm AS 241, 1988), computed
/// in f64 and rounded once, to nearest even. A values buffer is filled slot by
/// slot; slots in which no block lies hold zeros.
BSR_API bsr_status bsr_session_initialize(bsr_session *session);

/// Copy `bytes` bytes from `offset` of buffer `index` to `data`, and from
/// `data` to the buffer, on whatever device it lies. Fail unless the buffer has
/// them, and to write indices: `bsr_session_set_pattern` keeps these valid.
BSR_API bsr_status bsr_session_read(const bsr_session *session, int64_t index,
                                    int64_t offset, int64_t bytes, void *data);
BSR_API bsr_status bsr_session_write(bsr_session *session, int64_t index,
                                     int64_t offset, int64_t bytes,
                                     const void *data);

/// For tensors of others on the same GPU. All fail for a session that is on
/// none, and for indices.

/// The address of buffer `index` in the GPU's memory, and the GPU's number. The
/// memory is the session's: it is what the next run reads.
BSR_API bsr_status bsr_session_device_data(const bsr_session *session,
                                           int64_t index, void **data,
                                           int32_t *gpu);

/// Copies all of buffer `index` from address `data` of the GPU's memory.
BSR_API bsr_status bsr_session_copy_from(bsr_session *session, int64_t index,
                                         const void *data);

/// What the session does next waits for what was given to `stream`, a CUstream,
/// before; and the other way round. Neither waits here.
BSR_API bsr_status bsr_session_wait_for(bsr_session *session, void *stream);
BSR_API bsr_status bsr_session_let_wait(bsr_session *session, void *stream);

/// The memory of buffer `index`, which the caller may read and write without a
/// copy: arrays of Python are this memory, and batches are made in it. The
/// address never changes. Fails for a session whose buffers lie on a device
/// other than the host. Index buffers are for reading.
BSR_API bsr_status bsr_session_host_data(bsr_session *session, int64_t index,
                                         void **data);

/// Runs the step once, on OMP_NUM_THREADS threads, and counts it. A GPU may
/// still work when this returns: reads of buffers wait for it, and a failure of
/// its kernels is then BSR_DEVICE_ERROR.
BSR_API bsr_status bsr_session_run(bsr_session *session);

/// The same run, which in addition scores the blocks of every matrix that has
/// scores. Fails if the step was compiled without.
BSR_API bsr_status bsr_session_run_scores(bsr_session *session);

/// The floating-point operations of the products of a run with the blocks that
/// are stored now, with `scores` those of bsr_session_run_scores:
/// docs/manifest.md says what counts. -1 if the manifest of the step does not
/// tell.
BSR_API int64_t bsr_session_flops(const bsr_session *session, int32_t scores);

/// Keeps a copy of all carried buffers and of the step count, so that a run
/// whose effect is unwanted (evaluation) can be taken back. The first call
/// allocates the copy's memory. A session keeps one copy, the last.
BSR_API bsr_status bsr_session_snapshot(bsr_session *session);

/// Copies the last snapshot back. Fails if there is none, or if the patterns
/// have changed since. The snapshot remains.
BSR_API bsr_status bsr_session_restore(bsr_session *session);

/// What a session has done. Those of a resumed session go on from its
/// checkpoint up to `blocks_regrown`; the others count since this session's
/// creation.
typedef struct bsr_counters {
  uint64_t seed;
  int64_t steps;           // runs, less those taken back
  int64_t pattern_updates; // calls of bsr_session_update
  int64_t blocks_pruned;
  int64_t blocks_regrown;
  int64_t allocations; // memory areas taken: 1 for the step and 1 for updates,
                       // and 1 more by the first snapshot
  int64_t reallocations;  // those taken while patterns were updated: 0
  int64_t recompilations; // steps loaded while patterns were updated: 0
  int64_t bytes;          // memory that the session holds now
} bsr_counters;

BSR_API bsr_status bsr_session_counters(const bsr_session *session,
                                        bsr_counters *counters);

//===----------------------------------------------------------------------===//
// Several processes
//===----------------------------------------------------------------------===//

/// Joins the other processes of a run, which were started together, as ranks 0
/// to `size` - 1. `kind` is "mpi": an MPI is loaded by way of libbsr_mpi.so,
/// which lies beside the runtime or where BSR_MPI_LIBRARY says. Called once in
/// a process; the caller releases the communicator with
/// `bsr_communicator_close`. If nothing is heard of another process for
/// BSR_COMMUNICATION_TIMEOUT seconds (45; 0: any time), what waits for it
/// fails. Below, null stands for a run of one process where
/// a rank or a size is asked for.
BSR_API bsr_status bsr_communicator_open(const char *kind,
                                         bsr_communicator **communicator);

/// Waits for the other processes to call this, and leaves the run. Null is
/// allowed.
BSR_API bsr_status bsr_communicator_close(bsr_communicator *communicator);

/// Ends all processes of the run, this one with `status`. Null is allowed, and
/// ends nothing.
BSR_API void bsr_communicator_abort(bsr_communicator *communicator,
                                    int32_t status);

BSR_API int32_t bsr_communicator_rank(const bsr_communicator *communicator);
BSR_API int32_t bsr_communicator_size(const bsr_communicator *communicator);

/// All processes call these together. The first copies `bytes` bytes of `data`
/// of rank `root` to all others; the second those of each rank r, at most 2^24,
/// to bytes r * `bytes` and on of `all`, everywhere.
BSR_API bsr_status bsr_communicator_broadcast(bsr_communicator *communicator,
                                              void *data, int64_t bytes,
                                              int32_t root);
BSR_API bsr_status bsr_communicator_gather(bsr_communicator *communicator,
                                           const void *data, int64_t bytes,
                                           void *all);

/// What the steps of this process did so far with a communicator.
typedef struct bsr_communicator_counters {
  int64_t reductions;         // tensors of which the mean was taken
  int64_t bytes_reduced;      // of these tensors
  int64_t bytes_sent;         // to other processes for it
  int64_t nanoseconds;        // that it took, waiting for others included
  int64_t buckets;            // that these tensors were sent in
  int64_t waited_nanoseconds; // of `nanoseconds`, that steps waited for it: the
                              // rest was hidden behind kernels
} bsr_communicator_counters;

BSR_API bsr_status bsr_communicator_read_counters(
    const bsr_communicator *communicator, bsr_communicator_counters *counters);

/// A bucket of which means were taken. Nanoseconds of CLOCK_MONOTONIC.
typedef struct bsr_reduction_event {
  int64_t asked; // when the step started it
  int64_t began; // when those before it were done
  int64_t ended;
  int64_t tensors, bytes;
} bsr_reduction_event;

/// Forgets what was kept of buckets, and begins to keep it.
BSR_API bsr_status bsr_communicator_trace(bsr_communicator *communicator);
/// Sets `count` to the buckets that were kept, and copies the first `most` of
/// them to `events`, which may be null.
BSR_API bsr_status bsr_communicator_read_events(
    const bsr_communicator *communicator, bsr_reduction_event *events,
    int64_t most, int64_t *count);

/// Runs of `session` take means over the processes of `communicator`, which
/// outlives the session; null: over this one alone. A run then counts as one of
/// each process. Fails, unless there is one process, if the step was compiled
/// without. With a stage of a step, rank r has to have stage r % n of n, takes
/// means over ranks of the same stage, and a run counts as one of each of
/// these.
BSR_API bsr_status bsr_session_communicate(bsr_session *session,
                                           bsr_communicator *communicator);

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

/// Writes all that a run needs to go on bit for bit into one safetensors file:
/// the carried buffers, and those of role "param" or "state" that the step
/// reads and leaves as they are, under their names; the row view of each
/// pattern as
/// "<name>.bsr.row_ptr", ".col_idx", ".slot" (I32); its history, a bit for each
/// block of the matrix that was ever stored, "<name>.bsr.ever", and for each
/// slot whose block the last update regrew, ".newest" (I8, the lowest bit of a
/// byte first; checkpoints of old lack them); and in `__metadata__`:
///   "format": "bsr-checkpoint", "version": "1", "seed", "steps",
///   "pattern_updates", "blocks_pruned", "blocks_regrown" (decimal),
///   "metadata": the caller's string, UTF-8 (data cursor and the like),
///   "matrices": for readers without the step, a JSON text: of each pattern its
///   {"name", "shape", "block", "slots", "values": [names of its tensors]},
///   "code": the hash of the step's code, of its manifest's "code" or else
///   XXH64 of its library; "compilation": how it was made, a JSON text;
///   "manifest": XXH64 of the rest of the manifest; "checksum": XXH64 of the
///   whole file in which the checksum's own 16 hexadecimal digits are zeros.
/// The file is written as "<path>.tmp", flushed to the device, and renamed, so
/// that `path` always holds either the old checkpoint or the new one; on an
/// error the temporary file is removed. Slots in which no block lies, which a
/// run of the step leaves with anything, are zeroed first. `metadata` may be
/// null for "".
/// A session of a step whose state is sharded among processes
/// (sparse-compile --shard-state) is saved by all of them together, whole, by
/// rank 0; the others may pass null for `path`. All load it, and each keeps its
/// share.
BSR_API bsr_status bsr_session_save(const bsr_session *session,
                                    const char *path, const char *metadata);

/// Reads a checkpoint. Everything is validated before anything is changed: a
/// file that is truncated, damaged or foreign, whose tensors overlap, or of a
/// model whose buffers or (static) patterns differ, leaves the session as it
/// was. Takes the seed and the counters from the checkpoint. Needs the file's
/// size in memory while it reads.
BSR_API bsr_status bsr_session_load(bsr_session *session, const char *path);

/// Reads and validates a checkpoint as bsr_session_load does, but takes nothing
/// of it except what bsr_session_metadata and bsr_session_step_difference say:
/// for callers that read their own state from the metadata first.
BSR_API bsr_status bsr_session_check(bsr_session *session, const char *path);

/// The `metadata` of the checkpoint last loaded or checked; "" before. Valid
/// until the next one.
BSR_API const char *bsr_session_metadata(const bsr_session *session);

/// What tells the step from that which saved the checkpoint last loaded or
/// checked, as "other code: level 0, was 3"; "" if it is the same, and before a
/// load: only then is the run that goes on the same bit for bit. Valid until
/// the next load or check.
BSR_API const char *bsr_session_step_difference(const bsr_session *session);

#ifdef __cplusplus
}
#endif

#endif // BSR_RUNTIME_H
