// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the machine and this process are.

#ifndef BSR_TOOLS_SPARSETRAIN_HOST_H
#define BSR_TOOLS_SPARSETRAIN_HOST_H

#include <cstdint>
#include <nlohmann/json.hpp>

namespace sparse_opt::train {

/// The most memory that this process has held, in bytes.
int64_t peakMemory();

/// What the compiler makes code for by default: the processor, its features,
/// and the sizes of its caches.
std::string identifyProcessor();

/// The threads that a step runs on: OMP_NUM_THREADS, of a list the first, or
/// one for each core that the process may use.
int64_t numThreads();

/// Time, host, system, processor, threads, and the versions of the program.
nlohmann::ordered_json describeHost();

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_HOST_H
