// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The configuration of a run: what every key means, and where its value comes
// from.

#ifndef BSR_TOOLS_SPARSETRAIN_CONFIG_H
#define BSR_TOOLS_SPARSETRAIN_CONFIG_H

#include "Sparsity.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sparse_opt::train {

/// A training run. The keys, their meaning and limits are in Config.cpp; the
/// defaults are here.
struct Config {
  std::string step;
  /// Empty if it is not given: it is then one of text, which the step's
  /// arrays decide (`Data`).
  std::string task;
  std::string tokens;
  std::string data;
  std::string values;
  std::string run;
  std::string device = "cpu";
  int64_t seed = 0;
  int64_t steps = 1000;
  int64_t accumulate = 1;
  bool shardState = false;
  int64_t logEvery = 10;
  std::string embedding = "state.params.token_embedding";
  /// No key: of a process whose stage need not have the embedding.
  bool isLaterStage = false;

  double ratePeak = 1e-3;
  int64_t rateWarmup = 0;
  std::string rateDecay = "linear";
  bool rateSparsityRule = false;

  double maskingFraction = 0.15;
  bool maskingWholeWords = false;

  Sparsity sparsity;

  int64_t heldOutEvery = 0;
  int64_t heldOutBatches = 8;
  double heldOutShare = 0.05;

  /// Of the integers of arrays, by their names: below which number they lie,
  /// from which on, and which one besides.
  std::map<std::string, double> dataLimits, dataLeast, dataIgnored;

  int64_t checkpointEvery = 0;
  double checkpointMinutes = 10;
  int64_t checkpointKeep = 2;

  std::string compileTool;
  std::vector<std::string> compileOptions;
  std::string compileCache = "cache";

  /// No key: what a user should know of how the keys were read, a sentence
  /// each.
  std::vector<std::string> notes;
};

/// Where the path of a configuration file comes from.
enum class ConfigFile {
  Named,   // the user names it, and knows what it says
  OfFolder // it lies in a run folder, which may be a stranger's
};

/// Reads the YAML file `path` (none if empty), then applies `settings` of the
/// form "key=value" in order, whose values are YAML but for texts, which stand
/// for themselves. Throws `Error` for a key that does not exist, a
/// value of another type or out of range, and a required key without a value.
/// What other programs call a key stands for it where it means the same. Paths
/// of a file that begin with "./" are relative to the folder of the file.
///
/// No file names a program to run. One of a run folder names no machine code
/// either: of a compiled step an error is thrown unless `settings` name it, and
/// for its cache of compiled steps the default stands.
Config readConfig(const std::string &path,
                  const std::vector<std::string> &settings,
                  ConfigFile kind = ConfigFile::Named);

/// Whether the step of `config` is machine code, not text.
bool isCompiled(const Config &config);

/// The configuration as YAML that `readConfig` reads back.
std::string toYAML(const Config &config);

/// A key and its value as YAML on one line.
struct KeyValue {
  std::string key, value;
};

/// The keys that decide what a run learns and measures, in the order of the
/// table: a run that is resumed with other values is another run.
std::vector<KeyValue> decidingValues(const Config &config);

/// One line for every key: its meaning, values and default.
std::string describeConfig();

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_CONFIG_H
