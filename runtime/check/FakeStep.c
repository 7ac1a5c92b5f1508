// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled step written by hand: SGD with momentum towards nothing. It
// follows the row view, so that it is wrong where the pattern is.

#include "bsr/step.h"

// The macros make steps that are refused: of another interface, for another
// context or device, and one that returns what no step does.
#ifndef ABI_VERSION
#define ABI_VERSION BSR_STEP_ABI_VERSION
#endif
#ifndef CONTEXT_VERSION
#define CONTEXT_VERSION BSR_CONTEXT_VERSION
#endif
#ifndef DEVICE
#define DEVICE BSR_HOST
#endif
#ifndef STATUS
#define STATUS BSR_STEP_RAN
#endif

const uint32_t bsr_step_abi_version = ABI_VERSION;

// Longer than its text: the checks put other manifests in its place.
const char bsr_step_manifest[131072] =
    "{\"format\": \"bsr-step\", \"version\": 1, \"name\": \"fake\","
    " \"target_cpu\": \"any\", \"arena_bytes\": 100,"
    " \"buffers\": ["
    "  {\"name\": \"state.p.w\", \"kind\": \"values\", \"role\": \"param\","
    "   \"type\": \"f32\", \"shape\": [6, 2, 3], \"carried\": true,"
    "   \"pattern\": 0, \"init\": \"normal(0.5)\"},"
    "  {\"name\": \"state.m.w\", \"kind\": \"values\", \"role\": \"state\","
    "   \"type\": \"f32\", \"shape\": [6, 2, 3], \"carried\": true,"
    "   \"pattern\": 0, \"init\": \"zeros\"},"
    "  {\"name\": \"state.p.b\", \"kind\": \"dense\", \"role\": \"param\","
    "   \"type\": \"f32\", \"shape\": [12], \"carried\": true,"
    "   \"init\": \"ones\"},"
    "  {\"name\": \"state.t\", \"kind\": \"dense\", \"role\": \"state\","
    "   \"type\": \"i32\", \"shape\": [], \"carried\": true},"
    "  {\"name\": \"state.flags\", \"kind\": \"dense\", \"role\": \"state\","
    "   \"type\": \"i1\", \"shape\": [3], \"carried\": true,"
    "   \"init\": \"ones\"},"
    "  {\"name\": \"lr\", \"kind\": \"dense\", \"role\": \"lr\","
    "   \"type\": \"f32\", \"shape\": [], \"carried\": false},"
    "  {\"name\": \"state.p.w\", \"kind\": \"row_ptr\", \"role\": \"pattern\","
    "   \"type\": \"i32\", \"shape\": [5], \"carried\": false, \"pattern\": 0},"
    "  {\"name\": \"state.p.w\", \"kind\": \"col_idx\", \"role\": \"pattern\","
    "   \"type\": \"i32\", \"shape\": [6], \"carried\": false, \"pattern\": 0},"
    "  {\"name\": \"state.p.w\", \"kind\": \"slot\", \"role\": \"pattern\","
    "   \"type\": \"i32\", \"shape\": [6], \"carried\": false, \"pattern\": 0},"
    "  {\"name\": \"state.p.w\", \"kind\": \"col_ptr\", \"role\": \"pattern\","
    "   \"type\": \"i32\", \"shape\": [5], \"carried\": false, \"pattern\": 0},"
    "  {\"name\": \"state.p.w\", \"kind\": \"row_idx\", \"role\": \"pattern\","
    "   \"type\": \"i32\", \"shape\": [6], \"carried\": false, \"pattern\": 0},"
    "  {\"name\": \"state.p.w\", \"kind\": \"slot_t\", \"role\": \"pattern\","
    "   \"type\": \"i32\", \"shape\": [6], \"carried\": false, \"pattern\": 0},"
    "  {\"name\": \"loss\", \"kind\": \"output\", \"role\": \"loss\","
    "   \"type\": \"f32\", \"shape\": [], \"carried\": false}],"
    " \"patterns\": ["
    "  {\"name\": \"state.p.w\", \"shape\": [8, 12], \"block\": [2, 3],"
    "   \"slots\": 6, \"density\": 0.375, \"static\": false, \"weight\": 0,"
    "   \"buffers\": {\"row_ptr\": 6, \"col_idx\": 7, \"slot\": 8,"
    "                 \"col_ptr\": 9, \"row_idx\": 10, \"slot_t\": 11}}],"
    " \"products\": {\"spmm\": 1, \"sddmm\": 2}, \"left_dense\": 3}";

