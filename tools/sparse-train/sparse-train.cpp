// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Trains a compiled step on text; makes token files of text.

#include "../StandardStreams.h"
#include "../Version.h"
#include "Config.h"
#include "Ranks.h"
#include "Record.h"
#include "RunFolder.h"
#include "Tokenize.h"
#include "Train.h"
#include "support/Error.h"

#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>

using namespace sparse_opt;
using namespace sparse_opt::train;

static constexpr char usage[] =
    "Trains a compiled step with a sparsity schedule.\n"
    "\n"
    "  sparse-train [--config FILE] [--set KEY=VALUE]... [--timers]\n"
    "               [--trace STEPS] [--resume [--accept-changes] | "
    "--overwrite]\n"
    "               [--print-config | --dry-run]\n"
    "  sparse-train --resume RUN [--accept-changes] [--set KEY=VALUE]...\n"
    "  sparse-train tokenize --output FILE [--vocabulary N] [--held-out "
    "SHARE]\n"
    "                        [--suffix ENDING]... TEXT...\n"
    "  sparse-train record [--done STEPS] RUN\n"
    "  sparse-train --version\n"
    "\n"
    "The first trains; FILE is YAML, and --set overrides it. A run folder "
    "that\n"
    "holds a run already is an error unless --resume goes on from its newest\n"
    "good checkpoint or --overwrite begins again. With the folder RUN alone, "
    "its\n"
    "own configuration is read. A resumed run whose configuration\n"
    "changed says what changed; --accept-changes goes on all the same. "
    "OMP_NUM_THREADS\n"
    "sets the number of threads, which changes no result. --timers compiles "
    "the step with timers "
    "and\n"
    "prints where its time went; --trace also writes trace-RANK.json to the "
    "run folder,\n"
    "when which kernel ran in the STEPS steps behind the first, for Chrome or "
    "Perfetto. --print-config prints the configuration as the run would have "
    "it, and\n"
    "trains nothing. --dry-run compiles the step, runs it on one batch, prints "
    "what is\n"
    "sparse, the memory and the time that it took, and leaves no run folder.\n"
    "\n"
    "The second learns a vocabulary of N tokens (4096) on the TEXT, files and\n"
    "folders, and writes it encoded, a SHARE (0.05) of the documents held "
    "out.\n"
    "From folders it takes the files whose names end in an ENDING. Bytes that "
    "are no\n"
    "UTF-8 become U+FFFD.\n"
    "\n"
    "The third is for loops in other programs (sparse_opt.Recorder): it writes "
    "what\n"
    "these measure, JSON lines on standard input, to the run folder RUN.\n"
    "\n"
    "Keys of the configuration:\n";

namespace {
/// The words of a command line, taken one by one.
class Words {
public:
  Words(int count, char **words) : words(words, words + count) {}

  bool done() const { return index == words.size(); }
  /// Whether the next word stands for itself.
  bool holdValue() const { return !done() && words[index].rfind("--", 0) != 0; }
  std::string take() { return words[index++]; }
  /// The value of the option just taken.
  std::string value(const std::string &option) {
    if (done())
      fail("expected a value after ", option, ", but got none");
    return take();
  }

private:
  std::vector<std::string> words;
  size_t index = 0;
};
} // namespace

/// The number that `text`, the value of `option`, stands for.
static double parseNumber(const std::string &option, const std::string &text,
                          double min, double max) {
  double value;
  const char *end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= min && value <= max))
    fail("expected ", option, " to be a number from ", min, " to ", max,
         ", but got '", text, "'");
  return value;
}

static int runTokenize(Words words) {
  TokenizeOptions options;
  while (!words.done()) {
    std::string word = words.take();
    if (word == "--output")
      options.output = words.value(word);
    else if (word == "--vocabulary")
      options.vocabulary = parseNumber(word, words.value(word), 300, 1 << 24);
    else if (word == "--held-out")
      options.heldOut = parseNumber(word, words.value(word), 1e-6, 0.5);
    else if (word == "--suffix")
      options.suffixes.push_back(words.value(word));
    else if (word.rfind("--", 0) == 0)
      fail("expected an option of sparse-train tokenize, but got '", word, "'");
    else
      options.texts.push_back(word);
  }
  if (options.output.empty())
    fail("expected --output FILE, but got none");
  if (options.texts.empty())
    fail("expected at least one text, but got none");
  std::signal(SIGPIPE, SIG_IGN);
  tokenize(options);
  return 0;
}

