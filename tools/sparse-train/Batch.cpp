// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws text and hides tokens in it.

#include "Batch.h"
#include "support/Error.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace sparse_opt;
using namespace sparse_opt::train;

/// The streams of random numbers.
enum Stream : uint64_t { trainStream, heldOutStream };

/// Tokens that a sequence of pairs has at least: three special ones, and two in
/// each sentence.
static constexpr int64_t shortestPair = 7;

std::string train::describe(bsr_type type, const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "] " + bsr_type_name(type);
}

namespace {
/// What a batch buffer must be; its letters are its extents.
struct Kind {
  const char *word, *extents;
  bsr_type type;
};
constexpr Kind maskedTokens[] = {{"ids", "BT", BSR_I32},
                                 {"positions", "BP", BSR_I32},
                                 {"labels", "BP", BSR_I32},
                                 {"weights", "BP", BSR_F32}};
constexpr Kind sentencePairs[] = {{"segments", "BT", BSR_I32},
                                  {"follows", "B", BSR_I32}};
} // namespace

const Buffer *train::findBatch(const Session &session, std::string_view word) {
  for (const Buffer &buffer : session.buffers())
    if (buffer.role == "batch" && lastWord(buffer.name) == word)
      return &buffer;
  return nullptr;
}

void train::refuseBatch(const Session &session, std::string_view word,
                        std::string_view but) {
  std::string names;
  for (const Buffer &buffer : session.buffers())
    if (buffer.role == "batch")
      names += (names.empty() ? "'" : ", '") + buffer.name + "'";
  fail("expected the step to have a batch buffer '", word, "', but got ",
       names.empty() ? "none" : names, but);
}

/// The batch buffer `kind`. Its extents are those in `known`, by their letters;
/// new ones are added.
static const Buffer &requireBatch(const Session &session, const Kind &kind,
                                  std::map<char, int64_t> &known) {
  const Buffer *buffer = findBatch(session, kind.word);
  if (!buffer)
    refuseBatch(session, kind.word,
                findBatch(session, "positions")
                    ? ""
                    : ": for masked tokens, which --set task=causal or "
                      "task=arrays replaces");
  std::string extents = kind.extents;
  std::string words;
  std::vector<int64_t> expected;
  for (char letter : extents)
    words += (words.empty() ? "[" : ", ") + std::string(1, letter);
  if (buffer->type != kind.type || buffer->shape.size() != extents.size())
    fail("expected batch buffer '", buffer->name, "' to be ", words, "] ",
         bsr_type_name(kind.type), ", but got ",
         describe(buffer->type, buffer->shape));
  for (size_t i = 0; i < extents.size(); ++i)
    expected.push_back(
        known.emplace(extents[i], buffer->shape[i]).first->second);
  if (buffer->shape != expected)
    fail("expected batch buffer '", buffer->name, "' to be ",
         describe(buffer->type, expected), ", but got ",
         describe(buffer->type, buffer->shape));
  return *buffer;
}

template <typename T>
T *Batcher::take(const Buffer &buffer) {
  made.push_back(
      {&buffer, std::vector<char>(size_t(buffer.elements) * sizeof(T))});
  return reinterpret_cast<T *>(made.back().data.data());
}

