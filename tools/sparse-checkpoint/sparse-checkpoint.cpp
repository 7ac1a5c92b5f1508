// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shows checkpoints, and converts them.

#include "../StandardStreams.h"
#include "../Version.h"
#include "Convert.h"
#include "Describe.h"
#include "support/File.h"
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace sparse_opt;

static constexpr char usage[] =
    "Shows checkpoints, and converts them (docs/checkpoints.md).\n"
    "\n"
    "  sparse-checkpoint --version\n"
    "  sparse-checkpoint info CHECKPOINT\n"
    "  sparse-checkpoint picture [--matrix NAME]... CHECKPOINT OUTPUT.svg\n"
    "  sparse-checkpoint to-dense [--with-patterns] CHECKPOINT OUTPUT\n"
    "  sparse-checkpoint from-dense --step STEP.so [--patterns CHECKPOINT]\n"
    "                    [--density D] [--initialize-missing] [--seed N]\n"
    "                    TENSORS OUTPUT\n"
    "  sparse-checkpoint reblock --step STEP.so [--store-zeros] CHECKPOINT "
    "OUTPUT\n"
    "\n"
    "to-dense writes every tensor dense, zeros where no block is stored; with\n"
    "patterns, from-dense makes the same checkpoint of it. from-dense takes "
    "the\n"
    "patterns of the file, else those of --patterns, else the blocks of the\n"
    "largest L1 norm: a share D of all, or as many as the step has slots for.\n"
    "--initialize-missing lets tensors that the file lacks start as in a new "
    "run.\n"
    "reblock fits a checkpoint to a step with other blocks or slots; it "
    "stores\n"
    "what was stored and no more, unless --store-zeros lets blocks that are "
    "stored\n"
    "in part be filled with zeros.\n";

namespace {
/// The words of a command line: options, and what they leave.
class Words {
public:
  Words(int count, char **words) : rest(words, words + count) {}

  /// Takes `option` out; whether it was there.
  bool takeFlag(const std::string &option) {
    auto found = std::find(rest.begin(), rest.end(), option);
    bool exists = found != rest.end();
    if (exists)
      rest.erase(found);
    return exists;
  }

  /// Takes `option` and its value out; false if it is not there.
  bool take(const std::string &option, std::string &value) {
    auto found = std::find(rest.begin(), rest.end(), option);
    if (found == rest.end())
      return false;
    if (found + 1 == rest.end())
      fail(BSR_INVALID_ARGUMENT, "expected a value after ", option,
           ", but got none");
    value = found[1];
    rest.erase(found, found + 2);
    return true;
  }

  template <typename Number>
  void take(const std::string &option, Number &number, Number most) {
    std::string text;
    if (!take(option, text))
      return;
    const char *end = text.data() + text.size();
    auto parsed = std::from_chars(text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end ||
        !(number >= 0 && number <= most))
      fail(BSR_INVALID_ARGUMENT, "expected ", option,
           " to be a number from 0 to ", most, ", but got '", text, "'");
  }

  /// The words that are left, which `names` lists.
  std::vector<std::string> finish(const std::vector<std::string> &names) const {
    for (const std::string &word : rest)
      if (word.rfind("--", 0) == 0)
        fail(BSR_INVALID_ARGUMENT,
             "expected an option of this command (see --help), but got '", word,
             "'");
    if (rest.size() != names.size()) {
      std::string list;
      for (const std::string &name : names)
        list += (list.empty() ? "" : " ") + name;
      fail(BSR_INVALID_ARGUMENT, "expected ", list, ", but got ", rest.size(),
           " words");
    }
    requireNoLibrary(rest.front());
    return rest;
  }

private:
  /// Fails if `path`, which should hold tensors, is a compiled step.
  static void requireNoLibrary(const std::string &path) {
    std::error_code error;
    char magic[4];
    if (std::filesystem::is_regular_file(path, error) &&
        std::ifstream(path).read(magic, 4) &&
        std::string_view(magic, 4) == "\177ELF")
      fail(BSR_INVALID_ARGUMENT, "expected tensors, but got the library '",
           path, "'; a compiled step is the value of --step");
  }

