// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses what a run on text predicts.

#include "Task.h"
#include "Batches.h"

using namespace sparse_opt;
using namespace sparse_opt::train;

std::string train::chooseTask(const Session &session, const Config &config) {
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
