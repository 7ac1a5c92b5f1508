// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An error whose message is one sentence.

#ifndef BSR_SUPPORT_ERROR_H
#define BSR_SUPPORT_ERROR_H

#include <exception>
#include <sstream>
#include <string>
#include <string_view>

namespace sparse_opt {

/// What failed, of the failures that this library finds. A caller may have more
/// numbers: these are three of the runtime's `bsr_status`.
enum ErrorStatus : int { InvalidArgument = 1, InvalidTensors = 4, IOError = 7 };

/// `text`, UTF-8, with each control character as \xNN: what others have named
/// neither ends a line nor reaches the terminal as a command.
inline std::string printable(std::string_view text) {
  std::string printed;
  for (size_t i = 0; i < text.size(); ++i) {
    auto c = static_cast<unsigned char>(text[i]);
    auto next =
        static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    // U+0080 to U+009F are two bytes.
    bool isSecond = c == 0xC2 && next >= 0x80 && next < 0xA0;
    if (isSecond)
      c = static_cast<unsigned char>(text[++i]);
    if (!isSecond && c >= 0x20 && c != 0x7F) {
      printed += text[i];
      continue;
    }
    constexpr char digits[] = "0123456789abcdef";
    printed += {'\\', 'x', digits[c / 16], digits[c % 16]};
  }
  return printed;
}

/// A failure: one sentence, "expected <thing>, but got <value>".
struct Error : std::exception {
  Error(int status, const std::string &sentence)
      : status(status), sentence(printable(sentence)) {}

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

/// The same without a status.
template <typename... Parts>
[[noreturn]] void fail(std::string_view first, const Parts &...parts) {
  throw Error(InvalidArgument, concatenate(first, parts...));
}

} // namespace sparse_opt

#endif // BSR_SUPPORT_ERROR_H
