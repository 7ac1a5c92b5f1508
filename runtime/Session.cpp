// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a training run: buffers, initial values, snapshots, counters.

#include "Session.h"
#include "Element.h"
#include "Status.h"
#include <cstring>
#include <omp.h>

using namespace bsr;

/// How many threads update patterns: one for each matrix, of the first eight.
static size_t numUpdateThreads(const Manifest &manifest) {
  size_t matrices = std::max<size_t>(1, manifest.patterns.size());
  return std::min<size_t>({matrices, 8, size_t(omp_get_max_threads())});
}

/// Calls `take(pointer, elements)` for each part of the memory of `session`
/// that the step does not know of.
template <typename Take>
static void forEachPart(bsr_session &session, Take take) {
  const std::vector<Pattern> &patterns = session.manifest().patterns;
  for (size_t thread = 0; thread <= session.moreScratch.size(); ++thread)
    session.scratchOf(int(thread)).forEachPart(patterns, take);
  for (size_t i = 0; i < patterns.size(); ++i) {
    take(session.histories[i].ever, PatternHistory::everWords(patterns[i]));
    take(session.histories[i].newest, PatternHistory::newestWords(patterns[i]));
  }
}

bsr_session::bsr_session(const bsr_step &step, uint64_t seed)
    : owner(step.self), step(step), hasPattern(step.manifest.patterns.size()) {
  int64_t bytes = Memory::partBytes(manifest().arenaBytes);
  for (const Buffer &buffer : manifest().buffers)
    if (buffer.kind != BSR_SCORES)
      bytes += Memory::partBytes(buffer.bytes);
  moreScratch.resize(numUpdateThreads(manifest()) - 1);
  histories.resize(manifest().patterns.size());
  plainUpdates.resize(manifest().patterns.size());
  forEachPart(*this, [&](auto *&part, int64_t size) {
    bytes += Memory::partBytes(size * int64_t(sizeof *part));
  });

  int64_t areas = Memory::areasTaken();
  area = Memory(bytes, "the buffers of the step");
  arena = area.cut(manifest().arenaBytes);
  for (const Buffer &buffer : manifest().buffers)
    buffers.push_back(buffer.kind == BSR_SCORES
                          ? static_cast<char *>(arena) + buffer.arenaOffset
                          : area.cut(buffer.bytes));
  forEachPart(*this, [&](auto *&part, int64_t size) {
    using Pointer = std::remove_reference_t<decltype(part)>;
    part = static_cast<Pointer>(area.cut(size * int64_t(sizeof *part)));
  });
  counters.seed = seed;
  counters.bytes = bytes;
  counters.allocations = Memory::areasTaken() - areas;
}

/// Fills `data`, the memory of `buffer`, by `rule`.
static void fill(const Buffer &buffer, void *data, const InitRule &rule,
                 uint64_t seed) {
  if (rule.kind == InitRule::Constant && rule.argument == 0) {
    std::memset(data, 0, buffer.bytes);
    return;
  }
  RandomStream random(seed, "init", buffer.name);
  for (int64_t i = 0; i < buffer.elements; ++i)
    storeElement(buffer.type, data, i,
                 rule.kind == InitRule::Constant
                     ? rule.argument
                     : rule.argument * random.normal(i));
}

void bsr_session::initBuffer(int64_t index, const std::string &rule) {
  const Buffer &buffer = manifest().buffers[index];
  if (isIndices(buffer.kind) || buffer.kind == BSR_SCORES)
    fail(BSR_INVALID_ARGUMENT, "expected a buffer of other kind than ",
         bsr_kind_name(buffer.kind), ", but got '", buffer.name, "'");
  auto parsed = parseInitRule(rule, buffer.type);
  if (!parsed)
    fail(BSR_INVALID_ARGUMENT,
         "expected zeros, ones, constant(c) or normal(s) for the ",
         bsr_type_name(buffer.type), " buffer '", buffer.name, "', but got '",
         rule, "'");
  fill(buffer, buffers[index], *parsed, counters.seed);
  if (buffer.kind == BSR_VALUES && hasPattern[buffer.pattern])
    zeroUnusedSlots(buffer.pattern);
}

bsr_status bsr_session_create(const bsr_step *step, uint64_t seed,
                              bsr_session **session) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(session, "session");
    if (!step->self)
      fail(BSR_INVALID_ARGUMENT, "expected a step that is loaded, but got '",
           step->manifest.name, "', which was unloaded");
    *session = new bsr_session(*step, seed);
  });
}

