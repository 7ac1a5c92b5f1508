// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs kernels on the threads of the caller's OpenMP runtime.

#include "CallersThreads.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/// A region and what it is called with.
typedef struct Team {
  bsr_region region;
  void *shared;
} Team;

static struct {
  void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
  void (*barrier)(void);
  int (*threadNum)(void);
  int (*numThreads)(void);
} runtime;

/// How many threads a region of this thread is on: 0, as many as the runtime
/// says.
static _Thread_local int wanted;

/// The thread within its team, and the size of that.
static _Thread_local int32_t place, size = 1;

int32_t bsr_threads_use(void *library) {
  *(void **)&runtime.parallel = dlsym(library, "GOMP_parallel");
  *(void **)&runtime.barrier = dlsym(library, "GOMP_barrier");
  *(void **)&runtime.threadNum = dlsym(library, "omp_get_thread_num");
  *(void **)&runtime.numThreads = dlsym(library, "omp_get_num_threads");
  int isWhole = runtime.parallel && runtime.barrier && runtime.threadNum &&
                runtime.numThreads;
  if (!isWhole)
    runtime.parallel = NULL;
  return isWhole;
}

void omp_set_num_threads(int count) { wanted = count; }

static void call(const Team *team, int32_t number, int32_t count) {
  int32_t outerPlace = place, outerSize = size;
  int32_t bound = 0;
  place = number;
  size = count;
  team->region(&number, &bound, team->shared);
  place = outerPlace;
  size = outerSize;
}

static void callOnThread(void *team) {
  call(team, runtime.threadNum(), runtime.numThreads());
}

void __kmpc_fork_call(void *location, int32_t count, bsr_region region,
                      void *shared) {
  (void)location;
  if (count > 1) {
    fprintf(stderr,
            "error: expected a parallel region to share one address, but got "
            "%d\n",
            count);
    abort();
  }
  Team team = {region, shared};
  if (!runtime.parallel || wanted == 1)
    call(&team, 0, 1);
  else
    runtime.parallel(callOnThread, &team, (unsigned)wanted, 0);
}

int32_t __kmpc_global_thread_num(void *location) {
  (void)location;
  return place;
}

void __kmpc_barrier(void *location, int32_t thread) {
  (void)location;
  (void)thread;
  if (size > 1)
    runtime.barrier();
}

/// Gives each thread a range of iterations: the first ones one more than the
/// others, where they do not divide. A loop runs from 0 by 1.
void __kmpc_for_static_init_8u(void *location, int32_t thread, int32_t schedule,
                               int32_t *isLast, uint64_t *lower,
                               uint64_t *upper, int64_t *stride, int64_t step,
                               int64_t chunk) {
  (void)location;
  (void)thread;
  (void)schedule;
  (void)step;
  (void)chunk;
  uint64_t trips = *upper - *lower + 1;
  uint64_t share = trips / (uint64_t)size, rest = trips % (uint64_t)size;
  uint64_t number = (uint64_t)place;
  uint64_t begin = number * share + (number < rest ? number : rest);
  uint64_t length = share + (number < rest);
  *isLast = begin + length == trips && length > 0;
  *stride = (int64_t)trips;
  *upper = *lower + begin + length - 1;
  *lower += begin;
}

void __kmpc_for_static_fini(void *location, int32_t thread) {
  (void)location;
  (void)thread;
}
