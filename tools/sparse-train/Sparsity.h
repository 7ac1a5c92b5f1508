// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The section `sparsity` of a configuration: groups of weights, and by what
// rule the patterns of each begin and change. docs/sparsity.md is about it.

#ifndef BSR_TOOLS_SPARSETRAIN_SPARSITY_H
#define BSR_TOOLS_SPARSETRAIN_SPARSITY_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace YAML {
class Emitter;
class Node;
} // namespace YAML

namespace bsr::train {

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

  /// No keys: whether the configuration says what method, and when.
  bool saysMethod = false, saysWhen = false;
};

/// Reads the section: the keys of one group, or a list of groups.
void readSparsity(std::vector<SparsityGroup> &groups, const YAML::Node &node);

/// Sets key `name` of every group, which the error calls "sparsity.<name>".
void setSparsity(std::vector<SparsityGroup> &groups, const std::string &name,
                 const YAML::Node &node);

/// Whether the key that `name` stands for has a text.
bool isSparsityText(const std::string &name);

/// Fails where the values of a group do not go together.
void checkSparsity(const std::vector<SparsityGroup> &groups);

/// Prints the section so that `readSparsity` reads it back.
void emitSparsity(YAML::Emitter &out, const std::vector<SparsityGroup> &groups);

/// Whether `expression`, a regular one, matches a part of `name`. Throws
/// `std::regex_error` if it is none.
bool matches(const std::string &expression, const std::string &name);

/// What group `index` is called in messages: "sparsity", or one of a list.
std::string groupName(const std::vector<SparsityGroup> &groups, size_t index);

/// All names of keys, with "sparsity." in front.
std::vector<std::string> sparsityNames();

/// The name and the value of every key of every group.
std::vector<std::pair<std::string, std::string>>
sparsityValues(const std::vector<SparsityGroup> &groups);

/// One line for every key.
std::string describeSparsity();

} // namespace bsr::train

#endif // BSR_TOOLS_SPARSETRAIN_SPARSITY_H
