// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled step written by hand that learns nothing: it copies its batch to
// its state, so that checkpoints show batches. With PAIRS these are pairs of
// sentences; PAIRS is what it calls the label.

#include "bsr/step.h"
#include <string.h>

enum { B = 4, T = 32, P = 8 };

// clang-format off
#define BUFFER(name, role, type, shape, rest)                                  \
  "{\"name\": \"" name "\", \"kind\": \"dense\", \"role\": \"" role "\", \"type\": \"" type \
  "\", \"shape\": " shape ", " rest "}"
#define STATE(name, type, shape)                                               \
  BUFFER("state." name, "state", type, shape, "\"carried\": true, \"init\": \"zeros\"") ","
#define BATCH(name, type, shape)                                               \
  BUFFER("batch." name, "batch", type, shape, "\"carried\": false") ","

#ifdef PAIRS
#define PAIR_STATE STATE("segments", "i32", "[4, 32]") STATE("follows", "i32", "[4]")
#define PAIR_BATCH BATCH("segments", "i32", "[4, 32]") BATCH(PAIRS, "i32", "[4]")
enum { N = 6 };
#else
#define PAIR_STATE
#define PAIR_BATCH
enum { N = 4 };
#endif

const uint32_t bsr_step_abi_version = BSR_STEP_ABI_VERSION;
const char bsr_step_manifest[] =
    "{\"format\": \"bsr-step\", \"version\": 1, \"name\": \"record\","
    "\"target_cpu\": \"any\", \"arena_bytes\": 0, \"buffers\": ["
    STATE("ids", "i32", "[4, 32]") STATE("positions", "i32", "[4, 8]")
    STATE("labels", "i32", "[4, 8]") STATE("weights", "f32", "[4, 8]") PAIR_STATE
    BATCH("ids", "i32", "[4, 32]") BATCH("positions", "i32", "[4, 8]")
    BATCH("labels", "i32", "[4, 8]") BATCH("weights", "f32", "[4, 8]") PAIR_BATCH
    STATE("table", "f32", "[512, 1]")
    "{\"name\": \"loss\", \"kind\": \"output\", \"role\": \"loss\", \"type\": \"f32\","
    "\"shape\": [], \"carried\": false}], \"patterns\": [],"
    "\"products\": {\"dense\": 0}, \"left_dense\": 0}";
// clang-format on

int32_t bsr_step_run(bsr_context *context, void *const *buffers, void *arena) {
  static const int elements[] = {B * T, B * P, B * P, B * P, B * T, B};
  (void)arena;
  int32_t status = bsr_check_context(context, BSR_CONTEXT_VERSION, BSR_HOST);
  if (status != BSR_STEP_RAN)
    return status;
  for (int i = 0; i < N; ++i)
    memcpy(buffers[i], buffers[N + i], 4 * elements[i]);
  *(float *)buffers[2 * N + 1] = 1;
  return BSR_STEP_RAN;
}
