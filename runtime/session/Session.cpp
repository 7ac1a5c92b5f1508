// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a training run: buffers, initial values, snapshots, counters.

#include "Session.h"
#include "SharedState.h"
#include "UpdateScratch.h"
#include "base/Element.h"
#include "base/Status.h"
#include "comm/Communicator.h"
#include <omp.h>

using namespace sparse_opt;

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
  for (size_t i = 0; i < session.buffers.size(); ++i)
    if (const Buffer &buffer = session.manifest().buffers[i];
        isIndices(buffer.kind) && !session.device.isHost())
      take(session.hostIndices[i], buffer.elements);
  for (size_t thread = 0; thread <= session.moreScratch.size(); ++thread)
    session.scratchOf(int(thread)).forEachPart(patterns, take);
  for (size_t i = 0; i < patterns.size(); ++i) {
    take(session.histories[i].ever, PatternHistory::everWords(patterns[i]));
    take(session.histories[i].newest, PatternHistory::newestWords(patterns[i]));
    if (session.device.isHost() && !patterns[i].isStatic)
      take(session.pruneFlags[i], patterns[i].slots);
  }
}

bsr_session::bsr_session(const bsr_step &step, uint64_t seed, Device &device)
    : bsr_session(step, seed, device, nullptr, false) {}

bsr_session::bsr_session(const bsr_step &step, bsr_session &source, bool trains)
    : bsr_session(step, source.counters.seed, source.device, &source, trains) {}

bsr_session::bsr_session(const bsr_step &step, uint64_t seed, Device &device,
                         bsr_session *source, bool trains)
    : owner(step.self), step(step), device(device), source(source),
      trains(trains),
      shared(findShared(step.manifest, source ? &source->manifest() : nullptr,
                        trains)),
      context{BSR_CONTEXT_VERSION, device.number(), nullptr, 0},
      hasPattern(step.manifest.patterns.size()) {
  // Both never run at once. On a GPU an arena keeps plans from run to run.
  bool hasArena = !trains || !device.isHost() ||
                  manifest().arenaBytes > source->manifest().arenaBytes;
  int64_t bytes = hasArena ? Memory::partBytes(manifest().arenaBytes) : 0;
  // Scores lie in the arena, and what is shared in the source.
  auto isOwn = [&](size_t i) {
    return manifest().buffers[i].kind != BSR_SCORES && shared[i] < 0;
  };
  for (size_t i = 0; i < manifest().buffers.size(); ++i)
    if (isOwn(i))
      bytes += Memory::partBytes(manifest().buffers[i].bytes);
  // Patterns are the source's.
  roomBytes = device.isHost() || source ? 0 : roomForUpdates(manifest());
  bytes += Memory::partBytes(roomBytes);
  moreScratch.resize(numUpdateThreads(manifest()) - 1);
  histories.resize(manifest().patterns.size());
  scoreSums.resize(manifest().patterns.size());
  pruneFlags.resize(manifest().patterns.size());
  newBlocks.resize(manifest().patterns.size());

  int64_t areas = Memory::areasTaken();
  area = Memory(device, bytes, "the buffers of the step");
  arena = hasArena ? area.cut(manifest().arenaBytes) : source->arena;
  for (size_t i = 0; i < manifest().buffers.size(); ++i) {
    const Buffer &buffer = manifest().buffers[i];
    buffers.push_back(isOwn(i) ? area.cut(buffer.bytes)
                      : shared[i] < 0
                          ? static_cast<char *>(arena) + buffer.arenaOffset
                          : source->buffers[size_t(shared[i])]);
  }
  room = area.cut(roomBytes);

  // The arena holds nothing before a run.
  if (!device.isHost())
    for (size_t i = 0; i < buffers.size(); ++i)
      if (isOwn(i))
        device.zero(buffers[i], manifest().buffers[i].bytes);

  hostIndices.resize(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i)
    if (device.isHost() && isIndices(manifest().buffers[i].kind))
      hostIndices[i] = static_cast<int32_t *>(buffers[i]);
  int64_t ownBytes = 0;
  forEachPart(*this, [&](auto *&part, int64_t size) {
    ownBytes += Memory::partBytes(size * int64_t(sizeof *part));
  });
  ownArea = Memory(hostDevice(), ownBytes, "the updates of patterns");
  forEachPart(*this, [&](auto *&part, int64_t size) {
    using Pointer = std::remove_reference_t<decltype(part)>;
    part = static_cast<Pointer>(ownArea.cut(size * int64_t(sizeof *part)));
  });
  for (size_t i = 0; i < buffers.size(); ++i)
    if (shared[i] >= 0)
      hostIndices[i] = source->hostIndices[size_t(shared[i])];
  if (step.ptx || device.number() == BSR_CUDA)
    program = device.load(step, buffers.data(), arena);
  counters.seed = seed;
  counters.bytes = bytes + ownBytes;
  counters.allocations = Memory::areasTaken() - areas;
}

