// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Batches of text of which each next token is to be predicted.

#ifndef BSR_TOOLS_SPARSETRAIN_CAUSALBATCHES_H
#define BSR_TOOLS_SPARSETRAIN_CAUSALBATCHES_H

#include "Batches.h"
#include "Config.h"
#include "Tokens.h"

namespace sparse_opt::train {

/// Fills the batch buffers of a step, which it finds by the last word of their
/// names:
///
///     ids        [B, T] i32   text from anywhere, nothing of it hidden
///     labels     [B, T] i32   the token behind each of them
///
/// A step without `labels` predicts the ids behind the first ones itself.
class CausalBatches : public Batches {
public:
  /// Throws `Error` if the batch buffers of the step are others, or if `tokens`
  /// holds ids for which the step has no embedding, or too few tokens.
  CausalBatches(Session &session, const Tokens &tokens, const Config &config);

  void fillTrain(int64_t step, int64_t micro) override;
  void fillHeldOut(int64_t batch, int64_t count) override;
  int64_t tokensPerBatch() const override { return batch * length; }

private:
  void fill(int64_t row, const Tokens::Part &part, uint64_t begin);
  void write();

  Session &session;
  Tokens::Part train, heldOut;
  uint64_t seed;
  int64_t accumulate;
  const Buffer *ids, *labels; // labels may be null
  int64_t batch, length;      // B and T
  std::vector<int32_t> madeIds, madeLabels;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_CAUSALBATCHES_H
