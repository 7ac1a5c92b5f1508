// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the key that a user may have meant.

#include "Keys.h"

using namespace bsr;
using namespace bsr::train;

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

std::string train::excerpt(const std::string &text) {
  return text.size() > longest ? text.substr(0, longest) + "..." : text;
}

std::string train::excerpt(const YAML::Node &node) {
  return excerpt(YAML::Dump(node));
}

/// What other programs call a key.
static const std::map<std::string_view, std::string_view> otherNames = {
    {"lr", "rate.peak"},
    {"learning_rate", "rate.peak"},
    {"scheduler", "rate.decay"},
    {"lr_scheduler_type", "rate.decay"},
    {"warmup_steps", "rate.warmup"},
    {"epochs", "steps"},
    {"num_train_epochs", "steps"},
    {"max_steps", "steps"},
    {"model", "step"},
    {"dataset", "data"},
    {"output", "run"},
    {"output_dir", "run"},
    {"gradient_accumulation_steps", "accumulate"},
    {"logging_steps", "log.every"},
    {"eval_steps", "held_out.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"density", "sparsity.density"},
    {"method", "sparsity.method"}};

void train::refuseKey(const std::string &name,
                      const std::vector<std::string> &known) {
  std::string start = name.substr(0, longest);
  auto other = otherNames.find(start);
  if (other != otherNames.end() &&
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

bool train::parseInteger(const std::string &text, int64_t &value) {
  const char *begin = text.data(), *end = begin + text.size();
  begin += text.size() > 1 && text[0] == '+';
  auto parsed = std::from_chars(begin, end, value);
  bool hasZeros = end - begin > 1 && *begin == '0';
  return parsed.ec == std::errc() && parsed.ptr == end && !hasZeros;
}
