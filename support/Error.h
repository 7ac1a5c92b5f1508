// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A failure, told in a sentence.

#ifndef BSR_SUPPORT_ERROR_H
#define BSR_SUPPORT_ERROR_H

#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace bsr {

/// What failed, of the failures that this library finds. A caller may have more
/// numbers: these are three of the runtime's `bsr_status`.
enum ErrorStatus : int { InvalidArgument = 1, InvalidTensors = 4, IOError = 7 };

/// A failure: one sentence, "expected <thing>, but got <value>".
struct Error : std::exception {
  Error(int status, std::string sentence)
      : status(status), sentence(std::move(sentence)) {}

  const char *what() const noexcept override { return sentence.c_str(); }

  int status;
  std::string sentence;
};

/// `parts`, one after the other.
template <typename... Parts>
std::string concatenate(const Parts &...parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws the error whose sentence is `parts`, one after the other.
template <typename... Parts>
[[noreturn]] void fail(int status, const Parts &...parts) {
  throw Error(status, concatenate(parts...));
}

/// The same where nobody asks for a status.
template <typename... Parts>
[[noreturn]] void fail(std::string_view first, const Parts &...parts) {
  throw Error(InvalidArgument, concatenate(first, parts...));
}

} // namespace bsr

#endif // BSR_SUPPORT_ERROR_H
