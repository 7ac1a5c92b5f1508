// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws text and hides tokens in it.

#include "Batch.h"

#include <algorithm>
#include <cmath>

using namespace bsr;

/// The streams of random numbers.
enum Stream : uint64_t { trainStream, heldOutStream };

static std::string describe(bsr_type type, const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "] " + bsr_type_name(type);
}

/// The last word of a dotted path.
static std::string_view lastWord(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

/// Finds the batch buffer whose name ends in `word`.
static Buffer findBatch(const Session &session, std::string_view word,
                        bsr_type type) {
  for (const Buffer &buffer : session.buffers()) {
    if (buffer.role != "batch" || lastWord(buffer.name) != word)
      continue;
    if (buffer.type != type || buffer.shape.size() != 2)
      fail("expected batch buffer '", buffer.name, "' to be [B, ",
           word == "ids" ? "T" : "P", "] ", bsr_type_name(type), ", but got ",
           describe(buffer.type, buffer.shape));
    return buffer;
  }
  fail("expected the step to have a batch buffer '", word, "', but got none");
}

Batcher::Batcher(Session &session, const Tokens &tokens,
                 const std::string &embedding, double fraction, uint64_t seed)
    : vocabulary(tokens.vocabulary()), train(tokens.train()),
      heldOut(tokens.heldOut()), seed(seed) {
  Buffer idsBuffer = findBatch(session, "ids", BSR_I32);
  Buffer positionsBuffer = findBatch(session, "positions", BSR_I32);
  Buffer labelsBuffer = findBatch(session, "labels", BSR_I32);
  Buffer weightsBuffer = findBatch(session, "weights", BSR_F32);
  batch = idsBuffer.shape[0];
  length = idsBuffer.shape[1];
  predictions = positionsBuffer.shape[1];
  std::vector<int64_t> expected = {batch, predictions};
  for (const Buffer *buffer : {&positionsBuffer, &labelsBuffer, &weightsBuffer})
    if (buffer->shape != expected)
      fail("expected batch buffer '", buffer->name, "' to be ",
           describe(buffer->type, expected), ", but got ",
           describe(buffer->type, buffer->shape));
  for (const Buffer &buffer : session.buffers())
    if (std::string_view word = lastWord(buffer.name);
        buffer.role == "batch" && word != "ids" && word != "positions" &&
        word != "labels" && word != "weights")
      fail("expected the step's batch buffers to be ids, positions, labels and "
           "weights, but got '",
           buffer.name, "'");

  const Buffer *table = session.find(embedding);
  if (!table || table->shape.size() != 2)
    fail("expected configuration key 'embedding' to name a matrix of the step, "
         "but got '",
         embedding, "'");
  if (vocabulary.size > table->shape[0])
    fail("expected a token file with at most ", table->shape[0],
         " tokens, the rows of '", embedding, "', but got a vocabulary of ",
         vocabulary.size);
  auto checkLength = [&](const Tokens::Part &part, const char *what) {
    if (part.size() < uint64_t(length))
      fail("expected at least ", length, " ", what,
           " tokens, the length of a sequence, but got ", part.size());
  };
  checkLength(train, "training");
  checkLength(heldOut, "held-out");

  predicted =
      std::clamp<int64_t>(std::llround(fraction * length), 1, predictions);
  ids = static_cast<int32_t *>(idsBuffer.data);
  positions = static_cast<int32_t *>(positionsBuffer.data);
  labels = static_cast<int32_t *>(labelsBuffer.data);
  weights = static_cast<float *>(weightsBuffer.data);
}

void Batcher::fillTrain(int64_t step) {
  Random random(seed, trainStream, step);
  for (int64_t row = 0; row < batch; ++row)
    fillSequence(row, train, random.below(train.size() - length + 1), random);
}

void Batcher::fillHeldOut(int64_t index, int64_t count) {
  Random random(seed, heldOutStream, index);
  uint64_t last = heldOut.size() - length;
  for (int64_t row = 0; row < batch; ++row) {
    int64_t sequence = index * batch + row;
    fillSequence(row, heldOut,
                 last * sequence / std::max<int64_t>(1, count * batch - 1),
                 random);
  }
}

void Batcher::fillSequence(int64_t row, const Tokens::Part &part,
                           uint64_t begin, Random &random) {
  int32_t *rowIds = ids + row * length;
  candidates.clear();
  for (int64_t i = 0; i < length; ++i) {
    rowIds[i] = part[begin + i];
    if (uint32_t(rowIds[i]) >= vocabulary.firstOrdinary)
      candidates.push_back(i);
  }

  // The first `count` candidates become a random choice of all, in order.
  int64_t count = std::min<int64_t>(predicted, candidates.size());
  for (int64_t i = 0; i < count; ++i)
    std::swap(candidates[i],
              candidates[i + random.below(candidates.size() - i)]);
  std::sort(candidates.begin(), candidates.begin() + count);

  for (int64_t i = 0; i < predictions; ++i) {
    int64_t at = row * predictions + i;
    bool counts = i < count;
    positions[at] = counts ? candidates[i] : 0;
    weights[at] = counts;
    int32_t &id = rowIds[positions[at]];
    labels[at] = counts ? id : 0;
    if (!counts)
      continue;
    uint64_t choice = random.below(10);
    if (choice < 8)
      id = vocabulary.mask;
    else if (choice == 8)
      id = vocabulary.firstOrdinary +
           random.below(vocabulary.size - vocabulary.firstOrdinary);
  }
}
