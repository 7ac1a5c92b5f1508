// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of configuration keys, and YAML in and out of it.

#include "Config.h"
#include "Support.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <variant>
#include <yaml-cpp/yaml.h>

using namespace bsr;

namespace {
using Integer = int64_t Config::*;
using Number = double Config::*;
using Text = std::string Config::*;
using List = std::vector<std::string> Config::*;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Which values of a key are valid, beside those of its type.
struct Rule {
  /// Limits of an integer or a number, both included.
  double min = 0, max = infinity;
  /// The values of a text, if it has only these.
  std::vector<std::string> choices = {};
  /// True for a text that must not be empty.
  bool required = false;
  /// True for a key that decides no bit of what a run learns and measures, or
  /// names a file that is known by its contents: a resumed run may have another
  /// value.
  bool isFree = false;
};

/// A key of the configuration; a dot separates its section from its name.
struct Key {
  const char *name;
  std::variant<Integer, Number, Text, List> field;
  const char *help;
  Rule rule = {};
};
} // namespace

static const std::vector<Key> &keys() {
  const Rule required = {0, infinity, {}, true, true};
  const Rule positive = {1};
  const Rule freely = {0, infinity, {}, false, true};
  const Rule positiveFreely = {1, infinity, {}, false, true};
  const Rule share = {0, 1};
  static const std::vector<Key> table = {
      {"step", &Config::step,
       "the training step: a compiled step (.so), or its text, which is "
       "compiled first",
       required},
      {"tokens", &Config::tokens,
       "the token file, made by sparse-train tokenize", required},
      {"run", &Config::run, "the folder that the run writes", required},
      {"seed", &Config::seed, "keys every random number of the run"},
      {"steps", &Config::steps, "training steps", positive},
      {"log.every", &Config::logEvery,
       "steps between printed lines where there is no terminal",
       positiveFreely},
      {"embedding", &Config::embedding,
       "the parameter that has one row for every token"},
      {"rate.peak", &Config::ratePeak, "largest learning rate"},
      {"rate.warmup", &Config::rateWarmup,
       "steps in which the rate rises linearly to its peak"},
      {"rate.decay",
       &Config::rateDecay,
       "how the rate falls to zero afterwards",
       {0, 0, {"linear", "cosine", "constant"}}},
      {"masking.fraction", &Config::maskingFraction,
       "share of the tokens to predict", share},
      {"sparsity.every", &Config::sparsityEvery,
       "steps between pattern updates; 0 for none"},
      {"sparsity.drop", &Config::sparsityDrop,
       "largest share of a matrix's blocks that an update replaces", share},
      {"sparsity.schedule",
       &Config::sparsitySchedule,
       "how that share falls to zero",
       {0, 0, {"cosine", "linear", "constant"}}},
      {"sparsity.until", &Config::sparsityUntil,
       "share of training after which patterns stay", share},
      {"held_out.every", &Config::heldOutEvery,
       "steps between held-out losses; 0 for the start and the end only"},
      {"held_out.batches", &Config::heldOutBatches,
       "batches of a held-out loss", positive},
      {"checkpoint.every", &Config::checkpointEvery,
       "steps between checkpoints; 0 for the end only", freely},
      {"checkpoint.keep", &Config::checkpointKeep,
       "checkpoints that are kept, the newest", positiveFreely},
      {"compile.tool", &Config::compileTool,
       "the compiler; by default the sparse-compile beside this program",
       freely},
      {"compile.options", &Config::compileOptions,
       "the compiler's options, a list"},
      {"compile.cache", &Config::compileCache,
       "the folder in which compiled steps are kept", freely},
  };
  return table;
}

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

static const Key &findKey(const std::string &name) {
  const Key *nearest = nullptr;
  size_t distance = std::numeric_limits<size_t>::max();
  for (const Key &key : keys()) {
    if (size_t d = editDistance(name, key.name); d < distance)
      nearest = &key, distance = d;
    if (distance == 0)
      return key;
  }
  fail("expected a configuration key (the nearest is '", nearest->name,
       "'), but got '", name, "'");
}

/// What a value of `key` must be, in words.
static std::string describeValues(const Key &key) {
  std::ostringstream words;
  if (!key.rule.choices.empty()) {
    words << "one of";
    for (const std::string &choice : key.rule.choices)
      words << (&choice == &key.rule.choices.front() ? " " : ", ") << choice;
    return words.str();
  }
  if (std::holds_alternative<Text>(key.field))
    return "a text";
  if (std::holds_alternative<List>(key.field))
    return "a list of texts";
  words << (std::holds_alternative<Integer>(key.field) ? "an integer"
                                                       : "a number");
  if (key.rule.max < infinity)
    words << " from " << key.rule.min << " to " << key.rule.max;
  else
    words << " of at least " << key.rule.min;
  return words.str();
}

