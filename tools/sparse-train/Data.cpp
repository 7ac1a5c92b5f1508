// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what a run learns from.

#include "Data.h"
#include "ArrayBatches.h"
#include "Batch.h"
#include "CausalBatches.h"
#include "support/Error.h"
#include "support/Hash.h"

#include <algorithm>

using namespace sparse_opt;
using namespace sparse_opt::train;

Data Data::read(const Config &config) {
  Data data;
  if (config.task == "arrays")
    for (const auto &[length, path] : config.data.all())
      data.arrays.emplace(length, Arrays::read(path));
  else
    data.tokens = Tokens::read(config.tokens);
  return data;
}

uint64_t Data::checksum() const {
  if (tokens)
    return tokens->checksum();
  if (arrays.size() == 1)
    return arrays.begin()->second.checksum();
  std::string all;
  for (const auto &[length, own] : arrays)
    all += std::to_string(length) + " " + std::to_string(own.checksum()) + "\n";
  return xxh64(all);
}

std::optional<double> Data::unigramEntropy() const {
  return tokens ? std::optional(tokens->unigramEntropy()) : std::nullopt;
}

/// Fails unless batches of `session` are of sequences of `length`: those of
/// text have that many tokens, and of arrays one has a dimension of it, behind
/// that of examples.
static void requireLength(const Session &session, int64_t length, bool isText) {
  std::string shapes;
  for (const Buffer &buffer : session.buffers()) {
    if (buffer.role != "batch" || (isText && lastWord(buffer.name) != "ids"))
      continue;
    auto begin = buffer.shape.begin(), end = buffer.shape.end();
    if (begin != end && std::count(begin + 1, end, length))
      return;
    shapes += (shapes.empty() ? "'" : ", '") + buffer.name + "' " +
              describe(buffer.type, buffer.shape);
  }
  fail("expected the step for length ", length,
       " to have a batch buffer with as many places behind the examples, but "
       "got ",
       shapes.empty() ? "none" : shapes);
}

std::unique_ptr<Batches> Data::batches(Session &session, int64_t length,
                                       const Config &config) const {
  if (length != anyLength)
    requireLength(session, length, tokens.has_value());
  if (!tokens)
    return std::make_unique<ArrayBatches>(session, arrays.at(length), length,
                                          config);
  if (config.task == "causal")
    return std::make_unique<CausalBatches>(session, *tokens, config);
  return std::make_unique<Batcher>(session, *tokens, config);
}
