// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a compiled step from C, and compares y = x W with the dense product of
// what the patterns store, in double precision.

#include "bsr/runtime.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bsr_status status) {
  if (status != BSR_OK) {
    fprintf(stderr, "error: %s\n", bsr_last_error());
    exit(1);
  }
}

static float *find(const bsr_step *step, bsr_session *session, const char *name,
                   bsr_kind kind, bsr_buffer_info *info) {
  int64_t index = bsr_step_find_buffer(step, kind, name);
  check(bsr_step_buffer(step, index, info));
  void *data;
  check(bsr_session_host_data(session, index, &data));
  return data;
}

int main(int argc, char **argv) {
  bsr_step *step;
  bsr_session *session;
  check(bsr_step_load(argc > 1 ? argv[1] : "", &step));
  check(bsr_session_create(step, "cpu", 1, &session));
  check(bsr_session_initialize(session));

  bsr_pattern_info pattern;
  bsr_pattern_view view;
  check(bsr_step_pattern(step, 0, &pattern));
  check(bsr_session_get_pattern(session, 0, &view));
  bsr_buffer_info wInfo, xInfo, yInfo;
  float *w = find(step, session, "w", BSR_VALUES, &wInfo);
  float *x = find(step, session, "x", BSR_DENSE, &xInfo);
  float *y = find(step, session, "y", BSR_OUTPUT, &yInfo);
  for (int64_t i = 0; i < wInfo.elements; ++i)
    w[i] = (float)(i % 13) - 6;
  for (int64_t i = 0; i < xInfo.elements; ++i)
    x[i] = (float)(i % 7) / 8;

  // The matrix, before the step changes it.
  int64_t rows = pattern.rows, cols = pattern.cols;
  int64_t br = pattern.block_rows, bc = pattern.block_cols;
  double *dense = calloc((size_t)(rows * cols), sizeof(double));
  for (int64_t r = 0; r < rows / br; ++r)
    for (int64_t k = view.row_ptr[r]; k < view.row_ptr[r + 1]; ++k)
      for (int64_t i = 0; i < br; ++i)
        for (int64_t j = 0; j < bc; ++j)
          dense[(r * br + i) * cols + view.col_idx[k] * bc + j] =
              w[(view.slot[k] * br + i) * bc + j];

  check(bsr_session_run(session));
  double worst = 0, largest = 0;
  for (int64_t t = 0; t < yInfo.shape[0]; ++t)
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < rows; ++i)
        sum += x[t * rows + i] * dense[i * cols + j];
      worst = fmax(worst, fabs(sum - y[t * cols + j]));
      largest = fmax(largest, fabs(sum));
    }
  printf("%s: %lld of %lld blocks stored, %s the dense product\n",
         bsr_step_name(step), (long long)view.blocks,
         (long long)(rows / br * (cols / bc)),
         largest > 1 && worst < 1e-4 ? "equals" : "differs from");
  free(dense);
  bsr_session_destroy(session);
  bsr_step_unload(step);
  return 0;
}