void bsr_session::requireHost() const {
  if (!device.isHost())
    fail(BSR_INVALID_ARGUMENT,
         "expected a session in the host's memory, but got one on device ",
         device.number());
}

int32_t bsr_session::member() const {
  auto *communicator = static_cast<Communicator *>(context.communicator);
  return communicator ? communicator->member() : 0;
}

int64_t bsr_session::shardOffset(int64_t index) const {
  const Buffer &buffer = manifest().buffers[index];
  return sparse_opt::shardOffset(member(), buffer.bytes, buffer.wholeBytes);
}

void *bsr_session::readBuffer(int64_t index, std::vector<char> &copy) const {
  if (device.isHost())
    return buffers[index];
  copy.resize(size_t(manifest().buffers[index].bytes));
  device.read(copy.data(), buffers[index], int64_t(copy.size()));
  return copy.data();
}

/// Fills `data`, the memory of `buffer`, by `rule`.
/// It begins with element `first` of what it is a share of.
static void fill(const Buffer &buffer, void *data, const InitRule &rule,
                 uint64_t seed, int64_t first) {
  RandomStream random(seed, "init", buffer.name);
  for (int64_t i = 0; i < buffer.elements; ++i)
    storeElement(buffer.type, data, i,
                 rule.kind == InitRule::Constant
                     ? rule.argument
                     : rule.argument * random.normal(first + i));
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
  if (parsed->kind == InitRule::Constant && parsed->argument == 0)
    device.zero(buffers[index], buffer.bytes);
  else
    fillBuffer(index, [&](char *data) {
      fill(buffer, data, *parsed, counters.seed,
           shardOffset(index) / bsr_type_bytes(buffer.type));
    });
  if (buffer.kind == BSR_VALUES && hasPattern[buffer.pattern])
    zeroUnusedSlots(buffer.pattern);
}

bsr_status bsr_session_create(const bsr_step *step, const char *device,
                              uint64_t seed, bsr_session **session) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(device, "device");
    requireArgument(session, "session");
    if (!step->self)
      fail(BSR_INVALID_ARGUMENT, "expected a step that is loaded, but got '",
           step->manifest.name, "', which was unloaded");
    *session = new bsr_session(*step, seed, findDevice(device));
  });
}

void bsr_session_destroy(bsr_session *session) { delete session; }

bsr_status bsr_session_initialize(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    session->requireOwner();
    const Manifest &manifest = session->manifest();
    for (size_t i = 0; i < manifest.patterns.size(); ++i)
      session->makePattern(int64_t(i), BSR_MOST_BLOCKS);
    for (size_t i = 0; i < manifest.buffers.size(); ++i)
      if (!manifest.buffers[i].init.empty())
        session->initBuffer(int64_t(i), manifest.buffers[i].init);
  });
}

/// The address of `bytes` bytes from `offset` of buffer `index`; fails unless
/// the buffer has them.
static char *requireRange(const bsr_session *session, int64_t index,
                          int64_t offset, int64_t bytes, const void *data) {
  requireArgument(session, "session");
  requireArgument(data, "data");
  requireIndex(index, int64_t(session->buffers.size()), "buffers");
  const Buffer &buffer = session->manifest().buffers[index];
  if (offset < 0 || bytes < 0 || offset > buffer.bytes ||
      bytes > buffer.bytes - offset)
    fail(BSR_INVALID_ARGUMENT, "expected a part of the ", buffer.bytes,
         " bytes of buffer '", buffer.name, "', but got ", bytes,
         " bytes from ", offset);
  return static_cast<char *>(session->buffers[index]) + offset;
}

bsr_status bsr_session_read(const bsr_session *session, int64_t index,
                            int64_t offset, int64_t bytes, void *data) {
  return guarded([&] {
    const char *memory = requireRange(session, index, offset, bytes, data);
    session->device.read(data, memory, bytes);
  });
}

