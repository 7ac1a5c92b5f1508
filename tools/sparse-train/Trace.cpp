// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes kernels and reductions in the format of Chrome's traces.

#include "Trace.h"
#include "Files.h"
#include "support/Error.h"

using namespace sparse_opt;
using namespace sparse_opt::train;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

/// The rows of a process.
enum : int64_t { stepRow, communicationRow };

static void check(bsr_status status) {
  if (status != BSR_OK)
    fail(bsr_last_error());
}

Trace::Trace(const Session &session, const Ranks &ranks)
    : step(session.step()), ranks(ranks) {
  check(bsr_step_read_trace_events(step, 0, nullptr, 0, &numRead));
  ranks.trace();
  auto name = [&](const char *what, int64_t row, const std::string &text) {
    events.push_back({{"name", what},
                      {"ph", "M"},
                      {"pid", ranks.rank()},
                      {"tid", row},
                      {"args", {{"name", text}}}});
  };
  name("process_name", stepRow, "rank " + std::to_string(ranks.rank()));
  name("thread_name", stepRow, "step");
  name("thread_name", communicationRow, "communication");
}

void Trace::addSpan(int64_t row, const std::string &name,
                    const std::string &kind, int64_t began, int64_t ended,
                    ordered_json details) {
  events.push_back({{"name", name},
                    {"cat", kind},
                    {"ph", "X"},
                    {"ts", double(began) * 1e-3},
                    {"dur", double(ended - began) * 1e-3},
                    {"pid", ranks.rank()},
                    {"tid", row},
                    {"args", std::move(details)}});
}

void Trace::add() {
  int64_t count, timers = bsr_step_num_timers(step);
  check(bsr_step_read_trace_events(step, 0, nullptr, 0, &count));
  std::vector<bsr_trace_event> all(size_t(count - numRead));
  check(bsr_step_read_trace_events(step, numRead, all.data(), count - numRead,
                                   &count));
  numRead = count;
  for (size_t i = 1; i < all.size(); ++i) {
    // Time between two runs does not belong to the step.
    if (all[i].timer == timers)
      continue;
    bsr_timer_info timer;
    check(bsr_step_timer(step, all[i].timer, &timer));
    addSpan(stepRow, timer.kernel, timer.kind, all[i - 1].ended, all[i].ended,
            {{"operands", timer.operands}});
  }
  for (const bsr_reduction_event &event : ranks.takeEvents())
    addSpan(communicationRow,
            "mean of " + std::to_string(event.tensors) + " tensors",
            "communication", event.began, event.ended,
            {{"bytes", event.bytes},
             {"waited_us", double(event.began - event.asked) * 1e-3}});
}

void Trace::write(const fs::path &folder) const {
  ordered_json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", events}};
  std::string name = "trace-" + std::to_string(ranks.rank()) + ".json";
  writeFile(folder / name, name, {trace.dump() + "\n"});
}

std::vector<fs::path> Trace::find(const fs::path &folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.rfind("trace-", 0) == 0 && entry.path().extension() == ".json")
      found.push_back(entry.path());
  }
  return found;
}
