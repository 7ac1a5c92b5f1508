// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs sparse-compile and keeps what it makes.

#include "Compile.h"
#include "Files.h"
#include "Host.h"
#include "support/Hash.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <list>
#include <set>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace sparse_opt;
using namespace sparse_opt::train;
namespace fs = std::filesystem;

/// Becomes the program `arguments`, which ends when its parent, `parent`, does.
/// Returns the reason if there is no such program.
static int become(char *const *arguments, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) // it ended meanwhile
    _exit(1);
  execv(arguments[0], arguments);
  return errno;
}

namespace {
/// A program that runs; its output goes where ours does.
class Child {
public:
  explicit Child(std::vector<std::string> command);
  Child(Child &&other) noexcept
      : program(std::move(other.program)),
        process(std::exchange(other.process, -1)) {}
  Child &operator=(Child &&) = delete;
  /// Ends one that nothing waited for.
  ~Child() {
    if (process > 0) {
      kill(process, SIGTERM);
      waitpid(process, nullptr, 0);
    }
  }

  /// Whether it has ended, or, if it `waits`, waits for that. Fails unless it
  /// succeeded.
  bool hasEnded(bool waits);

private:
  std::string program;
  pid_t process;
};
} // namespace

Child::Child(std::vector<std::string> command)
    : program(command[0]), process(-1) {
  std::vector<char *> arguments;
  for (std::string &word : command)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // A pipe that a program closes when it starts, and tells the reason
  // otherwise.
  int started[2];
  pid_t parent = getpid();
  if (pipe2(started, O_CLOEXEC) == 0)
    process = fork();
  if (process < 0)
    fail("expected compiler '", program,
         "' to start, but got: ", std::strerror(errno));
  if (process == 0) {
    int reason = become(arguments.data(), parent);
    (void)!write(started[1], &reason, sizeof(reason));
    _exit(1);
  }
  close(started[1]);
  int reason;
  bool isStarted = read(started[0], &reason, sizeof(reason)) <= 0;
  close(started[0]);
  if (isStarted)
    return;
  waitpid(process, nullptr, 0);
  fail("expected compiler '", program,
       "' to start, but got: ", std::strerror(reason));
}

bool Child::hasEnded(bool waits) {
  int status;
  if (waitpid(process, &status, waits ? 0 : WNOHANG) == 0)
    return false;
  process = -1;
  if (WIFSIGNALED(status))
    fail("expected compiler '", program, "' to succeed, but got signal ",
         WTERMSIG(status));
  if (WEXITSTATUS(status))
    fail("expected compiler '", program, "' to succeed, but got exit status ",
         WEXITSTATUS(status));
  return true;
}

/// Goes on from `hash` over the pattern files that a compiler's option names:
/// a step holds what they hold. A file that is none is the compiler's to
/// report.
static uint64_t hashPatternFiles(const std::string &option, uint64_t hash) {
  constexpr std::string_view key = "pattern=";
  for (size_t at = 0; (at = option.find(key, at)) != std::string::npos;) {
    at += key.size();
    char quote = option[at];
    bool isQuoted = quote == '\'' || quote == '"' || quote == '{';
    at += isQuoted;
    size_t end = option.find(quote == '{' ? '}' : isQuoted ? quote : ' ', at);
    std::string path = option.substr(at, end - at);
    if (fs::is_regular_file(path))
      hash = fnv1a(readFile(path, "pattern file"), hash);
  }
  return hash;
}

/// Whether `option` is one of sparse-compile that says how a step is compiled,
/// with its value behind a "=": not one that says what is written where.
static bool saysHowToCompile(std::string_view option) {
  static const std::set<std::string_view> withValue = {
      "mark",          "target-cpu",     "target",           "vector-bits",
      "num-registers", "l1-bytes",       "l2-bytes",         "mma-rate",
      "wgmma-rate",    "l2-bandwidth",   "memory-bandwidth", "launch-time",
      "overlap",       "attention-keys", "score-norm",       "shard-state",
      "stages",        "stage",          "memory",           "micro-batches",
      "schedule",      "max-operations", "block-ramp",       "debug-only",
      "tune",          "target-triple",  "bf16-dots",        "bf16-tiles"};
  static const std::set<std::string_view> flags = {
      "print-report",   "cubin",
      "assemble",       "drop-updates",
      "require-sparse", "tf32",
      "timers",         "find-attention",
      "block-steps",    "emulate-instructions",
      "data-parallel",  "time",
      "check",          "verify-each",
      "pass-times",     "tune"};
  size_t begin = option.find_first_not_of('-');
  if (begin != 1 && begin != 2)
    return false;
  std::string_view name = option.substr(begin);
  if (name.front() == 'O')
    return name.find_first_not_of("=0123456789", 1) == name.npos;
  size_t end = name.find('=');
  name = name.substr(0, end);
  return flags.count(name) ||
         (end != std::string_view::npos && withValue.count(name));
}

