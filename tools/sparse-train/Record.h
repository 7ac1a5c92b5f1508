// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The run folder of a loop in another program.

#ifndef BSR_TOOLS_SPARSETRAIN_RECORD_H
#define BSR_TOOLS_SPARSETRAIN_RECORD_H

#include <cstdint>
#include <string>

namespace sparse_opt::train {

/// Writes what a loop measures into the run folder `folder`, which holds no run
/// yet, or, with steps `done`, one that goes on from there. Reads a JSON object
/// from each line of standard input:
///
///     {"config": {...}}    settings, the first line: config.yaml
///     {"step": N, ...}     a step: metrics.jsonl, and its numbers for
///                          TensorBoard
///     {"summary": {...}}   the end: summary.json
///
/// Prints "ready" when the first line is written. Throws `Error` for what is no
/// such line.
void record(const std::string &folder, int64_t done);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_RECORD_H