/// Reads `node` into a value of type T; false if it is none.
template <typename T>
static bool convert(const YAML::Node &node, T &value) {
  return node.IsScalar() && YAML::convert<T>::decode(node, value);
}

/// Sets the field of `key` to what `node` holds.
static void set(Config &config, const Key &key, const YAML::Node &node) {
  bool valid = std::visit(
      [&](auto field) {
        auto &value = config.*field;
        using T = std::remove_reference_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<T>) {
          return convert(node, value) && value >= key.rule.min &&
                 value <= key.rule.max &&
                 value <= std::numeric_limits<T>::max();
        } else if constexpr (std::is_same_v<T, std::string>) {
          return convert(node, value) &&
                 (key.rule.choices.empty() ||
                  std::count(key.rule.choices.begin(), key.rule.choices.end(),
                             value));
        } else {
          if (!node.IsSequence())
            return false;
          value.clear();
          for (const YAML::Node &item : node)
            if (!convert(item, value.emplace_back()))
              return false;
          return true;
        }
      },
      key.field);
  if (!valid)
    fail("expected configuration key '", key.name, "' to be ",
         describeValues(key), ", but got '", YAML::Dump(node), "'");
}

/// Parses YAML; `what` names its source in the error.
static YAML::Node parse(const std::string &text, const std::string &what) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception &error) {
    fail("expected ", what, " to be YAML, but got: ", error.what());
  }
}

static void readConfigFile(Config &config, const std::string &path) {
  std::string what = "configuration file '" + path + "'";
  YAML::Node root = parse(readFile(path, "configuration file"), what);
  if (!root.IsMap() && !root.IsNull())
    fail("expected ", what, " to map keys to values, but got '",
         YAML::Dump(root), "'");
  for (const auto &entry : root) {
    std::string name = entry.first.Scalar();
    if (!entry.second.IsMap()) {
      set(config, findKey(name), entry.second);
      continue;
    }
    for (const auto &inner : entry.second)
      set(config, findKey(name + "." + inner.first.Scalar()), inner.second);
  }
}

Config bsr::readConfig(const std::string &path,
                       const std::vector<std::string> &settings) {
  Config config;
  if (!path.empty())
    readConfigFile(config, path);
  for (const std::string &setting : settings) {
    size_t equals = setting.find('=');
    if (equals == std::string::npos)
      fail("expected --set key=value, but got '", setting, "'");
    const Key &key = findKey(setting.substr(0, equals));
    set(config, key,
        parse(setting.substr(equals + 1), "value of '" + setting + "'"));
  }
  for (const Key &key : keys())
    if (key.rule.required && (config.*std::get<Text>(key.field)).empty())
      fail("expected configuration key '", key.name,
           "' to have a value, but got none");
  return config;
}

/// Prints the value of `key`, which YAML reads back as it was.
static void emit(YAML::Emitter &out, const Config &config, const Key &key) {
  std::visit(
      [&](auto field) {
        const auto &value = config.*field;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, double>) {
          char text[32]; // the shortest that reads back as `value`
          *std::to_chars(text, std::end(text) - 1, value).ptr = '\0';
          out << text;
        } else if constexpr (std::is_same_v<T, std::string>) {
          out << YAML::DoubleQuoted << value;
        } else {
          out << YAML::Flow << value;
        }
      },
      key.field);
}

std::string bsr::toYAML(const Config &config) {
  YAML::Emitter out;
  std::string section;
  out << YAML::BeginMap;
  for (const Key &key : keys()) {
    std::string name = key.name;
    size_t dot = name.find('.');
    std::string prefix = dot == std::string::npos ? "" : name.substr(0, dot);
    if (prefix != section) {
      if (!section.empty())
        out << YAML::EndMap;
      if (!prefix.empty())
        out << YAML::Key << prefix << YAML::Value << YAML::BeginMap;
      section = prefix;
    }
    out << YAML::Key << name.substr(dot + 1) << YAML::Value;
    emit(out, config, key);
  }
  if (!section.empty())
    out << YAML::EndMap;
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

/// The value of `key` as YAML on one line.
static std::string valueText(const Config &config, const Key &key) {
  YAML::Emitter value;
  value << YAML::Flow;
  emit(value, config, key);
  return value.c_str();
}

std::vector<KeyValue> bsr::decidingValues(const Config &config) {
  std::vector<KeyValue> values;
  for (const Key &key : keys())
    if (!key.rule.isFree)
      values.push_back({key.name, valueText(config, key)});
  return values;
}

std::string bsr::describeConfig() {
  std::ostringstream out;
  Config defaults;
  for (const Key &key : keys()) {
    out << "  " << key.name << ": " << key.help << " (" << describeValues(key);
    if (key.rule.required)
      out << ", required";
    else
      out << ", default " << valueText(defaults, key);
    out << ")\n";
  }
  return out.str();
}
