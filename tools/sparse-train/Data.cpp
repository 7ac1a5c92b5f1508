// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what a run learns from.

#include "Data.h"
#include "ArrayBatches.h"
#include "Batch.h"
#include "CausalBatches.h"

using namespace sparse_opt;
using namespace sparse_opt::train;

Data Data::read(const Config &config) {
  Data data;
  if (config.task == "arrays")
    data.arrays = Arrays::read(config.data);
  else
    data.tokens = Tokens::read(config.tokens);
  return data;
}

uint64_t Data::checksum() const {
  return tokens ? tokens->checksum() : arrays->checksum();
}

std::optional<double> Data::unigramEntropy() const {
  return tokens ? std::optional(tokens->unigramEntropy()) : std::nullopt;
}

std::string Data::taskOf(const Session &session, const Config &config) {
  if (!config.task.empty())
    return config.task;
  if (findBatch(session, "positions"))
    return "masked";
  for (const Buffer &buffer : session.buffers())
    if (std::string_view word = lastWord(buffer.name);
        buffer.role == "batch" && word != "ids" && word != "labels")
      refuseBatch(session, "positions",
                  ": text is for ids and maybe labels, or for what masked "
                  "tokens have; other arrays come from configuration key "
                  "'data'");
  return "causal";
}

std::unique_ptr<Batches> Data::batches(Session &session,
                                       const Config &config) const {
  if (arrays)
    return std::make_unique<ArrayBatches>(session, *arrays, config);
  if (config.task == "causal")
    return std::make_unique<CausalBatches>(session, *tokens, config);
  return std::make_unique<Batcher>(session, *tokens, config);
}
