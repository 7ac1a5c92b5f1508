// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a step when it is given as text.

#ifndef BSR_TOOLS_SPARSETRAIN_COMPILE_H
#define BSR_TOOLS_SPARSETRAIN_COMPILE_H

#include "Config.h"

namespace sparse_opt::train {

/// Returns the path of the compiled step of `config`. A step that is text is
/// compiled for `target`, "cpu" or a GPU's chip, with `config.compileTool`
/// unless the cache has the result of the same compiler, options and text for
/// this processor already.
std::string compileStep(const Config &config, const std::string &target);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_COMPILE_H