// Of manifests that say what a GPU launches: `plan` writes one more than a
// number, `scale` a product of each number with another, a thread each, and
// `sum` adds some to another.
const char bsr_step_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry plan(.param .u64 from, .param .u64 to) {\n"
    ".reg .b64 %a, %b; .reg .f32 %f;\n"
    "ld.param.u64 %a, [from]; ld.param.u64 %b, [to];\n"
    "ld.global.f32 %f, [%a]; add.f32 %f, %f, 0f3F800000;\n"
    "st.global.f32 [%b], %f; ret; }\n"
    ".visible .entry scale(.param .u64 x, .param .u64 by, .param .u64 y) {\n"
    ".reg .b64 %a, %b, %c, %d; .reg .b32 %i; .reg .f32 %f, %g;\n"
    "ld.param.u64 %a, [x]; ld.param.u64 %b, [by]; ld.param.u64 %c, [y];\n"
    "mov.u32 %i, %tid.x; mul.wide.u32 %d, %i, 4;\n"
    "add.s64 %a, %a, %d; add.s64 %c, %c, %d;\n"
    "ld.global.f32 %f, [%a]; ld.global.f32 %g, [%b]; mul.f32 %f, %f, %g;\n"
    "st.global.f32 [%c], %f; ret; }\n"
    ".visible .entry sum(.param .u64 x, .param .u64 to, .param .u32 count) {\n"
    ".reg .b64 %a, %b; .reg .b32 %i; .reg .f32 %f, %g; .reg .pred %p;\n"
    "ld.param.u64 %a, [x]; ld.param.u64 %b, [to]; ld.param.u32 %i, [count];\n"
    "ld.global.f32 %f, [%b];\n"
    "more: ld.global.f32 %g, [%a]; add.f32 %f, %f, %g; add.s64 %a, %a, 4;\n"
    "sub.u32 %i, %i, 1; setp.ne.u32 %p, %i, 0; @%p bra more;\n"
    "st.global.f32 [%b], %f; ret; }\n";

// Counts its runs in front of the scores, which the checks write themselves.
int32_t bsr_step_run_scores(bsr_context *context, void *const *buffers,
                            void *arena) {
  (void)buffers;
  int32_t status = bsr_check_context(context, CONTEXT_VERSION, DEVICE);
  if (status != BSR_STEP_RAN)
    return status;
  ++*(int32_t *)arena;
  return BSR_STEP_RAN;
}

// The step's own timer, one more, and the time between runs.
int64_t bsr_step_timers[3][2];
int64_t bsr_step_trace_events[1 + BSR_STEP_TRACE_EVENTS][2];

int32_t bsr_step_run(bsr_context *context, void *const *buffers, void *arena) {
  int32_t status = bsr_check_context(context, CONTEXT_VERSION, DEVICE);
  if (status != BSR_STEP_RAN)
    return status;
  float *w = buffers[0], *m = buffers[1], *b = buffers[2];
  int32_t *t = buffers[3];
  const float *lr = buffers[5];
  const int32_t *row_ptr = buffers[6], *col_idx = buffers[7];
  const int32_t *slot = buffers[8];
  float *loss = buffers[12];
  float *sum = arena;

  *sum = 0;
  for (int row = 0; row < 4; ++row)
    for (int k = row_ptr[row]; k < row_ptr[row + 1]; ++k)
      for (int i = 6 * slot[k]; i < 6 * slot[k] + 6; ++i) {
        m[i] = 0.9f * m[i] + w[i] + 0.01f * b[3 * col_idx[k]];
        w[i] -= *lr * m[i];
        *sum += w[i] * w[i];
      }
  for (int i = 0; i < 12; ++i)
    b[i] -= *lr * b[i];
  ++*t;
  *loss = *sum;
  for (int i = 0; i < 2; ++i) {
    bsr_step_timers[i][0] += 1000 << i;
    bsr_step_timers[i][1] += 1 + i;
    int64_t *event = bsr_step_trace_events[1 + bsr_step_trace_events[0][0]++ %
                                                   BSR_STEP_TRACE_EVENTS];
    event[0] = i;
    event[1] = bsr_step_trace_events[0][0] * 10;
  }
  return STATUS;
}