Batcher::Batcher(Session &session, const Tokens &tokens, const Config &config)
    : session(session), vocabulary(tokens.vocabulary()), train(tokens.train()),
      heldOut(tokens.heldOut()), wordEnds(tokens.wordEnds()),
      wholeWords(config.maskingWholeWords), seed(config.seed),
      stepRandom(seed, trainStream, 0) {
  std::map<char, int64_t> extents;
  auto require = [&](const Kind &kind) -> const Buffer & {
    return requireBatch(session, kind, extents);
  };
  ids = take<int32_t>(require(maskedTokens[0]));
  positions = take<int32_t>(require(maskedTokens[1]));
  labels = take<int32_t>(require(maskedTokens[2]));
  weights = take<float>(require(maskedTokens[3]));
  if (findBatch(session, "segments") || findBatch(session, "follows")) {
    segments = take<int32_t>(require(sentencePairs[0]));
    follows = take<int32_t>(require(sentencePairs[1]));
  }
  batch = extents['B'], length = extents['T'], predictions = extents['P'];
  auto isKnown = [&](std::string_view word) {
    auto has = [&](const Kind &kind) { return kind.word == word; };
    return std::any_of(std::begin(maskedTokens), std::end(maskedTokens), has) ||
           std::any_of(std::begin(sentencePairs), std::end(sentencePairs), has);
  };
  for (const Buffer &buffer : session.buffers())
    if (buffer.role == "batch" && !isKnown(lastWord(buffer.name)))
      fail("expected the step's batch buffers to be ids, positions, labels and "
           "weights, and maybe segments and follows, but got '",
           buffer.name, "'");
  if (segments && length < shortestPair)
    fail("expected sequences of pairs to have at least ", shortestPair,
         " tokens, but got ", length);

  requireVocabulary(session, tokens, config);
  auto checkLength = [&](const Tokens::Part &part, const char *what) {
    if (part.size() < uint64_t(length))
      fail("expected at least ", length, " ", what,
           " tokens, the length of a sequence, but got ", part.size());
  };
  checkLength(train, "training");
  checkLength(heldOut, "held-out");
  if (wholeWords && wordEnds.empty())
    fail("expected a token file that says where words end, which "
         "masking.whole_words needs, but got '",
         config.tokens,
         "' of version 1: make it again with sparse-train "
         "tokenize");

  predicted = std::clamp<int64_t>(std::llround(config.maskingFraction * length),
                                  1, predictions);
}

/// The matrices of the step that have a row for each of `rows` tokens, as an
/// example in a message.
static std::string suggestTables(const Session &session, int64_t rows) {
  std::string names;
  int64_t left = 4;
  for (const Buffer &buffer : session.buffers())
    if (buffer.role == "param" && buffer.shape.size() == 2 &&
        buffer.shape[0] >= rows && left-- > 0)
      names += (names.empty() ? ", such as '" : " or '") + buffer.name + "'";
  return names;
}

void train::requireVocabulary(const Session &session, const Tokens &tokens,
                              const Config &config) {
  const Buffer *table = session.find(config.embedding);
  if (!table && config.isLaterStage)
    return;
  if (!table || table->shape.size() != 2)
    fail("expected configuration key 'embedding' to name a matrix of the step "
         "with a row for each of the ",
         tokens.vocabulary().size, " tokens",
         suggestTables(session, tokens.vocabulary().size), ", but got '",
         config.embedding, "'");
  if (tokens.vocabulary().size > table->shape[0])
    fail("expected a token file with at most ", table->shape[0],
         " tokens, the rows of '", config.embedding,
         "', but got a vocabulary of ", tokens.vocabulary().size);
}

void Batcher::fillTrain(int64_t step, int64_t micro) {
  if (step != madeStep || micro < nextMicro) {
    stepRandom = SplitMix64(seed, trainStream, step);
    madeStep = step;
    nextMicro = 0;
  }
  // How many random numbers a micro-batch takes depends on the text: those of
  // other processes are made, too, and overwritten.
  for (; nextMicro <= micro; ++nextMicro)
    for (int64_t row = 0; row < batch; ++row) {
      uint64_t begin = stepRandom.below(train.size() - length + 1);
      fillSequence(row, train, begin, stepRandom);
    }
  finish("training", step);
}

void Batcher::fillHeldOut(int64_t index, int64_t count) {
  SplitMix64 random(seed, heldOutStream, index);
  uint64_t last = heldOut.size() - length;
  for (int64_t row = 0; row < batch; ++row) {
    // The product may have more than 64 bits.
    using Product = unsigned __int128;
    uint64_t sequence = index * batch + row;
    uint64_t most = std::max<int64_t>(1, count * batch - 1);
    fillSequence(row, heldOut, uint64_t(Product(last) * sequence / most),
                 random);
  }
  finish("held-out", index);
}