static int runRecord(Words words) {
  std::string folder;
  int64_t done = 0;
  while (!words.done()) {
    std::string word = words.take();
    if (word == "--done")
      done = int64_t(parseNumber(word, words.value(word), 0, 1e15));
    else if (word.rfind("--", 0) == 0 || !folder.empty())
      fail("expected sparse-train record [--done STEPS] RUN, but got '", word,
           "'");
    else
      folder = word;
  }
  if (folder.empty())
    fail("expected a run folder to record in, but got none");
  std::signal(SIGPIPE, SIG_IGN);
  record(folder, done);
  return 0;
}

static int runTrain(Words words) {
  std::string config, resumed;
  std::vector<std::string> settings;
  Existing existing = Existing::Refuse;
  bool timers = false, acceptChanges = false, printConfig = false,
       isDry = false;
  int64_t traceSteps = 0;
  while (!words.done()) {
    std::string word = words.take();
    if (word == "--help") {
      std::printf("%s%s", usage, describeConfig().c_str());
      return finishOutput();
    }
    if (word == "--print-config") {
      printConfig = true;
      continue;
    }
    if (word == "--dry-run") {
      isDry = true;
      continue;
    }
    if (word == "--version") {
      std::printf("%s\n", tools::describeVersion("sparse-train"));
      return finishOutput();
    }
    if (word == "--config")
      config = words.value(word);
    else if (word == "--set")
      settings.push_back(words.value(word));
    else if (word == "--resume") {
      existing = Existing::Resume;
      if (words.holdValue())
        resumed = words.take();
    } else if (word == "--accept-changes")
      acceptChanges = true;
    else if (word == "--overwrite")
      existing = Existing::Overwrite;
    else if (word == "--timers")
      timers = true;
    else if (word == "--trace")
      timers = true, traceSteps = parseNumber(word, words.value(word), 1, 1e4);
    else
      fail("expected an option of sparse-train (see --help), but got '", word,
           "'");
  }
  if (acceptChanges && existing != Existing::Resume)
    fail("expected --accept-changes together with --resume, but got it ",
         "without");
  if (isDry && (existing != Existing::Refuse || timers || printConfig))
    fail("expected --dry-run beside --config and --set alone, but got it with ",
         printConfig                       ? "--print-config"
         : timers                          ? "--timers or --trace"
         : existing == Existing::Overwrite ? "--overwrite"
                                           : "--resume");
  if (acceptChanges)
    existing = Existing::ResumeChanged;
  if (!resumed.empty()) {
    if (!config.empty())
      fail("expected --resume without a folder beside --config, but got '",
           resumed, "'");
    config = RunFolder::requireConfig(resumed);
    // Wherever the folder is now.
    settings.insert(settings.begin(), "run=" + resumed);
  }
  ConfigFile kind = resumed.empty() ? ConfigFile::Named : ConfigFile::OfFolder;
  if (printConfig) {
    std::printf("%s", toYAML(readConfig(config, settings, kind)).c_str());
    return finishOutput();
  }
  // The reader of the output may leave: the run goes on.
  std::signal(SIGPIPE, SIG_IGN);
  Ranks ranks;
  try {
    Config parsed = readConfig(config, settings, kind);
    if (ranks.isFirst())
      for (const std::string &note : parsed.notes)
        std::printf("note: %s\n", note.c_str());
    if (isDry) {
      runDry(parsed, ranks);
      ranks.leave();
      return finishOutput();
    }
    if (timers)
      parsed.compileOptions.push_back("--timers");
    int status = runTraining(parsed, existing, timers, traceSteps, ranks);
    ranks.leave();
    return status;
  } catch (const std::exception &error) {
    if (ranks.size() == 1)
      throw;
    ranks.end(error.what());
  }
}

int main(int argc, char **argv) {
  openStandardStreams();
  tools::reportCrashes("sparse-train", argc, argv);
  try {
    Words words(argc - 1, argv + 1);
    if (argc > 1 && argv[1] == std::string("tokenize"))
      return words.take(), runTokenize(words);
    if (argc > 1 && argv[1] == std::string("record"))
      return words.take(), runRecord(words);
    return runTrain(words);
  } catch (const std::filesystem::filesystem_error &error) {
    std::fprintf(stderr, "error: expected '%s' to be accessible, but got: %s\n",
                 error.path1().c_str(), error.code().message().c_str());
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
