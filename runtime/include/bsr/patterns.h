// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The patterns of a session: which blocks a weight stores, and how that changes
// between steps. A part of bsr/runtime.h, which includes it.

#ifndef BSR_PATTERNS_H
#define BSR_PATTERNS_H

#include "bsr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The two index views of a pattern over one set of slots:
///   row view:    block k of block row r, for row_ptr[r] <= k < row_ptr[r + 1],
///                lies in block column col_idx[k] and in slot slot[k];
///   column view: block k of block column c, for col_ptr[c] <= k < col_ptr[c +
///   1],
///                lies in block row row_idx[k] and in slot slot_t[k].
/// Invariants: pointers start at 0, never fall, and end at `blocks`; indices
/// are in range and rise within a row or column; no slot is used twice; both
/// views hold the same blocks in the same slots.
typedef struct bsr_pattern_view {
  int64_t blocks; // stored blocks: 0 to the smaller of slots and all blocks
  const int32_t *row_ptr; // [rows / block_rows + 1]
  const int32_t *col_idx; // [blocks]
  const int32_t *slot;    // [blocks]
  const int32_t *col_ptr; // [cols / block_cols + 1]
  const int32_t *row_idx; // [blocks]
  const int32_t *slot_t;  // [blocks]
} bsr_pattern_view;

/// As many blocks as there are slots; every block where the slots allow.
#define BSR_MOST_BLOCKS (-1)

/// Makes the first pattern: `blocks` blocks, every choice equally likely, keyed
/// by (seed, pattern name, update 0), in slots 0, 1, ... row by row. With every
/// block stored the matrix is dense. Slots in which no block lies are zeroed.
/// A static pattern has nothing to make: it is left alone.
BSR_API bsr_status bsr_session_make_pattern(bsr_session *session,
                                            int64_t pattern, int64_t blocks);

/// What the blocks of a matrix are ranked by. All of them being of one
/// size, the mean ranks as L1 does.
typedef enum bsr_norm {
  BSR_L1 = 0,   // sum of magnitudes
  BSR_L2 = 1,   // root of the sum of squares
  BSR_LINF = 2, // largest magnitude
  BSR_MEAN = 3  // mean of magnitudes
} bsr_norm;

/// Makes the first pattern of the `blocks` blocks of the largest norm, of equal
/// ones the first, of `dense`, a row-major matrix [rows, cols] of `type`, in
/// slots 0, 1, ... row by row. Their elements become the values of the weight;
/// all other values of the pattern become what `bsr_session_update` says of new
/// blocks. NaN is an error that names the
/// block. Fails for a static pattern, and for a weight of another type.
BSR_API bsr_status bsr_session_take_largest(bsr_session *session,
                                            int64_t pattern, int64_t blocks,
                                            bsr_norm norm, bsr_type type,
                                            const void *dense);

/// Which entries an output of a matrix adds up: its fan-in.
typedef enum bsr_fan_in {
  BSR_FAN_IN_DENSE = 0,  // all, stored or not
  BSR_FAN_IN_ROWS = 1,   // the stored ones of its row: [outputs, inputs]
  BSR_FAN_IN_COLUMNS = 2 // the stored ones of its column: [inputs, outputs]
} bsr_fan_in;

/// Gives the values of a weight, which were made for the dense fan-in, the
/// standard deviation that is right for the stored one (Evci et al. 2022):
/// multiplies those of block row r, which stores n of its c blocks, by
/// sqrt(c / n); of BSR_FAN_IN_COLUMNS, those of block columns likewise.
/// Products are rounded once, to the type of the weight. Rows without a block
/// have no values, and BSR_FAN_IN_DENSE changes nothing. To be called once,
/// when values and first pattern are there. Fails for a static pattern, which
/// no rule is for.
BSR_API bsr_status bsr_session_scale_fan_in(bsr_session *session,
                                            int64_t pattern, bsr_fan_in fan_in);

/// Validates every invariant of `view` and makes it the pattern. The column
/// view may be left out (all three pointers null): it is then built; `slot` may
/// be null for slots 0, 1, ... row by row. Values are left as they are, but
/// slots in which no block lies are zeroed, and slots in which none lay hold
/// what `bsr_session_update` says of new blocks. The error names the pattern,
/// the place and the value. Fails for a static pattern.
BSR_API bsr_status bsr_session_set_pattern(bsr_session *session,
                                           int64_t pattern,
                                           const bsr_pattern_view *view);

/// Fails where bsr_session_set_pattern would, and changes nothing.
BSR_API bsr_status bsr_session_check_pattern(const bsr_session *session,
                                             int64_t pattern,
                                             const bsr_pattern_view *view);

