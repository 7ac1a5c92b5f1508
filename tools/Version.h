// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every tool says of itself.

#ifndef BSR_TOOLS_VERSION_H
#define BSR_TOOLS_VERSION_H

namespace tools {

/// The version of the project, as "0.1.0".
extern const char *const version;

/// The line that `--version` prints of `tool`: version, and commit if it was
/// built from a repository. Lives as long as the program.
const char *describeVersion(const char *tool);

/// What to do about a crash of `tool`. Lives as long as the program.
const char *describeCrash(const char *tool);

/// Makes a crash print `describeCrash` and the command line, for a tool that
/// has nothing of LLVM.
void reportCrashes(const char *tool, int count, char **words);

} // namespace tools

#endif // BSR_TOOLS_VERSION_H
