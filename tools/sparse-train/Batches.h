// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fills the batch buffers of a step.

#ifndef BSR_TOOLS_SPARSETRAIN_BATCHES_H
#define BSR_TOOLS_SPARSETRAIN_BATCHES_H

#include "Config.h"
#include "Session.h"
#include "Tokens.h"

#include <string_view>

namespace sparse_opt::train {

/// Makes the batches of a run in the buffers of its session. Each is a function
/// of the seed and its number.
class Batches {
public:
  virtual ~Batches() = default;

  /// Makes the micro-batch `micro` of training step `step`. Micro-batches
  /// follow each other, and are together what one batch of all their examples
  /// would be, whether all of them are asked for or not.
  virtual void fillTrain(int64_t step, int64_t micro) = 0;

  /// Makes one of the `count` batches of the held-out loss, always the same.
  virtual void fillHeldOut(int64_t batch, int64_t count) = 0;

  /// Tokens of a batch; where there is no text, examples.
  virtual int64_t tokensPerBatch() const = 0;
};

/// The last word of a dotted path.
inline std::string_view lastWord(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

/// A type and extents in words: "[4, 32] i32".
std::string describe(bsr_type type, const std::vector<int64_t> &shape);

/// The batch buffer whose name ends in `word`, or null.
const Buffer *findBatch(const Session &session, std::string_view word);

/// Fails since the step has no batch buffer whose name ends in `word`; `but`
/// says what else could fill those that it has.
[[noreturn]] void refuseBatch(const Session &session, std::string_view word,
                              std::string_view but = "");

/// Fails unless the step has an embedding for every token, as
/// `config.embedding` names it.
void requireVocabulary(const Session &session, const Tokens &tokens,
                       const Config &config);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_BATCHES_H