/// The pattern as it stands, in the session's own buffers: the addresses never
/// change, the contents do when the pattern does. A static pattern lies in the
/// step.
BSR_API bsr_status bsr_session_get_pattern(const bsr_session *session,
                                           int64_t pattern,
                                           bsr_pattern_view *view);

/// Reads a pattern from a file, with `bsr_session_set_pattern`; writes one. The
/// file is JSON; `slot` and the column view may be left out. The compiler makes
/// a static pattern of such a file (bsr-mark):
///   {"format": "bsr-pattern", "version": 1, "name": "state.p.w",
///    "shape": [rows, cols], "block": [block_rows, block_cols],
///    "row_ptr": [...], "col_idx": [...], "slot": [...],
///    "col_ptr": [...], "row_idx": [...], "slot_t": [...]}
/// `name` is for the reader; the shape and the block must be the pattern's.
BSR_API bsr_status bsr_session_read_pattern(bsr_session *session,
                                            int64_t pattern, const char *path);
BSR_API bsr_status bsr_session_write_pattern(const bsr_session *session,
                                             int64_t pattern, const char *path);

/// What an update does to a pattern (docs/sparsity.md has the sources):
///   static: nothing;
///   set: prunes, and regrows at random (Mocanu et al. 2018; on blocks, as
///     Dietrich et al., "Towards structured dynamic sparse pre-training of
///     BERT", Algorithm 1);
///   rigl: prunes, and regrows the blocks of the largest scores (Evci et al.
///     2020), right after `bsr_session_run_scores`;
///   gmp: prunes down to `blocks` (Zhu and Gupta 2017) and regrows nothing.
typedef enum bsr_method {
  BSR_STATIC = 0,
  BSR_SET = 1,
  BSR_RIGL = 2,
  BSR_GMP = 3
} bsr_method;

/// Whether an update by `method` reads the scores of all blocks (1), as rigl
/// does, or not (0).
BSR_API int32_t bsr_method_reads_scores(bsr_method method);

/// Whether `drop` says how many blocks an update by `method` prunes (1), as of
/// set and rigl, which regrow as many, or not (0).
BSR_API int32_t bsr_method_has_drop(bsr_method method);

typedef struct bsr_pattern_update {
  bsr_method method;
  bsr_norm norm;
  double drop;          // of set and rigl: the share of blocks to prune, [0, 1]
  int64_t blocks;       // of gmp: how many blocks to leave
  int32_t allow_return; // of set and rigl: 1 if a block may be pruned and
                        // regrown by the same update: it then stays as it is
  int32_t together; // of gmp: 0, or a number that updates of several matrices
                    // share: `blocks` is then how many to leave in all of them
} bsr_pattern_update;

/// The first values of a block that an update regrows.
typedef enum bsr_new_values {
  BSR_VALUES_ZERO = 0,
  BSR_VALUES_RANDOM = 1 // normal, keyed by (seed, pattern name, number of the
                        // update, block)
} bsr_new_values;

/// What the step keeps of it: its other values, but parameters, as averages of
/// the weight are, and integers, which begin as they did.
typedef enum bsr_new_state {
  BSR_STATE_FIRST = 0, // what that state began with
  BSR_STATE_MEAN = 1,  // of each, the mean over all blocks of the matrix that
                       // stay, summed in f64 in a fixed order
  BSR_STATE_KEPT = 2   // what lies in its slot: that of the pruned block whose
                       // slot it takes; in a slot that was free, the first
} bsr_new_state;

typedef struct bsr_new_blocks {
  bsr_new_values values;
  bsr_new_state state;
  double std; // of random values, the standard deviation, at least 0; 0 for s
              // where the `init` of the weight is normal(s)
  int32_t own_steps; // 1 if the optimizer has to count the steps of each block
  int64_t ramp;      // over how many steps its updates have to rise to what the
                     // optimizer makes; 0 for any
} bsr_new_blocks;

/// Says what blocks of `pattern` begin with that later updates and replacements
/// regrow, zeros and BSR_STATE_FIRST unless this was called. No checkpoint has
/// it. Fails for random values of a weight of which neither says the standard
/// deviation, for means of state of which a process has a share, for steps of
/// their own or a ramp that the step was not compiled with, and for a static
/// pattern.
BSR_API bsr_status bsr_session_set_new_blocks(bsr_session *session,
                                              int64_t pattern,
                                              const bsr_new_blocks *start);

