// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws the progress bar and estimates when a job ends.

#include "Progress.h"

#include <cmath>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace sparse_opt;
using namespace sparse_opt::train;

std::string train::formatTime(double seconds) {
  long s = std::lround(seconds);
  char text[32];
  if (s >= 3600)
    std::snprintf(text, sizeof(text), "%ld:%02ld:%02ld", s / 3600, s / 60 % 60,
                  s % 60);
  else
    std::snprintf(text, sizeof(text), "%ld:%02ld", s / 60, s % 60);
  return text;
}

/// Columns of the terminal, or 80 where it does not say.
static size_t terminalWidth() {
  winsize size = {};
  bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

Progress::Progress(std::string label, int64_t total, int64_t lineEvery,
                   int64_t first)
    : label(std::move(label)), total(total), lineEvery(lineEvery), first(first),
      terminal(isatty(STDOUT_FILENO)) {}

Progress::~Progress() {
  if (open)
    std::printf("\n");
}

void Progress::update(int64_t done, const std::string &details) {
  Clock::time_point now = Clock::now();
  std::chrono::duration<double> elapsed = now - start;
  double left = elapsed.count() / (done - first) * (total - done);
  std::string count = std::to_string(done) + "/" + std::to_string(total);
  std::string text = "  ETA " + formatTime(left) + details;
  if (!terminal) {
    if (done % lineEvery == 0 || done == total)
      std::printf("%s %s%s\n", label.c_str(), count.c_str(), text.c_str());
    std::fflush(stdout);
    return;
  }

  if (open && done < total && now - drawn < std::chrono::milliseconds(100))
    return;
  drawn = now;
  constexpr size_t width = 24;
  size_t filled = done * width / total;
  std::string bar = label + " [" + std::string(filled, '#') +
                    std::string(width - filled, '.') + "] " + count + text;
  bar.resize(terminalWidth() - 1, ' '); // erases what a longer text left
  std::printf("\r%s", bar.c_str());
  std::fflush(stdout);
  open = true;
}
