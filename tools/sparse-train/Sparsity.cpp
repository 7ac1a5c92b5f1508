// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of the keys of a group, and the other names that the field has for
// them.

#include "Sparsity.h"
#include "Keys.h"

#include <regex>
#include <set>

using namespace bsr;
using namespace bsr::train;

using Group = SparsityGroup;
using GroupKey = Key<Group>;

static const std::vector<GroupKey> &keys() {
  const KeyRule share = {0, 1};
  const KeyRule methods = {0, 0, {"static", "set", "rigl", "gmp"}};
  static const std::vector<GroupKey> table = {
      {"match", &Group::match,
       "regular expression on the names of weights: the first group that "
       "matches one has it; all by default"},
      {"method", &Group::method,
       "what updates do: nothing; regrow at random; regrow by gradient; only "
       "prune, down to density",
       methods},
      {"density", &Group::density,
       "share of the blocks to store, of gmp at the end; 0 for what the step "
       "was compiled with",
       share},
      {"distribution",
       &Group::distribution,
       "how density is distributed over the weights of the group",
       {0, 0, {"uniform", "erk"}}},
      {"densities", &Group::densities,
       "densities of weights by regular expressions, apart from distribution",
       share},
      {"initial_density", &Group::initialDensity,
       "of gmp, the density to begin with; 0 for what the step was compiled "
       "with",
       share},
      {"init",
       &Group::init,
       "which blocks are stored first: random ones, the largest of dense "
       "weights, those of a file",
       {0, 0, {"random", "largest", "file"}}},
      {"file", &Group::file,
       "of init largest, a safetensors file with the weights under their "
       "names; of file, a pattern file, where {name} stands for the weight's "
       "name"},
      {"every", &Group::every, "steps between pattern updates; 0 for none"},
      {"updates", &Group::updates,
       "instead of every, how many updates, evenly from begin to the end"},
      {"begin", &Group::begin, "steps before which patterns stay"},
      {"end", &Group::end,
       "steps after which patterns stay; 0 for the share until"},
      {"until", &Group::until, "share of training after which patterns stay",
       share},
      {"drop", &Group::drop,
       "largest share of a matrix's blocks that an update replaces", share},
      {"schedule",
       &Group::schedule,
       "how that share falls to zero",
       {0, 0, {"cosine", "linear", "constant"}}},
      {"half_period", &Group::halfPeriod,
       "steps in which it falls to zero; 0 for those to the end"},
      {"score",
       &Group::score,
       "norm of a block that says which are pruned",
       {0, 0, {"l1", "l2", "linf", "mean"}}},
      {"allow_return", &Group::allowReturn,
       "whether an update may regrow a block that it prunes"},
  };
  return table;
}

/// Other names of keys: those of Cerebras' configurations and of JaxPruner.
static const std::map<std::string, const char *> &aliases() {
  static const std::map<std::string, const char *> table = {
      {"algorithm", "method"},
      {"dist_type", "distribution"},
      {"density.type", "distribution"},
      {"density.init", "initial_density"},
      {"density.final", "density"},
      {"init_method", "init"},
      {"init.type", "init"},
      {"init.file", "file"},
      {"drop_fraction", "drop"},
      {"drop_fraction.init", "drop"},
      {"drop_fraction.type", "schedule"},
      {"drop_fraction.half_period", "half_period"},
      {"update.every", "every"},
      {"update.freq", "every"},
      {"update.number", "updates"},
      {"update.begin", "begin"},
      {"update.end", "end"},
      {"update.stop", "end"},
      {"update.until", "until"},
      {"regrow.allow_return", "allow_return"},
  };
  return table;
}

/// The share of blocks that are not stored, instead of the one that are.
static constexpr const char *sparsityAlias = "sparsity";

std::vector<std::string> train::sparsityNames() {
  std::vector<std::string> names;
  for (const GroupKey &key : keys())
    names.push_back(std::string("sparsity.") + key.name);
  for (const auto &[alias, name] : aliases())
    names.push_back("sparsity." + alias);
  names.push_back(std::string("sparsity.") + sparsityAlias);
  return names;
}

/// The key that `name` stands for, or null.
static const GroupKey *resolve(const std::string &name) {
  if (name == sparsityAlias)
    return findKey(keys(), "density");
  auto alias = aliases().find(name);
  return findKey(keys(), alias == aliases().end() ? name : alias->second);
}

/// Sets key `name` of `group`, which is called `where`.
static void set(Group &group, const std::string &where, const std::string &name,
                const YAML::Node &node) {
  const GroupKey *key = resolve(name);
  if (!key)
    refuseKey("sparsity." + name, sparsityNames());
  setKey(group, *key, where + "." + name, node);
  std::string_view own = key->name;
  group.saysMethod |= own == "method";
  group.saysWhen |= own == "every" || own == "updates";
  if (name == sparsityAlias)
    group.density = 1 - group.density;
}