  std::vector<std::string> rest;
};
} // namespace

static void requireStep(Words &words, FitOptions &options) {
  if (!words.take("--step", options.step))
    fail(BSR_INVALID_ARGUMENT,
         "expected --step STEP.so, the compiled step that the checkpoint is "
         "for, but got none");
}

/// Fails if `output` is one of the files that are read.
static void requireOther(const std::string &output,
                         const std::vector<std::string> &inputs) {
  std::error_code error; // of a file that is not there: another one
  for (const std::string &input : inputs)
    if (std::filesystem::equivalent(input, output, error))
      fail(BSR_INVALID_ARGUMENT, "expected OUTPUT to be another file than '",
           input, "', which is read, but got '", output, "'");
}

static void runReblock(Words &words) {
  FitOptions options;
  requireStep(words, options);
  options.storeZeros = words.takeFlag("--store-zeros");
  auto files = words.finish({"CHECKPOINT", "OUTPUT"});
  requireOther(files[1], {files[0], options.step});
  Contents contents(files[0]);
  contents.requireCheckpoint();
  writeFitted(contents, options, files[1]);
}

static void runFromDense(Words &words) {
  FitOptions options;
  requireStep(words, options);
  words.take("--patterns", options.patterns);
  words.take("--density", options.density, 1.0);
  words.take("--seed", options.seed, uint64_t(INT64_MAX));
  options.initializeMissing = words.takeFlag("--initialize-missing");
  auto files = words.finish({"TENSORS", "OUTPUT"});
  requireOther(files[1], {files[0], options.step, options.patterns});
  Contents contents(files[0]);
  if (contents.isCheckpoint)
    fail(BSR_INVALID_CHECKPOINT, "expected ", contents.file.where(),
         " to hold dense tensors, but got a checkpoint");
  writeFitted(contents, options, files[1]);
}

static void runToDense(Words &words) {
  bool patterns = words.takeFlag("--with-patterns");
  auto files = words.finish({"CHECKPOINT", "OUTPUT"});
  requireOther(files[1], {files[0]});
  writeDense(Contents(files[0]), patterns, files[1]);
}

static void runPicture(Words &words) {
  std::vector<std::string> names;
  for (std::string name; words.take("--matrix", name);)
    names.push_back(name);
  auto files = words.finish({"CHECKPOINT", "OUTPUT.svg"});
  requireOther(files[1], {files[0]});
  std::string picture = drawPatterns(Contents(files[0]), names);
  replaceFile(files[1], {picture});
}

static void runInfo(Words &words) {
  auto files = words.finish({"CHECKPOINT"});
  std::printf("%s", describe(Contents(files[0])).c_str());
}

static void run(int count, char **arguments) {
  std::string command = count > 1 ? arguments[1] : "";
  if (command == "--help") {
    std::printf("%s", usage);
    return;
  }
  if (command == "--version") {
    std::printf("%s\n", tools::describeVersion("sparse-checkpoint"));
    return;
  }
  static const std::map<std::string, void (*)(Words &)> commands = {
      {"info", runInfo},
      {"picture", runPicture},
      {"to-dense", runToDense},
      {"from-dense", runFromDense},
      {"reblock", runReblock}};
  auto found = commands.find(command);
  if (found == commands.end())
    fail(BSR_INVALID_ARGUMENT,
         "expected info, picture, to-dense, from-dense or reblock (see "
         "--help), but got '",
         command, "'");
  Words words(count - 2, arguments + 2);
  found->second(words);
}

int main(int argc, char **argv) {
  openStandardStreams();
  tools::reportCrashes("sparse-checkpoint", argc, argv);
  try {
    run(argc, argv);
    return finishOutput();
  } catch (const Error &error) {
    std::fprintf(stderr, "error: %s\n", error.sentence.c_str());
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "error: expected memory for the tensors, but got "
                         "none\n");
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
