// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the keys that a user may have meant.

#include "Keys.h"

using namespace sparse_opt;

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

std::string sparse_opt::excerpt(const std::string &text) {
  return text.size() > longest ? text.substr(0, longest) + "..." : text;
}

std::string sparse_opt::numberText(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

std::vector<std::string>
sparse_opt::nearestFirst(const std::string &name,
                         const std::vector<std::string> &names) {
  std::multimap<size_t, std::string> byDistance; // equal ones stay in order
  for (const std::string &each : names)
    byDistance.emplace(editDistance(name.substr(0, longest), each), each);
  std::vector<std::string> sorted;
  for (const auto &[distance, each] : byDistance)
    sorted.push_back(each);
  return sorted;
}

void sparse_opt::refuseKey(const std::string &name,
                           const std::vector<std::string> &known) {
  constexpr size_t most = 3;
  std::string start = name.substr(0, longest);
  std::vector<std::string> names = nearestFirst(name, known);
  size_t least = editDistance(start, names.front()), count = 1;
  while (count < std::min(most, names.size()) &&
         editDistance(start, names[count]) <= least + 1)
    ++count;
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += (i ? ", '" : "'") + names[i] + "'";
  fail("expected a configuration key (the nearest ", count > 1 ? "are " : "is ",
       text, "), but got '", excerpt(name), "'");
}
