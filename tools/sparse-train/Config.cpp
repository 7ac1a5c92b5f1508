// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of configuration keys, and YAML in and out of it.

#include "Config.h"
#include "Files.h"
#include "Keys.h"

#include <functional>

using namespace sparse_opt;
using namespace sparse_opt::train;

using Rule = KeyRule;
using ConfigKey = Key<Config>;

static constexpr double infinity = KeyRule::infinity;

static const std::vector<ConfigKey> &keys() {
  const Rule requiredPath = {0, infinity, {}, true, true, false, true};
  const Rule freePath = {0, infinity, {}, false, true, false, true};
  // Their products are counted with.
  const Rule manySteps = {1, 1e15}, many = {1, 1e6};
  const Rule freely = {0, infinity, {}, false, true};
  const Rule positiveFreely = {1, infinity, {}, false, true};
  const Rule share = {0, 1}, positive = {1, infinity};
  const Rule wholeNumbers = {-0x1p63, 0x1p64}; // of any type
  static const std::vector<ConfigKey> table = {
      {"step", &Config::step,
       "the training step: a compiled step (.so), or its text, which is "
       "compiled first",
       requiredPath},
      {"task",
       &Config::task,
       "what is learned: hidden tokens, the next tokens, or what a data set "
       "of arrays has; by default arrays where there is data, and else what "
       "the step's arrays are for",
       {0, 0, {"masked", "causal", "arrays"}}},
      {"tokens", &Config::tokens,
       "the token file of tasks masked and causal, made by sparse-train "
       "tokenize",
       freePath},
      {"data", &Config::data,
       "the arrays of task arrays: a safetensors file, or a folder of .npy "
       "files",
       freePath},
      {"values", &Config::values,
       "a safetensors file of what arguments of the step begin with, by their "
       "names; the others begin by the step's own rules",
       freePath},
      {"run", &Config::run, "the folder that the run writes", requiredPath},
      {"device", &Config::device,
       "what runs the step and has its buffers: cpu, cuda, cuda:1 and so on, "
       "or "
       "auto, a GPU if there is one that can"},
      {"seed", &Config::seed, "keys every random number of the run"},
      {"steps", &Config::steps, "training steps", manySteps},
      {"accumulate", &Config::accumulate,
       "micro-batches of a training step: more than one needs a step that sums "
       "gradients, with an argument of role 'apply'",
       many},
      {"shard_state", &Config::shardState,
       "let each of several processes keep a share of the optimizer's moments "
       "(ZeRO-1)",
       freely},
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
      {"rate.sparsity_rule", &Config::rateSparsityRule,
       "multiply the rate, that of a dense model, by "
       "exp(1.969 s^2 + 0.2905 s) at the sparsity s of the patterns"},
      {"masking.fraction", &Config::maskingFraction,
       "share of the tokens to predict", share},
      {"masking.whole_words", &Config::maskingWholeWords,
       "predict all tokens of a word or none"},
      {"held_out.every", &Config::heldOutEvery,
       "steps between held-out losses; 0 for the start and the end only"},
      {"held_out.batches", &Config::heldOutBatches,
       "batches of a held-out loss", many},
      {"held_out.share", &Config::heldOutShare,
       "of task arrays, the share of the examples that is held out, the last "
       "ones, where no array is called held_out.<name>",
       share},
      {"limits", &Config::dataLimits,
       "of task arrays, below which number the integers of an array are, by "
       "its name: of labels, the number of classes",
       positive},
      {"least", &Config::dataLeast,
       "of task arrays, the least of the integers of an array, by its name, "
       "where that is not 0",
       wholeNumbers},
      {"ignored", &Config::dataIgnored,
       "of task arrays, an integer of an array that counts as none and may lie "
       "outside of its limits, by its name: of labels, that of ignore_index",
       wholeNumbers},
      {"checkpoint.every", &Config::checkpointEvery,
       "steps between checkpoints; 0 for none but those of checkpoint.minutes "
       "and the end",
       freely},
      {"checkpoint.minutes", &Config::checkpointMinutes,
       "minutes after a checkpoint when the next one is written, if not "
       "before; 0 for none but those of checkpoint.every and the end",
       freely},
      {"checkpoint.keep", &Config::checkpointKeep,
       "checkpoints that are kept, the newest", positiveFreely},
      {"compile.tool",
       &Config::compileTool,
       "the compiler; by default the sparse-compile beside this program. Only "
       "--set may name another",
       {0, infinity, {}, false, true, true}},
      {"compile.options", &Config::compileOptions,
       "the compiler's options, a list"},
      {"compile.cache", &Config::compileCache,
       "the folder in which compiled steps are kept", freePath},
  };
  return table;
}

namespace {
/// What other programs call a key.
struct OtherName {
  const char *name, *key;
  /// What is to be known of `key` where the two do not mean the same.
  const char *difference = nullptr;
};
} // namespace

