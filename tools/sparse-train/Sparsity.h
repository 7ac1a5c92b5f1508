// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The section `sparsity` of a configuration, in YAML: groups of weights, and by
// what rule the patterns of each begin and change. The runtime has the rules
// (bsr/sparsity.h); docs/sparsity.md is about them.

#ifndef BSR_TOOLS_SPARSETRAIN_SPARSITY_H
#define BSR_TOOLS_SPARSETRAIN_SPARSITY_H

#include "bsr/runtime.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace YAML {
class Emitter;
class Node;
} // namespace YAML

namespace sparse_opt::train {

/// Names of keys begin with "sparsity." here.
class Sparsity {
public:
  /// One group with the defaults.
  Sparsity() { resolve(); }

  /// Reads the section of the configuration file `path`: the keys of one group,
  /// or a list of groups.
  void read(const YAML::Node &node, const std::string &path);

  /// Sets key `name` of every group.
  void set(const std::string &name, const YAML::Node &node);

  /// Makes rules of what was read and set. Fails where the runtime has none of
  /// that.
  void resolve();

  /// Fails where a group begins with the largest blocks of a file and names
  /// none, and there are no `values` either, the file of first values.
  void requireFiles(const std::string &values) const;

  /// Those of the last `resolve`.
  const bsr_sparsity *rules() const { return made.get(); }

  /// Prints the rules so that `read` reads them back.
  void emit(YAML::Emitter &out) const;

  /// The name and the value of every key of every group.
  std::vector<std::pair<std::string, std::string>> values() const;

  /// Whether `name` is that of a key.
  static bool owns(const std::string &name);

  /// Whether the key that `name` stands for has a text.
  static bool isText(const std::string &name);

  /// All names of keys.
  static std::vector<std::string> names();

  /// One line for every key.
  static std::string describe();

private:
  std::string description = "{}"; ///< JSON
  std::string settings;           ///< objects, a comma between two
  std::shared_ptr<const bsr_sparsity> made;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_SPARSITY_H
