// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups of weights, each with its rule: docs/sparsity.md.

#ifndef BSR_RUNTIME_PATTERN_SPARSITY_H
#define BSR_RUNTIME_PATTERN_SPARSITY_H

#include "bsr/runtime.h"

#include <map>
#include <string>
#include <vector>

namespace sparse_opt {

/// A group. The keys, their meaning and limits are in Sparsity.cpp; the
/// defaults are here.
struct SparsityGroup {
  std::string match;
  std::string method = "set";

  double density = 0;
  std::string distribution = "uniform";
  std::map<std::string, double> densities;
  double initialDensity = 0;
  std::string init = "random";
  std::string file;
  std::string fanIn = "dense";

  int64_t every = 0;
  int64_t updates = 0;
  int64_t begin = 0;
  int64_t end = 0;
  double until = 0.75;

  double drop = 0.5;
  std::string schedule = "cosine";
  int64_t halfPeriod = 0;
  std::string score = "l1";
  bool allowReturn = false;
  int64_t scoreSteps = 1;

  std::string newValues = "zero";
  double newStd = 0;
  std::string newState = "first";
  std::string newStep = "matrix";
  int64_t newRamp = 0;

  /// No keys: whether a description says what method, and when.
  bool saysMethod = false, saysWhen = false;
};

/// Whether `expression`, a regular one, matches a part of `name`. Throws
/// `std::regex_error` if it is none.
bool matches(const std::string &expression, const std::string &name);

/// The method of `group`.
bsr_method methodOf(const SparsityGroup &group);

/// What group `index` of `count` is called in messages: "sparsity", or one of a
/// list.
std::string groupName(size_t index, size_t count);

} // namespace sparse_opt

struct bsr_sparsity {
  std::vector<sparse_opt::SparsityGroup> groups;
  std::string text, options;
};

#endif // BSR_RUNTIME_PATTERN_SPARSITY_H