static constexpr OtherName otherNames[] = {
    {"lr", "rate.peak"},
    {"learning_rate", "rate.peak"},
    {"warmup_steps", "rate.warmup"},
    {"max_steps", "steps"},
    {"output_dir", "run"},
    {"gradient_accumulation_steps", "accumulate"},
    {"logging_steps", "log.every"},
    {"eval_steps", "held_out.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"density", "sparsity.density"},
    {"method", "sparsity.method"},
    {"epochs", "steps", "an epoch is as many as there are batches"},
    {"num_train_epochs", "steps", "an epoch is as many as there are batches"},
    {"batch_size", "accumulate",
     "a batch has the examples that the step was exported for, and a training "
     "step as many batches"},
    {"per_device_train_batch_size", "accumulate",
     "a batch has the examples that the step was exported for, and a training "
     "step as many batches"},
    {"scheduler", "rate.decay", "it is linear, cosine or constant"},
    {"lr_scheduler_type", "rate.decay", "it is linear, cosine or constant"},
    {"warmup", "rate.warmup", "it counts steps"},
    {"warmup_ratio", "rate.warmup", "it counts steps"},
    {"model", "step", "it is a training step, which has its model within"},
    {"dataset", "data", "it is a file or a folder of arrays; a text is tokens"},
    {"output", "run", "it is the folder for all that a run writes"}};

/// The most values of a configuration.
static constexpr int64_t mostValues = 100000;

/// The key that `name` stands for: itself, or what another program calls so.
static std::string ownName(Config &config, const std::string &name) {
  for (const OtherName &other : otherNames) {
    if (name != other.name)
      continue;
    if (other.difference)
      fail("expected configuration key '", other.key, "' (", other.difference,
           "), but got '", name, "'");
    config.notes.push_back("'" + name + "' is read as configuration key '" +
                           other.key + "'");
    return other.key;
  }
  return name;
}

/// Sets the key called `name` to what `node` holds.
static void set(Config &config, const std::string &name,
                const YAML::Node &node) {
  if (Sparsity::owns(name))
    return config.sparsity.set(name, node);
  if (const ConfigKey *key = findKey(keys(), name))
    return setKey(config, *key, name, node);
  std::vector<std::string> known = Sparsity::names();
  for (const ConfigKey &key : keys())
    known.push_back(key.name);
  refuseKey(name, known);
}

/// Whether the key called `name` has a text.
static bool isText(const std::string &name) {
  if (Sparsity::owns(name))
    return Sparsity::isText(name);
  const ConfigKey *key = findKey(keys(), name);
  return key && key->isText();
}

/// Whether the key called `name` has a map.
static bool takesMap(const std::string &name) {
  const ConfigKey *key = findKey(keys(), name);
  return key && key->isMap();
}

/// Fails if `node`, at depth `depth`, is deeper than any configuration, or
/// stands for more values than are `left`: a few aliases stand for any number
/// of them, and one that stands for itself has no end.
static void requireTree(const YAML::Node &node, const std::string &what,
                        int depth, int64_t &left) {
  constexpr int deepest = 32;
  if (depth > deepest || --left < 0)
    fail("expected ", what, " to hold at most ", mostValues,
         " values, nested at most ", deepest, " deep, but got more");
  for (const auto &entry : node) {
    if (!node.IsMap()) {
      requireTree(entry, what, depth + 1, left);
      continue;
    }
    requireTree(entry.first, what, depth + 1, left);
    requireTree(entry.second, what, depth + 1, left);
  }
}

/// Parses YAML; `what` names its source in the error.
static YAML::Node parse(const std::string &text, const std::string &what) {
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1)
      fail("expected ", what, " to be one document of YAML, but got ",
           documents.size());
    YAML::Node root = documents.empty() ? YAML::Node() : documents.front();
    int64_t left = mostValues;
    requireTree(root, what, 0, left);
    return root;
  } catch (const YAML::Exception &error) {
    fail("expected ", what, " to be YAML, but got: ", error.what());
  }
}

static void readConfigFile(Config &config, const std::string &path) {
  std::string what = "configuration file '" + path + "'";
  std::string text = readStream(path, "configuration file");
  if (!isUTF8(text))
    fail("expected ", what, " to be UTF-8, but got other bytes");
  YAML::Node root = parse(text, what);
  if (!root.IsMap() && !root.IsNull())
    fail("expected ", what, " to map keys to values, but got '", excerpt(root),
         "'");
  std::set<std::string> seen;
  auto requireOnce = [&](const std::string &name) {
    if (!seen.insert(name).second)
      fail("expected ", what, " to have each key once, but got '", name,
           "' twice");
  };
  for (const auto &entry : root) {
    std::string name = ownName(config, entry.first.Scalar());
    requireOnce(name);
    if (name == "sparsity")
      config.sparsity.read(entry.second, path);
    else if (!entry.second.IsMap() || takesMap(name))
      set(config, name, entry.second);
    else
      for (const auto &inner : entry.second) {
        std::string key = name + "." + inner.first.Scalar();
        requireOnce(key);
        set(config, key, inner.second);
      }
  }
  for (const ConfigKey &key : keys()) {
    if (!key.rule.isPath)
      continue;
    std::string &value = config.*std::get<std::string Config::*>(key.field);
    value = pathOf(value, path);
  }
}

