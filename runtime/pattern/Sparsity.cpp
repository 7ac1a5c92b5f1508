// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of the keys of a group, and the other names that the field has for
// them.

#include "Sparsity.h"
#include "base/Status.h"
#include "support/Keys.h"

#include <algorithm>
#include <memory>
#include <regex>
#include <set>

using namespace sparse_opt;

using Group = SparsityGroup;
using GroupKey = Key<Group>;

/// The names of methods, in their order.
static const std::vector<std::string> &methodNames() {
  static const std::vector<std::string> names = {"static", "set", "rigl",
                                                 "gmp"};
  return names;
}

static const std::vector<GroupKey> &keys() {
  const KeyRule share = {0, 1};
  const KeyRule methods = {0, 0, methodNames()};
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
       "how density is distributed over the weights of the group: alike; by "
       "the extents of their arrays, or of their matrices; global, of gmp: as "
       "the largest blocks of all of them are",
       {0, 0, {"uniform", "erk", "er", "global"}}},
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
      {"fan_in",
       &Group::fanIn,
       "what the standard deviation of first values is for: all inputs of an "
       "output, or those that are stored, of a matrix whose rows, or whose "
       "columns, are outputs",
       {0, 0, {"dense", "rows", "columns"}}},
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
      {"score_steps",
       &Group::scoreSteps,
       "of rigl, over how many steps in front of an update the norms of "
       "gradients are summed",
       {1, 1 << 16}},
      {"new_values",
       &Group::newValues,
       "first values of a regrown block: zeros, or normal ones",
       {0, 0, {"zero", "random"}}},
      {"new_std", &Group::newStd,
       "standard deviation of random ones; 0 for that of the weight's first "
       "values"},
      {"new_state",
       &Group::newState,
       "what the optimizer keeps of a regrown block: what it began with, the "
       "mean over other blocks of the matrix, or that of the pruned block "
       "whose place in memory it takes",
       {0, 0, {"first", "mean", "kept"}}},
      {"new_step",
       &Group::newStep,
       "whose steps correct the bias of a regrown block's moments: its "
       "matrix's, or those of the block itself; the same in all groups",
       {0, 0, {"matrix", "block"}}},
      {"new_ramp", &Group::newRamp,
       "over how many steps the updates of a regrown block rise to what the "
       "optimizer makes; 0 for no ramp; the same in all groups"},
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
      {"init.fan_in", "fan_in"},
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
      {"regrow.score_steps", "score_steps"},
      {"regrow.values", "new_values"},
      {"regrow.std", "new_std"},
      {"regrow.state", "new_state"},
      {"regrow.step", "new_step"},
      {"regrow.ramp", "new_ramp"},
  };
  return table;
}

/// The share of blocks that are not stored, instead of the one that are.
static constexpr const char *sparsityAlias = "sparsity";

/// What `name` stands for: itself if it is no other name.
static std::string ownName(const std::string &name) {
  if (name == sparsityAlias)
    return "density";
  auto alias = aliases().find(name);
  return alias == aliases().end() ? name : alias->second;
}

/// All names of keys, with "sparsity." in front.
static std::vector<std::string> allNames() {
  std::vector<std::string> names;
  for (const GroupKey &key : keys())
    names.push_back(std::string("sparsity.") + key.name);
  for (const auto &[alias, name] : aliases())
    names.push_back("sparsity." + alias);
  names.push_back(std::string("sparsity.") + sparsityAlias);
  return names;
}

/// Names that others have for a sum of gradients over steps. Norms of the sum
/// are other numbers than the sum of norms, which a step gives.
static bool isSumOfGradients(const std::string &name) {
  return name == "grad_accumulation_n" || name == "gradient_acc";
}

/// The start of `value`, for a message.
static std::string excerptOf(const Json &value) {
  return excerpt(value.is_string()         ? value.get<std::string>()
                 : value.is_number_float() ? numberText(value.get<double>())
                                           : value.dump());
}

/// Reads `value` into a field of type T; false if it is none, or not valid.
template <typename T>
static bool convert(const Json &value, const KeyRule &rule, T &field) {
  bool is = false;
  if constexpr (std::is_same_v<T, int64_t>)
    is = value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX
                                    : value.is_number_integer();
  else if constexpr (std::is_same_v<T, double>)
    is = value.is_number();
  else if constexpr (std::is_same_v<T, bool>)
    is = value.is_boolean();
  else if constexpr (std::is_same_v<T, std::string>)
    is = value.is_string();
  if (is)
    field = value.get<T>();
  return is && isValid(rule, field);
}

template <typename T>
static bool convert(const Json &value, const KeyRule &rule,
                    std::map<std::string, T> &field) {
  field.clear();
  if (!value.is_object())
    return false;
  for (const auto &[name, item] : value.items())
    if (!convert(item, rule, field[name]))
      return false;
  return true;
}

