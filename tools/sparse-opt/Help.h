// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What sparse-opt --help prints.

#ifndef BSR_TOOLS_SPARSEOPT_HELP_H
#define BSR_TOOLS_SPARSEOPT_HELP_H

namespace tools {

/// Whether `--help` is among the arguments.
bool asksForHelp(int argc, char **argv);

/// Prints how sparse-opt is called, its pipelines, and its passes by stage, in
/// the order in which pipelines run them. All are registered.
void printHelp();

} // namespace tools

#endif // BSR_TOOLS_SPARSEOPT_HELP_H
