// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The version of the tools, and what a crash says.

#include "Version.h"
#include "Revision.h"
#include <csignal>
#include <deque>
#include <iterator>
#include <string>
#include <unistd.h>

const char *const tools::version = BSR_VERSION;

/// `text` for the rest of the program: handlers of signals read it.
static const char *keep(std::string text) {
  static auto *kept = new std::deque<std::string>; // no exit destroys it
  return kept->emplace_back(std::move(text)).c_str();
}

static std::string describe(const char *tool) {
  std::string line = std::string(tool) + " " + BSR_VERSION;
#ifdef BSR_REVISION
  line += " (commit " + std::string(BSR_REVISION).substr(0, 12) + ")";
#endif
  return line;
}

const char *tools::describeVersion(const char *tool) {
  return keep(describe(tool));
}

const char *tools::describeCrash(const char *tool) {
  return keep("This is a bug of " + describe(tool) +
              ". Please report it to the project sparse-opt, with the command "
              "below, its input and what was printed.\n");
}

static std::string *crash;

/// The signals of a crash, and what was done about them before.
static constexpr int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
static struct sigaction previous[std::size(signals)];

/// Prints the message and lets the crash happen as it would have.
static void onCrash(int signal) {
  [[maybe_unused]] auto written =
      write(STDERR_FILENO, crash->data(), crash->size());
  for (size_t i = 0; i != std::size(signals); ++i)
    sigaction(signals[i], &previous[i], nullptr);
  // A fault repeats when the handler returns; an abort does not.
  if (signal == SIGABRT)
    raise(signal);
}

void tools::reportCrashes(const char *tool, int count, char **words) {
  crash = new std::string(describeCrash(tool));
  *crash += "Command:";
  for (int i = 0; i != count; ++i)
    *crash += std::string(" ") + words[i];
  *crash += "\n";
  struct sigaction action = {};
  action.sa_handler = onCrash;
  for (size_t i = 0; i != std::size(signals); ++i)
    sigaction(signals[i], &action, &previous[i]);
}