/// No key of a group has a list.
static bool convert(const Json &, const KeyRule &, std::vector<std::string> &) {
  return false;
}

/// Sets `key` of `group`, which is called `name` in the group `where`.
static void set(Group &group, const GroupKey &key, const std::string &where,
                const std::string &name, const Json &value) {
  bool valid = std::visit(
      [&](auto field) { return convert(value, key.rule, group.*field); },
      key.field);
  if (!valid)
    fail("expected configuration key '", where, ".", name, "' to be ",
         describeValues(key), ", but got '", excerptOf(value), "'");
  std::string_view own = key.name;
  group.saysMethod |= own == "method";
  group.saysWhen |= own == "every" || own == "updates";
  if (name == sparsityAlias)
    group.density = 1 - group.density;
}

/// Sets the keys of `group`, called `where`, that the object `value` holds
/// under names that begin with `prefix`. `found` has those that were set.
static void readGroup(Group &group, const std::string &where,
                      const std::string &prefix, const Json &value,
                      std::set<const GroupKey *> &found) {
  if (!value.is_object())
    fail("expected configuration key '", where,
         "' to be a map of keys, but got '", excerptOf(value), "'");
  for (const auto &[member, inner] : value.items()) {
    std::string name = prefix + member;
    const GroupKey *key = findKey(keys(), ownName(name));
    if (inner.is_object() && !(key && key->isMap())) {
      readGroup(group, where, name + ".", inner, found);
      continue;
    }
    if (!key && isSumOfGradients(name))
      fail("expected configuration key '", where,
           ".score_steps', over which the norms of gradients are summed, but "
           "got '",
           where, ".", name,
           "', which sums the gradients: these are dense, and no step stores "
           "them");
    if (!key)
      refuseKey("sparsity." + name, allNames());
    set(group, *key, where, name, inner);
    if (!found.insert(key).second)
      fail("expected configuration key '", where, ".", key->name,
           "' once, but got '", where, ".", name, "' beside it");
  }
}

static std::vector<Group> readGroups(const Json &value) {
  if (!value.is_structured())
    fail("expected configuration key 'sparsity' to be a map of keys or a list "
         "of such maps, but got '",
         excerptOf(value), "'");
  std::vector<Group> groups(value.is_array() ? value.size() : 1);
  for (size_t i = 0; i < groups.size(); ++i) {
    std::set<const GroupKey *> found;
    readGroup(groups[i], groupName(i, groups.size()), "",
              value.is_array() ? value[i] : value, found);
  }
  return groups;
}

/// Sets the keys of `settings`, an array of objects, of every group.
static void change(std::vector<Group> &groups, const Json &settings) {
  if (!settings.is_array())
    fail("expected settings of 'sparsity' to be a list of maps of keys, but "
         "got '",
         excerptOf(settings), "'");
  for (const Json &setting : settings)
    for (Group &group : groups) {
      std::set<const GroupKey *> found;
      readGroup(group, "sparsity", "", setting, found);
    }
}

std::string sparse_opt::groupName(size_t index, size_t count) {
  return count == 1 ? "sparsity" : "sparsity[" + std::to_string(index) + "]";
}

bsr_method sparse_opt::methodOf(const SparsityGroup &group) {
  const std::vector<std::string> &names = methodNames();
  return bsr_method(std::find(names.begin(), names.end(), group.method) -
                    names.begin());
}

// Without back-references, an expression takes a time that its length and that
// of the name bound; the library's other way takes exponential time for some.
bool sparse_opt::matches(const std::string &expression,
                         const std::string &name) {
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

static bool readsScores(const Group &group) {
  return bsr_method_reads_scores(methodOf(group));
}

/// Fails where the values of `group`, called `where`, do not go together.
static void check(const Group &group, const std::string &where) {
  auto key = [&](const char *name) { return where + "." + name; };
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
          "every", "or '", key("updates"),
          "' to have a value beside a method, but got none");
  require(!group.end || group.end > group.begin, "end", "to be more than '",
          key("begin"), "' ", group.begin, ", but got ", group.end);
  require(group.method != "gmp" || group.density > 0, "density",
          "to have a value for method gmp, but got none");
  require(group.method == "gmp" || group.initialDensity == 0, "initial_density",
          "to be left out for another method than gmp, but got ",
          group.initialDensity);
  require(group.init != "file" || !group.file.empty(), "file",
          "to have a value for init file, but got none");
  require(group.init != "random" || group.file.empty(), "init",
          "to be largest or file where there is a file, but got random");
  require(group.init != "largest" || group.fanIn == "dense", "fan_in",
          "to be dense for init largest, whose values are those of dense "
          "weights, but got ",
          group.fanIn);
  require(group.scoreSteps == 1 || readsScores(group), "score_steps",
          "to be 1 for another method than rigl, which alone reads scores, but "
          "got ",
          group.scoreSteps);
  require(group.newStd == 0 || group.newValues == "random", "new_std",
          "to be left out unless new_values is random, but got ", group.newStd);
  require(group.newStep == "matrix" || group.newState == "first", "new_state",
          "to be first beside new_step block, which counts from it, but got ",
          group.newState);
  require(group.newRamp != 1 && group.newRamp <= 1 << 24, "new_ramp",
          "to be 0, or from 2 to ", 1 << 24, ", but got ", group.newRamp);
  require(
      group.distribution != "global" || group.method == "gmp", "distribution",
      "to be uniform, erk or er for another method than gmp, which ranks the "
      "blocks of several weights, but got global");
  require(group.distribution == "uniform" || group.density > 0, "density",
          "to have a value to distribute by ", group.distribution,
          ", but got none");
}

