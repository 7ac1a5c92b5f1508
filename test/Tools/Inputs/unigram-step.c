// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled step written by hand, to test the tools without the compiler: it
// learns how often each token occurs, and moves a block-sparse weight about.
//
//   loss = mean of -log softmax(bias)[label] + sum of |weight|, before the
//   update bias -= lr * gradient;  moment += 1;  weight += lr * (seed, step)
//   noise;  accuracy = share of labels that are the likeliest token
//
// The macros make steps that a driver must refuse, one with scores, and one for
// several processes, which takes means of all that differs (RUNS_ALONE: of all
// but bias; PRUNES_ALONE: of all but weight, whose blocks grow with the batch),
// or stage STAGE of two, each of which learns all. With STUCK_AT that step
// writes the file STUCK_FILE and never ends.

#include "bsr/step.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>
#ifdef PRINTS_BLOCKTIME
#include <omp.h>
#endif

#ifndef IDS_NAME
#define IDS_NAME "batch.ids"
#endif
#ifndef WEIGHTS_SHAPE
#define WEIGHTS_SHAPE "[4, 3]"
#endif
#ifndef LABELS_TYPE
#define LABELS_TYPE "i32"
#endif
#ifndef BIAS_BEGINS
#define BIAS_BEGINS CARRIED("zeros")
#endif
#ifndef TABLE_BEGINS
#define TABLE_BEGINS CARRIED("normal(0.02)")
#endif
#ifndef LR_SHAPE
#define LR_SHAPE "[]"
#endif
#ifndef LOSS_ROLE
#define LOSS_ROLE "loss"
#endif
#ifndef VERSION
#define VERSION ""
#endif
#ifndef STEP_ROLE
#define STEP_ROLE "step"
#endif
#ifndef EXTRA_ROLE
#define EXTRA_ROLE "batch"
#endif
#ifndef MICRO_ENTRY
#define MICRO_ENTRY ""
#endif
#ifndef SLOTS
#define SLOTS 4
#endif
// The blocks are SIDE x SIDE; POINTERS is 8 / SIDE + 1.
#ifndef SIDE
#define SIDE 2
#define POINTERS 5
#endif

#ifndef LENGTH
#define LENGTH 16
#endif

enum { B = 4, T = LENGTH, P = 3, V = 512, MASK = 4, BLOCK = SIDE * SIDE };
#define TEXT_OF(number) #number
#define TEXT(macro) TEXT_OF(macro)

// clang-format off
#define BUFFER(name, kind, role, type, shape, rest)                            \
  "{\"name\": \"" name "\", \"kind\": \"" kind "\", \"role\": \"" role      \
  "\", \"type\": \"" type "\", \"shape\": " shape ", " rest "}"
#define VALUES_SHAPE "[" TEXT(SLOTS) ", " TEXT(SIDE) ", " TEXT(SIDE) "]"
#define CARRIED(init) "\"carried\": true, \"init\": \"" init "\""
#define UNSAID "\"carried\": true"
#define OTHER "\"carried\": false"
#define PATTERN ", \"pattern\": 0"

#ifdef SCORES
#define SCORES_BUFFER "," BUFFER("state.w", "scores", "", "f32", "[4, 4]", OTHER PATTERN ", \"arena_offset\": 0")
#define SCORES_ENTRY ", \"score_norm\": \"" SCORES "\""
#else
#define SCORES_BUFFER
#define SCORES_ENTRY
#endif
#ifdef NO_FLOPS
#define FLOPS_ENTRY
#define BLOCK_FLOPS
#else
#define FLOPS_ENTRY ", \"flops\": {\"dense\": 1000, \"scores\": 7}"
#define BLOCK_FLOPS ", \"flops\": 30"
#endif
#ifdef COMMUNICATES
#define COMMUNICATES_ENTRY ", \"communicates\": true"
#else
#define COMMUNICATES_ENTRY
#endif
#ifdef STAGE
#define STAGE_ENTRY ", \"stages\": 2, \"stage\": " TEXT(STAGE)
#else
#define STAGE_ENTRY
#endif
#ifdef EXTRA
#define EXTRA_BUFFER "," BUFFER(EXTRA, "dense", EXTRA_ROLE, "f32", "[4]", OTHER)
#else
#define EXTRA_BUFFER
#endif

