// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws text whose next tokens are to be predicted.

#include "CausalBatches.h"
#include "support/Error.h"
#include "support/Random.h"

using namespace sparse_opt;
using namespace sparse_opt::train;

/// The stream of the places of sequences; that of masked text is 0.
static constexpr uint64_t placeStream = 4;

CausalBatches::CausalBatches(Session &session, const Tokens &tokens,
                             const Config &config)
    : session(session), train(tokens.train()), heldOut(tokens.heldOut()),
      seed(config.seed), accumulate(config.accumulate),
      ids(findBatch(session, "ids")), labels(findBatch(session, "labels")) {
  if (!ids)
    refuseBatch(session, "ids");
  for (const Buffer *buffer : {ids, labels})
    if (buffer && (buffer->type != BSR_I32 || buffer->shape.size() != 2 ||
                   buffer->shape != ids->shape))
      fail("expected batch buffer '", buffer->name, "' to be ",
           buffer == ids || ids->shape.size() != 2
               ? "[B, T] i32"
               : describe(BSR_I32, ids->shape),
           ", but got ", describe(buffer->type, buffer->shape));
  for (const Buffer &buffer : session.buffers())
    if (buffer.role == "batch" && &buffer != ids && &buffer != labels)
      fail("expected the step's batch buffers to be ids and maybe labels for "
           "task causal, but got '",
           buffer.name, "'");
  batch = ids->shape[0], length = ids->shape[1];
  requireVocabulary(session, tokens, config);
  for (auto [part, what] :
       {std::pair(train, "training"), std::pair(heldOut, "held-out")})
    if (part.size() < uint64_t(length) + 1)
      fail("expected at least ", length + 1, " ", what,
           " tokens, a sequence and the next, but got ", part.size());
  madeIds.resize(size_t(batch * length));
  madeLabels.resize(size_t(batch * length));
}

void CausalBatches::fill(int64_t row, const Tokens::Part &part,
                         uint64_t begin) {
  for (int64_t i = 0; i < length; ++i) {
    madeIds[size_t(row * length + i)] = int32_t(part[begin + uint64_t(i)]);
    madeLabels[size_t(row * length + i)] =
        int32_t(part[begin + uint64_t(i) + 1]);
  }
}

void CausalBatches::write() {
  session.write(*ids, madeIds.data());
  if (labels)
    session.write(*labels, madeLabels.data());
}

void CausalBatches::fillTrain(int64_t step, int64_t micro) {
  SplitMix64 random(seed, placeStream, uint64_t(step * accumulate + micro));
  for (int64_t row = 0; row < batch; ++row)
    fill(row, train, random.below(train.size() - uint64_t(length)));
  write();
}

void CausalBatches::fillHeldOut(int64_t index, int64_t count) {
  uint64_t last = heldOut.size() - uint64_t(length) - 1;
  for (int64_t row = 0; row < batch; ++row) {
    // The product may have more than 64 bits.
    using Product = unsigned __int128;
    auto sequence = uint64_t(index * batch + row);
    auto most = uint64_t(std::max<int64_t>(1, count * batch - 1));
    fill(row, heldOut, uint64_t(Product(last) * sequence / most));
  }
  write();
}
