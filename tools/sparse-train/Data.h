// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run learns from.

#ifndef BSR_TOOLS_SPARSETRAIN_DATA_H
#define BSR_TOOLS_SPARSETRAIN_DATA_H

#include "Arrays.h"
#include "Batches.h"
#include "Config.h"
#include "Tokens.h"

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
  /// The task of `config`, or, where that says none, the one that the batch
  /// buffers of `session` are for.
  static std::string taskOf(const Session &session, const Config &config);
  /// What fills the batch buffers of `session` with it, for the task.
  std::unique_ptr<Batches> batches(Session &session,
                                   const Config &config) const;

private:
  std::optional<Tokens> tokens;
  std::optional<Arrays> arrays;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_DATA_H
