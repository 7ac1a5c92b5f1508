// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run on text predicts: masked tokens, or each next one.

#ifndef BSR_TOOLS_SPARSETRAIN_TASK_H
#define BSR_TOOLS_SPARSETRAIN_TASK_H

#include "Config.h"
#include "Session.h"

namespace sparse_opt::train {

/// The task of `config`, or, where that says none, the one that the batch
/// buffers of `session` are for: "masked" or "causal".
std::string chooseTask(const Session &session, const Config &config);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TASK_H
