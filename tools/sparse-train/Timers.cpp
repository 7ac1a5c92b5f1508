// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints the timers of a step.

#include "Timers.h"
#include "Host.h"
#include "support/Error.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

using namespace sparse_opt;
using namespace sparse_opt::train;

/// Kernels that are listed one by one.
static constexpr size_t numKernels = 20;

/// The most threads that a prediction is made for, and the kernels that it
/// lists.
static constexpr int64_t mostThreads = 64;
static constexpr size_t numWaiting = 5;

namespace {
/// What one kernel, or all of one kind, did.
struct Work {
  std::string name, kind, operands;
  int64_t items = 0; // of work; 0: not known, or those of several kernels
  double nanoseconds = 0, launches = 0, flops = 0, bytes = 0;

  Work() = default;
  explicit Work(const bsr_timer_info &timer)
      : name(timer.kernel), kind(timer.kind), operands(timer.operands),
        items(timer.items) {
    add(timer);
  }

  void add(const bsr_timer_info &timer) {
    nanoseconds += timer.nanoseconds;
    launches += timer.launches;
    flops += double(timer.flops) * timer.launches;
    bytes += double(timer.bytes) * timer.launches;
  }
};
} // namespace

/// A number per second of `nanoseconds` in units of 10^9, or a dash for 0.
static std::string rate(double number, double nanoseconds) {
  if (number == 0 || nanoseconds == 0)
    return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", number / nanoseconds);
  return text;
}