bool train::isCompiled(const Config &config) {
  constexpr std::string_view ending = ".so";
  const std::string &step = config.step;
  return step.size() > ending.size() &&
         step.compare(step.size() - ending.size(), ending.size(), ending) == 0;
}

/// Fails if the file `path`, which `config` was read from, has what would be
/// run and no setting `isSet` says that it may.
static void refuseCode(Config &config, const std::string &path, ConfigFile kind,
                       const std::function<bool(std::string_view)> &isSet) {
  if (!config.compileTool.empty() && !isSet("compile.tool"))
    fail("expected a program to run to be named by --set compile.tool alone, "
         "but got '",
         excerpt(config.compileTool), "' in configuration file '", path, "'");
  if (kind == ConfigFile::Named)
    return;
  if (isCompiled(config) && !isSet("step"))
    fail("expected --set step=... beside --resume of a folder whose step is "
         "compiled, since that is code to run, but got '",
         excerpt(config.step), "' from '", path, "' alone");
  config.compileCache = Config().compileCache;
}

/// Fails where a key has no value that a run needs: all such keys are named.
static void requireValues(const Config &config) {
  std::vector<std::string> missing;
  for (const ConfigKey &key : keys())
    if (key.rule.required &&
        (config.*std::get<std::string Config::*>(key.field)).empty())
      missing.push_back(std::string("'") + key.name + "'");
  bool hasTokens = !config.tokens.empty(), hasData = !config.data.empty();
  if (config.task.empty() && hasTokens && hasData)
    fail("expected configuration key 'tokens' or 'data' to have a value where "
         "no task says which, but got both");
  if (config.shardState && !config.values.empty())
    fail("expected configuration key 'values' to be left out beside "
         "shard_state, with which no process has the whole state, but got '",
         excerpt(config.values), "'");
  if (config.task.empty() && !hasTokens && !hasData)
    missing.push_back("'tokens' or 'data'");
  if (config.task == "arrays" ? !hasData : !config.task.empty() && !hasTokens)
    missing.push_back(config.task == "arrays" ? "'data'" : "'tokens'");
  if (missing.empty())
    return;
  std::string names = missing.front();
  for (size_t i = 1; i < missing.size(); ++i)
    names += (i + 1 < missing.size() ? ", " : " and ") + missing[i];
  fail("expected configuration key", missing.size() > 1 ? "s " : " ", names,
       " to have a value, but got none");
}

Config train::readConfig(const std::string &path,
                         const std::vector<std::string> &settings,
                         ConfigFile kind) {
  Config config;
  auto isSet = [&](std::string_view name) {
    return std::any_of(settings.begin(), settings.end(), [&](auto &setting) {
      return std::string_view(setting).substr(0, setting.find('=')) == name;
    });
  };
  if (!path.empty()) {
    readConfigFile(config, path);
    refuseCode(config, path, kind, isSet);
  }
  for (const std::string &setting : settings) {
    size_t equals = setting.find('=');
    if (equals == std::string::npos)
      fail("expected --set key=value, but got '", excerpt(setting), "'");
    // A text stands for itself: in YAML a blank and a "#" would end it.
    std::string name = ownName(config, setting.substr(0, equals));
    std::string value = setting.substr(equals + 1);
    set(config, name,
        isText(name) ? YAML::Node(value)
                     : parse(value, "value of '" + excerpt(setting) + "'"));
  }
  config.sparsity.resolve();
  config.sparsity.requireFiles(config.values);
  requireValues(config);
  if (config.task.empty() && !config.data.empty())
    config.task = "arrays";
  return config;
}

std::string train::toYAML(const Config &config) {
  YAML::Emitter out;
  std::string section;
  out << YAML::BeginMap;
  for (const ConfigKey &key : keys()) {
    // A task that is not given has its default.
    bool isTask = key.name == std::string_view("task");
    if (key.rule.isOfCommandLine || (isTask && config.task.empty()))
      continue;
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
    emitKey(out, config, key);
  }
  if (!section.empty())
    out << YAML::EndMap;
  out << YAML::Key << "sparsity" << YAML::Value;
  config.sparsity.emit(out);
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

std::vector<KeyValue> train::decidingValues(const Config &config) {
  std::vector<KeyValue> values;
  for (const ConfigKey &key : keys())
    if (!key.rule.isFree)
      values.push_back({key.name, valueText(config, key)});
  for (const auto &[name, value] : config.sparsity.values())
    values.push_back({name, value});
  return values;
}

std::string train::describeConfig() {
  std::string text;
  for (const ConfigKey &key : keys())
    text += describeKey(key);
  return text + Sparsity::describe();
}
