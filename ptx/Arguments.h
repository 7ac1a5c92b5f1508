// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arguments of a kernel on a command line.

#ifndef PTX_ARGUMENTS_H
#define PTX_ARGUMENTS_H

#include "Interpreter.h"
#include <string>
#include <vector>

namespace ptx {

extern const char *const argumentHelp;

/// One `--arg`: the bytes of a parameter, and the buffer behind it.
struct Argument {
  std::vector<uint8_t> bytes;
  uint64_t address = 0; ///< of a buffer
  uint64_t count = 0;
  unsigned type = 0; ///< an index of the table of types
  bool printed = false;
};

/// Reads `text`, and makes its buffer in `memory`.
Argument readArgument(const std::string &text, Memory &memory);

/// The values of a buffer after the run, 16 a line.
std::string printArgument(const Argument &argument, unsigned number,
                          const Memory &memory);

/// A hash of the values of a buffer after the run, and of which are known.
std::string printHash(const Argument &argument, unsigned number,
                      const Memory &memory);

/// Writes the bytes of a buffer after the run to the file `argument-<number>`
/// of `folder`. Fails if one is unknown.
void writeArgument(const Argument &argument, unsigned number,
                   const Memory &memory, const std::string &folder);

} // namespace ptx

#endif // PTX_ARGUMENTS_H