/// The rows of `works`, the longest first, as shares of `total` nanoseconds.
static std::string describe(std::vector<Work> works, double total, double runs,
                            size_t most) {
  std::sort(works.begin(), works.end(), [](const Work &a, const Work &b) {
    return a.nanoseconds != b.nanoseconds ? a.nanoseconds > b.nanoseconds
                                          : a.name < b.name;
  });
  std::string text;
  for (const Work &work : works) {
    if (most-- == 0)
      break;
    char line[128];
    std::snprintf(
        line, sizeof(line), "  %-16s %-16s %9.3f %6.1f %% %9.6g %8s %8s %6s  ",
        printable(work.name).c_str(), printable(work.kind).c_str(),
        work.nanoseconds / runs * 1e-6,
        total ? work.nanoseconds / total * 100 : 0, work.launches / runs,
        rate(work.flops, work.nanoseconds).c_str(),
        rate(work.bytes, work.nanoseconds).c_str(),
        work.items ? std::to_string(work.items).c_str() : "");
    text += line + printable(work.operands);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

/// What `threads` threads take for the work of `measured` ones, if all work
/// items of a kernel take equally long and nothing else keeps threads waiting.
static double predict(const Work &work, int64_t measured, int64_t threads) {
  auto rounds = [&](int64_t threads) {
    return double((std::max<int64_t>(work.items, 1) + threads - 1) / threads);
  };
  return work.nanoseconds * rounds(threads) / rounds(measured);
}

/// How far work items let a step gain from more threads than the `measured`
/// ones, and the kernels that then keep threads waiting; "" where no work items
/// are known, as of a GPU.
static std::string describeScaling(std::vector<Work> works, double runs,
                                   int64_t measured) {
  bool areKnown = std::any_of(works.begin(), works.end(),
                              [](const Work &work) { return work.items; });
  if (!areKnown || measured >= mostThreads)
    return "";
  char cell[128];
  std::string threads = "  threads          ", times = "  ms/step, at least";
  for (int64_t number = measured;; number = std::min(2 * number, mostThreads)) {
    double total = 0;
    for (const Work &work : works)
      total += predict(work, measured, number);
    std::snprintf(cell, sizeof cell, " %9lld", (long long)number);
    threads += cell;
    std::snprintf(cell, sizeof cell, " %9.3f", total / runs * 1e-6);
    times += cell;
    if (number == mostThreads)
      break;
  }
  works.erase(std::remove_if(works.begin(), works.end(),
                             [](const Work &work) {
                               return work.items >= mostThreads ||
                                      work.nanoseconds == 0;
                             }),
              works.end());
  for (Work &work : works)
    work.nanoseconds = predict(work, measured, mostThreads);
  std::sort(works.begin(), works.end(), [](const Work &a, const Work &b) {
    return std::tie(b.nanoseconds, a.name) < std::tie(a.nanoseconds, b.name);
  });
  works.resize(std::min(works.size(), numWaiting));
  std::string text = "predicted, as work items are shared by more threads:\n" +
                     threads + "\n" + times + "\n";
  std::snprintf(cell, sizeof cell, "  %-16s %-16s %9s %6s\n", "waits at",
                (std::to_string(mostThreads) + " threads").c_str(), "ms/step",
                "items");
  if (!works.empty())
    text += cell;
  for (const Work &work : works) {
    std::snprintf(cell, sizeof cell, "  %-16s %-16s %9.3f %6lld  ",
                  printable(work.name).c_str(), printable(work.kind).c_str(),
                  work.nanoseconds / runs * 1e-6,
                  (long long)std::max<int64_t>(work.items, 1));
    text += cell + printable(work.operands);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string train::describeTimers(const bsr_step *step) {
  std::map<std::string, Work> kinds;
  std::vector<Work> kernels;
  double total = 0, runs = 0;
  for (int64_t i = 0; i < bsr_step_num_timers(step); ++i) {
    bsr_timer_info timer;
    bsr_step_timer(step, i, &timer);
    if (i == 0)
      runs = std::max<double>(1, timer.launches);
    total += timer.nanoseconds;
    kinds[timer.kind].add(timer);
    kernels.emplace_back(timer);
  }
  std::vector<Work> byKind;
  for (auto &[kind, work] : kinds) {
    work.name = kind;
    byKind.push_back(work);
  }

  char head[256];
  std::snprintf(head, sizeof(head),
                "%.3f ms a step, mean of %.0f\n"
                "  %-16s %-16s %9s %8s %9s %8s %8s\n",
                total / runs * 1e-6, runs, "kind", "", "ms/step", "share",
                "launches", "GF/s", "GB/s");
  std::string text = head + describe(byKind, total, runs, byKind.size());
  std::snprintf(head, sizeof(head), "  %-16s %-16s %53s\n", "kernel", "kind",
                "items");
  return text + head + describe(kernels, total, runs, numKernels) +
         describeScaling(kernels, runs, numThreads());
}

std::optional<double>
train::hiddenShare(const bsr_communicator_counters &counters) {
  if (!counters.nanoseconds)
    return std::nullopt;
  return std::max(0.0, 1 - double(counters.waited_nanoseconds) /
                               double(counters.nanoseconds));
}

std::string train::describeReductions(int64_t runs,
                                      const bsr_communicator_counters &before,
                                      const bsr_communicator_counters &after) {
  double all = std::max<double>(1, double(runs));
  bsr_communicator_counters counters = {};
  counters.nanoseconds = after.nanoseconds - before.nanoseconds;
  counters.waited_nanoseconds =
      after.waited_nanoseconds - before.waited_nanoseconds;
  char line[256];
  std::snprintf(line, sizeof line,
                "reductions: %.3f ms a step in %.6g buckets, of which the step "
                "waited %.3f ms: %.1f %% hidden\n",
                counters.nanoseconds / all * 1e-6,
                (after.buckets - before.buckets) / all,
                counters.waited_nanoseconds / all * 1e-6,
                hiddenShare(counters).value_or(0) * 100);
  return line;
}

/// An update of a parameter is element by element, and works on at least three
/// buffers of its shape: the parameter, its gradient and the next value.
PhaseTimes::PhaseTimes(const Session &session) : step(session.step()) {
  std::set<std::string> parameters;
  for (const Buffer &buffer : session.buffers()) {
    if (buffer.role != "param" || buffer.shape.empty())
      continue;
    std::string type;
    for (int64_t extent : buffer.shape)
      type += std::to_string(extent) + "x";
    parameters.insert(type + bsr_type_name(buffer.type));
  }
  for (int64_t i = 0; i < bsr_step_num_timers(step); ++i) {
    bsr_timer_info timer;
    bsr_step_timer(step, i, &timer);
    std::map<std::string, int> uses;
    bool updates = false;
    std::istringstream operands(timer.operands);
    for (std::string operand; operands >> operand;)
      updates |= parameters.count(operand) && ++uses[operand] >= 3;
    isOptimizer.push_back(updates && timer.kind == std::string("elementwise"));
  }
}

void PhaseTimes::start() {
  for (bool ofOptimizer : {false, true})
    before[ofOptimizer] = seconds(ofOptimizer);
}

double PhaseTimes::seconds(bool ofOptimizer) const {
  int64_t nanoseconds = 0;
  for (size_t i = 0; i < isOptimizer.size(); ++i) {
    bsr_timer_info timer;
    bsr_step_timer(step, i, &timer);
    if (isOptimizer[i] == ofOptimizer)
      nanoseconds += timer.nanoseconds;
  }
  return nanoseconds * 1e-9;
}