void Batcher::finish(const char *part, int64_t index) {
  // If no token of the batch counts, its loss is 0 / 0.
  if (std::none_of(weights, weights + batch * predictions,
                   [](float weight) { return weight != 0; }))
    fail("expected a token to predict in ", part, " batch ", index,
         ", but got special tokens only");
  for (const Made &each : made)
    session.write(*each.buffer, each.data.data());
}

/// Makes a pair of sentences of the text from `begin` on.
void Batcher::fillPair(int64_t row, const Tokens::Part &part, uint64_t begin,
                       SplitMix64 &random) {
  int64_t text = length - 3;
  int64_t first = text / 4 + random.below(text - 2 * (text / 4) + 1);
  follows[row] = random.below(2);
  uint64_t second = follows[row] ? begin + first
                                 : random.below(part.size() - text + first + 1);
  int32_t *rowIds = ids + row * length;
  int32_t *rowSegments = segments + row * length;
  int64_t at = 0;
  auto add = [&](uint32_t id, int32_t segment) {
    rowIds[at] = id;
    rowSegments[at++] = segment;
  };
  add(Vocabulary::first, 0);
  for (int64_t i = 0; i < first; ++i)
    add(part[begin + i], 0);
  add(Vocabulary::separator, 0);
  for (int64_t i = 0; i < text - first; ++i)
    add(part[second + i], 1);
  add(Vocabulary::separator, 1);
}

/// Chooses the tokens to predict one by one.
void Batcher::chooseTokens(const int32_t *rowIds, SplitMix64 &random) {
  for (int64_t i = 0; i < length; ++i)
    if (uint32_t(rowIds[i]) >= vocabulary.firstOrdinary)
      chosen.push_back(i);
  // The first `count` candidates become a random choice of all.
  int64_t count = std::min<int64_t>(predicted, chosen.size());
  for (int64_t i = 0; i < count; ++i)
    std::swap(chosen[i], chosen[i + random.below(chosen.size() - i)]);
  chosen.resize(count);
}

/// Chooses the tokens to predict word by word.
void Batcher::chooseWords(const int32_t *rowIds, SplitMix64 &random) {
  std::vector<std::pair<int32_t, int32_t>> words; // [begin, end)
  for (int32_t i = 0; i < length; ++i) {
    if (uint32_t(rowIds[i]) < vocabulary.firstOrdinary)
      continue;
    bool joins = !words.empty() && words.back().second == i &&
                 wordEnds[rowIds[i]].begins && wordEnds[rowIds[i - 1]].ends;
    if (joins)
      ++words.back().second;
    else
      words.emplace_back(i, i + 1);
  }
  for (size_t i = 0; i < words.size() && int64_t(chosen.size()) < predicted;
       ++i) {
    std::swap(words[i], words[i + random.below(words.size() - i)]);
    auto [begin, end] = words[i];
    if (int64_t(chosen.size()) + end - begin <= predicted)
      for (int32_t place = begin; place < end; ++place)
        chosen.push_back(place);
  }
}

void Batcher::fillSequence(int64_t row, const Tokens::Part &part,
                           uint64_t begin, SplitMix64 &random) {
  int32_t *rowIds = ids + row * length;
  if (segments)
    fillPair(row, part, begin, random);
  else
    for (int64_t i = 0; i < length; ++i)
      rowIds[i] = part[begin + i];

  chosen.clear();
  if (wholeWords)
    chooseWords(rowIds, random);
  else
    chooseTokens(rowIds, random);
  std::sort(chosen.begin(), chosen.end());

  for (int64_t i = 0; i < predictions; ++i) {
    int64_t at = row * predictions + i;
    bool counts = i < int64_t(chosen.size());
    positions[at] = counts ? chosen[i] : 0;
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
