// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The OpenMP runtime that steps call: how many threads it is asked for, and how
// long these wait for each other before they sleep.

#ifndef BSR_RUNTIME_STEP_OPENMPRUNTIME_H
#define BSR_RUNTIME_STEP_OPENMPRUNTIME_H

namespace sparse_opt {

/// Fails if OMP_NUM_THREADS is nothing that the OpenMP runtime can read, for it
/// ends the process or asks for all memory. It takes numbers of threads, one
/// for each level of nesting.
void requireThreads();

/// Has the threads of the OpenMP runtime that the step in `library` (of dlopen)
/// calls spin for less than a kernel takes, and then sleep.
///
/// LLVM's runtime spins for 200 ms, which is to say always: kernels follow each
/// other sooner. Meanwhile it yields the processor, which on a machine that
/// does other work means to be the last in the queue. A step of 24 ms then
/// takes seconds. Does nothing where the environment says how to wait, or the
/// runtime does not know microseconds, as before LLVM 17.
void limitSpinning(void *library);

} // namespace sparse_opt

#endif // BSR_RUNTIME_STEP_OPENMPRUNTIME_H