/// Fails unless all `options` say how to compile: a configuration may come from
/// a stranger.
static void requireOptions(const std::vector<std::string> &options) {
  for (const std::string &option : options)
    if (!saysHowToCompile(option))
      fail("expected the entries of configuration key 'compile.options' to be "
           "options of sparse-compile that say how to compile, as "
           "--name=value, but got '",
           option, "'");
}

/// The options that a step of `config` is compiled with: those that it has, and
/// what its groups need and they do not say.
static std::vector<std::string> findOptions(const Config &config,
                                            const std::string &target) {
  std::vector<std::string> options = config.compileOptions;
  requireOptions(options);
  if (target != "cpu")
    options.insert(options.begin(), "--target=" + target);
  // Those that it has count.
  auto nameOf = [](std::string_view option) {
    option.remove_prefix(
        std::min(option.find_first_not_of('-'), option.size()));
    return option.substr(0, option.find('='));
  };
  size_t own = options.size();
  std::istringstream needed(bsr_sparsity_options(config.sparsity.rules()));
  for (std::string option; needed >> option;)
    if (std::none_of(options.begin(), options.begin() + int64_t(own),
                     [&](const std::string &other) {
                       return nameOf(other) == nameOf(option);
                     }))
      options.push_back(option);
  return options;
}

/// Whether a compiler that is called so measures times, which others that run
/// beside it would change.
static bool measures(const std::vector<std::string> &command) {
  return std::any_of(
      command.begin(), command.end(), [](std::string_view option) {
        option.remove_prefix(
            std::min(option.find_first_not_of('-'), option.size()));
        return option.substr(0, option.find('=')) == "tune";
      });
}

/// Compiles with each of `commands`, by lengths, as many at a time as there are
/// cores, or one if they measure times, and says of each how long it took.
static void
compileAll(const std::map<int64_t, std::vector<std::string>> &commands) {
  using Clock = std::chrono::steady_clock;
  struct Compilation {
    int64_t length;
    Clock::time_point start;
    Child child;
  };
  size_t most = std::max(std::thread::hardware_concurrency(), 1U);
  for (const auto &[length, command] : commands)
    if (measures(command))
      most = 1;
  std::list<Compilation> running;
  auto next = commands.begin();
  while (next != commands.end() || !running.empty()) {
    for (; next != commands.end() && running.size() < most; ++next)
      running.push_back({next->first, Clock::now(), Child(next->second)});
    for (auto own = running.begin(); own != running.end();) {
      if (!own->child.hasEnded(/*waits=*/false)) {
        ++own;
        continue;
      }
      std::chrono::duration<double> seconds = Clock::now() - own->start;
      std::printf("compiled the step for length %lld in %.2g s\n",
                  (long long)own->length, seconds.count());
      std::fflush(stdout);
      own = running.erase(own);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::map<int64_t, std::string> train::compileSteps(const Config &config,
                                                   const std::string &target) {
  std::map<int64_t, std::string> paths;
  std::map<int64_t, std::vector<std::string>> commands;
  std::string tool = config.compileTool;
  if (tool.empty())
    tool =
        fs::read_symlink("/proc/self/exe").replace_filename("sparse-compile");
  for (const auto &[length, step] : config.step.all()) {
    if (isCompiled(step)) {
      paths[length] = step;
      continue;
    }
    uint64_t hash = fnv1a(readFile(tool, "compiler"));
    hash = fnv1a(readFile(step, "step"), hash);
    // Machines may share the cache.
    hash = fnv1a(identifyProcessor(), hash);
    std::vector<std::string> options = findOptions(config, target);
    for (const std::string &option : options)
      hash = hashPatternFiles(option,
                              fnv1a({option.c_str(), option.size() + 1}, hash));
    char name[32];
    std::snprintf(name, sizeof(name), "%016llx.so", (unsigned long long)hash);
    fs::path output = fs::path(config.compileCache) / name;
    paths[length] = output;
    if (fs::exists(output))
      continue;
    fs::create_directories(config.compileCache);
    std::printf("compile %s\n", step.c_str());
    std::fflush(stdout);
    commands[length] = {tool, step, "-o", output};
    commands[length].insert(commands[length].end(), options.begin(),
                            options.end());
  }
  if (config.step.haveLengths())
    compileAll(commands);
  else
    for (const auto &[length, command] : commands)
      Child(command).hasEnded(/*waits=*/true);
  return paths;
}
