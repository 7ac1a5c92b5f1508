// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run learns from.

#ifndef BSR_TOOLS_SPARSETRAIN_DATA_H
#define BSR_TOOLS_SPARSETRAIN_DATA_H

#include "Arrays.h"
#include "Batches.h"
#include "Config.h"
#include "Tokens.h"

#include <map>
#include <memory>
#include <optional>

namespace sparse_opt::train {

/// The token file or the arrays of a configuration.
class Data {
public:
  /// Reads them. Throws `Error`.
  static Data read(const Config &config);

  /// Tells this data from other.
  uint64_t checksum() const;
  /// Of text, the entropy of single tokens.
  std::optional<double> unigramEntropy() const;
  /// What fills the batch buffers of `session`, the step for `length`, with it,
  /// for the task. Throws `Error` where its batches are not of that length.
  std::unique_ptr<Batches> batches(Session &session, int64_t length,
                                   const Config &config) const;

private:
  std::optional<Tokens> tokens;
  std::map<int64_t, Arrays> arrays; // by lengths
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_DATA_H
