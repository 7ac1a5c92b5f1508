// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Puts together what a run has for each length of sequences.

#include "LengthSteps.h"
#include "FirstValues.h"
#include "support/Error.h"
#include "support/Hash.h"
#include "support/Json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

using namespace sparse_opt;
using namespace sparse_opt::train;

LengthStep::LengthStep(SessionOfLength opened, const Data &data,
                       const Config &config)
    : length(opened.length), session(std::move(opened.session)),
      batches(data.batches(session, length, config)),
      rate(session, session.findRole("lr")),
      seed(session, session.findRole("seed")),
      number(session, session.findRole("step")),
      apply(session, session.findRole("apply")), results(session),
      phases(session) {
  if (!session.findRole("loss"))
    fail("expected the step to have a result with role 'loss', but got none");
}

LengthSteps::LengthSteps(std::vector<SessionOfLength> opened, const Data &data,
                         const Config &config)
    : lengths(config.lengths), seed(config.seed) {
  for (SessionOfLength &each : opened)
    steps.emplace_back(std::move(each), data, config);
}

LengthSteps::~LengthSteps() {
  while (!steps.empty())
    steps.pop_back();
}

LengthStep &LengthSteps::at(int64_t step) {
  int64_t length = lengths.at(step, seed);
  return *std::find_if(steps.begin(), steps.end(), [&](const LengthStep &own) {
    return own.length == length;
  });
}

std::string LengthSteps::nameOf(const LengthStep &own, const char *before,
                                const char *behind) const {
  return areSeveral() ? before + std::to_string(own.length) + behind : "";
}

std::string
LengthSteps::describeTimes(const Ranks &ranks,
                           const bsr_communicator_counters &before) const {
  std::string text;
  int64_t runs = 0;
  for (const LengthStep &own : steps) {
    const bsr_step *step = own.session.step();
    if (!bsr_step_num_timers(step))
      return "";
    if (!own.stepsHere && areSeveral())
      continue;
    text += nameOf(own, "length ", ":\n") + describeTimers(step);
    bsr_timer_info timer;
    bsr_step_timer(step, 0, &timer);
    runs += timer.launches;
  }
  if (ranks.size() > 1)
    text += describeReductions(runs, before, ranks.counters());
  return text;
}

void LengthSteps::takeConstants(const std::string &values) {
  for (LengthStep &own : steps) {
    if (std::none_of(own.session.buffers().begin(), own.session.buffers().end(),
                     isConstant))
      continue;
    FirstValues file(values, own.session);
    for (const Buffer &buffer : own.session.buffers())
      if (isConstant(buffer) && !first().session.find(buffer.name) &&
          !file.read(buffer.index))
        fail("expected configuration key 'values' to name a file with '",
             buffer.name, "', which only the step for length ", own.length,
             " takes, but got none");
    file.writeConstants(own.session);
  }
}

std::map<std::string, std::string> LengthSteps::codes() const {
  std::map<std::string, std::string> codes;
  for (const LengthStep &own : steps) {
    if (&own == &steps.front())
      continue;
    // The choices that lead to the code are no part of it.
    auto manifest = parseJson(bsr_step_manifest_text(own.session.step()));
    for (const char *key : {"compiler", "target_cpu", "target_features"})
      manifest.erase(key);
    codes[std::to_string(own.length)] = hexadecimal(xxh64(manifest.dump()));
  }
  return codes;
}