const uint32_t bsr_step_abi_version = BSR_STEP_ABI_VERSION;
const char bsr_step_manifest[] =
    "{\"format\": \"bsr-step\", \"version\": 1, \"name\": \"unigram" VERSION "\","
    "\"target_cpu\": \"any\", \"arena_bytes\": 64, \"buffers\": ["
    BUFFER("state.bias", "dense", "param", "f32", "[512]", BIAS_BEGINS) ","
    BUFFER("state.table", "dense", "param", "f32", "[512, 1]", TABLE_BEGINS) ","
    BUFFER("state.w", "values", "param", "f32", VALUES_SHAPE, CARRIED("normal(0.02)") PATTERN) ","
    BUFFER("state.m.w", "values", "state", "f32", VALUES_SHAPE, CARRIED("zeros") PATTERN) ","
    BUFFER(IDS_NAME, "dense", "batch", "i32", "[4, " TEXT(LENGTH) "]", OTHER) ","
    BUFFER("batch.positions", "dense", "batch", "i32", "[4, 3]", OTHER) ","
    BUFFER("batch.labels", "dense", "batch", LABELS_TYPE, "[4, 3]", OTHER) ","
    BUFFER("batch.weights", "dense", "batch", "f32", WEIGHTS_SHAPE, OTHER) ","
    BUFFER("lr", "dense", "lr", "f32", LR_SHAPE, OTHER) ","
    BUFFER("seed", "dense", "seed", "i32", "[]", OTHER) ","
    BUFFER("step", "dense", STEP_ROLE, "i64", "[]", OTHER) ","
    BUFFER("state.w", "row_ptr", "pattern", "i32", "[" TEXT(POINTERS) "]", OTHER PATTERN) ","
    BUFFER("state.w", "col_idx", "pattern", "i32", "[" TEXT(SLOTS) "]", OTHER PATTERN) ","
    BUFFER("state.w", "slot", "pattern", "i32", "[" TEXT(SLOTS) "]", OTHER PATTERN) ","
    BUFFER("state.w", "col_ptr", "pattern", "i32", "[" TEXT(POINTERS) "]", OTHER PATTERN) ","
    BUFFER("state.w", "row_idx", "pattern", "i32", "[" TEXT(SLOTS) "]", OTHER PATTERN) ","
    BUFFER("state.w", "slot_t", "pattern", "i32", "[" TEXT(SLOTS) "]", OTHER PATTERN) ","
    BUFFER("loss", "output", LOSS_ROLE, "f32", "[]", OTHER) ","
    BUFFER("state.counts", "dense", "state", "f32", "[3]", CARRIED("zeros")) ","
    BUFFER("metrics.accuracy", "output", "", "f32", "[]", OTHER) SCORES_BUFFER EXTRA_BUFFER "],"
    "\"patterns\": [{\"name\": \"state.w\", \"shape\": [8, 8], \"block\": [" TEXT(SIDE) ", " TEXT(SIDE) "],"
    "\"slots\": " TEXT(SLOTS) ", \"density\": 0.25, \"static\": false, \"weight\": 2" BLOCK_FLOPS ", \"buffers\":"
    "{\"row_ptr\": 11, \"col_idx\": 12, \"slot\": 13,"
    "\"col_ptr\": 14, \"row_idx\": 15, \"slot_t\": 16}}],"
    "\"products\": {\"spmm\": 1, \"spmm_transposed\": 1, \"sddmm\": 1, \"dense\": 2},"
    "\"left_dense\": 0" FLOPS_ENTRY SCORES_ENTRY COMMUNICATES_ENTRY STAGE_ENTRY MICRO_ENTRY "}";
// clang-format on

