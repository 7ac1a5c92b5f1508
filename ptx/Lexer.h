// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text of PTX to tokens.

#ifndef PTX_LEXER_H
#define PTX_LEXER_H

#include "support/Error.h"
#include <string_view>
#include <vector>

namespace ptx {

struct Token {
  /// A word has letters, digits, `_`, `$`, `%`, `.` and `::`.
  enum Kind : uint8_t { Word, Number, String, Punctuation, End };
  Kind kind;
  int line;
  std::string_view text;

  bool is(std::string_view other) const {
    return kind != String && text == other;
  }
};

/// The tokens of `text`, which must outlive them; the last one is End.
std::vector<Token> tokenize(std::string_view text);

/// Throws `parts` as a sentence, with the line behind it.
template <typename... Parts>
[[noreturn]] void failAt(int line, const Parts &...parts) {
  sparse_opt::fail(sparse_opt::concatenate(parts...), " in line ", line);
}

} // namespace ptx

#endif // PTX_LEXER_H