/// Updates every pattern i as `updates[i]` says; `count` is how many there are.
/// In each matrix of n stored blocks whose pattern is not static:
///   1. k = floor(drop * n + 1/2), and, unless blocks may return, at most the
///      number of absent blocks; of gmp, k = n - blocks, or 0 if that is less;
///      of updates together, k is how many of the matrix are among the lowest
///      norms of all their matrices, of equal ones those of the first matrix
///      and there the first blocks, that go until `blocks` are left. The block
///      of a matrix that would go last stays. Their blocks are of one size;
///   2. prune the k blocks whose weights have the lowest norm, of equal ones
///      the first; norms are summed in f64 in a fixed order;
///   3. choose k of the blocks that were absent before the update, or, if
///      blocks may return, that are not kept. Set: every choice is equally
///      likely, keyed by (seed, pattern name, number of this update). Rigl: the
///      largest scores, of equal ones the first. Gmp: none;
///   4. a block both pruned and chosen is neither. The i-th of the others takes
///      the slot of the i-th pruned one, both row by row; its weights become
///      zero, and of other state the constant that it began with if its `init`
///      says one, else zero, unless `bsr_session_set_new_blocks` says
///      otherwise; slots that are left over become zero;
///   5. rebuild the index views by counting sort, in O(n + rows + cols).
/// Nothing is allocated, but for updates together, and no other value moves.
/// The result does not depend on the number of threads. A NaN weight, or a NaN
/// score of a block that may be regrown, is an error that names the matrix and
/// the block.
BSR_API bsr_status bsr_session_update(bsr_session *session,
                                      const bsr_pattern_update *updates,
                                      int64_t count);

/// For methods of the caller's own. Blocks go by their numbers: block row times
/// block columns plus block column.

/// Writes to `stored` the rising numbers of the stored blocks, `count` in all.
BSR_API bsr_status bsr_session_stored(const bsr_session *session,
                                      int64_t pattern, int64_t count,
                                      int64_t *stored);

/// Writes to `norms` a number for each stored block, in row order, that ranks
/// as its norm does: summed in f64 in a fixed order, of L2 the sum of squares,
/// of the mean that of magnitudes. `count` is how many blocks are stored. Fails
/// as an update does for NaN.
BSR_API bsr_status bsr_session_norms(const bsr_session *session,
                                     int64_t pattern, bsr_norm norm,
                                     int64_t count, double *norms);

/// Writes to `scores` that of each block of the matrix, `count` in all, right
/// after `bsr_session_run_scores`.
BSR_API bsr_status bsr_session_scores(const bsr_session *session,
                                      int64_t pattern, int64_t count,
                                      float *scores);

/// Adds the scores of the last run, of each pattern i with `steps[i]` above 1,
/// to what calls since its last change have added up, and puts the sums in
/// their place: for updates by rigl, bsr_session_scores and
/// bsr_session_choose_scored. `count` is how many patterns there are, `steps`
/// what bsr_updates_scored says of them. The sums are f32, added to one step
/// after the other, and lie on the host, 4 bytes for each block of the matrix
/// from the first call on; checkpoints and snapshots have them. They end with
/// an update or a replacement of the pattern and where it is made or set. Fails
/// unless the run was one with scores that were not summed before.
BSR_API bsr_status bsr_session_sum_scores(bsr_session *session,
                                          const int32_t *steps, int64_t count);

/// Writes to `chosen` the rising numbers of `count` blocks that are none of the
/// `num_barred` of `barred`, whose numbers rise: every choice equally likely,
/// keyed by (seed, pattern name, number of the next update), as set chooses.
BSR_API bsr_status bsr_session_choose_absent(const bsr_session *session,
                                             int64_t pattern,
                                             int64_t num_barred,
                                             const int64_t *barred,
                                             int64_t count, int64_t *chosen);

/// Writes to `chosen` those of the `count` largest scores, of equal ones the
/// first, right after `bsr_session_run_scores`, as rigl chooses. Fails as an
/// update does for a NaN score of a block that is none of `barred`.
BSR_API bsr_status bsr_session_choose_scored(const bsr_session *session,
                                             int64_t pattern,
                                             int64_t num_barred,
                                             const int64_t *barred,
                                             int64_t count, int64_t *chosen);

/// Write to `places` the rising places of the `count` lowest, or highest, of
/// `size` numbers, of equal ones the first, in time linear in `size`. `type` is
/// BSR_F32, BSR_F64, BSR_I64 or BSR_UI64; NaN is an error that names its place.
BSR_API bsr_status bsr_lowest(bsr_type type, int64_t size, const void *numbers,
                              int64_t count, int64_t *places);
