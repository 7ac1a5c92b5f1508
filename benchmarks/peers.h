// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C interface between kernels.py and the libraries that are written in C
// and C++.

#ifndef BSR_BENCHMARKS_PEERS_H
#define BSR_BENCHMARKS_PEERS_H

#include <stdint.h>

#define BSR_API __attribute__((visibility("default")))

extern "C" {

/// A product with a block-sparse matrix W [rows, cols] and all that it may
/// read. Blocks lie row by row; `slot_t` is the place of a block of the column
/// view.
struct Problem {
  int64_t rows, cols, tokens, blockRows, blockCols, blocks;
  const int32_t *rowPtr, *colIdx, *colPtr, *rowIdx, *slotT;
  const float *values; // [blocks, blockRows, blockCols]
  const float *dense;  // W, zeros included
  // Inputs and output gradients, token by token and feature by feature.
  const float *x, *xT, *dy, *dyT;
  // The same as bf16; null if the problem is one of f32.
  const uint16_t *dense16, *x16, *dy16;
};

/// How a result lies in memory.
enum Layout : int32_t {
  TokenMajor = 0,       // [tokens, features]
  FeatureMajor = 1,     // [features, tokens]
  Blocks = 2,           // [blocks, blockRows, blockCols]
  BlocksTransposed = 3, // [blocks, blockCols, blockRows]
  Matrix = 4            // [rows, cols]
};

/// Prepares implementation `impl` of `op` ("spmm", "spmm_transposed", "sddmm");
/// null if there is none, or none for this problem. The problem must outlive
/// it.
BSR_API void *bsr_peer_create(const char *impl, const char *op,
                              const Problem *problem);
BSR_API void bsr_peer_run(void *peer);
BSR_API const void *bsr_peer_result(void *peer, int32_t *layout,
                                    int32_t *isBF16);
BSR_API void bsr_peer_destroy(void *peer);

/// The names of the implementations, one a line.
BSR_API const char *bsr_peers(void);

/// The floating-point operations per second of `threads` threads that do
/// nothing but fused multiplications and additions in f32 vectors.
BSR_API double bsr_measure_peak(int32_t threads);
}

#endif // BSR_BENCHMARKS_PEERS_H
