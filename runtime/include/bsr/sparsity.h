// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of sparsity: by which the patterns of a run begin and change, and
// after which of its steps (docs/sparsity.md). A part of bsr/runtime.h, which
// includes it.

#ifndef BSR_SPARSITY_H
#define BSR_SPARSITY_H

#include "bsr/patterns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Groups of weights and the rule of each. Immutable: threads may share it.
typedef struct bsr_sparsity bsr_sparsity;

/// Reads rules from `description`, JSON: an object, which is one group, or an
/// array of them. A group has the keys of `bsr_sparsity_keys`, under their own
/// names or others; an object within it stands for its members with its name
/// and a dot in front:
///   {"match": "ffn", "method": "rigl", "density": 0.1,
///    "update": {"freq": 100, "stop": 7500}}
/// What it leaves out has its default. `settings`, an array of such objects, or
/// null for none, sets keys of every group; the last one that names a key wins.
/// Fails for text that is no JSON, a key that does not exist or that a group
/// has twice, a value that is none of its key, and values that do not go
/// together; the error calls a group "sparsity", or one of several
/// "sparsity[i]". `bsr_sparsity_destroy` releases the rules.
BSR_API bsr_status bsr_sparsity_create(const char *description,
                                       const char *settings,
                                       bsr_sparsity **sparsity);
BSR_API void bsr_sparsity_destroy(bsr_sparsity *sparsity);

/// The groups as JSON that `bsr_sparsity_create` reads back: an array of
/// objects, each with all keys, under their own names.
BSR_API const char *bsr_sparsity_text(const bsr_sparsity *sparsity);

/// The options of sparse-compile that a step for these rules needs, with a
/// space between two: "--score-norm=l1" if a group's method is rigl,
/// "--block-steps" for new_step block, "--block-ramp=n" for new_ramp n; empty
/// if there are none.
BSR_API const char *bsr_sparsity_options(const bsr_sparsity *sparsity);

/// The keys of a group as JSON, an array of objects in the order of
/// `bsr_sparsity_text`:
///   "name": its own; "aliases": an array of the other names;
///   "kind": "integer", "number", "flag", "text", or "map", of texts to
///     numbers;
///   "values": which ones are valid, in words;
///   "choices": an array of the texts that are valid, empty if any is;
///   "default": a value; "help": what the key means.
/// The text is the library's own, and stays as long as that is loaded.
BSR_API const char *bsr_sparsity_keys(void);

/// A weight that rules are for.
typedef struct bsr_sparse_weight {
  const char *name;
  int64_t rows, cols;             // in elements
  int64_t block_rows, block_cols; // these divide the sizes
  int64_t slots;      // 0 for a weight of another process, of which the block
                      // does not count
  int32_t is_static;  // 1 if its pattern is compiled in: no rule is for it
  int32_t is_frozen;  // 1 if the step does not train it: its pattern begins by
                      // its rule, and stays
  int32_t has_scores; // 1 if the step computes scores of its blocks
  int64_t extents;    // of the array that it is in the program, added up, which
                      // distribution erk goes by; 0 for rows + cols
} bsr_sparse_weight;

/// The updates of a run: rules for its weights and its steps. Immutable:
/// threads may share it.
typedef struct bsr_updates bsr_updates;

/// Gives each of `count` weights to the first group whose expression matches
/// its name, distributes the densities, and plans the updates of a run of
/// `steps` steps. Processes that train parts of one model give the weights of
/// all, in one order. Fails where a group matches no weight that is left, has
/// more updates than steps for them, or asks for what the step was not compiled
/// for: more blocks than slots, or scores; and where two of a group's
/// `densities` are for one weight. `bsr_updates_destroy` releases the updates,
/// which need `sparsity` no more.
BSR_API bsr_status bsr_updates_create(const bsr_sparsity *sparsity,
                                      int64_t steps, int64_t count,
                                      const bsr_sparse_weight *weights,
                                      bsr_updates **updates);
BSR_API void bsr_updates_destroy(bsr_updates *updates);

typedef enum bsr_first_blocks {
  BSR_FIRST_RANDOM = 0,  // bsr_session_make_pattern
  BSR_FIRST_LARGEST = 1, // bsr_session_take_largest
  BSR_FIRST_FILE = 2     // bsr_session_read_pattern
} bsr_first_blocks;

/// The rule of a weight. Its text belongs to the updates.
typedef struct bsr_weight_rule {
  int64_t group;          // its index; -1 if none has the weight or its pattern
                          // is static: the rest is then 0 and ""
  double density;         // share of the blocks, [0, 1], of gmp at the end; 0
                          // for what the step was compiled with
  int64_t blocks;         // that are stored first; BSR_MOST_BLOCKS for as many
                          // as the step was compiled for
  bsr_first_blocks first; // which ones they are
  const char *file;       // the group's, with the weight's name in the place of
                          // "{name}" for BSR_FIRST_FILE
  bsr_method method;
  bsr_norm score;       // what blocks are ranked by
  int32_t has_updates;  // 1 if the group says when, with `every` or `updates`
  bsr_new_blocks start; // what regrown blocks begin with
  bsr_fan_in fan_in;    // by which first values are scaled:
                        // bsr_session_scale_fan_in
} bsr_weight_rule;

/// The rule of weight `index`.
BSR_API bsr_status bsr_updates_rule(const bsr_updates *updates, int64_t index,
                                    bsr_weight_rule *rule);

/// Writes to `due` what is due after `step` steps for each weight, in their
/// order, `count` in all, as bsr_session_update takes it: BSR_STATIC where
/// nothing is. Of a weight of another process, gmp leaves 0 `blocks` here. Of
/// weights of a group with distribution global, `together` is the group's index
/// and 1, and `blocks` is how many gmp leaves in all of them.
BSR_API bsr_status bsr_updates_due(const bsr_updates *updates, int64_t step,
                                   int64_t count, bsr_pattern_update *due);

/// Writes to `scored` whether an update reads the scores that step `step`
/// gives, for each weight in their order, `count` in all: 0 if none does, 1 if
/// the update after it does, and for a group with `score_steps` n above 1, n
/// where one of n steps comes, this one the first, after which there is an
/// update by rigl: bsr_session_sum_scores takes these numbers.
BSR_API bsr_status bsr_updates_scored(const bsr_updates *updates, int64_t step,
                                      int64_t count, int32_t *scored);

/// The number of blocks of a density in [0, 1], of `all_blocks`: as the
/// compiler counts slots, floor(density * all_blocks + 1/2), and at least 1.
BSR_API int64_t bsr_density_blocks(double density, int64_t all_blocks);

#ifdef __cplusplus
}
#endif

#endif // BSR_SPARSITY_H