void bsr_session_destroy(bsr_session *session) { delete session; }

bsr_status bsr_session_initialize(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    const Manifest &manifest = session->manifest();
    for (size_t i = 0; i < manifest.patterns.size(); ++i)
      session->makePattern(int64_t(i), BSR_MOST_BLOCKS);
    for (size_t i = 0; i < manifest.buffers.size(); ++i)
      if (!manifest.buffers[i].init.empty())
        session->initBuffer(int64_t(i), manifest.buffers[i].init);
  });
}

bsr_status bsr_session_init_buffer(bsr_session *session, int64_t index,
                                   const char *rule) {
  return guarded([&] {
    requireArgument(session, "session");
    requireIndex(index, int64_t(session->buffers.size()), "buffers");
    session->initBuffer(index,
                        rule ? rule : session->manifest().buffers[index].init);
  });
}

void *bsr_session_buffer(bsr_session *session, int64_t index) {
  bool exists =
      session && index >= 0 && index < int64_t(session->buffers.size());
  return exists ? session->buffers[index] : nullptr;
}

void bsr_session::run(bsr_step::Run *entry) {
  const std::string &name = manifest().name;
  switch (int32_t status = entry(&context, buffers.data(), arena)) {
  case BSR_STEP_RAN:
    hasScores = false;
    ++counters.steps;
    return;
  case BSR_STEP_OTHER_VERSION:
    fail(BSR_INVALID_STEP, "expected a context of version ", context.error,
         " for step '", name, "', but got one of version ", context.version);
  case BSR_STEP_OTHER_DEVICE:
    fail(BSR_INVALID_STEP, "expected device ", context.error, " for step '",
         name, "', but got device ", context.device);
  default:
    fail(BSR_INVALID_STEP, "expected a status from 0 to ",
         int(BSR_STEP_OTHER_DEVICE), " of step '", name, "', but got ", status);
  }
}

bsr_status bsr_session_run(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    session->run(session->step.run);
  });
}

bsr_status bsr_session_run_scores(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    const bsr_step &step = session->step;
    if (!step.runScores)
      fail(BSR_INVALID_ARGUMENT,
           "expected a step that was compiled with scores of blocks, but got '",
           step.manifest.name, "', whose manifest has no score_norm");
    session->run(step.runScores);
    session->hasScores = true;
  });
}

/// Calls `visit(buffer, memory, copy)` for each carried buffer of `session`.
template <typename Visit>
static void forEachCopy(const bsr_session &session, Visit visit) {
  size_t copy = 0;
  for (size_t i = 0; i < session.buffers.size(); ++i)
    if (session.manifest().buffers[i].carried)
      visit(session.manifest().buffers[i], session.buffers[i],
            session.copies[copy++]);
}

/// Takes the memory of the copy.
static void allocateCopies(bsr_session &session) {
  int64_t bytes = 0;
  for (const Buffer &buffer : session.manifest().buffers)
    if (buffer.carried)
      bytes += Memory::partBytes(buffer.bytes);
  session.copyArea = Memory(bytes, "a copy of the carried buffers");
  for (const Buffer &buffer : session.manifest().buffers)
    if (buffer.carried)
      session.copies.push_back(session.copyArea.cut(buffer.bytes));
  session.counters.bytes += bytes;
  ++session.counters.allocations;
}

bsr_status bsr_session_snapshot(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    if (!session->copyArea.bytes())
      allocateCopies(*session);
    forEachCopy(*session, [](const Buffer &buffer, void *memory, void *copy) {
      std::memcpy(copy, memory, buffer.bytes);
    });
    session->copiedSteps = session->counters.steps;
    session->copiedVersion = session->patternVersion;
  });
}

bsr_status bsr_session_restore(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    if (!session->copyArea.bytes())
      fail(BSR_INVALID_ARGUMENT,
           "expected a snapshot to restore, but got none");
    if (session->copiedVersion != session->patternVersion)
      fail(BSR_INVALID_ARGUMENT, "expected the patterns of the snapshot, but "
                                 "got patterns that changed after it");
    forEachCopy(*session, [](const Buffer &buffer, void *memory, void *copy) {
      std::memcpy(memory, copy, buffer.bytes);
    });
    session->counters.steps = session->copiedSteps;
    session->hasScores = false;
  });
}

bsr_status bsr_session_counters(const bsr_session *session,
                                bsr_counters *counters) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(counters, "counters");
    *counters = session->counters;
  });
}
