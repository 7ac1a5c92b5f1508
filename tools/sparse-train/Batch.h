// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Masked-language-model batches (Devlin et al., "BERT: Pre-training of Deep
// Bidirectional Transformers for Language Understanding", 2019).

#ifndef BSR_TOOLS_SPARSETRAIN_BATCH_H
#define BSR_TOOLS_SPARSETRAIN_BATCH_H

#include "Batches.h"
#include "Config.h"
#include "Tokens.h"
#include "support/Random.h"

namespace sparse_opt::train {

/// Fills the batch buffers of a step, which it finds by the last word of their
/// names:
///
///     ids        [B, T] i32   the text, with some tokens hidden
///     positions  [B, P] i32   where in its sequence a token is to be predicted
///     labels     [B, P] i32   that token
///     weights    [B, P] f32   1, or 0 for a prediction that does not count
///
/// Of each sequence `masking.fraction` * T tokens are to be predicted, at most
/// P and at least 1; of those, 80 % are hidden by the mask, 10 % replaced by a
/// random token and 10 % left as they are. Special tokens are left alone. With
/// `masking.whole_words`, words are drawn until there are as many tokens, and
/// passed over where they have too many; if all have, there is nothing to
/// predict.
///
/// A step that has these buffers too gets pairs of sentences, both or none:
///
///     segments   [B, T] i32   0 for the first sentence, 1 for the second
///     follows    [B]    i32   1 if the second follows the first in the text
///
/// A sequence is then [first] a [separator] b [separator], where a has
/// between a quarter and three quarters of the text; b follows a in one half of
/// the sequences, and is from anywhere in the other.
class Batcher : public Batches {
public:
  /// Throws `Error` if the batch buffers of the step are not those above, or
  /// if `tokens` holds ids for which the step has no embedding, too few tokens
  /// for a sequence, or no words where whole ones are to be predicted.
  Batcher(Session &session, const Tokens &tokens, const Config &config);

  /// Text from anywhere.
  void fillTrain(int64_t step, int64_t micro) override;

  /// Text that is spread evenly over the part held out.
  void fillHeldOut(int64_t batch, int64_t count) override;

  int64_t tokensPerBatch() const override { return batch * length; }

private:
  /// Makes room for the batch buffer `word`, whose elements are of type `T`.
  template <typename T>
  T *take(const Buffer &buffer);
  /// Checks the batch that was made, and writes it to the session.
  void finish(const char *part, int64_t index);
  void fillSequence(int64_t row, const Tokens::Part &part, uint64_t begin,
                    SplitMix64 &random);
  void fillPair(int64_t row, const Tokens::Part &part, uint64_t begin,
                SplitMix64 &random);
  void chooseTokens(const int32_t *rowIds, SplitMix64 &random);
  void chooseWords(const int32_t *rowIds, SplitMix64 &random);

  /// A buffer of the step, and the memory in which batches of it are made.
  struct Made {
    const Buffer *buffer;
    std::vector<char> data;
  };

  Session &session;
  std::vector<Made> made;
  Vocabulary vocabulary;
  Tokens::Part train, heldOut;
  /// Of each id, how it joins others to words.
  std::vector<WordEnds> wordEnds;
  bool wholeWords;
  uint64_t seed;
  /// Of the step whose micro-batches are being made.
  SplitMix64 stepRandom;
  int64_t madeStep = -1, nextMicro = 0;
  /// B, T, P, and how many of P are predicted.
  int64_t batch, length, predictions, predicted;
  int32_t *ids, *positions, *labels;
  float *weights;
  int32_t *segments = nullptr, *follows = nullptr; // null without pairs
  /// The places of a sequence that are to be predicted, in order.
  std::vector<int32_t> chosen;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_BATCH_H
