// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a buffer of a step starts: the text that a step says it in, from the
// dialect's attribute bsr.init to the runtime.

#ifndef BSR_SUPPORT_INITRULE_H
#define BSR_SUPPORT_INITRULE_H

#include "ElementType.h"
#include <optional>
#include <string_view>

namespace sparse_opt {

/// How a buffer starts: "zeros", "ones" and "constant(c)" are constants.
struct InitRule {
  enum Kind { Constant, Normal } kind;
  double argument; // the constant, or the standard deviation
};

/// Parses `zeros`, `ones`, `constant(c)` or `normal(s)`: the numbers are finite
/// decimals, and s is not negative. Nothing for any other text.
std::optional<InitRule> parseInitRule(std::string_view text);

/// Whether elements of `type` can start by `rule`: integers by those that the
/// type has, and only floating-point numbers by normal ones.
bool isInitRuleOf(const InitRule &rule, ElementType type);

} // namespace sparse_opt

#endif // BSR_SUPPORT_INITRULE_H