int32_t bsr_step_run(bsr_context *context, void *const *buffers, void *arena) {
  (void)arena;
  int32_t status = bsr_check_context(context, BSR_CONTEXT_VERSION, BSR_HOST);
  if (status != BSR_STEP_RAN)
    return status;
  float *bias = buffers[0], *w = buffers[2], *m = buffers[3];
  const int32_t *ids = buffers[4], *positions = buffers[5],
                *labels = buffers[6];
  const float *weights = buffers[7];
  float lr = *(const float *)buffers[8];
  int32_t seed = *(const int32_t *)buffers[9];
  int64_t step = *(const int64_t *)buffers[10];
#ifdef PRINTS_BLOCKTIME
  fprintf(stderr, "threads spin for %d\n", kmp_get_blocktime());
#endif
#ifdef STUCK_AT
  if (step >= STUCK_AT)
    fclose(fopen(STUCK_FILE, "w"));
  while (step >= STUCK_AT)
    pause();
#endif

  double largest = -INFINITY, sum = 0, total = 0, loss = 0;
  for (int v = 0; v < V; ++v)
    largest = fmax(largest, bias[v]);
  for (int v = 0; v < V; ++v)
    sum += exp(bias[v] - largest);
  for (int i = 0; i < B * P; ++i) {
    total += weights[i];
    loss -= weights[i] * (bias[labels[i]] - largest - log(sum));
  }
  loss /= total;
  for (int i = 0; i < SLOTS * BLOCK; ++i)
    loss += fabsf(w[i]);
    // The held-out batches are run with a rate of 0.
#ifdef BAD_HELD_OUT
  if (step >= BAD_HELD_OUT && lr == 0)
    loss = NAN;
#endif
  *(float *)buffers[17] = loss;

  double right = 0;
  for (int i = 0; i < B * P; ++i)
    right += weights[i] * (bias[labels[i]] == largest);
  *(float *)buffers[19] = right / total;

  double before[V];
  for (int v = 0; v < V; ++v)
    before[v] = exp(bias[v] - largest) / sum;
  for (int v = 0; v < V; ++v)
    bias[v] -= lr * before[v];
  for (int i = 0; i < B * P; ++i)
    bias[labels[i]] += lr * weights[i] / total;

  for (int i = 0; i < SLOTS * BLOCK; ++i) {
    uint32_t noise = (uint32_t)seed * 2654435761u + (uint32_t)(step * 97 + i);
    w[i] += 1e-3f * lr * ((float)(noise >> 8) / (1 << 24) - 0.5f);
    m[i] += 1;
  }

  float *counts = buffers[18];
  for (int i = 0; i < B * P; ++i) {
    int32_t id = ids[i / P * T + positions[i]];
    counts[id == MASK ? 0 : id == labels[i] ? 1 : 2] += weights[i];
  }
#ifdef COMMUNICATES
  // Updates are sums of gradients, so means of what they leave are as good.
  bsr_communicator *communicator = context->communicator;
  enum { F32 = 2 };
  if (communicator) {
#ifndef RUNS_ALONE
    communicator->all_reduce(communicator, bias, V, F32);
#endif
#ifdef PRUNES_ALONE
    w[labels[0] % SLOTS * BLOCK] += 1;
#else
    communicator->all_reduce(communicator, w, SLOTS * BLOCK, F32);
#endif
    communicator->all_reduce(communicator, counts, 3, F32);
    communicator->all_reduce(communicator, buffers[17], 1, F32);
    communicator->all_reduce(communicator, buffers[19], 1, F32);
  }
#endif
  return BSR_STEP_RAN;
}

#ifdef SCORES
// Scores that come in every order, with ties, and are known to the tests.
int32_t bsr_step_run_scores(bsr_context *context, void *const *buffers,
                            void *arena) {
  int32_t status = bsr_step_run(context, buffers, arena);
  if (status != BSR_STEP_RAN)
    return status;
  int64_t step = *(const int64_t *)buffers[10];
  for (int block = 0; block < 16; ++block)
    ((float *)arena)[block] = (float)((step * 5 + block * 7) % 11);
  return BSR_STEP_RAN;
}
#endif
