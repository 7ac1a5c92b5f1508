// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions of several steps on one state: training, and what evaluates it.

#include "Session.h"
#include "base/Status.h"

using namespace sparse_opt;

void bsr_session::giveScores() const {
  // All are read before one is written: both arenas may be one.
  std::vector<std::vector<char>> scores(manifest().patterns.size());
  for (size_t i = 0; i < scores.size(); ++i)
    if (int32_t place = manifest().patterns[i].scores; place >= 0) {
      scores[i].resize(size_t(manifest().buffers[size_t(place)].bytes));
      device.read(scores[i].data(), buffers[size_t(place)],
                  int64_t(scores[i].size()));
    }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].empty())
      continue;
    int64_t weight = shared[size_t(manifest().patterns[i].weight)];
    const Manifest &other = source->manifest();
    int32_t pattern = other.buffers[size_t(weight)].pattern;
    int32_t place = other.patterns[size_t(pattern)].scores;
    device.write(source->buffers[size_t(place)], scores[i].data(),
                 int64_t(scores[i].size()));
  }
}

void bsr_session::requireOwner() const {
  if (source)
    fail(BSR_INVALID_ARGUMENT,
         "expected the session that owns the state, but "
         "got one of step '",
         manifest().name, "', which shares that of step '",
         source->manifest().name, "'");
}

/// Makes a session that shares the state of `source`, and may train it.
static bsr_status share(const bsr_step *step, bsr_session *source, bool trains,
                        bsr_session **session) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(source, "source");
    requireArgument(session, "session");
    if (!step->self)
      fail(BSR_INVALID_ARGUMENT, "expected a step that is loaded, but got '",
           step->manifest.name, "', which was unloaded");
    source->requireOwner();
    *session = new bsr_session(*step, *source, trains);
  });
}

bsr_status bsr_session_share(const bsr_step *step, bsr_session *source,
                             bsr_session **session) {
  return share(step, source, /*trains=*/false, session);
}

bsr_status bsr_session_continue(const bsr_step *step, bsr_session *source,
                                bsr_session **session) {
  return share(step, source, /*trains=*/true, session);
}
