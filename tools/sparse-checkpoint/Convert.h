// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints from and to other forms.

#ifndef BSR_TOOLS_SPARSECHECKPOINT_CONVERT_H
#define BSR_TOOLS_SPARSECHECKPOINT_CONVERT_H

#include "Contents.h"

namespace sparse_opt {

/// Writes every tensor of a checkpoint dense, values with zeros where no block
/// is stored, to `output`; with `patterns`, all that makes it a checkpoint
/// again in addition.
void writeDense(const Contents &contents, bool patterns,
                const std::string &output);

/// How a checkpoint for a step is made of other contents.
struct FitOptions {
  std::string step;
  std::string patterns; // a checkpoint whose patterns are taken, or ""
  double density = -1;  // of the largest blocks; -1 for as many as have slots
  bool initializeMissing = false; // tensors that the contents lack
  bool storeZeros = false;        // in blocks that are stored in part
  uint64_t seed = 0;
};

/// Writes a checkpoint for the step to `output`. A block-sparse matrix keeps
/// exactly the elements it stores; of a dense one, the blocks of the pattern
/// that belongs to it are taken, or else those of the largest L1 norm.
void writeFitted(const Contents &contents, const FitOptions &options,
                 const std::string &output);

} // namespace sparse_opt

#endif // BSR_TOOLS_SPARSECHECKPOINT_CONVERT_H
