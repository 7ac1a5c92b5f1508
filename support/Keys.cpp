// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the key that a user may have meant.

#include "Keys.h"

using namespace bsr;

/// Number of insertions, deletions and replacements from `a` to `b`.
static size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j)
      diagonal =
          std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1,
                                          diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row.back();
}

/// The most characters of a text in a message.
static constexpr size_t longest = 200;

std::string bsr::excerpt(const std::string &text) {
  return text.size() > longest ? text.substr(0, longest) + "..." : text;
}

std::string bsr::numberText(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

void bsr::refuseKey(const std::string &name,
                    const std::vector<std::string> &known,
                    const std::map<std::string, std::string> &others) {
  std::string start = name.substr(0, longest);
  auto other = others.find(start);
  if (other != others.end() &&
      std::count(known.begin(), known.end(), other->second))
    start = other->second;
  auto nearest =
      std::min_element(known.begin(), known.end(),
                       [&](const std::string &a, const std::string &b) {
                         return editDistance(start, a) < editDistance(start, b);
                       });
  fail("expected a configuration key (the nearest is '", *nearest,
       "'), but got '", excerpt(name), "'");
}