/// Sets the keys of `group`, called `where`, that the map `node` holds under
/// names that begin with `prefix`. `found` has those that were set.
static void readGroup(Group &group, const std::string &where,
                      const std::string &prefix, const YAML::Node &node,
                      std::set<const GroupKey *> &found) {
  for (const auto &entry : node) {
    std::string name = prefix + entry.first.Scalar();
    const GroupKey *key = resolve(name);
    bool takesMap =
        key && std::holds_alternative<std::map<std::string, double> Group::*>(
                   key->field);
    if (entry.second.IsMap() && !takesMap) {
      readGroup(group, where, name + ".", entry.second, found);
      continue;
    }
    set(group, where, name, entry.second);
    if (!found.insert(key).second)
      fail("expected configuration key '", where, ".", key->name,
           "' once, but got '", where, ".", name, "' beside it");
  }
}

void train::readSparsity(std::vector<Group> &groups, const YAML::Node &node) {
  if (!node.IsMap() && !node.IsSequence())
    fail("expected configuration key 'sparsity' to be a map of keys or a list "
         "of such maps, but got '",
         excerpt(node), "'");
  if (node.IsSequence() && !node.size())
    fail("expected configuration key 'sparsity' to have a group, but got none");
  groups.assign(node.IsMap() ? 1 : node.size(), Group());
  for (size_t i = 0; i < groups.size(); ++i) {
    const YAML::Node &own = node.IsMap() ? node : node[i];
    std::string where = groupName(groups, i);
    if (!own.IsMap())
      fail("expected configuration key '", where,
           "' to be a map of keys, but got '", excerpt(own), "'");
    std::set<const GroupKey *> found;
    readGroup(groups[i], where, "", own, found);
  }
}

void train::setSparsity(std::vector<Group> &groups, const std::string &name,
                        const YAML::Node &node) {
  for (Group &group : groups)
    set(group, "sparsity", name, node);
}

bool train::isSparsityText(const std::string &name) {
  const GroupKey *key = resolve(name);
  return key && key->isText();
}

std::string train::groupName(const std::vector<Group> &groups, size_t index) {
  return groups.size() == 1 ? "sparsity"
                            : "sparsity[" + std::to_string(index) + "]";
}

// Without back-references, an expression takes a time that its length and that
// of the name bound; the library's other way takes exponential time for some.
bool train::matches(const std::string &expression, const std::string &name) {
  return std::regex_search(
      name, std::regex(expression, std::regex_constants::ECMAScript |
                                       std::regex_constants::__polynomial));
}

/// Fails unless `text`, the value of `key`, is a regular expression. One that
/// is long may be nested deeper than the library's recursion.
static void requireRegex(const std::string &key, const std::string &text) {
  constexpr size_t longest = 1000;
  if (text.size() > longest)
    fail("expected configuration key '", key,
         "' to hold a regular expression of at most ", longest,
         " bytes, but got one of ", text.size());
  try {
    matches(text, "");
  } catch (const std::regex_error &) {
    fail("expected configuration key '", key,
         "' to hold a regular expression, but got '", text, "'");
  }
}

void train::checkSparsity(const std::vector<Group> &groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group &group = groups[i];
    auto key = [&](const char *name) {
      return groupName(groups, i) + "." + name;
    };
    auto require = [&](bool holds, const char *name, const auto &...rest) {
      if (!holds)
        fail("expected configuration key '", key(name), "' ", rest...);
    };
    requireRegex(key("match"), group.match);
    for (const auto &[expression, density] : group.densities)
      requireRegex(key("densities"), expression);
    require(!group.every || !group.updates, "every", "or '", key("updates"),
            "', but got both");
    require(group.method == "static" || !group.saysMethod || group.saysWhen,
            "every", "or '", key("updates"), "' to have a value for method ",
            group.method, ", but got none");
    require(!group.end || group.end > group.begin, "end", "to be more than '",
            key("begin"), "' ", group.begin, ", but got ", group.end);
    require(group.method != "gmp" || group.density > 0, "density",
            "to have a value for method gmp, but got none");
    require(group.method == "gmp" || group.initialDensity == 0,
            "initial_density", "to be left out for method ", group.method,
            ", but got ", group.initialDensity);
    require(group.init == "random" || !group.file.empty(), "file",
            "to have a value for init ", group.init, ", but got none");
    require(group.init != "random" || group.file.empty(), "init",
            "to be largest or file where there is a file, but got random");
    require(group.distribution == "uniform" || group.density > 0, "density",
            "to have a value to distribute by erk, but got none");
  }
}

void train::emitSparsity(YAML::Emitter &out, const std::vector<Group> &groups) {
  if (groups.size() > 1)
    out << YAML::BeginSeq;
  for (const Group &group : groups) {
    out << YAML::BeginMap;
    for (const GroupKey &key : keys()) {
      out << YAML::Key << key.name << YAML::Value;
      emitKey(out, group, key);
    }
    out << YAML::EndMap;
  }
  if (groups.size() > 1)
    out << YAML::EndSeq;
}

std::vector<std::pair<std::string, std::string>>
train::sparsityValues(const std::vector<Group> &groups) {
  std::vector<std::pair<std::string, std::string>> values;
  for (size_t i = 0; i < groups.size(); ++i)
    for (const GroupKey &key : keys())
      values.push_back(
          {groupName(groups, i) + "." + key.name, valueText(groups[i], key)});
  return values;
}

std::string train::describeSparsity() {
  std::string text;
  for (const GroupKey &key : keys())
    text += describeKey(std::string("sparsity.") + key.name, key);
  return text;
}
