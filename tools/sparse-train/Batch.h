// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Masked-language-model batches (Devlin et al., "BERT: Pre-training of Deep
// Bidirectional Transformers for Language Understanding", 2019).

#ifndef BSR_TOOLS_SPARSETRAIN_BATCH_H
#define BSR_TOOLS_SPARSETRAIN_BATCH_H

#include "Session.h"
#include "Support.h"
#include "Tokens.h"

namespace bsr {

/// Fills the batch buffers of a step, which it finds by the last word of their
/// names:
///
///     ids        [B, T] i32   the text, with some tokens hidden
///     positions  [B, P] i32   where in its sequence a token is to be predicted
///     labels     [B, P] i32   that token
///     weights    [B, P] f32   1, or 0 for a prediction that does not count
///
/// Of each sequence `fraction * T` tokens are to be predicted, at most P and at
/// least 1; of those, 80 % are hidden by the mask, 10 % replaced by a random
/// token and 10 % left as they are. Special tokens are left alone.
class Batcher {
public:
  /// Throws `Error` if the batch buffers of the step are not the four above, or
  /// if `tokens` holds ids for which the step has no embedding, or too few
  /// tokens for a sequence. `embedding` names the parameter whose first
  /// dimension is the step's vocabulary.
  Batcher(Session &session, const Tokens &tokens, const std::string &embedding,
          double fraction, uint64_t seed);

  /// Makes the batch of training step `step`: text from anywhere.
  void fillTrain(int64_t step);

  /// Makes one of the `count` batches of the held-out loss, always the same:
  /// text that is spread evenly over the part held out.
  void fillHeldOut(int64_t batch, int64_t count);

  /// Tokens of a batch.
  int64_t tokensPerBatch() const { return batch * length; }

private:
  void fillSequence(int64_t row, const Tokens::Part &part, uint64_t begin,
                    Random &random);

  Vocabulary vocabulary;
  Tokens::Part train, heldOut;
  uint64_t seed;
  /// B, T, P, and how many of P are predicted.
  int64_t batch, length, predictions, predicted;
  int32_t *ids, *positions, *labels;
  float *weights;
  /// Places of a sequence that may be predicted.
  std::vector<int32_t> candidates;
};

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_BATCH_H
