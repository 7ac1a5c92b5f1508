// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a step when it is given as text.

#ifndef BSR_TOOLS_SPARSETRAIN_COMPILE_H
#define BSR_TOOLS_SPARSETRAIN_COMPILE_H

#include "Config.h"

namespace sparse_opt::train {

/// Returns the paths of the compiled steps of `config` by their lengths. Those
/// that are text are compiled for `target`, "cpu" or a GPU's chip, with
/// `config.compileTool`, all at the same time, unless the cache has the result
/// of the same compiler, options and text for this processor already.
std::map<int64_t, std::string> compileSteps(const Config &config,
                                            const std::string &target);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_COMPILE_H
