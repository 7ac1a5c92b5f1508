// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stands in for LLVM's OpenMP runtime where kernels are called from a program
// that has threads of its own: PyTorch's are GNU's, and two pools on the same
// cores are in each other's way. The library libbsr_threads.so has the
// functions that kernels call, by GNU's interface, which the runtimes of GNU,
// Intel and LLVM all have.

#ifndef BSR_RUNTIME_THREADS_CALLERSTHREADS_H
#define BSR_RUNTIME_THREADS_CALLERSTHREADS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/// Runs kernels, from the next call on, on the threads of the OpenMP runtime
/// that `library`, of dlopen, is or was linked with. Returns 0 if it has none:
/// kernels then run on the thread that calls them, as before the first call.
int32_t bsr_threads_use(void *library);

/// Sets on how many threads the kernels run that the calling thread calls: with
/// 0, the default, as many as the caller's runtime says.
void omp_set_num_threads(int count);

// What kernels call.

/// A parallel region as LLVM's compiler outlines it: of what is shared, one
/// address.
typedef void (*bsr_region)(int32_t *thread, int32_t *bound, void *shared);

void __kmpc_fork_call(void *location, int32_t count, bsr_region region,
                      void *shared);
int32_t __kmpc_global_thread_num(void *location);
void __kmpc_barrier(void *location, int32_t thread);
void __kmpc_for_static_init_8u(void *location, int32_t thread, int32_t schedule,
                               int32_t *isLast, uint64_t *lower,
                               uint64_t *upper, int64_t *stride, int64_t step,
                               int64_t chunk);
void __kmpc_for_static_fini(void *location, int32_t thread);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif // BSR_RUNTIME_THREADS_CALLERSTHREADS_H