BSR_API bsr_status bsr_highest(bsr_type type, int64_t size, const void *numbers,
                               int64_t count, int64_t *places);

/// Which blocks of a pattern go, and which come, each rising.
typedef struct bsr_replacement {
  int64_t pattern;
  int64_t num_pruned, num_regrown;
  const int64_t *pruned;  // stored now
  const int64_t *regrown; // absent now
} bsr_replacement;

/// Updates the patterns of `count` replacements, each once, as steps 4 and 5 of
/// `bsr_session_update` do; where more blocks come than go, the last ones take
/// the lowest slots that are free. Counts as one update, after which scores are
/// still those of the last run. Fails, before
/// anything is changed, for a block to prune that is absent, one to regrow
/// that is stored, numbers that do not rise or are none of a block, more blocks
/// than slots, and a static pattern.
BSR_API bsr_status bsr_session_replace(bsr_session *session,
                                       const bsr_replacement *replacements,
                                       int64_t count);

/// How a pattern has changed.
typedef struct bsr_pattern_statistics {
  int64_t blocks;         // stored now
  int64_t all_blocks;     // of the matrix
  int64_t ever_stored;    // at any time since the first run of the step
  int64_t most_in_row;    // stored blocks of the fullest block row
  int64_t most_in_column; // and of the fullest block column
  // Of the last update that was not static; 0 before the first of this session.
  int64_t pruned;
  int64_t regrown;
  int64_t newest;        // blocks that the update before it had regrown
  int64_t newest_pruned; // of these, the ones that it pruned
} bsr_pattern_statistics;

BSR_API bsr_status bsr_session_statistics(const bsr_session *session,
                                          int64_t pattern,
                                          bsr_pattern_statistics *statistics);

/// A pattern of which a run records something.
typedef struct bsr_recorded_pattern {
  const char *name;
  int64_t rows, block_rows, block_cols; // as those of bsr_pattern_info
  bsr_pattern_statistics statistics;
  int32_t is_updated;        // 1 if the update that is recorded was one of it
  bsr_pattern_update update; // this update; BSR_STATIC for none, and for one by
                             // a method of the caller's own
} bsr_recorded_pattern;

/// Makes `text` what a run records of its `count` patterns, as a JSON object:
/// of each pattern, under its name in "weight_<what>", and of all in "<what>"
///   density    stored elements / all elements
///   used       elements that any pattern so far has stored / all elements
///   imbalance  blocks of the fullest block row / mean of all block rows; of
///              all patterns, the largest
/// and, where `is_update` is 1, of the patterns that were updated
///   pruned     blocks that went
///   regrown    blocks that came
///   lost       of the blocks that came with the update before, the share that
///              went with this one; absent if none came
/// and of all together "turnover", blocks pruned / blocks stored before, and
/// "drop", the largest share of blocks to replace, absent where no method has
/// one. Without patterns the object is empty. The text stays until the thread
/// calls this again.
BSR_API bsr_status bsr_record_patterns(int64_t count,
                                       const bsr_recorded_pattern *patterns,
                                       int32_t is_update, const char **text);

typedef enum bsr_schedule {
  BSR_CONSTANT = 0,
  BSR_LINEAR = 1, // drop * (1 - t)
  BSR_COSINE = 2  // drop * (1 + cos(pi t)) / 2 = drop * cos^2(pi t / 2)
} bsr_schedule;

/// The drop fraction at `t`, the elapsed share of training, for a largest one
/// of `drop`. `t` is clamped to [0, 1]. A schedule that is none is constant.
BSR_API double bsr_drop_fraction(bsr_schedule schedule, double drop, double t);

/// The density at `t`, the elapsed share of gradual pruning from density
/// `start` to `end`: end + (start - end) * (1 - t)^3. `t` is clamped to [0, 1].
BSR_API double bsr_gmp_density(double start, double end, double t);

/// Distributes `density` over `count` matrices of `rows[i]` times `cols[i]`
/// elements by Erdos-Renyi: density i is
/// min(1, e * extents[i] / (rows[i] * cols[i])), with e such that all matrices
/// together have the density `density`. Matrices at 1 are set aside, the
/// largest first, and e is found again for the others. `extents[i]` are
/// rows[i] + cols[i] (Mocanu et al. 2018), which null stands for, or those of
/// the array that the matrix is, added up (ERK, Evci et al. 2020).
BSR_API bsr_status bsr_erdos_renyi_densities(int64_t count, const int64_t *rows,
                                             const int64_t *cols,
                                             const int64_t *extents,
                                             double density, double *densities);

#ifdef __cplusplus
}
#endif

#endif // BSR_PATTERNS_H