bsr_status bsr_session_write(bsr_session *session, int64_t index,
                             int64_t offset, int64_t bytes, const void *data) {
  return guarded([&] {
    char *memory = requireRange(session, index, offset, bytes, data);
    const Buffer &buffer = session->manifest().buffers[index];
    if (isIndices(buffer.kind))
      fail(BSR_INVALID_ARGUMENT, "expected a buffer of other kind than ",
           bsr_kind_name(buffer.kind), ", but got '", buffer.name, "'");
    session->device.write(memory, data, bytes);
  });
}

/// Fails unless `session` is on a GPU.
static void requireGPU(const bsr_session *session) {
  requireArgument(session, "session");
  if (session->device.gpu() < 0)
    fail(BSR_INVALID_ARGUMENT, "expected a session on a GPU, but got one on ",
         session->device.name());
}

/// Fails unless a caller may have buffer `index` of a GPU.
static void requireShared(const bsr_session *session, int64_t index) {
  requireGPU(session);
  requireIndex(index, int64_t(session->buffers.size()), "buffers");
  const Buffer &buffer = session->manifest().buffers[index];
  if (isIndices(buffer.kind))
    fail(BSR_INVALID_ARGUMENT, "expected a buffer of other kind than ",
         bsr_kind_name(buffer.kind), ", but got '", buffer.name, "'");
}

bsr_status bsr_session_device_data(const bsr_session *session, int64_t index,
                                   void **data, int32_t *gpu) {
  return guarded([&] {
    requireArgument(data, "data");
    requireArgument(gpu, "gpu");
    requireShared(session, index);
    *data = session->buffers[index];
    *gpu = session->device.gpu();
  });
}

bsr_status bsr_session_copy_from(bsr_session *session, int64_t index,
                                 const void *data) {
  return guarded([&] {
    requireArgument(data, "data");
    requireShared(session, index);
    session->device.copy(session->buffers[index], data,
                         session->manifest().buffers[index].bytes);
  });
}

bsr_status bsr_session_wait_for(bsr_session *session, void *stream) {
  return guarded([&] {
    requireGPU(session);
    session->device.waitFor(stream);
  });
}

bsr_status bsr_session_let_wait(bsr_session *session, void *stream) {
  return guarded([&] {
    requireGPU(session);
    session->device.letWait(stream);
  });
}

bsr_status bsr_session_host_data(bsr_session *session, int64_t index,
                                 void **data) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(data, "data");
    requireIndex(index, int64_t(session->buffers.size()), "buffers");
    *data = session->hostData(index);
  });
}

void bsr_session::requireStage() const {
  const sparse_opt::Manifest &step = manifest();
  int32_t rank = bsr_communicator_rank(context.communicator);
  int32_t size = bsr_communicator_size(context.communicator);
  if (!step.stages)
    return;
  if (size % step.stages || rank % step.stages != step.stage)
    fail(BSR_INVALID_STEP, "expected rank ", step.stage, " of ", step.stages,
         " processes for that stage of step '", step.name, "', but got rank ",
         rank, " of ", size);
  if (size > step.stages && !step.replicas)
    fail(BSR_INVALID_STEP, "expected ", step.stages, " processes for step '",
         step.name,
         "', whose stages were compiled without --data-parallel, but got ",
         size);
}

void bsr_session::requireProcesses() const {
  int32_t size = bsr_communicator_size(context.communicator);
  int64_t sharded = manifest().sharded, stages = manifest().stages;
  if (sharded && size != sharded * std::max<int64_t>(stages, 1))
    fail(BSR_INVALID_STEP, "expected ", sharded * std::max<int64_t>(stages, 1),
         " processes for step '", manifest().name,
         "', which was compiled with --shard-state=", sharded,
         stages ? " in " + std::to_string(stages) + " stages" : "",
         ", but got ", size);
}

bool bsr_session::appliesUpdate() const {
  const Buffer &buffer = manifest().buffers[size_t(manifest().applyBuffer)];
  const auto *bytes =
      static_cast<const char *>(hostData(manifest().applyBuffer));
  return std::any_of(bytes, bytes + buffer.bytes, [](char b) { return b; });
}