/// Fails unless all of `groups` say the same of what a step has for all of its
/// weights.
static void checkTogether(const std::vector<Group> &groups) {
  auto require = [&](const char *name, auto field) {
    for (size_t i = 1; i < groups.size(); ++i)
      if (groups[i].*field != groups[0].*field)
        fail("expected configuration key '", groupName(i, groups.size()), ".",
             name, "' to be that of sparsity[0], ", groups[0].*field,
             ", since a step has one for all weights, but got ",
             groups[i].*field);
  };
  require("new_step", &Group::newStep);
  require("new_ramp", &Group::newRamp);
}

/// The options as `bsr_sparsity_options` returns them.
static std::string optionsOf(const std::vector<Group> &groups) {
  std::string options;
  auto add = [&](const std::string &option) {
    options += (options.empty() ? "--" : " --") + option;
  };
  if (std::any_of(groups.begin(), groups.end(), readsScores))
    add("score-norm=l1");
  if (groups[0].newStep == "block")
    add("block-steps");
  if (groups[0].newRamp)
    add("block-ramp=" + std::to_string(groups[0].newRamp));
  return options;
}

/// The groups as `bsr_sparsity_text` returns them.
static std::string textOf(const std::vector<Group> &groups) {
  OrderedJson text = OrderedJson::array();
  for (const Group &group : groups) {
    OrderedJson entry;
    for (const GroupKey &key : keys())
      std::visit([&](auto field) { entry[key.name] = group.*field; },
                 key.field);
    text.push_back(std::move(entry));
  }
  return text.dump();
}

/// The keys as `bsr_sparsity_keys` returns them.
static std::string keysText() {
  // As many as there are types of a field, in their order.
  constexpr const char *kinds[] = {"integer", "number", "flag",
                                   "text",    "list",   "map"};
  OrderedJson text = OrderedJson::array();
  for (const GroupKey &key : keys()) {
    OrderedJson others = OrderedJson::array();
    for (const auto &[alias, name] : aliases())
      if (std::string_view(key.name) == name)
        others.push_back(alias);
    if (ownName(sparsityAlias) == key.name)
      others.push_back(sparsityAlias);
    OrderedJson entry = {{"name", key.name},
                         {"aliases", std::move(others)},
                         {"kind", kinds[key.field.index()]},
                         {"values", describeValues(key)},
                         {"choices", key.rule.choices}};
    std::visit([&](auto field) { entry["default"] = Group().*field; },
               key.field);
    entry["help"] = key.help;
    text.push_back(std::move(entry));
  }
  return text.dump();
}

bsr_status bsr_sparsity_create(const char *description, const char *settings,
                               bsr_sparsity **sparsity) {
  return guarded([&] {
    requireArgument(description, "description");
    requireArgument(sparsity, "sparsity");
    auto parse = [](const char *text, const char *where) {
      return parseJson(text, BSR_INVALID_ARGUMENT, where);
    };
    auto made = std::make_unique<bsr_sparsity>();
    made->groups = readGroups(parse(description, "the rules of sparsity"));
    if (settings)
      change(made->groups, parse(settings, "settings of sparsity"));
    for (size_t i = 0; i < made->groups.size(); ++i)
      check(made->groups[i], groupName(i, made->groups.size()));
    if (!made->groups.empty()) {
      checkTogether(made->groups);
      made->options = optionsOf(made->groups);
    }
    made->text = textOf(made->groups);
    *sparsity = made.release();
  });
}

void bsr_sparsity_destroy(bsr_sparsity *sparsity) { delete sparsity; }

const char *bsr_sparsity_text(const bsr_sparsity *sparsity) {
  return sparsity ? sparsity->text.c_str() : "";
}

const char *bsr_sparsity_options(const bsr_sparsity *sparsity) {
  return sparsity ? sparsity->options.c_str() : "";
}

const char *bsr_sparsity_keys(void) {
  static const std::string text = keysText();
  return text.c_str();
}
