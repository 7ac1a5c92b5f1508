// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The grammar of the rules by which buffers start.

#include "InitRule.h"
#include <charconv>
#include <cmath>

using namespace sparse_opt;

/// The finite number that is all of `text`.
static std::optional<double> parseNumber(std::string_view text) {
  double number;
  const char *end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(number))
    return std::nullopt;
  return number;
}

std::optional<InitRule> sparse_opt::parseInitRule(std::string_view text) {
  if (text == "zeros" || text == "ones")
    return InitRule{InitRule::Constant, double(text == "ones")};
  size_t open = text.find('(');
  if (open == text.npos || text.back() != ')')
    return std::nullopt;
  std::string_view name = text.substr(0, open);
  auto number = parseNumber(text.substr(open + 1, text.size() - open - 2));
  if (number && name == "constant")
    return InitRule{InitRule::Constant, *number};
  if (number && name == "normal" && *number >= 0)
    return InitRule{InitRule::Normal, *number};
  return std::nullopt;
}

bool sparse_opt::isInitRuleOf(const InitRule &rule, ElementType type) {
  if (isFloat(type) || rule.kind == InitRule::Normal)
    return isFloat(type);
  int bits = type == ElementType::I1 ? 1 : int(8 * bytesOf(type));
  double least = isUnsigned(type) ? 0 : -std::ldexp(1, bits - 1);
  double end = std::ldexp(1, isUnsigned(type) ? bits : bits - 1);
  return std::nearbyint(rule.argument) == rule.argument &&
         rule.argument >= least && rule.argument < end;
}