void bsr_session::run(bool scores) {
  const std::string &name = manifest().name;
  requireStage();
  requireProcesses();
  // A run that only adds up gradients does not communicate. With scores it
  // takes means, and sums go on from the mean: that of what is added to them is
  // the same.
  bsr_context own = context;
  if (!scores && manifest().applyBuffer >= 0 && !appliesUpdate())
    own.communicator = nullptr;
  auto run = [&]() -> int32_t {
    if (!program)
      return (scores ? step.runScores : step.run)(&own, buffers.data(), arena);
    program->run(scores, programVersion != currentVersion());
    programVersion = currentVersion();
    return BSR_STEP_RAN;
  };
  bsr_session &counted = trains ? *source : *this;
  counted.hasScores = counted.hasSums = false;
  switch (int32_t status = run()) {
  case BSR_STEP_RAN:
    if (trains && scores)
      giveScores();
    counted.hasScores = scores;
    // All stages together run what one process would.
    counted.counters.steps += manifest().microBatches *
                              bsr_communicator_size(context.communicator) /
                              std::max<int64_t>(manifest().stages, 1);
    if (context.communicator)
      static_cast<Communicator *>(context.communicator)->requireIntact();
    return;
  case BSR_STEP_OTHER_VERSION:
    fail(BSR_INVALID_STEP, "expected a context of version ", own.error,
         " for step '", name, "', but got one of version ", context.version);
  case BSR_STEP_OTHER_DEVICE:
    fail(BSR_INVALID_STEP, "expected device ", own.error, " for step '", name,
         "', but got device ", context.device);
  default:
    fail(BSR_INVALID_STEP, "expected a status from 0 to ",
         int(BSR_STEP_OTHER_DEVICE), " of step '", name, "', but got ", status);
  }
}

bsr_status bsr_session_run(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    session->run(/*scores=*/false);
  });
}

bsr_status bsr_session_communicate(bsr_session *session,
                                   bsr_communicator *communicator) {
  return guarded([&] {
    requireArgument(session, "session");
    int32_t size = bsr_communicator_size(communicator);
    if (size > 1 && !session->manifest().communicates)
      fail(BSR_INVALID_STEP,
           "expected a step that was compiled with --data-parallel for ", size,
           " processes, but got '", session->manifest().name, "'");
    session->context.communicator = communicator;
    session->requireProcesses();
    if (session->manifest().stages && size > 1) {
      session->requireStage();
      static_cast<Communicator *>(communicator)
          ->setStages(int32_t(session->manifest().stages));
    }
  });
}

bsr_status bsr_session_run_scores(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    const bsr_step &step = session->step;
    if (step.manifest.scoreNorm.empty())
      fail(BSR_INVALID_ARGUMENT,
           "expected a step that was compiled with scores of blocks, but got '",
           step.manifest.name, "', whose manifest has no score_norm");
    session->run(/*scores=*/true);
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
  session.copyArea =
      Memory(session.device, bytes, "a copy of the carried buffers");
  for (const Buffer &buffer : session.manifest().buffers)
    if (buffer.carried)
      session.copies.push_back(session.copyArea.cut(buffer.bytes));
  session.counters.bytes += bytes;
  ++session.counters.allocations;
}

bsr_status bsr_session_snapshot(bsr_session *session) {
  return guarded([&] {
    requireArgument(session, "session");
    if (session->trains)
      session->requireOwner();
    if (!session->copyArea.bytes())
      allocateCopies(*session);
    forEachCopy(*session, [&](const Buffer &buffer, void *memory, void *copy) {
      session->device.copy(copy, memory, buffer.bytes);
    });
    session->copiedSums = session->scoreSums;
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
    forEachCopy(*session, [&](const Buffer &buffer, void *memory, void *copy) {
      session->device.copy(memory, copy, buffer.bytes);
    });
    session->scoreSums = session->copiedSums;
    session->counters.steps = session->copiedSteps;
    session->hasScores = false;
  });
}

/// The sum of `flops` and of `count` times `each`, or the largest number.
static int64_t addFlops(int64_t flops, int64_t each, int64_t count) {
  int64_t product, sum;
  if (__builtin_mul_overflow(each, count, &product) ||
      __builtin_add_overflow(flops, product, &sum))
    return INT64_MAX;
  return sum;
}

int64_t bsr_session_flops(const bsr_session *session, int32_t scores) {
  if (!session || !session->manifest().flops)
    return -1;
  const Manifest &manifest = session->manifest();
  int64_t flops = manifest.flops->dense;
  if (scores)
    flops = addFlops(flops, manifest.flops->scores, 1);
  for (size_t i = 0; i < manifest.patterns.size(); ++i)
    flops = addFlops(flops, manifest.patterns[i].flops,
                     session->view(int64_t(i)).blocks);
  return flops;
}

bsr_status bsr_session_counters(const bsr_session *session,
                                bsr_counters *counters) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(counters, "counters");
    *counters = session->counters;
    for (const auto *sums : {&session->scoreSums, &session->copiedSums})
      for (const std::vector<float> &some : *sums)
        counters->bytes += 4 * int64_t(some.capacity());
  });
}
